// SPDX-License-Identifier: GPL-2.0-only
/* d19ad0775dcd ("ftrace: Have the callbacks receive a struct ftrace_regs ...") in v5.11 */
#include <linux/ftrace.h>

static inline struct pt_regs *probe(struct ftrace_regs *regs)
{
	return ftrace_get_regs(regs);
}
