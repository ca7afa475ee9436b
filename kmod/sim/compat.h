/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_COMPAT_H
#define NVSIM_COMPAT_H

#include <linux/mm.h>

#include "have.h"

/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions") (in v6.3) */
#ifndef CGPU_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* 359745d78351 ("proc: remove PDE_DATA() completely") (in v5.17) */
#ifndef CGPU_HAVE_PDE_DATA
#define pde_data(inode) PDE_DATA(inode)
#endif

/* cdd30ebb1b9f ("module: Convert symbol namespace to string literal") (in v6.13) */
#ifdef CGPU_HAVE_IMPORT_NS_WORD
#define NVSIM_IMPORT_NS_DMA_BUF() MODULE_IMPORT_NS(DMA_BUF)
#else
#define NVSIM_IMPORT_NS_DMA_BUF() MODULE_IMPORT_NS("DMA_BUF")
#endif

#endif
