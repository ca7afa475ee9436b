/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations that the files of the agent share. One lock, door.lock, guards all that the core
 * keeps. It is never held across an ioctl of the driver or an access to a tenant's memory. Order: a
 * container's sweep_lock or look_lock, files_lock, process_lock, door.lock.
 *
 * A thread that reads a tenant's mappings or asks for its descriptors may wait as long as the
 * tenant likes. It may wait for a page of the tenant's own file system, or for reads of that while
 * the process executes a program. So only the container's own threads do so, without the last three
 * locks.
 */
#ifndef CGPU_AGENT_DOOR_H
#define CGPU_AGENT_DOOR_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/call/call.h"
#include "core/tree/card.h"
#include "core/sched/demand.h"
#include "core/sched/switch_log.h"
#include "core/tree/inst_ctl.h"
#include "core/tree/nodes.h"
#include "core/sched/policy.h"
#include "core/sched/sched.h"
#include "state/state.h"

enum {
	CONTAINERS_MAX = 256,
	WORKERS = 4, /* of a listener, at most */
	SPARE_WORKERS = 64, /* of a container, beside one for each listener */
	LISTENERS_MAX = 256, /* of a container */
	FILES_MAX = 4096,
	SPACES_MAX = 512, /* address spaces that are followed, of a container */
	PROCESSES_MAX = 2048, /* that use the driver, of a container */
	TIDS = 1024,
	FDS = 512
};

/* A process that made a call, known by its pidfd so that its number cannot be reused. */
struct process {
	struct process *next;
	int pid;
	int pidfd;               /* -1: dead */
	bool listed;             /* has used the driver: in the container's list */
	uint32_t users;          /* calls that are in hand */
	uint32_t file[FDS];      /* core's file number last seen behind each fd */
};

/* An open file of the tenant; the index is the core's number of it. */
struct file {
	bool used;
	uint32_t device;         /* enum cgpu_device */
	uint32_t minor;
	/* our duplicate of a file that cannot be polled, or -1; closed under look_lock */
	int held;
	uint32_t seen;           /* counts the calls on the file, */
	uint32_t users;          /* and the calls in hand, perhaps its last users */
	struct process *process; /* where it was seen last */
	int fd;                  /* and its number there */
	/* the address space that it maps into, see managed.c; -1, NULL: not known */
	struct process *owner;
	uint32_t space;          /* counts what it was bound to */
	uint64_t blind_ns;       /* since when it lives and cannot be read, 0: it can */
	uint64_t flags;          /* the flags that it was to be initialised with */
	int maps, mem;
};

struct container {
	bool used;
	bool ending;
	/*
	 * leads the container's group, whose slots it runs under; lives as long as this. NULL: its
	 * own
	 */
	struct container *leader;
	char id[CGPU_ID_MAX + 1];
	char name[CGPU_ID_MAX + 1];
	struct listener *listener; /* list of those alive, under door.lock: see listener.c */
	uint32_t listeners;      /* how many: one, and one for each exec of an OCI runtime */
	bool attached;           /* has had a listener: lives as long as it has any */
	int watched_pidfd;       /* of create's pid=; -1 */
	char cgroup[1024];
	bool populated;
	uint64_t created_ns;
	struct cgpu_grant grant[CGPU_MAX_CARDS];
	struct cgpu_tenant tenant;

	uint32_t workers;        /* threads that use it, except its keeper; under door.lock */
	uint32_t strangers;      /* see stranger.c */
	uint32_t unread;         /* see notice.c */
	bool condemned;          /* was killed: a worker then kills the holders of its files; */
	bool hunted;             /* that worker has begun, see holders.c; both under door.lock */
	uint64_t told_ns;        /* see may_tell() */
	uint32_t told;

	/* held over a whole look at what is mapped; the only lock held while mappings are read */
	pthread_mutex_t sweep_lock;
	uint64_t looking_ns;     /* since when mappings are read, 0: they are not */
	/* held while all processes are asked for held files; none of these is closed meanwhile */
	pthread_mutex_t look_lock;
	uint64_t withdrawing_ns; /* since when a card is taken from an address space, 0: none is */
	pthread_cond_t keeper;   /* lifecycle.c: */
	bool wanted;             /* its keeper shall look at once; under door.lock, */
	uint64_t asked_ns;       /* a thread waits for a look, */
	uint64_t answered_ns;    /* and the look for that request is done */

