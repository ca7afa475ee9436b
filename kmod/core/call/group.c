// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * MPS runs the kernels of many processes in one channel group, which the server makes. A client
 * takes another handle of that group by DUP_OBJECT, and makes a context share and channels of its
 * own below it. It also takes two pieces of memory that the server has shared with everybody
 * (tests/traces, H200, 580.159.04). So a member may have two things of its leader: a channel group
 * that the leader has scheduled, and video memory that the leader has shared.
 *
 * The leader schedules a group of channels as a whole once, before the group has other owners.
 * Later that would start channels of containers whose gates are shut, so each owner has to schedule
 * its own.
 *
 * The driver keeps what it has duplicated until the last handle goes, whichever container asked
 * first. So the member is charged as if the object were its own. No other container has to be told
 * when the leader frees it, and no byte is without an account.
 */
#include "core/call/group.h"
#include "core/call/object.h"
#include "core/call/verdict.h"
#include "core/rm/structs.h"

bool cgpu_call_wants_leader(const struct cgpu_tenant *tenant, const struct cgpu_call *call)
{
	return tenant->role == CGPU_ROLE_MEMBER && call->req.op == CGPU_OP_DUP &&
	       !cgpu_object_find(&tenant->objects, call->req.hClientSrc, call->req.hClientSrc);
}

/* Charges the object to the member; for its class as cgpu_pre_alloc() charges it. */
static int charge_lent(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       const struct cgpu_object *source)
{
	const struct cgpu_charge *charge = cgpu_charge_at(&call->leader->ledger, source->charge);

	if (source->hClass == KEPLER_CHANNEL_GROUP_A)
		return cgpu_charge_group(tenant, call, source->card);
	return cgpu_charge_memory(tenant, call, source->card, charge->bytes);
}

static bool may_borrow(const struct cgpu_object *source)
{
	switch (source->hClass) {
	case KEPLER_CHANNEL_GROUP_A:
		/* a group of a named address space would need that space, which no member has */
		return source->flags & CGPU_OBJECT_ENABLED && !source->hDepend[0];
	case NV01_MEMORY_LOCAL_USER:
		return source->flags & CGPU_OBJECT_SHARED && source->charge;
	default:
		return false;
	}
}

static int pre_borrow(struct cgpu_tenant *tenant, struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;
	struct cgpu_objects *objects = &call->leader->objects;
	uint32_t index = cgpu_object_find(objects, req->hClientSrc, req->hObjectSrc);
	struct cgpu_object *source = cgpu_object_at(objects, index);

	if (call->leader->role != CGPU_ROLE_LEADER ||
	    !cgpu_object_find(objects, req->hClientSrc, req->hClientSrc))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!index || cgpu_object_is_dying(objects, index))
		return cgpu_answer(call, NV_ERR_OBJECT_NOT_FOUND);
	if (!may_borrow(source) || source->card >= CGPU_MAX_CARDS ||
	    !tenant->ledger.account[source->card].present)
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (!cgpu_pin_parent(tenant, call, req->hParent))
		return cgpu_answer(call, NV_ERR_INVALID_OBJECT_PARENT);
	/* the group is gated on the card that it runs on, so the parent must be of that card */
	if (cgpu_object_at(&tenant->objects, call->parent)->card != source->card)
		return cgpu_refuse(tenant, call, source->card, NV_ERR_INVALID_OBJECT_PARENT);
	if (cgpu_promise_objects(tenant, call, 1) != CGPU_FORWARD ||
	    charge_lent(tenant, call, source) != CGPU_FORWARD)
		return CGPU_ANSWER;
	cgpu_object_pin(objects, index);
	call->lent = index;
	call->card = source->card;
	return CGPU_FORWARD;
}

int cgpu_pre_group_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		       struct cgpu_call *call)
{
	return call->leader && cgpu_owns_client(tenant, call->req.hClient) &&
			       !cgpu_owns_client(tenant, call->req.hClientSrc) ?
		       pre_borrow(tenant, call) : cgpu_pre_dup(tenant, topology, call);
}

static int post_borrow(struct cgpu_tenant *tenant, struct cgpu_call *call,
		       const struct cgpu_request *after)
{
	const struct cgpu_object *source = cgpu_object_at(&call->leader->objects, call->lent);
	uint32_t index;

	if (cgpu_is_mistaken(tenant, call, after->hObject))
		return CGPU_KILL;
	if (!cgpu_add_duplicate(tenant, call, after->hObject, source->hClass, &call->charge))
		return cgpu_undo(call, after->hObject, NV_ERR_INSUFFICIENT_RESOURCES);
	index = cgpu_object_find(&tenant->objects, call->req.hClient, after->hObject);
	cgpu_object_place(&tenant->objects, index, call->card);
	if (source->hClass == KEPLER_CHANNEL_GROUP_A)
		cgpu_object_borrow(&tenant->objects, index, source, call->lent);
	return CGPU_DONE;
}

int cgpu_post_group_dup(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
			struct cgpu_call *call, const struct cgpu_request *after)
{
	return call->lent ? post_borrow(tenant, call, after) :
			    cgpu_post_dup(tenant, topology, call, after);
}

int cgpu_pre_share(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		   struct cgpu_call *call)
{
	const struct cgpu_request *req = &call->req;
	uint32_t index;

	if (!cgpu_owns_client(tenant, req->hClient))
		return cgpu_refuse(tenant, call, CGPU_NO_CARD, NV_ERR_INVALID_CLIENT);
	if (tenant->role != CGPU_ROLE_LEADER)
		return CGPU_FORWARD;
	index = cgpu_object_find(&tenant->objects, req->hClient, req->hObject);
	if (index && !cgpu_object_is_dying(&tenant->objects, index)) {
		call->object = index;
		cgpu_pin(tenant, call, index);
	}
	return CGPU_FORWARD;
}

int cgpu_post_share(struct cgpu_tenant *tenant, const struct cgpu_topology *topology,
		    struct cgpu_call *call, const struct cgpu_request *after)
{
	const struct nvos57 *args = (const void *)call->args;

	/* the driver obeys a leader that revokes this: it refuses the duplicate */
	if (call->object && args->policy.type == RS_SHARE_TYPE_ALL &&
	    args->policy.accessMask & 1u << RS_ACCESS_DUP_OBJECT &&
	    !(args->policy.action & RS_SHARE_ACTION_FLAG_REVOKE))
		cgpu_object_at(&tenant->objects, call->object)->flags |= CGPU_OBJECT_SHARED;
	return CGPU_DONE;
}
