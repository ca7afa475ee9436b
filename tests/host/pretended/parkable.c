/* SPDX-License-Identifier: MIT */
/*
 * parkable HELD CLIENT: a tenant that has so many allocations of 1 MiB and uses CUDA. At `work` it
 * calls CUDA and says `worked`; after `fail` its next checkpoint fails.
 */
#define main tenant_main
#include "tenant.c"
#undef main

int cuInit(unsigned int flags);
int cuWork(void);
int program_leaves(void);
int program_returns(void);

static uint32_t held;
static int fails;

int program_leaves(void)
{
	uint32_t i;

	if (fails)
		return 801;
	for (i = 0; i < held; i++)
		give(FIRST + i);
	return failed ? 999 : 0;
}

/* In another order than they were made. */
int program_returns(void)
{
	uint32_t i;

	for (i = held; i--;)
		take(FIRST + i);
	return failed ? 2 : 0;
}

int main(int argc, char **argv)
{
	struct nv0080_alloc device = { 0 };
	uint32_t root = 0, status;
	char line[16];

	if (argc != 3)
		return 1;
	held = (uint32_t)atoi(argv[1]);
	fd = open("/dev/null", O_RDWR);
	allocate(0, 0, NV01_ROOT_CLIENT, &root, &status);
	client = (uint32_t)strtoul(argv[2], NULL, 0);
	allocate(client, DEVICE, NV01_DEVICE_0, &device, &status);
	if (cuInit(0) || program_returns())
		return 1;
	printf("ready\n%d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		fails = line[0] == 'f';
		if (line[0] == 'w')
			puts(cuWork() || failed ? first : "worked");
		fflush(stdout);
	}
	return failed != 0;
}
