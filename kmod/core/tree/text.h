/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Text that is put into a buffer piece by piece, and measured where it does not fit. */
#ifndef CGPU_CORE_TREE_TEXT_H
#define CGPU_CORE_TREE_TEXT_H

#include "core/types.h"

struct cgpu_text {
	char *buf;
	size_t size;
	size_t used; /* also counts what did not fit */
};

void cgpu_put_char(struct cgpu_text *text, char c);
void cgpu_put_string(struct cgpu_text *text, const char *string);
void cgpu_put_number(struct cgpu_text *text, uint64_t value);
/* `between` and the number, which is a word's value or one more of them. */
void cgpu_put_value(struct cgpu_text *text, const char *between, uint64_t value);

#endif
