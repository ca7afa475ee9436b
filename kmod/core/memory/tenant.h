/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* All that the core keeps of one container, and of the host's cards. */
#ifndef CGPU_CORE_MEMORY_TENANT_H
#define CGPU_CORE_MEMORY_TENANT_H

#include "core/types.h"
#include "core/memory/ledger.h"
#include "core/memory/objects.h"
#include "core/memory/ranges.h"
#include "core/rm/decode.h"

/* The driver's facts of one card. */
struct cgpu_gpu {
	bool present;
	uint8_t mig;              /* enum cgpu_mig; untold by a core from before it */
	uint32_t gpu_id;          /* NVIDIA's, from CARD_INFO */
	uint32_t device_instance; /* NV0080_ALLOC_PARAMETERS.deviceId; not the minor */
	uint8_t uuid[16];
	uint64_t total_bytes;     /* 0: the driver did not tell */
	uint64_t promisable_bytes; /* by all limits, as the operator has it; 0: its total */
	uint64_t reserved_bytes;  /* of total, held back by the driver */
	uint64_t bar1_bytes;      /* the window to it for the processor; 0: not told */
};

/* What a container's part of the card is a part of: all parts together are no more than it has. */
uint64_t cgpu_gpu_promises(const struct cgpu_gpu *gpu);

/* The cards of the host, indexed by minor. Read-only for the core. */
struct cgpu_topology {
	struct cgpu_gpu gpu[CGPU_MAX_CARDS];
};

/* An open file of the container. */
struct cgpu_file {
	uint32_t chain;     /* chains free entries while unused */
	uint32_t device;    /* enum cgpu_device */
	uint32_t minor;
	uint32_t pid;       /* process that opened it, host's number */
	uint32_t root;      /* CTL: object above its clients */
	uint32_t gpu_mask;  /* UVM: cards registered in its va_space */
	uint32_t users;     /* calls in the driver that name it as their fd */
	bool closing;       /* released by the driver; goes with the last user */
	bool over;          /* and that is gone; listed */
	uint32_t next_over;
	uint32_t registrations; /* UVM: calls that registered a card, ever */
	uint32_t registering;   /* of these, in the driver now */
	uint32_t registered;    /* control file whose clients it may use, open as long as it */
	uint32_t range_groups;  /* UVM: that it has */
	uint32_t first_event;   /* list of the OS events that it asked for, 0: none */
	uint64_t managed_bytes;
	/* UVM: the reserved range that an mmap in the driver takes for there, 0 bytes: none */
	uint64_t mapping_base;
	uint64_t mapping_bytes;
};

/*
 * The host memory that an open file counts as, at most. One of RM's has its record and three stacks
 * of 12 KiB (535; newer drivers have fewer). One of UVM's has the initial state of an address
 * space, which is an estimate.
 */
enum cgpu_file_limit {
	CGPU_RM_FILE_BYTES = 40 << 10,
	CGPU_UVM_FILE_BYTES = 64 << 10
};

enum cgpu_unlisted_limit {
	CGPU_TOLD_MAX = 128 /* numbers that no list names, of one container */
};

/* A container's place in a group: whose objects it may use, and which ones may use its own. */
enum cgpu_role {
	CGPU_ROLE_ALONE,
	CGPU_ROLE_LEADER,   /* it runs the MPS server */
	CGPU_ROLE_MEMBER    /* its programs are the server's clients */
};

enum cgpu_parking_count {
	CGPU_PARKED_PROCESSES = 64
};

/* The state of a container that is not running: parking.h. */
struct cgpu_parking {
	uint32_t pid[CGPU_PARKED_PROCESSES]; /* host's numbers */
	uint32_t count;
	uint32_t priority;  /* of the return that it wants */
	uint32_t short_card; /* where room was wanting last; CGPU_NO_CARD: nowhere */
	uint64_t short_bytes;
	uint64_t asked_ns;  /* since when it wants that, 0: it does not */
	uint64_t since_ns;  /* it is in its state; 0: since it began */
	bool held;          /* it comes back when that is asked for, not when it calls CUDA */
	uint64_t moved_ns;  /* what its moves took, all of them, */
	uint64_t return_ns; /* and the last one back; 0: there was none */
	/* running, a call of it waits until a card has so much for it; 0 bytes: none does */
	uint32_t want_card;
	uint64_t want_bytes;
	uint32_t no_room;   /* counts such calls that were told that none can be parked */
};

