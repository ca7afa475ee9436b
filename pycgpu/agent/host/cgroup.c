// SPDX-License-Identifier: GPL-2.0-only
/* Where a thread is in a hierarchy of cgroups. Python finds the hierarchies: door.py. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "host/host.h"

/* By enum hierarchy; `mounted` empty: there is none. */
static struct {
	const char *controller;
	bool unified;
	char mounted[CGROUP_MOUNT_BYTES];
} hierarchies[] = {
	[HIERARCHY_MEMORY] = { .controller = "memory" },
	[HIERARCHY_DEVICES] = { .controller = "devices" },
};

int cgpu_agent_hierarchy(const char *controller, const char *directory, int version)
{
	size_t i, count = sizeof(hierarchies) / sizeof(hierarchies[0]);

	if (strlen(directory) >= CGROUP_MOUNT_BYTES)
		return -ENAMETOOLONG;
	for (i = 0; i < count && strcmp(hierarchies[i].controller, controller); i++)
		;
	if (i == count)
		return -EINVAL;
	strcpy(hierarchies[i].mounted, directory);
	hierarchies[i].unified = version == 2;
	return 0;
}

const char *hierarchy_root(enum hierarchy which)
{
	return hierarchies[which].mounted;
}

bool hierarchy_is_unified(enum hierarchy which)
{
	return hierarchies[which].unified;
}

/* "<number>:<controllers>:<path>". Return: the path if that is the hierarchy, NULL. */
static const char *path_of(enum hierarchy which, char *line)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	char *one, *rest = NULL;

	if (!path)
		return NULL;
	*path++ = '\0';
	controllers++;
	path[strcspn(path, "\n")] = '\0';
	if (hierarchies[which].unified)
		return *controllers ? NULL : path;
	for (one = strtok_r(controllers, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
		if (!strcmp(one, hierarchies[which].controller))
			return path;
	return NULL;
}

int cgroup_of(enum hierarchy which, int tid, char *directory, size_t bytes)
{
	char name[64], line[CGROUP_PATH_BYTES + 64];
	const char *path = NULL;
	int used;
	FILE *file;

	if (!hierarchies[which].mounted[0])
		return -ENOENT;
	snprintf(name, sizeof(name), "/proc/%d/cgroup", tid);
	file = fopen(name, "re");
	if (!file)
		return -ENOENT;
	while (!path && fgets(line, sizeof(line), file))
		path = path_of(which, line);
	fclose(file);
	if (!path || path[0] != '/' || !strncmp(path, "/..", 3))
		return -ENOENT;
	used = snprintf(directory, bytes, "%s%s", hierarchies[which].mounted, path);
	return used < (int)bytes ? 0 : -ENOENT;
}
