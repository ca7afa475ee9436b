// SPDX-License-Identifier: MIT
// Managed memory: 64 MiB and 128 MiB, touched on both sides, prefetched, freed.
#include "mark.h"

__global__ void fill(char *p, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		p[i] = 1;
}

int main(void)
{
	const size_t a_bytes = 64 << 20, b_bytes = 128 << 20;
	cudaMemLocation gpu = { cudaMemLocationTypeDevice, 0 }, host = { cudaMemLocationTypeHost, 0 };
	char *a, *b, *c;

	MUST(cudaFree(0));
	mark_memory("context");
	MUST(cudaMallocManaged(&a, a_bytes));
	mark_memory("managed 67108864");
	fill<<<132, 256>>>(a, a_bytes);
	MUST(cudaDeviceSynchronize());
	mark_memory("touched on the GPU");
	for (size_t i = 0; i < a_bytes; i += 4096)
		a[i] = 2;
	mark_memory("touched on the host");
	MUST(cudaMallocManaged(&b, b_bytes));
	mark_memory("managed 134217728");
	MUST(cudaMemPrefetchAsync(b, b_bytes, gpu, 0, 0));
	MUST(cudaDeviceSynchronize());
	mark_memory("prefetched to the GPU");
	MUST(cudaMemPrefetchAsync(b, b_bytes, host, 0, 0));
	MUST(cudaDeviceSynchronize());
	mark_memory("prefetched to the host");
	MUST(cudaMallocManaged(&c, 5000));
	fill<<<1, 256>>>(c, 5000);
	MUST(cudaDeviceSynchronize());
	mark_memory("managed 5000, touched on the GPU");
	MUST(cudaFree(a));
	mark_memory("free 67108864");
	MUST(cudaFree(b));
	mark_memory("free 134217728");
	MUST(cudaFree(c));
	mark_memory("free 5000");
	return 0;
}
