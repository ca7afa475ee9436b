// SPDX-License-Identifier: GPL-2.0-only
/* until a25d036d939a ("ftrace: Reverse what the RECURSION flag means ...") in v5.11 */
#include <linux/ftrace.h>

static inline int probe(void)
{
	return FTRACE_OPS_FL_RECURSION_SAFE;
}
