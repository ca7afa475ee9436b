// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Verdicts on a call, and what the call takes until it is over: pins, references of charges, a
 * file. cgpu_release() returns all of it, whichever way the call ended.
 */
#include "core/call/verdict.h"

int cgpu_answer(struct cgpu_call *call, uint32_t status)
{
	call->error = 0;
	if (call->req.status_offset == CGPU_NO_OFFSET)
		call->error = -EPERM;
	else
		cgpu_put32(call->args, call->req.status_offset, status);
	return CGPU_ANSWER;
}

void cgpu_count_refused(struct cgpu_tenant *tenant)
{
	uint32_t i;

	for (i = 0; i < CGPU_MAX_CARDS; i++) {
		if (tenant->ledger.account[i].present) {
			tenant->ledger.account[i].refused++;
			break;
		}
	}
}

int cgpu_refuse(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		uint32_t status)
{
	if (card < CGPU_MAX_CARDS)
		tenant->ledger.account[card].refused++;
	else
		cgpu_count_refused(tenant);
	call->refused = true;
	return cgpu_answer(call, status);
}

enum unlisted_kind { ESCAPE, UVM, CONTROL, CLASS };

/*
 * Bounds the messages of one container: many numbers, or one many times, crowd out no other's
 * lines.
 */
static bool is_first(struct cgpu_tenant *tenant, uint64_t what)
{
	uint32_t i;

	for (i = 0; i < tenant->told_count; i++)
		if (tenant->told[i] == what)
			return false;
	if (i == CGPU_TOLD_MAX)
		return false;
	tenant->told[tenant->told_count++] = what;
	return true;
}

/* Return: true if the administrator admits it. */
static bool take_down(struct cgpu_tenant *tenant, enum unlisted_kind kind, uint32_t number,
		      struct cgpu_unlisted *unlisted)
{
	static const char *const names[] = {
		[ESCAPE] = "escape", [UVM] = "uvm", [CONTROL] = "control", [CLASS] = "class",
	};
	bool admitted = cgpu_admits_unknown(tenant);

	unlisted->kind = names[kind];
	unlisted->number = number;
	/* reported once as refused, and once as admitted */
	unlisted->first = is_first(tenant, (uint64_t)kind << 33 | (uint64_t)admitted << 32 |
					   number);
	return admitted;
}

static bool take_down_call(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	bool control = call->req.op == CGPU_OP_CONTROL;

	return take_down(tenant, control ? CONTROL : CLASS,
			 control ? call->req.cmd : call->req.hClass, &call->unlisted);
}

int cgpu_refuse_unknown(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t status)
{
	if (take_down_call(tenant, call))
		return CGPU_FORWARD;
	return cgpu_refuse(tenant, call, CGPU_NO_CARD, status);
}

int cgpu_refuse_misfit(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t status)
{
	take_down_call(tenant, call);
	return cgpu_refuse(tenant, call, CGPU_NO_CARD, status);
}

bool cgpu_admits_unknown(const struct cgpu_tenant *tenant)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (tenant->ledger.account[card].present &&
		    tenant->ledger.account[card].admit_unknown)
			return true;
	return false;
}

bool cgpu_call_unknown(struct cgpu_tenant *tenant, uint32_t device, uint32_t cmd,
		       struct cgpu_unlisted *unlisted)
{
	struct cgpu_call call = { .req.status_offset = CGPU_NO_OFFSET };

	if (take_down(tenant, device == CGPU_DEVICE_UVM ? UVM : ESCAPE,
		      device == CGPU_DEVICE_UVM ? cmd : cmd & 0xff, unlisted))
		return true;
	cgpu_refuse(tenant, &call, CGPU_NO_CARD, 0);
	return false;
}

bool cgpu_pin_client(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient)
{
	uint32_t index = hClient ? cgpu_object_find(&tenant->objects, hClient, hClient) : 0;

	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return false;
	cgpu_pin(tenant, call, index);
	return true;
}

bool cgpu_pin_named(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		if (call->req.hClientNamed[i] &&
		    !cgpu_pin_client(tenant, call, call->req.hClientNamed[i]))
			return false;
	return true;
}

bool cgpu_owns_client(struct cgpu_tenant *tenant, uint32_t hClient)
{
	return hClient && cgpu_object_find(&tenant->objects, hClient, hClient);
}

const struct cgpu_account *cgpu_account_of(struct cgpu_tenant *tenant,
					   uint32_t hClient, uint32_t hObject)
{
	uint32_t index = cgpu_object_find(&tenant->objects, hClient, hObject);
	uint32_t card = index ? cgpu_object_at(&tenant->objects, index)->card : CGPU_NO_CARD;

	return card < CGPU_MAX_CARDS ? &tenant->ledger.account[card] : NULL;
}

