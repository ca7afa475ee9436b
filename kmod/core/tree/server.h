/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The fate of a group's MPS server, which the server's keeper writes to `inst_ctl`. A door only
 * puts a line into `events`, next to the ends of containers.
 */
#ifndef CGPU_CORE_TREE_SERVER_H
#define CGPU_CORE_TREE_SERVER_H

#include "core/types.h"

enum cgpu_server_fate {
	CGPU_SERVER_STARTED,
	CGPU_SERVER_ENDED,
	CGPU_SERVER_DIED,       /* programs were left */
	CGPU_SERVER_LOST,       /* by a member, whose programs end with it */
	CGPU_SERVER_KILLED,     /* a member's program, which did not end by itself */
	CGPU_SERVER_FATE_COUNT
};

/* News of a group's server, parsed. */
struct cgpu_server_news {
	uint32_t fate;          /* enum cgpu_server_fate */
	uint32_t pid;           /* the server's; killed: the program's */
	char member[65];        /* CGPU_ID_MAX and the end; lost and killed: whose programs */
	char after[65];         /* died, lost: whose program ended just before; empty: nobody's */
};

enum cgpu_server_limit {
	CGPU_SERVER_LINE = 256  /* bytes of what `events` is told, with the end */
};

void cgpu_server_line(const struct cgpu_server_news *news, const char *leader,
		      char line[CGPU_SERVER_LINE]);

#endif