	pthread_mutex_t files_lock;
	int epoll;               /* weak references to files: see files.c */
	struct file file[FILES_MAX];
	/* never held during a wait for anything of a tenant's */
	pthread_mutex_t process_lock;
	struct process *processes;
	uint32_t process_count;
	struct { int tid; struct process *process; } tid[TIDS];
	bool lazy;               /* has had memory that goes without a call: sweep first */
	bool dirty;              /* a process died since the last sweep */
	uint64_t swept_ns;
	uint64_t managed_ns;     /* managed memory was swept, too */
	uint64_t audited_ns;     /* see audit.c */
	uint64_t called_ns;      /* its last call was answered, */
	uint64_t carried_ns;     /* and the last that left a client or device to it */
	bool exceeded;           /* at the last audit */
	uint32_t spaces;         /* files whose address space is known */
	struct { uint32_t file; uint64_t base, when_ns; } recent[64];
	uint32_t recent_next;

	/* the values last told to the scheduler, by card */
	uint32_t groups[CGPU_MAX_CARDS];
	uint32_t channels[CGPU_MAX_CARDS];
	uint32_t runnable_changes; /* the tenant's, as the engine knows them */
	uint32_t gang;
	bool open[CGPU_MAX_CARDS];
	uint32_t lead[CGPU_MAX_CARDS]; /* number of the group that opens first */
	uint64_t resend_ns;      /* 0: slices are as programmed */
	uint64_t resent_ns;
	pthread_cond_t slices;   /* slices.c: slices are to be sent, or the end comes */
	uint64_t slice_us[CGPU_MAX_CARDS]; /* the slice last asked for, 0: sent */
	uint64_t asking_ns;      /* since when a process is asked for a file, 0: none is */

	struct userds *userds;   /* under door.lock, */
	struct clients *clients; /* and this */
};

/* Part of the state, and so whole pages: an agent after this one resumes with it. */
struct door {
	pthread_mutex_t lock;
	pthread_cond_t changed;  /* the scheduler must look */
	pthread_cond_t leaves;   /* a container's `workers`, `answered_ns` */
	/* written to free a container; read by a thread that uses one without the lock */
	pthread_rwlock_t life;
	bool running;
	struct cgpu_abi abi;
	char version[64];
	struct cgpu_host host;
	struct cgpu_sched sched[CGPU_MAX_CARDS];
	struct container *container[CONTAINERS_MAX];
	uint64_t reopen[CGPU_MAX_CARDS]; /* instances whose gate opens first */
	uint64_t ended_ns;
	unsigned uvm_major;
	int tfd_base;            /* see files.c */
	uint32_t files_max;      /* slots for the open files of a container */
	bool gate;               /* the driver takes our gate calls */
	struct {
		uint64_t calls, performed, continued, answered, busy_ns, gate_calls,
			 gate_ns, gate_max_ns, gate_errors, slice_calls, slice_errors, sweeps,
			 looks, look_ns, look_reads, wakes, userd_maps, userd_errors,
			 adopted;
	} count;
} __attribute__((aligned(4096)));

extern struct door door;

/* door.c */
void door_init_locks(void);
uint64_t now_ns(void);
/* Makes a condition whose waits end by that clock. */
void cond_init(pthread_cond_t *cond);
/* Context: door.lock, released meanwhile. */
void cond_wait_until(pthread_cond_t *cond, uint64_t until_ns);
/*
 * The next container that runs under a slot of a card, from number `from` on. Context: door.lock.
 * Return: its number, CONTAINERS_MAX: no more.
 */
int next_in_slot(uint32_t minor, uint32_t slot, int from);

/* events.c */
struct state_segment events_segment(void);
void event(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Keeps a tenant from pushing others' lines out of the events. Return: false: it told enough. */
bool may_tell(struct container *c);

#endif
