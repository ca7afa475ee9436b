/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef CGPU_DOOR_AUTHORITY_H
#define CGPU_DOOR_AUTHORITY_H

#include <linux/types.h>

/**
 * cgpu_agent_answers() - does the agent of `cgpu run` share this host's cards already
 *
 * Context: the process that loads the module: the socket is looked for in its root.
 */
bool cgpu_agent_answers(void);

#endif
