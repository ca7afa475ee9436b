// SPDX-License-Identifier: MIT
// Holds 300 MiB until its standard input ends, so that tools have a process to list.
#include <unistd.h>
#include "mark.h"

int main(void)
{
	void *p;
	char c;

	MUST(cudaMalloc(&p, 300 << 20));
	mark_memory("holding 314572800");
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
