/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Layouts of NVIDIA's ioctl interface, shared with the simulated driver. NVIDIA's spelling of
 * fields is kept; every block names the header of NVIDIA/open-gpu-kernel-modules that defines it.
 * The changes of a branch are in versions.c. The core uses no pointer to one of these, because the
 * data of a process need not be aligned. It takes the places of fields from here.
 */
#ifndef CGPU_CORE_RM_STRUCTS_H
#define CGPU_CORE_RM_STRUCTS_H

#include "core/types.h"

/* nvos.h */
struct nvos00 { uint32_t hRoot, hObjectParent, hObjectOld, status; };
struct nvos02 { uint32_t hRoot, hObjectParent, hObjectNew, hClass, flags, pad;
		uint64_t pMemory, limit; uint32_t status, pad2; };
struct nvos02_fd { struct nvos02 p; int32_t fd; uint32_t pad; };
struct nvos05 { uint32_t hRoot, hObjectParent, hObjectNew, hClass, status; };
struct nvos21 { uint32_t hRoot, hObjectParent, hObjectNew, hClass; uint64_t pAllocParms;
		uint32_t paramsSize, status; };
struct nvos30 { uint32_t hClient, hDevice, hChannel, numChannels;
		uint64_t phClients, phDevices, phChannels;
		uint32_t flags, timeout, status, pad; };
struct nvos32 { uint32_t hRoot, hObjectParent, function, hVASpace; int16_t ivcHeapNumber;
		uint16_t pad; uint32_t status; uint64_t total, free; uint8_t data[144]; };
struct nvos33 { uint32_t hClient, hDevice, hMemory, pad; uint64_t offset, length, pLinearAddress;
		uint32_t status, flags; };
struct nvos33_fd { struct nvos33 p; int32_t fd; uint32_t pad; };
struct nvos34 { uint32_t hClient, hDevice, hMemory, pad; uint64_t pLinearAddress;
		uint32_t status, flags; };
struct nvos39 { uint32_t hObjectParent, hSubDevice, hObjectNew, hClass, flags, selector, hMemory,
		pad; uint64_t offset, limit; uint32_t status, pad2; };
/* its status is 8 before the end; 580 has two words more before it */
struct nvos46 { uint32_t hClient, hDevice, hDma, hMemory; uint64_t offset, length;
		uint32_t flags, pad; uint64_t dmaOffset; uint32_t status, pad2; };
/* likewise; 535 has no size */
struct nvos47 { uint32_t hClient, hDevice, hDma, hMemory, flags, pad; uint64_t dmaOffset, size;
		uint32_t status, pad2; };
struct nvos49 { uint32_t hClient, hChannel, hCtxDma, status; };
struct nvos54 { uint32_t hClient, hObject, cmd, flags; uint64_t params;
		uint32_t paramsSize, status; };
struct nvos55 { uint32_t hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; };
struct nvos56 { uint32_t hClient, hDevice, hMemory, pad; uint64_t pOldCpuAddress, pNewCpuAddress;
		uint32_t status, pad2; };
struct nv_share_policy { uint32_t target, accessMask; uint16_t type; uint8_t action, pad; };
struct nvos57 { uint32_t hClient, hObject; struct nv_share_policy policy; uint32_t status; };
struct nvos64 { uint32_t hRoot, hObjectParent, hObjectNew, hClass;
		uint64_t pAllocParms, pRightsRequested; uint32_t paramsSize, flags, status, pad; };

/* nvos.h: NVOS32_PARAMETERS.data by function, from the beginning of NVOS32_PARAMETERS */
struct nvos32_alloc_size { uint8_t head[40]; uint32_t owner, hMemory, type, flags, attr, format,
			   comprCovg, zcullCovg, partitionStride, width, height, pad;
			   uint64_t size, alignment, offset, limit, address, rangeBegin, rangeEnd;
			   uint32_t attr2, ctagOffset; };
struct nvos32_alloc_tiled { uint8_t head[40]; uint32_t owner, hMemory, type, flags, height;
			    int32_t pitch; uint32_t attr, width, format, comprCovg, zcullCovg,
			    partitionStride;
			    uint64_t size, alignment, offset, limit, address, rangeBegin,
			    rangeEnd; uint32_t attr2, ctagOffset; };
struct nvos32_alloc_range { uint8_t head[40]; uint32_t owner, hMemory, type, flags, attr, format,
			    comprCovg, zcullCovg, partitionStride, pad;
			    uint64_t size, alignment, offset, limit, rangeBegin, rangeEnd,
			    address; uint32_t attr2, ctagOffset; };
