/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Layouts that differ between the driver branches. */
#ifndef CGPU_CORE_RM_VERSIONS_H
#define CGPU_CORE_RM_VERSIONS_H

#include "core/types.h"

/* One driver branch: sizes and offsets in bytes. */
struct cgpu_abi {
	uint32_t branch;                  /* 535, 550, 570, 580, 590, 595, 610, 615, 620 */
	uint32_t memory_alloc_size;       /* NV_MEMORY_ALLOCATION_PARAMS */
	uint32_t channel_alloc_size;      /* NV_CHANNEL_ALLOC_PARAMS */
	/* in it: hUserdMemory, and by how much userdOffset and all behind it stand later */
	uint32_t channel_userd_offset, channel_shift;
	uint32_t vaspace_alloc_size;      /* NV_VASPACE_ALLOCATION_PARAMETERS */
	uint32_t fb_get_info_v2_size;     /* NV2080_CTRL_FB_GET_INFO_V2_PARAMS */
	uint32_t uvm_map_external_size;   /* UVM_MAP_EXTERNAL_ALLOCATION_PARAMS */
	uint32_t uvm_semaphore_pool_size; /* UVM_ALLOC_SEMAPHORE_POOL_PARAMS */
	uint32_t uvm_device_p2p_size;     /* 0: the branch has no such command */
	uint32_t uvm_range_group_size;    /* 0: the branch has no groups of ranges any more */
	uint32_t uvm_unregister_channel_size; /* UVM_UNREGISTER_CHANNEL_PARAMS */
	uint32_t uvm_free_size;           /* UVM_FREE_PARAMS: with a length, or by base alone */
	/* UVM_CREATE_EXTERNAL_RANGE_PARAMS; 0: not read, UVM_FREE says the length */
	uint32_t uvm_create_external_size;
	uint32_t map_dma_size;            /* NVOS46_PARAMETERS; its status is 8 before the end */
	uint32_t unmap_dma_size;          /* NVOS47_PARAMETERS, likewise */
	uint32_t dmabuf_size;             /* nv_ioctl_export_to_dma_buf_fd_t */
	uint32_t dmabuf_handles;
	uint32_t dmabuf_status;
	bool compared;                    /* with NVIDIA's own headers, by the compiler */
	/*
	 * It is that of a driver newer than all known, on trial: cgpu_verify_begin() says
	 * whether it fits, and calls that say another size than it has are refused.
	 */
	bool guarded;
	bool egm;                         /* NVOS32_ATTR2_USE_EGM is one of its attributes */
};

/*
 * The layouts of driver `version` ("550.163.01"). With `newest` a branch newer than all
 * known has those of the newest, as `guarded` says.
 * Return: 0, -EINVAL: not a version, -EOPNOTSUPP: a branch that is not known.
 */
int cgpu_abi_find(const char *version, bool newest, struct cgpu_abi *abi);

#endif
