/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* One ioctl of a container, before and after the driver's own work. */
#ifndef CGPU_CORE_CALL_CALL_H
#define CGPU_CORE_CALL_CALL_H

#include "core/types.h"
#include "core/rm/decode.h"
#include "core/memory/tenant.h"

/*
 * A door's work for one ioctl:
 *
 *   copy the argument and the parameters into memory that the caller cannot
 *   write; cgpu_decode(), cgpu_decode_params(); resolve req.fd to `fd_file`
 *   lock the tenant; cgpu_call_pre(); unlock
 *   FORWARD: let the driver work on the copies
 *   lock; cgpu_call_post() with the copies as the driver left them; unlock
 *   write the copies back to the caller
 *
 * The core holds no lock while the driver works.
 */
enum cgpu_call_limit {
	CGPU_EXPORT_MAX = 32,      /* objects in one export call */
	CGPU_IMPORT_MAX = 128,     /* places in one import call, as many as the driver's */
	/*
	 * Places of a file, four bytes of the host's memory each. CUDA has one for each 16 MiB of
	 * memory that it sees in a pool's file (8948 on an H200, 580.159.04).
	 */
	CGPU_EXPORTED_MAX = 32768,
	CGPU_DMABUF_OBJECTS_MAX = 128, /* in a dma-buf, as many as a call of the driver takes */
	/*
	 * Memory that no ioctl shows: about 10 MiB for the four groups of a CUDA context (H200,
	 * 580.159.04). A container has this many groups free per card, enough for 32 CUDA contexts.
	 * Each further one is charged, so that groups do not avoid the limit.
	 */
	CGPU_FREE_GROUPS = 128,
	CGPU_GROUP_BYTES = 4 << 20,
	/*
	 * Likewise channels and address spaces: a CUDA context has 20 and 3 of them, 64 KiB each
	 * (same card).
	 */
	CGPU_FREE_CHANNELS = 1024,
	CGPU_CHANNEL_BYTES = 64 << 10,
	/*
	 * A runlist has numbers for so many channels, and compute shares one with copy engines
	 * (2044 could be made on an H100, 580.159.04). A container that takes them all lets no
	 * other begin. So a container gets the same part of them as of the memory, or as many as 32
	 * CUDA contexts need.
	 */
	CGPU_RUNLIST_CHANNELS = 2048,
	CGPU_OWN_CHANNELS = 640,
	CGPU_FREE_VASPACES = 128,
	CGPU_VASPACE_BYTES = 64 << 10,
	/*
	 * Handles of groups, channels and context shares on all cards; a CUDA context has about 30.
	 * A gate that moves walks all of them.
	 */
	CGPU_MAX_RUNNABLES = 16384,
	/*
	 * Bounds, over all cards, for driver memory that nothing shows. A mapping takes page tables
	 * of an address space, or of the window through which the processor reaches the card's
	 * memory. No CUDA program makes many of either. An OS event takes a few hundred bytes of
	 * the host's memory.
	 */
	CGPU_MAX_MAPPINGS = 4096,
	CGPU_MAX_OS_EVENTS = 16384,
	/*
	 * The least BAR1 of a container, however little of the card's memory it has. A CUDA context
	 * maps 2 MiB (H200, 580), and may map more with other drivers.
	 */
	CGPU_OWN_BAR1_BYTES = 16 << 20,
	/* Range groups of UVM, some 70 bytes of the host's memory each. */
	CGPU_MAX_RANGE_GROUPS = 65536,
	/*
	 * Ranges that a UVM file has for external memory, mapped or not. They cost the driver
	 * memory of the host, and time to walk them. CUDA makes one for each reservation of
	 * addresses, and one for each allocation.
	 */
	CGPU_MAX_EXTERNALS = 65536
};

enum cgpu_verdict {
	CGPU_FORWARD,      /* the driver shall work; then call cgpu_call_post() */
	CGPU_ANSWER,       /* args hold the answer, `error` the return value */
	CGPU_DONE,         /* after post: deliver what args and params hold */
	CGPU_UNDO,         /* after post: free undo_hClient/undo_hObject, then deliver */
	CGPU_KILL          /* after post: the caller raced itself to escape: SIGKILL */
};

/* A number that no list names. */
struct cgpu_unlisted {
	const char *kind;       /* "escape", "uvm", "control", "class"; NULL: it is listed */
	uint32_t number;
	bool first;             /* this container's first: a door reports it */
};

struct nv_gr_preemption_mode;

struct cgpu_call {
	struct cgpu_request req;
	uint8_t *args;          /* req.args_size bytes */
	uint8_t *params;        /* req.params_size bytes, or NULL */
	const uint8_t *before;  /* params as the caller has them, or NULL */
	uint8_t *list;          /* req.list_size bytes, or NULL: post only */
	uint32_t file;          /* the file that the call came through */
	uint32_t fd_file;       /* file number of req.fd in this tenant, 0: not its own */
	/*
	 * The leader of the caller's group, if cgpu_call_wants_leader() said so and it still
	 * exists; otherwise NULL. Until the core sets it to NULL, the call needs both locks: the
	 * member's, then the leader's.
	 */
	struct cgpu_tenant *leader;
	uint32_t pid;           /* calling process, host's number */
	int32_t error;          /* ANSWER: 0, or -errno for the ioctl */
	/*
	 * ANSWER: the container may not have what it asked for. Otherwise the driver would say the
	 * same, or another call of the container is in the way: no event tells of that.
	 */
	bool refused;
	struct cgpu_unlisted unlisted; /* also of FORWARD: an administrator admits it */
	struct cgpu_shortage shortage; /* ANSWER, UNDO: why, if a limit was in the way */

