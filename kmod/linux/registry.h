/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The containers and the cards, and which container a task belongs to.
 *
 * Lock order: cgpu_registry.lock, then container->lock, a member's before its group's leader's
 * (cgpu_container_lock_leader()). mmap_lock may be held when either is taken (mmap and munmap of
 * the UVM device). So neither may be held across an access to user memory, an RM call or a driver's
 * ioctl.
 */
#ifndef CGPU_LINUX_REGISTRY_H
#define CGPU_LINUX_REGISTRY_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rtmutex.h>
#include <linux/pid_namespace.h>
#include <linux/ratelimit.h>

#include "core/tree/card.h"
#include "state.h"

struct cgroup;
struct cgpu_userd_table;

struct cgpu_container {
	struct list_head node;         /* registry.containers, under registry.lock */
	struct kref refs;              /* registry 1, each open file 1, readers */
	struct rcu_head rcu;
	bool removed;                  /* no longer in the list: written under both locks */
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

	/*
	 * Its group: the id of the leader, perhaps its own; empty: it is in none. A member has a
	 * reference of its leader, NULL once that has been unlisted. Written under both locks.
	 */
	char group[CGPU_ID_MAX + 1];
	struct cgpu_container *leader;
	unsigned int followers;        /* listed members; under registry.lock */

	struct ratelimit_state refusals; /* of its lines in `events`; counters have all */

	struct rt_mutex lock;          /* everything from here on */
	struct cgpu_tenant tenant;
	struct cgpu_userd_table *userds; /* demand.c's; NULL before the first */
};

struct cgpu_registry {
	struct rt_mutex lock;          /* outside all containers' */
	struct cgpu_host host;
	struct list_head containers;
	unsigned int count;
	bool moving;                   /* or promised too much, see parking.h; written under lock */
	bool asked;                    /* for some container, granted or refused */
};

/* For cgpu_create.pid: inst_ctl takes positive numbers alone. */
#define CGPU_PID_OUTERMOST (-1)

extern struct cgpu_registry *cgpu_registry;

int cgpu_registry_begin(void **part);
void cgpu_registry_adopt(void *part);
/* All containers must be gone. */
void cgpu_registry_end(void);
u64 cgpu_registry_digest(u64 digest);

/**
 * cgpu_container_new() - a container that is not listed yet
 * @create: its id, and who it is
 *
 * Return: the container with one reference, or -ENOMEM, -ENODEV: the module is being
 * loaded or unloaded, -ESRCH: no such process, -ENOENT: no such cgroup, -EINVAL: neither is a
 * container.
 */
struct cgpu_container *cgpu_container_new(const struct cgpu_create *create);

/**
 * cgpu_registry_add() - give a new container its cards and list it
 * @container: of cgpu_container_new()
 * @create: what it asks for
 *
 * Return: 0: the registry holds a reference of its own; -EEXIST, -ENODEV, -ENOSPC,
 * -EBUSY, -ENOENT: no such group, -EINVAL: it leads none, or its member asks for compute:
 * nothing changed.
 */
int cgpu_registry_add(struct cgpu_container *container, struct cgpu_create *create);

/**
 * cgpu_registry_share() - a part of every card that has room for it
 * @create: its grants are filled in
 * @percent: of memory and compute
 */
void cgpu_registry_share(struct cgpu_create *create, unsigned int percent);

/**
 * cgpu_registry_find() - a container by its id, or by its directory under a card
 * @id: as it was created; an id is found before a directory of that name
 *
 * Context: registry.lock. Return: without a reference, or NULL.
 */
struct cgpu_container *cgpu_registry_find(const char *id);

/**
 * cgpu_registry_remove() - take a container's cards and unlist it
 * @container: listed; the caller drops the registry's reference afterwards
 *
 * Context: registry.lock.
 */
void cgpu_registry_remove(struct cgpu_container *container);

/**
 * cgpu_registry_remove_idle() - as cgpu_registry_remove(), unless something of it is open
 * @container: listed
 *
 * An open under way finds it removed when it comes to be counted, and fails. Members of a group
 * that it leads are in none from then on.
 *
 * Context: registry.lock.
 * Return: false: something is open, and nothing changed.
 */
