// SPDX-License-Identifier: GPL-2.0-only
/*
 * Controls of a card that NVML, nvidia-smi and libcuda use, beyond memory and processes. Answers
 * follow recordings from an H200, fitted to the model. Clocks, power, temperature and fans go by
 * opaque controls without a public layout and stay NOT_SUPPORTED: nvidia-smi prints N/A for them.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/string.h>
#include "nvsim.h"

/* ---- the client's ---- */

/* Sizes of three strings, their pointers; build information. */
static u32 build_version(struct nvsim_ctl *c)
{
	struct { u32 size, pad; u64 driver, version, title; u32 changelist, official; } *p = c->p;

	if (p->driver)
		strscpy((char *)(uintptr_t)p->driver, nvsim_version, p->size);
	if (p->version)
		strscpy((char *)(uintptr_t)p->version, "simulated", p->size);
	if (p->title)
		strscpy((char *)(uintptr_t)p->title, "simulated", p->size);
	p->changelist = 0;
	p->official = 0;
	return NV_OK;
}

static u32 addr_space_type(struct nvsim_ctl *c)
{
	struct { u32 hObject, mapFlags, type; } *p = c->p;
	struct nvsim_object *obj = nvsim_object_find(c->client, p->hObject);

	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (nvsim_class_is_usermode(obj->class))
		p->type = 3;		/* REGMEM */
	else if (obj->mem && obj->mem->card)
		p->type = 2;		/* VIDMEM */
	else if (obj->mem || obj->class == RM_USER_SHARED_DATA)
		p->type = 1;		/* SYSMEM */
	else
		return NV_ERR_INVALID_OBJECT;
	return NV_OK;
}

