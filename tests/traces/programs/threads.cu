// SPDX-License-Identifier: MIT
// Four threads of one process allocate and free at once.
#include <pthread.h>
#include "mark.h"

static void *work(void *arg)
{
	size_t size = (size_t)arg;
	void *p;

	for (int i = 0; i < 6; i++) {
		MUST(cudaMalloc(&p, size));
		MUST(cudaFree(p));
	}
	return NULL;
}

int main(void)
{
	pthread_t t[4];
	int i;

	MUST(cudaFree(0));
	mark_memory("context");
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, work, (void *)((size_t)(i + 1) * (7 << 20)));
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	mark_memory("threads done");
	return 0;
}
