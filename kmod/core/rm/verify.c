// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The edge of mapped memory reveals a size. A driver copies exactly the bytes of its own structure,
 * before it looks at any of them: it reads past the edge if that is longer than ours, and does not
 * notice that a word is missing if it is shorter. Such calls do nothing: they name client 0, which
 * does not exist, and UVM's go to a file without an address space.
 *
 * Escapes need no edge: the driver compares their size, and the place of its status is visible. Nor
 * do controls: the driver refuses one that is not of its size, and cgpu_decode() one that is not of
 * ours. So a changed control fails and is not misread.
 *
 * Allocations in both ways that exist show whether the driver counts memory as we do: its own
 * figure of free memory is compared with ours.
 *
 * This cannot find fields that changed places within a structure of the same size, other than those
 * which these calls use.
 */
#include "core/rm/abi.h"
#include "core/rm/allowed.h"
#include "core/rm/verify.h"

enum stage { ESCAPES, COMMANDS, CLASSES, MEMORY, OVER };

enum {
	UNTOUCHED = 0x5a5a5a5a,
	WORD_BYTES = 4,
	DEVICE_HANDLE = 0x46700001,
	SUBDEVICE_HANDLE = 0x46700002,
	MEMORY_HANDLE = 0x46700003,
	DUPLICATE_HANDLE = 0x46700004,
	SUBDEVICE_BYTES = 4,
	INFO_ENTRIES = 3,
	TRIES = 3,              /* others allocate, too */
	WAITS = 200             /* of CGPU_VERIFY_WAIT_MS: what is freed is wiped first */
};

static const uint64_t taken_step_bytes = 32ull << 20;
/* to which an allocation may be rounded up, and what a driver keeps of it for itself */
static const uint64_t slack_bytes = 4ull << 20;

/* They name a client and do nothing without one. */
static const uint8_t escapes[] = {
	NV_ESC_RM_FREE, NV_ESC_RM_CONTROL, NV_ESC_RM_DUP_OBJECT, NV_ESC_RM_SHARE,
	NV_ESC_RM_VID_HEAP_CONTROL, NV_ESC_RM_MAP_MEMORY, NV_ESC_RM_UNMAP_MEMORY,
	NV_ESC_RM_ALLOC_CONTEXT_DMA2, NV_ESC_RM_MAP_MEMORY_DMA, NV_ESC_RM_UNMAP_MEMORY_DMA,
	NV_ESC_RM_BIND_CONTEXT_DMA, NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO,
};

void cgpu_verify_begin(struct cgpu_verify *verify, const struct cgpu_abi *abi,
		       uint32_t device_instance)
{
	memset(verify, 0, sizeof(*verify));
	verify->abi = abi;
	verify->device_instance = device_instance;
	verify->is_short = true;
}

static void fail(struct cgpu_verify *verify, const char *what, uint32_t number, const char *why)
{
	verify->what = what;
	verify->number = number;
	verify->why = why;
}

static void call(struct cgpu_verify *verify, uint32_t device, uint32_t nr, uint32_t args_bytes)
{
	verify->device = device;
	verify->nr = nr;
	verify->args_bytes = args_bytes;
	verify->params_bytes = 0;
	verify->params_ptr_offset = 0;
	verify->wait_ms = 0;
	memset(verify->args, 0, args_bytes);
}

/* Where the status is, by what decode.c makes of the argument. */
static uint32_t status_place(const struct cgpu_verify *verify)
{
	struct cgpu_request req;

	if (cgpu_decode(verify->abi, verify->device, verify->nr, verify->args,
			verify->args_bytes, &req))
		return CGPU_NO_OFFSET;
	return req.status_offset;
}

/* ------------------------------------------------------------ escapes */

static bool ask_escape(struct cgpu_verify *verify)
{
	uint32_t nr;

	if (verify->index == sizeof(escapes))
		return false;
	nr = escapes[verify->index];
	call(verify, CGPU_DEVICE_CTL, nr, cgpu_struct_bytes(verify->abi, CGPU_DEVICE_CTL, nr));
	cgpu_put32(verify->args, status_place(verify), UNTOUCHED);
	return true;
}

