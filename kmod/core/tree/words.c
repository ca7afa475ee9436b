// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/tree/words.h"

const char cgpu_inst_ctl_usage[] =
	"create <id> pid=<pid>|cgroup=<path> gpu=<n>,mem=<bytes>|max[,weight=<w>][,quota=<percent>]"
	"[,quota_min=<percent>][,priority=<p>][,policy=<policy>][,uvm_disable=0|1]"
	"[,oom_action=fail|kill][,idle_park_s=<s>] [gpu=...] [group=<id>]\n"
	"destroy <id>\n"
	"park <id> pid=<pid>[,<pid>...] [hold=1]\n"
	"parked <id>\n"
	"return <id> [foreign=<gpu>:<bytes>] [foreign=...]\n"
	"running <id>\n"
	"no_room <id>\n"
	"stay <id>\n"
	"server <id> started|ended|died|lost|killed pid=<pid> [member=<id>] [after=<id>]\n";

const struct cgpu_word cgpu_no_limit = CGPU_WORD("max");

const struct cgpu_word cgpu_oom_actions[CGPU_OOM_KILL + 1] = {
	[CGPU_OOM_FAIL] = CGPU_WORD("fail"),
	[CGPU_OOM_KILL] = CGPU_WORD("kill"),
};

const struct cgpu_word cgpu_unknown_actions[2] = {
	CGPU_WORD("refuse"),
	CGPU_WORD("log"),
};

bool cgpu_word_is(struct cgpu_word word, struct cgpu_word other)
{
	return word.length == other.length && !memcmp(word.text, other.text, word.length);
}

bool cgpu_word_ends_with(struct cgpu_word word, char end)
{
	return word.length && word.text[word.length - 1] == end;
}

int cgpu_word_index(struct cgpu_word word, const struct cgpu_word *words, uint32_t count)
{
	uint32_t index;

	for (index = 0; index < count; index++)
		if (cgpu_word_is(word, words[index]))
			return (int)index;
	return -EINVAL;
}

struct cgpu_word cgpu_word_cut(struct cgpu_word *rest, char end)
{
	struct cgpu_word front = *rest;
	size_t index;

	for (index = 0; index < rest->length && rest->text[index] != end; index++)
		;
	front.length = index;
	if (index < rest->length)
		index++;
	rest->text += index;
	rest->length -= index;
	return front;
}

struct cgpu_word cgpu_word_line(const char *text, size_t length)
{
	struct cgpu_word word = { text, length };

	if (cgpu_word_ends_with(word, '\n'))
		word.length--;
	return word;
}

int cgpu_parse_number(struct cgpu_word word, uint64_t *value)
{
	bool overflow = false;
	size_t index;

	*value = 0;
	if (!word.length)
		return -EINVAL;
	for (index = 0; index < word.length; index++) {
		uint64_t digit = (uint64_t)(unsigned char)word.text[index] - '0';

		if (digit > 9)
			return -EINVAL;
		if (*value > (UINT64_MAX - digit) / 10)
			overflow = true;
		else
			*value = *value * 10 + digit;
	}
	return overflow ? -ERANGE : 0;
}

int cgpu_parse_between(struct cgpu_word word, uint64_t min, uint64_t max, uint64_t *value)
{
	int err = cgpu_parse_number(word, value);

	return err ? err : *value < min || *value > max ? -ERANGE : 0;
}

int cgpu_parse_policy(struct cgpu_word word, uint64_t *policy)
{
	int number = cgpu_policy_number(word.text, word.length);

	if (number < 0)
		return cgpu_parse_between(word, 0, CGPU_POLICY_END - 1, policy);
	*policy = (uint64_t)number;
	return 0;
}

int cgpu_parse_oom_action(struct cgpu_word word, uint64_t *action)
{
	int index = cgpu_word_index(word, cgpu_oom_actions, CGPU_OOM_KILL + 1);

	*action = (uint64_t)index;
	return index < 0 ? index : 0;
}
