/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The RM objects of one container: file → client → device → memory, channels. */
#ifndef CGPU_CORE_MEMORY_OBJECTS_H
#define CGPU_CORE_MEMORY_OBJECTS_H

#include "core/types.h"
#include "core/memory/ledger.h"
#include "core/memory/table.h"

enum cgpu_object_flag {
	CGPU_OBJECT_SCHEDULED = 1, /* GPFIFO_SCHEDULE was asked for, of it or of its group */
	CGPU_OBJECT_SHUT = 2,      /* a channel that a gate holds off the card */
	CGPU_OBJECT_DUPLICATE = 4, /* a second handle of a group that has its first */
	CGPU_OBJECT_ENABLED = 8,   /* GPFIFO_SCHEDULE has enabled it: a channel, or a whole group */
	CGPU_OBJECT_GOING = 16,    /* freed with what it depends on, in a moment */
	CGPU_OBJECT_REFUSED = 32,  /* marked as shut, which the driver refused */
	/* of the mappings there is not known which one goes, or how much of it: none does */
	CGPU_OBJECT_PARTED = 64,
	CGPU_OBJECT_LEFT = 128,    /* freed for its owner, kept for channels that it drives */
	CGPU_OBJECT_ORPHAN = 256,  /* likewise, and nothing is driven by it any more */
	CGPU_OBJECT_SHARED = 512,  /* memory of a group's leader that it gives to everybody */
	CGPU_OBJECT_BORROWED = 1024 /* a member's handle of a channel group of its leader's */
};

enum cgpu_object_class {
	/* the root of an open file's clients: {hClient 0, hObject file number} */
	CGPU_CLASS_FILE = 0x7fffffff
};

enum cgpu_object_limit {
	CGPU_DRIVEN_MAX = 3 /* a channel's USERD, and where errors are told, of two kinds */
};

/* Links are indices of entries, 0: none. */
struct cgpu_object {
	uint32_t chain;        /* next in hash bucket; chains free entries while unused */
	uint32_t hClient;
	uint32_t hObject;
	uint32_t hClass;
	uint32_t serial;       /* tells this object from an earlier one of its handle */
	uint32_t dying;        /* RM_FREEs in flight that take it along, or its file closes */
	uint32_t newest;       /* when its own began: serial of the newest object */
	uint32_t users;        /* calls in the driver that need it or something below */
	uint64_t used;         /* when the last of them was over, by struct cgpu_objects' uses */
	uint32_t parent;       /* 0: an open file */
	uint32_t first_child;
	uint32_t next_sibling;
	uint32_t prev_sibling;
	uint32_t next_runnable; /* list of all channel groups and channels */
	uint32_t prev_runnable;
	uint32_t next_handle;  /* ring of the handles of one group or space, 0: the only one */
	uint32_t prev_handle;
	uint32_t charge;       /* 0: takes no video memory, and is not counted */
	uint32_t card;         /* CGPU_NO_CARD above a device */
	uint32_t file;         /* the open file that it lives with */
	uint32_t pid;          /* process that created the client, host's number */
	uint32_t next_client;  /* list of the clients of one process */
	uint32_t prev_client;
	uint32_t next_process; /* of the first in that list: the first of another's */
	uint32_t engineType;
	uint32_t hDepend[2];   /* freeing one of these handles frees this object */
	uint32_t flags;        /* enum cgpu_object_flag */
	/*
	 * The channel group that this is, is a handle of, or runs in: however it was
	 * named or made, one number. A channel outside groups has one of its own.
	 */
	uint32_t identity;
	uint32_t drives;       /* places of channels' in this memory: of USERD, of errors */
	uint32_t next_orphan;  /* list of the CGPU_OBJECT_ORPHANs */
	uint32_t prev_orphan;
	uint32_t driven[CGPU_DRIVEN_MAX]; /* of a channel: memory that the card writes to */
	uint32_t driven_serial[CGPU_DRIVEN_MAX]; /* of it */
	uint32_t mappings;     /* into this address space, or of this memory */
	uint32_t first_mapping; /* charges of what they take, 0: none */
	uint32_t hSubdevice;   /* of a device: one of its own client, 0: none yet */
	uint64_t timeslice_us; /* what the tenant asked for, 0: nothing yet */
	uint32_t lender;       /* BORROWED: the leader's object that it is a duplicate of, */
	uint32_t lender_serial; /* and its serial there */
};

