// SPDX-License-Identifier: GPL-2.0-only
/*
 * The host memory that a thread's process may have, by its cgroup. It is read for each allocation
 * that the driver makes there, which are few, so that changes count.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "host/host.h"

/* Return: 0: the file is not there, or says `max`. */
static uint64_t limit_in(const char *directory)
{
	char path[CGROUP_BYTES + 32];
	uint64_t bytes = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory,
		 hierarchy_is_unified(HIERARCHY_MEMORY) ? "memory.max" : "memory.limit_in_bytes");
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &bytes) != 1)
		bytes = 0;
	fclose(file);
	return bytes;
}

uint64_t memory_limit(int tid)
{
	char directory[CGROUP_BYTES];
	size_t root = strlen(hierarchy_root(HIERARCHY_MEMORY));
	uint64_t least = 0, bytes;
	char *slash;

	if (cgroup_of(HIERARCHY_MEMORY, tid, directory, sizeof(directory)))
		return 0;
	/* the least limit counts, so a cgroup that a container makes below its own adds nothing */
	while (strlen(directory) > root) {
		bytes = limit_in(directory);
		if (bytes && (!least || bytes < least))
			least = bytes;
		slash = strrchr(directory, '/');
		*slash = '\0';
	}
	return least;
}
