/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The user door, as Python sees it. cffi reads this file: declarations only.
 * Functions return 0 or a positive count, or -errno.
 */
#ifndef CGPU_AGENT_H
#define CGPU_AGENT_H

/*
 * Finds the driver and its cards (`newest`: also one newer than all known, if it passes the check
 * of core/rm/verify.c). Adopts what an agent before this one left to its watchdog, and starts a
 * watchdog: a process that keeps all when this one ends. Call it before any thread is started.
 * `message` (256 bytes) says what is wrong, or what else the user should know.
 */
int cgpu_agent_start(int newest, char *message);
/*
 * Before that: where the hierarchy of cgroups with a controller ("memory", "devices") is mounted,
 * and its version, 1 or 2. Without one no container has such a limit.
 */
int cgpu_agent_hierarchy(const char *controller, const char *directory, int version);
/* Before that, too: the path of the watchdog's socket. */
int cgpu_agent_socket(const char *path);
/*
 * How long gates stay shut after the agent has ended, 0: not at all; and how long calls wait for
 * another agent before they are refused.
 */
int cgpu_agent_watchdog(int hold_ms, int patience_ms);
/* The program that the watchdog executes then: words, and NULL. Its output is added to `log`. */
int cgpu_agent_successor(const char *log, const char *const *command);
/* How often the state was handed on; 0: this agent began with nothing. */
int cgpu_agent_adopted(void);
/* Ends the watchdog of an agent that has ended. Return: -ENOENT, -ECONNREFUSED: there is none. */
int cgpu_agent_end_watchdog(void);
/* The watchdog keeps the containers from here on, until another agent takes them. */
void cgpu_agent_stop(void);

/* One command of inst_ctl. */
int cgpu_agent_command(const char *text, int length);
/* Gives a container a seccomp listener. The agent owns it from then on, unless that fails. */
int cgpu_agent_attach(const char *id, int listener);
/*
 * Takes over a descriptor that came with a message. A listener is kept as long as a process is
 * under its filter, and all its calls get EPERM. `id` is the container that it came for, or "". Any
 * other file is closed.
 */
void cgpu_agent_refuse(const char *id, int fd);

/* `minor` is -1, or `id` "", if the node's place has none. */
int cgpu_agent_show(int node, int minor, const char *id, char *buf, int size);
int cgpu_agent_store(int node, int minor, const char *id, const char *text, int length);

/* Minors, one a line. */
int cgpu_agent_cards(char *buf, int size);
/* Lines "id name minor minor…". */
int cgpu_agent_containers(char *buf, int size);
/* Index into the table of nodes: name, mode and place. Return: -ENOENT at its end. */
int cgpu_agent_node(int node, char *name, int *mode, int *place);

/* Whole lines after `*position`, which moves on; waits `timeout_ms` for one. */
int cgpu_agent_events(unsigned long long *position, char *buf, int size, int timeout_ms);
/* Number of containers alive; *ended_ns: when the last one ended, CLOCK_MONOTONIC. */
int cgpu_agent_count(unsigned long long *ended_ns);
/* Counters for measurements: "key value" lines. */
int cgpu_agent_counters(char *buf, int size);

#endif