static u32 accounting_state(struct nvsim_ctl *c)
{
	((u32 *)c->p)[2] = 1;		/* disabled */
	return nvsim_card_by_gpu_id(((u32 *)c->p)[0]) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

static u32 p2p_caps(struct nvsim_ctl *c)
{
	u32 *p = c->p;

	/* Counts and lists of cards lead; the rest is "none". */
	if (p[0] > 32 || p[1] > 32)
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

static u32 active_devices(struct nvsim_ctl *c)
{
	struct { u32 n; struct { u32 gpuId, gpuInstanceId, computeInstanceId; } d[]; } *p = c->p;
	int i;

	memset(c->p, 0, c->size);
	p->n = nvsim_ncards;
	for (i = 0; i < nvsim_ncards; i++) {
		p->d[i].gpuId = nvsim_cards[i].gpu_id;
		p->d[i].gpuInstanceId = 0xffffffff;
		p->d[i].computeInstanceId = 0xffffffff;
	}
	return NV_OK;
}

/* ---- the device's ---- */

static u32 one(struct nvsim_ctl *c)
{
	*(u32 *)c->p = 1;
	return NV_OK;
}

static u32 class_list(struct nvsim_card *card, u32 *n, u32 *list, u32 max)
{
	const struct nvsim_model *m = card->model;
	const u32 all[] = {
		NV01_ROOT, NV01_ROOT_NON_PRIV, NV01_CONTEXT_DMA, NV01_DEVICE_0, NV20_SUBDEVICE_0,
		NV01_EVENT, NV01_EVENT_OS_EVENT, NV01_MEMORY_SYSTEM, NV01_MEMORY_LOCAL_USER,
		NV01_ROOT_CLIENT, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, NV01_MEMORY_VIRTUAL,
		NV50_MEMORY_VIRTUAL, FERMI_VASPACE_A, KEPLER_CHANNEL_GROUP_A,
		FERMI_CONTEXT_SHARE_A, NV2081_BINAPI, GT200_DEBUGGER, m->channel_class,
		m->usermode_class, m->compute_class, m->copy_class,
	};
	u32 i, k = min_t(u32, ARRAY_SIZE(all), max);

	for (i = 0; i < k; i++)
		list[i] = all[i];
	*n = ARRAY_SIZE(all);
	return NV_OK;
}

static u32 class_list_v1(struct nvsim_ctl *c)
{
	struct { u32 n, pad; u64 list; } *p = c->p;

	return class_list(c->card, &p->n, (void *)(uintptr_t)p->list, p->list ? p->n : 0);
}

static u32 class_list_v2(struct nvsim_ctl *c)
{
	u32 *p = c->p;

	return class_list(c->card, p, p + 1, c->size / 4 - 1);
}

/* ---- the subdevice's ---- */

static uint mig;
module_param(mig, uint, 0644);
MODULE_PARM_DESC(mig, "cards that are in MIG mode, without an instance, by bit");

/* GPU_SMC_MODE: of cards that have no MIG, too, the H200's: disabled */
static u32 smc_mode(const struct nvsim_card *card)
{
	return READ_ONCE(mig) >> card->minor & 1 ? 1 : 2;
}

static u32 gpu_info(struct nvsim_ctl *c, u32 index, u32 *data)
{
	switch (index) {
	case 0x11: *data = 1; break;	/* MINOR_REVISION_EXT */
	case 0x27: *data = 1; break;
	case 0x2a: *data = smc_mode(c->card); break;
	case 0x37: *data = 1; break;
	case 0x3d: *data = 1; break;
	default: *data = 0;
	}
	return NV_OK;
}

static u32 gpu_info_v1(struct nvsim_ctl *c)
{
	return nvsim_info_at_pointer(c, gpu_info);
}

static u32 gpu_info_v2(struct nvsim_ctl *c)
{
	return nvsim_info_in_place(c, gpu_info);
}

static u32 name_string(struct nvsim_ctl *c)
{
	struct { u32 type; union { u8 ascii[128]; u16 wide[64]; }; } *p = c->p;
	const char *name = c->card->model->name;
	size_t i;

	if (p->type == 0) {
		memset(p->ascii, 0, sizeof(p->ascii));
		strscpy(p->ascii, name, 64);
		return NV_OK;
	}
	memset(p->wide, 0, sizeof(p->wide));
	for (i = 0; i < 63 && name[i]; i++)
		p->wide[i] = name[i];
	return NV_OK;
}

static u32 short_name(struct nvsim_ctl *c)
{
	static const struct { u16 id; const char *name; } chips[] = {
		{ 0x1eb8, "TU104-A" }, { 0x1db5, "GV100-A" }, { 0x2236, "GA102-A" },
		{ 0x20b0, "GA100-A" }, { 0x2335, "GH100GL-A" } };
	int i;

	memset(c->p, 0, c->size);
	for (i = 0; i < ARRAY_SIZE(chips); i++)
		if (chips[i].id == c->card->model->device_id)
			strscpy(c->p, chips[i].name, c->size);
	return NV_OK;
}

static u32 gid_info(struct nvsim_ctl *c)
{
	struct { u32 index, flags, length; u8 data[256]; } *p = c->p;

	if (p->index)
		return NV_ERR_INVALID_ARGUMENT;
	memset(p->data, 0, sizeof(p->data));
	p->length = nvsim_card_put_uuid(c->card, p->flags & 2, p->data, sizeof(p->data));
	return NV_OK;
}

static u32 arch_info(struct nvsim_ctl *c)
{
	struct { u32 architecture, implementation, revision; u8 subRevision, pad[3]; } *p = c->p;

	p->architecture = c->card->model->arch_id;
	p->implementation = c->card->model->impl;
	p->revision = 0xa1;
	p->subRevision = 0;
	return NV_OK;
}

static u32 pci_info(struct nvsim_ctl *c)
{
	u32 *p = c->p;

	p[0] = c->card->model->device_id << 16 | 0x10de;
	p[1] = c->card->model->subsystem_id << 16 | 0x10de;
	p[2] = 0xa1;
	p[3] = c->card->model->device_id << 16;
	return NV_OK;
}

/* Sixteen lanes of the generation that goes with the model. */
static u32 link_speed(const struct nvsim_card *card)
{
	return card->model->generation >= 4 ? 5 : card->model->generation >= 2 ? 4 : 3;
}

static u32 bus_info(struct nvsim_ctl *c, u32 index, u32 *data)
{
	u32 speed = link_speed(c->card);

	switch (index) {
	case 0x00: *data = 3; break;	/* TYPE: PCI Express */
	case 0x03:			/* PCIE_GPU_LINK_CAPS */
	case 0x04: *data = (speed - 1) * 0x110000 | 0x7900 | speed; break;
	case 0x07: *data = 0x11000000 | speed << 16; break;
	case 0x0b: *data = speed; break;
	default: *data = 0;
	}
	return NV_OK;
}

static u32 bus_info_v1(struct nvsim_ctl *c)
{
	return nvsim_info_at_pointer(c, bus_info);
}

static u32 bus_info_v2(struct nvsim_ctl *c)
{
	return nvsim_info_in_place(c, bus_info);
}

static u32 gr_info(struct nvsim_ctl *c, u32 index, u32 *data)
{
	const struct nvsim_model *m = c->card->model;

	switch (index) {
	case 0x08: *data = m->sm_count; break;	/* SHADER_PIPE_SUB_COUNT: SMs */
	case 0x09: *data = m->sm_count / 2; break;
	case 0x07: *data = 8; break;		/* GPCs */
	case 0x0d: *data = m->generation == 1 ? 32 : 64; break;	/* warps an SM */
	case 0x0e: *data = 32; break;		/* threads a warp */
	case 0x0c: *data = m->compute_major << 8 | m->compute_minor << 4; break;
	default: *data = 0;
	}
	return NV_OK;
}

/* count and pointer lead, as in the others; a route follows */
static u32 gr_info_v1(struct nvsim_ctl *c)
{
	return nvsim_info_at_pointer(c, gr_info);
}

static u32 engines(struct nvsim_ctl *c)
{
	static const u32 all[] = { 1, 9, 10, 11, 12 };	/* GR0, COPY0 to COPY3 */
	u32 *p = c->p;

	p[0] = ARRAY_SIZE(all);
	memcpy(p + 1, all, sizeof(all));
	return NV_OK;
}

/* the card's clock, which the log of context switches uses too */
static u32 timer_time(struct nvsim_ctl *c)
{
	*(u64 *)c->p = ktime_get_ns();
	return NV_OK;
}

static u32 time_correlation(struct nvsim_ctl *c)
{
	struct { u8 clock, samples, pad[6]; struct { u64 cpu, gpu; } s[16]; } *p = c->p;
	int i;

	if (p->samples > 16)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < p->samples; i++) {
		p->s[i].gpu = ktime_get_ns();
		p->s[i].cpu = ktime_get_real_ns() / 1000;
	}
	return NV_OK;
}

static u32 gsp_features(struct nvsim_ctl *c)
{
	struct { u32 features; u8 valid, bDefault; char version[64]; } *p = c->p;

	memset(c->p, 0, c->size);
	p->features = 1;
	p->bDefault = 1;
	strscpy(p->version, nvsim_version, sizeof(p->version));
	return NV_OK;
}

static u32 channel_list(struct nvsim_ctl *c)
{
	return NV_ERR_NOT_SUPPORTED;
}

static u32 class_engine_id(struct nvsim_ctl *c)
{
	struct { u32 hObject, classEngineId, classId, engineId; } *p = c->p;
	struct nvsim_object *obj = nvsim_object_find(c->client, p->hObject);

	if (!obj)
		return NV_ERR_OBJECT_NOT_FOUND;
	p->classId = obj->class;
	p->classEngineId = obj->class;
	p->engineId = obj->parent ? obj->parent->aux : 0;
	return NV_OK;
}

/* No process encodes or captures on this card: the count stands first. */
static u32 no_sessions(struct nvsim_ctl *c)
{
	if (c->size < sizeof(u32))
		return NV_ERR_INVALID_ARGUMENT;
	*(u32 *)c->p = 0;
	return NV_OK;
}

const struct nvsim_ctl_entry nvsim_nvml_controls[] = {
	CTL(0x00000101, CTL_ANY, 40, build_version),
	CTL(0x0000013a, CTL_ANY, 1352, p2p_caps),
	CTL(0x000001f0, CTL_ANY, 4, nvsim_ctl_zero),
	CTL(0x00000279, CTL_ANY, 12, nvsim_ctl_ok),
	CTL(0x0000027b, CTL_ANY, 4, nvsim_ctl_zero),
	CTL4(0x00000288, CTL_ANY, 0, 3076, 3076, 3076, active_devices),
	CTL(0x00000289, CTL_ANY, 4, nvsim_ctl_ok),
	CTL(0x00000290, CTL_ANY, 4, nvsim_ctl_ok),
	CTL(0x00000a04, CTL_ANY, 2244, nvsim_ctl_zero),
	CTL(0x00000b02, CTL_ANY, 12, accounting_state),
	CTL(0x00000b04, CTL_ANY, 0, nvsim_ctl_ok),	/* GPUACCT_GET_ACCOUNTING_PIDS: none */
	CTL(0x00000d01, CTL_ANY, 12, addr_space_type),
	CTL(0x00800201, CTL_ANY, 16, class_list_v1),
	CTL(0x00800280, CTL_ANY, 4, one),
	CTL(0x00800288, CTL_ANY, 4, one),		/* persistence: off */
	CTL4(0x00800289, CTL_ANY, 4, 4, 8, 8, nvsim_ctl_zero),
	CTL4(0x00800292, CTL_ANY, 644, 700, 404, 804, class_list_v2),
	CTL(0x00801307, CTL_ANY, 3, nvsim_ctl_zero),
	CTL(0x00801402, CTL_ANY, 3, nvsim_ctl_zero),
	CTL(0x0080170d, CTL_ANY, 24, channel_list),
	CTL(0x00801909, CTL_ANY, 1, nvsim_ctl_ok),
	CTL(0x20800101, CTL_ANY, 16, gpu_info_v1),
	CTL4(0x20800102, CTL_ANY, 516, 524, 524, 564, gpu_info_v2),
	CTL(0x20800110, CTL_ANY, 132, name_string),
	CTL(0x20800111, CTL_ANY, 64, short_name),
	CTL(0x20800119, CTL_ANY, 4, nvsim_ctl_zero),
	CTL(0x20800131, CTL_ANY, 4, nvsim_ctl_zero),
	CTL(0x2080014a, CTL_ANY, 268, gid_info),
	CTL(0x2080016d, CTL_ANY, 12, nvsim_ctl_zero),
	CTL(0x2080016e, CTL_ANY, 16, no_sessions),	/* GPU_GET_NVENC_SW_SESSION_INFO */
	CTL(0x2080017b, CTL_ANY, 12, nvsim_ctl_zero),
	CTL(0x2080017c, CTL_ANY, 0, no_sessions),	/* GPU_GET_NVFBC_SW_SESSION_INFO */
	CTL4(0x20800170, CTL_ANY, 252, 260, 340, 340, engines),
	CTL4(0x208001a3, CTL_ANY, 40, 48, 48, 56, nvsim_ctl_zero),
	CTL(0x20800403, CTL_ANY, 8, timer_time),
	CTL(0x20800406, CTL_ANY, 264, time_correlation),
	CTL(0x20801201, CTL_ANY, 32, gr_info_v1),
	CTL(0x20801701, CTL_ANY, 16, arch_info),
	CTL(0x20801801, CTL_ANY, 16, pci_info),
	CTL(0x20801802, CTL_ANY, 16, bus_info_v1),
	CTL(0x20801823, CTL_ANY, 420, bus_info_v2),
	CTL(0x2080182b, CTL_ANY, 28, nvsim_ctl_zero),
	CTL(0x20802a0a, CTL_ANY, 0, nvsim_ctl_zero),
	CTL(0x20803601, CTL_ANY, 72, gsp_features),
	CTL(0x906f0101, CTL_ANY, 16, class_engine_id),
	/* Controls that a CUDA context also sends; it needs only the answers above. */
	CTL(0x20800145, CTL_ANY, 0, nvsim_ctl_ok), /* ACQUIRE_COMPUTE_MODE_RESERVATION */
	CTL(0x20800146, CTL_ANY, 0, nvsim_ctl_ok),
	CTL(0x20800195, CTL_ANY, 260, nvsim_ctl_zero),
	CTL(0x20801218, CTL_ANY, 16, nvsim_ctl_ok),
	CTL4(0x2080121b, CTL_ANY, 6168, 6168, 6168, 9240, nvsim_ctl_zero),
	CTL(0x20801227, CTL_ANY, 48, nvsim_ctl_zero),
	CTL(0x2080122a, CTL_ANY, 24, nvsim_ctl_zero),
	CTL(0x2080122b, CTL_ANY, 24, nvsim_ctl_zero),
	CTL(0x20801230, CTL_ANY, 32, nvsim_ctl_zero),
	CTL(0x20801803, CTL_ANY, 200, nvsim_ctl_zero),
	CTL4(0x2080182a, CTL_ANY, 104, 104, 112, 112, nvsim_ctl_zero),
	CTL(0x2080200a, CTL_ANY, 8, nvsim_ctl_ok),
	CTL(0x2080220c, CTL_ANY, 0, nvsim_ctl_ok),
	CTL(0x20802210, CTL_ANY, 0, nvsim_ctl_ok),
	CTL4(0x20803002, CTL_ANY, 5896, 5896, 13320, 13344, nvsim_ctl_zero),
	CTL(0x20803801, CTL_ANY, 1928, nvsim_ctl_zero),
	CTL(0x503c0102, CTL_ANY, 16, nvsim_ctl_ok),		/* REGISTER_VA_SPACE */
	CTL(0x503c0104, CTL_ANY, 32, nvsim_ctl_ok),		/* REGISTER_VIDMEM */
	CTL(0x503c0105, CTL_ANY, 4, nvsim_ctl_ok),
	CTL(0x83de0309, CTL_ANY, 4, nvsim_ctl_ok),
	CTL(0x90e60102, CTL_ANY, 8, nvsim_ctl_zero),
	CTL4(0xcb330101, CTL_ANY, 5, 6, 6, 6, nvsim_ctl_zero),
	{}
};
