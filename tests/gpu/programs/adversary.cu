// SPDX-License-Identifier: MIT
/*
 * A tenant that would have more than its part by what it shows of its work.
 *   adversary FILE wakes      a kernel of microseconds, waited for, and the next
 *   adversary FILE frozen     one kernel that does not end: GP_PUT does not move
 *   adversary FILE spins      always at work, and GP_PUT of its idle channels runs
 *   adversary FILE channels   always at work, through as many channels as it gets
 *     --seconds S --iters N --blocks B
 * FILE counts kernels as work.cu's does. At the end: {"count": …, "channels": …}.
 */
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#include "load.cuh"

/*
 * libcuda's calls pass here: which memory holds the USERD of each channel, and
 * where this process has it.
 */
namespace {

enum {
	NV_ESC_RM_ALLOC = 0x2b,
	NV_ESC_RM_MAP_MEMORY = 0x4e,
	NVOS33_STATUS = 40,
	NVOS33_FD = 48,
	GP_PUT = 0x8c,
};

struct channel {
	uint32_t hClient, hUserdMemory;
	uint64_t userdOffset;
};

struct mapping {
	uint32_t hClient, hMemory;
	int fd;
	uint64_t offset, length;
	char *at;
};

std::mutex lock;
std::vector<channel> channels;
std::vector<mapping> mappings;

uint32_t get32(const void *from, size_t offset)
{
	uint32_t value;

	memcpy(&value, (const char *)from + offset, sizeof(value));
	return value;
}

uint64_t get64(const void *from, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)from + offset, sizeof(value));
	return value;
}

void *map(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
	void *got = (void *)syscall(SYS_mmap, at, length, prot, flags, fd, offset);

	if (fd < 0 || got == MAP_FAILED)
		return got;
	std::lock_guard<std::mutex> guard(lock);
	for (auto m = mappings.rbegin(); m != mappings.rend(); ++m)
		if (m->fd == fd && !m->at) {
			m->at = (char *)got;
			break;
		}
	return got;
}

std::vector<volatile uint32_t *> puts()
{
	std::lock_guard<std::mutex> guard(lock);
	std::vector<volatile uint32_t *> found;

	for (const channel &c : channels)
		for (const mapping &m : mappings)
			if (m.at && m.hClient == c.hClient && m.hMemory == c.hUserdMemory &&
			    c.userdOffset >= m.offset &&
			    c.userdOffset + GP_PUT + 4 <= m.offset + m.length) {
				found.push_back((volatile uint32_t *)(m.at + c.userdOffset -
								      m.offset + GP_PUT));
				break;
			}
	return found;
}

} // namespace

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept
{
	va_list list;

	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	int got = (int)syscall(SYS_ioctl, fd, request, arg);
	unsigned type = (request >> 8) & 0xff, nr = request & 0xff, size = (request >> 16) & 0x3fff;

	if (got || type != 'F' || !arg)
		return got;
	std::lock_guard<std::mutex> guard(lock);
	if (nr == NV_ESC_RM_ALLOC && size >= 32) {
		const void *params = (const void *)get64(arg, 16);

		if (params && (get32(arg, 12) & 0xff) == 0x6f && !get32(arg, size >= 48 ? 40 : 28))
			channels.push_back({ get32(arg, 0), get32(params, 32), get64(params, 64) });
	} else if (nr == NV_ESC_RM_MAP_MEMORY && size > NVOS33_FD && !get32(arg, NVOS33_STATUS)) {
		mappings.push_back({ get32(arg, 0), get32(arg, 8), (int)get32(arg, NVOS33_FD),
				     get64(arg, 16), get64(arg, 24), NULL });
	}
	return got;
}

extern "C" void *mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset) noexcept
{
	return map(at, length, prot, flags, fd, offset);
}

extern "C" void *mmap64(void *at, size_t length, int prot, int flags, int fd,
			off64_t offset) noexcept
{
	return map(at, length, prot, flags, fd, offset);
}

