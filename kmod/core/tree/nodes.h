/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The text of every file of the tree: what each says, what may be written to
 * it, and the errno of every bad write. docs/tree.md is the same for people.
 */
#ifndef CGPU_CORE_TREE_NODES_H
#define CGPU_CORE_TREE_NODES_H

#include "core/types.h"
#include "core/tree/card.h"
#include "core/tree/move.h"

enum cgpu_nodes_limit {
	CGPU_API_VERSION = 1,
	CGPU_VALUE_MAX = 64,        /* bytes of a write to a node but inst_ctl */
	CGPU_SHORT_ID = 12,         /* digits of an id that `docker ps` shows */
	CGPU_COMM_MAX = 16          /* the kernel's name of a process, with its end */
};

/* Directories. A container's files on one card are below the card and below the container. */
enum cgpu_place {
	CGPU_PLACE_ROOT,
	CGPU_PLACE_CARD,            /* <gpu>/ */
	CGPU_PLACE_GRANT,           /* <gpu>/<id>/ and container/<id>/<gpu>/ */
	CGPU_PLACE_CONTAINER        /* container/<id>/ */
};

enum cgpu_node {
	CGPU_NODE_VERSION,
	CGPU_NODE_API_VERSION,
	CGPU_NODE_FEATURES,
	CGPU_NODE_EVENTS,           /* a stream: its text is not made here */
	CGPU_NODE_INST_CTL,         /* written through cgpu_parse_inst_ctl() */

	CGPU_NODE_POLICY,
	CGPU_NODE_MAX_INST,
	CGPU_NODE_FREE_WEIGHT,
	CGPU_NODE_UUID,
	CGPU_NODE_MEMORY,
	CGPU_NODE_TIMESLICE_US,
	CGPU_NODE_CARD_STAT,

	CGPU_NODE_ID,
	CGPU_NODE_MEMSIZE,
	CGPU_NODE_MEMINFO,
	CGPU_NODE_WEIGHT,
	CGPU_NODE_QUOTA,
	CGPU_NODE_QUOTA_MIN,
	CGPU_NODE_PRIORITY,
	CGPU_NODE_PROCS,
	CGPU_NODE_STAT,
	CGPU_NODE_COUNTERS,         /* the file `events` of a container */
	CGPU_NODE_OOM_ACTION,
	CGPU_NODE_UVM_DISABLE,
	CGPU_NODE_UNKNOWN,
	CGPU_NODE_GRANT_CID,
	CGPU_NODE_GROUP,

	CGPU_NODE_CID,

	CGPU_NODE_STATE,            /* of all of the container, whatever card is looked at */
	CGPU_NODE_IDLE_PARK_S,
	CGPU_NODE_OVERCOMMIT_RATIO,
	CGPU_NODE_PARKING,
	CGPU_NODE_COUNT
};

struct cgpu_node_entry {
	const char *name;
	uint16_t mode;              /* 0444 or 0644 */
	uint8_t place;              /* enum cgpu_place */
	bool wants_usage;           /* shows cgpu_view.usage */
	bool wants_holders;         /* shows cgpu_view.holders */
	bool wants_stats;           /* shows cgpu_view.stats */
	bool wants_away;            /* shows cgpu_view.away */
};

extern const struct cgpu_node_entry cgpu_node_table[CGPU_NODE_COUNT];

/* The features of this door: words of `features`, bits of cgpu_view.features. */
enum cgpu_feature {
	CGPU_FEATURE_PID,           /* create by pid= */
	CGPU_FEATURE_CGROUP,        /* create by cgroup= */
	CGPU_FEATURE_EVENTS,
	CGPU_FEATURE_MEMORY,        /* limits are enforced: the driver is hooked */
	CGPU_FEATURE_MANAGED,       /* managed memory is charged */
	CGPU_FEATURE_SLICES,        /* timeslices can be programmed */
	CGPU_FEATURE_GATE,          /* channels can be taken off the hardware */
	CGPU_FEATURE_UPGRADE,       /* this code can be replaced under running containers */
	CGPU_FEATURE_PARK,          /* containers can be moved to the host and back */
	CGPU_FEATURE_COUNT
};

