/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state that one core hands to the next: plain memory, no pointer into a module. One file knows
 * each part: it makes, adopts and frees it.
 */
#ifndef CGPU_LINUX_STATE_H
#define CGPU_LINUX_STATE_H

#include <linux/types.h>

/*
 * Raised with every change of what lies in a part, or below it (the tenants' tables of core/, calls
 * under way). If that is forgotten, the digest over sizes and places shows it.
 */
#ifndef CGPU_STATE_VERSION /* a test builds one that does not fit */
#define CGPU_STATE_VERSION 34
#endif

struct cgpu_state {
	void *registry;    /* registry.c */
	void *open_files;  /* open_file.c */
	void *tree;        /* tree.c */
	void *governors;   /* governors.c */
	void *discovery;   /* discover.c */
};

/* FNV-1a, a word at a time. */
static inline u64 cgpu_digest(u64 digest, u64 word)
{
	return (digest ^ word) * 0x100000001b3ull;
}

#endif
