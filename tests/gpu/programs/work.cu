// SPDX-License-Identifier: MIT
/*
 * Work of a fixed size, counted: a preempted kernel makes no progress, whereas
 * the GPU's clock goes on. The count and the time of the last completion lie in
 * a shared file, for a harness to read while this runs.
 *
 *   work FILE --ms M          kernels of about M milliseconds, calibrated alone
 *   work FILE --iters N       kernels of N iterations
 *     --seconds S --depth D   run for S seconds with D kernels queued
 *     --graph                 ten kernels a CUDA graph
 *     --every MS              one kernel every MS milliseconds; latencies at the end
 *     --fault S               an illegal access after S seconds
 *     --blocks B              of 256 threads a kernel; else eight a multiprocessor seen
 *     --calibrate             print the iterations of --ms and the blocks, and exit
 */
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#include "load.cuh"

__global__ void bad_store(int *nowhere)
{
	*nowhere = 1;
}

int main(int argc, char **argv)
{
	double ms = 1, seconds = 5, every_ms = 0, fault_s = 0;
	long iterations = 0, depth = 4, blocks = 0;
	bool graph = false, calibrate = false;
	int sms = 0;
	float *out;

	for (int i = 2; i < argc; i++) {
		const char *name = argv[i];
		const char *value = i + 1 < argc ? argv[i + 1] : "0";

		if (!strcmp(name, "--graph"))
			graph = true;
		else if (!strcmp(name, "--calibrate"))
			calibrate = true;
		else if (!strcmp(name, "--ms"))
			ms = atof(value), i++;
		else if (!strcmp(name, "--iters"))
			iterations = atol(value), i++;
		else if (!strcmp(name, "--seconds"))
			seconds = atof(value), i++;
		else if (!strcmp(name, "--depth"))
			depth = atol(value), i++;
		else if (!strcmp(name, "--every"))
			every_ms = atof(value), i++;
		else if (!strcmp(name, "--blocks"))
			blocks = atol(value), i++;
		else if (!strcmp(name, "--fault"))
			fault_s = atof(value), i++;
	}
	int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(progress))) {
		perror(argv[1]);
		return 1;
	}
	auto *progress_at = (volatile progress *)mmap(NULL, sizeof(progress),
		PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	check(cudaMalloc(&out, 4), "cudaMalloc");
	check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "attribute");
	if (!blocks)
		blocks = sms * 8;
	if (!iterations) {
		const long probe = 500000;
		double best = 1e9;

		for (int i = 0; i < 6; i++) {
			uint64_t from = now_ns();

			multiply_add<<<(int)blocks, 256>>>(out, probe);
			check(cudaDeviceSynchronize(), "calibration");
			best = std::min(best, (now_ns() - from) / 1e6);
		}
		iterations = (long)(probe * ms / best);
	}
	if (calibrate) {
		printf("%ld %ld\n", iterations, blocks);
		return 0;
	}

	cudaStream_t stream;
	cudaGraphExec_t exec = NULL;
	check(cudaStreamCreate(&stream), "stream");
	if (graph) {
		cudaGraph_t captured;

		check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
		for (int i = 0; i < 10; i++)
			multiply_add<<<(int)blocks, 256, 0, stream>>>(out, iterations / 10);
		check(cudaStreamEndCapture(stream, &captured), "capture");
		check(cudaGraphInstantiate(&exec, captured, 0), "instantiate");
	}
	auto submit = [&] {
		if (graph)
			check(cudaGraphLaunch(exec, stream), "graph");
		else
			multiply_add<<<(int)blocks, 256, 0, stream>>>(out, iterations);
	};

	uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
	if (every_ms > 0) {
		std::vector<double> took_ms;

		for (uint64_t at = start; at < end; at += (uint64_t)(every_ms * 1e6)) {
			int64_t left = (int64_t)(at - now_ns());
			timespec pause = {left / 1000000000, left % 1000000000};

			if (left > 0)
				nanosleep(&pause, NULL);
			uint64_t from = now_ns();
			submit();
			check(cudaStreamSynchronize(stream), "kernel");
			took_ms.push_back((now_ns() - from) / 1e6);
			progress_at->last_ns = now_ns();
			progress_at->count = progress_at->count + 1;
		}
		std::sort(took_ms.begin(), took_ms.end());
		size_t n = took_ms.size();
		printf("{\"n\": %zu, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f}\n", n,
		       took_ms[n / 2], took_ms[n * 99 / 100], took_ms[n - 1]);
		return 0;
	}

	std::vector<cudaEvent_t> done(depth);
	for (auto &event : done) {
		check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
		      "event");
		submit();
		check(cudaEventRecord(event, stream), "record");
	}
	for (long i = 0; now_ns() < end; i++) {
		if (fault_s > 0 && now_ns() > start + (uint64_t)(fault_s * 1e9)) {
			bad_store<<<1, 1, 0, stream>>>((int *)16);
			check(cudaStreamSynchronize(stream), "fault");
		}
		cudaEvent_t &event = done[i % depth];
		check(cudaEventSynchronize(event), "kernel");
		progress_at->last_ns = now_ns();
		progress_at->count = progress_at->count + 1;
		submit();
		check(cudaEventRecord(event, stream), "record");
	}
	check(cudaDeviceSynchronize(), "end");
	printf("{\"count\": %llu}\n", (unsigned long long)progress_at->count);
	return 0;
}
