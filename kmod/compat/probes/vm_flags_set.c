// SPDX-License-Identifier: GPL-2.0-only
/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions") in v6.3 */
#include <linux/mm.h>

static inline void probe(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_IO);
	vm_flags_clear(vma, VM_IO);
}
