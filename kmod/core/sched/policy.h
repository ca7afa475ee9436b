/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a container may take of a card's compute: a pure function of the card's policy and its
 * members. Shares are in parts per million of the card.
 */
#ifndef CGPU_CORE_SCHED_POLICY_H
#define CGPU_CORE_SCHED_POLICY_H

#include "core/types.h"

/* 0 to 5 are cGPU's numbers and meanings. */
enum cgpu_policy {
	CGPU_POLICY_AVERAGE,
	CGPU_POLICY_PREEMPTIVE,
	CGPU_POLICY_WEIGHTED,
	CGPU_POLICY_FIXED,
	CGPU_POLICY_WEAK,
	CGPU_POLICY_NATIVE,
	CGPU_POLICY_MIXED,
	CGPU_POLICY_FAIR,
	CGPU_POLICY_BURST,
	CGPU_POLICY_ONLINE,
	CGPU_POLICY_END
};

enum cgpu_policy_limit {
	CGPU_PPM = 1000000,
	CGPU_POLICY_MEMBERS = 64,
	CGPU_POLICY_WEIGHT_MAX = 10000,
	CGPU_POLICY_PRIORITY_MAX = 15,
	/*
	 * A step of priority doubles a weight, up to this many steps: with more,
	 * the lowest would fall below what a timeslice can express.
	 */
	CGPU_POLICY_PRIORITY_STEPS = 6
};

/* A container on the card. */
struct cgpu_policy_member {
	uint32_t weight;    /* 0: no compute, under every policy but native */
	uint32_t quota;     /* percent, 0: none */
	uint32_t quota_min; /* percent, 0: none */
	uint32_t priority;
	/*
	 * What the container asked for in its own words, under any policy. own_ppm: exactly this
	 * part, which comes off before the others divide the rest; 0: none. own_weight: its weight
	 * counts. least_ppm: what the weight is worth at least, however much the fixed parts take
	 */
	uint32_t own_ppm;
	uint32_t least_ppm;
	bool own_weight;
	bool open;          /* a process of the container holds the GPU open */
	bool active;        /* open, and not known to be idle */
};

struct cgpu_policy_share {
	uint32_t share_ppm;   /* while all active members want all they can get */
	uint32_t floor_ppm;   /* guaranteed, whatever the others do */
	uint32_t ceiling_ppm; /* never more, even alone */
};

/*
 * Fills `shares` for `count` members. Return: 0; -EINVAL: no such policy; -ERANGE: max_inst,
 * weight, quota, a part or priority out of bounds, or quota_min above quota; -ENOSPC: more than
 * CGPU_POLICY_MEMBERS. An error writes nothing.
 */
int cgpu_policy_shares(uint32_t policy, uint32_t max_inst,
		       const struct cgpu_policy_member *members, uint32_t count,
		       struct cgpu_policy_share *shares);

/* true if the container's part does not depend on which containers hold the card open */
bool cgpu_policy_fixes(uint32_t policy, const struct cgpu_policy_member *member);
/* true if idle time of one container is offered to others */
bool cgpu_policy_conserves(uint32_t policy);

/* Return: the policy's name; NULL: no such policy. */
const char *cgpu_policy_name(uint32_t policy);
/* Return: the policy of that name, -EINVAL. */
int cgpu_policy_number(const char *name, size_t length);

#endif