enum cgpu_objects_limit {
	CGPU_PROCESS_LISTS = 1024, /* a power of two */
	CGPU_FORGET_STEP = 256,
	CGPU_SPACE_HANDLES = 64 /* objects for one address space, each in another client */
};

struct cgpu_objects {
	struct cgpu_table table;
	uint32_t *buckets;
	uint32_t bucket_mask;
	uint64_t multiplier;       /* odd, and nobody's guess: a tenant chooses its handles */
	uint32_t serial;
	uint32_t first_runnable;
	uint32_t runnables;        /* length of that list, which many walk */
	uint32_t runnable_changes; /* counts; a door compares it before and after a call */
	uint32_t mappings;         /* sum over the objects */
	uint32_t devices[CGPU_MAX_CARDS]; /* of that card */
	uint32_t first_orphan;
	uint64_t uses;             /* calls that are over; counts */
	uint32_t processes[CGPU_PROCESS_LISTS]; /* first clients, by pid */
};

/* `seed`: random, so that no tenant can put all its handles into one bucket. */
void cgpu_objects_init(struct cgpu_objects *objects, uint64_t seed);

/* bytes of storage for `capacity` objects (a power of two) */
size_t cgpu_objects_bytes(uint32_t capacity);
/* As cgpu_table_grow(); storage of cgpu_objects_bytes(capacity) bytes. */
void *cgpu_objects_grow(struct cgpu_objects *objects, void *storage, uint32_t capacity);

struct cgpu_object *cgpu_object_at(const struct cgpu_objects *objects, uint32_t index);
/* Return: index, 0: no such object. A client is {hClient, hClient}. */
uint32_t cgpu_object_find(const struct cgpu_objects *objects, uint32_t hClient,
			  uint32_t hObject);

/*
 * Adds an object, inheriting card from its parent (index, pinned; 0: none). An
 * object that already has this handle is gone in the driver, since it gave
 * the handle out again: it is removed, or forgotten where no RM_FREE is in flight.
 * Return: index, 0: the table is full, or the old object is pinned.
 */
uint32_t cgpu_object_add(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			 uint32_t parent, uint32_t hClient, uint32_t hObject,
			 uint32_t hClass);
/* The client is that process's, until it is removed; a client has one. */
void cgpu_object_own(struct cgpu_objects *objects, uint32_t index, uint32_t pid);
/* Return: a client of that process, 0: there is none. */
uint32_t cgpu_object_client_of(const struct cgpu_objects *objects, uint32_t pid);
/* It is on this card, whatever it is below. */
void cgpu_object_place(struct cgpu_objects *objects, uint32_t index, uint32_t card);
/* true for groups, channels and context shares */
bool cgpu_object_class_runs(uint32_t hClass);
/* Lists what runs. `source`: the object that it is a duplicate of, 0: none. */
void cgpu_object_set_runnable(struct cgpu_objects *objects, uint32_t index,
			      uint32_t source);
/*
 * This new object is another handle of a channel group of the leader's, `source`, which has
 * `lender` for an index there. Timeslices are the leader's to set, as long as it has the group.
 */
void cgpu_object_borrow(struct cgpu_objects *objects, uint32_t index,
			const struct cgpu_object *source, uint32_t lender);
/* `lender`: the leader's objects, NULL: it has gone. What the leader no longer has is set here. */
void cgpu_object_inherit(struct cgpu_objects *objects, const struct cgpu_objects *lender);
/* This address space's object is a duplicate of that one. */
void cgpu_object_join_space(struct cgpu_objects *objects, uint32_t index, uint32_t source);
/*
 * The object for the same address space in that client. Return: 0: there is none.
 * `*count`: of how many objects, at most CGPU_SPACE_HANDLES.
 */
uint32_t cgpu_object_space_in(const struct cgpu_objects *objects, uint32_t space,
			      uint32_t hClient, uint32_t *count);