	/* between pre and post, or undone */
	uint32_t charge;        /* reserved, or held, for this call */
	uint32_t parent;        /* ALLOC, DUP, import: the object above the new one */
	uint32_t object;        /* FREE, DUP, UVM mapping: the object that the call is about */
	uint32_t lent;          /* DUP: likewise, among the leader's objects */
	uint32_t serial;        /* FREE: of that object */
	uint32_t driven[CGPU_DRIVEN_MAX]; /* ALLOC of a channel: memory that drives it */
	uint32_t card;
	uint32_t registrations; /* UVM (UN)REGISTER_GPU: as counted at pre */
	bool alone;             /* likewise: no registration was in the driver */
	uint64_t range_serial;  /* UVM unmapping: of the newest range at pre; import: its own */
	bool length_known;      /* UVM_FREE */
	uint64_t uses;          /* ALLOC, DUP, import: of the objects, as counted at pre */
	uint32_t held[CGPU_EXPORT_MAX];  /* export: charges */
	uint32_t held_count;
	uint32_t handles;       /* export, import: their offset in the parameters */
	uint32_t first;         /* likewise: their first place in the file */
	uint32_t count;
	bool replaces;          /* export: it replaces the content of a place */
	uint32_t pinned[CGPU_EXPORT_MAX + 2]; /* objects that stay until the end */
	uint32_t pinned_count;
	uint32_t used_file;     /* export, import: a file that stays until the end; 0: none */
	/* entries kept for what the driver makes, so that all of it is counted */
	uint32_t promised_objects;
	uint32_t promised_ranges;
	uint32_t promised_files;
	uint64_t promised_tables_bytes; /* page tables, on promised_cards (bit set) */
	uint32_t promised_cards;
	/*
	 * GPFIFO_SCHEDULE opens what a gate has shut. A door keeps gates from moving from before
	 * the driver is asked until it has shut again what cgpu_call_post() left open.
	 */
	bool schedules;
	uint32_t undo_hClient;
	uint32_t undo_hObject;
	uint32_t orphan;        /* FREE: memory left for later, which is to be undone */
	/*
	 * ALLOC of a channel that computes: not 0. By this subdevice a door makes the channel
	 * interruptible before cgpu_call_post(), with cgpu_call_preemption(), and notes the
	 * driver's answer.
	 */
	uint32_t hSubdevice;
	uint32_t preemption;
};

/* GR_SET_CTXSW_PREEMPTION_MODE for the channel that the driver made. */
void cgpu_call_preemption(const struct cgpu_call *call, struct nv_gr_preemption_mode *params);

int cgpu_call_pre(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		  struct cgpu_call *call);

/*
 * Call before cgpu_call_pre(), with the tenant locked. Return: the call may be about an object of
 * the group's leader, for `leader`.
 */
bool cgpu_call_wants_leader(const struct cgpu_tenant *tenant, const struct cgpu_call *call);

/*
 * Most calls of a computing program are controls that the core forwards unseen. Return: the
 * tenant's tables may need room for this call.
 */
bool cgpu_call_wants_room(const struct cgpu_call *call);
/* Return: it asks for memory of the host, which cgpu_ledger_limit_host() limits. */
bool cgpu_call_takes_host(const struct cgpu_call *call);
/* Return: false: nothing follows from what the driver does; do not call post. */
bool cgpu_call_wants_post(const struct cgpu_call *call);

/* Whether a process other than the caller may ask the driver for operation `op`, with copies. */
bool cgpu_op_performable(uint32_t op);

/* true if an administrator has admitted calls that no list names (node `unknown`) */
bool cgpu_admits_unknown(const struct cgpu_tenant *tenant);
/*
 * For an escape or UVM command that cgpu_command_known() does not know. Return: true: it goes to
 * the driver; false: -EINVAL, counted.
 */
bool cgpu_call_unknown(struct cgpu_tenant *tenant, uint32_t device, uint32_t cmd,
		       struct cgpu_unlisted *unlisted);

/* Counts a refusal that is no call, such as an open, on the first card. */
void cgpu_count_refused(struct cgpu_tenant *tenant);

/*
 * Opens the dma-buf that the call made, before cgpu_call_post(); its place was kept. Return: file
 * number, for `fd_file`.
 */
uint32_t cgpu_call_open_dmabuf(struct cgpu_tenant *tenant, struct cgpu_call *call);

/* `result`: the return value of the driver's ioctl, 0 or -errno. */
int cgpu_call_post(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call, int32_t result);

/*
 * Call in place of cgpu_call_post() if the driver was asked and its answer did not arrive. A call
 * that takes memory counts as done, one that returns memory does not. `args` and `params` are as
 * they were asked.
 */
int cgpu_call_unanswered(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			 struct cgpu_call *call);

/*
 * For a door that lets the caller go on to the driver. The handle of the object to be made must
 * name none: otherwise the named object would count as gone, and no longer be charged. Return:
 * serial of the object known by this handle, 0: none.
 */
uint32_t cgpu_call_occupied(const struct cgpu_tenant *tenant, const struct cgpu_call *call);
/*
 * Forgets that object, because the driver does not know it: it refused the call that was to make
 * it, or freed it with another. Return: false: another object is known by now, or a call needs it.
 */
bool cgpu_call_vacate(struct cgpu_tenant *tenant, const struct cgpu_call *call,
		      uint32_t serial);

/* Writes NVOS00_PARAMETERS (16 bytes) that free what UNDO names. */
void cgpu_call_undo_args(const struct cgpu_call *call, uint8_t *args);
/*
 * Call after the driver freed it: returns what the call had charged and pinned. Return: true:
 * another object must be freed, as after CGPU_UNDO.
 */
bool cgpu_call_undone(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
