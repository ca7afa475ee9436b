/* SPDX-License-Identifier: MIT */
/*
 * group CLIENT HANDLE...: tries to have these objects of that client's (hex) as its own, and prints
 * the status of each. group class: the same of an object of MPS_COMPUTE.
 */
#include "simcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MPS_COMPUTE = 0x900e };

int main(int argc, char **argv)
{
	static struct sc sc;
	u32 handle = 0;
	int ret, i;

	if (argc < 2)
		return 1;
	ret = sc_open(&sc, 0, NULL);
	if (ret) {
		fprintf(stderr, "group: open: status %#x\n", ret);
		return 2;
	}
	if (!strcmp(argv[1], "class"))
		printf("%d\n", sc_rm_alloc(&sc, sc.client, &handle, MPS_COMPUTE, NULL, 0));
	for (i = 2; i < argc; i++) {
		handle = sc.next_handle++;
		printf("%d\n", sc_rm_dup(&sc, sc.client, sc.device, &handle,
					 strtoul(argv[1], NULL, 16), strtoul(argv[i], NULL, 16)));
	}
	return 0;
}