struct nvos32_free { uint8_t head[40]; uint32_t owner, hMemory, flags; };
struct nvos32_alloc_os_desc { uint8_t head[40]; uint32_t hMemory, type, flags, attr, attr2, pad;
			      uint64_t descriptor, limit; };

/* Allocation parameters: nvos.h, class/cl0080.h, cl0005.h, alloc/alloc_channel.h */
struct nv_memory_alloc {	/* 535 ends before numaNode: 120 bytes */
	uint32_t owner, type, flags, width, height;
	int32_t pitch;
	uint32_t attr, attr2, format, comprCovg, zcullCovg, pad;
	uint64_t rangeLo, rangeHi, size, alignment, offset, limit, address;
	uint32_t ctagOffset, hVASpace, internalflags, tag;
	int32_t numaNode;
	uint32_t pad2;
};
struct nv0080_alloc { uint32_t deviceId, hClientShare, hTargetClient, hTargetDevice, flags, pad;
		      uint64_t vaSpaceSize, vaStartInternal, vaLimitInternal;
		      uint32_t vaMode, pad2; };
/* the beginning; all of it is struct cgpu_abi's vaspace_alloc_size */
struct nv_vaspace_alloc { uint32_t index, flags; };
struct nv_group_alloc { uint32_t hObjectError, hObjectEccError, hVASpace, engineType;
			uint8_t isVgpu, pad[3]; };
struct nv_ctxshare_alloc { uint32_t hVASpace, flags, subctxId; };
struct nv0005_alloc { uint32_t hParentClient, hSrcResource, hClass, notifyIndex; uint64_t data; };
/*
 * The beginning, up to hVASpace the same in all branches; struct cgpu_abi has where the rest
 * stands, and the size of it all.
 */
struct nv_channel_alloc { uint32_t hObjectError, hObjectBuffer; uint64_t gpFifoOffset;
			  uint32_t gpFifoEntries, flags, hContextShare, hVASpace,
			  hUserdMemory[8]; uint64_t userdOffset[8];
			  uint32_t engineType, cid, subDeviceId, hObjectEccError; };

/* ctrl0000unix.h */
struct nv_export_object { uint32_t type, hDevice, hParent, hObject; int32_t fd; uint32_t flags; };
struct nv_import_object { int32_t fd; uint32_t type, hDevice, hParent, hObject; };
struct nv_create_export { uint32_t hDevice; uint16_t maxObjects; uint8_t metadata[64], pad[2];
			  int32_t fd; };
struct nv_export_objects { int32_t fd; uint32_t hDevice; uint16_t maxObjects;
			   uint8_t metadata[64]; uint8_t pad[2]; uint32_t objects[512];
			   uint16_t numObjects, index; };
struct nv_import_objects { int32_t fd; uint32_t hParent, objects[128]; uint8_t types[128];
			   uint16_t numObjects, index; };

/* ctrl2080fb.h; the list of FB_GET_INFO is behind a pointer, that of V2 in place */
struct nv_fb_info { uint32_t index, data; };
struct nv_fb_get_info { uint32_t fbInfoListSize, pad; uint64_t fbInfoList; };
struct nv_fb_get_info_v2 { uint32_t fbInfoListSize; struct nv_fb_info fbInfoList[1]; };

/* ctrl2080gpu.h, ctrlcb33.h */
struct nv_nvenc_sessions { uint32_t sessionInfoTblEntry, pad; uint64_t sessionInfoTbl; };
struct nv_vidmem_size { uint32_t hSubDevice, pad;
			uint64_t protectedMemSizeInKb, unprotectedMemSizeInKb; };

/* ctrl2080fifo.h, ctrl2080gr.h, ctrla06c.h */
struct nv_fifo_disable_channels { uint8_t bDisable, pad[3]; uint32_t numChannels;
				  uint8_t bOnlyDisableScheduling, bRewindGpPut, pad2[6];
				  uint64_t pRunlistPreemptEvent;
				  uint32_t hClientList[64], hChannelList[64]; };
struct nv_fecs_bind_evtbuf { uint32_t hEventBuffer, recordSize, levelOfDetail, eventFilter;
			     uint8_t bAllUsers, pad[3]; uint32_t reasonCode; };
struct nv_gr_preemption_mode { uint32_t flags, hChannel, gfxpPreemptMode, cilpPreemptMode;
			       uint64_t grRouteInfo[2]; };
struct nv_timeslice { uint64_t timesliceUs; };
struct nv_gpfifo_schedule { uint8_t bEnable, bSkipSubmit, bSkipEnable; /* this one from 575 on */ };

