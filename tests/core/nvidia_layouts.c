/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's structs beside ours, as the compiler lays both out. Prints a line for each
 * size and each offset: its name, NVIDIA's number, ours. "-" for ours: it differs
 * between branches and is in struct cgpu_abi, where the test looks.
 */
#include <stdbool.h>
#include <stdio.h>

#include "nvtypes.h"
#include "nvos.h"
#include "nv-ioctl.h"
#include "nv-unix-nvos-params-wrappers.h"
#include "alloc/alloc_channel.h"
#include "class/cl0005.h"
#include "class/cl0080.h"
#include "class/cl90cd.h"
#include "class/cl90cdfecs.h"
#include "ctrl/ctrl0000/ctrl0000gpu.h"
#include "ctrl/ctrl0000/ctrl0000unix.h"
#include "ctrl/ctrl2080/ctrl2080fb.h"
#include "ctrl/ctrl2080/ctrl2080fifo.h"
#include "ctrl/ctrl2080/ctrl2080gpu.h"
#include "ctrl/ctrl2080/ctrl2080gr.h"
#include "ctrl/ctrl90cd.h"
#include "ctrl/ctrl83de.h"
#include "ctrl/ctrla06c.h"
#include "ctrl/ctrlcb33.h"
#include "uvm_types.h"
#include "uvm_ioctl.h"
#include "uvm_linux_ioctl.h"

/* where a tag is NVIDIA's, too; and the numbers of core/rm/abi.h are macros above */
#define nv_ioctl_xfer our_ioctl_xfer
#define nv_ioctl_register_fd our_ioctl_register_fd
#define nv_uuid our_uuid
#include "core/rm/structs.h"

