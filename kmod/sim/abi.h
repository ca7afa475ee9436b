/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Numbers of NVIDIA's ioctl interface, and those layouts of it that the core does not
 * read, as far as the simulated driver speaks them; the others are the core's. Names keep
 * NVIDIA's spelling; each block names the header of the open kernel modules that defines
 * it. Sizes are told from those headers once more, and numbers written independently of
 * kmod/core/rm/abi.h: a wrong one there must fail here.
 */
#ifndef NVSIM_ABI_H
#define NVSIM_ABI_H

#include <linux/build_bug.h>
#include <linux/types.h>

#include "core/rm/structs.h"

/* nv-ioctl-numbers.h, nv_escape.h */
#define NV_ESC_RM_ALLOC_MEMORY		0x27
#define NV_ESC_RM_ALLOC_OBJECT		0x28
#define NV_ESC_RM_FREE			0x29
#define NV_ESC_RM_CONTROL		0x2a
#define NV_ESC_RM_ALLOC			0x2b
#define NV_ESC_RM_DUP_OBJECT		0x34
#define NV_ESC_RM_SHARE			0x35
#define NV_ESC_RM_IDLE_CHANNELS		0x41
#define NV_ESC_RM_VID_HEAP_CONTROL	0x4a
#define NV_ESC_RM_ACCESS_REGISTRY	0x4d
#define NV_ESC_RM_MAP_MEMORY		0x4e
#define NV_ESC_RM_UNMAP_MEMORY		0x4f
#define NV_ESC_RM_GET_EVENT_DATA	0x52
#define NV_ESC_RM_ALLOC_CONTEXT_DMA2	0x54
#define NV_ESC_RM_MAP_MEMORY_DMA	0x57
#define NV_ESC_RM_UNMAP_MEMORY_DMA	0x58
#define NV_ESC_RM_BIND_CONTEXT_DMA	0x59
#define NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO 0x5e
#define NV_ESC_CARD_INFO		200
#define NV_ESC_REGISTER_FD		201
#define NV_ESC_ALLOC_OS_EVENT		206
#define NV_ESC_FREE_OS_EVENT		207
#define NV_ESC_STATUS_CODE		209
#define NV_ESC_CHECK_VERSION_STR	210
#define NV_ESC_IOCTL_XFER_CMD		211
#define NV_ESC_ATTACH_GPUS_TO_FD	212
#define NV_ESC_QUERY_DEVICE_INTR	213
#define NV_ESC_SYS_PARAMS		214
#define NV_ESC_NUMA_INFO		215
#define NV_ESC_SET_NUMA_STATUS		216
#define NV_ESC_EXPORT_TO_DMABUF_FD	217
#define NV_ESC_WAIT_OPEN_COMPLETE	218
#define NV_ABSOLUTE_MAX_IOCTL_SIZE	16384

