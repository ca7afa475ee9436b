// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A policy turns members (weight, quota, priority, holds the card open) into a share, a floor and a
 * ceiling each, in millionths of the card. The strict policies leave idle time idle: share and
 * ceiling are the same, and do not depend on whether others use theirs. The work-conserving ones
 * divide what the floors leave by weight within the ceilings (water-filling), among the active
 * members.
 *
 * Floors hold under every policy. So a container keeps what it was promised, whichever others come,
 * and whatever policy the card had before.
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
		return member->quota || member->own_ppm;
	if (policy == CGPU_POLICY_PREEMPTIVE)
		return member->own_ppm;
	return !cgpu_policy_conserves(policy);
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
		    m->quota_min > 100 || m->own_ppm > CGPU_PPM ||
		    m->least_ppm > CGPU_PPM ||
		    m->priority > CGPU_POLICY_PRIORITY_MAX ||
		    (m->quota && m->quota_min > m->quota))
			return -ERANGE;
	}
	return 0;
}

static bool by_weight(uint32_t policy)
{
	return policy == CGPU_POLICY_WEIGHTED || policy == CGPU_POLICY_FIXED ||
	       policy == CGPU_POLICY_FAIR || policy == CGPU_POLICY_BURST ||
	       policy == CGPU_POLICY_ONLINE;
}

/* Parts of a member in what the fixed parts leave. */
static uint64_t parts(uint32_t policy, const struct cgpu_policy_member *m)
{
	return by_weight(policy) || m->own_weight ? m->weight : 1;
}

/* Weight among those that compete for the same time. */
static uint64_t effective_weight(uint32_t policy, const struct cgpu_policy_member *m)
{
	return parts(policy, m) << cgpu_min(m->priority, CGPU_POLICY_PRIORITY_STEPS);
}

static uint64_t within_quota(const struct cgpu_policy_member *m, uint64_t ppm)
{
	return m->quota ? cgpu_min(ppm, m->quota * PERCENT_PPM) : ppm;
}

/* The least that a member gets of the rest. Under online its class counts instead. */
static uint64_t least_ppm(uint32_t policy, const struct cgpu_policy_member *m)
{
	return within_quota(m, cgpu_max(m->quota_min * PERCENT_PPM,
					policy == CGPU_POLICY_ONLINE ? 0 : m->least_ppm));
}

/* The member's part, whatever the others do; 0: it divides the rest with them. */
static uint64_t fixed_ppm(uint32_t policy, const struct cgpu_policy_member *m)
{
	uint64_t ppm = m->own_ppm;

	if (!ppm && policy == CGPU_POLICY_MIXED)
		ppm = m->quota * PERCENT_PPM;
	return m->weight ? within_quota(m, ppm) : 0;
}

/* Takes the fixed parts off the card. Return: what they leave. */
static uint64_t fix(uint32_t policy, const struct cgpu_policy_member *members, uint32_t count,
		    struct cgpu_policy_share *shares)
{
	uint64_t sum = 0, ppm;
	uint32_t i;

	for (i = 0; i < count; i++)
		sum += fixed_ppm(policy, &members[i]);
	for (i = 0; i < count; i++) {
		ppm = fixed_ppm(policy, &members[i]);
		if (!ppm)
			continue;
		shares[i].ceiling_ppm = (uint32_t)ppm;
		/* promised beyond the whole: all are cut alike */
		shares[i].floor_ppm = (uint32_t)(sum > CGPU_PPM ? ppm * CGPU_PPM / sum : ppm);
		shares[i].share_ppm = members[i].open ? shares[i].floor_ppm : 0;
	}
	return sum < CGPU_PPM ? CGPU_PPM - sum : 0;
}

/*
 * The part of `m` if `sum` counts all that divide `room`. Under average and fixed a part is one of
 * max_inst, as long as so many fit.
 */
static uint64_t strict_part(uint32_t policy, uint32_t max_inst, uint64_t room, uint64_t sum,
			    const struct cgpu_policy_member *m)
{
	uint64_t part = parts(policy, m), ppm;

	/* policy 1: a member that opens the card now would add its part */
	if (policy == CGPU_POLICY_PREEMPTIVE && !m->open)
		sum += part;
	ppm = part * room / sum;
	if (policy == CGPU_POLICY_AVERAGE || policy == CGPU_POLICY_FIXED)
		ppm = cgpu_min(part * CGPU_PPM / max_inst, ppm);
	return within_quota(m, ppm);
}

