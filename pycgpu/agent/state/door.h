/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the agent share. One lock, door.lock, guards all that the
 * core keeps; it is never held across an ioctl of the driver or an access to a
 * tenant's memory. Order: a container's sweep_lock or look_lock, files_lock, process_lock,
 * door.lock.
 * Whoever reads a tenant's mappings or asks for its descriptors may wait for as long as the
 * tenant likes (for a page of a file system of its own, or for reads of such while the
 * process executes a program), so only the container's own threads do, without the last
 * three.
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
	uint32_t seen;           /* counts calls on it, */
	uint32_t users;          /* and those that are in hand: nobody else may have it any more */
	struct process *process; /* where it was seen last */
	int fd;                  /* and its number there */
	/* the address space that it maps into, see managed.c; -1, NULL: not known */
	struct process *owner;
	uint32_t space;          /* counts what it was bound to */
	uint64_t blind_ns;       /* since when it lives and cannot be read, 0: it can */
	uint64_t flags;          /* that it was to be initialised with */
	int maps, mem;
};

struct container {
	bool used;
	bool ending;
	char id[CGPU_ID_MAX + 1];
	char name[CGPU_ID_MAX + 1];
	struct listener *listener; /* list of those alive, under door.lock: see listener.c */
	uint32_t listeners;      /* of these: one, and one for each exec of an OCI runtime */
	bool attached;           /* has had one: lives as long as it has any */
	int watched_pidfd;       /* of create's pid=; -1 */
	char cgroup[1024];
	bool populated;
	uint64_t created_ns;
	struct cgpu_grant grant[CGPU_MAX_CARDS];
	struct cgpu_tenant tenant;

	uint32_t workers;        /* threads that use it and are not its keeper; under door.lock */
	uint32_t strangers;      /* see stranger.c */
	uint32_t unread;         /* see notice.c */
	bool condemned;          /* who holds its files is looked for and killed; under door.lock */
	uint64_t told_ns;        /* see may_tell() */
	uint32_t told;

	/* over a whole look at what is mapped; as nothing else, while mappings are read */
	pthread_mutex_t sweep_lock;
	uint64_t looking_ns;     /* since when they are, 0: they are not */
	/* while everybody is asked for files that are held; none of these is closed meanwhile */
	pthread_mutex_t look_lock;
	uint64_t withdrawing_ns; /* since when a card is taken from one, 0: none is */
	pthread_cond_t keeper;   /* lifecycle.c: */
	bool wanted;             /* its keeper shall look at once; under door.lock, */
	uint64_t asked_ns;       /* somebody waits for a look, */
	uint64_t answered_ns;    /* and it has been had */

	pthread_mutex_t files_lock;
	int epoll;               /* weak references to files: see files.c */
	struct file file[FILES_MAX];
	/* never held while anything of a tenant's is waited for */
	pthread_mutex_t process_lock;
	struct process *processes;
	uint32_t process_count;
	struct { int tid; struct process *process; } tid[TIDS];
	bool lazy;               /* has had memory that goes without a call: look before telling */
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

	/* last told to the scheduler, by card */
	uint32_t groups[CGPU_MAX_CARDS];
	uint32_t channels[CGPU_MAX_CARDS];
	uint32_t runnable_changes; /* the tenant's, as the engine knows them */
	bool open[CGPU_MAX_CARDS];
	uint32_t lead[CGPU_MAX_CARDS]; /* number of the group that opens first */
	uint64_t resend_ns;      /* 0: slices are as programmed */
	uint64_t resent_ns;
	pthread_cond_t slices;   /* see slices.c: some are to be sent, or it is ending */
	uint64_t slice_us[CGPU_MAX_CARDS]; /* the last that was asked for, 0: sent */
	uint64_t asking_ns;      /* since when its processes are asked for a file, 0: none is */

	struct userds *userds;   /* under door.lock, */
	struct clients *clients; /* and this */
};