static void judge_escape(struct cgpu_verify *verify, long result)
{
	if (result)
		fail(verify, "escape", verify->nr, "its structure has another size");
	else if (cgpu_get32(verify->args, status_place(verify)) == UNTOUCHED)
		fail(verify, "escape", verify->nr, "its status is in another place");
	verify->index++;
}

/* ----------------------------------------------------- commands of UVM */

static bool ask_command(struct cgpu_verify *verify)
{
	uint32_t bytes, place;

	for (; verify->index < CGPU_UVM_COMMANDS; verify->index++) {
		bytes = cgpu_struct_bytes(verify->abi, CGPU_DEVICE_UVM, verify->index);
		if (!bytes)
			continue;
		call(verify, CGPU_DEVICE_UVM, verify->index, bytes);
		place = status_place(verify);
		if (place != CGPU_NO_OFFSET)
			cgpu_put32(verify->args, place, UNTOUCHED);
		if (verify->is_short)
			verify->args_bytes -= WORD_BYTES;
		return true;
	}
	return false;
}

static void judge_command(struct cgpu_verify *verify, long result)
{
	static const char *const what = "UVM command";
	uint32_t place;

	if (verify->is_short && result == -EINVAL) {
		/* the driver no longer has it, so no call of it can be misread */
		verify->checks--;
		verify->index++;
		return;
	}
	if (verify->is_short) {
		if (result != -EFAULT)
			fail(verify, what, verify->nr, "its structure is shorter");
		verify->is_short = false;
		return;
	}
	place = status_place(verify);
	if (result == -EFAULT)
		fail(verify, what, verify->nr, "its structure is longer");
	else if (result)
		fail(verify, what, verify->nr, "the driver refuses its structure");
	else if (place != CGPU_NO_OFFSET &&
		 cgpu_get32(verify->args, place) != NV_ERR_ILLEGAL_ACTION)
		fail(verify, what, verify->nr, "its status is in another place");
	verify->is_short = true;
	verify->index++;
}

/* ------------------------------------- parameters that objects are made with */

static void call_alloc(struct cgpu_verify *verify, uint32_t hParent, uint32_t hObject,
		       uint32_t hClass, uint32_t params_bytes)
{
	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_ALLOC, sizeof(struct nvos64));
	cgpu_put32(verify->args, offsetof(struct nvos64, hRoot), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos64, hObjectParent), hParent);
	cgpu_put32(verify->args, offsetof(struct nvos64, hObjectNew), hObject);
	cgpu_put32(verify->args, offsetof(struct nvos64, hClass), hClass);
	cgpu_put32(verify->args, offsetof(struct nvos64, status), UNTOUCHED);
	verify->params_bytes = params_bytes;
	verify->params_ptr_offset = offsetof(struct nvos64, pAllocParms);
	memset(verify->params, 0, params_bytes);
}

static bool ask_class(struct cgpu_verify *verify)
{
	const struct cgpu_rule *rule;
	uint32_t bytes;

	for (; (rule = cgpu_class_at(verify->index)); verify->index++) {
		bytes = cgpu_class_bytes(verify->abi, rule);
		if (rule->judge != CGPU_JUDGE_CORE || !bytes)
			continue;
		/* of client 0, under an object that is not there */
		call_alloc(verify, DEVICE_HANDLE, MEMORY_HANDLE, rule->number,
			   verify->is_short ? bytes - WORD_BYTES : bytes);
		return true;
	}
	if (!verify->channels)
		fail(verify, "class", CGPU_CHANNEL_CLASS_LOW_BYTE,
		     "the driver has no channel that is known");
	return false;
}

static void judge_class(struct cgpu_verify *verify, long result)
{
	const struct cgpu_rule *rule = cgpu_class_at(verify->index);
	uint32_t status = cgpu_get32(verify->args, offsetof(struct nvos64, status));
	bool channel = cgpu_is_channel_class(rule->number);

	if (result || status == UNTOUCHED) {
		fail(verify, "escape", verify->nr, "its structure has another size");
	} else if (status == NV_ERR_INVALID_CLASS) {
		/* the driver no longer has it, or not yet */
		verify->is_short = false;
		verify->checks--;
	} else if (verify->is_short && status != NV_ERR_INVALID_ADDRESS) {
		fail(verify, "class", rule->number, "its parameters are shorter");
	} else if (!verify->is_short && status == NV_ERR_INVALID_ADDRESS) {
		fail(verify, "class", rule->number, "its parameters are longer");
	} else {
		verify->channels |= channel;
	}
	verify->index += !verify->is_short;
	verify->is_short = !verify->is_short;
}

