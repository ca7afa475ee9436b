// SPDX-License-Identifier: GPL-2.0-only
/* 52a9e9cd181f ("mm: rename zap_vma_ptes() to zap_special_vma_range()") in v7.1 */
#include <linux/mm.h>

static inline void probe(struct vm_area_struct *vma)
{
	zap_special_vma_range(vma, vma->vm_start, vma->vm_end - vma->vm_start);
}
