/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_COMPAT_H
#define NVSIM_COMPAT_H

#include <linux/mm.h>
#include <linux/version.h>

/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions") (in v6.3) */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
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
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#define pde_data(inode) PDE_DATA(inode)
#endif

/* cdd30ebb1b9f ("module: Convert symbol namespace to string literal") (in v6.13) */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
#define NVSIM_IMPORT_NS_DMA_BUF() MODULE_IMPORT_NS(DMA_BUF)
#else
#define NVSIM_IMPORT_NS_DMA_BUF() MODULE_IMPORT_NS("DMA_BUF")
#endif

#endif