/* --------------------------------------------------------------- memory */

static void call_free(struct cgpu_verify *verify, uint32_t hObject)
{
	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_FREE, sizeof(struct nvos00));
	cgpu_put32(verify->args, offsetof(struct nvos00, hRoot), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos00, hObjectOld), hObject);
	cgpu_put32(verify->args, offsetof(struct nvos00, status), UNTOUCHED);
}

static void ask_client(struct cgpu_verify *verify)
{
	verify->hClient = 0;
	verify->taken_bytes += taken_step_bytes;
	call_alloc(verify, 0, 0, NV01_ROOT_CLIENT, 0);
	verify->params_ptr_offset = 0;
}

static void ask_device(struct cgpu_verify *verify)
{
	call_alloc(verify, verify->hClient, DEVICE_HANDLE, NV01_DEVICE_0,
		   sizeof(struct nv0080_alloc));
	cgpu_put32(verify->params, offsetof(struct nv0080_alloc, deviceId),
		   verify->device_instance);
}

static void ask_subdevice(struct cgpu_verify *verify)
{
	call_alloc(verify, DEVICE_HANDLE, SUBDEVICE_HANDLE, NV20_SUBDEVICE_0, SUBDEVICE_BYTES);
}

static void ask_free_bytes(struct cgpu_verify *verify)
{
	static const uint32_t wanted[INFO_ENTRIES] = {
		NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE, NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE,
		NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE,
	};
	uint32_t bytes = verify->abi->fb_get_info_v2_size, i;

	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_CONTROL, sizeof(struct nvos54));
	cgpu_put32(verify->args, offsetof(struct nvos54, hClient), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos54, hObject), SUBDEVICE_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos54, cmd), NV2080_CTRL_CMD_FB_GET_INFO_V2);
	cgpu_put32(verify->args, offsetof(struct nvos54, paramsSize), bytes);
	cgpu_put32(verify->args, offsetof(struct nvos54, status), UNTOUCHED);
	verify->params_bytes = bytes;
	verify->params_ptr_offset = offsetof(struct nvos54, params);
	memset(verify->params, 0, bytes);
	cgpu_put32(verify->params, offsetof(struct nv_fb_get_info_v2, fbInfoListSize),
		   INFO_ENTRIES);
	for (i = 0; i < INFO_ENTRIES; i++)
		cgpu_put32(verify->params, offsetof(struct nv_fb_get_info_v2, fbInfoList) +
			   i * sizeof(struct nv_fb_info), wanted[i]);
	verify->wait_ms = verify->waits ? CGPU_VERIFY_WAIT_MS : 0;
}

static void ask_memory(struct cgpu_verify *verify)
{
	call_alloc(verify, DEVICE_HANDLE, MEMORY_HANDLE, NV01_MEMORY_LOCAL_USER,
		   verify->abi->memory_alloc_size);
	cgpu_put32(verify->params, offsetof(struct nv_memory_alloc, owner), verify->hClient);
	cgpu_put64(verify->params, offsetof(struct nv_memory_alloc, size), verify->taken_bytes);
}

static void ask_duplicate(struct cgpu_verify *verify)
{
	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_DUP_OBJECT, sizeof(struct nvos55));
	cgpu_put32(verify->args, offsetof(struct nvos55, hClient), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos55, hParent), DEVICE_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos55, hObject), DUPLICATE_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos55, hClientSrc), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos55, hObjectSrc), MEMORY_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos55, status), UNTOUCHED);
}

static void ask_free_memory(struct cgpu_verify *verify)
{
	call_free(verify, MEMORY_HANDLE);
}

static void ask_free_duplicate(struct cgpu_verify *verify)
{
	call_free(verify, DUPLICATE_HANDLE);
}

