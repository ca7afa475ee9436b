// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A policy turns members (weight, quota, priority, holds the card open) into a share,
 * a floor and a ceiling each, in millionths of the card. The strict policies leave
 * idle time idle: share and ceiling are the same, and do not depend on what others do
 * with theirs. The work-conserving ones divide what the floors leave by weight within
 * the ceilings (water-filling), among the members that are active.
 */
#include "core/sched/policy.h"
#include "core/sched/bounds.h"

#define PERCENT_PPM ((uint64_t)CGPU_PPM / 100)

static const struct {
	const char *text;
	size_t length;
} names[CGPU_POLICY_END] = {
#define NAME(number, word) [CGPU_POLICY_##number] = { word, sizeof(word) - 1 }
	NAME(AVERAGE, "average"),
	NAME(PREEMPTIVE, "preemptive"),
	NAME(WEIGHTED, "weighted"),
	NAME(FIXED, "fixed"),
	NAME(WEAK, "weak"),
	NAME(NATIVE, "native"),
	NAME(MIXED, "mixed"),
	NAME(FAIR, "weighted-conserving"),
	NAME(BURST, "burst"),
	NAME(ONLINE, "online"),
#undef NAME
};

const char *cgpu_policy_name(uint32_t policy)
{
	return policy < CGPU_POLICY_END ? names[policy].text : NULL;
}

int cgpu_policy_number(const char *name, size_t length)
{
	int i;

	for (i = 0; i < CGPU_POLICY_END; i++)
		if (names[i].length == length && !memcmp(names[i].text, name, length))
			return i;
	return -EINVAL;
}

bool cgpu_policy_fixes(uint32_t policy, const struct cgpu_policy_member *member)
{
	if (policy == CGPU_POLICY_MIXED)
		return member->quota;
	return policy != CGPU_POLICY_PREEMPTIVE && !cgpu_policy_conserves(policy);
}

bool cgpu_policy_conserves(uint32_t policy)
{
	return policy >= CGPU_POLICY_WEAK;
}

static int check(uint32_t policy, uint32_t max_inst,
		 const struct cgpu_policy_member *members, uint32_t count)
{
	uint32_t i;

	if (policy >= CGPU_POLICY_END)
		return -EINVAL;
	if (!max_inst || max_inst > CGPU_POLICY_MEMBERS)
		return -ERANGE;
	if (count > CGPU_POLICY_MEMBERS)
		return -ENOSPC;
	for (i = 0; i < count; i++) {
		const struct cgpu_policy_member *m = &members[i];

		if (m->weight > CGPU_POLICY_WEIGHT_MAX || m->quota > 100 ||
		    m->quota_min > 100 || m->priority > CGPU_POLICY_PRIORITY_MAX ||
		    (m->quota && m->quota_min > m->quota))
			return -ERANGE;
	}
	return 0;
}

static bool has_floors(uint32_t policy)
{
	return policy == CGPU_POLICY_BURST || policy == CGPU_POLICY_ONLINE;
}

static bool by_weight(uint32_t policy)
{
	return policy == CGPU_POLICY_WEIGHTED || policy == CGPU_POLICY_FIXED ||
	       policy == CGPU_POLICY_FAIR || has_floors(policy);
}

/* Weight among those that compete for the same time. */
static uint64_t effective_weight(uint32_t policy, const struct cgpu_policy_member *m)
{
	return (by_weight(policy) ? (uint64_t)m->weight : 1) <<
	       cgpu_min(m->priority, CGPU_POLICY_PRIORITY_STEPS);
}

/*
 * Ceilings of the policies that leave idle time idle: a container's part does
 * not depend on what the others do with theirs.
 */
static void strict(uint32_t policy, uint32_t max_inst,
		   const struct cgpu_policy_member *members, uint32_t count,
		   struct cgpu_policy_share *shares)
{
	uint64_t whole = 0, present = 0, opened = 0, weights = 0, sum = 0, part, cap;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!members[i].weight)
			continue;
		present++;
		opened += members[i].open;
		weights += members[i].weight;
	}
	switch (policy) {
	case CGPU_POLICY_AVERAGE:
		whole = present > max_inst ? present : max_inst;
		break;
	case CGPU_POLICY_PREEMPTIVE:
		whole = opened;
		break;
	case CGPU_POLICY_WEIGHTED:
		whole = weights;
		break;
	default:
		whole = weights > max_inst ? weights : max_inst;
		break;
	}
	for (i = 0; i < count; i++) {
		const struct cgpu_policy_member *m = &members[i];
		struct cgpu_policy_share *s = &shares[i];

		if (!m->weight)
			continue;
		part = by_weight(policy) ? m->weight : 1;
		/* policy 1: one that opens the card now would be one more */
		cap = whole + (policy == CGPU_POLICY_PREEMPTIVE && !m->open);
		cap = cgpu_min(part * CGPU_PPM / cap, CGPU_PPM);
		if (m->quota)
			cap = cgpu_min(cap, m->quota * PERCENT_PPM);
		s->ceiling_ppm = (uint32_t)cap;
		s->floor_ppm = s->ceiling_ppm;
		s->share_ppm = m->open ? s->ceiling_ppm : 0;
		sum += s->share_ppm;
	}
	/* what integer division left over belongs to those that fill the card */
	for (i = 0; i < count && sum < CGPU_PPM && sum + count >= CGPU_PPM; i++) {
		if (!shares[i].share_ppm || members[i].quota)
			continue;
		shares[i].share_ppm++;
		shares[i].ceiling_ppm++;
		shares[i].floor_ppm++;
		sum++;
	}
}

