/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the door (cgpu_km.ko), which stays, and the core (cgpu_core_<version>.ko), which can be
 * replaced while containers run.
 *
 * The door owns all that the kernel or a process keeps a pointer to. That is the driver's hooked
 * file operations, those of the files in /proc, the scratch areas and the mmu notifiers, the bridge
 * and the readers of `events`. The core owns every decision, and its state is plain memory that the
 * next core takes over.
 *
 * A call of a tenant is cut in two, before and after the driver's own work. Another core may do the
 * second half. The core is entered through one of two drains: CALLS, and MAPS for those who come
 * with mmap_lock held. Behind CALLS page faults take that lock, so MAPS closes only when no call is
 * behind CALLS any more.
 */
#ifndef CGPU_DOOR_H
#define CGPU_DOOR_H

#include <linux/mmu_notifier.h>
#include <linux/types.h>

#include "bridge.h"

/* Raised whenever anything in this file, scratch.h, events.h or notice.h changes its meaning. */
#define CGPU_DOOR_API 16

struct cgpu_card_defaults;
struct cgpu_scratch;
struct file;
struct module;
struct proc_dir_entry;
struct proc_ops;
struct seq_file;

enum cgpu_driver {
	CGPU_DRIVER_RM,    /* nvidia */
	CGPU_DRIVER_UVM,   /* nvidia-uvm */
	CGPU_DRIVER_TOOLS  /* the second device of nvidia-uvm, which comes and goes with it */
};

typedef long (*cgpu_ioctl_fn)(struct file *file, unsigned int cmd, unsigned long arg);

/*
 * One ioctl on its way. Code behind a drain does not wait for a page of the caller, which might
 * never come, nor for its address space, which another of its threads may hold. A core that wants
 * one of `fault_*`, `wants_scratch` or `watch` says so, and is asked again when it is there. A call
 * does not wait there for other tasks either: the core sets `wants_time` and is asked again in a
 * moment.
 */
struct cgpu_pass {
	struct file *file;
	unsigned int cmd;        /* as the driver is to see it */
	unsigned long arg;
	struct cgpu_scratch *scratch; /* the core's: the driver works on it, NULL: on `arg` */
	cgpu_ioctl_fn driver;    /* the driver's own */
	void *token;             /* the core's; NULL: nothing to do afterwards */
	bool names;              /* set by the core: the call names a descriptor */
	struct file *named;      /* what the core holds behind it, NULL: nothing is there */
	bool followed;           /* the driver has found that file behind it, or none */
	bool exports;            /* set by the core: the call makes a dma-buf, or adds to one */
	struct file *exported;   /* that dma-buf, the core's reference; NULL: none was seen */
	bool answered;           /* the driver is not asked; its result is taken as `result` */
	long result;
	void __user *fault_at;
	size_t fault_bytes;      /* 0: none is missing */
	bool fault_write;
	bool unreachable;        /* what was named last cannot be had: -EFAULT */
	bool wants_scratch;         /* before the driver: current has none that is free */
	bool wants_time;            /* likewise: the call cannot be decided yet */
	u64 wait[3];                /* the core's, over that; 0 at first */
	/* -errno: there is no memory for what it wants, or current ends: the call's answer */
	int given_up;
	struct mmu_notifier *watch; /* after it: to be told of what goes from current's mm */
	int watched;             /* what came of that: 0, -ENOMEM, -EINTR */
};

/*
 * The operations of a core. Everything but begin to forget is called behind a drain. No two of
 * begin, start, end, quiesce, resume, adopt, forget, bridge_changed run at a time.
 */
struct cgpu_core_ops {
	struct module *owner;
	u32 door_api;            /* CGPU_DOOR_API as it was compiled with */
	u32 state_version;       /* of the state that it makes and takes */
	u64 state_digest;        /* of the sizes of what the state consists of */

	/* Makes the state. Return: 0, -ENOMEM, -EINVAL. */
	int (*begin)(void **state);
	/* The core is in charge now. Return: 0, or why it cannot be: an unknown driver. */
	int (*start)(void);
	/* No call is inside and no container exists: frees the state. */
	void (*end)(void);

	/* Stops its threads and work items; the channels' gates stay as they are. */
	void (*quiesce)(void);
	/* No call is behind the drain of calls: work that began again in between ends. */
	void (*settle)(void);
	/* After quiesce, or after adopt: threads and work items go on. */
	void (*resume)(void);
	/* Takes over a state of its version. On an error nothing changed. */
	int (*adopt)(void *state);
	/* Another one has taken the state over. */
	void (*forget)(void);

