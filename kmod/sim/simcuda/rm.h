/* SPDX-License-Identifier: GPL-2.0-only */
/* NVIDIA's ioctl interface as a user program sees it; layouts as in ../abi.h. */
#ifndef SIMCUDA_RM_H
#define SIMCUDA_RM_H

#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t s32;
/* 32-bit programs lay u64 out as 64-bit ones do. */
typedef uint64_t u64 __attribute__((aligned(8)));

struct nvos00 { u32 hRoot, hObjectParent, hObjectOld, status; };
struct nvos02_fd { u32 hRoot, hObjectParent, hObjectNew, hClass, flags, pad; u64 pMemory, limit;
		   u32 status, pad2; s32 fd; u32 pad3; };
struct nvos21 { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms;
		u32 paramsSize, status; };
struct nvos32 { u32 hRoot, hObjectParent, function, hVASpace; u16 ivcHeapNumber, pad; u32 status;
		u64 total, free; u8 data[144]; };
struct nvos33_fd { u32 hClient, hDevice, hMemory, pad; u64 offset, length, pLinearAddress;
		   u32 status, flags; s32 fd; u32 pad2; };
struct nvos54 { u32 hClient, hObject, cmd, flags; u64 params; u32 paramsSize, status; };
struct nvos55 { u32 hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; };
struct nvos57 { u32 hClient, hObject, target, accessMask; u16 type; u8 action, pad; u32 status; };
struct nvos64 { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms, pRightsRequested;
		u32 paramsSize, flags, status, pad; };
struct nv_xfer { u32 cmd, size; u64 ptr; };
struct nv_memory_alloc { u32 owner, type, flags, width, height; s32 pitch; u32 attr, attr2, format,
			 comprCovg, zcullCovg, pad; u64 rangeLo, rangeHi, size, alignment, offset,
			 limit, address; u32 ctagOffset, hVASpace, internalflags, tag;
			 s32 numaNode; u32 pad2; };

#define RM_CHECK(type, bytes) \
	_Static_assert(sizeof(struct type) == (bytes), #type " has another size")
RM_CHECK(nvos00, 16);
RM_CHECK(nvos02_fd, 56);
RM_CHECK(nvos21, 32);
RM_CHECK(nvos32, 184);
RM_CHECK(nvos33_fd, 56);
RM_CHECK(nvos54, 32);
RM_CHECK(nvos55, 28);
RM_CHECK(nvos57, 24);
RM_CHECK(nvos64, 48);
RM_CHECK(nv_memory_alloc, 128);

#endif
