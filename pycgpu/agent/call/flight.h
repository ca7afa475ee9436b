/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One notified call while a worker has it in hand: listener.c receives and answers it,
 * ioctl.c and mmap.c decide, perform.c performs.
 */
#ifndef CGPU_AGENT_FLIGHT_H
#define CGPU_AGENT_FLIGHT_H

#include <linux/seccomp.h>

#include "state/door.h"

enum {
	RIGHTS_BYTES = 4,
	LISTS_BYTES = 1 << 16,
	/* its own, twice for one that allocates a client, and one that it names or makes */
	FLIGHT_FILES = 4,
	/* at least so much is given with a class: more than any class has */
	CLASS_BYTES = 1 << 14,
	/* RMAPI_PARAM_COPY_MAX_PARAMS_SIZE of the driver's params_copy.h */
	PARAMS_BYTES_MAX = 1 << 20
};

struct answer {
	bool forward;            /* the tenant's own call goes on */
	int error;               /* else: 0, or -errno */
};

/*
 * How far a call has come: an agent that goes on for one that has ended begins here. What the
 * core knows changes together with it (change_begin()).
 */
enum stage_at {
	STAGE_RECEIVED,          /* nothing depends on it: it is judged anew */
	STAGE_DECIDED,           /* the core expects what the driver does */
	STAGE_ASKED,             /* the driver may have been asked: args tell */
	STAGE_PERFORMED,         /* it was, and `result` tells how */
	STAGE_SETTLED,           /* the core knows it, and has said `verdict` */
	STAGE_ANSWERED           /* `answer` is to be sent */
};

struct stage {
	uint32_t at;
	int result;              /* what the driver's ioctl returned */
	int verdict;             /* what the core made of it */
	bool forward;            /* the tenant performs it */
	bool undone;             /* as the verdict was */
};

/* one per worker, in the state */
struct flight {
	struct seccomp_notif notif; /* id 0: no call is in hand */
	struct stage stage;
	struct answer answer;
	struct container *c;
	struct process *process;
	int tid;
	bool thread_table;
	struct listener *listener_of;
	int listener;
	uint64_t id;             /* the notification's */
	int fd;                  /* duplicate of the tenant's file */
	uint32_t device;
	uint32_t minor;
	uint64_t arg;
	uint32_t cmd;
	bool wrapped;            /* came by IOCTL_XFER_CMD: must not go on */
	struct cgpu_call call;
	int named;               /* duplicate of the file that req.fd names, or -1 */
	int dmabuf;              /* ours of one that was exported, or -1; */
	int handed;              /* and the tenant's, or -1 */
	uint32_t file[FLIGHT_FILES]; /* files that it keeps, of which it may be the last to know */
	uint32_t file_count;
	uint8_t rights[RIGHTS_BYTES];
	uint8_t args[CGPU_ARGS_MAX];

	/* what stood where the driver is given something else: see perform() */
	uint64_t rights_at;
	uint64_t capability;
	/* the parameters, as they came and as the driver leaves them */
	uint64_t params_at;      /* in the tenant, 0: none */
	uint32_t params_bytes;
	uint32_t params_capacity;
	uint8_t *params;
	uint8_t *before;

	/* what pointers in the parameters point at */
	struct {
		uint64_t at;     /* in the tenant */
		uint32_t offset; /* in lists */
		uint32_t bytes;
		uint32_t pointer; /* in params */
	} list[CGPU_POINTERS_MAX];
	uint32_t list_count;
	uint8_t lists[LISTS_BYTES];
	uint8_t lists_before[LISTS_BYTES];
};

static const struct answer CONTINUE = { true, 0 };

static inline struct answer fail(int error)
{
	return (struct answer){ false, error };
}

/* listener.c: the pid is still the one that waits for this answer, so what we read was its. */
bool is_valid(const struct flight *f);
/* The caller uses the driver: it stays known. Return: 0, -EINTR, -EAGAIN: too many do. */
int keep_process(struct flight *f);
/* file_of(); the file is not forgotten while the call is in hand. */
uint32_t keep_file(struct flight *f, int fd, int local, uint32_t device, uint32_t minor,
		   struct cgpu_call *exported_by);

/* ioctl.c: what an agent that has ended had begun, from STAGE_DECIDED on. */
struct answer on_ioctl_again(struct flight *f);
/* The core is as it was before that; the call is judged anew. */
void take_back(struct flight *f);

/* ioctl.c, mmap.c: the data are the notification's. */
struct answer on_ioctl(struct flight *f, const struct seccomp_data *data);
struct answer on_mmap(struct flight *f, const struct seccomp_data *data);
/* ioctl.c: and ends the process, where that is what it shall do. */
void tell_shortage(struct flight *f, const struct cgpu_shortage *shortage);

/* perform.c */

bool copy_in(struct flight *f, uint64_t from, void *to, size_t size);
/* true: the agent performs it; else it goes on in the tenant, or is refused. */
bool performs(const struct flight *f);
/* true: it can neither be performed nor go on without a way around what was decided. */
bool refuses(const struct flight *f);
/*
 * Copies what the argument points to. Nothing is judged, and nothing goes on, that
 * could not be read. Return: 0, -EFAULT, -EINVAL, -ENOMEM.
 */
int perform_read(struct flight *f);
/* Asks the driver. Return: what its ioctl returned, or -EFAULT. */
int perform(struct flight *f);
/* In an agent that goes on: did the driver answer? Then *f is as after perform(). */
bool was_performed(struct flight *f);
/* A dma-buf that the driver made in our table and that the tenant may not have yet, or -1. */
int exported_here(const struct flight *f);
/* What the driver and the core left, to the tenant. Return: 0, -EFAULT. */
int deliver(struct flight *f);
void undo(struct flight *f);

#endif
