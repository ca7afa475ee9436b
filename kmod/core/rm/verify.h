/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether a driver has the layouts that a struct cgpu_abi says: calls that a host makes for
 * the check, and what their answers must be. Needed for a branch that is newer than all known.
 */
#ifndef CGPU_CORE_RM_VERIFY_H
#define CGPU_CORE_RM_VERIFY_H

#include "core/rm/decode.h"

enum cgpu_verify_limit {
	CGPU_VERIFY_ARGS_MAX = 12288,   /* whole pages: longer than the longest of UVM */
	CGPU_VERIFY_WAIT_MS = 10
};

/* One check. The fields after `checks` are private to the check. */
struct cgpu_verify {
	const struct cgpu_abi *abi;
	/*
	 * The call. The argument ends where the memory of the caller ends, and so do the
	 * parameters: an access to one byte more gets -EFAULT.
	 */
	uint32_t device;                /* CGPU_DEVICE_CTL or CGPU_DEVICE_UVM */
	uint32_t nr;                    /* an escape, or a command of UVM */
	uint32_t args_bytes;
	uint32_t params_bytes;
	uint32_t params_ptr_offset;     /* in the argument: of their address; 0: there are none */
	uint32_t wait_ms;               /* before the call */
	uint8_t args[CGPU_VERIFY_ARGS_MAX];
	uint8_t params[CGPU_PARAMS_MAX];

	/* The result: "class" 0x40 "its parameters are longer". NULL: nothing is wrong. */
	const char *what;
	uint32_t number;
	const char *why;
	bool passing;                   /* others may have caused it: another check may pass */
	uint32_t checks;                /* answers that were as expected */

	uint32_t stage, index, step, device_instance;
	bool is_short;                  /* a word of the structure is behind the edge */
	bool channels;                  /* the structure of a channel was checked */
	uint32_t hClient, tries, waits;
	uint64_t free_bytes, free_before_bytes, taken_bytes;
	uint32_t hMemory;
};

/* `device_instance`: of a card that is open, whose memory is counted. */
void cgpu_verify_begin(struct cgpu_verify *verify, const struct cgpu_abi *abi,
		       uint32_t device_instance);

/*
 * Fills in the next call. Return: false: there is none, and what / why are the verdict.
 */
bool cgpu_verify_next(struct cgpu_verify *verify);

/* `result`: what the driver's ioctl returned, 0 or -errno; args and params are as it left them. */
void cgpu_verify_answer(struct cgpu_verify *verify, long result);

#endif
