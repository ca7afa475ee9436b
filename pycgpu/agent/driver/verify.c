// SPDX-License-Identifier: GPL-2.0-only
/* Carries out the check of a driver that is newer than all known: core/rm/verify.c has it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/rm/verify.h"
#include "driver/driver.h"

/* Both buffers end at a page without any access. */
enum {
	GUARD_BYTES = 65536, /* whole pages on any kernel */
	ARGS_END = CGPU_VERIFY_ARGS_MAX,
	PARAMS_START = GUARD_BYTES,
	PARAMS_END = PARAMS_START + CGPU_PARAMS_MAX,
	AREA_BYTES = PARAMS_END + GUARD_BYTES
};

struct trial {
	struct cgpu_verify verify;
	uint8_t *area;
	int uvm;
};

static long ask(struct trial *trial)
{
	struct cgpu_verify *verify = &trial->verify;
	uint8_t *args = trial->area + ARGS_END - verify->args_bytes;
	uint8_t *params = trial->area + PARAMS_END - verify->params_bytes;
	long result;

	usleep(verify->wait_ms * 1000);
	if (verify->params_ptr_offset)
		cgpu_put64(verify->args, verify->params_ptr_offset, (uintptr_t)params);
	memcpy(args, verify->args, verify->args_bytes);
	memcpy(params, verify->params, verify->params_bytes);
	if (verify->device == CGPU_DEVICE_UVM)
		result = ioctl(trial->uvm, verify->nr, args) ? -errno : 0;
	else
		result = rm_ioctl(rm_ctl_fd(), verify->nr, args, verify->args_bytes);
	memcpy(verify->args, args, verify->args_bytes);
	memcpy(verify->params, params, verify->params_bytes);
	return result;
}

static int carry_out(struct trial *trial)
{
	uint32_t minor = 0;

	/* rm_open() found one */
	while (!rm_subdevice(minor))
		minor++;
	trial->area = mmap(NULL, AREA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (trial->area == MAP_FAILED)
		return -errno;
	if (mprotect(trial->area, ARGS_END, PROT_READ | PROT_WRITE) ||
	    mprotect(trial->area + PARAMS_START, CGPU_PARAMS_MAX, PROT_READ | PROT_WRITE))
		return -errno;
	trial->uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	if (trial->uvm < 0)
		return -errno;
	cgpu_verify_begin(&trial->verify, &door.abi,
			  door.host.topology.gpu[minor].device_instance);
	while (cgpu_verify_next(&trial->verify))
		cgpu_verify_answer(&trial->verify, ask(trial));
	close(trial->uvm);
	return 0;
}

static int tell(const struct cgpu_verify *verify, int err, bool adopted, char *message)
{
	if (err) {
		snprintf(message, 256, "driver %s: not checked against branch %u: %s; "
			 "is nvidia-uvm loaded?", door.version, door.abi.branch, strerror(-err));
		return err;
	}
	/* the agent before found the layouts right, and its adopted tenants may fill the card */
	if (verify->what && !(verify->passing && adopted)) {
		snprintf(message, 256, "driver %s is not branch %u: %s %#x: %s", door.version,
			 door.abi.branch, verify->what, verify->number, verify->why);
		event("verify driver %s branch=%u failed %s %#x: %s", door.version,
		      door.abi.branch, verify->what, verify->number, verify->why);
		return -EOPNOTSUPP;
	}
	snprintf(message, 256, "driver %s: %u answers are those of branch %u. A field that moved "
		 "within a structure of the same size goes unnoticed", door.version,
		 verify->checks, door.abi.branch);
	event("verify driver %s branch=%u passed %u", door.version, door.abi.branch,
	      verify->checks);
	return 0;
}

int verify_driver(bool adopted, char *message)
{
	struct trial *trial;
	int err;

	if (!door.abi.guarded)
		return 0;
	trial = calloc(1, sizeof(*trial));
	if (!trial)
		return -ENOMEM;
	err = carry_out(trial);
	err = tell(&trial->verify, err, adopted, message);
	if (trial->area != MAP_FAILED && trial->area)
		munmap(trial->area, AREA_BYTES);
	free(trial);
	return err;
}