/* class/cl90cd.h, cl90cdtypes.h, cl90cdfecs.h, ctrl90cd.h: the log of context switches */
struct nv_event_buffer_alloc {
	uint64_t bufferHeader, recordBuffer;
	uint32_t recordSize, recordCount;
	uint64_t vardataBuffer;
	uint32_t vardataBufferSize, recordsFreeThreshold;
	uint64_t notificationHandle;
	uint32_t vardataFreeThreshold, hSubDevice, flags, hBufferHeader, hRecordBuffer,
		 hVardataBuffer;
};
struct nv_event_buffer_enable { uint8_t enable, pad[3]; uint32_t flags; };
struct nv_event_buffer_header { uint32_t recordGet, recordPut;
				uint64_t recordCount, recordDropcount, vardataDropcount; };
struct nv_fecs_record_v2 { uint8_t tag, vmid; uint16_t seqno; uint32_t context_id, pid;
			   uint16_t reserved0; uint8_t migGpuInstanceId, migComputeInstanceId;
			   uint64_t timestamp; };
struct nv_event_buffer_record { uint16_t type, subtype; uint32_t varData; };
struct nv_fecs_entry { struct nv_event_buffer_record head; struct nv_fecs_record_v2 fecs; };

/* nv-ioctl.h */
struct nv_ioctl_xfer { uint32_t cmd, size; uint64_t ptr; };
struct nv_ioctl_os_event { uint32_t hClient, hDevice, fd, status; };
struct nv_ioctl_register_fd { int32_t ctl_fd; };
/* the beginning; handles and status are in struct cgpu_abi */
struct nv_ioctl_export_dmabuf { int32_t fd; uint32_t hClient, totalObjects, numObjects; };

/* uvm_ioctl.h, uvm_linux_ioctl.h */
struct nv_uuid { uint8_t bytes[16]; };
struct uvm_initialize { uint64_t flags; uint32_t rmStatus, pad; };
struct uvm_register_gpu { struct nv_uuid gpu; uint8_t numaEnabled, pad[3]; int32_t numaNodeId,
			  rmCtrlFd; uint32_t hClient, hSmcPartRef, rmStatus; };
struct uvm_unregister_gpu { struct nv_uuid gpu; uint32_t rmStatus; };
struct uvm_register_vaspace { struct nv_uuid gpu; int32_t rmCtrlFd;
			      uint32_t hClient, hVaSpace, rmStatus; };
struct uvm_unregister_vaspace { struct nv_uuid gpu; uint32_t rmStatus; };
struct uvm_register_channel { struct nv_uuid gpu; int32_t rmCtrlFd;
			      uint32_t hClient, hChannel, pad; uint64_t base, length;
			      uint32_t rmStatus, pad2; };
/* UVM_UNREGISTER_CHANNEL_PARAMS: until 580 a card's UUID, then this */
struct uvm_unregister_channel_tail { uint32_t hClient, hChannel, rmStatus; };
struct uvm_alloc_device_p2p { uint64_t base, length, offset; struct nv_uuid gpu; int32_t rmCtrlFd;
			      uint32_t hClient, hMemory, rmStatus; };
struct uvm_gpu_mapping { struct nv_uuid gpu; uint32_t attributes[5]; };
/* UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: a head, 32 or 256 of the above, a tail */
struct uvm_map_external_head { uint64_t base, length, offset; };
struct uvm_map_external_tail { uint64_t gpuAttributesCount; int32_t rmCtrlFd;
			       uint32_t hClient, hMemory, rmStatus; };
struct uvm_unmap_external { uint64_t base, length; struct nv_uuid gpu; uint32_t rmStatus, pad; };
/* also UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS */
struct uvm_map_sparse { uint64_t base, length; struct nv_uuid gpu; uint32_t rmStatus, pad; };
struct uvm_create_external { uint64_t base, length; uint32_t rmStatus, pad; };
struct uvm_range_group { uint64_t id; uint32_t rmStatus, pad; };
struct uvm_free { uint64_t base, length; uint32_t rmStatus, pad; };	/* until 580 */
struct uvm_free_by_base { uint64_t base; uint32_t rmStatus, pad; };	/* from 590 */
/* UVM_ALLOC_SEMAPHORE_POOL_PARAMS: a head, as many attributes, a count */
struct uvm_semaphore_pool_head { uint64_t base, length; };
struct uvm_semaphore_pool_tail { uint64_t gpuAttributesCount; uint32_t rmStatus, pad; };

#endif