/* nvstatuscodes.h */
#define NV_OK				0x00
#define NV_ERR_BUFFER_TOO_SMALL		0x02
#define NV_ERR_GPU_UUID_NOT_FOUND	0x12
#define NV_ERR_ILLEGAL_ACTION		0x16
#define NV_ERR_IN_USE			0x17
#define NV_ERR_INSERT_DUPLICATE_NAME	0x19
#define NV_ERR_INSUFFICIENT_RESOURCES	0x1a
#define NV_ERR_INSUFFICIENT_PERMISSIONS	0x1b
#define NV_ERR_INVALID_ACCESS_TYPE	0x1d
#define NV_ERR_INVALID_ADDRESS		0x1e
#define NV_ERR_INVALID_ARGUMENT		0x1f
#define NV_ERR_INVALID_BASE		0x20
#define NV_ERR_INVALID_CHANNEL		0x21
#define NV_ERR_INVALID_CLASS		0x22
#define NV_ERR_INVALID_CLIENT		0x23
#define NV_ERR_INVALID_DEVICE		0x26
#define NV_ERR_INVALID_EVENT		0x28
#define NV_ERR_INVALID_FLAGS		0x29
#define NV_ERR_INVALID_LIMIT		0x2e
#define NV_ERR_INVALID_OBJECT		0x31
#define NV_ERR_INVALID_OBJECT_HANDLE	0x33
#define NV_ERR_INVALID_OBJECT_PARENT	0x36
#define NV_ERR_INVALID_OFFSET		0x37
#define NV_ERR_INVALID_OPERATION	0x38
#define NV_ERR_INVALID_OWNER		0x39
#define NV_ERR_INVALID_PARAM_STRUCT	0x3a
#define NV_ERR_INVALID_PARAMETER	0x3b
#define NV_ERR_INVALID_STATE		0x40
#define NV_ERR_NO_MEMORY		0x51
#define NV_ERR_NOT_SUPPORTED		0x56
#define NV_ERR_OBJECT_NOT_FOUND		0x57
#define NV_ERR_OPERATING_SYSTEM		0x59
#define NV_ERR_OUT_OF_RANGE		0x5b
#define NV_ERR_STATE_IN_USE		0x63
#define NV_ERR_TIMEOUT			0x65
#define NV_ERR_UVM_ADDRESS_IN_USE	0x68
#define NV_ERR_LIB_RM_VERSION_MISMATCH	0x6a
#define NV_ERR_PAGE_TABLE_NOT_AVAIL	0x5d
#define NV_ERR_GENERIC			0xffff
#define NV_WARN_NOTHING_TO_DO		0x10006

/* class/cl*.h */
#define NV01_ROOT			0x00
#define NV01_ROOT_NON_PRIV		0x01
#define NV01_CONTEXT_DMA		0x02
#define NV01_EVENT			0x05
#define NV01_MEMORY_SYSTEM		0x3e
#define NV01_MEMORY_LOCAL_PRIVILEGED	0x3f
#define NV01_MEMORY_LOCAL_USER		0x40
#define NV01_ROOT_CLIENT		0x41
#define NV_MEMORY_EXTENDED_USER		0x42
#define NV01_MEMORY_VIRTUAL		0x70
#define NV01_MEMORY_SYSTEM_OS_DESCRIPTOR 0x71
#define NV04_DISPLAY_COMMON		0x73
#define NV01_MEMORY_FRAMEBUFFER_CONSOLE	0x76
#define NV01_EVENT_KERNEL_CALLBACK	0x78
#define NV01_EVENT_OS_EVENT		0x79
#define NV01_EVENT_KERNEL_CALLBACK_EX	0x7e
#define NV01_DEVICE_0			0x80
#define NV01_MEMORY_LIST_SYSTEM		0x81
#define NV01_MEMORY_LIST_FBMEM		0x82
#define NV01_MEMORY_LIST_OBJECT		0x83
#define NV01_MEMORY_LOCAL_PHYSICAL	0xc2
#define NV01_MEMORY_FLA			0xf3
#define NV_SEMAPHORE_SURFACE		0xda
#define RM_USER_SHARED_DATA		0xde
#define NV20_SUBDEVICE_0		0x2080
#define NV2081_BINAPI			0x2081
#define NV50_MEMORY_VIRTUAL		0x50a0
#define GT200_DEBUGGER			0x83de
#define FERMI_CONTEXT_SHARE_A		0x9067
#define FERMI_VASPACE_A			0x90f1
#define NV_EVENT_BUFFER			0x90cd
#define NV01_MEMORY_DEVICELESS		0x90ce
#define KEPLER_CHANNEL_GROUP_A		0xa06c
#define VOLTA_CHANNEL_GPFIFO_A		0xc36f
#define VOLTA_USERMODE_A		0xc361
#define VOLTA_COMPUTE_A			0xc3c0
#define VOLTA_DMA_COPY_A		0xc3b5

