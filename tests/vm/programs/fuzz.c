/* SPDX-License-Identifier: MIT */
/*
 * fuzz SEED SECONDS [unguided] [FILTER]: containers come, throw calls of every kind at the driver
 * from several processes and threads, and are killed or destroyed in the middle; rubbish is
 * written to the tree meanwhile. Runs on the host, as root. FILTER: a file with the agent's
 * seccomp program; then the agent's door is fuzzed, else the module's.
 * Now and then all stand still, what the driver has given out is compared with what is charged,
 * and who is kept from a card has no channel there that may run. At its end none of its processes
 * and none of its containers is left, and it prints one line of JSON: what was thrown. It fails if
 * it cannot clean up.
 *
 * The seed gives what each process does; how they interleave is the machine's,
 * and so, on a kernel with KCOV, is what fuzz_coverage.c has drawn again.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	CONTAINERS = 3,
	PROCESSES = 2,
	NOBODY = 65534,
	TREES = 2,
	LIFE_MS = 3000,
	CLEAN_UP_S = 60,
	WEIGH_S = 1, /* between two, and as long again as the last one took, twice */
};

struct container {
	struct entrance entrance; /* pid 0: there is none */
	u32 index;
	char id[32];
	double until_s;
	u64 seed;
	struct pool *pool;
	bool is_made;
};

struct totals *totals;
static struct container containers[CONTAINERS];
static u32 made, refused;

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Root, as Docker has it. Return: false: errno says why. */
static bool as_docker(void)
{
	const u64 kept = 1 << CAP_CHOWN | 1 << CAP_DAC_OVERRIDE | 1 << CAP_FOWNER |
			 1 << CAP_FSETID | 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID |
			 1 << CAP_SETPCAP | 1 << CAP_NET_BIND_SERVICE | 1 << CAP_NET_RAW |
			 1 << CAP_SYS_CHROOT | 1 << CAP_MKNOD | 1 << CAP_AUDIT_WRITE |
			 1ull << CAP_SETFCAP;
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct caps[2] = { { kept, kept, 0 }, { 0, 0, 0 } };
	int cap;

	for (cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (!(kept >> cap & 1))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	return !syscall(SYS_capset, &header, caps);
}

/* The first process of a pid namespace: its workers die, and are replaced. */
static int init_of_container(void *data)
{
	struct container *container = data;
	struct random random = seeded(container->seed);
	pid_t workers[PROCESSES] = { 0 }, gone;
	int index;

	/* half of them are nobody, as careful people have it */
	if (below(&random, 2) ? setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) :
				!as_docker())
		_exit(1);
	prctl(PR_SET_DUMPABLE, 1);
	for (gone = 0; ; gone = wait(NULL)) {
		for (index = 0; index < PROCESSES; index++) {
			u64 seed = random_u64(&random);

			if (workers[index] != gone)
				continue; /* a stray of theirs, or another one */
			workers[index] = fork();
			if (!workers[index])
				fuzz_tenant(seed, container->pool,
					    THREADS * (PROCESSES * container->index + index));
		}
	}
}

/* Some of what one may ask of one card, the other or both. */
static void some_grants(struct random *random, char *text, size_t bytes)
{
	static const char *const limits[] = { "max", "8388608", "16777216", "67108864",
					      "134217728", "268435456" };
	static const char *const others[] = {
		"", "", "", ",weight=3", ",weight=2,quota=40", ",quota=10", ",oom_action=kill",
		",uvm_disable=1", ",priority=7,quota_min=5", ",weight=0",
	};
	u32 cards = 1 + below(random, (1 << CARDS) - 1), card;
	size_t at = 0;

	for (card = 0; card < CARDS; card++)
		if (cards >> card & 1)
			at += snprintf(text + at, bytes - at, "%sgpu=%u,mem=%s%s", at ? " " : "",
				       card, limits[below(random, sizeof(limits) / sizeof(*limits))],
				       others[below(random, sizeof(others) / sizeof(*others))]);
}

static void begin(struct container *container, struct random *random)
{
	char grants[128];

	snprintf(container->id, sizeof(container->id), "fuzz-%u", below(random, 2000));
	container->seed = random_u64(random);
	memset(container->pool, 0, sizeof(*container->pool));
	container->entrance.work = init_of_container;
	container->entrance.data = container;
	if (!door_begin(&container->entrance)) {
		perror("fuzz: clone");
		exit(1);
	}
	if (!weigh_add(container->entrance.pid)) {
		perror("fuzz: cgroup");
		exit(1);
	}
	/* the tree's rubbish may have taken the name or the room: then it is the host's */
	some_grants(random, grants, sizeof(grants));
	container->is_made = door_admit(&container->entrance, container->id, grants);
	if (container->is_made)
		made++;
	else
		refused++;
	container->until_s = seconds() + 0.05 + below(random, LIFE_MS) * 1e-3 * door_slowness();
}

