// SPDX-License-Identifier: MIT
// cudaMalloc and cudaFree of many sizes, cuMemGetInfo after each.
#include "mark.h"

int main(void)
{
	static const size_t sizes[] = {
		1, 4096, 65536, 65537, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, 2 << 20, (2 << 20) + 1,
		3 << 20, 4 << 20, 5 << 20, 33 << 20, 100 << 20, (100 << 20) + 12345, 1 << 30,
		(1ull << 30) + 1, 8ull << 30,
	};
	const int n = sizeof(sizes) / sizeof(*sizes);
	void *p[n], *many[24];
	char text[128];
	int i;

	MUST(cudaFree(0));
	mark_memory("context");
	for (i = 0; i < n; i++) {
		MUST(cudaMalloc(&p[i], sizes[i]));
		snprintf(text, sizeof(text), "malloc %zu", sizes[i]);
		mark_memory(text);
	}
	for (i = 0; i < n; i++) {
		MUST(cudaFree(p[i]));
		snprintf(text, sizeof(text), "free %zu", sizes[i]);
		mark_memory(text);
	}
	/* Small ones share blocks. */
	for (i = 0; i < 24; i++)
		MUST(cudaMalloc(&many[i], 300 << 10));
	mark_memory("malloc 24 x 307200");
	for (i = 0; i < 24; i += 2)
		MUST(cudaFree(many[i]));
	mark_memory("free every other");
	for (i = 1; i < 24; i += 2)
		MUST(cudaFree(many[i]));
	mark_memory("free the others");
	return 0;
}
