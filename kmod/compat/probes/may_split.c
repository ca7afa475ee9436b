// SPDX-License-Identifier: GPL-2.0-only
/* dd3b614f858d ("vm_ops: rename .split() callback to .may_split()") in v5.11 */
#include <linux/mm.h>

static inline size_t probe(void)
{
	return offsetof(struct vm_operations_struct, may_split);
}
