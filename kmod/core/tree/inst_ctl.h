/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The grammar of `inst_ctl`: how containers are made, removed and moved. */
#ifndef CGPU_CORE_TREE_INST_CTL_H
#define CGPU_CORE_TREE_INST_CTL_H

#include "core/types.h"
#include "core/tree/card.h"
#include "core/tree/move.h"
#include "core/tree/server.h"

enum cgpu_inst_ctl_limit {
	CGPU_COMMAND_MAX = 4096,    /* bytes of a write to inst_ctl */
	CGPU_PID_MAX = 0x7fffffff
};

enum cgpu_verb {
	CGPU_VERB_CREATE,
	CGPU_VERB_DESTROY,          /* only create.id is set */
	CGPU_VERB_SERVER,           /* `news` of the server of the group create.id */
	CGPU_VERB_MOVE              /* a step of `move`, of the container create.id */
};

struct cgpu_command {
	uint32_t verb;              /* enum cgpu_verb */
	struct cgpu_create create;
	struct cgpu_move move;
	struct cgpu_server_news news;
};

/*
 * Parses one write to inst_ctl. Return: 0; for the first fault from the left: -EINVAL: syntax, a
 * bad id, a card, a key or a process twice, -ERANGE: a number out of bounds, -ENODEV: no host can
 * have this card, -E2BIG: more processes than are remembered. On an error `out` is undefined.
 */
int cgpu_parse_inst_ctl(const char *text, size_t length, struct cgpu_command *out);

#endif
