/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One notified call while a worker has it in hand: listener.c receives and answers it,
 * ioctl.c and mmap.c decide, perform.c performs.
 */
#ifndef CGPU_AGENT_FLIGHT_H
#define CGPU_AGENT_FLIGHT_H

#include <linux/seccomp.h>

#include "door.h"

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

/* one per worker */
struct flight {
	struct container *c;
	struct process *process;
	int tid;
	bool thread_table;
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
	uint32_t file[FLIGHT_FILES]; /* files that it keeps, of which it may be the last to know */
	uint32_t file_count;
	uint8_t rights[RIGHTS_BYTES];
	uint8_t args[CGPU_ARGS_MAX];

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

struct answer {
	bool forward;            /* the tenant's own call goes on */
	int error;               /* else: 0, or -errno */
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
/* Return: what the driver's ioctl returned, or -EFAULT. */
int perform(struct flight *f);
/* What the driver and the core left, to the tenant. Return: 0, -EFAULT. */
int deliver(struct flight *f);
void undo(struct flight *f);

#endif
