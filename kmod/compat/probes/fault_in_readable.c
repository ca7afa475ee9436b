// SPDX-License-Identifier: GPL-2.0-only
/* bb523b406c84 ("gup: Turn fault_in_pages_{readable,writeable} ...") in v5.16 */
#include <linux/pagemap.h>

static inline size_t probe(char __user *at, size_t bytes)
{
	return fault_in_readable(at, bytes) + fault_in_writeable(at, bytes);
}
