// SPDX-License-Identifier: MIT
// A context and nothing else: created, destroyed, created again.
#include "mark.h"

int main(void)
{
	mark("begin");
	MUST(cudaFree(0));
	mark("context");
	MUST(cudaDeviceReset());
	mark("reset");
	MUST(cudaFree(0));
	mark_memory("context again");
	return 0;
}
