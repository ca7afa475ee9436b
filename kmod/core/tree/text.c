// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/tree/text.h"

void cgpu_put_char(struct cgpu_text *text, char c)
{
	if (text->used < text->size)
		text->buf[text->used] = c;
	text->used++;
}

void cgpu_put_string(struct cgpu_text *text, const char *string)
{
	while (*string)
		cgpu_put_char(text, *string++);
}

void cgpu_put_number(struct cgpu_text *text, uint64_t value)
{
	char digits[20]; /* of 2^64 - 1 */
	size_t count = 0;

	do {
		digits[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (count)
		cgpu_put_char(text, digits[--count]);
}

void cgpu_put_value(struct cgpu_text *text, const char *between, uint64_t value)
{
	cgpu_put_string(text, between);
	cgpu_put_number(text, value);
}