static void end(struct container *container, struct random *random)
{
	char text[64];

	snprintf(text, sizeof(text), "destroy %s", container->id);
	if (!below(random, 3))
		door_command(text);
	kill(container->entrance.pid, SIGKILL);
	if (!below(random, 3))
		door_command(text);
	waitpid(container->entrance.pid, NULL, 0);
	container->entrance.pid = 0;
}

static pid_t begin_tree(u64 seed)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		weigh_add(getpid());
		fuzz_tree(seed);
	}
	return pid;
}

/* All of its processes are those of a container. */
static bool is_contained(const struct container *container)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/container/%s", tree, container->id);
	return container->is_made && !access(path, F_OK);
}

static bool weigh_all(struct random *random)
{
	bool looked;
	int index;

	if (!weigh_freeze()) {
		fprintf(stderr, "fuzz: its processes do not stand still\n");
		return false;
	}
	/* the host's, and those whose container the tree's rubbish has destroyed */
	for (index = 0; index < CONTAINERS; index++)
		if (containers[index].entrance.pid && !is_contained(&containers[index]))
			end(&containers[index], random);
	weigh();
	for (index = 0; index < CONTAINERS; index++)
		if (containers[index].entrance.pid)
			weigh_container(containers[index].id, containers[index].entrance.pid);
	looked = gate_look(random);
	if (!looked)
		fprintf(stderr, "fuzz: nobody could be put above all others\n");
	weigh_thaw();
	return looked;
}

void *shared(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		exit(1);
	return at;
}

static void destroy(const char *id, void *data)
{
	u32 *found = data;
	char text[300];

	++*found;
	snprintf(text, sizeof(text), "destroy %s", id);
	door_command(text);
}

/* Also what the tree's rubbish has made. Return: false: some remain. */
static bool clean_up(void)
{
	double end_s = seconds() + CLEAN_UP_S;
	u32 found;

	do {
		found = 0;
		door_containers(destroy, &found);
	} while (found && seconds() < end_s);
	if (found)
		fprintf(stderr, "fuzz: %u containers cannot be destroyed\n", found);
	return !found;
}

int main(int argc, char **argv)
{
	struct random random;
	pid_t trees[TREES];
	double end_s, weigh_s, began_s;
	bool unguided;
	int index;

	if (argc < 3) /* what a tenant's child becomes by exec() */
		return 0;
	random = seeded(strtoull(argv[1], NULL, 0));
	end_s = seconds() + atof(argv[2]);
	totals = shared(sizeof(*totals));
	unguided = argc > 3 && !strcmp(argv[3], "unguided");
	if (!door_choose(argc > 3 + unguided ? argv[3 + unguided] : NULL)) {
		perror("fuzz: the agent's filter");
		return 1;
	}
	if (!coverage_prepare(CONTAINERS * PROCESSES * THREADS, unguided)) {
		perror("fuzz: KCOV");
		return 1;
	}
	if (!weigh_prepare()) {
		perror("fuzz: weighing");
		return 1;
	}
	if (!gate_prepare()) {
		perror("fuzz: one above all others");
		return 1;
	}
	for (index = 0; index < CONTAINERS; index++) {
		containers[index].index = index;
		containers[index].pool = shared(sizeof(struct pool));
	}
	for (index = 0; index < TREES; index++)
		trees[index] = begin_tree(random_u64(&random));
	weigh_s = seconds() + WEIGH_S;
	while (seconds() < end_s && !weigh_failed()) {
		if (seconds() > weigh_s) {
			began_s = seconds();
			if (!weigh_all(&random))
				return 1;
			weigh_s = seconds() + WEIGH_S + 2 * (seconds() - began_s);
		}
		for (index = 0; index < CONTAINERS; index++) {
			struct container *container = &containers[index];

			if (container->entrance.pid && seconds() > container->until_s)
				end(container, &random);
			if (!container->entrance.pid)
				begin(container, &random);
		}
		usleep(5000);
	}
	for (index = 0; index < CONTAINERS; index++)
		end(&containers[index], &random);
	for (index = 0; index < TREES; index++) {
		kill(trees[index], SIGKILL);
		waitpid(trees[index], NULL, 0);
	}
	gate_end();
	printf("{\"seed\": %s, \"containers\": %u, \"not_made\": %u, \"calls\": %lu, "
	       "\"granted\": %lu, \"maps\": %lu, \"written\": %lu, \"refused\": %lu, "
	       "\"edges\": %lu, \"kept\": %u, \"weighed\": %u, \"uncharged_bytes\": %lld, "
	       "\"above_bytes\": %lld, \"lost_bytes\": %lld, \"kept_from_the_card\": %u, "
	       "\"open_channels\": %u}\n",
	       argv[1], made, refused, totals->calls, totals->granted, totals->maps,
	       totals->written, totals->refused, coverage_edges(), coverage_kept(),
	       weigh_times(), weigh_most_bytes(), weigh_above_bytes(), weigh_lost_bytes(), gate_looked(),
	       gate_open_most());
	fflush(stdout);
	return clean_up() ? 0 : 1;
}
