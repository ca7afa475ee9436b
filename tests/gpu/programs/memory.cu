// SPDX-License-Identifier: MIT
/*
 * One way of taking video memory each, until it is refused; then everything is
 * freed and taken again. A JSON object tells how much there was.
 *   memory malloc|managed|vmm|mapped|pool|ipc|reclaim|pieces|speed
 * `mapped`: each piece is mapped and its handle let go, so only the mapping keeps it.
 * `pieces`: of managed memory on the card a page in each 2 MiB stays mapped, which keep all of it.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

static const size_t CHUNK = 64 << 20;

static double now_us()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int fill_malloc(std::vector<void *> &all, int kind)
{
	for (;;) {
		void *p = NULL;
		cudaError_t e = kind == 0 ? cudaMalloc(&p, CHUNK) :
				kind == 1 ? cudaMallocManaged(&p, CHUNK) :
					    cudaMallocAsync(&p, CHUNK, 0);

		if (e != cudaSuccess) {
			cudaGetLastError();
			return e;
		}
		all.push_back(p);
		if (kind == 2)
			cudaStreamSynchronize(0);
		if (all.size() > 1024)
			return 0;
	}
}

static int fill_vmm(std::vector<CUmemGenericAllocationHandle> &all)
{
	CUmemAllocationProp prop = {};

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	for (;;) {
		CUmemGenericAllocationHandle h;
		CUresult e = cuMemCreate(&h, CHUNK, &prop, 0);

		if (e != CUDA_SUCCESS)
			return e;
		all.push_back(h);
		if (all.size() > 1024)
			return 0;
	}
}

/* Return: bytes that mappings keep when no more is given; all are unmapped then. */
static size_t fill_mapped(int *error)
{
	CUmemAllocationProp prop = {};
	CUdeviceptr base;
	size_t count = 0, i;

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	*error = cuMemAddressReserve(&base, 1024 * CHUNK, 0, 0, 0);
	while (!*error && count < 1024) {
		CUmemGenericAllocationHandle h;

		*error = cuMemCreate(&h, CHUNK, &prop, 0);
		if (*error)
			break;
		*error = cuMemMap(base + count * CHUNK, CHUNK, 0, h, 0);
		count += !*error;
		cuMemRelease(h);
	}
	for (i = 0; i < count; i++)
		cuMemUnmap(base + i * CHUNK, CHUNK);
	cuMemAddressFree(base, 1024 * CHUNK);
	return count;
}

static int ipc()
{
	int there[2], back[2];
	cudaIpcMemHandle_t handle;

	if (pipe(there) || pipe(back))
		return 1;
	pid_t child = fork(); /* before CUDA */
	if (!child) {
		void *p;
		unsigned char first = 0;

		if (read(there[0], &handle, sizeof(handle)) != sizeof(handle))
			_exit(3);
		cudaError_t e = cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess);
		if (e == cudaSuccess)
			e = cudaMemcpy(&first, p, 1, cudaMemcpyDeviceToHost);
		size_t free_bytes = 0, total = 0;
		cudaMemGetInfo(&free_bytes, &total);
		printf("{\"mode\": \"ipc\", \"error\": %d, \"value\": %d, \"free\": %zu, \"total\": %zu}\n",
		       e, first, free_bytes, total);
		fflush(stdout);
		if (write(back[1], "x", 1) != 1)
			_exit(3);
		_exit(e);
	}
	void *p;
	char byte;
	cudaMalloc(&p, 512 << 20);
	cudaMemset(p, 42, 512 << 20);
	cudaDeviceSynchronize();
	cudaIpcGetMemHandle(&handle, p);
	if (write(there[1], &handle, sizeof(handle)) != sizeof(handle) || read(back[0], &byte, 1) < 0)
		return 1;
	int status;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

