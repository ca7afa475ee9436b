// SPDX-License-Identifier: MIT
// Memory other than cudaMalloc's: pinned and registered host memory, arrays, pitched memory,
// streams, a big kernel stack.
#include "mark.h"

__global__ void deep(int *out, int n)
{
	volatile char pad[4096];

	for (int i = 0; i < 4096; i++)
		pad[i] = (char)(i * n);
	if (out)
		*out = pad[n];
}

int main(void)
{
	cudaChannelFormatDesc texel = cudaCreateChannelDesc<float4>();
	cudaArray_t array;
	cudaStream_t streams[32];
	void *host, *mapped, *pitched;
	size_t pitch;
	char *plain = (char *)aligned_alloc(4096, 8 << 20);
	int i;

	MUST(cudaFree(0));
	mark_memory("context");
	MUST(cudaMallocHost(&host, 16 << 20));
	mark_memory("host 16 MiB");
	MUST(cudaHostAlloc(&mapped, 4 << 20, cudaHostAllocMapped | cudaHostAllocPortable));
	mark_memory("mapped host 4 MiB");
	MUST(cudaHostRegister(plain, 8 << 20, cudaHostRegisterDefault));
	mark_memory("registered 8 MiB");
	MUST(cudaMallocPitch(&pitched, &pitch, 5000, 3000));
	mark_memory("pitched 5000 x 3000");
	MUST(cudaMallocArray(&array, &texel, 2048, 1024));
	mark_memory("array 2048 x 1024 float4");
	for (i = 0; i < 32; i++)
		MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
	mark_memory("32 streams");
	deep<<<132, 1024, 0, streams[0]>>>(NULL, 7);
	MUST(cudaStreamSynchronize(streams[0]));
	mark_memory("kernel with 4 KiB of stack");
	for (i = 0; i < 32; i++)
		MUST(cudaStreamDestroy(streams[i]));
	mark_memory("streams destroyed");
	MUST(cudaFreeArray(array));
	MUST(cudaFree(pitched));
	MUST(cudaHostUnregister(plain));
	MUST(cudaFreeHost(mapped));
	MUST(cudaFreeHost(host));
	mark_memory("all freed");
	return 0;
}
