/* SPDX-License-Identifier: MIT */
/*
 * parkable HELD CLIENT: a tenant that has so many allocations of 1 MiB, and a channel, and uses
 * CUDA. At a line of standard input
 *   work     it calls CUDA, submits something that the card does at once, and says `worked`
 *   grow N   it has an allocation of so many MiB more, and says `grown`, or what the driver said
 *   queue    it submits something that the card does not begin
 *   wait     it waits in CUDA, having submitted nothing, until the next line
 *   fail     its next checkpoint fails
 *   halt     it stops itself amid its next return, as by SIGSTOP from beside
 *   name X   its main thread is called so, as the tree tells: `named`
 */
#define main tenant_main
#include "tenant.c"
#undef main

#include <stdatomic.h>
#include <sys/prctl.h>

#include "userd.h"

enum { GREW = 0x8000, GROWN_MAX = 16, GP_GET = 0x88, SUBDEVICE = 0x11, GROUP = 0x21, CHANNEL = 0x22 };

int cuInit(unsigned int flags);
int cuEnter(void);
int cuLeave(void);
int cuWaitFor(int fd);
void cuMoves(int (*leaves)(void), int (*returns)(void));

static uint32_t held;
static uint64_t grown[GROWN_MAX]; /* bytes */
static uint32_t grown_count;
static int fails, halts;
static _Atomic uint64_t *words; /* GP_GET, and above it GP_PUT */

static void submit(bool done)
{
	uint64_t put = (*words >> 32) + 1;

	*words = put << 32 | (done ? put : *words & 0xffffffff);
}

static void make(const char *what, uint32_t hParent, uint32_t hObject, uint32_t hClass,
		 void *params)
{
	uint32_t status;
	int ret = allocate(hParent, hObject, hClass, params, &status);

	done(what, ret, status);
}

static void open_channel(void)
{
	struct nv_memory_alloc memory = { .size = USERD_BYTES };
	struct nv_group_alloc group = { .engineType = 1 };
	struct nv_channel_alloc channel = {
		.hUserdMemory = { USERD_MEMORY }, .engineType = 1,
	};
	struct nv_gpfifo_schedule schedule = { .bEnable = 1 };
	struct nvos54 args = {
		.hClient = client, .hObject = GROUP, .cmd = NVA06C_CTRL_CMD_GPFIFO_SCHEDULE,
		.params = (uintptr_t)&schedule, .paramsSize = 2,
	};
	int ret;

	make("USERD", DEVICE, USERD_MEMORY, NV01_MEMORY_SYSTEM, &memory);
	make("group", DEVICE, GROUP, KEPLER_CHANNEL_GROUP_A, &group);
	make("channel", GROUP, CHANNEL, HOPPER_CHANNEL_GPFIFO_A, &channel);
	ret = call(NV_ESC_RM_CONTROL, &args, sizeof(args));
	done("schedule", ret, args.status);
}

static int program_leaves(void)
{
	uint32_t i;

	if (fails)
		return 801;
	give(CHANNEL);
	give(GROUP);
	give(USERD_MEMORY);
	for (i = 0; i < held; i++)
		give(FIRST + i);
	for (i = 0; i < grown_count; i++)
		give(GREW + i);
	return failed ? 999 : 0;
}

/* In another order than they were made. */
static int program_returns(void)
{
	uint32_t i;

	if (halts)
		raise(SIGSTOP);
	halts = 0;
	for (i = grown_count; i--;) {
		struct nv_memory_alloc params = { .size = grown[i] };

		make("memory", DEVICE, GREW + i, NV01_MEMORY_LOCAL_USER, &params);
	}
	for (i = held; i--;)
		take(FIRST + i);
	open_channel();
	return failed ? 2 : 0;
}

static const char *grow(uint64_t mib)
{
	struct nv_memory_alloc params = { .size = mib << 20 };
	static char said[32];
	uint32_t status;
	int ret;

	if (grown_count == GROWN_MAX)
		return "too often";
	ret = allocate(DEVICE, GREW + grown_count, NV01_MEMORY_LOCAL_USER, &params, &status);
	if (!ret && !status) {
		grown[grown_count++] = mib << 20;
		return "grown";
	}
	snprintf(said, sizeof(said), "%d %#x", ret, status);
	return said;
}

static const char *work(void)
{
	if (cuEnter() || cuLeave() || failed)
		return first;
	submit(true);
	return "worked";
}

int main(int argc, char **argv)
{
	struct nv0080_alloc device = { 0 };
	uint32_t subdevice = 0;
	const char *driver = getenv("CGPU_PRETENDED");
	uint32_t root = 0, status;
	char line[32], *at;

	if (argc != 3 || !driver)
		return 1;
	setvbuf(stdin, NULL, _IONBF, 0);
	held = (uint32_t)atoi(argv[1]);
	fd = open("/dev/null", O_RDWR);
	allocate(0, 0, NV01_ROOT_CLIENT, &root, &status);
	client = (uint32_t)strtoul(argv[2], NULL, 0);
	allocate(client, DEVICE, NV01_DEVICE_0, &device, &status);
	allocate(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &subdevice, &status);
	at = mmap(NULL, USERD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, open(driver, O_RDWR),
		  USERD_AT(client));
	if (at == MAP_FAILED)
		return 1;
	words = (void *)(at + GP_GET);
	cuMoves(program_leaves, program_returns);
	if (cuInit(0) || program_returns()) {
		fprintf(stderr, "parkable: begin: %s\n", first);
		return 1;
	}
	printf("ready\n%d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		fails = line[0] == 'f';
		halts = line[0] == 'h' || (halts && line[0] == 'w');
		if (!strcmp(line, "work\n")) {
			puts(work());
		} else if (!strncmp(line, "grow ", 5) && !cuEnter()) {
			const char *grew = grow(strtoull(line + 5, NULL, 10));

			cuLeave();
			puts(grew);
		} else if (!strncmp(line, "name ", 5)) {
			prctl(PR_SET_NAME, strtok(line + 5, "\n"));
			puts("named");
		} else if (!strcmp(line, "queue\n")) {
			submit(false);
		} else if (!strcmp(line, "wait\n")) {
			cuWaitFor(0);
		}
		fflush(stdout);
	}
	return failed != 0;
}
