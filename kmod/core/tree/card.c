// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Memory is promised up to the card's size, weight up to max_inst: what one
 * container was promised cannot be promised to another. Every change is
 * checked in full before anything is written.
 */
#include "core/tree/card.h"

void cgpu_card_add(struct cgpu_host *host, uint32_t minor, const struct cgpu_gpu *gpu)
{
	host->topology.gpu[minor] = *gpu;
	host->topology.gpu[minor].present = true;
	host->card[minor] = (struct cgpu_card){
		.present = true,
		.policy = CGPU_POLICY_DEFAULT,
		.max_inst = CGPU_MAX_INST_DEFAULT,
		.timeslice_us = CGPU_TIMESLICE_US_DEFAULT,
	};
}

int cgpu_card_set_defaults(struct cgpu_card *card, const struct cgpu_card_defaults *defaults)
{
	struct cgpu_card changed = *card;

	if (cgpu_card_set_policy(&changed, defaults->policy) ||
	    cgpu_card_set_max_inst(&changed, defaults->max_inst) ||
	    cgpu_card_set_timeslice_us(&changed, defaults->timeslice_us))
		return -ERANGE;
	changed.policy_by_hand = card->policy_by_hand;
	*card = changed;
	return 0;
}

uint32_t cgpu_card_free_weight(const struct cgpu_card *card)
{
	return card->weight_sum < card->max_inst ? card->max_inst - card->weight_sum : 0;
}

uint64_t cgpu_card_free_bytes(const struct cgpu_host *host, uint32_t minor)
{
	const struct cgpu_gpu *gpu = &host->topology.gpu[minor];
	uint64_t taken = gpu->reserved_bytes + host->card[minor].allocated_bytes;

	return taken < gpu->total_bytes ? gpu->total_bytes - taken : 0;
}

/*
 * The sum of all limits may reach the card's whole size, as vendors' users
 * expect of "32768 MiB of 32 GB": what the driver holds back is not deducted.
 * An unknown size (no driver answer) limits nothing but the sum's own width.
 */
static bool has_room(const struct cgpu_host *host, uint32_t minor, uint64_t bytes)
{
	uint64_t total = host->topology.gpu[minor].total_bytes;
	uint64_t allocated = host->card[minor].allocated_bytes;

	if (!total)
		total = UINT64_MAX;
	return allocated <= total && bytes <= total - allocated;
}

static int check_grant(const struct cgpu_host *host, uint32_t minor,
		       const struct cgpu_grant *grant)
{
	const struct cgpu_card *card = &host->card[minor];

	if (!card->present)
		return -ENODEV;
	if (card->members >= card->max_inst)
		return -ENOSPC;
	if (!grant->unlimited && !has_room(host, minor, grant->mem_bytes))
		return -ENOSPC;
	if (grant->weight_given && grant->weight > cgpu_card_free_weight(card))
		return -ENOSPC;
	return 0;
}

static uint32_t lowest_free_instance(uint64_t instances)
{
	uint32_t number = 0;

	while (instances >> number & 1)
		number++;
	return number;
}

int cgpu_host_admit(struct cgpu_host *host, struct cgpu_create *create, uint32_t *minor)
{
	uint32_t cards = 0;
	int err;

	for (*minor = 0; *minor < CGPU_MAX_CARDS; (*minor)++) {
		if (!create->grant[*minor].present)
			continue;
		err = check_grant(host, *minor, &create->grant[*minor]);
		if (err)
			return err;
		cards++;
	}
	if (!cards)
		return -EINVAL;

	for (*minor = 0; *minor < CGPU_MAX_CARDS; (*minor)++) {
		struct cgpu_grant *grant = &create->grant[*minor];
		struct cgpu_card *card = &host->card[*minor];

		if (!grant->present)
			continue;
		if (!grant->weight_given)
			grant->weight = cgpu_card_free_weight(card) ? 1 : 0;
		grant->instance = lowest_free_instance(card->instances);
		card->instances |= 1ull << grant->instance;
		card->members++;
		card->weight_sum += grant->weight;
		if (!grant->unlimited)
			card->allocated_bytes += grant->mem_bytes;
		if (grant->policy_hint < CGPU_POLICY_END && !card->policy_by_hand)
			card->policy = grant->policy_hint;
	}
	return 0;
}