/* nvos.h */
static_assert(sizeof(struct nvos00) == 16);
static_assert(sizeof(struct nvos02_fd) == 56);
static_assert(sizeof(struct nvos05) == 20);
static_assert(sizeof(struct nvos21) == 32);
static_assert(sizeof(struct nvos30) == 56);
static_assert(sizeof(struct nvos32) == 184);
static_assert(sizeof(struct nvos33_fd) == 56);
static_assert(sizeof(struct nvos34) == 32);
static_assert(sizeof(struct nvos39) == 56);
static_assert(sizeof(struct nvos54) == 32);
static_assert(sizeof(struct nvos55) == 28);
static_assert(sizeof(struct nvos57) == 24);
static_assert(sizeof(struct nvos64) == 48);

#define NVOS32_FUNCTION_ALLOC_SIZE		2
#define NVOS32_FUNCTION_FREE			3
#define NVOS32_FUNCTION_INFO			5
#define NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT 6
#define NVOS32_FUNCTION_DUMP			11
#define NVOS32_FUNCTION_ALLOC_SIZE_RANGE	14
#define NVOS32_FUNCTION_RELEASE_COMPR		16
#define NVOS32_FUNCTION_GET_MEM_ALIGNMENT	18
#define NVOS32_FUNCTION_HW_ALLOC		19
#define NVOS32_FUNCTION_HW_FREE			20
#define NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR	27
#define NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE 0x10
#define NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE	0x100
#define NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED 0x4000
#define NVOS32_ALLOC_FLAGS_VIRTUAL		0x80000
#define NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED 0x1
#define NVOS32_ATTR_LOCATION(attr)		(((attr) >> 25) & 3)
#define NVOS32_ATTR_LOCATION_VIDMEM		0
#define NVOS32_ATTR_LOCATION_PCI		1
#define HEAP_OWNER_RM_CLIENT_GENERIC		0xdeaf0006
#define NVOS32_ATTR_PAGE_SIZE(attr)		(((attr) >> 23) & 3)
#define NVOS32_ATTR2_PAGE_SIZE_HUGE(attr2)	(((attr2) >> 20) & 3)
#define NVOS32_ATTR2_PROTECTION_USER_READ_ONLY	(1u << 22)
#define NVOS32_ATTR2_USE_EGM			(1u << 24)
#define NVOS02_FLAGS_LOCATION(f)		(((f) >> 8) & 0xf)
#define NVOS02_FLAGS_ALLOC(f)			(((f) >> 16) & 3)
#define NVOS02_FLAGS_MAPPING(f)			(((f) >> 30) & 3)
#define NVOS33_FLAGS_ACCESS(f)			(3 & (f))
#define NVOS33_FLAGS_ACCESS_READ_ONLY		1
#define NVOS33_FLAGS_MEM_SPACE_USER		(1u << 14)
#define NVOS54_FLAGS_IRQL_RAISED		0x1
#define NVOS54_FLAGS_LOCK_BYPASS		0x2
#define NVOS54_FLAGS_FINN_SERIALIZED		0x4
#define NV04_DUP_HANDLE_FLAGS_REJECT_KERNEL_DUP_PRIVILEGE 1

/* rs_access.h */
#define RS_ACCESS_DUP_OBJECT		(1u << 0)
#define RS_SHARE_TYPE_NONE		0
#define RS_SHARE_TYPE_ALL		1
#define RS_SHARE_TYPE_OS_SECURITY_TOKEN	2
#define RS_SHARE_TYPE_CLIENT		3
#define RS_SHARE_TYPE_PID		4
#define RS_SHARE_TYPE_GPU		6
#define RS_SHARE_TYPE_MAX		8
#define RS_SHARE_ACTION_FLAG_REVOKE	1
#define RS_SHARE_ACTION_FLAG_COMPOSE	4

/* Allocation parameters: nvos.h, class/cl0080.h, alloc/alloc_channel.h */
static_assert(sizeof(struct nv_memory_alloc) == 128);
static_assert(offsetof(struct nv_memory_alloc, size) == 64);
static_assert(offsetof(struct nv_memory_alloc, tag) == 116);

