/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Bytes of an NVIDIA ioctl to a typed request. Decides nothing. */
#ifndef CGPU_CORE_RM_DECODE_H
#define CGPU_CORE_RM_DECODE_H

#include "core/bytes.h"
#include "core/types.h"
#include "core/rm/abi.h"
#include "core/rm/allowed.h"
#include "core/rm/versions.h"

enum cgpu_device {
	CGPU_DEVICE_CTL,    /* /dev/nvidiactl */
	CGPU_DEVICE_GPU,    /* /dev/nvidiaN */
	CGPU_DEVICE_UVM,    /* /dev/nvidia-uvm */
	CGPU_DEVICE_DMABUF  /* a dma-buf exported from video memory */
};

enum cgpu_decode_limit {
	/* longest argument and longest parameter block that a door copies */
	CGPU_ARGS_MAX = 16384,
	CGPU_PARAMS_MAX = 4096
};

/* The args of a request have no NVIDIA status field. */
enum cgpu_decode_none {
	CGPU_NO_OFFSET = 0xffffffff
};

/* One ioctl, decoded. Offsets are into the argument bytes. */
struct cgpu_request {
	uint32_t device;        /* enum cgpu_device */
	uint32_t op;            /* enum cgpu_op */
	uint32_t judge;         /* enum cgpu_judge: of the control or the class */
	uint32_t nr;            /* NVIDIA's number: escape, or UVM command */
	uint32_t args_size;
	uint32_t status_offset; /* CGPU_NO_OFFSET: the struct has none */
	uint32_t status;        /* the value there when decoded */

	uint32_t hClient;
	uint32_t hParent;
	uint32_t hObject;       /* new, old or target object */
	uint32_t hObject_offset;
	uint32_t hClass;
	uint32_t hClientSrc;
	uint32_t hObjectSrc;
	uint32_t hClientNamed[2]; /* further clients in the parameters, 0: none */
	uint8_t hClient_place[2]; /* where they stand there, as struct cgpu_rule has it */
	uint8_t fd_place;       /* of a descriptor there, likewise */
	uint32_t cmd;           /* RM control */
	uint32_t function;      /* VID_HEAP_CONTROL */
	uint32_t flags;
	uint32_t attr;
	uint32_t attr2;
	uint32_t engineType;
	uint32_t hDepend[2];    /* handles whose free frees this object too */
	uint32_t hUserd;        /* memory that a channel is driven by, 0: RM's own */
	uint32_t hError[2];     /* that the driver tells errors of a group or channel in */
	uint32_t deviceId;      /* NV0080_ALLOC_PARAMETERS */
	uint32_t vaMode;        /* likewise */
	uint32_t notifyIndex;   /* NV0005_ALLOC_PARAMETERS: its flags, too */
	uint32_t index;         /* NV_VASPACE_ALLOCATION_PARAMETERS: of which there is already */
	bool misfit;            /* of another size than the layouts on trial have */
	bool serialised;        /* ALLOC: parameters that cannot be looked into */
	bool partial;           /* UNMAP_DMA: of a range, parts of mappings may stay */
	uint32_t handles_offset; /* EXPORT_TO_DMABUF_FD: its list of memory */
	int32_t fd;
	uint8_t gpu_uuid[16];

	uint32_t size_offset;   /* HEAP_ALLOC: of size_bytes in the argument */
	uint64_t size_bytes;    /* memory: asked before, taken after the call */
	uint64_t alignment_bytes; /* memory: asked, whatever the flags make of it */
	uint64_t base;          /* UVM, unmapping: virtual address; OS_EVENT: client, number */
	uint32_t base_offset;   /* mapping: where the driver leaves it in the argument */
	uint64_t offset_bytes;  /* MAP_MEMORY: of what is mapped in the object */
	uint64_t length_bytes;  /* 0 of UVM_FREE by base alone: the core knows it */

	/* the block behind the argument that the core wants to see: 0 bytes: none */
	uint64_t params_ptr;
	uint32_t params_ptr_offset;
	uint32_t params_size;
	/* a list behind the parameters, patched after the call: 0 bytes: none */
	uint64_t list_ptr;
	uint32_t list_size;
};

/*
 * How many argument bytes a door must copy for `cmd` on `device`.
 * Return: 0: the core does not look at this command, forward it untouched.
 */
uint32_t cgpu_args_size(const struct cgpu_abi *abi, uint32_t device, uint32_t cmd);

/* Bytes of the only argument of `nr` that the driver takes; 0: several, or none is known. */
uint32_t cgpu_struct_bytes(const struct cgpu_abi *abi, uint32_t device, uint32_t nr);
/* Bytes of the parameters of a class that the core wants; 0: none. */
uint32_t cgpu_class_bytes(const struct cgpu_abi *abi, const struct cgpu_rule *rule);

/* true for the escapes (bare numbers) that the core interprets */
bool cgpu_interprets(uint32_t nr);
/* true for RM's own escapes, whose argument the driver's ioctl hands on as it is */
bool cgpu_goes_to_rm(uint32_t device, uint32_t nr);
/* false for an escape or UVM command that is not listed: see cgpu_admits_unknown() */
bool cgpu_command_known(uint32_t device, uint32_t cmd);

/*
 * Unwraps NV_ESC_IOCTL_XFER_CMD. `args` holds `size` bytes.
 * Return: 0, -EINVAL as the driver answers (inner size above 16384, wrong size).
 */
int cgpu_decode_xfer(const void *args, uint32_t size, uint32_t *cmd,
		     uint32_t *inner_size, uint64_t *inner_ptr);

/*
 * Decodes `size` argument bytes of command `nr` (_IOC_NR, or the bare UVM
 * number). Never reads past args + size.
 * Return: 0, or -EINVAL when the driver refuses this size for this command.
 */
int cgpu_decode(const struct cgpu_abi *abi, uint32_t device, uint32_t nr,
		const void *args, uint32_t size, struct cgpu_request *req);

/* Adds the fields of the parameter block: `size` is at most req->params_size. */
void cgpu_decode_params(const struct cgpu_abi *abi, const void *params,
			uint32_t size, struct cgpu_request *req);

/* true for every GPFIFO channel class (…6F) */
bool cgpu_is_channel_class(uint32_t hClass);
/* Has NV0005_ALLOC_PARAMETERS that a program may give? */
bool cgpu_is_event(uint32_t hClass);

/* Is the card in MIG mode? Then no process has the whole of it, also while it has no instance. */
enum cgpu_mig {
	CGPU_MIG_UNTOLD,
	CGPU_MIG_OFF,
	CGPU_MIG_ON
};

/*
 * Interprets the driver's answer for NV2080_CTRL_GPU_INFO_INDEX_GPU_SMC_MODE. A pending change has
 * not been made. Return: enum cgpu_mig.
 */
uint8_t cgpu_mig_of(uint32_t data);

#endif
