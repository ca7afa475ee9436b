// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells whether a process could have opened a node of the driver's, by asking the kernel. The
 * device rules of a cgroup are a BPF program that cannot be read. So a child of ours enters the
 * process's cgroup, takes its user and groups if those count, too, and tries. A positive answer
 * holds for ten seconds.
 *
 * The child may be frozen there. So it has nothing of ours open, is not waited for long, and ends
 * with us.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/nsfs.h>

#include "host/host.h"
#include "host/opening.h"

enum { FOUND_MAX = 256, WAIT_MS = 2000, EXIT_MAY = 0, EXIT_MAY_NOT = 1, EXIT_UNKNOWN = 2 };

#define FOUND_NS 10000000000ULL
/* an unknown answer is asked again sooner */
#define UNKNOWN_NS 5000000000ULL

/* Used only by the thread in receivers.c. */
static struct found {
	uint64_t key, until_ns;
	enum opening opening;
} found[FOUND_MAX];

static int node_path(char *path, size_t bytes, uint32_t device, uint32_t minor)
{
	switch (device) {
	case CGPU_DEVICE_CTL:
		return snprintf(path, bytes, "/dev/nvidiactl");
	case CGPU_DEVICE_GPU:
		return snprintf(path, bytes, "/dev/nvidia%u", minor);
	case CGPU_DEVICE_UVM:
		return snprintf(path, bytes, "/dev/nvidia-uvm");
	default:
		return -EINVAL;
	}
}

bool rights_of(int pid, struct rights *rights)
{
	char name[64], line[1024], *at, *end;
	unsigned long long capabilities;
	bool complete = false;
	FILE *file;

	memset(rights, 0, sizeof(*rights));
	snprintf(name, sizeof(name), "/proc/%d/status", pid);
	file = fopen(name, "re");
	while (file && fgets(line, sizeof(line), file)) {
		/* real, effective, saved, file system: the last is used to open */
		sscanf(line, "Uid: %*u %*u %*u %u", &rights->uid);
		sscanf(line, "Gid: %*u %*u %*u %u", &rights->gid);
		if (sscanf(line, "CapEff: %llx", &capabilities) == 1) {
			rights->capabilities = capabilities;
			complete = true;
		}
		if (strncmp(line, "Groups:", 7))
			continue;
		for (at = line + 7; rights->group_count < 64; at = end) {
			unsigned long group = strtoul(at, &end, 10);

			if (end == at)
				break;
			rights->groups[rights->group_count++] = (gid_t)group;
		}
	}
	if (file)
		fclose(file);
	return complete;
}

/* True for the host's own mount namespace, in which only the host's administrator mounts. */
static bool is_hosts(const char *space)
{
	struct stat its, ours;
	int fd = open(space, O_RDONLY | O_CLOEXEC), owner;
	bool same;

	if (fd < 0)
		return false;
	owner = ioctl(fd, NS_GET_USERNS);
	close(fd);
	if (owner < 0)
		return false;
	same = !fstat(owner, &its) && !stat("/proc/self/ns/user", &ours) &&
	       its.st_ino == ours.st_ino;
	close(owner);
	return same;
}

bool was_mounted(int pid)
{
	char path[64], line[CGROUP_PATH_BYTES], at[32];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
	if (!is_hosts(path))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	file = fopen(path, "re");
	/* number, parent, device, root, mount point */
	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%*s %*s %*s %*s %31s", at) == 1 &&
			!strncmp(at, "/dev/nvidia", 11);
	if (file)
		fclose(file);
	return found;
}

/* Runs in a child. Return: its exit status. */
static int attempt(const char *procs, const struct rights *who, const char *path)
{
	int fd = open(procs, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		return EXIT_UNKNOWN;
	close(fd);
	if (who && (syscall(SYS_setgroups, who->group_count, who->groups) ||
		    syscall(SYS_setresgid, who->gid, who->gid, who->gid) ||
		    syscall(SYS_setresuid, who->uid, who->uid, who->uid)))
		return EXIT_UNKNOWN;
	if (open(path, O_RDWR | O_CLOEXEC) >= 0)
		return EXIT_MAY;
	/* a cgroup's rules give EPERM, the node's mode EACCES */
	return errno == EPERM || errno == EACCES ? EXIT_MAY_NOT : EXIT_UNKNOWN;
}

static enum opening ask_child(const char *procs, const struct rights *who, const char *path)
{
	struct pollfd end = { .fd = -1, .events = POLLIN };
	siginfo_t status = { 0 };
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		syscall(SYS_close_range, 0, ~0U, 0);
		_exit(attempt(procs, who, path));
	}
	if (child < 0)
		return OPENING_UNKNOWN;
	end.fd = (int)syscall(SYS_pidfd_open, child, 0);
	if (end.fd < 0 || poll(&end, 1, WAIT_MS) != 1)
		kill(child, SIGKILL);
	if (end.fd >= 0)
		close(end.fd);
	if (waitid(P_PID, (id_t)child, &status, WEXITED) || status.si_code != CLD_EXITED ||
	    status.si_status == EXIT_UNKNOWN)
		return OPENING_UNKNOWN;
	return status.si_status == EXIT_MAY ? OPENING_MAY : OPENING_MAY_NOT;
}

/* FNV-1a */
static uint64_t hash(uint64_t seed, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	while (bytes--)
		seed = (seed ^ *at++) * 0x100000001b3ULL;
	return seed;
}

enum opening may_open(int pid, const struct rights *who, uint32_t device, uint32_t minor)
{
	char procs[CGROUP_BYTES + 32], path[32];
	uint64_t key = 0xcbf29ce484222325ULL;
	struct found *one;

	if (node_path(path, sizeof(path), device, minor) < 0 ||
	    cgroup_of(HIERARCHY_DEVICES, pid, procs, CGROUP_BYTES))
		return OPENING_UNKNOWN;
	strcat(procs, "/cgroup.procs");
	key = hash(key, procs, strlen(procs));
	key = hash(key, path, strlen(path));
	if (who)
		key = hash(key, who, sizeof(*who));
	one = &found[key % FOUND_MAX];
	/* a process that may not is ended, so a cached refusal does not count */
	if (one->key != key || one->opening == OPENING_MAY_NOT || now_ns() > one->until_ns) {
		one->opening = ask_child(procs, who, path);
		one->key = key;
		one->until_ns = now_ns() +
				(one->opening == OPENING_UNKNOWN ? UNKNOWN_NS : FOUND_NS);
	}
	return one->opening;
}
