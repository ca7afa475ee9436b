// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Memory is promised up to the card's size, weight up to max_inst: what one
 * container was promised cannot be promised to another. Every change is
 * checked in full before anything is written.
 */
#include "core/tree/card.h"
#include "core/sched/bounds.h"

void cgpu_card_add(struct cgpu_host *host, uint32_t minor, const struct cgpu_gpu *gpu)
{
	host->topology.gpu[minor] = *gpu;
	host->topology.gpu[minor].present = true;
	host->card[minor] = (struct cgpu_card){
		.present = true,
		.policy = CGPU_POLICY_DEFAULT,
		.max_inst = CGPU_MAX_INST_DEFAULT,
		.timeslice_us = CGPU_TIMESLICE_US_DEFAULT,
		.overcommit_ratio = CGPU_OVERCOMMIT_RATIO_DEFAULT,
	};
	cgpu_card_told(host, minor);
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

/* So much all limits together may be, of a card with `total` bytes. */
static uint64_t promisable_bytes(uint64_t total, uint32_t ratio)
{
	uint64_t hundredth = total / 100, rest = total % 100;

	if (hundredth > UINT64_MAX / ratio - 1)
		return UINT64_MAX;
	return hundredth * ratio + rest * ratio / 100;
}

void cgpu_card_told(struct cgpu_host *host, uint32_t minor)
{
	struct cgpu_gpu *gpu = &host->topology.gpu[minor];

	gpu->promisable_bytes =
		promisable_bytes(gpu->total_bytes, host->card[minor].overcommit_ratio);
}

uint64_t cgpu_card_free_bytes(const struct cgpu_host *host, uint32_t minor)
{
	const struct cgpu_gpu *gpu = &host->topology.gpu[minor];
	const struct cgpu_card *card = &host->card[minor];
	uint64_t total = promisable_bytes(gpu->total_bytes, card->overcommit_ratio);
	uint64_t taken = gpu->reserved_bytes + card->allocated_bytes;

	return taken < total ? total - taken : 0;
}

/*
 * The sum of all limits may reach the card's whole size, as vendors' users
 * expect of "32768 MiB of 32 GB": what the driver holds back is not deducted.
 * An unknown size (no driver answer) limits nothing but the sum's own width. No single limit is
 * above the card, whatever is promised to others.
 */
static bool has_room(const struct cgpu_host *host, uint32_t minor, uint64_t before, uint64_t after)
{
	uint64_t total = host->topology.gpu[minor].total_bytes;
	uint64_t allocated = host->card[minor].allocated_bytes - before;

	if (total && after > total)
		return false;
	total = total ? promisable_bytes(total, host->card[minor].overcommit_ratio) : UINT64_MAX;
	return allocated <= total && after <= total - allocated;
}

/* It asks for a part of the compute, which takes a policy that divides it. */
static bool asks_compute(const struct cgpu_card *card, const struct cgpu_grant *grant)
{
	return grant->quota || grant->priority || cgpu_grant_promised_ppm(card, grant);
}

static int check_grant(const struct cgpu_host *host, uint32_t minor,
		       const struct cgpu_grant *grant)
{
	const struct cgpu_card *card = &host->card[minor];

	if (!card->present)
		return -ENODEV;
	if (host->topology.gpu[minor].mig == CGPU_MIG_ON)
		return -ENXIO;
	if (card->members >= card->max_inst)
		return -ENOSPC;
	if (!grant->unlimited && !has_room(host, minor, 0, grant->mem_bytes))
		return -ENOSPC;
	return 0;
}

/* For a container that has a part of the card of its own. */
static int check_compute(const struct cgpu_card *card, const struct cgpu_grant *grant)
{
	if (grant->weight_given && grant->weight > cgpu_card_free_weight(card))
		return -ENOSPC;
	if (card->members && card->policy == CGPU_POLICY_NATIVE && !card->policy_by_hand &&
	    asks_compute(card, grant))
		return -EBUSY;
	return 0;
}

bool cgpu_grant_is_member(const struct cgpu_grant *grant)
{
	return grant->entity != grant->instance;
}

/* So much of the card's weight the members of a group may bring, together. */
static uint32_t room_for_members(const struct cgpu_card *card, const struct cgpu_grant *leader)
{
	return cgpu_card_free_weight(card) + leader->weight;
}

/* For a container that shares the leader's compute on that card. */
static int check_member(const struct cgpu_card *card, const struct cgpu_grant *leader,
			const struct cgpu_grant *grant)
{
	if (!leader->present)
		return -ENODEV;
	if (grant->priority || grant->policy_hint < CGPU_POLICY_END)
		return -EINVAL;
	if (grant->quota_min && !leader->floor_given &&
	    leader->brought_min + grant->quota_min > (leader->quota ? leader->quota : 100))
		return -ENOSPC;
	if (grant->weight_given && !leader->weight_given &&
	    leader->brought + grant->weight > room_for_members(card, leader))
		return -ENOSPC;
	return 0;
}

/* A container without a weight of its own weighs as much as one that asks for nothing. */
static uint32_t default_weight(const struct cgpu_card *card, const struct cgpu_grant *leader)
{
	if (!leader)
		return cgpu_card_free_weight(card) ? 1 : 0;
	return leader->weight_given || leader->brought < room_for_members(card, leader) ? 1 : 0;
}

/* Its members bring so much now: a weight, and percent of a floor. */
static void set_brought(struct cgpu_card *card, struct cgpu_grant *leader, uint32_t brought,
			uint32_t brought_min)
{
	uint32_t weight = leader->weight;

	leader->brought = brought;
	leader->brought_min = brought_min;
	if (!leader->floor_given)
		leader->quota_min = brought_min;
	if (leader->weight_given)
		return;
	/* of a group without members: as of one that asks for nothing */
	weight = brought ? brought : (uint32_t)cgpu_min(1u, room_for_members(card, leader));
	card->weight_sum += weight - leader->weight;
	leader->weight = weight;
}

static uint32_t lowest_free_instance(uint64_t instances)
{
	uint32_t number = 0;

	while (instances >> number & 1)
		number++;
	return number;
}

static void move_policy(struct cgpu_host *host, uint32_t minor, uint32_t policy)
{
	if (host->card[minor].policy != policy)
		host->policy_moved |= 1ull << minor;
	host->card[minor].policy = policy;
}

/* A hint changes no card with containers: they were promised something under its policy. */
static void take_hint(struct cgpu_host *host, uint32_t minor, uint32_t hint)
{
	struct cgpu_card *card = &host->card[minor];

	if (hint >= CGPU_POLICY_END || card->policy_by_hand || card->members)
		return;
	card->policy_before = card->policy;
	card->policy_by_request = true;
	move_policy(host, minor, hint);
}

static void drop_hint(struct cgpu_host *host, uint32_t minor)
{
	struct cgpu_card *card = &host->card[minor];

	if (!card->policy_by_request || card->members)
		return;
	card->policy_by_request = false;
	move_policy(host, minor, card->policy_before);
}

int cgpu_host_admit(struct cgpu_host *host, struct cgpu_create *create, uint32_t *minor)
{
	uint32_t cards = 0;
	int err;

	for (*minor = 0; *minor < CGPU_MAX_CARDS; (*minor)++) {
		if (!create->grant[*minor].present)
			continue;
		err = check_grant(host, *minor, &create->grant[*minor]);
		if (!err && create->leader)
			err = check_member(&host->card[*minor], &create->leader[*minor],
					   &create->grant[*minor]);
		else if (!err)
			err = check_compute(&host->card[*minor], &create->grant[*minor]);
		if (err)
			return err;
		cards++;
	}
	if (!cards)
		return -EINVAL;

	host->policy_moved = 0;
	for (*minor = 0; *minor < CGPU_MAX_CARDS; (*minor)++) {
		struct cgpu_grant *leader = create->leader ? &create->leader[*minor] : NULL;
		struct cgpu_grant *grant = &create->grant[*minor];
		struct cgpu_card *card = &host->card[*minor];

		if (!grant->present)
			continue;
		if (!grant->weight_given)
			grant->weight = default_weight(card, leader);
		grant->instance = lowest_free_instance(card->instances);
		card->instances |= 1ull << grant->instance;
		grant->entity = leader ? leader->entity : grant->instance;
		take_hint(host, *minor, grant->policy_hint);
		card->members++;
		if (leader) {
			set_brought(card, leader, leader->brought + grant->weight,
				    leader->brought_min + grant->quota_min);
		} else {
			grant->floor_given = grant->quota_min > 0;
			card->weight_sum += grant->weight;
		}
		if (!grant->unlimited)
			card->allocated_bytes += grant->mem_bytes;
	}
	return 0;
}

void cgpu_host_release(struct cgpu_host *host, const struct cgpu_grant *grants,
		       struct cgpu_grant *leader)
{
	uint32_t minor;

	host->policy_moved = 0;
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		const struct cgpu_grant *grant = &grants[minor];
		struct cgpu_card *card = &host->card[minor];

		if (!grant->present)
			continue;
		card->instances &= ~(1ull << grant->instance);
		card->members--;
		if (!cgpu_grant_is_member(grant))
			card->weight_sum -= grant->weight;
		else if (leader)
			set_brought(card, &leader[minor], leader[minor].brought - grant->weight,
				    leader[minor].brought_min - grant->quota_min);
		if (!grant->unlimited)
			card->allocated_bytes -= grant->mem_bytes;
		drop_hint(host, minor);
	}
}