/*
 * Divides `room` among the active members that `take` names by their effective
 * weight, within floor and ceiling: share = clamp(level × weight, floor, ceiling) for the
 * one level at which the shares add up. The level is found by halving, so that
 * the cost is linear in the members.
 */
static void water_fill(uint32_t policy, const struct cgpu_policy_member *members,
		       uint32_t count, uint64_t take, uint64_t room,
		       struct cgpu_policy_share *shares)
{
	uint64_t low = 0, high = (uint64_t)CGPU_PPM << 16, level, floors = 0, ceilings = 0;
	uint64_t weights = 0, got, sum = 0;
	uint32_t i, step;

	for (i = 0; i < count; i++) {
		if (!(take >> i & 1))
			continue;
		floors += shares[i].floor_ppm;
		ceilings += shares[i].ceiling_ppm;
		weights += effective_weight(policy, &members[i]);
	}
	if (!weights)
		return;
	for (step = 0; step < 40 && ceilings > room; step++) {
		level = (low + high) / 2;
		for (i = 0, sum = 0; i < count; i++) {
			if (!(take >> i & 1))
				continue;
			got = cgpu_min(level * effective_weight(policy, &members[i]) >> 16,
				       shares[i].ceiling_ppm);
			if (floors <= room && got < shares[i].floor_ppm)
				got = shares[i].floor_ppm;
			sum += got;
		}
		if (sum > room)
			high = level;
		else
			low = level;
	}
	level = ceilings > room ? low : (uint64_t)CGPU_PPM << 16;
	for (i = 0, sum = 0; i < count; i++) {
		if (!(take >> i & 1))
			continue;
		got = cgpu_min(level * effective_weight(policy, &members[i]) >> 16,
			       shares[i].ceiling_ppm);
		if (floors > room)
			got = (uint64_t)shares[i].floor_ppm * room / floors;
		else if (got < shares[i].floor_ppm)
			got = shares[i].floor_ppm;
		shares[i].share_ppm = (uint32_t)got;
		sum += got;
	}
	for (i = 0; i < count && sum < room; i++) {
		if (!(take >> i & 1) || shares[i].share_ppm >= shares[i].ceiling_ppm)
			continue;
		shares[i].share_ppm++;
		sum++;
	}
}

static void conserving(uint32_t policy, const struct cgpu_policy_member *members,
		       uint32_t count, struct cgpu_policy_share *shares)
{
	bool mixed = policy == CGPU_POLICY_MIXED;
	uint64_t take = 0, room = CGPU_PPM, quotas = 0;
	uint32_t i;

	for (i = 0; mixed && i < count; i++)
		if (members[i].weight)
			quotas += members[i].quota * PERCENT_PPM;
	if (mixed)
		room = quotas < CGPU_PPM ? CGPU_PPM - quotas : 0;
	for (i = 0; i < count; i++) {
		const struct cgpu_policy_member *m = &members[i];
		struct cgpu_policy_share *s = &shares[i];

		if (!m->weight)
			continue;
		s->ceiling_ppm = m->quota ? (uint32_t)(m->quota * PERCENT_PPM) : (uint32_t)room;
		if (mixed && m->quota) {
			/* promised beyond the whole: all are cut alike */
			s->floor_ppm = quotas > CGPU_PPM ?
				(uint32_t)((uint64_t)s->ceiling_ppm * CGPU_PPM / quotas) :
				s->ceiling_ppm;
			s->share_ppm = m->open ? s->floor_ppm : 0;
			continue;
		}
		if (has_floors(policy))
			s->floor_ppm = (uint32_t)(m->quota_min * PERCENT_PPM);
		if (m->open && m->active)
			take |= 1ULL << i;
	}
	water_fill(policy, members, count, take, room, shares);
}

int cgpu_policy_shares(uint32_t policy, uint32_t max_inst,
		       const struct cgpu_policy_member *members, uint32_t count,
		       struct cgpu_policy_share *shares)
{
	int err = check(policy, max_inst, members, count);
	uint32_t i;

	if (err)
		return err;
	memset(shares, 0, count * sizeof(*shares));
	if (policy == CGPU_POLICY_NATIVE) {
		for (i = 0; i < count; i++)
			shares[i].ceiling_ppm = CGPU_PPM;
	} else if (cgpu_policy_conserves(policy)) {
		conserving(policy, members, count, shares);
	} else {
		strict(policy, max_inst, members, count, shares);
	}
	return 0;
}