/* Part of the state, and so whole pages: an agent after this one goes on with it. */
struct door {
	pthread_mutex_t lock;
	pthread_cond_t changed;  /* the scheduler must look */
	pthread_cond_t leaves;   /* a container's `workers`, `answered_ns` */
	/* written to free a container; read by whoever uses one without the lock */
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

/* main.c */
void door_init_locks(void);
uint64_t now_ns(void);
/* One whose waits end by that clock. */
void cond_init(pthread_cond_t *cond);
/* Context: door.lock, released meanwhile. */
void cond_wait_until(pthread_cond_t *cond, uint64_t until_ns);

/* kernel.c: 0, or -errno, and @message[256] says what it lacks */
int kernel_check(char *message);

/* cgroup.c */
enum hierarchy { HIERARCHY_MEMORY, HIERARCHY_DEVICES };
enum {
	CGROUP_MOUNT_BYTES = 256,
	CGROUP_PATH_BYTES = 4096,
	CGROUP_BYTES = CGROUP_MOUNT_BYTES + CGROUP_PATH_BYTES
};
/* Where it is mounted; empty: nowhere. */
const char *hierarchy_root(enum hierarchy which);
bool hierarchy_is_unified(enum hierarchy which);
/*
 * The directory of a thread's cgroup. Return: 0, -ENOENT: it has ended, or is outside what can
 * be seen here.
 */
int cgroup_of(enum hierarchy which, int tid, char *directory, size_t bytes);

/*
 * memory_limit.c: of the thread's cgroup and those above it, in bytes; 0: none, also where that
 * cannot be seen.
 */
uint64_t memory_limit(int tid);

/* rm.c: the agent's own client, and any file of the driver */
int rm_open(bool newest, char *message);
void rm_close(void);
int rm_ioctl(int fd, uint32_t nr, void *args, uint32_t size);
/* Return: the driver's status, or 0xffff if the ioctl failed. */
uint32_t rm_control(int fd, uint32_t hClient, uint32_t hObject, uint32_t cmd, void *params,
		    uint32_t size);
/* An object of the agent's client. Return: 0, -EIO: the driver refuses. */
int rm_alloc(uint32_t hParent, uint32_t *hObject, uint32_t hClass, void *params);
void rm_free(uint32_t hObject);
/*
 * Lets the agent's client duplicate an object of another, through a duplicate of the file
 * that the other is of; or no longer. Return: the driver's status.
 */
uint32_t rm_share_with_agent(int fd, uint32_t hClient, uint32_t hObject, bool revoke);
/* Return: the driver's status. */
uint32_t rm_duplicate(uint32_t hParent, uint32_t hClientSrc, uint32_t hObjectSrc,
		      uint32_t *hObject);
/* Memory without a device, to read. Return: NULL if the driver refuses. */
const void *rm_map(uint32_t hMemory, uint64_t size);
/* A part of a device's memory; `path`: its card's file, or of system memory nvidiactl. */
const void *rm_map_part(uint32_t hDevice, const char *path, uint32_t hMemory, uint64_t offset,
			uint64_t size);
int rm_ctl_fd(void);
/* Descriptors of the agent's client. */
void rm_each_descriptor(void (*tell)(int fd));
uint32_t rm_client(void);
uint32_t rm_device(uint32_t minor);
uint32_t rm_subdevice(uint32_t minor);

/*
 * verify.c: after rm_open(). `adopted`: the tenants of an agent that was satisfied are ours now.
 * Return: 0: the driver is known, or has the newest layouts, as `message` says; -errno.
 */
int verify_driver(bool adopted, char *message);

/* process.c */
/* Lists it. Return: NULL: it is gone, or there is no room. */
struct process *process_add(struct container *c, int pid);
/*
 * The process of a thread, until process_put(). A thread may have a table of descriptors
 * of its own: then *thread_table is set, and the process' table says nothing.
 */
struct process *process_of(struct container *c, int tid, bool *thread_table);
/*
 * Lists what process_of() returned. The caller has seen that the call still waits, so that
 * it is the process that made it. Return: the one to use from here on, NULL: too many.
 */
struct process *process_keep(struct container *c, struct process *p, int tid);
void process_put(struct container *c, struct process *p);
/* Forgets who has ended. Context: files_lock. */
void processes_reap(struct container *c);
/* Has one ended that has not been forgotten? */
bool processes_died(struct container *c);
void processes_end(struct container *c);
/* Those of an agent before. Context: nobody else has the container yet, as for all `_adopt`. */
void processes_adopt(struct container *c);
/*
 * A duplicate of the driver's file that fd of the process is. May wait for as long as the tenant
 * likes, as all that asks for another's descriptors or memory. Return: -ENODEV: it is another's
 * file, -errno. Context: no lock.
 */
int duplicate(struct container *c, struct process *p, int tid, bool thread_table, int fd,
	      uint32_t *device, uint32_t *minor);
void process_kill(struct container *c, struct process *p);
/* All that have used the driver, and whoever holds a file of theirs. */
void processes_kill(struct container *c, const char *why);
bool process_exists(struct container *c, int pid);
/* Those of all that do, to pids[PROCESSES_MAX]. Return: how many. */
uint32_t process_numbers(struct container *c, uint32_t *pids);
/* One of the container's that has not ended: the number is no other's. */
bool process_lives(struct container *c, int pid);

/* The one whose thread it is, -1: gone. Waits for no lock of the process'. */
int tgid_of(int tid);

/* clients.c: whose a client may be, by numbers on the host */
/* The process may allocate a client through this file. Return: false: no room. */
bool clients_note(struct container *c, uint32_t file, uint32_t pid);
/* The only one that was noted with the file, 0: there are several, or none. */
uint32_t clients_maker(struct container *c, uint32_t file);
/* The file is gone. Context: door.lock, for all from here on. */
void clients_forget(struct container *c, uint32_t file);
/* May a client be that process's, by a file that is open? */
bool clients_has(const struct container *c, uint32_t pid);
/* Was it noted ever? */
bool clients_had(const struct container *c, uint32_t pid);
void clients_end(struct container *c);
uint64_t clients_fold(uint64_t digest);

/* device.c */
/*
 * enum cgpu_device of descriptor `fd` of a thread, whatever its node is called. Waits for nobody.
 * Return: -ENODEV: another file's, -EBADF: none, -errno: it cannot be seen.
 */
int device_behind(int tid, int fd, uint32_t *minor);
/*
 * A duplicate of what device_behind() told of, and what it is. Return: -EBADF: it is another's
 * by now, -errno. Context: no lock.
 */
int device_take(struct container *c, int pidfd, int fd, uint32_t *device, uint32_t *minor);

/*
 * The process of a thread has the agent's own descriptors, as the watchdog has them, and whoever
 * closes a stranger: it holds nothing for itself. May wait for as long as a tenant likes.
 */
bool device_shares_table(int agent, int tid);

/*
 * aside.c: does `work` in a process of that name that shares with the agent what clone() is told.
 * Context: no lock. Return: it was begun.
 */
bool aside(unsigned long shared, const char *name, void (*work)(const void *), const void *data);

/* stranger.c: closes a file that is not the driver's. Context: no lock. */
void stranger_close(struct container *c, int fd);

/*
 * notice.c: tells whoever reads the standard error of a process that is about to be killed. Waits
 * a moment for that to be written. Context: no lock.
 */
void notice(struct container *c, int pid, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* files.c */
/* What was asked for may be there: it was we who could not look. */
bool is_shortage(int err);
/*
 * Descriptor `fd` of the process' thread is a file of the driver's that was seen there before; by
 * a look without locks, so that what is taken is looked at again. Context: no lock.
 */
bool file_is_known(struct container *c, const struct process *p, int tid, int fd);
/*
 * `exported_by`: the call that made it, which kept a place for it, or NULL.
 * Return: the core's number of the file, which is not forgotten until file_put(), 0: no room.
 */
uint32_t file_of(struct container *c, struct process *p, int fd, int local, uint32_t device,
		 uint32_t minor, struct cgpu_call *exported_by);
void file_put(struct container *c, uint32_t number);
/*
 * A duplicate of one of the container's files. May wait for as long as the tenant likes.
 * Return: -errno. Context: no lock.
 */
int file_duplicate(struct container *c, uint32_t number);
/* Finds out which files are gone; `managed`: and what of managed memory is mapped. */
void files_sweep(struct container *c, bool managed);
/* The same for who waits: a file that is searched for longer than a moment is not gone yet. */
void files_sweep_for_call(struct container *c, bool managed);
void files_end(struct container *c);
void files_adopt(struct container *c);
/* Kills whoever has one of the container's files, by a thread that counts as a worker. */
void holders_kill(struct container *c);
/*
 * Is descriptor `fd` of a thread the container's file of that number, of which we hold `held`,
 * or none? Waits for as long as a tenant likes. Context: neither files_lock nor what needs it.
 */
bool file_is_at(struct container *c, uint32_t number, int held, int tid, int fd);

/* managed.c */
/*
 * The caller, which waits for its answer, makes the file its own: what is mapped through
 * it lies in that process' address space from here on. `fd`: a duplicate of the file. Return:
 * 0, -EBUSY: it is another's, or was initialised where nobody here saw it, -EALREADY: it was
 * its own before, -EMFILE.
 */
int managed_bind(struct container *c, uint32_t number, struct process *p, int tid, int fd);
/* true for the process whose address space the file maps into */
bool managed_belongs(struct container *c, uint32_t number, const struct process *p);
/* It was initialised under the agent's eyes, so that what is mapped through it can be found. */
bool managed_is_bound(struct container *c, uint32_t number);
/* The flags with which UVM_INITIALIZE goes on. */
void managed_told(struct container *c, uint32_t number, uint64_t flags);
/* It is bound, and was initialised with these flags. `fd`: a duplicate of the file. */
bool managed_is_as_told(struct container *c, uint32_t number, int fd);
/*
 * Takes the cards from the address space of a file that the agent holds, and what it has of
 * their memory. Return: false: the driver could not be asked. Context: look_lock, or nobody
 * else looks.
 */
bool managed_withdraw(struct container *c, uint32_t number);
/* For some time nobody could see what is mapped in its address space, which lives. */
bool managed_is_blind(struct container *c, uint32_t number);
/* Context: files_lock. */
void managed_unbind(struct container *c, uint32_t number);
/* An mmap of the UVM device was answered: it is about to happen. */
void managed_mapped(struct container *c, uint32_t number, uint64_t base);
/* Waits until no mmap is so recent that it may not have happened yet. */
void managed_settle(struct container *c);
/*
 * Makes the ranges of all files what /proc says of their address spaces. Return: NULL, or
 * what the container did for which it must end. Context: sweep_lock.
 */
const char *managed_sweep(struct container *c);

/* audit.c: kills the container if the driver knows of more memory than the ledger */
void audit(struct container *c);
/*
 * What the driver says that processes hold of a card by clients of their own. Return: bytes, 0:
 * nothing, or it does not tell.
 */
uint64_t held_bytes(uint32_t minor, const uint32_t *pids, uint32_t count);
/* What a call can have caused is looked for again: often at first, and later seldom. */
bool is_audit_due(uint64_t last_ns, uint64_t call_ns);

/* receivers.c: a thread ends who uses a card by a file that only a tenant can have given it */
void receivers_start(void);

/* events.c */
struct state_segment events_segment(void);
void event(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A tenant must not push others' lines out of the events. Return: false: it has told enough. */
bool may_tell(struct container *c);

/* registry.c. Context: door.lock, for all of them */
struct container *find_container(const char *id);
/* Gives a new container its cards and lists it. Return: 0, -errno: nothing changed. */
int registry_add(struct container *c, struct cgpu_create *create);
/* Its promises return at once, its files when they are gone. */
void unlist(struct container *c);
/* Context: also no change that is under way. */
void make_room(struct container *c);
/* Of closed files that no call needs any more, step by step: others get the lock meanwhile. */
void let_go(struct container *c);
void sync_card(uint32_t minor);
/* Tells the scheduler what the container has open. */
void refresh(struct container *c);
/* New groups were scheduled, or their owner set a slice: program them again, soon. */
void resend(struct container *c);
/* Programs them again, if it is time. */
void send_again(struct container *c);

/* holder.c. Context: no lock. Return: by pid, to free(), NULL: no memory. */
struct cgpu_holder *holders_of(const char *id, uint32_t minor, uint32_t *count);

/* lifecycle.c */
void lifecycle_start(void);
/* Those of an agent before: what they have, then their threads. */
void containers_adopt(void);
void containers_resume(void);
/* Has the container's thread look at it now. Context: door.lock. */
void keeper_call(struct container *c);

/* listener.c */
/* Context: door.lock. The listener is the container's from here on. Return: -errno. */
int listener_start(struct container *c, int fd);
/* Of listeners of an agent before, and what they had in hand. */
void listeners_adopt(struct container *c);
/* Threads for those. Context: door.lock. Return: -errno. */
int listeners_resume(struct container *c);
/* For a process that has no agent's threads: EPERM to who waits, and to what was in hand. */
void listeners_each(const struct container *c, void (*tell)(int fd));
void listeners_refuse(const struct container *c);
uint64_t listeners_fold(uint64_t digest);
void listeners_each_descriptor(const struct container *c, void (*tell)(int fd));
/* A thread that counts among the container's workers ends. Context: door.lock. */
void worker_left(struct container *c);

/* refused.c */
struct state_segment refused_segment(void);
/* Of a listener's calls the first gets EPERM. Return: false: nobody is there any more. */
bool listener_refuse(int fd);
void refused_each(void (*tell)(int fd));
/* Answers those of an agent before. */
void refused_resume(void);

/* switch_log.c */
void switch_log_open(uint32_t minor);
/*
 * Tells the scheduler what was used and who is idle, if it is time. Context: door.lock,
 * released meanwhile. Return: when it is time again, 0: something was told.
 */
uint64_t switch_log_follow(uint32_t minor);
/* A look has brought that time nearer than it was when it was told last. Context: door.lock. */
bool switch_log_is_sooner(uint32_t minor);
/* Totals as of now: a context switch is not told by itself for 33 ms. */
void switch_log_refresh(uint32_t minor);

/* userd.c: where GP_GET and GP_PUT of a tenant's channels can be read */
/* A channel was allocated with these parameters, through a duplicate of this file. */
void userd_allocated(struct container *c, int fd, uint32_t hClient, uint32_t hChannel,
		     const uint8_t *params, uint32_t params_size);
/* Gives back what freed channels needed. Context: no lock. */
void userd_release(struct container *c);
void userd_end(struct container *c);
/* What was borrowed went with the client of the agent before: borrows it again. */
uint64_t userd_fold(uint64_t digest);
void userd_adopt(struct container *c);
void userd_borrow_again(struct container *c);
/* Context: door.lock. Return: each compute channel can be read. */
bool userd_complete(struct container *c, uint32_t minor);
/*
 * The compute channel from number `from` on. Context: door.lock. Return: its number,
 * CGPU_USERD_NONE: no more; *words: its GP_GET, and above it GP_PUT.
 */
uint32_t userd_next(const struct container *c, uint32_t minor, uint32_t from,
		    const volatile uint64_t **words, struct cgpu_demand_channel **demand);

/* demand.c: who has work */
/* The slot is another's from here on. Context: door.lock. */
void demand_forget(uint32_t minor, uint32_t slot);
void demand_start(uint32_t minor);
/* After a tick that asked for nothing: looks may be wanted sooner. Context: door.lock. */
void demand_follow(uint32_t minor);

/* watchdog.c */
/*
 * Another process that has this one's descriptors: it keeps the state when this one ends, however
 * that comes. Context: no other thread of this process has begun to use the state. Return: -errno.
 */
int watchdog_start(void);
/* It has ended: another. Return: -errno. */
int watchdog_check(void);
/* Descriptors that an agent needs to go on. */
void watchdog_each_descriptor(void (*tell)(int fd));

/* takeover.c */
/*
 * Adopts what an agent before left to its watchdog, or begins with nothing. Return: 0, -errno, and
 * @message[256] says why: nothing has changed.
 */
int takeover(char *message);
/* After watchdog_start(): the one before ends. */
void takeover_done(void);

/* gate.c */
/* Opens what an agent that is gone had shut. Context: nobody moves gates. */
void gates_open_all(void);
void gates_adopt(struct container *c);
struct state_segment gates_segment(void);
/* true for a group on the card that computes and may run */
bool is_gated_group(const struct cgpu_object *o, uint32_t minor);
/* Has windows of its own, and several groups to run in them. Context: door.lock. */
bool rotates(const struct container *c, uint32_t minor);
/* Groups that lead in one window, one after the other. Context: door.lock. */
uint32_t leads_in_window(const struct container *c, uint32_t minor);
/*
 * Shuts or opens the gates of the containers in `mask`. `partly` not NULL: of those
 * that rotate only the next lead opens, and they are added to it. Return: number of
 * channels moved.
 */
uint32_t move_gates(uint32_t minor, uint64_t mask, bool disable, uint64_t *partly);
/*
 * A container whose gate is shut has new channels: they are shut before whoever made them
 * is told of them, for a neighbour's time, or a quota's end, lasts longer than making more.
 */
void shut_new_channels(struct container *c, uint32_t minor);
/*
 * The same for channels that `ask` has the driver schedule, which opens them: no gate of the
 * card's moves from before it until they are shut.
 */
void shut_scheduled_channels(struct container *c, uint32_t minor, void (*ask)(void *data),
			     void *data);

/* slices.c */
/* The container's thread that sends them; its end is heard by worker_left(). Return: -errno. */
int slices_start(struct container *c);
/* Has those of the containers in `mask` sent, soon. */
void slices_want(uint32_t minor, uint64_t mask, uint64_t slice_us);

/* governor.c */
void governors_start(void);

#endif