void cgpu_grants_leave_group(struct cgpu_host *host, struct cgpu_grant *grants)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		struct cgpu_grant *grant = &grants[minor];
		struct cgpu_card *card = &host->card[minor];

		if (!grant->present)
			continue;
		grant->entity = grant->instance;
		grant->weight_given = false;
		grant->weight = cgpu_card_free_weight(card) ? 1 : 0;
		/* the quota was of the group's threads, the floor a part of the group's */
		grant->quota = 0;
		grant->quota_min = 0;
		card->weight_sum += grant->weight;
	}
}

/* A weight asked for is one of max_inst, of which there are no more than that. */
static uint32_t weight_ppm(const struct cgpu_card *card, uint32_t weight)
{
	return (uint32_t)cgpu_min((uint64_t)weight * CGPU_PPM / card->max_inst, CGPU_PPM);
}

static uint32_t percent_ppm(uint32_t percent)
{
	return percent * (CGPU_PPM / 100);
}

struct cgpu_policy_member cgpu_grant_member(const struct cgpu_card *card,
					    const struct cgpu_grant *grant)
{
	struct cgpu_policy_member member = {
		.weight = grant->weight, .quota = grant->quota,
		.quota_min = grant->quota_min, .priority = grant->priority,
	};

	switch (grant->policy_hint) {
	case CGPU_POLICY_AVERAGE:
		member.own_ppm = weight_ppm(card, 1);
		break;
	case CGPU_POLICY_FIXED:
		member.own_ppm = weight_ppm(card, grant->weight);
		break;
	case CGPU_POLICY_MIXED:
		member.own_ppm = percent_ppm(grant->quota);
		break;
	case CGPU_POLICY_WEIGHTED:
	case CGPU_POLICY_FAIR:
	case CGPU_POLICY_BURST:
	case CGPU_POLICY_ONLINE:
		/* an operator's policy counts weights or does not */
		member.own_weight = !card->policy_by_hand;
		if (member.own_weight && grant->weight_given)
			member.least_ppm = weight_ppm(card, grant->weight);
		break;
	default:
		break;
	}
	if (grant->quota) {
		member.own_ppm = (uint32_t)cgpu_min(member.own_ppm, percent_ppm(grant->quota));
		member.least_ppm = (uint32_t)cgpu_min(member.least_ppm, percent_ppm(grant->quota));
	}
	return member;
}