void cgpu_pin(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t index)
{
	cgpu_object_pin(&tenant->objects, index);
	call->pinned[call->pinned_count++] = index;
}

bool cgpu_pin_parent(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t hParent)
{
	uint32_t hClient = call->req.hClient;
	uint32_t index = cgpu_object_find(&tenant->objects, hClient, hParent ? hParent : hClient);

	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return false;
	call->parent = index;
	cgpu_pin(tenant, call, index);
	return true;
}

int cgpu_hold(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient,
	      uint32_t hObject)
{
	uint32_t index = cgpu_object_find(&tenant->objects, hClient, hObject);

	if (!index || cgpu_object_is_dying(&tenant->objects, index))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	cgpu_pin(tenant, call, index);
	call->object = index;
	call->card = cgpu_object_at(&tenant->objects, index)->card;
	call->charge = cgpu_object_at(&tenant->objects, index)->charge;
	if (call->charge)
		cgpu_charge_get(&tenant->ledger, call->charge);
	return CGPU_FORWARD;
}

void cgpu_use_file(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	call->used_file = call->fd_file;
	cgpu_tenant_file(tenant, call->fd_file)->users++;
}

int cgpu_undo(struct cgpu_call *call, uint32_t hObject, uint32_t status)
{
	call->undo_hClient = call->req.hClient;
	call->undo_hObject = hObject;
	if (call->req.status_offset != CGPU_NO_OFFSET)
		cgpu_put32(call->args, call->req.status_offset, status);
	return CGPU_UNDO;
}

static int promise(struct cgpu_tenant *tenant, struct cgpu_call *call, struct cgpu_table *table,
		   uint32_t count, uint32_t *promised)
{
	if (!cgpu_table_promise(table, count))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INSUFFICIENT_RESOURCES);
	*promised += count;
	return CGPU_FORWARD;
}

int cgpu_promise_objects(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t count)
{
	call->uses = tenant->objects.uses;
	return promise(tenant, call, &tenant->objects.table, count, &call->promised_objects);
}

int cgpu_promise_ranges(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t count)
{
	return promise(tenant, call, &tenant->ranges.table, count, &call->promised_ranges);
}

int cgpu_promise_file(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	return promise(tenant, call, &tenant->files, 1, &call->promised_files);
}

int cgpu_promise_tables(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t cards)
{
	uint64_t bytes = cgpu_range_tables(call->req.length_bytes);

	if (cgpu_page_tables_promise(&tenant->ledger, &tenant->ranges, cards, bytes))
		return cgpu_answer(call, NV_ERR_NO_MEMORY);
	call->promised_tables_bytes = bytes;
	call->promised_cards = cards;
	return CGPU_FORWARD;
}

void cgpu_break_promises(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	cgpu_table_release(&tenant->objects.table, call->promised_objects);
	cgpu_table_release(&tenant->ranges.table, call->promised_ranges);
	cgpu_table_release(&tenant->files, call->promised_files);
	call->promised_objects = call->promised_ranges = call->promised_files = 0;
	if (call->promised_cards)
		cgpu_page_tables_release(&tenant->ledger, &tenant->ranges, call->promised_cards,
					 call->promised_tables_bytes);
	call->promised_cards = 0;
}

/* Unpins the leader's object. */
static void release_lent(struct cgpu_call *call)
{
	struct cgpu_tenant *leader = call->leader;
	uint32_t file;

	if (leader && call->lent) {
		file = cgpu_object_at(&leader->objects, call->lent)->file;
		cgpu_object_unpin(&leader->objects, call->lent);
		cgpu_tenant_unused(leader, file);
	}
	call->lent = 0;
	call->leader = NULL;
}

void cgpu_release(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	cgpu_break_promises(tenant, call);
	if (call->charge)
		cgpu_charge_put(&tenant->ledger, call->charge);
	call->charge = 0;
	while (call->held_count)
		if (call->held[--call->held_count])
			cgpu_charge_put(&tenant->ledger, call->held[call->held_count]);
	while (call->pinned_count) {
		uint32_t index = call->pinned[--call->pinned_count];

		cgpu_object_unpin(&tenant->objects, index);
		cgpu_tenant_unused(tenant, cgpu_object_at(&tenant->objects, index)->file);
	}
	if (call->used_file) {
		cgpu_tenant_file(tenant, call->used_file)->users--;
		cgpu_tenant_unused(tenant, call->used_file);
	}
	call->used_file = 0;
	release_lent(call);
	cgpu_page_tables_settle(&tenant->ledger, &tenant->ranges);
	cgpu_tenant_close_step(tenant);
}