bool cgpu_registry_remove_idle(struct cgpu_container *container);

/**
 * cgpu_registry_note_moving() - a container began or ended a move or was removed, or a
 *	card promises more than it has, or no more
 *
 * Context: registry.lock.
 */
void cgpu_registry_note_moving(void);

/**
 * cgpu_container_is_removed() - has it been unlisted?
 * @container: any
 *
 * Context: takes registry.lock.
 */
bool cgpu_container_is_removed(struct cgpu_container *container);

/**
 * cgpu_container_has_ended() - are all its processes gone?
 * @container: listed
 *
 * Context: registry.lock.
 */
bool cgpu_container_has_ended(struct cgpu_container *container);

/**
 * cgpu_container_current() - the container that current belongs to
 *
 * Return: with a reference, or NULL.
 */
struct cgpu_container *cgpu_container_current(void);

/* The containers that the scheduler knows as one: a group's, or one alone. */
struct cgpu_entity {
	u32 count;
	struct cgpu_container *container[CGPU_MAX_INST_MAX];
};

/**
 * cgpu_entity_get() - the containers of an entity
 * @entity: filled in, each with a reference
 * @minor: the card
 * @slot: the entity's number on it
 *
 * Context: takes registry.lock.
 */
void cgpu_entity_get(struct cgpu_entity *entity, u32 minor, u32 slot);
void cgpu_entity_put(struct cgpu_entity *entity);

/**
 * cgpu_container_lock_leader() - lock the leader of a member's group
 * @container: locked
 *
 * Return: with a reference for cgpu_container_unlock_leader(), or NULL: it has none.
 */
struct cgpu_container *cgpu_container_lock_leader(struct cgpu_container *container);
void cgpu_container_unlock_leader(struct cgpu_container *leader);

void cgpu_container_get(struct cgpu_container *container);
void cgpu_container_put(struct cgpu_container *container);

/**
 * cgpu_container_has() - does a task belong to a container?
 * @container: which
 * @task: pinned
 *
 * Context: any.
 */
bool cgpu_container_has(struct cgpu_container *container, struct task_struct *task);

/**
 * cgpu_container_may_see() - is a task to know of a container by that name?
 * @task: pinned
 * @name: an id, or what a directory below a card is called
 * @length: of @name
 *
 * Return: true: it is in that container, or in none.
 */
bool cgpu_container_may_see(struct task_struct *task, const char *name, size_t length);

/**
 * cgpu_container_is_managed() - does a task belong to some container?
 * @task: pinned
 */
bool cgpu_container_is_managed(struct task_struct *task);

/**
 * cgpu_container_make_room() - enlarge the tenant's tables where they are short
 * @container: which
 *
 * A table at its maximum stays as it is, and the core refuses.
 *
 * Context: no lock held; sleeps.
 */
void cgpu_container_make_room(struct cgpu_container *container);

/**
 * cgpu_container_let_go() - of closed files that no call needs any more
 * @container: which
 *
 * In steps, because a file may have had very much, and gates wait for the lock.
 *
 * Context: no lock held; sleeps.
 */
void cgpu_container_let_go(struct cgpu_container *container);

/**
 * cgpu_registry_add_card() - a card appeared, or its facts became known
 * @minor: the card
 * @gpu: its facts
 *
 * Return: true: it is new.
 */
bool cgpu_registry_add_card(u32 minor, const struct cgpu_gpu *gpu);

/**
 * cgpu_registry_set_mig() - whether a card is in MIG mode has been asked again
 * @minor: the card
 * @mig: enum cgpu_mig
 */
void cgpu_registry_set_mig(u32 minor, u8 mig);

/** cgpu_registry_vacant() - which cards have no container, by bit */
u32 cgpu_registry_vacant(void);

/**
 * cgpu_registry_drop_card() - the driver is gone: forget a card without containers
 * @minor: the card
 *
 * Return: true: it was there and is forgotten.
 */
bool cgpu_registry_drop_card(u32 minor);

#endif