/* Return: the sum of parts that a strict policy counts of the members in `take`. */
static uint64_t strict_sum(uint32_t policy, const struct cgpu_policy_member *members,
			   uint32_t count, uint64_t take)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < count; i++)
		if (take >> i & 1 && (members[i].open || policy != CGPU_POLICY_PREEMPTIVE))
			sum += parts(policy, &members[i]);
	return sum;
}

/*
 * Ceilings of the policies that leave idle time idle: a container's part does not depend on whether
 * the others use theirs. A container whose guarantee exceeds its part gets the guarantee, and the
 * others divide what that leaves.
 */
static void strict(uint32_t policy, uint32_t max_inst,
		   const struct cgpu_policy_member *members, uint32_t count,
		   struct cgpu_policy_share *shares)
{
	uint64_t room = fix(policy, members, count, shares), take = 0, sum, cap, least, used = 0;
	uint32_t i;
	bool again;

	for (i = 0; i < count; i++)
		if (members[i].weight && !fixed_ppm(policy, &members[i]))
			take |= 1ULL << i;
	do {
		again = false;
		sum = strict_sum(policy, members, count, take);
		for (i = 0; i < count; i++) {
			struct cgpu_policy_share *s = &shares[i];

			if (!(take >> i & 1))
				continue;
			cap = strict_part(policy, max_inst, room, sum, &members[i]);
			least = cgpu_min(least_ppm(policy, &members[i]), room);
			if (cap < least) {
				cap = least;
				room -= least;
				take &= ~(1ULL << i);
				again = true;
			}
			s->ceiling_ppm = (uint32_t)cap;
			s->floor_ppm = s->ceiling_ppm;
			s->share_ppm = members[i].open ? s->ceiling_ppm : 0;
			if (again)
				break;
		}
	} while (again);
	for (i = 0; i < count; i++)
		used += shares[i].share_ppm;
	/* what integer division left over goes to members that fill the card */
	for (i = 0; i < count && used < CGPU_PPM && used + count >= CGPU_PPM; i++) {
		if (!(take >> i & 1) || !shares[i].share_ppm || members[i].quota)
			continue;
		shares[i].share_ppm++;
		shares[i].ceiling_ppm++;
		shares[i].floor_ppm++;
		used++;
	}
}

/* The member's share at @level. */
static uint64_t share_at(uint64_t level, uint32_t policy, const struct cgpu_policy_member *m,
			 const struct cgpu_policy_share *s)
{
	uint64_t ppm = level * effective_weight(policy, m) >> 16;

	return cgpu_max(cgpu_min(ppm, s->ceiling_ppm), s->floor_ppm);
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
		for (i = 0, sum = 0; i < count; i++)
			if (take >> i & 1)
				sum += share_at(level, policy, &members[i], &shares[i]);
		if (sum > room)
			high = level;
		else
			low = level;
	}
	level = ceilings > room ? low : (uint64_t)CGPU_PPM << 16;
	for (i = 0, sum = 0; i < count; i++) {
		if (!(take >> i & 1))
			continue;
		/* promised beyond the whole: all are cut alike */
		got = floors > room ? (uint64_t)shares[i].floor_ppm * room / floors :
				      share_at(level, policy, &members[i], &shares[i]);
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
	uint64_t take = 0, room = CGPU_PPM;
	uint32_t i;

	/* under other policies a fixed part is not kept while its container sleeps */
	if (mixed)
		room = fix(policy, members, count, shares);
	for (i = 0; i < count; i++) {
		const struct cgpu_policy_member *m = &members[i];
		struct cgpu_policy_share *s = &shares[i];
		uint64_t fixed = fixed_ppm(policy, m);

		if (!m->weight || (mixed && fixed))
			continue;
		s->ceiling_ppm = (uint32_t)(fixed ? fixed : within_quota(m, room));
		s->floor_ppm = (uint32_t)cgpu_min(fixed ? fixed : least_ppm(policy, m),
						  s->ceiling_ppm);
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
