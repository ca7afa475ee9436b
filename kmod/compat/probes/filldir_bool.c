// SPDX-License-Identifier: GPL-2.0-only
/* 25885a35a720 ("Change calling conventions for filldir_t") in v6.1 */
#include <linux/fs.h>

_Static_assert(__builtin_types_compatible_p(filldir_t, bool (*)(struct dir_context *, const char *,
								int, loff_t, u64, unsigned int)),
	       "filldir_t returns an int");
