// SPDX-License-Identifier: GPL-2.0-only
/* 359745d78351 ("proc: remove PDE_DATA() completely") in v5.17 */
#include <linux/proc_fs.h>

static inline void *probe(const struct inode *inode)
{
	return pde_data(inode);
}
