// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/tree/inst_ctl.h"
#include "core/tree/nodes.h"
#include "core/tree/words.h"

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A container's directory stands beside the card's files: it cannot have their names. */
static bool is_card_file(struct cgpu_word id)
{
	uint32_t node;

	for (node = 0; node < CGPU_NODE_COUNT; node++) {
		const char *name = cgpu_node_table[node].name;
		size_t index;

		if (cgpu_node_table[node].place != CGPU_PLACE_CARD)
			continue;
		for (index = 0; index < id.length && id.text[index] == name[index]; index++)
			;
		if (index == id.length && !name[index])
			return true;
	}
	return false;
}

static int parse_id(struct cgpu_word word, char *id)
{
	size_t index;

	if (!word.length || word.length > CGPU_ID_MAX || !is_alnum(word.text[0]) ||
	    is_card_file(word))
		return -EINVAL;
	for (index = 1; index < word.length; index++) {
		char c = word.text[index];

		if (!is_alnum(c) && c != '_' && c != '.' && c != '-')
			return -EINVAL;
	}
	memcpy(id, word.text, word.length);
	id[word.length] = 0;
	return 0;
}

enum key {
	KEY_MEM,
	KEY_WEIGHT,
	KEY_QUOTA,
	KEY_QUOTA_MIN,
	KEY_PRIORITY,
	KEY_POLICY,
	KEY_UVM_DISABLE,
	KEY_OOM_ACTION,
	KEY_IDLE_PARK_S,
	KEY_COUNT
};

static const struct cgpu_word keys[KEY_COUNT] = {
	[KEY_MEM] = CGPU_WORD("mem"),
	[KEY_WEIGHT] = CGPU_WORD("weight"),
	[KEY_QUOTA] = CGPU_WORD("quota"),
	[KEY_QUOTA_MIN] = CGPU_WORD("quota_min"),
	[KEY_PRIORITY] = CGPU_WORD("priority"),
	[KEY_POLICY] = CGPU_WORD("policy"),
	[KEY_UVM_DISABLE] = CGPU_WORD("uvm_disable"),
	[KEY_OOM_ACTION] = CGPU_WORD("oom_action"),
	[KEY_IDLE_PARK_S] = CGPU_WORD("idle_park_s"),
};

static int parse_option(struct cgpu_grant *grant, uint32_t key, struct cgpu_word text)
{
	uint64_t value;
	int err;

	switch (key) {
	case KEY_MEM:
		grant->unlimited = cgpu_word_is(text, cgpu_no_limit);
		if (grant->unlimited)
			return 0;
		return cgpu_parse_between(text, CGPU_MEM_BYTES_MIN, UINT64_MAX,
					  &grant->mem_bytes);
	case KEY_WEIGHT:
		err = cgpu_parse_between(text, 0, CGPU_MAX_INST_MAX, &value);
		grant->weight = (uint32_t)value;
		grant->weight_given = true;
		return err;
	case KEY_QUOTA:
		err = cgpu_parse_between(text, 0, 100, &value);
		grant->quota = (uint32_t)value;
		return err;
	case KEY_QUOTA_MIN:
		err = cgpu_parse_between(text, 0, 100, &value);
		grant->quota_min = (uint32_t)value;
		return err;
	case KEY_PRIORITY:
		err = cgpu_parse_between(text, 0, CGPU_PRIORITY_MAX, &value);
		grant->priority = (uint32_t)value;
		return err;
	case KEY_POLICY:
		err = cgpu_parse_policy(text, &value);
		grant->policy_hint = (uint8_t)value;
		return err;
	case KEY_UVM_DISABLE:
		err = cgpu_parse_between(text, 0, 1, &value);
		grant->uvm_disable = value;
		return err;
	case KEY_IDLE_PARK_S:
		err = cgpu_parse_between(text, 0, CGPU_IDLE_PARK_S_MAX, &value);
		grant->idle_park_s = (uint32_t)value;
		return err;
	default:
		err = cgpu_parse_oom_action(text, &value);
		grant->oom_action = (uint8_t)value;
		return err;
	}
}

/* `<n>,mem=…[,key=value]…`, what follows `gpu=`. */
static int parse_grant(struct cgpu_word text, struct cgpu_create *create)
{
	struct cgpu_grant *grant;
	uint32_t seen = 0;
	uint64_t minor;
	int err;

	if (cgpu_word_ends_with(text, ','))
		return -EINVAL;
	err = cgpu_parse_number(cgpu_word_cut(&text, ','), &minor);
	if (err)
		return err;
	if (minor >= CGPU_MAX_CARDS)
		return -ENODEV;
	grant = &create->grant[minor];
	if (grant->present)
		return -EINVAL;
	*grant = (struct cgpu_grant){ .present = true, .policy_hint = CGPU_POLICY_END };
	while (text.length) {
		struct cgpu_word value = cgpu_word_cut(&text, ',');
		int key = cgpu_word_index(cgpu_word_cut(&value, '='), keys, KEY_COUNT);

		if (key < 0 || seen & 1u << key)
			return -EINVAL;
		seen |= 1u << key;
		err = parse_option(grant, (uint32_t)key, value);
		if (err)
			return err;
	}
	if (!(seen & 1u << KEY_MEM))
		return -EINVAL;
	if (grant->quota && grant->quota_min > grant->quota)
		return -ERANGE;
	return 0;
}

