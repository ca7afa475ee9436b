/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Verdicts, and what a call takes until its end; only for the files of this folder. Each function
 * is called with the tenant locked, on behalf of one call. pre: before the driver, returns
 * CGPU_FORWARD or CGPU_ANSWER. post: after it, returns CGPU_DONE, CGPU_UNDO or CGPU_KILL.
 */
#ifndef CGPU_CORE_CALL_VERDICT_H
#define CGPU_CORE_CALL_VERDICT_H

#include "core/call/call.h"
#include "core/memory/page_tables.h"

/* Return: CGPU_ANSWER, with `status` where the argument has room for one, otherwise -EPERM. */
int cgpu_answer(struct cgpu_call *call, uint32_t status);
/* As cgpu_answer(), and counts a refusal on `card`; CGPU_NO_CARD: on the container's first. */
int cgpu_refuse(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t card,
		uint32_t status);
/*
 * For a number that no list names: sets `unlisted` of the call, which the door reports. Return: as
 * cgpu_refuse(); CGPU_FORWARD if the administrator has admitted such calls.
 */
int cgpu_refuse_unknown(struct cgpu_tenant *tenant, struct cgpu_call *call,
			uint32_t status);
/*
 * Likewise for a call whose size the layouts on trial do not have; no administrator can admit it.
 */
int cgpu_refuse_misfit(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t status);
/* Return: CGPU_UNDO: the driver shall free `hObject`, the caller gets `status`. */
int cgpu_undo(struct cgpu_call *call, uint32_t hObject, uint32_t status);

/*
 * Return: false if the client is not the container's. The driver looks further clients up by their
 * number and does not check their owner. The pin keeps the number from going to another container's
 * client.
 */
bool cgpu_pin_client(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient);
/* Likewise for the clients that the parameters name; true if there are none. */
bool cgpu_pin_named(struct cgpu_tenant *tenant, struct cgpu_call *call);
bool cgpu_owns_client(struct cgpu_tenant *tenant, uint32_t hClient);
/* The account of the card that the object lies on; NULL: none. */
const struct cgpu_account *cgpu_account_of(struct cgpu_tenant *tenant,
					   uint32_t hClient, uint32_t hObject);

/* Keeps the object until the call is over. */
void cgpu_pin(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t index);
/* Keeps the file behind the call's descriptor, and its number, until the call is over. */
void cgpu_use_file(struct cgpu_tenant *tenant, struct cgpu_call *call);
/* Finds and pins the object above a new one; handle 0 means the client. */
bool cgpu_pin_parent(struct cgpu_tenant *tenant, struct cgpu_call *call,
		     uint32_t hParent);
/* Pins an object that gets a second life, and takes a reference of its charge. */
int cgpu_hold(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t hClient,
	      uint32_t hObject);
/*
 * Keeps entries for what the driver is about to make. Return: CGPU_FORWARD, or
 * CGPU_ANSWER: a table is full, and the driver is not asked.
 */
int cgpu_promise_objects(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t count);
int cgpu_promise_ranges(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t count);
int cgpu_promise_file(struct cgpu_tenant *tenant, struct cgpu_call *call);
/* Page tables of what is mapped on `cards` (bit set). */
int cgpu_promise_tables(struct cgpu_tenant *tenant, struct cgpu_call *call, uint32_t cards);
void cgpu_break_promises(struct cgpu_tenant *tenant, struct cgpu_call *call);
/* Returns everything that the call had taken. */
void cgpu_release(struct cgpu_tenant *tenant, struct cgpu_call *call);

#endif