/* Sums over the containers of one card. */
struct cgpu_usage {
	uint64_t used_bytes;
	uint64_t parked_bytes;          /* had, by containers that are parked */
	uint64_t reserved_bytes;        /* for those that move, and not taken yet */
};

/* A process that holds the card open or has memory on it. */
struct cgpu_holder {
	uint32_t pid;               /* host's number */
	uint32_t container_pid;     /* number in the container, 0: it is gone */
	uint64_t bytes;
	char comm[CGPU_COMM_MAX];   /* empty: it is gone */
};

/* A line of `stat` that another part contributes. */
struct cgpu_stat {
	const char *key;
	uint64_t value;
};

/*
 * The data that a node shows and changes. The caller fills in what the node's place has, and what
 * its entry wants, and keeps all of it still during the call.
 */
struct cgpu_view {
	struct cgpu_host *host;         /* card, grant */
	uint32_t minor;                 /* card, grant */
	struct cgpu_grant *grant;       /* grant */
	struct cgpu_account *account;   /* grant */
	uint32_t park_state;            /* grant: enum cgpu_park_state */
	const struct cgpu_parking *parking; /* grant; NULL: it never moved */
	uint64_t host_bytes;            /* grant: charged to CGPU_HOST, for all its cards */
	const char *id;                 /* grant, container: the full id */
	const char *group;              /* grant: id of its group's leader, empty: it has none */
	const char *version;            /* root */
	uint32_t features;              /* root: bit per enum cgpu_feature */
	uint32_t holder_count;
	uint32_t stat_count;
	uint32_t away_count;
	const struct cgpu_holder *holders;
	const struct cgpu_stat *stats;
	const struct cgpu_away *away;
	struct cgpu_usage usage;
};

/*
 * Copies of what a view points at, shown without the locks under which it changes. The holders may
 * be many, and gates wait for these locks.
 */
struct cgpu_view_copy {
	struct cgpu_host host;
	struct cgpu_grant grant;
	struct cgpu_account account;
	struct cgpu_parking parking;
};

/* Has `view` point into `copy`. The id and what was contributed stay where they are. */
void cgpu_view_detach(struct cgpu_view *view, struct cgpu_view_copy *copy);

/* The task that opens a file. A process of a container sees what it would see alone on the card. */
enum cgpu_asker {
	CGPU_ASKER_HOST,            /* belongs to no container */
	CGPU_ASKER_OWN,             /* belongs to the container that the file is about */
	CGPU_ASKER_OTHER            /* belongs to a container, and the file is not about it */
};

/*
 * May `asker` open `node`? `admin`: with CAP_SYS_ADMIN on the host. Return: 0,
 * -EACCES: it is none of theirs, or read-only; -EPERM: not theirs to write.
 */
int cgpu_node_open(uint32_t node, enum cgpu_asker asker, bool write, bool admin);

void cgpu_usage_add(struct cgpu_usage *usage, const struct cgpu_ledger *ledger, uint32_t card);

/*
 * Writes the text of `node` into `buf`, without an end. Return: its bytes,
 * -ENOSPC: more than `size`, -EINVAL: no such node, or a stream.
 */
int cgpu_node_show(const struct cgpu_view *view, uint32_t node, char *buf, size_t size);

/*
 * Writes `text` to `node`. On an error nothing changed. Return: 0,
 * -EINVAL: not the node's syntax, -ERANGE: out of bounds, -ENOSPC: the card has
 * no room, -EBUSY: below what is in use, -EACCES: the node is read-only.
 */
int cgpu_node_store(struct cgpu_view *view, uint32_t node, const char *text,
		    size_t length);

/*
 * Name of a container's directory under a card: of an id of 64 hex digits the
 * first `digits`, at least CGPU_SHORT_ID; any other id whole. `out` has room
 * for CGPU_ID_MAX characters and the end. Return: the name's length; on a clash
 * call again with one digit more, until the id is used up.
 */
uint32_t cgpu_short_name(const char *id, uint32_t digits, char *out);

#endif
