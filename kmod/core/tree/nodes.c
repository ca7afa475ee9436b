// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * One table says which files there are; two switches say what each shows and
 * takes. Text is strict: what a node prints it also accepts, and anything that
 * is not exactly the documented form is refused before anything is written.
 */
#include "core/tree/nodes.h"
#include "core/tree/text.h"
#include "core/tree/words.h"

#define ENTRY(node, file, where, bits, ...) \
	[CGPU_NODE_##node] = { .name = file, .place = CGPU_PLACE_##where, .mode = bits, \
			       ##__VA_ARGS__ }

const struct cgpu_node_entry cgpu_node_table[CGPU_NODE_COUNT] = {
	ENTRY(VERSION, "version", ROOT, 0444),
	ENTRY(API_VERSION, "api_version", ROOT, 0444),
	ENTRY(FEATURES, "features", ROOT, 0444),
	ENTRY(EVENTS, "events", ROOT, 0444),
	ENTRY(INST_CTL, "inst_ctl", ROOT, 0644),

	ENTRY(POLICY, "policy", CARD, 0644),
	ENTRY(MAX_INST, "max_inst", CARD, 0644),
	ENTRY(FREE_WEIGHT, "free_weight", CARD, 0444),
	ENTRY(UUID, "uuid", CARD, 0444),
	ENTRY(MEMORY, "memory", CARD, 0644, .wants_usage = true),
	ENTRY(TIMESLICE_US, "timeslice_us", CARD, 0644),
	ENTRY(CARD_STAT, "stat", CARD, 0444, .wants_usage = true, .wants_stats = true),

	ENTRY(ID, "id", GRANT, 0444),
	ENTRY(MEMSIZE, "memsize", GRANT, 0644),
	ENTRY(MEMINFO, "meminfo", GRANT, 0444, .wants_usage = true, .wants_holders = true),
	ENTRY(WEIGHT, "weight", GRANT, 0644),
	ENTRY(QUOTA, "quota", GRANT, 0644),
	ENTRY(QUOTA_MIN, "quota_min", GRANT, 0644),
	ENTRY(PRIORITY, "priority", GRANT, 0644),
	ENTRY(PROCS, "procs", GRANT, 0444, .wants_holders = true),
	ENTRY(STAT, "stat", GRANT, 0444, .wants_stats = true),
	ENTRY(COUNTERS, "events", GRANT, 0444),
	ENTRY(OOM_ACTION, "oom_action", GRANT, 0644),
	ENTRY(UVM_DISABLE, "uvm_disable", GRANT, 0644),
	ENTRY(UNKNOWN, "unknown", GRANT, 0644),
	ENTRY(GRANT_CID, "cid", GRANT, 0444),
	ENTRY(GROUP, "group", GRANT, 0444),

	ENTRY(CID, "cid", CONTAINER, 0444),

	ENTRY(STATE, "state", GRANT, 0444),
	ENTRY(IDLE_PARK_S, "idle_park_s", GRANT, 0644),
	ENTRY(OVERCOMMIT_RATIO, "overcommit_ratio", CARD, 0644),
	ENTRY(PARKING, "parking", ROOT, 0444, .wants_away = true),
};

static const char *const features[CGPU_FEATURE_COUNT] = {
	[CGPU_FEATURE_PID] = "pid",
	[CGPU_FEATURE_CGROUP] = "cgroup",
	[CGPU_FEATURE_EVENTS] = "events",
	[CGPU_FEATURE_MEMORY] = "memory",
	[CGPU_FEATURE_MANAGED] = "managed",
	[CGPU_FEATURE_SLICES] = "slices",
	[CGPU_FEATURE_GATE] = "gate",
	[CGPU_FEATURE_UPGRADE] = "upgrade",
	[CGPU_FEATURE_PARK] = "park",
};

static const char *const park_states[] = {
	[CGPU_PARK_RUNNING] = "running",
	[CGPU_PARK_PARKING] = "parking",
	[CGPU_PARK_PARKED] = "parked",
	[CGPU_PARK_RESUMING] = "resuming",
};

/* Nodes that tell nothing of tenants: the same on every host of this release. */
static bool is_public(uint32_t node)
{
	return node == CGPU_NODE_VERSION || node == CGPU_NODE_API_VERSION ||
	       node == CGPU_NODE_FEATURES;
}

int cgpu_node_open(uint32_t node, enum cgpu_asker asker, bool write, bool admin)
{
	if (asker == CGPU_ASKER_OTHER && !is_public(node) && !write)
		return -EACCES;
	if (!write)
		return 0;
	if (!(cgpu_node_table[node].mode & 0200))
		return -EACCES;
	return admin && asker == CGPU_ASKER_HOST ? 0 : -EPERM;
}

/* ---- printing ---- */

static void put_line(struct cgpu_text *text, uint64_t value)
{
	cgpu_put_number(text, value);
	cgpu_put_char(text, '\n');
}

static void put_pair(struct cgpu_text *text, const char *key, uint64_t value)
{
	cgpu_put_string(text, key);
	cgpu_put_char(text, ' ');
	put_line(text, value);
}

/* A process chooses its own name: nothing in it may look like another line. */
static void put_comm(struct cgpu_text *text, const char *comm)
{
	size_t index;

	if (!comm[0])
		cgpu_put_char(text, '-');
	for (index = 0; index < CGPU_COMM_MAX && comm[index]; index++) {
		unsigned char c = (unsigned char)comm[index];

		cgpu_put_char(text, c < 0x20 || c == 0x7f ? '?' : (char)c);
	}
}

/* The UUID as nvidia-smi prints it; an empty line if the driver did not tell it. */
static void put_uuid(struct cgpu_text *text, const uint8_t *uuid)
{
	static const uint8_t nobody[16];
	static const char hex[] = "0123456789abcdef";
	size_t index;

	if (!memcmp(uuid, nobody, sizeof(nobody))) {
		cgpu_put_char(text, '\n');
		return;
	}
	cgpu_put_string(text, "GPU");
	for (index = 0; index < sizeof(nobody); index++) {
		if (index == 0 || index == 4 || index == 6 || index == 8 || index == 10)
			cgpu_put_char(text, '-');
		cgpu_put_char(text, hex[uuid[index] >> 4]);
		cgpu_put_char(text, hex[uuid[index] & 15]);
	}
	cgpu_put_char(text, '\n');
}

static void put_stats(struct cgpu_text *text, const struct cgpu_view *view)
{
	uint32_t index;

	for (index = 0; index < view->stat_count; index++)
		put_pair(text, view->stats[index].key, view->stats[index].value);
}

/* Containers that are not running, or wait for room: the service that moves them needs these. */
static void show_away(struct cgpu_text *text, const struct cgpu_away *away)
{
	const struct cgpu_parking *parking = &away->parking;
	uint32_t index;

	cgpu_put_string(text, away->id);
	cgpu_put_string(text, " state=");
	cgpu_put_string(text, park_states[away->state]);
	cgpu_put_value(text, " since_ns=", parking->since_ns);
	cgpu_put_value(text, " bytes=", away->parked_bytes);
	if (parking->held)
		cgpu_put_string(text, " hold=1");
	if (parking->asked_ns)
		cgpu_put_value(text, " asked_ns=", parking->asked_ns);
	if (away->wanting_bytes) {
		cgpu_put_value(text, " want_gpu=", parking->want_card);
		cgpu_put_value(text, " want_bytes=", away->wanting_bytes);
	}
	if (parking->short_bytes && parking->short_card < CGPU_MAX_CARDS) {
		cgpu_put_value(text, " short_gpu=", parking->short_card);
		cgpu_put_value(text, " short_bytes=", parking->short_bytes);
	}
	for (index = 0; index < parking->count; index++)
		cgpu_put_value(text, index ? "," : " pid=", parking->pid[index]);
	cgpu_put_char(text, '\n');
}

static void show_root(const struct cgpu_view *view, uint32_t node, struct cgpu_text *text)
{
	uint32_t bit, index;

	switch (node) {
	case CGPU_NODE_VERSION:
		cgpu_put_string(text, view->version);
		cgpu_put_char(text, '\n');
		return;
	case CGPU_NODE_API_VERSION:
		put_line(text, CGPU_API_VERSION);
		return;
	case CGPU_NODE_INST_CTL:
		cgpu_put_string(text, cgpu_inst_ctl_usage);
		return;
	case CGPU_NODE_PARKING:
		for (index = 0; index < view->away_count; index++)
			show_away(text, &view->away[index]);
		return;
	default:
		break;
	}
	for (bit = 0; bit < CGPU_FEATURE_COUNT; bit++) {
		if (!(view->features & 1u << bit))
			continue;
		cgpu_put_string(text, features[bit]);
		cgpu_put_char(text, '\n');
	}
}

static void show_card(const struct cgpu_view *view, uint32_t node, struct cgpu_text *text)
{
	const struct cgpu_gpu *gpu = &view->host->topology.gpu[view->minor];
	const struct cgpu_card *card = &view->host->card[view->minor];

	switch (node) {
	case CGPU_NODE_POLICY:
		put_line(text, card->policy);
		break;
	case CGPU_NODE_MAX_INST:
		put_line(text, card->max_inst);
		break;
	case CGPU_NODE_FREE_WEIGHT:
		put_line(text, cgpu_card_free_weight(card));
		break;
	case CGPU_NODE_UUID:
		put_uuid(text, gpu->uuid);
		break;
	case CGPU_NODE_MEMORY:
		put_pair(text, "total", gpu->total_bytes);
		put_pair(text, "reserved", gpu->reserved_bytes);
		put_pair(text, "allocated", card->allocated_bytes);
		put_pair(text, "used", view->usage.used_bytes);
		put_pair(text, "free", cgpu_card_free_bytes(view->host, view->minor));
		break;
	case CGPU_NODE_TIMESLICE_US:
		put_line(text, card->timeslice_us);
		break;
	case CGPU_NODE_OVERCOMMIT_RATIO:
		put_line(text, card->overcommit_ratio);
		break;
	case CGPU_NODE_CARD_STAT:
		put_pair(text, "containers", card->members);
		put_pair(text, "weight_sum", card->weight_sum);
		put_pair(text, "allocated_bytes", card->allocated_bytes);
		put_pair(text, "used_bytes", view->usage.used_bytes);
		put_pair(text, "policy_by_hand", card->policy_by_hand);
		if (card->policy_by_request)
			put_pair(text, "policy_by_request", 1);
		if (gpu->mig != CGPU_MIG_UNTOLD)
			put_pair(text, "mig", gpu->mig == CGPU_MIG_ON);
		if (view->usage.parked_bytes)
			put_pair(text, "parked_bytes", view->usage.parked_bytes);
		if (view->usage.reserved_bytes)
			put_pair(text, "reserved_bytes", view->usage.reserved_bytes);
		put_stats(text, view);
		break;
	default:
		break;
	}
}

/* The memory that a container can still get: its own remainder, or less if the card has less. */
static uint64_t free_bytes(const struct cgpu_view *view)
{
	const struct cgpu_gpu *gpu = &view->host->topology.gpu[view->minor];
	struct cgpu_room room = {
		.card_bytes = gpu->total_bytes, .foreign_bytes = gpu->reserved_bytes,
		.used_bytes = view->usage.used_bytes,
		.reserved_bytes = view->usage.reserved_bytes,
	};
	uint64_t on_card = gpu->total_bytes ? cgpu_room_left(&room) : 0;

	if (!gpu->total_bytes && !view->account->unlimited)
		on_card = UINT64_MAX;
	return cgpu_account_free(view->account, on_card);
}

static void show_meminfo(const struct cgpu_view *view, struct cgpu_text *text)
{
	uint32_t index;

	cgpu_put_string(text, "Free: ");
	put_line(text, free_bytes(view));
	for (index = 0; index < view->holder_count; index++) {
		cgpu_put_string(text, "PID: ");
		cgpu_put_number(text, view->holders[index].pid);
		cgpu_put_string(text, " Mem: ");
		put_line(text, view->holders[index].bytes);
	}
}

static void show_procs(const struct cgpu_view *view, struct cgpu_text *text)
{
	uint32_t index;

	for (index = 0; index < view->holder_count; index++) {
		const struct cgpu_holder *holder = &view->holders[index];

		cgpu_put_number(text, holder->pid);
		cgpu_put_char(text, ' ');
		cgpu_put_number(text, holder->container_pid);
		cgpu_put_char(text, ' ');
		cgpu_put_number(text, holder->bytes);
		cgpu_put_char(text, ' ');
		put_comm(text, holder->comm);
		cgpu_put_char(text, '\n');
	}
}

static void show_memsize(const struct cgpu_view *view, struct cgpu_text *text)
{
	if (!view->grant->unlimited) {
		put_line(text, view->grant->mem_bytes);
		return;
	}
	cgpu_put_string(text, cgpu_no_limit.text);
	cgpu_put_char(text, '\n');
}

/* A container that never moved has nothing to show. */
static void show_parking(const struct cgpu_view *view, struct cgpu_text *text)
{
	if (!view->parking || !view->parking->since_ns)
		return;
	put_pair(text, "parked_bytes", view->account->parked_bytes);
	put_pair(text, "reserved_bytes",
		 view->park_state == CGPU_PARK_PARKED || view->park_state == CGPU_PARK_RUNNING ?
		 0 : view->account->parked_bytes + view->account->slack_bytes);
	put_pair(text, "state_since_ns", view->parking->since_ns);
	put_pair(text, "waits_for_room", view->parking->asked_ns != 0);
	put_pair(text, "moves_ns", view->parking->moved_ns);
	if (view->parking->return_ns)
		put_pair(text, "last_return_ns", view->parking->return_ns);
}

static void show_stat(const struct cgpu_view *view, struct cgpu_text *text)
{
	const struct cgpu_account *account = view->account;

	put_pair(text, "current_bytes", account->current_bytes);
	put_pair(text, "peak_bytes", account->peak_bytes);
	/* numbers only: without a limit of its own a container's size is the card's */
	put_pair(text, "max_bytes", account->unlimited ?
		 view->host->topology.gpu[view->minor].total_bytes : account->max_bytes);
	put_pair(text, "unlimited", account->unlimited);
	put_pair(text, "oom", account->oom);
	put_pair(text, "refused", account->refused);
	put_pair(text, "host_bytes", view->host_bytes);
	show_parking(view, text);
	if (view->grant->policy_hint < CGPU_POLICY_END) {
		put_pair(text, "policy_asked", view->grant->policy_hint);
		put_pair(text, "promised_ppm",
			 cgpu_grant_promised_ppm(&view->host->card[view->minor], view->grant));
	}
	put_stats(text, view);
}

static void show_grant(const struct cgpu_view *view, uint32_t node, struct cgpu_text *text)
{
	const struct cgpu_grant *grant = view->grant;

	switch (node) {
	case CGPU_NODE_ID:
		put_line(text, grant->instance);
		break;
	case CGPU_NODE_MEMSIZE:
		show_memsize(view, text);
		break;
	case CGPU_NODE_MEMINFO:
		show_meminfo(view, text);
		break;
	case CGPU_NODE_WEIGHT:
		put_line(text, grant->weight);
		break;
	case CGPU_NODE_QUOTA:
		put_line(text, grant->quota);
		break;
	case CGPU_NODE_QUOTA_MIN:
		put_line(text, grant->quota_min);
		break;
	case CGPU_NODE_PRIORITY:
		put_line(text, grant->priority);
		break;
	case CGPU_NODE_PROCS:
		show_procs(view, text);
		break;
	case CGPU_NODE_STAT:
		show_stat(view, text);
		break;
	case CGPU_NODE_COUNTERS:
		put_pair(text, "oom", view->account->oom);
		put_pair(text, "refused", view->account->refused);
		break;
	case CGPU_NODE_OOM_ACTION:
		cgpu_put_string(text, cgpu_oom_actions[grant->oom_action].text);
		cgpu_put_char(text, '\n');
		break;
	case CGPU_NODE_UVM_DISABLE:
		put_line(text, grant->uvm_disable);
		break;
	case CGPU_NODE_IDLE_PARK_S:
		put_line(text, grant->idle_park_s);
		break;
	case CGPU_NODE_GROUP:
		cgpu_put_string(text, view->group && view->group[0] ? view->group : "-");
		cgpu_put_char(text, '\n');
		break;
	case CGPU_NODE_STATE:
		cgpu_put_string(text, park_states[view->park_state]);
		cgpu_put_char(text, '\n');
		break;
	case CGPU_NODE_UNKNOWN:
		cgpu_put_string(text, cgpu_unknown_actions[view->account->admit_unknown].text);
		cgpu_put_char(text, '\n');
		break;
	default:
		cgpu_put_string(text, view->id);
		cgpu_put_char(text, '\n');
		break;
	}
}

void cgpu_view_detach(struct cgpu_view *view, struct cgpu_view_copy *copy)
{
	copy->host = *view->host;
	view->host = &copy->host;
	if (view->grant) {
		copy->grant = *view->grant;
		view->grant = &copy->grant;
	}
	if (view->account) {
		copy->account = *view->account;
		view->account = &copy->account;
	}
	if (view->parking) {
		copy->parking = *view->parking;
		view->parking = &copy->parking;
	}
}

int cgpu_node_show(const struct cgpu_view *view, uint32_t node, char *buf, size_t size)
{
	struct cgpu_text text = { .buf = buf, .size = size };

	if (node >= CGPU_NODE_COUNT || node == CGPU_NODE_EVENTS)
		return -EINVAL;
	switch (cgpu_node_table[node].place) {
	case CGPU_PLACE_ROOT:
		show_root(view, node, &text);
		break;
	case CGPU_PLACE_CARD:
		show_card(view, node, &text);
		break;
	case CGPU_PLACE_GRANT:
		show_grant(view, node, &text);
		break;
	default:
		cgpu_put_string(&text, view->id);
		cgpu_put_char(&text, '\n');
		break;
	}
	return text.used <= size ? (int)text.used : -ENOSPC;
}

void cgpu_usage_add(struct cgpu_usage *usage, const struct cgpu_ledger *ledger, uint32_t card)
{
	const struct cgpu_account *account = &ledger->account[card];

	/* managed memory is an upper bound: the sum may exceed any card */
	if (account->current_bytes > UINT64_MAX - usage->used_bytes)
		usage->used_bytes = UINT64_MAX;
	else
		usage->used_bytes += account->current_bytes;
	if (ledger->park_state == CGPU_PARK_PARKED)
		usage->parked_bytes += account->parked_bytes;
	usage->reserved_bytes += cgpu_parking_reserved(ledger, card);
}

/* ---- writing ---- */

/* `total <bytes>`: root's word for a card whose size the driver did not tell. */
static int store_total(struct cgpu_view *view, struct cgpu_word text)
{
	static const struct cgpu_word total = CGPU_WORD("total");
	struct cgpu_gpu *gpu = &view->host->topology.gpu[view->minor];
	uint64_t bytes;
	int err;

	if (!cgpu_word_is(cgpu_word_cut(&text, ' '), total))
		return -EINVAL;
	err = cgpu_parse_between(text, gpu->reserved_bytes + 1, UINT64_MAX, &bytes);
	if (err)
		return err;
	if (gpu->total_bytes)
		return -EBUSY;
	if (bytes < view->host->card[view->minor].allocated_bytes)
		return -ENOSPC;
	gpu->total_bytes = bytes;
	cgpu_card_told(view->host, view->minor);
	return 0;
}

static int store_card(struct cgpu_view *view, uint32_t node, struct cgpu_word text)
{
	struct cgpu_card *card = &view->host->card[view->minor];
	uint64_t value;
	int err;

	if (node == CGPU_NODE_MEMORY)
		return store_total(view, text);
	err = node == CGPU_NODE_POLICY ? cgpu_parse_policy(text, &value)
				       : cgpu_parse_number(text, &value);
	if (err)
		return err;
	switch (node) {
	case CGPU_NODE_POLICY:
		return cgpu_card_set_policy(card, value);
	case CGPU_NODE_MAX_INST:
		return cgpu_card_set_max_inst(card, value);
	case CGPU_NODE_OVERCOMMIT_RATIO:
		return cgpu_card_set_overcommit_ratio(view->host, view->minor, value);
	default:
		return cgpu_card_set_timeslice_us(card, value);
	}
}

static int store_grant(struct cgpu_view *view, uint32_t node, struct cgpu_word text)
{
	struct cgpu_grant *grant = view->grant;
	uint64_t value;
	int err;

	if (node == CGPU_NODE_UNKNOWN) {
		err = cgpu_word_index(text, cgpu_unknown_actions, 2);
		if (err < 0)
			return err;
		view->account->admit_unknown = err;
		return 0;
	}

	/* what was read may be written back; only create lifts a limit */
	if (node == CGPU_NODE_MEMSIZE && grant->unlimited && cgpu_word_is(text, cgpu_no_limit))
		return 0;
	err = node == CGPU_NODE_OOM_ACTION ? cgpu_parse_oom_action(text, &value)
					   : cgpu_parse_number(text, &value);
	if (err)
		return err;
	switch (node) {
	case CGPU_NODE_MEMSIZE:
		return cgpu_grant_set_memsize(view->host, view->minor, grant,
					      view->account, value);
	case CGPU_NODE_WEIGHT:
		return cgpu_grant_set_weight(view->host, view->minor, grant, value);
	case CGPU_NODE_QUOTA:
		return cgpu_grant_set_quota(grant, value);
	case CGPU_NODE_QUOTA_MIN:
		return cgpu_grant_set_quota_min(grant, value);
	case CGPU_NODE_PRIORITY:
		return cgpu_grant_set_priority(grant, value);
	case CGPU_NODE_IDLE_PARK_S:
		/* no container of a group is ever parked */
		if (value && view->group && view->group[0])
			return -EBUSY;
		return cgpu_grant_set_idle_park_s(grant, value);
	case CGPU_NODE_OOM_ACTION:
		grant->oom_action = (uint8_t)value;
		view->account->oom_kill = value == CGPU_OOM_KILL;
		return 0;
	default:
		if (value > 1)
			return -ERANGE;
		grant->uvm_disable = value;
		view->account->uvm_disable = value;
		return 0;
	}
}

int cgpu_node_store(struct cgpu_view *view, uint32_t node, const char *text,
		    size_t length)
{
	if (node >= CGPU_NODE_COUNT || node == CGPU_NODE_INST_CTL)
		return -EINVAL;
	if (!(cgpu_node_table[node].mode & 0200))
		return -EACCES;
	if (length > CGPU_VALUE_MAX)
		return -EINVAL;
	return cgpu_node_table[node].place == CGPU_PLACE_CARD ?
	       store_card(view, node, cgpu_word_line(text, length)) :
	       store_grant(view, node, cgpu_word_line(text, length));
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

uint32_t cgpu_short_name(const char *id, uint32_t digits, char *out)
{
	uint32_t length;
	bool hex = true;

	for (length = 0; length < CGPU_ID_MAX && id[length]; length++)
		hex = hex && is_hex(id[length]);
	if (hex && length == CGPU_ID_MAX)
		length = digits < CGPU_SHORT_ID ? CGPU_SHORT_ID :
			 digits < CGPU_ID_MAX ? digits : CGPU_ID_MAX;
	memcpy(out, id, length);
	out[length] = 0;
	return length;
}