/* cudaFree, and what free memory says at once */
static int reclaim()
{
	size_t before, after, total;
	void *p;

	cudaFree(0);
	cudaMemGetInfo(&before, &total);
	for (int i = 0; i < 200; i++) {
		if (cudaMalloc(&p, total / 2) != cudaSuccess) {
			printf("{\"mode\": \"reclaim\", \"error\": %d}\n", i);
			return 1;
		}
		cudaFree(p);
		if (cudaMallocManaged(&p, total / 2) != cudaSuccess) {
			printf("{\"mode\": \"reclaim\", \"error\": %d}\n", 1000 + i);
			return 1;
		}
		cudaFree(p);
	}
	cudaMemGetInfo(&after, &total);
	printf("{\"mode\": \"reclaim\", \"error\": 0, \"before\": %zu, \"after\": %zu}\n", before, after);
	return 0;
}

static int pieces()
{
	const size_t bytes = 1ul << 30, block = 2 << 20, page = 4096, most = 16;
	size_t count, at;
	char *p;

	cudaFree(0);
	for (count = 0; count < most; count++) {
		if (cudaMallocManaged((void **)&p, bytes) != cudaSuccess)
			break;
#if CUDART_VERSION >= 13000
		cudaMemLocation card = { cudaMemLocationTypeDevice, 0 };
		cudaError_t e = cudaMemPrefetchAsync(p, bytes, card, 0, 0);
#else
		cudaError_t e = cudaMemPrefetchAsync(p, bytes, 0, 0);
#endif
		if (e != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
			return 1;
		for (at = 0; at < bytes; at += block)
			if (munmap(p + at + page, block - page))
				return 1;
	}
	printf("{\"mode\": \"pieces\", \"kept\": %zu}\n", count * bytes);
	return 0;
}

static int speed()
{
	double from = now_us(), context_us, malloc_us = 0, free_us = 0;
	const int times = 100;
	void *p;

	cudaFree(0);
	context_us = now_us() - from;
	for (int i = 0; i < times; i++) {
		from = now_us();
		cudaMalloc(&p, CHUNK);
		malloc_us += now_us() - from;
		from = now_us();
		cudaFree(p);
		free_us += now_us() - from;
	}
	printf("{\"mode\": \"speed\", \"context_ms\": %.1f, \"malloc_us\": %.1f, \"free_us\": %.1f}\n",
	       context_us / 1e3, malloc_us / times, free_us / times);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "malloc";

	if (!strcmp(mode, "ipc"))
		return ipc();
	if (!strcmp(mode, "reclaim"))
		return reclaim();
	if (!strcmp(mode, "pieces"))
		return pieces();
	if (!strcmp(mode, "speed"))
		return speed();
	size_t free_bytes = 0, total = 0, first, second;
	int error = 0;

	if (cudaFree(0) != cudaSuccess || cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
		printf("{\"mode\": \"%s\", \"error\": -1}\n", mode);
		return 1;
	}
	if (!strcmp(mode, "mapped")) {
		int again;

		first = fill_mapped(&error);
		second = fill_mapped(&again);
	} else if (!strcmp(mode, "vmm")) {
		std::vector<CUmemGenericAllocationHandle> all;

		error = fill_vmm(all);
		first = all.size();
		for (auto h : all)
			cuMemRelease(h);
		all.clear();
		fill_vmm(all);
		second = all.size();
		for (auto h : all)
			cuMemRelease(h);
	} else {
		int kind = !strcmp(mode, "managed") ? 1 : !strcmp(mode, "pool") ? 2 : 0;
		std::vector<void *> all;

		error = fill_malloc(all, kind);
		first = all.size();
		for (auto p : all)
			kind == 2 ? cudaFreeAsync(p, 0) : cudaFree(p);
		cudaDeviceSynchronize();
		if (kind == 2) {
			cudaMemPool_t pool;

			cudaDeviceGetDefaultMemPool(&pool, 0);
			cudaMemPoolTrimTo(pool, 0);
		}
		all.clear();
		fill_malloc(all, kind);
		second = all.size();
	}
	printf("{\"mode\": \"%s\", \"total\": %zu, \"free\": %zu, \"got\": %zu, \"again\": %zu, "
	       "\"error\": %d}\n", mode, total, free_bytes, first * CHUNK, second * CHUNK, error);
	return 0;
}
