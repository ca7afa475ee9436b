/* SPDX-License-Identifier: GPL-2.0-only */
/* How containers come and go. */
#ifndef CGPU_LINUX_LIFECYCLE_H
#define CGPU_LINUX_LIFECYCLE_H

struct cgpu_container;
struct cgpu_create;

/**
 * cgpu_container_create() - what `create` of inst_ctl asks for
 * @create: as core/tree/inst_ctl.h parsed it
 *
 * Context: a process with an mm; sleeps.
 * Return: 0 or the errno of the contract: -ESRCH, -ENOENT, -ENODEV, -EEXIST,
 * -ENOSPC, -EINVAL, -ENOMEM. On an error nothing changed.
 */
int cgpu_container_create(struct cgpu_create *create);

/**
 * cgpu_container_share() - give the container that current is in its part of each card
 * @percent: of the card
 *
 * Context: sleeps.
 * Return: the container, with a reference; NULL: there is no room, or nothing but a
 * cgroup by which to know it.
 */
struct cgpu_container *cgpu_container_share(unsigned int percent);

/**
 * cgpu_container_destroy() - what `destroy` asks for
 * @id: the container's
 *
 * Context: sleeps.
 * Return: 0, -ENOENT, -EBUSY: something of it is still open. On an error nothing changed.
 */
int cgpu_container_destroy(const char *id);

/** cgpu_lifecycle_quiesce() - stop the reaper; another core takes over */
void cgpu_lifecycle_quiesce(void);

/** cgpu_lifecycle_settle() - with no call under way: stop what began again */
void cgpu_lifecycle_settle(void);

/** cgpu_lifecycle_resume() - let the reaper go on */
void cgpu_lifecycle_resume(void);

#endif