static_assert(sizeof(struct nv0080_alloc) == 56);
static_assert(sizeof(struct nv_group_alloc) == 20);
static_assert(sizeof(struct nv0005_alloc) == 24);
struct nv_memory_virtual_alloc { u64 offset, limit; u32 hVASpace, pad; };
struct nv_physical_alloc { u64 memSize; u32 format, pageSize; };

/* NV_CHANNEL_ALLOC_PARAMS: what is after its beginning differs by branch */
#define NV_CHANNEL_ALLOC_SIZE_550	360
#define NV_CHANNEL_ALLOC_SIZE_570	368
#define NV_CHANNEL_ALLOC_SIZE_610	376
static_assert(offsetof(struct nv_channel_alloc, hContextShare) == 24);
static_assert(offsetof(struct nv_channel_alloc, hUserdMemory) == 32);
static_assert(offsetof(struct nv_channel_alloc, userdOffset) == 64);
static_assert(offsetof(struct nv_channel_alloc, engineType) == 128);
static_assert(offsetof(struct nv_channel_alloc, cid) == 132);
#define NV2080_ENGINE_TYPE_GR0		1
#define NV2080_ENGINE_TYPE_COPY0	9
#define NV2080_ENGINE_TYPE_COPY_LAST	18

/* class/cl90cd.h, cl90cdtypes.h, cl90cdfecs.h, ctrl/ctrl90cd.h, ctrl2080gr.h */
static_assert(sizeof(struct nv_event_buffer_alloc) == 72);
static_assert(offsetof(struct nv_event_buffer_alloc, hSubDevice) == 52);
static_assert(offsetof(struct nv_event_buffer_alloc, hRecordBuffer) == 64);
static_assert(offsetof(struct nv_event_buffer_header, recordPut) == 4);
static_assert(sizeof(struct nv_fecs_record_v2) == 24);
static_assert(offsetof(struct nv_fecs_entry, fecs.seqno) == 10);
static_assert(offsetof(struct nv_fecs_entry, fecs.pid) == 16);
static_assert(offsetof(struct nv_fecs_entry, fecs.timestamp) == 24);
static_assert(sizeof(struct nv_fecs_bind_evtbuf) == 24);
static_assert(sizeof(struct nv_event_buffer_enable) == 8);
#define NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH_V2	2
#define NV_EVENT_BUFFER_FLAG_KEEP_OLDEST	1
#define NV_EVENT_BUFFER_FLAG_KEEP_NEWEST	2
#define NV_EVENT_BUFFER_FECS_CTXSW_REQ_BY_HOST	1
#define NV_EVENT_BUFFER_FECS_SAVE_END		3
#define NV_EVENT_BUFFER_FECS_RESTORE_START	4
#define NV_EVENT_BUFFER_FECS_CONTEXT_START	5
#define NV_EVENT_BUFFER_FECS_SIMPLE_START	6
#define NV_EVENT_BUFFER_FECS_SIMPLE_END		7
#define NV_EVENT_BUFFER_HIDDEN_PID		0
#define NV_EVENT_BUFFER_HIDDEN_CONTEXT		0
#define NV_EVENT_BUFFER_KERNEL_PID		0xffffffffu
#define NV_EVENT_BUFFER_KERNEL_CONTEXT		0xffffffffu
#define NV_EVENT_BUFFER_INVALID_MIG		0xff
#define NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_FULL	0
#define NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_SIMPLE	1
#define NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_COMPAT	2
#define NV2080_CTRL_GR_FECS_BIND_EVTBUF_LOD_CUSTOM	3

