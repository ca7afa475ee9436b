// SPDX-License-Identifier: GPL-2.0-only
/* 95bb7c42ac8a ("mm: Add 'mprotect' hook to struct vm_operations_struct") in v5.11 */
#include <linux/mm.h>

static inline size_t probe(void)
{
	return offsetof(struct vm_operations_struct, mprotect);
}
