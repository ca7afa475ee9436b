// SPDX-License-Identifier: MIT
// Allocations that the card cannot hold, and life after them.
#include "mark.h"

int main(void)
{
	size_t free_bytes, total_bytes;
	void *p[64], *one;
	int i, n = 0;

	MUST(cudaFree(0));
	MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
	mark_memory("context");
	mark("malloc total+1GiB: error %d", (int)cudaMalloc(&one, total_bytes + (1ull << 30)));
	mark("malloc free+1GiB: error %d", (int)cudaMalloc(&one, free_bytes + (1ull << 30)));
	while (n < 64 && cudaMalloc(&p[n], 16ull << 30) == cudaSuccess)
		n++;
	mark("16 GiB blocks: %d, then error %d", n, (int)cudaGetLastError());
	mark_memory("full");
	MUST(cudaFree(p[--n]));
	mark_memory("freed one");
	MUST(cudaMalloc(&p[n++], 16ull << 30));
	mark_memory("took it again");
	for (i = 0; i < n; i++)
		MUST(cudaFree(p[i]));
	mark_memory("freed all");
	return 0;
}