static void ask_heap(struct cgpu_verify *verify)
{
	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_VID_HEAP_CONTROL, sizeof(struct nvos32));
	cgpu_put32(verify->args, offsetof(struct nvos32, hRoot), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos32, hObjectParent), DEVICE_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos32, function), NVOS32_FUNCTION_ALLOC_SIZE);
	cgpu_put32(verify->args, offsetof(struct nvos32, status), UNTOUCHED);
	cgpu_put32(verify->args, offsetof(struct nvos32_alloc_size, owner), verify->hClient);
	cgpu_put64(verify->args, offsetof(struct nvos32_alloc_size, size), verify->taken_bytes);
}

static void ask_heap_free(struct cgpu_verify *verify)
{
	uint32_t hMemory = verify->hMemory;

	call(verify, CGPU_DEVICE_CTL, NV_ESC_RM_VID_HEAP_CONTROL, sizeof(struct nvos32));
	cgpu_put32(verify->args, offsetof(struct nvos32, hRoot), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos32, hObjectParent), DEVICE_HANDLE);
	cgpu_put32(verify->args, offsetof(struct nvos32, function), NVOS32_FUNCTION_FREE);
	cgpu_put32(verify->args, offsetof(struct nvos32, status), UNTOUCHED);
	cgpu_put32(verify->args, offsetof(struct nvos32_free, owner), verify->hClient);
	cgpu_put32(verify->args, offsetof(struct nvos32_free, hMemory), hMemory);
	cgpu_put32(verify->args, offsetof(struct nvos32_free, flags),
		   NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED);
}

static void ask_free_client(struct cgpu_verify *verify)
{
	call_free(verify, verify->hClient);
}

/* The driver did it, by the status in its argument. */
static bool was_done(const struct cgpu_verify *verify, long result)
{
	return !result && cgpu_get32(verify->args, status_place(verify)) == NV_OK;
}

static void judge_done(struct cgpu_verify *verify, long result)
{
	if (!was_done(verify, result))
		fail(verify, "escape", verify->nr, "the driver refuses what it should do");
}

static void judge_client(struct cgpu_verify *verify, long result)
{
	judge_done(verify, result);
	if (!verify->what)
		verify->hClient =
			cgpu_get32(verify->args, offsetof(struct nvos64, hObjectNew));
}

static uint32_t entry_kib(const struct cgpu_verify *verify, uint32_t index)
{
	return cgpu_get32(verify->params, offsetof(struct nv_fb_get_info_v2, fbInfoList) +
			  index * sizeof(struct nv_fb_info) + offsetof(struct nv_fb_info, data));
}

static void judge_free_bytes(struct cgpu_verify *verify, long result)
{
	uint32_t total_kib = entry_kib(verify, 0), heap_kib = entry_kib(verify, 1),
		 free_kib = entry_kib(verify, 2);

	verify->free_bytes = (uint64_t)free_kib << 10;
	if (!was_done(verify, result))
		fail(verify, "control", NV2080_CTRL_CMD_FB_GET_INFO_V2,
		     "its parameters have another size");
	else if (!free_kib || free_kib > heap_kib || heap_kib > total_kib)
		fail(verify, "control", NV2080_CTRL_CMD_FB_GET_INFO_V2,
		     "the sizes that it tells are none");
}

static void judge_before(struct cgpu_verify *verify, long result)
{
	judge_free_bytes(verify, result);
	verify->free_before_bytes = verify->free_bytes;
}

/* Other tenants may have all memory. Return: true: there is no more of it. */
static bool is_full(struct cgpu_verify *verify, long result)
{
	if (result ||
	    cgpu_get32(verify->args, status_place(verify)) != NV_ERR_NO_MEMORY)
		return false;
	fail(verify, "memory", (uint32_t)(verify->taken_bytes >> 20),
	     "the card has not so many MiB left to be tried");
	verify->passing = true;
	return true;
}

/* The size that the driver gave stands where ours stood. */
static bool is_taken(const struct cgpu_verify *verify, uint64_t size_bytes)
{
	return size_bytes >= verify->taken_bytes &&
	       size_bytes <= verify->taken_bytes + slack_bytes;
}

static void judge_memory(struct cgpu_verify *verify, long result)
{
	if (is_full(verify, result))
		return;
	if (!was_done(verify, result) ||
	    !is_taken(verify, cgpu_get64(verify->params,
					 offsetof(struct nv_memory_alloc, size))))
		fail(verify, "class", NV01_MEMORY_LOCAL_USER,
		     "the driver does not allocate by our layout");
}

