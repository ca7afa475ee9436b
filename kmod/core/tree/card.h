/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The cards of the host, and what each container was promised of them. */
#ifndef CGPU_CORE_TREE_CARD_H
#define CGPU_CORE_TREE_CARD_H

#include "core/types.h"
#include "core/sched/policy.h"
#include "core/memory/tenant.h"

enum cgpu_card_limit {
	CGPU_MAX_INST_DEFAULT = 20,  /* containers a card takes: ACK's default */
	CGPU_MEM_BYTES_MIN = 1 << 20, /* less is a size whose unit was forgotten */
	CGPU_MAX_INST_MAX = 64,
	/* for a container that asks for nothing: the whole card alone, its weight with others */
	CGPU_POLICY_DEFAULT = CGPU_POLICY_FAIR,
	CGPU_TIMESLICE_US_DEFAULT = 5000,
	CGPU_TIMESLICE_US_MIN = 1000,
	CGPU_TIMESLICE_US_MAX = 1000000,
	CGPU_PRIORITY_MAX = 15,
	CGPU_IDLE_PARK_S_MAX = 7 * 24 * 3600,
	CGPU_OVERCOMMIT_RATIO_DEFAULT = 100, /* percent of the card, as of vm.overcommit_ratio */
	CGPU_OVERCOMMIT_RATIO_MAX = 1000,
	CGPU_ID_MAX = 64             /* characters of a container's id */
};

enum cgpu_oom_action {
	CGPU_OOM_FAIL, /* the allocation fails, the process goes on */
	CGPU_OOM_KILL  /* the process is killed */
};

/* A container on one card: what was promised. */
struct cgpu_grant {
	bool present;
	bool unlimited;         /* mem=max */
	bool weight_given;      /* by the request, or later by hand */
	bool floor_given;       /* likewise: quota_min */
	uint8_t policy_hint;    /* as its request's words mean it; CGPU_POLICY_END: none */
	uint8_t oom_action;     /* enum cgpu_oom_action */
	bool uvm_disable;
	uint32_t instance;      /* number of the container on this card */
	uint32_t entity;        /* the scheduler's number of it: its own, or its group's leader's */
	uint32_t weight;        /* of a member: what it adds to its leader's */
	uint32_t brought;       /* of a leader: its members' weights, together */
	uint32_t brought_min;   /* of a leader: its members' floors, together */
	uint32_t quota;         /* percent, 0: none; of a member: of the threads of its group */
	uint32_t quota_min;     /* percent, 0: none; of a member: what it adds to its leader's */
	uint32_t priority;      /* 0 .. CGPU_PRIORITY_MAX, higher first */
	uint32_t idle_park_s;   /* idle for so long it may be parked, 0: never by itself */
	uint64_t mem_bytes;
};

/* `create`, parsed. Grants by minor. */
struct cgpu_create {
	char id[65];            /* CGPU_ID_MAX and the end */
	int32_t pid;            /* 0: cgroup is given instead */
	char cgroup[1024];
	char group[65];         /* id of its group's leader, perhaps its own; empty: it has none */
	struct cgpu_grant *leader; /* of a member: the leader's grants, by minor */
	struct cgpu_grant grant[CGPU_MAX_CARDS];
};

struct cgpu_card {
	bool present;
	bool policy_by_hand;    /* written by hand; a hint does not change it */
	bool policy_by_request; /* a hint's, until the card's last container goes */
	uint32_t policy;
	uint32_t policy_before; /* the hint */
	uint32_t max_inst;
	uint32_t timeslice_us;
	uint32_t overcommit_ratio; /* limits may add up to so many percent of the card */
	uint32_t members;       /* containers on the card */
	uint32_t weight_sum;
	uint64_t instances;     /* bit n: instance number n is taken */
	uint64_t allocated_bytes; /* sum of the limited containers' mem_bytes */
	uint64_t foreign_bytes; /* of processes in no container, as a return was last told */
};

/* The defaults of a card. */
struct cgpu_card_defaults {
	uint32_t policy;
	uint32_t max_inst;
	uint32_t timeslice_us;
};

struct cgpu_host {
	uint64_t policy_moved;  /* bit per card: by the last admission or release */
	struct cgpu_topology topology;
	struct cgpu_card card[CGPU_MAX_CARDS];
};

/* Sets a card to its defaults; `gpu` is what the driver said of it. */
void cgpu_card_add(struct cgpu_host *host, uint32_t minor, const struct cgpu_gpu *gpu);

