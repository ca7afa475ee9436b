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
	/*
	 * the file of the call, twice for one that allocates a client, and one that it names or
	 * makes
	 */
	FLIGHT_FILES = 4,
	/* the least buffer for a class's parameters: no class has more */
	CLASS_BYTES = 1 << 14,
	/* RMAPI_PARAM_COPY_MAX_PARAMS_SIZE of the driver's params_copy.h */
	PARAMS_BYTES_MAX = 1 << 20
};

struct answer {
	bool forward;            /* the tenant's own call goes on */
	int error;               /* otherwise: 0, or -errno */
};

/*
 * How far a call has come: an agent that resumes for one that has ended begins here. The core's
 * knowledge changes together with it (change_begin()).
 */
enum stage_at {
	STAGE_RECEIVED,          /* nothing depends on it: it is judged anew */
	STAGE_DECIDED,           /* the core expects what the driver does */
	STAGE_ASKED,             /* the driver may have been asked: args show it */
	STAGE_PERFORMED,         /* the driver was asked, and `result` is its answer */
	STAGE_SETTLED,           /* the core knows it, and has said `verdict` */
	STAGE_ANSWERED           /* `answer` is to be sent */
};

struct stage {
	uint32_t at;
	int result;              /* what the driver's ioctl returned */
	int verdict;             /* what the core made of it */
	bool forward;            /* the tenant performs it */
	bool undone;             /* undone, as the verdict demands */
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
	bool again;              /* an agent that has ended may have asked the driver */
	struct cgpu_call call;
	int named;               /* duplicate of the file that req.fd names, or -1 */
	int dmabuf;              /* our descriptor of an exported dma-buf, or -1; */
	int handed;              /* and the tenant's, or -1 */
	uint32_t file[FLIGHT_FILES]; /* files that the call keeps, perhaps as their last user */
	uint32_t file_count;
	uint8_t rights[RIGHTS_BYTES];
	uint8_t args[CGPU_ARGS_MAX];

	/* the original values where the driver gets others: see perform() */
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

#endif
