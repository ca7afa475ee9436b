/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registry of containers: who is who, and how long each lives.
 *
 * Lock order: cgpu_registry.lock, then container->lock. mmap_lock may be held
 * when either is taken (mmap and munmap of the UVM device), so neither may be
 * held across an access to user memory, an RM call or a driver's ioctl.
 */
#ifndef CGPU_CONTAINER_H
#define CGPU_CONTAINER_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pid_namespace.h>
#include <linux/ratelimit.h>

#include "core/card.h"
#include "state.h"

struct cgroup;

struct cgpu_container {
	struct list_head node;         /* registry.containers, under registry.lock */
	struct kref refs;              /* registry 1, each open file 1, readers */
	struct rcu_head rcu;
	bool removed;                  /* under registry.lock: no longer in the list */
	char id[CGPU_ID_MAX + 1];
	char name[CGPU_ID_MAX + 1];    /* directory under a card: 12 digits, more on a clash */

	/* identity: exactly one of the two */
	struct pid_namespace *pid_ns;  /* processes in it or in one below */
	struct pid *init;              /* the namespace's first process: its end is the end */
	struct cgroup *cgroup;         /* processes in it or below, v1 or v2 */
	bool populated;                /* the cgroup had a process once */
	unsigned long created;         /* jiffies */

	/* under registry.lock; readers of single values may take lock instead */
	struct cgpu_grant grant[CGPU_MAX_CARDS];

	struct ratelimit_state refusals; /* of its lines in `events`; counters have all */

	struct mutex lock;             /* everything in tenant */
	struct cgpu_tenant tenant;
};

struct cgpu_registry {
	struct mutex lock;
	struct cgpu_host host;
	struct list_head containers;
	unsigned int count;
};

extern struct cgpu_registry *cgpu_registry;

int cgpu_registry_begin(void **part);
void cgpu_registry_adopt(void *part);
/* All containers must be gone. */
void cgpu_registry_end(void);
/* The reaper stops; with the gates closed; and goes on. */
void cgpu_registry_quiesce(void);
void cgpu_registry_settle(void);
void cgpu_registry_resume(void);
u64 cgpu_registry_digest(u64 digest);

/*
 * inst_ctl. Return: 0 or the errno of the contract: -ESRCH, -ENOENT, -ENODEV,
 * -EEXIST, -ENOSPC, -EBUSY, -EINVAL, -ENOMEM. On an error nothing changed.
 */
int cgpu_container_create(struct cgpu_create *create);
int cgpu_container_destroy(const char *id);

/* The container that `current` belongs to, with a reference, or NULL. */
struct cgpu_container *cgpu_container_current(void);

void cgpu_container_get(struct cgpu_container *container);
void cgpu_container_put(struct cgpu_container *container);

/* true if `task` belongs to `container`. Context: any; `task` is pinned. */
bool cgpu_container_has(struct cgpu_container *container, struct task_struct *task);
/* true if `task` belongs to some container */
bool cgpu_container_is_managed(struct task_struct *task);

/* A card appeared (driver attached) or its facts became known. */
int cgpu_registry_add_card(u32 minor, const struct cgpu_gpu *gpu);
/* The driver is gone: cards without containers disappear. */
void cgpu_registry_drop_cards(void);

#endif
