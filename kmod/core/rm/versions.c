// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A branch is its parent plus a delta. Sizes and offsets are those that a compiler gives for
 * NVIDIA/open-gpu-kernel-modules at 535.288.01, 550.163.01, 570.211.01, 580.142, 590.48.01 and
 * 595.44.03; tests/core/test_nvidia_layouts.py compares them where that source is at hand. 610 and
 * later follow what others published of them: docs/drivers.md names the sources and the gaps. To
 * add a branch: append its number to known[], then one `if` with what changed.
 */
#include "core/rm/versions.h"

static const uint32_t known[] = { 535, 550, 570, 580, 590, 595, 610, 615, 620 };

static uint32_t parse_branch(const char *version)
{
	uint32_t branch = 0;
	int digits = 0;

	while (*version >= '0' && *version <= '9' && digits < 4) {
		branch = branch * 10 + (uint32_t)(*version - '0');
		version++;
		digits++;
	}
	return (digits == 3 && *version == '.') ? branch : 0;
}

int cgpu_abi_find(const char *version, bool newest, struct cgpu_abi *abi)
{
	const uint32_t last = known[sizeof(known) / sizeof(known[0]) - 1];
	uint32_t asked = parse_branch(version);
	uint32_t branch = 0;
	size_t i;

	if (!asked)
		return -EINVAL;
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i] == asked)
			branch = asked;
	if (newest && asked > last)
		branch = last;
	if (!branch)
		return -EOPNOTSUPP;

	*abi = (struct cgpu_abi){
		.branch = branch,
		.guarded = branch != asked,
		.memory_alloc_size = 120,
		.channel_alloc_size = 360,
		.channel_userd_offset = 32,
		.vaspace_alloc_size = 48,
		.fb_get_info_v2_size = 436,
		.uvm_map_external_size = 1200,
		.uvm_semaphore_pool_size = 1184,
		.uvm_range_group_size = 16,
		.uvm_unregister_channel_size = 28,
		.uvm_free_size = 24,
		.map_dma_size = 56,
		.unmap_dma_size = 40,
		.dmabuf_size = 2600,
		.dmabuf_handles = 32,
		.dmabuf_status = 2592,
		.compared = branch < 610,
		.egm = branch >= 550 && branch < 595,
	};
	if (branch >= 550) {
		abi->memory_alloc_size = 128; /* numaNode */
		/* perGpuAttributes grew from 32 to 256 entries of 36 bytes */
		abi->uvm_map_external_size = 9264;
		abi->uvm_semaphore_pool_size = 9248;
		abi->fb_get_info_v2_size = 444;
		abi->unmap_dma_size = 48; /* size */
	}
	if (branch >= 570) {
		abi->channel_alloc_size = 368; /* tpcConfigID */
		abi->fb_get_info_v2_size = 460;
		abi->uvm_device_p2p_size = 56;
		abi->dmabuf_size = 2608;
		abi->dmabuf_handles = 36;
		abi->dmabuf_status = 2600;
	}
	if (branch >= 580) {
		abi->fb_get_info_v2_size = 1028;
		abi->map_dma_size = 64; /* flags2, kindOverride */
		abi->vaspace_alloc_size = 56; /* pasid */
	}
	if (branch >= 590) {
		abi->uvm_free_size = 16; /* no length: of the range that begins at base */
		abi->uvm_create_external_size = 24;
		abi->uvm_unregister_channel_size = 12; /* no gpuUuid */
	}
	if (branch >= 610) {
		/* hHandleVASpace stands before hUserdMemory; userdOffset is aligned to 8 */
		abi->channel_alloc_size = 376;
		abi->channel_userd_offset = 36;
		abi->channel_shift = 8;
		abi->uvm_range_group_size = 0;
	}
	return 0;
}
