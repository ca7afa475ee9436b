/* SPDX-License-Identifier: GPL-2.0-only */
/* The files, clients and memory of a container's processes. */
#ifndef CGPU_AGENT_TENANT_H
#define CGPU_AGENT_TENANT_H

#include "state/door.h"

/* books.c: of a container's tables. Context: door.lock, for both */
/* Context: also, no change is under way. */
void make_room(struct container *c);
/* Drops closed files that no call needs, step by step: other threads get the lock between. */
void let_go(struct container *c);

/* keeper.c. Context: door.lock, for both */
/* Wakes the container's thread to look at it now. Context: door.lock. */
void keeper_call(struct container *c);
/* A thread that counts among the container's workers ends. Context: door.lock. */
void worker_left(struct container *c);

/* process.c */
/* Lists the process. Return: NULL: it is gone, or there is no room. */
struct process *process_add(struct container *c, int pid);
/*
 * The process of a thread, until process_put(). A thread may have a table of descriptors
 * of its own: then *thread_table is set, and the process' table says nothing.
 */
struct process *process_of(struct container *c, int tid, bool *thread_table);
/*
 * Lists what process_of() returned. The caller has seen that the call still waits, so the process
 * made it. Return: the process to use from here on, NULL: too many.
 */
struct process *process_keep(struct container *c, struct process *p, int tid);
void process_put(struct container *c, struct process *p);
/* Forgets processes that have ended. Context: files_lock. */
void processes_reap(struct container *c);
/* Has a process ended that has not been forgotten? */
bool processes_died(struct container *c);
void processes_end(struct container *c);
/*
 * Adopts the processes of an agent before. Context: as for all `_adopt`, no other thread has the
 * container yet.
 */
void processes_adopt(struct container *c);
void process_kill(struct container *c, struct process *p);
/*
 * Kills all processes that have used the driver; holders.c then kills those that hold files of
 * theirs.
 */
void processes_kill(struct container *c, const char *why);
bool process_exists(struct container *c, int pid);
/* The processes of all containers that use the driver, to pids[PROCESSES_MAX]. Return: how many. */
uint32_t process_numbers(struct container *c, uint32_t *pids);
/* A process of the container that has not ended, so that the number names no other. */
bool process_lives(struct container *c, int pid);

/* The process that the thread belongs to, -1: gone. Takes no lock of the process'. */
int tgid_of(int tid);

/* clients.c: which process may own a client, by numbers on the host */
/* The process may allocate a client through this file. Return: false: no room. */
bool clients_note(struct container *c, uint32_t file, uint32_t pid);
/* The only process noted with the file, 0: there are several, or none. */
uint32_t clients_maker(struct container *c, uint32_t file);
/* The file is gone. Context: door.lock, for all from here on. */
void clients_forget(struct container *c, uint32_t file);
/* May a client be that process's, by a file that is open? */
bool clients_has(const struct container *c, uint32_t pid);
/* Was the process ever noted? */
bool clients_had(const struct container *c, uint32_t pid);
void clients_end(struct container *c);
uint64_t clients_fold(uint64_t digest);

/* device.c */
/* The file that was asked for may be there: the agent could not look. */
bool is_shortage(int err);
/*
 * enum cgpu_device of descriptor `fd` of a thread, whatever its node is called. Does not block.
 * Return: -ENODEV: another file's, -EBADF: none, -errno: it cannot be seen.
 */
int device_behind(int tid, int fd, uint32_t *minor);
/*
 * A duplicate of the file that device_behind() found, and what it is. Return: -EBADF: the
 * descriptor is another file's by now, -errno. Context: no lock.
 */
int device_take(struct container *c, int pidfd, int fd, uint32_t *device, uint32_t *minor);

/*
 * The thread's process shares the agent's own descriptors, as the watchdog and a process that
 * closes a stranger do: it holds nothing for itself. May wait for as long as a tenant likes.
 */
bool device_shares_table(int agent, int tid);

/* stranger.c: closes a file that is not the driver's. Context: no lock. */
void stranger_close(struct container *c, int fd);

/* files.c */
/*
 * A duplicate of the driver's file that fd of the process is. May wait for as long as the tenant
 * likes, as any access to another process's descriptors or memory. Return: -ENODEV: it is another
 * file, -errno. Context: no lock.
 */