void cgpu_host_release(struct cgpu_host *host, const struct cgpu_grant *grants)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		const struct cgpu_grant *grant = &grants[minor];
		struct cgpu_card *card = &host->card[minor];

		if (!grant->present)
			continue;
		card->instances &= ~(1ull << grant->instance);
		card->members--;
		card->weight_sum -= grant->weight;
		if (!grant->unlimited)
			card->allocated_bytes -= grant->mem_bytes;
	}
}

void cgpu_grants_apply(const struct cgpu_grant *grants, struct cgpu_ledger *ledger)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct cgpu_account *account = &ledger->account[minor];
		const struct cgpu_grant *grant = &grants[minor];

		account->present = grant->present;
		account->unlimited = grant->unlimited;
		account->max_bytes = grant->mem_bytes;
		account->uvm_disable = grant->uvm_disable;
		account->oom_kill = grant->oom_action == CGPU_OOM_KILL;
	}
}

int cgpu_grant_set_memsize(struct cgpu_host *host, uint32_t minor,
			   struct cgpu_grant *grant, struct cgpu_account *account,
			   uint64_t bytes)
{
	uint64_t before = grant->unlimited ? 0 : grant->mem_bytes;

	if (bytes < CGPU_MEM_BYTES_MIN)
		return -ERANGE;
	if (bytes < account->current_bytes)
		return -EBUSY;
	if (bytes > before && !has_room(host, minor, bytes - before))
		return -ENOSPC;
	host->card[minor].allocated_bytes += bytes - before;
	grant->unlimited = false;
	grant->mem_bytes = bytes;
	account->unlimited = false;
	account->max_bytes = bytes;
	return 0;
}

int cgpu_grant_set_weight(struct cgpu_host *host, uint32_t minor,
			  struct cgpu_grant *grant, uint64_t weight)
{
	struct cgpu_card *card = &host->card[minor];

	if (weight > CGPU_MAX_INST_MAX)
		return -ERANGE;
	if (weight > cgpu_card_free_weight(card) + grant->weight)
		return -ENOSPC;
	card->weight_sum += (uint32_t)weight - grant->weight;
	grant->weight = (uint32_t)weight;
	grant->weight_given = true;
	return 0;
}

int cgpu_grant_set_quota(struct cgpu_grant *grant, uint64_t percent)
{
	if (percent > 100 || (percent && percent < grant->quota_min))
		return -ERANGE;
	grant->quota = (uint32_t)percent;
	return 0;
}

int cgpu_grant_set_quota_min(struct cgpu_grant *grant, uint64_t percent)
{
	if (percent > 100 || (grant->quota && percent > grant->quota))
		return -ERANGE;
	grant->quota_min = (uint32_t)percent;
	return 0;
}

int cgpu_grant_set_priority(struct cgpu_grant *grant, uint64_t priority)
{
	if (priority > CGPU_PRIORITY_MAX)
		return -ERANGE;
	grant->priority = (uint32_t)priority;
	return 0;
}

int cgpu_card_set_policy(struct cgpu_card *card, uint64_t policy)
{
	if (policy >= CGPU_POLICY_END)
		return -ERANGE;
	card->policy = (uint32_t)policy;
	card->policy_by_hand = true;
	return 0;
}

int cgpu_card_set_max_inst(struct cgpu_card *card, uint64_t max_inst)
{
	if (!max_inst || max_inst > CGPU_MAX_INST_MAX)
		return -ERANGE;
	if (max_inst < card->members || max_inst < card->weight_sum)
		return -EBUSY;
	card->max_inst = (uint32_t)max_inst;
	return 0;
}

int cgpu_card_set_timeslice_us(struct cgpu_card *card, uint64_t timeslice_us)
{
	if (timeslice_us < CGPU_TIMESLICE_US_MIN || timeslice_us > CGPU_TIMESLICE_US_MAX)
		return -ERANGE;
	card->timeslice_us = (uint32_t)timeslice_us;
	return 0;
}
