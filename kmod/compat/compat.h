/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The only place that asks for the kernel's version. Each branch cites the
 * upstream change that made it necessary; the newest form is the default.
 */
#ifndef CGPU_COMPAT_H
#define CGPU_COMPAT_H

#include <linux/fs_struct.h>
#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/version.h>

/*
 * 67c54d1d730a ("fs: add scoped_with_init_fs()") in v7.3: outside of it a kernel thread
 * finds no path; before, it had the root of init.
 */
#ifndef scoped_with_init_fs
#define scoped_with_init_fs()
#endif

/* 52a9e9cd181f ("mm: rename zap_vma_ptes() to zap_special_vma_range()") in v7.1 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 1, 0)
#define zap_special_vma_range zap_vma_ptes
#endif

/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions") in v6.3 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
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
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#define pde_data(inode) PDE_DATA(inode)
#endif

/* 25885a35a720 ("Change calling conventions for filldir_t") in v6.1 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#define CGPU_FILLDIR_RESULT int
#define CGPU_FILLDIR_MORE 0
#else
#define CGPU_FILLDIR_RESULT bool
#define CGPU_FILLDIR_MORE true
#endif

/*
 * bb523b406c84 ("gup: Turn fault_in_pages_{readable,writeable} into
 * fault_in_{readable,writeable}") in v5.16
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 16, 0)
#include <linux/pagemap.h>

/*
 * The old ones do not look whether the address is the user's: one that is nobody's warns, and
 * to one that is the kernel's a zero is written.
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
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
#define may_split split
#endif

/*
 * d19ad0775dcd ("ftrace: Have the callbacks receive a struct ftrace_regs instead of
 * pt_regs") and a25d036d939a ("ftrace: Reverse what the RECURSION flag means in the
 * ftrace_ops") in v5.11
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
#define ftrace_regs pt_regs
#define ftrace_get_regs(regs) (regs)
#define CGPU_FTRACE_NO_RECURSION FTRACE_OPS_FL_RECURSION_SAFE
#else
#define CGPU_FTRACE_NO_RECURSION 0
#endif

/* 95bb7c42ac8a ("mm: Add 'mprotect' hook to struct vm_operations_struct") in v5.11 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 11, 0)
#define CGPU_HAS_VM_OPS_MPROTECT
#endif

#endif