int duplicate(struct container *c, struct process *p, int tid, bool thread_table, int fd,
	      uint32_t *device, uint32_t *minor);
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
/* The file is gone. Context: files_lock. */
void file_gone(struct container *c, uint32_t number);
void files_end(struct container *c);
void files_adopt(struct container *c);
/*
 * Is descriptor `fd` of a thread the container's file of that number? `held` is our duplicate of
 * it, or none. Waits for as long as a tenant likes. Context: neither files_lock nor a lock that
 * files_lock needs.
 */
bool file_is_at(struct container *c, uint32_t number, int held, int tid, int fd);

/* managed.c */
/*
 * The caller, which waits for its answer, makes the file its own: mappings through the file lie in
 * that process' address space from here on. `fd`: a duplicate of the file. Return: 0, -EBUSY: it is
 * another's, or was initialised unseen by the agent, -EALREADY: it was its own before, -EMFILE.
 */
int managed_bind(struct container *c, uint32_t number, struct process *p, int tid, int fd);
/* true for the process whose address space the file maps into */
bool managed_belongs(struct container *c, uint32_t number, const struct process *p);
/* The agent saw the file initialised, so that mappings through it can be found. */
bool managed_is_bound(struct container *c, uint32_t number);
/* The flags with which UVM_INITIALIZE goes on. */
void managed_told(struct container *c, uint32_t number, uint64_t flags);
/* The file is bound, and was initialised with these flags. `fd`: a duplicate of the file. */
bool managed_is_as_told(struct container *c, uint32_t number, int fd);
/*
 * Takes the cards, and what UVM has of their memory, from the address space of a file that the
 * agent holds. Return: false: the driver could not be asked. Context: look_lock, or no other thread
 * looks.
 */
bool managed_withdraw(struct container *c, uint32_t number);
/* The file's address space lives, but for some time its mappings could not be seen. */
bool managed_is_blind(struct container *c, uint32_t number);
/* Context: files_lock. */
void managed_unbind(struct container *c, uint32_t number);
/* An mmap of the UVM device was answered: it is about to happen. */
void managed_mapped(struct container *c, uint32_t number, uint64_t base);
/* Waits until every mmap that was answered has had time to happen. */
void managed_settle(struct container *c);
/*
 * Makes the ranges of all files what /proc says of their address spaces. Return: NULL, or the act
 * for which the container must end. Context: sweep_lock.
 */
const char *managed_sweep(struct container *c);

/* sweep.c */
/* Finds out which files are gone; with `managed`, also which managed memory is mapped. */
void files_sweep(struct container *c, bool managed);
/* The same for a caller that must not wait: a file that takes long to find is not gone yet. */
void files_sweep_for_call(struct container *c, bool managed);

/* holders.c */
/* For a killed container: called once, and again for files that were passed on meanwhile. */
/* Kills each process that has one of the container's files, by a thread that counts as a worker. */
void holders_kill(struct container *c);

/* audit.c: kills the container if the driver knows of more memory than the ledger */
void audit(struct container *c);
/*
 * The card memory that processes hold through clients of their own, as the driver says. Return:
 * bytes, 0: nothing, or the driver does not tell.
 */
uint64_t held_bytes(uint32_t minor, const uint32_t *pids, uint32_t count);
/* Looks again for the effects of such a call: often at first, and seldom later. */
bool is_audit_due(uint64_t last_ns, uint64_t call_ns);

/* userd.c: where GP_GET and GP_PUT of a tenant's channels can be read */
/* A channel was allocated with these parameters, through a duplicate of this file. */
void userd_allocated(struct container *c, int fd, uint32_t hClient, uint32_t hChannel,
		     const uint8_t *params, uint32_t params_size);
/* Gives back what freed channels needed. Context: no lock. */
void userd_release(struct container *c);
void userd_end(struct container *c);
/* The USERD that the agent before borrowed went with its client: borrows it again. */
uint64_t userd_fold(uint64_t digest);
void userd_adopt(struct container *c);
void userd_borrow_again(struct container *c);
/* Context: door.lock. Return: true if every compute channel can be read. */
bool userd_complete(struct container *c, uint32_t minor);
/*
 * The next compute channel, from number `from` on. Context: door.lock. Return: its number,
 * CGPU_USERD_NONE: no more; *words: its GP_GET, and above it GP_PUT.
 */
uint32_t userd_next(const struct container *c, uint32_t minor, uint32_t from,
		    const volatile uint64_t **words, struct cgpu_demand_channel **demand);

#endif