struct cgpu_tenant {
	uint32_t role;         /* enum cgpu_role */
	struct cgpu_ledger ledger;
	struct cgpu_parking parking;
	struct cgpu_objects objects;
	struct cgpu_ranges ranges;
	struct cgpu_table files;
	uint32_t first_over;   /* list of the files that are closing and that no call needs */
	uint32_t open[CGPU_MAX_CARDS]; /* files of that card's device */
	uint32_t os_events;    /* of all files */
	uint32_t range_groups; /* likewise */
	uint32_t capacity_max; /* entries a table may grow to, a power of two */
	uint32_t files_max;    /* of the table of files, at most capacity_max */
	uint32_t told_count;   /* what no list names, and was told of once */
	uint64_t told[CGPU_TOLD_MAX];
};

enum cgpu_tenant_table {
	CGPU_TABLE_CHARGES,
	CGPU_TABLE_OBJECTS,
	CGPU_TABLE_RANGES,
	CGPU_TABLE_FILES,
	CGPU_TABLE_COUNT
};

enum cgpu_tenant_limit {
	CGPU_TABLE_FIRST_CAPACITY = 1024,
	/* a table with less room than this wants to grow before the next call */
	CGPU_TABLE_SPARE = 160
};

/* `seed`: random, the container's secret. */
void cgpu_tenant_init(struct cgpu_tenant *tenant, uint32_t capacity_max, uint64_t seed);

/*
 * Storage that `table` wants before the next call. Return: bytes, and the
 * capacity to pass to cgpu_tenant_grow(); 0: none, or it is at its maximum.
 */
size_t cgpu_tenant_wants(const struct cgpu_tenant *tenant, uint32_t table,
			 uint32_t *capacity);
/* Return: the table's old storage for the caller to free, or NULL. */
void *cgpu_tenant_grow(struct cgpu_tenant *tenant, uint32_t table, void *storage,
		       uint32_t capacity);
/* The storage of a table, to free at the tenant's end. */
void *cgpu_tenant_storage(struct cgpu_tenant *tenant, uint32_t table);

/*
 * Charges the host memory that the driver takes for the file. Return: file number, 0: no room, or
 * over that limit.
 */
uint32_t cgpu_tenant_open(struct cgpu_tenant *tenant, uint32_t device, uint32_t minor,
			  uint32_t pid);
/*
 * After the driver's release: everything that lived with the file is gone. A
 * call through another file may be in the driver with one of its objects; the
 * file's number and charges then stay until that call is over.
 */
void cgpu_tenant_close(struct cgpu_tenant *tenant, uint32_t file);
/* A call that needed the file, or an object of the file, is over. */
void cgpu_tenant_unused(struct cgpu_tenant *tenant, uint32_t file);
/*
 * A step of letting go of closed files that no call needs: few things of one of them, so that
 * waiters for the lock do not wait for all. Return: true: call it again.
 */
bool cgpu_tenant_close_step(struct cgpu_tenant *tenant);
/* Brackets the judgement of a process's call: does it take its reserved room? See parking.h. */
void cgpu_tenant_enter(struct cgpu_tenant *tenant, uint32_t pid);
void cgpu_tenant_leave(struct cgpu_tenant *tenant);
struct cgpu_file *cgpu_tenant_file(const struct cgpu_tenant *tenant, uint32_t file);

/*
 * An OS event that the file asks for, by the key that the driver knows it by. Return: 0, -errno
 * as cgpu_range_add().
 */
int cgpu_tenant_add_event(struct cgpu_tenant *tenant, uint32_t file, uint64_t key);
/*
 * The oldest by that key, of whatever file, that was added no earlier than `since` and no later
 * than `until`, by the ranges' serials: the driver takes the oldest, too.
 */
void cgpu_tenant_drop_event(struct cgpu_tenant *tenant, uint64_t key, uint64_t since,
			    uint64_t until);

/*
 * mmap of the UVM device at `address`. `before` the driver's mmap: charges
 * managed memory on every card of the va_space. Return: 0, -ENOMEM: over a
 * limit (the ledger's shortage says which), or managed memory is denied.
 */
int cgpu_tenant_mmap(struct cgpu_tenant *tenant, uint32_t file, uint64_t address,
		     uint64_t length_bytes);
