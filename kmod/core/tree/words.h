/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Words of the tree's grammar. Strict: what is not exactly the documented form
 * is refused. Only nodes.c and inst_ctl.c need this header.
 */
#ifndef CGPU_CORE_TREE_WORDS_H
#define CGPU_CORE_TREE_WORDS_H

#include "core/types.h"
#include "core/tree/card.h"

/* A word with its length: the core has no strlen(), and written text has no terminator. */
struct cgpu_word {
	const char *text;
	size_t length;
};

#define CGPU_WORD(text) { text, sizeof(text) - 1 }

/* The text that inst_ctl shows: how to write to it. */
extern const char cgpu_inst_ctl_usage[];
extern const struct cgpu_word cgpu_no_limit;    /* `max` */
extern const struct cgpu_word cgpu_oom_actions[CGPU_OOM_KILL + 1];
/* `refuse`, `log` */
extern const struct cgpu_word cgpu_unknown_actions[2];

bool cgpu_word_is(struct cgpu_word word, struct cgpu_word other);
bool cgpu_word_ends_with(struct cgpu_word word, char end);
/* Return: index of `word` in `words`, -EINVAL. */
int cgpu_word_index(struct cgpu_word word, const struct cgpu_word *words, uint32_t count);
/* Cuts the text up to `end` off the front of `rest`, and `end` with it. */
struct cgpu_word cgpu_word_cut(struct cgpu_word *rest, char end);
/* The written text, without the newline that may end it. */
struct cgpu_word cgpu_word_line(const char *text, size_t length);

/* Digits and nothing else. Return: 0, -EINVAL, -ERANGE: above 2^64 - 1. */
int cgpu_parse_number(struct cgpu_word word, uint64_t *value);
/* As cgpu_parse_number(); -ERANGE also outside the bounds. */
int cgpu_parse_between(struct cgpu_word word, uint64_t min, uint64_t max, uint64_t *value);
/* A policy's number or name. */
int cgpu_parse_policy(struct cgpu_word word, uint64_t *policy);
/* Its name. */
int cgpu_parse_oom_action(struct cgpu_word word, uint64_t *action);

#endif
