/* SPDX-License-Identifier: GPL-2.0-only */
/* Mappings that their process cannot take away. */
#ifndef CGPU_DOOR_SEAL_H
#define CGPU_DOOR_SEAL_H

#include <linux/types.h>

struct mm_struct;
struct vm_area_struct;

/* Context: any that may take a raw spinlock. Return: true: part of it is sealed. */
typedef bool (*cgpu_sealed_fn)(const struct mm_struct *mm, unsigned long start,
			       unsigned long end);

/**
 * cgpu_seal_begin() - from now on no process unmaps what is sealed
 * @is_sealed: tells which; the same at every call
 *
 * Context: sleeps. May be called again.
 * Return: 0; -ENOMEM, -EBUSY (ftrace is off): not now; -EINTR: the task is killed;
 * -EOPNOTSUPP: this kernel has no way to refuse it.
 */
int cgpu_seal_begin(cgpu_sealed_fn is_sealed);

/**
 * cgpu_seal_vma() - seal a mapping where the kernel itself can
 * @vma: in its ->mmap
 */
void cgpu_seal_vma(struct vm_area_struct *vma);

/** cgpu_seal_exit() - end what cgpu_seal_begin() began; nothing is sealed any more */
void cgpu_seal_exit(void);

#endif