__global__ void endless(float *out, volatile uint64_t *stop)
{
	float a = threadIdx.x;

	while (!*stop)
		for (int i = 0; i < 20000; i++)
			a = fmaf(a, 1.000001f, 0.5f);
	if (a == 12345.f)
		*out = a;
}

/* GP_PUT of channels that nothing is submitted to runs one ahead and back. */
static void spin(const std::vector<volatile uint32_t *> &found, std::atomic<bool> *over)
{
	std::vector<uint32_t> first;
	std::vector<volatile uint32_t *> idle;

	for (auto put : found)
		first.push_back((uint32_t)*put);
	usleep(300000);
	for (size_t i = 0; i < found.size(); i++)
		if (*found[i] == first[i])
			idle.push_back(found[i]);
	fprintf(stderr, "adversary: %zu of %zu channels are idle\n", idle.size(), found.size());
	while (!*over)
		for (auto put : idle) {
			uint32_t was = *put;

			*put = was + 1;
			usleep(50);
			*put = was;
		}
}

int main(int argc, char **argv)
{
	double seconds = 5;
	long iterations = 1000000, blocks = 1024;

	if (argc < 3) {
		fprintf(stderr, "adversary: FILE wakes|frozen|spins|channels [options]\n");
		return 1;
	}
	const char *mode = argv[2];
	for (int i = 3; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--iters"))
			iterations = atol(argv[i + 1]);
		else if (!strcmp(argv[i], "--blocks"))
			blocks = atol(argv[i + 1]);
	}
	bool wakes = !strcmp(mode, "wakes"), frozen = !strcmp(mode, "frozen");
	size_t width = !strcmp(mode, "channels") ? 32 : 1;

	/* hardware queues, and so channels, that streams are spread over */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(progress))) {
		perror(argv[1]);
		return 1;
	}
	auto *at = (volatile progress *)mmap(NULL, sizeof(progress), PROT_READ | PROT_WRITE,
					     MAP_SHARED, fd, 0);
	float *out;
	volatile uint64_t *stop;
	check(cudaMalloc(&out, 4), "cudaMalloc");
	check(cudaHostAlloc((void **)&stop, sizeof(*stop), cudaHostAllocMapped), "stop");
	*stop = 0;

	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	if (frozen) {
		endless<<<(int)blocks, 256>>>(out, stop);
		while (now_ns() < end) {
			at->last_ns = now_ns();
			at->count = at->count + 1;
			usleep(10000);
		}
		*stop = 1;
		check(cudaDeviceSynchronize(), "end");
		printf("{\"count\": %llu, \"channels\": %zu}\n", (unsigned long long)at->count,
		       puts().size());
		return 0;
	}

	std::vector<cudaStream_t> streams(width);
	for (auto &stream : streams)
		check(cudaStreamCreate(&stream), "stream");
	std::atomic<bool> over(false);
	std::thread spinner;
	if (!strcmp(mode, "spins"))
		spinner = std::thread(spin, puts(), &over);
	const size_t depth = 4 * width;
	std::vector<cudaEvent_t> done(depth);
	for (auto &event : done)
		check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming |
					       cudaEventBlockingSync), "event");
	for (size_t i = 0; now_ns() < end; i++) {
		cudaStream_t stream = streams[i % width];

		if (wakes) {
			multiply_add<<<1, 32, 0, stream>>>(out, 1);
			check(cudaStreamSynchronize(stream), "kernel");
		} else {
			if (i >= depth)
				check(cudaEventSynchronize(done[i % depth]), "kernel");
			multiply_add<<<(int)blocks, 256, 0, stream>>>(out, iterations);
			check(cudaEventRecord(done[i % depth], stream), "record");
		}
		at->last_ns = now_ns();
		at->count = at->count + 1;
	}
	over = true;
	if (spinner.joinable())
		spinner.join();
	check(cudaDeviceSynchronize(), "end");
	printf("{\"count\": %llu, \"channels\": %zu}\n", (unsigned long long)at->count,
	       puts().size());
	return 0;
}