#define NUMBER(name, theirs, ours) printf("%s %zu %zu\n", name, (size_t)(theirs), (size_t)(ours))
#define SIZE(their, ours) NUMBER(#their, sizeof(their), sizeof(struct ours))
#define AT(their, field, ours, place) \
	NUMBER(#their "." #field, offsetof(their, field), offsetof(struct ours, place))
#define BRANCH(name, theirs) printf("%s %zu -\n", name, (size_t)(theirs))
#define BYTES(their, bytes) NUMBER(#their, sizeof(their), bytes)

int main(void)
{
	SIZE(NVOS00_PARAMETERS, nvos00);
	AT(NVOS00_PARAMETERS, hObjectOld, nvos00, hObjectOld);
	AT(NVOS00_PARAMETERS, status, nvos00, status);
	SIZE(nv_ioctl_nvos02_parameters_with_fd, nvos02_fd);
	AT(NVOS02_PARAMETERS, hClass, nvos02, hClass);
	AT(NVOS02_PARAMETERS, flags, nvos02, flags);
	AT(NVOS02_PARAMETERS, pMemory, nvos02, pMemory);
	AT(NVOS02_PARAMETERS, limit, nvos02, limit);
	AT(NVOS02_PARAMETERS, status, nvos02, status);
	SIZE(NVOS05_PARAMETERS, nvos05);
	AT(NVOS05_PARAMETERS, status, nvos05, status);
	SIZE(NVOS21_PARAMETERS, nvos21);
	AT(NVOS21_PARAMETERS, pAllocParms, nvos21, pAllocParms);
	AT(NVOS21_PARAMETERS, paramsSize, nvos21, paramsSize);
	AT(NVOS21_PARAMETERS, status, nvos21, status);
	SIZE(NVOS64_PARAMETERS, nvos64);
	AT(NVOS64_PARAMETERS, pAllocParms, nvos64, pAllocParms);
	AT(NVOS64_PARAMETERS, paramsSize, nvos64, paramsSize);
	AT(NVOS64_PARAMETERS, flags, nvos64, flags);
	AT(NVOS64_PARAMETERS, status, nvos64, status);
	SIZE(NVOS30_PARAMETERS, nvos30);
	AT(NVOS30_PARAMETERS, phClients, nvos30, phClients);
	AT(NVOS30_PARAMETERS, status, nvos30, status);
	SIZE(NVOS32_PARAMETERS, nvos32);
	AT(NVOS32_PARAMETERS, function, nvos32, function);
	AT(NVOS32_PARAMETERS, status, nvos32, status);
	AT(NVOS32_PARAMETERS, data.AllocSize.hMemory, nvos32_alloc_size, hMemory);
	AT(NVOS32_PARAMETERS, data.AllocSize.flags, nvos32_alloc_size, flags);
	AT(NVOS32_PARAMETERS, data.AllocSize.attr, nvos32_alloc_size, attr);
	AT(NVOS32_PARAMETERS, data.AllocSize.size, nvos32_alloc_size, size);
	AT(NVOS32_PARAMETERS, data.AllocSize.attr2, nvos32_alloc_size, attr2);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.hMemory, nvos32_alloc_tiled, hMemory);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.flags, nvos32_alloc_tiled, flags);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.height, nvos32_alloc_tiled, height);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.pitch, nvos32_alloc_tiled, pitch);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.attr, nvos32_alloc_tiled, attr);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.size, nvos32_alloc_tiled, size);
	AT(NVOS32_PARAMETERS, data.AllocTiledPitchHeight.attr2, nvos32_alloc_tiled, attr2);
	AT(NVOS32_PARAMETERS, data.AllocSizeRange.hMemory, nvos32_alloc_range, hMemory);
	AT(NVOS32_PARAMETERS, data.AllocSizeRange.flags, nvos32_alloc_range, flags);
	AT(NVOS32_PARAMETERS, data.AllocSizeRange.attr, nvos32_alloc_range, attr);
	AT(NVOS32_PARAMETERS, data.AllocSizeRange.size, nvos32_alloc_range, size);
	AT(NVOS32_PARAMETERS, data.AllocSizeRange.attr2, nvos32_alloc_range, attr2);
	AT(NVOS32_PARAMETERS, data.Free.hMemory, nvos32_free, hMemory);
	AT(NVOS32_PARAMETERS, data.AllocOsDesc.hMemory, nvos32_alloc_os_desc, hMemory);
	AT(NVOS32_PARAMETERS, data.AllocOsDesc.limit, nvos32_alloc_os_desc, limit);
	SIZE(nv_ioctl_nvos33_parameters_with_fd, nvos33_fd);
	AT(nv_ioctl_nvos33_parameters_with_fd, fd, nvos33_fd, fd);
	AT(NVOS33_PARAMETERS, hMemory, nvos33, hMemory);
	AT(NVOS33_PARAMETERS, length, nvos33, length);
	AT(NVOS33_PARAMETERS, pLinearAddress, nvos33, pLinearAddress);
	AT(NVOS33_PARAMETERS, status, nvos33, status);
	SIZE(NVOS34_PARAMETERS, nvos34);
	AT(NVOS34_PARAMETERS, hMemory, nvos34, hMemory);
	AT(NVOS34_PARAMETERS, status, nvos34, status);
	SIZE(NVOS39_PARAMETERS, nvos39);
	AT(NVOS39_PARAMETERS, hObjectNew, nvos39, hObjectNew);
	AT(NVOS39_PARAMETERS, hClass, nvos39, hClass);
	AT(NVOS39_PARAMETERS, hMemory, nvos39, hMemory);
	AT(NVOS39_PARAMETERS, status, nvos39, status);
	SIZE(NVOS49_PARAMETERS, nvos49);
	AT(NVOS49_PARAMETERS, status, nvos49, status);
	SIZE(NVOS54_PARAMETERS, nvos54);
	AT(NVOS54_PARAMETERS, cmd, nvos54, cmd);
	AT(NVOS54_PARAMETERS, flags, nvos54, flags);
	AT(NVOS54_PARAMETERS, params, nvos54, params);
	AT(NVOS54_PARAMETERS, paramsSize, nvos54, paramsSize);
	AT(NVOS54_PARAMETERS, status, nvos54, status);
	SIZE(NVOS55_PARAMETERS, nvos55);
	AT(NVOS55_PARAMETERS, hClientSrc, nvos55, hClientSrc);
	AT(NVOS55_PARAMETERS, hObjectSrc, nvos55, hObjectSrc);
	AT(NVOS55_PARAMETERS, status, nvos55, status);
	SIZE(NVOS56_PARAMETERS, nvos56);
	AT(NVOS56_PARAMETERS, status, nvos56, status);
	SIZE(NVOS57_PARAMETERS, nvos57);
	AT(NVOS57_PARAMETERS, sharePolicy, nvos57, policy);
	AT(NVOS57_PARAMETERS, status, nvos57, status);
	BRANCH("map_dma_size", sizeof(NVOS46_PARAMETERS));
	NUMBER("NVOS46_PARAMETERS: status to its end",
	       sizeof(NVOS46_PARAMETERS) - offsetof(NVOS46_PARAMETERS, status), 8);
	AT(NVOS46_PARAMETERS, hDma, nvos46, hDma);
	BRANCH("unmap_dma_size", sizeof(NVOS47_PARAMETERS));
	NUMBER("NVOS47_PARAMETERS: status to its end",
	       sizeof(NVOS47_PARAMETERS) - offsetof(NVOS47_PARAMETERS, status), 8);
	AT(NVOS47_PARAMETERS, hDma, nvos47, hDma);

	BRANCH("memory_alloc_size", sizeof(NV_MEMORY_ALLOCATION_PARAMS));
	AT(NV_MEMORY_ALLOCATION_PARAMS, flags, nv_memory_alloc, flags);
	AT(NV_MEMORY_ALLOCATION_PARAMS, attr, nv_memory_alloc, attr);
	AT(NV_MEMORY_ALLOCATION_PARAMS, attr2, nv_memory_alloc, attr2);
	AT(NV_MEMORY_ALLOCATION_PARAMS, size, nv_memory_alloc, size);
	BRANCH("channel_alloc_size", sizeof(NV_CHANNEL_ALLOC_PARAMS));
	BRANCH("vaspace_alloc_size", sizeof(NV_VASPACE_ALLOCATION_PARAMETERS));
	AT(NV_CHANNEL_ALLOC_PARAMS, hContextShare, nv_channel_alloc, hContextShare);
	AT(NV_CHANNEL_ALLOC_PARAMS, hVASpace, nv_channel_alloc, hVASpace);
	AT(NV_CHANNEL_ALLOC_PARAMS, hUserdMemory, nv_channel_alloc, hUserdMemory);
	AT(NV_CHANNEL_ALLOC_PARAMS, userdOffset, nv_channel_alloc, userdOffset);
	AT(NV_CHANNEL_ALLOC_PARAMS, engineType, nv_channel_alloc, engineType);
	AT(NV_CHANNEL_ALLOC_PARAMS, hObjectError, nv_channel_alloc, hObjectError);
	AT(NV_CHANNEL_ALLOC_PARAMS, hObjectEccError, nv_channel_alloc, hObjectEccError);
	SIZE(NV0080_ALLOC_PARAMETERS, nv0080_alloc);
	AT(NV0080_ALLOC_PARAMETERS, deviceId, nv0080_alloc, deviceId);
	AT(NV0080_ALLOC_PARAMETERS, hClientShare, nv0080_alloc, hClientShare);
	AT(NV0080_ALLOC_PARAMETERS, hTargetClient, nv0080_alloc, hTargetClient);
	SIZE(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, nv_group_alloc);
	AT(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, hVASpace, nv_group_alloc, hVASpace);
	AT(NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, engineType, nv_group_alloc, engineType);
	SIZE(NV_CTXSHARE_ALLOCATION_PARAMETERS, nv_ctxshare_alloc);
	AT(NV_CTXSHARE_ALLOCATION_PARAMETERS, hVASpace, nv_ctxshare_alloc, hVASpace);
	SIZE(NV0005_ALLOC_PARAMETERS, nv0005_alloc);
	AT(NV0005_ALLOC_PARAMETERS, hParentClient, nv0005_alloc, hParentClient);
	AT(NV0005_ALLOC_PARAMETERS, notifyIndex, nv0005_alloc, notifyIndex);

	SIZE(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, nv_export_object);
	AT(NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS, fd, nv_export_object, fd);
	SIZE(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, nv_import_object);
	AT(NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS, fd, nv_import_object, fd);
	SIZE(NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS, nv_create_export);
	AT(NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS, maxObjects, nv_create_export,
	   maxObjects);
	AT(NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS, fd, nv_create_export, fd);
	SIZE(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, nv_export_objects);
	AT(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, maxObjects, nv_export_objects,
	   maxObjects);
	AT(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, objects, nv_export_objects, objects);
	AT(NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS, index, nv_export_objects, index);
	SIZE(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, nv_import_objects);
	AT(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, objects, nv_import_objects, objects);
	AT(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, objectTypes, nv_import_objects,
	   types);
	AT(NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS, index, nv_import_objects, index);
	NUMBER("NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_NONE",
	       NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_NONE, 0);
	NUMBER("NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_TO_FD_MAX_OBJECTS",
	       NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_TO_FD_MAX_OBJECTS, 128);
	BYTES(NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS, 32);
	SIZE(NV2080_CTRL_GPU_GET_NVENC_SW_SESSION_INFO_PARAMS, nv_nvenc_sessions);
	BYTES(NV2080_CTRL_NVENC_SW_SESSION_INFO, 32);
	NUMBER("NV2080_CTRL_GPU_GET_NVFBC_SW_SESSION_INFO_PARAMS.sessionInfoCount",
	       offsetof(NV2080_CTRL_GPU_GET_NVFBC_SW_SESSION_INFO_PARAMS, sessionInfoCount), 0);
	SIZE(NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_VIDMEM_SIZE_PARAMS, nv_vidmem_size);
	AT(NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_VIDMEM_SIZE_PARAMS, unprotectedMemSizeInKb,
	   nv_vidmem_size, unprotectedMemSizeInKb);
	BYTES(NV83DE_CTRL_DEBUG_SET_MODE_MMU_DEBUG_PARAMS, 4);
	BYTES(NV2080_CTRL_GPU_GET_PIDS_PARAMS, 3812);
	SIZE(NV2080_CTRL_FB_GET_INFO_PARAMS, nv_fb_get_info);
	AT(NV2080_CTRL_FB_GET_INFO_PARAMS, fbInfoList, nv_fb_get_info, fbInfoList);
	BRANCH("fb_get_info_v2_size", sizeof(NV2080_CTRL_FB_GET_INFO_V2_PARAMS));
	AT(NV2080_CTRL_FB_GET_INFO_V2_PARAMS, fbInfoList, nv_fb_get_info_v2, fbInfoList);
	SIZE(NV2080_CTRL_FB_INFO, nv_fb_info);
	SIZE(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, nv_fifo_disable_channels);
	AT(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, numChannels,
	   nv_fifo_disable_channels, numChannels);
	AT(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, hClientList,
	   nv_fifo_disable_channels, hClientList);
	AT(NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS, hChannelList,
	   nv_fifo_disable_channels, hChannelList);
	SIZE(NVA06C_CTRL_TIMESLICE_PARAMS, nv_timeslice);
	AT(NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable, nv_gpfifo_schedule, bEnable);
	AT(NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, bSkipSubmit, nv_gpfifo_schedule, bSkipSubmit);

	/* of the log of context switches: core/rm/abi.h has them as numbers */
	BYTES(NV_EVENT_BUFFER_ALLOC_PARAMETERS, 72);
	BYTES(NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID_V2_PARAMS, 24);
	BYTES(NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS_PARAMS, 8);
	NUMBER("NV_EVENT_BUFFER_HEADER.recordPut", offsetof(NV_EVENT_BUFFER_HEADER, recordPut), 4);

	SIZE(nv_ioctl_xfer_t, nv_ioctl_xfer);
	AT(nv_ioctl_xfer_t, ptr, nv_ioctl_xfer, ptr);
	SIZE(nv_ioctl_register_fd_t, nv_ioctl_register_fd);
	SIZE(nv_ioctl_alloc_os_event_t, nv_ioctl_os_event);
	SIZE(nv_ioctl_free_os_event_t, nv_ioctl_os_event);
	AT(nv_ioctl_alloc_os_event_t, fd, nv_ioctl_os_event, fd);
	AT(nv_ioctl_alloc_os_event_t, Status, nv_ioctl_os_event, status);
	BRANCH("dmabuf_size", sizeof(nv_ioctl_export_to_dma_buf_fd_t));
	BRANCH("dmabuf_handles", offsetof(nv_ioctl_export_to_dma_buf_fd_t, handles));
	BRANCH("dmabuf_status", offsetof(nv_ioctl_export_to_dma_buf_fd_t, status));
	AT(nv_ioctl_export_to_dma_buf_fd_t, hClient, nv_ioctl_export_dmabuf, hClient);

	SIZE(UVM_INITIALIZE_PARAMS, uvm_initialize);
	AT(UVM_INITIALIZE_PARAMS, rmStatus, uvm_initialize, rmStatus);
	SIZE(UVM_REGISTER_GPU_PARAMS, uvm_register_gpu);
	AT(UVM_REGISTER_GPU_PARAMS, hClient, uvm_register_gpu, hClient);
	AT(UVM_REGISTER_GPU_PARAMS, rmStatus, uvm_register_gpu, rmStatus);
	SIZE(UVM_UNREGISTER_GPU_PARAMS, uvm_unregister_gpu);
	SIZE(UVM_REGISTER_GPU_VASPACE_PARAMS, uvm_register_vaspace);
	AT(UVM_REGISTER_GPU_VASPACE_PARAMS, hClient, uvm_register_vaspace, hClient);
	AT(UVM_REGISTER_GPU_VASPACE_PARAMS, rmStatus, uvm_register_vaspace, rmStatus);
	SIZE(UVM_REGISTER_CHANNEL_PARAMS, uvm_register_channel);
	AT(UVM_REGISTER_CHANNEL_PARAMS, hClient, uvm_register_channel, hClient);
	AT(UVM_REGISTER_CHANNEL_PARAMS, base, uvm_register_channel, base);
	AT(UVM_REGISTER_CHANNEL_PARAMS, rmStatus, uvm_register_channel, rmStatus);
	SIZE(UVM_UNREGISTER_GPU_VASPACE_PARAMS, uvm_unregister_vaspace);
	AT(UVM_UNREGISTER_GPU_VASPACE_PARAMS, rmStatus, uvm_unregister_vaspace, rmStatus);
	BRANCH("uvm_unregister_channel_size", sizeof(UVM_UNREGISTER_CHANNEL_PARAMS));
	NUMBER("UVM_UNREGISTER_CHANNEL_PARAMS: its tail",
	       sizeof(UVM_UNREGISTER_CHANNEL_PARAMS) -
		       offsetof(UVM_UNREGISTER_CHANNEL_PARAMS, hClient),
	       sizeof(struct uvm_unregister_channel_tail));
	BRANCH("uvm_map_external_size", sizeof(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS));
	NUMBER("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: its tail",
	       sizeof(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS) -
		       offsetof(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, gpuAttributesCount),
	       sizeof(struct uvm_map_external_tail));
	NUMBER("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: its status from there",
	       offsetof(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, rmStatus) -
		       offsetof(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, gpuAttributesCount),
	       offsetof(struct uvm_map_external_tail, rmStatus));
	NUMBER("UvmGpuMappingAttributes", sizeof(UvmGpuMappingAttributes),
	       sizeof(struct uvm_gpu_mapping));
	SIZE(UVM_UNMAP_EXTERNAL_PARAMS, uvm_unmap_external);
	AT(UVM_UNMAP_EXTERNAL_PARAMS, gpuUuid, uvm_unmap_external, gpu);
	AT(UVM_UNMAP_EXTERNAL_PARAMS, rmStatus, uvm_unmap_external, rmStatus);
	SIZE(UVM_CREATE_EXTERNAL_RANGE_PARAMS, uvm_create_external);
	AT(UVM_CREATE_EXTERNAL_RANGE_PARAMS, length, uvm_create_external, length);
	AT(UVM_CREATE_EXTERNAL_RANGE_PARAMS, rmStatus, uvm_create_external, rmStatus);
	BRANCH("uvm_free_size", sizeof(UVM_FREE_PARAMS));
	NUMBER("UVM_FREE_PARAMS: status to its end",
	       sizeof(UVM_FREE_PARAMS) - offsetof(UVM_FREE_PARAMS, rmStatus), 8);
	BRANCH("uvm_semaphore_pool_size", sizeof(UVM_ALLOC_SEMAPHORE_POOL_PARAMS));
	NUMBER("UVM_ALLOC_SEMAPHORE_POOL_PARAMS: status to its end",
	       sizeof(UVM_ALLOC_SEMAPHORE_POOL_PARAMS) -
		       offsetof(UVM_ALLOC_SEMAPHORE_POOL_PARAMS, rmStatus), 8);
#ifdef NVOS32_ATTR2_USE_EGM
	BRANCH("egm", true);
#else
	BRANCH("egm", false);
#endif
#ifdef UVM_ALLOC_DEVICE_P2P
	BRANCH("uvm_device_p2p_size", sizeof(UVM_ALLOC_DEVICE_P2P_PARAMS));
	AT(UVM_ALLOC_DEVICE_P2P_PARAMS, hMemory, uvm_alloc_device_p2p, hMemory);
	AT(UVM_ALLOC_DEVICE_P2P_PARAMS, rmStatus, uvm_alloc_device_p2p, rmStatus);
#endif
	return 0;
}
