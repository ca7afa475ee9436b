/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The calls that a container may make to the driver, and which part judges each. Unlisted calls are
 * refused: see cgpu_refuse_unknown().
 */
#ifndef CGPU_CORE_RM_ALLOWED_H
#define CGPU_CORE_RM_ALLOWED_H

#include "core/types.h"

enum cgpu_judge {
	CGPU_JUDGE_NONE,    /* not listed */
	CGPU_JUDGE_DRIVER,  /* acts on the caller's own objects alone: the driver decides */
	CGPU_JUDGE_CORE,    /* the core reads what it says */
	CGPU_JUDGE_GROUP,   /* a class for members of a group alone; to others it is not listed */
	CGPU_JUDGE_NEVER    /* acts on every tenant of the card, or on whom it names */
};

enum cgpu_rule_size {
	CGPU_BY_BRANCH = 0xffff,    /* struct cgpu_abi has the size */
	CGPU_AS_GIVEN = 0xfffe      /* as many bytes as the caller says, up to CGPU_PARAMS_MAX */
};

enum cgpu_rule_limit {
	CGPU_POINTERS_MAX = 3       /* of one control */
};

/* A pointer in the parameters. Each place is its offset plus one, 0: there is none. */
struct cgpu_pointer {
	uint8_t at;
	uint8_t count;              /* a u32: how many elements it points to; 0: it is not used */
	uint8_t element_bytes;
};

/*
 * A control or a class: which part judges it, and what its parameters name beyond the caller's own
 * objects. Each place is its offset plus one, 0: there is none.
 */
struct cgpu_rule {
	uint32_t number;
	uint16_t params_bytes;      /* of the parameters that the core reads, 0: none */
	bool head;                  /* params_bytes are the beginning of them */
	uint8_t judge;              /* enum cgpu_judge */
	uint8_t hClient[2];         /* further clients */
	uint8_t fd;                 /* a descriptor of the caller's */
	uint8_t capability;         /* a u64 with a descriptor of nvidia-caps, or -1 */
	bool opaque;                /* others, too: it is its process' alone to perform */
	struct cgpu_pointer pointer[CGPU_POINTERS_MAX];
};

enum cgpu_uvm_numbers {
	/* all commands of UVM are below this, except UVM_INITIALIZE and UVM_DEINITIALIZE */
	CGPU_UVM_NUMBERS = 128
};

/* The meaning of an escape or a command of UVM to the core; one without a rule is OTHER, too. */
enum cgpu_op {
	CGPU_OP_OTHER,           /* nothing here that the core accounts */
	CGPU_OP_ALLOC,           /* RM_ALLOC, RM_ALLOC_OBJECT */
	CGPU_OP_FREE,            /* RM_FREE, VID_HEAP_CONTROL FREE */
	CGPU_OP_CONTROL,
	CGPU_OP_HEAP_ALLOC,      /* VID_HEAP_CONTROL ALLOC_*: memory */
	CGPU_OP_HEAP_INFO,       /* VID_HEAP_CONTROL INFO */
	CGPU_OP_HEAP_OTHER,
	CGPU_OP_ALLOC_MEMORY,
	CGPU_OP_CONTEXT_DMA,
	CGPU_OP_DUP,
	CGPU_OP_SHARE,
	CGPU_OP_CLIENT_CALL,     /* names a client, otherwise not interpreted */
	CGPU_OP_REGISTER_FD,
	CGPU_OP_OS_EVENT,        /* ALLOC_OS_EVENT, FREE_OS_EVENT */
	CGPU_OP_MAP_DMA,
	CGPU_OP_UNMAP_DMA,
	CGPU_OP_MAP_MEMORY,      /* for the processor */
	CGPU_OP_UNMAP_MEMORY,
	CGPU_OP_MOVE_MAPPING,    /* another address by which the driver knows such a one */
	CGPU_OP_EXPORT_DMABUF,
	CGPU_OP_UVM_INITIALIZE,
	CGPU_OP_UVM_DEINITIALIZE,
	CGPU_OP_UVM_REGISTER_GPU,
	CGPU_OP_UVM_UNREGISTER_GPU,
	CGPU_OP_UVM_REGISTER_VASPACE,
	CGPU_OP_UVM_UNREGISTER_VASPACE,
	CGPU_OP_UVM_REGISTER_CHANNEL,
	CGPU_OP_UVM_UNREGISTER_CHANNEL,
	CGPU_OP_UVM_MAP_EXTERNAL,
	CGPU_OP_UVM_UNMAP_EXTERNAL,
	CGPU_OP_UVM_FREE,
	CGPU_OP_UVM_MAP_SPARSE,
	CGPU_OP_UVM_SEMAPHORE_POOL,
	CGPU_OP_UVM_PARALLELISM,
	CGPU_OP_UVM_CREATE_EXTERNAL,
	CGPU_OP_UVM_RANGE_GROUP, /* one more, or one less */
	CGPU_OPS                 /* so many there are */
};

enum cgpu_ioctl_rule_count {
	CGPU_ESCAPES = 256,
	CGPU_UVM_COMMANDS = 96      /* none listed has a higher number, except those two */
};

/*
 * An escape or a command of UVM: which part judges it, what it is, and what its argument says. Each
 * field is its offset plus one; or, negative, its distance from the end of the argument, if
 * branches differ in the length in between. 0: there is none, or decode.c finds it, because another
 * function of the command has it elsewhere.
 */
struct cgpu_ioctl_rule {
	uint16_t size;              /* the only one that the driver takes; 0: decode.c knows it */
	uint16_t unlisted_size;     /* of what is not listed, and drivers serve */
	uint8_t judge;              /* enum cgpu_judge */
	uint8_t op;                 /* enum cgpu_op; 0: not interpreted */
	bool makes;                 /* the driver may choose hObject */
	int16_t hClient, hParent, hObject, hClass, flags, status, fd;
	int16_t hClientSrc, hObjectSrc;
	int16_t params, rights;     /* pointers: to parameters, to rights (struct nvos64) */
	int16_t gpu;                /* UUID of a card */
	int16_t base, length, offset; /* u64 each */
	int16_t chosen;             /* a u64: the address that the driver answers */
};

extern const struct cgpu_ioctl_rule cgpu_escapes[CGPU_ESCAPES];
extern const struct cgpu_ioctl_rule cgpu_uvm_commands[CGPU_UVM_COMMANDS];
extern const struct cgpu_ioctl_rule cgpu_uvm_initialize;

/* Return: the rule of control `cmd`; one that says CGPU_JUDGE_NONE if there is none. */
const struct cgpu_rule *cgpu_control_rule(uint32_t cmd);
/* The same of a class. */
const struct cgpu_rule *cgpu_class_rule(uint32_t hClass);
/* Return: the rule of the class at `index` of all that have one, NULL: behind the last. */
const struct cgpu_rule *cgpu_class_at(uint32_t index);
/* Return: enum cgpu_judge, of an escape (_IOC_NR) and of a command of UVM. */
uint32_t cgpu_escape_judge(uint32_t nr);
uint32_t cgpu_uvm_judge(uint32_t cmd);
/* Return: bytes of the argument of an escape that drivers serve and no list names, else 0. */
uint32_t cgpu_escape_unlisted_size(uint32_t nr);

#endif
