/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The grammar of `inst_ctl`: how containers are made and removed by hand. */
#ifndef CGPU_CORE_TREE_INST_CTL_H
#define CGPU_CORE_TREE_INST_CTL_H

#include "core/types.h"
#include "core/tree/card.h"

enum cgpu_inst_ctl_limit {
	CGPU_COMMAND_MAX = 4096,    /* bytes of a write to inst_ctl */
	CGPU_PID_MAX = 0x7fffffff
};

enum cgpu_verb {
	CGPU_VERB_CREATE,
	CGPU_VERB_DESTROY           /* only create.id is set */
};

struct cgpu_command {
	uint32_t verb;              /* enum cgpu_verb */
	struct cgpu_create create;
};

/*
 * Parses one write to inst_ctl. Return: 0; for the first fault from the left:
 * -EINVAL: syntax, a bad id, a card or a key twice, -ERANGE: a number out of
 * bounds, -ENODEV: no host can have this card. On an error `out` is undefined.
 */
int cgpu_parse_inst_ctl(const char *text, size_t length, struct cgpu_command *out);

#endif