/*
 * Called instead of it where a semaphore pool or the like lies: nothing of that is freed until
 * cgpu_tenant_mapped(), because an mmap of a range freed meanwhile makes managed memory. Only one
 * mmap of a file is in the driver at a time. Return: false: nothing of the kind is there.
 */
bool cgpu_tenant_map_reserved(struct cgpu_tenant *tenant, uint32_t file, uint64_t address,
			      uint64_t length_bytes);
/* Called after the driver's mmap. `done`: the mapping exists. */
void cgpu_tenant_mapped(struct cgpu_tenant *tenant, uint32_t file, uint64_t address,
			uint64_t length_bytes, bool done);
/* Does the mmap in the driver use part of these addresses? */
bool cgpu_tenant_is_mapping(const struct cgpu_tenant *tenant, uint32_t file, uint64_t base,
			    uint64_t length_bytes);
/*
 * The mapping, or a part of it, is gone (also: the driver refused it). Return: true: call it again,
 * because not all was done; the lock may be released in between.
 */
bool cgpu_tenant_munmap(struct cgpu_tenant *tenant, uint32_t file, uint64_t address,
			uint64_t length_bytes);

/* Return: minor of the card, CGPU_NO_CARD. */
uint32_t cgpu_topology_by_instance(const struct cgpu_topology *topology,
				   uint32_t device_instance);
uint32_t cgpu_topology_by_uuid(const struct cgpu_topology *topology,
			       const uint8_t *uuid);

struct cgpu_handle {
	uint32_t hClient;
	uint32_t hObject;
};

/*
 * The container's channel groups that compute on a card: what timeslices act on.
 * Copy engines are left alone. Return: how many there are; at most `max` are
 * written to `out`.
 */
uint32_t cgpu_tenant_groups(const struct cgpu_tenant *tenant, uint32_t card,
			    struct cgpu_handle *out, uint32_t max);
/*
 * The container's scheduled channels there that are not yet shut, or open, as asked; they count as
 * such from now on. The card counts how often a channel was disabled: shut twice and opened once,
 * it stands still for good (H200, 580.159.04). Return: how many were written to `out`, at most
 * `max`; ask again when it was full.
 */
uint32_t cgpu_tenant_gate(struct cgpu_tenant *tenant, uint32_t card, bool shut,
			  struct cgpu_handle *out, uint32_t max);
/* The same for one object alone. Return: true: it is now marked as it was not before. */
bool cgpu_tenant_mark(struct cgpu_object *object, uint32_t card, bool shut);
/*
 * The driver refused to shut this channel, which may be too new. It counts as open, and is tried
 * again after cgpu_tenant_gate_anew(), which begins to shut. It is not tried before, because many
 * refused ones would hide the others.
 */
void cgpu_tenant_not_shut(struct cgpu_tenant *tenant, const struct cgpu_handle *channel);
void cgpu_tenant_gate_anew(struct cgpu_tenant *tenant, uint32_t card);
/* NV2080_ENGINE_TYPE: true for graphics and compute, and for none: before Ampere it may compute */
bool cgpu_engine_computes(uint32_t engineType);
/* true for a channel that computes, and may run */
bool cgpu_tenant_is_gated(const struct cgpu_object *object, uint32_t card);
/* true if a process of the container holds the card's device open, or has a group on it */
bool cgpu_tenant_has_open(const struct cgpu_tenant *tenant, uint32_t card);

/* true while nothing is charged and nothing is open */
bool cgpu_tenant_idle(const struct cgpu_tenant *tenant);

/* The memory that a process has of a card, for `meminfo` and `procs`. */
struct cgpu_process {
	uint32_t pid;
	uint64_t bytes;
};

enum cgpu_held_limit {
	CGPU_HELD_STEP = 1024
};

/*
 * By process, in steps, between which the tenant may change, so that waiters for it do not wait for
 * all. A process is listed as often as it has something. `*from`: 0 at first, and when all was
 * seen. Return: how many of CGPU_HELD_STEP places in `out` were filled.
 */
uint32_t cgpu_tenant_held(const struct cgpu_tenant *tenant, uint32_t card, uint32_t *from,
			  struct cgpu_process *out);
/* Merges entries of the same process, in the order of pids. Return: how many are left. */
uint32_t cgpu_processes_sum(struct cgpu_process *processes, uint32_t count);

/* A process of that number, the host's, made a client of the tenant's. */
bool cgpu_tenant_has_process(const struct cgpu_tenant *tenant, uint32_t pid);

#endif