uint32_t cgpu_grant_promised_ppm(const struct cgpu_card *card, const struct cgpu_grant *grant)
{
	struct cgpu_policy_member member = cgpu_grant_member(card, grant);

	if (member.own_ppm)
		return member.own_ppm;
	return grant->quota_min ? percent_ppm(grant->quota_min) : member.least_ppm;
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
	if (bytes < cgpu_account_held(account))
		return -EBUSY;
	if (bytes > before && !has_room(host, minor, before, bytes))
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

	if (cgpu_grant_is_member(grant))
		return -EBUSY;
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
	if (cgpu_grant_is_member(grant))
		return -EBUSY;
	if (percent > 100 || (percent && percent < grant->quota_min))
		return -ERANGE;
	grant->quota = (uint32_t)percent;
	return 0;
}

int cgpu_grant_set_quota_min(struct cgpu_grant *grant, uint64_t percent)
{
	if (cgpu_grant_is_member(grant))
		return -EBUSY;
	if (percent > 100 || (grant->quota && percent > grant->quota))
		return -ERANGE;
	grant->quota_min = (uint32_t)percent;
	grant->floor_given = true;
	return 0;
}

int cgpu_grant_set_priority(struct cgpu_grant *grant, uint64_t priority)
{
	if (cgpu_grant_is_member(grant))
		return -EBUSY;
	if (priority > CGPU_PRIORITY_MAX)
		return -ERANGE;
	grant->priority = (uint32_t)priority;
	return 0;
}

int cgpu_grant_set_idle_park_s(struct cgpu_grant *grant, uint64_t seconds)
{
	if (seconds > CGPU_IDLE_PARK_S_MAX)
		return -ERANGE;
	grant->idle_park_s = (uint32_t)seconds;
	return 0;
}

int cgpu_card_set_policy(struct cgpu_card *card, uint64_t policy)
{
	if (policy >= CGPU_POLICY_END)
		return -ERANGE;
	card->policy = (uint32_t)policy;
	card->policy_by_hand = true;
	card->policy_by_request = false;
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

int cgpu_card_set_overcommit_ratio(struct cgpu_host *host, uint32_t minor, uint64_t percent)
{
	struct cgpu_card *card = &host->card[minor];
	uint64_t total = host->topology.gpu[minor].total_bytes;

	if (percent < CGPU_OVERCOMMIT_RATIO_DEFAULT || percent > CGPU_OVERCOMMIT_RATIO_MAX)
		return -ERANGE;
	if (total && card->allocated_bytes > promisable_bytes(total, (uint32_t)percent))
		return -EBUSY;
	card->overcommit_ratio = (uint32_t)percent;
	cgpu_card_told(host, minor);
	return 0;
}

bool cgpu_card_is_overcommitted(const struct cgpu_card *card)
{
	return card->overcommit_ratio > CGPU_OVERCOMMIT_RATIO_DEFAULT;
}

bool cgpu_host_is_overcommitted(const struct cgpu_host *host)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (cgpu_card_is_overcommitted(&host->card[minor]))
			return true;
	return false;
}
