// SPDX-License-Identifier: GPL-2.0-only
/*
 * From ctrl*.h and class/cl*.h of NVIDIA/open-gpu-kernel-modules 535.261.03,
 * 550.163.01, 570.195.03, 580.95.05 and 595.45.04: every parameter structure with
 * an NvP64, a pointer or a descriptor in it. What CUDA, PyTorch, NVML and
 * nvidia-smi use of these (tests/traces) is translated.
 */
#include "embedded.h"

#include <stddef.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* sorted; those of one control stand together */
static const struct embedded pointers[] = {
	{ 0x00000101, 8, 0, 1 },   /* NV0000 SYSTEM_GET_BUILD_VERSION */
	{ 0x00000101, 16, 0, 1 },
	{ 0x00000101, 24, 0, 1 },
	{ 0x00000202, 16, EMBEDDED_NONE, 0 }, /* NV0000 GPU_GET_ID_INFO */
	{ 0x00410110, 8, 0, 8 },   /* NV0041 GET_SURFACE_INFO */
	{ 0x00800201, 8, 0, 4 },   /* NV0080 GPU_GET_CLASSLIST */
	{ 0x00801102, 8, 0, 1 },   /* NV0080 GR_GET_CAPS */
	{ 0x00801104, 8, 0, 8 },   /* NV0080 GR_GET_INFO */
	{ 0x00801301, 8, 0, 1 },   /* NV0080 FB_GET_CAPS */
	{ 0x00801401, 8, 0, 1 },   /* NV0080 HOST_GET_CAPS */
	{ 0x00801701, 8, 0, 1 },   /* NV0080 FIFO_GET_CAPS */
	{ 0x0080170d, 8, 0, 4 },   /* NV0080 FIFO_GET_CHANNELLIST */
	{ 0x0080170d, 16, 0, 4 },
	{ 0x00801b01, 8, 0, 1 },   /* NV0080 MSENC_GET_CAPS */
	{ 0x00801c01, 8, 0, 1 },   /* NV0080 BSP_GET_CAPS */
	{ 0x20800101, 8, 0, 8 },   /* NV2080 GPU_GET_INFO */
	{ 0x20800123, 8, 0, 4 },   /* NV2080 GPU_GET_ENGINES */
	{ 0x20800124, 8, 4, 4 },   /* NV2080 GPU_GET_ENGINE_CLASSLIST */
	{ 0x20800802, 8, 0, 8 },   /* NV2080 BIOS_GET_INFO */
	{ 0x2080110b, 16, EMBEDDED_NONE, 0 }, /* NV2080 FIFO_DISABLE_CHANNELS: the kernel's own */
	{ 0x20801201, 8, 0, 8 },   /* NV2080 GR_GET_INFO */
	{ 0x20801301, 8, 0, 8 },   /* NV2080 FB_GET_INFO */
	{ 0x20801802, 8, 0, 8 },   /* NV2080 BUS_GET_INFO */
	{ 0x20802a01, 8, 4, 1 },   /* NV2080 CE_GET_CAPS */
};

/* ACPI, display, dumps, debuggers' memory, register operations, page tables, vGPU, I2C, … */
static const uint32_t refused[] = {
	0x00000127, 0x00000130, 0x00000283, 0x00000285, 0x00000602, 0x00000608, 0x00003d04,
	0x00003d0a, 0x003e0103, 0x00410114, 0x00730120, 0x0073015a, 0x00730168, 0x0073136a,
	0x00731371, 0x00801705, 0x0080180f, 0x00f80107, 0x00fd0103, 0x00fe0002, 0x20800122,
	0x2080016e, 0x20800178, 0x208001e8, 0x20800610, 0x20800803, 0x20800806, 0x20801219,
	0x20801220, 0x20801221, 0x20801222, 0x20801310, 0x20801327, 0x20801329, 0x2080132a,
	0x2080132c, 0x2080132d, 0x20801336, 0x20801349, 0x20802002, 0x20802204, 0x20802402,
	0x20803124, 0x20803a01, 0x402c0102, 0x402c0105, 0x50700102, 0x5070010e, 0x83de0315,
	0x83de0316, 0x83de0326, 0x83de0327, 0x90f10101, 0x90f10102, 0x90f10105, 0xa0800105,
	0xa0800207, 0xa0800301, 0xa0830103, 0xa0bc0101, 0xb0690106, 0xb06f010c, 0xb06f010d,
	0xc3650106, 0xc3690101, 0xc3690102, 0xc3690103, 0xc3690104,
};

int embedded_pointers(uint32_t cmd, const struct embedded **first)
{
	int count = 0;
	size_t i;

	*first = NULL;
	for (i = 0; i < COUNT(pointers); i++) {
		if (pointers[i].cmd != cmd)
			continue;
		if (!count++)
			*first = &pointers[i];
	}
	for (i = 0; !count && i < COUNT(refused); i++)
		if (refused[i] == cmd)
			return -1;
	return count;
}

int embedded_descriptor(uint32_t cmd)
{
	switch (cmd) {
	case 0x3d05: /* NV0000 OS_UNIX_EXPORT_OBJECT_TO_FD */
		return 16;
	case 0x3d06: /* NV0000 OS_UNIX_IMPORT_OBJECT_FROM_FD */
	case 0x3d08: /* NV0000 OS_UNIX_GET_EXPORT_OBJECT_INFO */
	case 0x3d0b: /* NV0000 OS_UNIX_EXPORT_OBJECTS_TO_FD */
	case 0x3d0c: /* NV0000 OS_UNIX_IMPORT_OBJECTS_FROM_FD */
		return 0;
	default:
		return -1;
	}
}

bool embedded_refuses_class(uint32_t hClass)
{
	switch (hClass) {
	case 0x0071: /* NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: by RM_ALLOC_MEMORY only */
	case 0x0078: /* NV01_EVENT_KERNEL_CALLBACK */
	case 0x007e: /* NV01_EVENT_KERNEL_CALLBACK_EX */
	case 0x0081: /* NV01_MEMORY_LIST_SYSTEM */
	case 0x0092: /* NV0092_RG_LINE_CALLBACK */
	case 0x00b1: /* NV01_MEMORY_HW_RESOURCES */
	case 0x00f1: /* NV_IMEX_SESSION */
	case 0x9010: /* NV9010_VBLANK_CALLBACK */
	case 0x90cd: /* NV_EVENT_BUFFER */
		return true;
	default:
		return false;
	}
}

int embedded_capability(uint32_t hClass)
{
	switch (hClass) {
	case 0x000f: /* FABRIC_MANAGER_SESSION */
	case 0xc638: /* AMPERE_SMC_EXEC_PARTITION_REF */
	case 0xc639: /* AMPERE_SMC_CONFIG_SESSION */
	case 0xc640: /* AMPERE_SMC_MONITOR_SESSION */
	case 0xc637: /* AMPERE_SMC_PARTITION_REF */
		return 0;
	default:
		return -1;
	}
}
