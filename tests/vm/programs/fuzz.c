/* SPDX-License-Identifier: MIT */
/*
 * fuzz SEED SECONDS [unguided]: containers come, throw calls of every kind at the driver
 * from several processes and threads, and are killed or destroyed in the
 * middle; rubbish is written to the tree meanwhile. Runs on the host, as root.
 * Every second all stand still, what the driver has given out is compared with
 * what is charged, and who is kept from a card has no channel there that may run. At its end none of its processes and none of its containers is left, and
 * it prints one line of JSON: what was thrown. It fails if it cannot clean up.
 *
 * The seed gives what each process does; how they interleave is the machine's,
 * and so, on a kernel with KCOV, is what fuzz_coverage.c has drawn again.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	CONTAINERS = 3,
	PROCESSES = 2,
	STACK_BYTES = 1 << 20,
	NOBODY = 65534,
	TREES = 2,
	CLEAN_UP_S = 60,
	WEIGH_S = 1,
};

struct container {
	pid_t pid;
	u32 index;
	char id[32];
	double until_s;
	u64 seed;
	struct pool *pool;
	bool is_made;
	int go[2];
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

static int command(const char *text)
{
	int fd = open("/proc/cgpu_km/inst_ctl", O_WRONLY | O_CLOEXEC);
	int err = fd < 0 ? errno : write(fd, text, strlen(text)) < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* The first process of a pid namespace: its workers die, and are replaced. */
static int init_of_container(void *data)
{
	struct container *container = data;
	struct random random = seeded(container->seed);
	pid_t workers[PROCESSES] = { 0 }, gone;
	char byte;
	int index;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(container->go[1]);
	if (read(container->go[0], &byte, 1) != 1)
		_exit(1);
	close(container->go[0]);
	/* half of them are nobody, as careful people have it */
	if (below(&random, 2) && (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)))
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

static void begin(struct container *container, struct random *random)
{
	static u8 stack[STACK_BYTES] __attribute__((aligned(16)));
	static const char *const grants[] = {
		"gpu=0,mem=268435456", "gpu=0,mem=16777216 gpu=1,mem=max", "gpu=1,mem=67108864",
		"gpu=0,mem=max,weight=2,quota=40", "gpu=0,mem=134217728,oom_action=kill",
		"gpu=0,mem=134217728,uvm_disable=1 gpu=1,mem=8388608,weight=3",
	};
	char text[256];

	snprintf(container->id, sizeof(container->id), "fuzz-%u", below(random, 2000));
	container->seed = random_u64(random);
	memset(container->pool, 0, sizeof(*container->pool));
	if (pipe2(container->go, O_CLOEXEC))
		exit(1);
	container->pid = clone(init_of_container, stack + sizeof(stack),
			       CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD, container);
	if (container->pid < 0) {
		perror("fuzz: clone");
		exit(1);
	}
	close(container->go[0]);
	snprintf(text, sizeof(text), "create %s pid=%d %s", container->id, container->pid,
		 grants[below(random, sizeof(grants) / sizeof(*grants))]);
	if (!weigh_add(container->pid)) {
		perror("fuzz: cgroup");
		exit(1);
	}
	/* the tree's rubbish may have taken the name or the room: then it is the host's */
	container->is_made = !command(text);
	if (container->is_made)
		made++;
	else
		refused++;
	if (write(container->go[1], "g", 1) != 1)
		exit(1);
	close(container->go[1]);
	container->until_s = seconds() + 0.05 + below(random, 3000) * 1e-3;
}

static void end(struct container *container, struct random *random)
{
	char text[64];

	snprintf(text, sizeof(text), "destroy %s", container->id);
	if (!below(random, 3))
		command(text);
	kill(container->pid, SIGKILL);
	if (!below(random, 3))
		command(text);
	waitpid(container->pid, NULL, 0);
	container->pid = 0;
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

	snprintf(path, sizeof(path), "/proc/cgpu_km/container/%s", container->id);
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
		if (containers[index].pid && !is_contained(&containers[index]))
			end(&containers[index], random);
	weigh();
	looked = gate_look();
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

/* Whatever the tree's rubbish has made is destroyed by name. Return: false: some remain. */
static bool clean_up(void)
{
	double end_s = seconds() + CLEAN_UP_S;
	u32 number;

	for (number = 0; number < 2000; number++) {
		char text[64];
		int err;

		snprintf(text, sizeof(text), "destroy fuzz-%u", number);
		do {
			err = command(text);
			if (err && err != ENOENT && seconds() > end_s) {
				fprintf(stderr, "fuzz: %s: %s\n", text, strerror(err));
				return false;
			}
		} while (err && err != ENOENT);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct random random;
	pid_t trees[TREES];
	double end_s, weigh_s;
	int index;

	if (argc < 3) /* what a tenant's child becomes by exec() */
		return 0;
	random = seeded(strtoull(argv[1], NULL, 0));
	end_s = seconds() + atof(argv[2]);
	totals = shared(sizeof(*totals));
	if (!coverage_prepare(CONTAINERS * PROCESSES * THREADS,
			      argc > 3 && !strcmp(argv[3], "unguided"))) {
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
	while (seconds() < end_s) {
		if (seconds() > weigh_s) {
			if (!weigh_all(&random))
				return 1;
			weigh_s = seconds() + WEIGH_S;
		}
		for (index = 0; index < CONTAINERS; index++) {
			struct container *container = &containers[index];

			if (container->pid && seconds() > container->until_s)
				end(container, &random);
			if (!container->pid)
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
	       "\"lost_bytes\": %lld, \"kept_from_the_card\": %u, \"open_channels\": %u}\n",
	       argv[1], made, refused, totals->calls, totals->granted, totals->maps,
	       totals->written, totals->refused, coverage_edges(), coverage_kept(),
	       weigh_times(), weigh_most_bytes(), weigh_lost_bytes(), gate_looked(),
	       gate_open_most());
	fflush(stdout);
	return clean_up() ? 0 : 1;
}
