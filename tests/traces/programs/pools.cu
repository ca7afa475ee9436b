// SPDX-License-Identifier: MIT
// cudaMallocAsync: the default pool, its growth, reuse and trimming; a pool of one's own.
#include "mark.h"

int main(void)
{
	cudaMemPoolProps props = {};
	cudaMemPool_t pool, mine;
	cudaStream_t stream;
	unsigned long long keep = ~0ull;
	void *p[8], *q;
	int i;

	MUST(cudaFree(0));
	MUST(cudaStreamCreate(&stream));
	mark_memory("context");
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	for (i = 0; i < 8; i++)
		MUST(cudaMallocAsync(&p[i], 20 << 20, stream));
	MUST(cudaStreamSynchronize(stream));
	mark_memory("8 x 20971520 async");
	for (i = 0; i < 8; i++)
		MUST(cudaFreeAsync(p[i], stream));
	MUST(cudaStreamSynchronize(stream));
	mark_memory("freed into the pool");
	MUST(cudaMallocAsync(&q, 100 << 20, stream));
	MUST(cudaStreamSynchronize(stream));
	mark_memory("104857600 out of the pool");
	MUST(cudaFreeAsync(q, stream));
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaMemPoolTrimTo(pool, 32 << 20));
	mark_memory("trimmed to 33554432");
	MUST(cudaMemPoolTrimTo(pool, 0));
	mark_memory("trimmed to 0");
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
	MUST(cudaMemPoolCreate(&mine, &props));
	MUST(cudaMallocFromPoolAsync(&q, 50 << 20, mine, stream));
	MUST(cudaStreamSynchronize(stream));
	mark_memory("52428800 out of a pool of its own");
	MUST(cudaFreeAsync(q, stream));
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaMemPoolDestroy(mine));
	mark_memory("pool destroyed");
	return 0;
}
