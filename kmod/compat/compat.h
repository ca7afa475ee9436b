/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels. Each branch cites the upstream change that made it necessary; the
 * newest form is the default. The kernel's version is not consulted: compat/probes test the headers
 * at build time.
 */
#ifndef CGPU_COMPAT_H
#define CGPU_COMPAT_H

#include <linux/fs_struct.h>
#include <linux/ftrace.h>
#include <linux/mm.h>

#include "have.h"

/*
 * 67c54d1d730a ("fs: add scoped_with_init_fs()") in v7.3: outside of it a kernel thread
 * finds no path; before, it had the root of init.
 */
#ifndef scoped_with_init_fs
#define scoped_with_init_fs()
#endif

/* 52a9e9cd181f ("mm: rename zap_vma_ptes() to zap_special_vma_range()") in v7.1 */
#ifndef CGPU_HAVE_ZAP_SPECIAL_VMA_RANGE
#define zap_special_vma_range zap_vma_ptes
#endif

/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions") in v6.3 */
#ifndef CGPU_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* 359745d78351 ("proc: remove PDE_DATA() completely") in v5.17 */
#ifndef CGPU_HAVE_PDE_DATA
#define pde_data(inode) PDE_DATA(inode)
#endif

/* 25885a35a720 ("Change calling conventions for filldir_t") in v6.1 */
#ifdef CGPU_HAVE_FILLDIR_BOOL
#define CGPU_FILLDIR_RESULT bool
#define CGPU_FILLDIR_MORE true
#else
#define CGPU_FILLDIR_RESULT int
#define CGPU_FILLDIR_MORE 0
#endif

/*
 * bb523b406c84 ("gup: Turn fault_in_pages_{readable,writeable} into
 * fault_in_{readable,writeable}") in v5.16
 */
#ifndef CGPU_HAVE_FAULT_IN_READABLE
#include <linux/pagemap.h>

/*
 * The old ones do not check that the address is the user's: one that is neither the user's nor the
 * kernel's warns, and to a kernel address a zero is written.
 */
static inline size_t fault_in_readable(const char __user *at, size_t bytes)
{
	return access_ok(at, bytes) && !fault_in_pages_readable(at, bytes) ? 0 : bytes;
}

static inline size_t fault_in_writeable(char __user *at, size_t bytes)
{
	return access_ok(at, bytes) && !fault_in_pages_writeable(at, bytes) ? 0 : bytes;
}
#endif

/* dd3b614f858d ("vm_ops: rename .split() callback to .may_split()") in v5.11 */
#ifndef CGPU_HAVE_MAY_SPLIT
#define may_split split
#endif

/*
 * d19ad0775dcd ("ftrace: Have the callbacks receive a struct ftrace_regs instead of
 * pt_regs") in v5.11
 */
#ifndef CGPU_HAVE_FTRACE_REGS
#define ftrace_regs pt_regs
#define ftrace_get_regs(regs) (regs)
#endif

/* a25d036d939a ("ftrace: Reverse what the RECURSION flag means in the ftrace_ops") in v5.11 */
#ifdef CGPU_HAVE_FTRACE_RECURSION_SAFE
#define CGPU_FTRACE_NO_RECURSION FTRACE_OPS_FL_RECURSION_SAFE
#else
#define CGPU_FTRACE_NO_RECURSION 0
#endif

#endif