	/* Return: 0, -EOPNOTSUPP: no layouts for this version of the driver. */
	int (*driver_known)(const char *version);
	/* Of RM and UVM. */
	void (*driver_changed)(enum cgpu_driver driver, bool present);
	/* `bridge` NULL: it goes; no thread uses it when this returns. */
	void (*bridge_changed)(const struct cgpu_bridge_ops *bridge);

	/* Return: 0, -EACCES. `token`: what open_post needs, or NULL. */
	int (*open_pre)(enum cgpu_driver driver, u32 minor, void **token);
	/* `err`: what the driver said. Return: `err`, or why it must be released again. */
	int (*open_post)(void *token, struct file *file, enum cgpu_driver driver, u32 minor,
			 int err);
	void *(*release_pre)(struct file *file);
	void (*release_post)(void *token);
	void (*ioctl_pre)(struct cgpu_pass *pass);
	/* pass->result: the driver's; becomes what the ioctl returns. */
	void (*ioctl_post)(struct cgpu_pass *pass);

	/* MAPS. Return: 0, -errno. */
	int (*mmap_pre)(struct file *file, u64 start, u64 length_bytes, u64 offset_bytes,
			void **token);
	/* `done`: the driver did not refuse it. */
	void (*mmap_post)(void *token, u64 start, u64 length_bytes, bool done);
	void (*unmapped)(struct mmu_notifier *notifier, u64 start, u64 length_bytes);

	/* Files in /proc; `entry` is what proc_create_data() was given. */
	int (*events_open)(void); /* may current read `events`? Return: 0, -EACCES. */
	/* Return: 0: `entry` stays until node_release; -errno. */
	int (*node_open)(void *entry, bool write);
	void (*node_release)(void *entry);
	int (*node_show)(struct seq_file *seq);
	int (*node_write)(void *entry, const char *text, size_t size);
	/* May current find that name in a directory of containers? */
	bool (*name_shown)(const char *name, size_t length);
};

/* ------------------------------------------------ what the door does for it */

/*
 * A core's module comes. Return: 0: it is in charge, or stands by because
 * another one is; -EPROTO: it does not fit the door or the state of the core
 * in charge; -EBUSY: another one stands by already.
 */
int cgpu_door_register(const struct cgpu_core_ops *core);
/* It goes; no container exists, or it is not in charge. */
void cgpu_door_unregister(const struct cgpu_core_ops *core);

/**
 * cgpu_door_pin() - keep door, core and bridge loaded while a container exists
 *
 * Context: any.
 *
 * Return: false: one of them is being unloaded at this moment, or the core has not
 * started yet, and nothing is kept.
 */
bool cgpu_door_pin(void);

/**
 * cgpu_door_unpin() - end what cgpu_door_pin() began
 *
 * Context: any.
 */
void cgpu_door_unpin(void);

/* The bridge, or NULL. */
const struct cgpu_bridge_ops *cgpu_door_bridge(void);

/* /proc/cgpu_km, and what a core gives its files. */
struct proc_dir_entry *cgpu_door_root(void);
extern const struct proc_ops cgpu_door_node_ops;
/* Its address is the data of a directory in which containers have theirs. */
extern const char cgpu_door_containers;

/**
 * cgpu_door_sees_exports() - does cgpu_pass.exported mean anything?
 *
 * Return: false: this kernel cannot be looked at; a container must not export.
 */
bool cgpu_door_sees_exports(void);

/* The part of a card that a container without a grant may have; 1 to 100: percent. */
enum cgpu_ungranted {
	CGPU_UNGRANTED_ASKED = -2, /* nothing, once any container asked for something */
	CGPU_UNGRANTED_ALLOW = -1, /* all */
	CGPU_UNGRANTED_REFUSE = 0
};

/* Does current run in a container, as far as its namespaces tell? Context: any. */
bool cgpu_door_has_namespaces(void);

/* Does current run in a container, as far as its namespaces and its root tell? May sleep. */
bool cgpu_door_in_container(void);

/* Parameters of cgpu_km. */
int cgpu_door_ungranted(void);
unsigned int cgpu_door_max_objects(void);
bool cgpu_door_force_branch(void);
const struct cgpu_card_defaults *cgpu_door_card_defaults(void);

/*
 * Hooks what is loaded and not hooked yet. Return: 0: the RM driver is hooked, -ENODEV: it is not
 * loaded or has no device node, -EOPNOTSUPP: its version is not known, -EINVAL: its pointers are
 * not its own, something else has hooked it.
 */
int cgpu_door_attach(void);
/* Which driver is hooked, and its version: "550.163.01", "": none. */
const char *cgpu_door_driver_version(void);
bool cgpu_door_is_hooked(enum cgpu_driver driver);
/* RM's own ioctl, past the hook. Return: -ENODEV: `file` is none of its files. */
long cgpu_door_driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

#endif