static void judge_heap(struct cgpu_verify *verify, long result)
{
	if (is_full(verify, result))
		return;
	verify->hMemory = cgpu_get32(verify->args, offsetof(struct nvos32_alloc_size, hMemory));
	if (!was_done(verify, result) || !verify->hMemory ||
	    !is_taken(verify, cgpu_get64(verify->args, offsetof(struct nvos32_alloc_size, size))))
		fail(verify, "escape", NV_ESC_RM_VID_HEAP_CONTROL,
		     "the driver does not allocate by our layout");
}

static void miscounted(struct cgpu_verify *verify)
{
	fail(verify, "memory", (uint32_t)(verify->taken_bytes >> 20),
	     "the driver's count does not follow what was allocated and freed");
	verify->passing = true;
}

static void judge_held(struct cgpu_verify *verify, long result)
{
	judge_free_bytes(verify, result);
	if (!verify->what &&
	    (verify->free_bytes + verify->taken_bytes > verify->free_before_bytes ||
	     verify->free_bytes + verify->taken_bytes + slack_bytes < verify->free_before_bytes))
		miscounted(verify);
}

static void judge_returned(struct cgpu_verify *verify, long result)
{
	judge_free_bytes(verify, result);
	if (verify->what)
		return;
	if (verify->free_bytes + slack_bytes >= verify->free_before_bytes)
		verify->waits = 0;
	else if (++verify->waits > WAITS)
		miscounted(verify);
}

struct step {
	void (*ask)(struct cgpu_verify *verify);
	void (*judge)(struct cgpu_verify *verify, long result);
};

static const struct step steps[] = {
	{ ask_client, judge_client },
	{ ask_device, judge_done },
	{ ask_subdevice, judge_done },
	{ ask_free_bytes, judge_before },
	{ ask_memory, judge_memory },
	{ ask_free_bytes, judge_held },
	{ ask_duplicate, judge_done },
	{ ask_free_memory, judge_done },
	{ ask_free_bytes, judge_held },
	{ ask_free_duplicate, judge_done },
	{ ask_free_bytes, judge_returned },
	{ ask_free_bytes, judge_before },
	{ ask_heap, judge_heap },
	{ ask_free_bytes, judge_held },
	{ ask_heap_free, judge_done },
	{ ask_free_bytes, judge_returned },
	{ ask_free_client, judge_done },
};

enum { STEPS = sizeof(steps) / sizeof(steps[0]), LAST = STEPS - 1 };

static bool ask_step(struct cgpu_verify *verify)
{
	if (verify->step == STEPS)
		return false;
	steps[verify->step].ask(verify);
	return true;
}

/* The client is gone, and all that was made. */
static void end_try(struct cgpu_verify *verify)
{
	verify->step = STEPS;
	verify->waits = 0;
	if (!verify->what || !verify->passing || ++verify->tries == TRIES)
		return;
	verify->what = NULL;
	verify->passing = false;
	verify->step = 0;
}

static void judge_step(struct cgpu_verify *verify, long result)
{
	if (verify->step == LAST) {
		end_try(verify);
		return;
	}
	steps[verify->step].judge(verify, result);
	if (verify->what)
		verify->step = verify->hClient ? LAST : STEPS;
	else if (!verify->waits)
		verify->step++;
}

/* ------------------------------------------------------------------ all */

static const struct {
	bool (*ask)(struct cgpu_verify *verify);
	void (*judge)(struct cgpu_verify *verify, long result);
} stages[] = {
	[ESCAPES] = { ask_escape, judge_escape },
	[COMMANDS] = { ask_command, judge_command },
	[CLASSES] = { ask_class, judge_class },
	[MEMORY] = { ask_step, judge_step },
};

bool cgpu_verify_next(struct cgpu_verify *verify)
{
	for (; verify->stage < OVER; verify->stage++) {
		/* nothing more is asked, but what was made goes */
		if (verify->what && !(verify->stage == MEMORY && verify->step))
			return false;
		if (stages[verify->stage].ask(verify))
			return true;
		verify->index = 0;
	}
	return false;
}

void cgpu_verify_answer(struct cgpu_verify *verify, long result)
{
	verify->checks++;
	stages[verify->stage].judge(verify, result);
}
