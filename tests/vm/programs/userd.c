/* SPDX-License-Identifier: MIT */
/*
 * userd MODE SECONDS MS: always at work with kernels of MS milliseconds, while who looks at its
 * USERD where it was mapped finds
 *   moved     nothing: it lies elsewhere
 *   frozen    other memory, of a channel that submits nothing
 *   spinning  GP_PUT of channels without work that runs
 *   video     what is there, in the card's memory
 * Prints one line of JSON: kernels, and the part of the time in thousandths.
 *
 * userd closed-video|closed-system SECONDS 0: no work; contexts one after the other, their USERD
 * in the card's memory or in the system's, and then none, for so many seconds as sleep(1).
 */
#define _GNU_SOURCE
#include "ring.h"
#include "simcuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const size_t LENGTH = (size_t)SC_CHANNELS * RING_BYTES;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
	perror(what);
	return 3;
}

static int move(struct sc *sc, int leave_something)
{
	void *old = (void *)sc->rings, *at, *new;

	new = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (new == MAP_FAILED)
		return fail("mmap");
	at = mremap(old, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, new);
	if (at == MAP_FAILED)
		return fail("mremap");
	sc->rings = at;
	if (leave_something && mmap(old, LENGTH, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != old)
		return fail("mmap over it");
	return 0;
}

enum {
	CONTEXTS = 10,
};

static int open_and_close(struct sc *sc, const struct sc_options *options)
{
	int i, ret = 0;

	for (i = 0; i < CONTEXTS && !ret; i++) {
		ret = sc_open(sc, 0, options);
		if (!ret)
			ret = sc_context(sc);
		sc_close(sc);
	}
	return ret;
}

int main(int argc, char **argv)
{
	static struct sc sc;
	double seconds, start;
	struct sc_options options = { 0 };
	int spinning, channel, ret;
	u64 ns;

	if (argc != 4)
		return 1;
	seconds = atof(argv[2]);
	ns = (u64)(atof(argv[3]) * 1e6);
	spinning = !strcmp(argv[1], "spinning");
	options.video_userd = strstr(argv[1], "video") != NULL;
	if (!strncmp(argv[1], "closed", 6)) {
		ret = open_and_close(&sc, &options);
		if (ret)
			return 2;
		/* what is mapped still would keep the memory */
		execlp("sleep", "sleep", argv[2], (char *)NULL);
		return fail("sleep");
	}
	ret = sc_open(&sc, 0, &options);
	if (!ret)
		ret = sc_context(&sc);
	if (ret) {
		fprintf(stderr, "userd: context: status %#x\n", ret);
		return 2;
	}
	if (!spinning && !options.video_userd) {
		ret = move(&sc, !strcmp(argv[1], "frozen"));
		if (ret)
			return ret;
	}
	for (start = now(); now() - start < seconds; usleep(500)) {
		while (sc_queued(&sc, 0) < 64 && sc_enqueue(&sc, 0, ns))
			;
		sc_ring(&sc, 0);
		/* a kernel of no length, and what it submitted is fetched at once */
		for (channel = 1; spinning && channel < SC_GR_CHANNELS; channel++)
			sc_enqueue(&sc, channel, 0);
	}
	printf("{\"kernels\": %llu, \"share_permille\": %d}\n",
	       (unsigned long long)sc_completed(&sc, 0),
	       (int)(sc_busy_ns(&sc, 0) / ((now() - start) * 1e6)));
	return 0;
}