/* Is it that object, or below it? */
bool cgpu_object_is_below(const struct cgpu_objects *objects, uint32_t index, uint32_t above);
/*
 * GPFIFO_SCHEDULE of this group or channel is asked for. All of its group counts as scheduled
 * from here on: not every driver need do no more than it is asked for.
 */
void cgpu_object_set_scheduled(struct cgpu_objects *objects, uint32_t index);
/*
 * The driver was asked. It enables a channel that was not enabled, whatever gates did before. A
 * group's own first GPFIFO_SCHEDULE enables all of the group. Later ones open nothing that is shut
 * (H200, 580.159.04). So channels for which it was the first are not shut any more. `enabled`: the
 * driver enabled it; false: what the driver did is not known.
 */
void cgpu_object_set_enabled(struct cgpu_objects *objects, uint32_t index, bool enabled);
/* Is the channel, or each of the group's and there is one? */
bool cgpu_object_is_enabled(const struct cgpu_objects *objects, uint32_t index);
/* The channel has place number `place` in `memory`, which is not to be freed before it. */
void cgpu_object_drive(struct cgpu_objects *objects, uint32_t index, uint32_t place,
		       uint32_t memory);
/* Forgets a mapping, or remembers one. */
void cgpu_object_map(struct cgpu_objects *objects, uint32_t index, bool map);
/*
 * Records the charge of a mapping at `base`, in this address space or of this memory. Takes over
 * the reference of `charge`, and returns it when the mapping goes, or the object.
 */
void cgpu_object_hold_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint32_t charge, uint64_t base);
/* It is known by another address. Return: false: which one, or which then, is not clear. */
bool cgpu_object_move_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint64_t base, uint64_t to);
void cgpu_object_drop_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint64_t base);
/* true for a group, and for a channel that RM makes a group for */
bool cgpu_object_is_group(const struct cgpu_objects *objects,
			  const struct cgpu_object *object);

/*
 * RM_FREE of it begins: it is dying, and all that depends on it. Return: false: a call needs
 * one of those, and nothing is changed.
 */
bool cgpu_object_free_begins(struct cgpu_objects *objects, uint32_t index);
/* The driver refused it. */
void cgpu_object_free_fails(struct cgpu_objects *objects, uint32_t index);
/*
 * RM_FREE is done: removes the object, its subtree and all that depends on any of them, and drops
 * their charges. An object newer than the RM_FREE depends on another object that has the handle by
 * now, and stays. Bounded by the number of objects; no recursion.
 */
void cgpu_object_remove(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			uint32_t index);

/*
 * RM_FREE of memory that drives a channel, which the driver would free at once. No call can name it
 * any more, and it stays until the last channel that it drives is gone.
 */
void cgpu_object_leave(struct cgpu_objects *objects, uint32_t index);
/* Return: memory of that client's that has waited for this, for the driver to free; 0: none. */
uint32_t cgpu_object_take_orphan(struct cgpu_objects *objects, uint32_t hClient);

/*
 * Removes an object that is gone in the driver since an unknown time, and its subtree. An object
 * that depends on the handle may depend on another that has it by now, and stays.
 */
void cgpu_object_forget(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			uint32_t index);
/* Of the same CGPU_FORGET_STEP objects at most. Return: true: all are gone. */
bool cgpu_object_forget_step(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			     uint32_t index);

/* true while RM_FREE of it or of something above it is in flight */
bool cgpu_object_is_dying(const struct cgpu_objects *objects, uint32_t index);

/*
 * A call in the driver needs this object: until cgpu_object_unpin() neither it
 * nor anything above it is removed, so that its index and handle keep their
 * meaning.
 */
void cgpu_object_pin(struct cgpu_objects *objects, uint32_t index);
void cgpu_object_unpin(struct cgpu_objects *objects, uint32_t index);
/*
 * The driver has given this handle out, to a call that began at `uses`: did another call
 * name the object that had it before, and perhaps reach the new one?
 */
bool cgpu_object_mistaken(const struct cgpu_objects *objects, uint32_t hClient,
			  uint32_t hObject, uint64_t uses);

#endif
