// SPDX-License-Identifier: MIT
/* The same kernel for all that load a card, and what they tell of it. */
#ifndef LOAD_CUH
#define LOAD_CUH

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <cuda_runtime.h>

/* In a file that the bench maps: how many kernels were done, and when the last was. */
struct progress {
	uint64_t count;
	uint64_t last_ns;
};

inline uint64_t now_ns()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

inline void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	printf("{\"error\": \"%s: %s\"}\n", what, cudaGetErrorString(error));
	exit(2);
}

__global__ void multiply_add(float *out, long iterations)
{
	float a = threadIdx.x * 1e-3f, b = 1.000001f;

	for (long i = 0; i < iterations; i++)
		a = fmaf(a, b, 0.5f);
	if (a == 12345.f)
		*out = a;
}

#endif