static int parse_cgroup(struct cgpu_word path, char *cgroup, size_t size)
{
	size_t index;

	if (!path.length || path.text[0] != '/' || path.length >= size)
		return -EINVAL;
	for (index = 0; index < path.length; index++) {
		unsigned char c = (unsigned char)path.text[index];

		if (c < 0x20 || c == 0x7f)
			return -EINVAL;
	}
	memcpy(cgroup, path.text, path.length);
	cgroup[path.length] = 0;
	return 0;
}

static int parse_clause(struct cgpu_word clause, struct cgpu_create *create)
{
	static const struct cgpu_word pid = CGPU_WORD("pid"), cgroup = CGPU_WORD("cgroup"),
				      gpu = CGPU_WORD("gpu"), group = CGPU_WORD("group");
	struct cgpu_word key = cgpu_word_cut(&clause, '=');
	uint64_t value;
	int err;

	if (cgpu_word_is(key, gpu))
		return parse_grant(clause, create);
	if (cgpu_word_is(key, group))
		return create->group[0] ? -EINVAL : parse_id(clause, create->group);
	if (create->pid || create->cgroup[0])
		return -EINVAL;
	if (cgpu_word_is(key, cgroup))
		return parse_cgroup(clause, create->cgroup, sizeof(create->cgroup));
	if (!cgpu_word_is(key, pid))
		return -EINVAL;
	err = cgpu_parse_between(clause, 1, CGPU_PID_MAX, &value);
	create->pid = (int32_t)value;
	return err;
}

static int parse_create(struct cgpu_word text, struct cgpu_create *create)
{
	uint32_t minor;
	int err;

	while (text.length) {
		err = parse_clause(cgpu_word_cut(&text, ' '), create);
		if (err)
			return err;
	}
	if (!create->pid && !create->cgroup[0])
		return -EINVAL;
	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (create->grant[minor].present)
			return 0;
	return -EINVAL;
}

/* `<n>[,<n>]…`, what follows `pid=`. */
static int parse_processes(struct cgpu_word text, struct cgpu_move *move)
{
	uint64_t pid;
	uint32_t index;
	int err;

	if (move->count || !text.length || cgpu_word_ends_with(text, ','))
		return -EINVAL;
	while (text.length) {
		err = cgpu_parse_between(cgpu_word_cut(&text, ','), 1, CGPU_PID_MAX, &pid);
		if (err)
			return err;
		for (index = 0; index < move->count; index++)
			if (move->pid[index] == pid)
				return -EINVAL;
		if (move->count == CGPU_PARKED_PROCESSES)
			return -E2BIG;
		move->pid[move->count++] = (uint32_t)pid;
	}
	return 0;
}

/* `<gpu>:<bytes>`, what follows `foreign=`. */
static int parse_foreign(struct cgpu_word text, struct cgpu_move *move)
{
	uint64_t minor;
	int err = cgpu_parse_number(cgpu_word_cut(&text, ':'), &minor);

	if (err)
		return err;
	if (minor >= CGPU_MAX_CARDS)
		return -ENODEV;
	if (move->told & 1u << minor)
		return -EINVAL;
	move->told |= 1u << minor;
	return cgpu_parse_number(text, &move->foreign_bytes[minor]);
}

static int parse_move(struct cgpu_word text, struct cgpu_move *move)
{
	static const struct cgpu_word pid = CGPU_WORD("pid"), foreign = CGPU_WORD("foreign"),
				      hold = CGPU_WORD("hold"), yes = CGPU_WORD("1");
	int err;

	while (text.length) {
		struct cgpu_word value = cgpu_word_cut(&text, ' ');
		struct cgpu_word key = cgpu_word_cut(&value, '=');

		if (move->step == CGPU_STEP_PARK && cgpu_word_is(key, pid))
			err = parse_processes(value, move);
		else if (move->step == CGPU_STEP_RETURN && cgpu_word_is(key, foreign))
			err = parse_foreign(value, move);
		else if (move->step == CGPU_STEP_PARK && cgpu_word_is(key, hold) && !move->hold)
			err = cgpu_word_is(value, yes) ? 0 : -EINVAL;
		else
			err = -EINVAL;
		if (err)
			return err;
		move->hold |= cgpu_word_is(key, hold);
	}
	return move->step == CGPU_STEP_PARK && !move->count ? -EINVAL : 0;
}