/*
 * Admits a container to all its cards or to none, filling in instance numbers and default weights.
 * Its hint becomes the policy of a card that was not set by hand and has no other container. With
 * others, the hint counts for this container alone (cgpu_grant_member()). Return: 0, -ENODEV: no
 * such card, -ENOSPC: max_inst, weight or memory of a card exceeded (then `minor` names it),
 * -EINVAL: no card, -EBUSY: it asks for compute, and the others on the card have the driver's own
 * sharing, -ENXIO: the card is in MIG mode.
 *
 * A member of a group has memory of its own; the compute is the leader's. Its weight is added to
 * its group's, unless that was given one, and so is its floor. Its quota is reported and not
 * enforced here: MPS does that. -ENODEV also: a card that the leader has not; -ENOSPC: floors past
 * the group's ceiling; -EINVAL: it asks for another part of the compute.
 */
int cgpu_host_admit(struct cgpu_host *host, struct cgpu_create *create, uint32_t *minor);
/*
 * Gives back what was admitted; with a card's last container a hint's policy goes. `leader`: as
 * cgpu_create's, NULL: it is no member, or its leader has been released.
 */
void cgpu_host_release(struct cgpu_host *host, const struct cgpu_grant *grants,
		       struct cgpu_grant *leader);

/* The leader goes before this member: from here on it is a container like any other. */
void cgpu_grants_leave_group(struct cgpu_host *host, struct cgpu_grant *grants);
/* Does it share a leader's compute? */
bool cgpu_grant_is_member(const struct cgpu_grant *grant);

/* The scheduler's settings of a container; `open` and `active` are left to the caller. */
struct cgpu_policy_member cgpu_grant_member(const struct cgpu_card *card,
					    const struct cgpu_grant *grant);
/* The assured part of the card's compute, whatever other containers and policy; 0: nothing. */
uint32_t cgpu_grant_promised_ppm(const struct cgpu_card *card, const struct cgpu_grant *grant);

/* Copies grants into the accounts that pay for them. */
void cgpu_grants_apply(const struct cgpu_grant *grants, struct cgpu_ledger *ledger);

/*
 * Live changes of one grant. Return: 0, -ERANGE: outside the allowed values,
 * -ENOSPC: the card has no room, -EBUSY: below what is in use; of a member's weight, quota
 * and priority: they are its group's leader's. On an error nothing changed.
 */
int cgpu_grant_set_memsize(struct cgpu_host *host, uint32_t minor,
			   struct cgpu_grant *grant, struct cgpu_account *account,
			   uint64_t bytes);
int cgpu_grant_set_weight(struct cgpu_host *host, uint32_t minor,
			  struct cgpu_grant *grant, uint64_t weight);
int cgpu_grant_set_quota(struct cgpu_grant *grant, uint64_t percent);
int cgpu_grant_set_quota_min(struct cgpu_grant *grant, uint64_t percent);
int cgpu_grant_set_priority(struct cgpu_grant *grant, uint64_t priority);
int cgpu_grant_set_idle_park_s(struct cgpu_grant *grant, uint64_t seconds);

/*
 * Other defaults for a new card, from the module's parameters; not by hand. Return: 0, -ERANGE: one
 * is outside the allowed values, and nothing changed.
 */
int cgpu_card_set_defaults(struct cgpu_card *card, const struct cgpu_card_defaults *defaults);

int cgpu_card_set_policy(struct cgpu_card *card, uint64_t policy);
int cgpu_card_set_max_inst(struct cgpu_card *card, uint64_t max_inst);
int cgpu_card_set_timeslice_us(struct cgpu_card *card, uint64_t timeslice_us);
/* Called after all else that tells the card's size. */
void cgpu_card_told(struct cgpu_host *host, uint32_t minor);
bool cgpu_card_is_overcommitted(const struct cgpu_card *card);
/* Is any card overcommitted? */
bool cgpu_host_is_overcommitted(const struct cgpu_host *host);
/* -EBUSY: more is promised already */
int cgpu_card_set_overcommit_ratio(struct cgpu_host *host, uint32_t minor, uint64_t percent);
uint32_t cgpu_card_free_weight(const struct cgpu_card *card);
/* Bytes that are neither promised nor held back; 0 if the size is unknown. */
uint64_t cgpu_card_free_bytes(const struct cgpu_host *host, uint32_t minor);

#endif
