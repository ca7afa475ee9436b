/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a container may ask the driver for, and who judges it. Anything that is not
 * listed is refused: see cgpu_refuse_unknown().
 */
#ifndef CGPU_CORE_RM_ALLOWED_H
#define CGPU_CORE_RM_ALLOWED_H

#include "core/types.h"

enum cgpu_judge {
	CGPU_JUDGE_NONE,    /* not listed */
	CGPU_JUDGE_DRIVER,  /* acts on the caller's own objects alone: the driver decides */
	CGPU_JUDGE_CORE,    /* the core reads what it says */
	CGPU_JUDGE_NEVER    /* acts on every tenant of the card, or on whom it names */
};

enum cgpu_rule_size {
	CGPU_BY_BRANCH = 0xffff,    /* struct cgpu_abi has the size */
	CGPU_AS_GIVEN = 0xfffe      /* as many bytes as the caller says, up to CGPU_PARAMS_MAX */
};

enum cgpu_rule_limit {
	CGPU_POINTERS_MAX = 3       /* of one control */
};

/* A pointer in the parameters. Of each place its offset and one more, 0: there is none. */
struct cgpu_pointer {
	uint8_t at;
	uint8_t count;              /* a u32: how many elements it points to; 0: it is not used */
	uint8_t element_bytes;
};

/*
 * A control or a class: who judges it, and what its parameters name beyond the caller's own
 * objects. Of each place its offset and one more, 0: there is none.
 */
struct cgpu_rule {
	uint32_t number;
	uint16_t params_bytes;      /* of the parameters that the core reads, 0: none */
	uint8_t judge;              /* enum cgpu_judge */
	uint8_t hClient[2];         /* further clients */
	uint8_t fd;                 /* a descriptor of the caller's */
	uint8_t capability;         /* a u64 with a descriptor of nvidia-caps, or -1 */
	bool opaque;                /* others, too: it is its process' alone to perform */
	struct cgpu_pointer pointer[CGPU_POINTERS_MAX];
};

enum cgpu_uvm_numbers {
	/* all commands of UVM are below this, but for UVM_INITIALIZE and UVM_DEINITIALIZE */
	CGPU_UVM_NUMBERS = 128
};

/* Return: the rule of control `cmd`; one that says CGPU_JUDGE_NONE if there is none. */
const struct cgpu_rule *cgpu_control_rule(uint32_t cmd);
/* The same of a class. */
const struct cgpu_rule *cgpu_class_rule(uint32_t hClass);
/* Return: enum cgpu_judge, of an escape (_IOC_NR) and of a command of UVM. */
uint32_t cgpu_escape_judge(uint32_t nr);
uint32_t cgpu_uvm_judge(uint32_t cmd);
/* Return: bytes of the argument of an escape that drivers serve and no list names, else 0. */
uint32_t cgpu_escape_unlisted_size(uint32_t nr);

#endif