static bool has_member(const struct cgpu_server_news *news)
{
	return news->fate == CGPU_SERVER_LOST || news->fate == CGPU_SERVER_KILLED;
}

static bool may_have_after(const struct cgpu_server_news *news)
{
	return news->fate == CGPU_SERVER_DIED || news->fate == CGPU_SERVER_LOST;
}

static int parse_server_clause(struct cgpu_word clause, struct cgpu_server_news *news)
{
	static const struct cgpu_word pid = CGPU_WORD("pid"), member = CGPU_WORD("member"),
				      after = CGPU_WORD("after");
	struct cgpu_word key = cgpu_word_cut(&clause, '=');
	uint64_t value;
	int err;

	if (cgpu_word_is(key, member) && has_member(news) && !news->member[0])
		return parse_id(clause, news->member);
	if (cgpu_word_is(key, after) && may_have_after(news) && !news->after[0])
		return parse_id(clause, news->after);
	if (!cgpu_word_is(key, pid) || news->pid)
		return -EINVAL;
	err = cgpu_parse_between(clause, 1, CGPU_PID_MAX, &value);
	news->pid = (uint32_t)value;
	return err;
}

static int parse_server(struct cgpu_word text, struct cgpu_server_news *news)
{
	static const struct cgpu_word fates[CGPU_SERVER_FATE_COUNT] = {
		[CGPU_SERVER_STARTED] = CGPU_WORD("started"),
		[CGPU_SERVER_ENDED] = CGPU_WORD("ended"),
		[CGPU_SERVER_DIED] = CGPU_WORD("died"),
		[CGPU_SERVER_LOST] = CGPU_WORD("lost"),
		[CGPU_SERVER_KILLED] = CGPU_WORD("killed"),
	};
	int fate = cgpu_word_index(cgpu_word_cut(&text, ' '), fates, CGPU_SERVER_FATE_COUNT);
	int err;

	if (fate < 0)
		return fate;
	news->fate = (uint32_t)fate;
	while (text.length) {
		err = parse_server_clause(cgpu_word_cut(&text, ' '), news);
		if (err)
			return err;
	}
	return news->pid && has_member(news) == (news->member[0] != 0) ? 0 : -EINVAL;
}

/* Behind what stands here first are the steps of a move, in their order. */
static const struct cgpu_word verbs[CGPU_VERB_MOVE + CGPU_STEP_COUNT] = {
	[CGPU_VERB_CREATE] = CGPU_WORD("create"),
	[CGPU_VERB_DESTROY] = CGPU_WORD("destroy"),
	[CGPU_VERB_SERVER] = CGPU_WORD("server"),
	[CGPU_VERB_MOVE + CGPU_STEP_PARK] = CGPU_WORD("park"),
	[CGPU_VERB_MOVE + CGPU_STEP_PARKED] = CGPU_WORD("parked"),
	[CGPU_VERB_MOVE + CGPU_STEP_RETURN] = CGPU_WORD("return"),
	[CGPU_VERB_MOVE + CGPU_STEP_RUNNING] = CGPU_WORD("running"),
	[CGPU_VERB_MOVE + CGPU_STEP_NO_ROOM] = CGPU_WORD("no_room"),
	[CGPU_VERB_MOVE + CGPU_STEP_STAY] = CGPU_WORD("stay"),
};

int cgpu_parse_inst_ctl(const char *text, size_t length, struct cgpu_command *out)
{
	struct cgpu_word rest = cgpu_word_line(text, length);
	int verb, err;

	memset(out, 0, sizeof(*out));
	/* a cut does not tell `a ` from `a`; any other stray space leaves an empty word */
	if (length > CGPU_COMMAND_MAX || cgpu_word_ends_with(rest, ' '))
		return -EINVAL;
	verb = cgpu_word_index(cgpu_word_cut(&rest, ' '), verbs,
			       CGPU_VERB_MOVE + CGPU_STEP_COUNT);
	if (verb < 0)
		return verb;
	err = parse_id(cgpu_word_cut(&rest, ' '), out->create.id);
	if (err)
		return err;
	if (verb == CGPU_VERB_CREATE)
		return parse_create(rest, &out->create);
	if (verb == CGPU_VERB_DESTROY) {
		out->verb = CGPU_VERB_DESTROY;
		return rest.length ? -EINVAL : 0;
	}
	if (verb == CGPU_VERB_SERVER) {
		out->verb = CGPU_VERB_SERVER;
		return parse_server(rest, &out->news);
	}
	out->verb = CGPU_VERB_MOVE;
	out->move.step = (uint32_t)verb - CGPU_VERB_MOVE;
	return parse_move(rest, &out->move);
}