/* nv-ioctl.h */
struct nv_ioctl_card_info {
	u8 valid, pad[3];
	u32 domain;
	u8 bus, slot, function, pad2;
	u16 vendor_id, device_id;
	u32 gpu_id;
	u16 interrupt_line, pad3;
	u64 reg_address, reg_size, fb_address, fb_size;
	u32 minor_number;
	u8 dev_name[10], pad4[2];
};
static_assert(sizeof(struct nv_ioctl_card_info) == 72);
static_assert(offsetof(struct nv_ioctl_card_info, reg_address) == 24);
struct nv_ioctl_version { u32 cmd, reply; char str[64]; };
struct nv_ioctl_status_code { u32 domain; u8 bus, slot, pad[2]; u32 status; };
struct nv_ioctl_wait_open { s32 rc; u32 adapterStatus; };
#define NV_IOCTL_NUMA_INFO_SIZE		560
/* ctrl0000unix.h */
#define NVSIM_EXPORT_LIST		512
#define NVSIM_NO_DEVICE			32	/* NV_MAX_DEVICES */
#define NVSIM_IMPORT_NONE		0
#define NVSIM_IMPORT_VIDMEM		1
#define NVSIM_IMPORT_SYSMEM		2

#define NV_DMABUF_EXPORT_MAX_HANDLES	128

/* uvm_ioctl.h, uvm_linux_ioctl.h */
#define UVM_INITIALIZE			0x30000001
#define UVM_DEINITIALIZE		0x30000002
#define UVM_CREATE_RANGE_GROUP		23
#define UVM_DESTROY_RANGE_GROUP		24
#define UVM_REGISTER_GPU_VASPACE	25
#define UVM_UNREGISTER_GPU_VASPACE	26
#define UVM_REGISTER_CHANNEL		27
#define UVM_UNREGISTER_CHANNEL		28
#define UVM_ENABLE_PEER_ACCESS		29
#define UVM_DISABLE_PEER_ACCESS		30
#define UVM_SET_RANGE_GROUP		31
#define UVM_MAP_EXTERNAL_ALLOCATION	33
#define UVM_FREE			34
#define UVM_REGISTER_GPU		37
#define UVM_UNREGISTER_GPU		38
#define UVM_PAGEABLE_MEM_ACCESS		39
#define UVM_SET_PREFERRED_LOCATION	42
#define UVM_UNSET_PREFERRED_LOCATION	43
#define UVM_ENABLE_READ_DUPLICATION	44
#define UVM_DISABLE_READ_DUPLICATION	45
#define UVM_SET_ACCESSED_BY		46
#define UVM_UNSET_ACCESSED_BY		47
#define UVM_MIGRATE			51
#define UVM_MAP_DYNAMIC_PARALLELISM_REGION 65
#define UVM_UNMAP_EXTERNAL		66
#define UVM_ALLOC_SEMAPHORE_POOL	68
#define UVM_CLEAN_UP_ZOMBIE_RESOURCES	69
#define UVM_PAGEABLE_MEM_ACCESS_ON_GPU	70
#define UVM_POPULATE_PAGEABLE		71
#define UVM_VALIDATE_VA_RANGE		72
#define UVM_CREATE_EXTERNAL_RANGE	73
#define UVM_MAP_EXTERNAL_SPARSE		74
#define UVM_MM_INITIALIZE		75
/* of the device nvidia-uvm-tools */
#define UVM_TOOLS_INIT_EVENT_TRACKER	56
#define UVM_TOOLS_SET_NOTIFICATION_THRESHOLD 57
#define UVM_TOOLS_EVENT_QUEUE_ENABLE_EVENTS 58
#define UVM_TOOLS_EVENT_QUEUE_DISABLE_EVENTS 59
#define UVM_TOOLS_ENABLE_COUNTERS	60
#define UVM_TOOLS_DISABLE_COUNTERS	61

/* nvos.h: NV_OS_DESC_MEMORY_ALLOCATION_PARAMS */
struct nv_os_desc_alloc { u32 type, flags, attr, attr2; u64 descriptor, limit;
			  u32 descriptorType, tag; };
static_assert(sizeof(struct nv_os_desc_alloc) == 40);

#endif
