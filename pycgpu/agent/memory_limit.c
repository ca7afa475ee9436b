// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a thread's process may have of the host's memory, by its cgroup. Read for each allocation
 * that the driver makes there, which are few, so that what is set meanwhile counts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "door.h"

enum { MOUNT_BYTES = 256, PATH_BYTES = 4096 };

/* Where the hierarchy with the memory controller is mounted; empty: there is none. */
static char mounted[MOUNT_BYTES];
static bool unified;

int cgpu_agent_memory_hierarchy(const char *directory, int version)
{
	if (strlen(directory) >= sizeof(mounted))
		return -ENAMETOOLONG;
	strcpy(mounted, directory);
	unified = version == 2;
	return 0;
}

/* Return: 0: the file is not there, or says `max`. */
static uint64_t limit_in(const char *directory)
{
	char path[MOUNT_BYTES + PATH_BYTES + 32];
	uint64_t bytes = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory,
		 unified ? "memory.max" : "memory.limit_in_bytes");
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &bytes) != 1)
		bytes = 0;
	fclose(file);
	return bytes;
}

/* "<number>:<controllers>:<path>". Return: the path if that is the hierarchy, NULL. */
static const char *path_of(char *line)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	char *one, *rest = NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	controllers++;
	path[strcspn(path, "\n")] = '\0';
	if (unified)
		return *controllers ? NULL : path;
	for (one = strtok_r(controllers, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
		if (!strcmp(one, "memory"))
			return path;
	return NULL;
}

/* Return: 0, -ENOENT: it has ended, or is outside what can be seen here. */
static int find_cgroup(int tid, char *directory, size_t bytes)
{
	char name[64], line[PATH_BYTES + 64];
	const char *path = NULL;
	int used;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", tid);
	file = fopen(name, "re");
	if (!file)
		return -ENOENT;
	while (!path && fgets(line, sizeof(line), file))
		path = path_of(line);
	fclose(file);
	if (!path || path[0] != '/' || !strncmp(path, "/..", 3))
		return -ENOENT;
	used = snprintf(directory, bytes, "%s%s", mounted, path);
	return used < (int)bytes ? 0 : -ENOENT;
}

uint64_t memory_limit(int tid)
{
	char directory[MOUNT_BYTES + PATH_BYTES];
	size_t root = strlen(mounted);
	uint64_t least = 0, bytes;
	char *slash;

	if (!root || find_cgroup(tid, directory, sizeof(directory)))
		return 0;
	/* of those that a container can make below its own none widens it */
	while (strlen(directory) > root) {
		bytes = limit_in(directory);
		if (bytes && (!least || bytes < least))
			least = bytes;
		slash = strrchr(directory, '/');
		*slash = '\0';
	}
	return least;
}
