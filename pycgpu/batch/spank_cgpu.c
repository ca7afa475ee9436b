// SPDX-License-Identifier: MIT
/*
 * SPANK plugin: a task of a job that has shards runs under their limits. What they are
 * `cgpu slurm-task` knows, which this asks; here is only what the task must do itself:
 * put itself under the filter that it is told (pycgpu/agent/attach.py has the words). CGPU_GROUP in
 * the task's environment asks for a group: the task is told how its programs find the server.
 *
 * plugstack.conf:  required cgpu.so [cgpu=/usr/bin/cgpu] [compute=quota|weight]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(cgpu, 1)

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

enum {
	LINE_MAX_BYTES = 16384,
	INSTRUCTIONS_MAX = 1000
};

struct helper {
	pid_t pid;
	int in, out;
};

static int start(struct helper *helper, const char *program, char **words)
{
	/* Nothing of the task's own environment may reach a program of root's. */
	static char *const environment[3] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8",
	};
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return -1;
	helper->pid = fork();
	if (helper->pid < 0)
		return -1;
	if (!helper->pid) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (dup2(to[0], 0) < 0 || dup2(from[1], 1) < 0)
			_exit(127);
		execve(program, words, environment);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	helper->in = to[1];
	helper->out = from[0];
	return 0;
}

static int read_line(int fd, char *line)
{
	size_t used = 0;
	ssize_t got;

	while (used < LINE_MAX_BYTES - 1) {
		got = read(fd, line + used, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		if (line[used] == '\n') {
			line[used] = '\0';
			return 0;
		}
		used++;
	}
	return -1;
}

/* Return the listener, or -1. */
static int install(const char *hex)
{
	static struct sock_filter code[INSTRUCTIONS_MAX];
	struct sock_fprog program = { 0, code };
	size_t bytes = strlen(hex) / 2, i;
	unsigned int value;
	long fd;

	if (bytes > sizeof(code) || bytes % sizeof(code[0]))
		return -1;
	for (i = 0; i < bytes; i++) {
		if (sscanf(hex + 2 * i, "%2x", &value) != 1)
			return -1;
		((uint8_t *)code)[i] = (uint8_t)value;
	}
	program.len = (unsigned short)(bytes / sizeof(code[0]));
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		     SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		     &program);
	if (fd < 0 && errno == EINVAL) /* before Linux 5.19 */
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			     &program);
	return (int)fd;
}

/* `<key>=<value>`, for the task. */
static int set_variable(spank_t spank, char *pair)
{
	char *value = strchr(pair, '=');

	if (!value)
		return -1;
	*value++ = '\0';
	return spank_setenv(spank, pair, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

/* Return: the listener, which the helper is told, or -1. */
static int enter(const struct helper *helper, char *line)
{
	int listener = install(line + 7);
	char number[16];

	if (listener < 0) {
		snprintf(line, LINE_MAX_BYTES, "error seccomp: %s", strerror(errno));
		return -1;
	}
	snprintf(number, sizeof(number), "%d\n", listener);
	if (write(helper->in, number, strlen(number)) < 0) {
		strcpy(line, "error cgpu slurm-task went away");
		close(listener);
		return -1;
	}
	return listener;
}

static int talk(spank_t spank, const struct helper *helper, char *line)
{
	int listener = -1, status = -1;

	for (;;) {
		if (read_line(helper->out, line)) {
			strcpy(line, listener < 0 ? "error cgpu slurm-task gave no answer: is the path in"
				     " plugstack.conf right?" : "error cgpu slurm-task went away");
			break;
		}
		if (!strncmp(line, "env ", 4)) {
			if (set_variable(spank, line + 4)) {
				strcpy(line, "error Slurm does not take a variable for the group");
				break;
			}
		} else if (!strncmp(line, "filter ", 7) && listener < 0) {
			listener = enter(helper, line);
			if (listener < 0)
				break;
		} else {
			status = strcmp(line, "ok");
			break;
		}
	}
	if (listener >= 0)
		close(listener);
	return status;
}

/* What the job asks for a group by, with its user. Return: how many words, or -1: too long. */
static int group_words(spank_t spank, char *group, size_t size, char *user, size_t user_size)
{
	static const char option[] = "--group=";
	size_t used = sizeof(option) - 1;
	uid_t uid;
	int err;

	memcpy(group, option, sizeof(option));
	err = spank_getenv(spank, "CGPU_GROUP", group + used, (int)(size - used));
	if (err == ESPANK_NOSPACE) {
		slurm_error("cgpu: CGPU_GROUP has more than %zu characters", size - used - 1);
		return -1;
	}
	if (err != ESPANK_SUCCESS || !group[used])
		return 0;
	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS) {
		slurm_error("cgpu: Slurm does not tell the job's user");
		return -1;
	}
	snprintf(user, user_size, "--uid=%u", (unsigned int)uid);
	return 2;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
	char job[16], task[16], compute[64] = "--compute=quota", group[128], user[32];
	const char *program = "/usr/bin/cgpu";
	char *arguments[8] = { "cgpu", "slurm-task", compute, job, task, group, user, NULL };
	static char line[LINE_MAX_BYTES];
	struct helper helper;
	uint32_t id;
	int i, status;

	for (i = 0; i < count; i++) {
		if (!strncmp(words[i], "cgpu=", 5)) {
			program = words[i] + 5;
		} else if (!strncmp(words[i], "compute=", 8)) {
			snprintf(compute, sizeof(compute), "--%s", words[i]);
		} else {
			slurm_error("cgpu: unknown word in plugstack.conf: %s", words[i]);
			return -1;
		}
	}
	if (spank_get_item(spank, S_JOB_ID, &id) != ESPANK_SUCCESS) {
		slurm_error("cgpu: Slurm does not tell the job");
		return -1;
	}
	snprintf(job, sizeof(job), "%u", id);
	snprintf(task, sizeof(task), "%d", (int)getpid());
	status = group_words(spank, group, sizeof(group), user, sizeof(user));
	if (status < 0)
		return -1;
	/* without a group these are none of its words */
	if (!status)
		arguments[5] = NULL;
	if (start(&helper, program, arguments)) {
		slurm_error("cgpu: %s: %s", program, strerror(errno));
		return -1;
	}
	status = talk(spank, &helper, line);
	if (status)
		slurm_error("cgpu: %s", line + (strncmp(line, "error ", 6) ? 0 : 6));
	close(helper.in);
	close(helper.out);
	while (waitpid(helper.pid, NULL, 0) < 0 && errno == EINTR)
		;
	return status ? -1 : 0;
}
