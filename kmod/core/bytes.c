// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "core/bytes.h"

uint16_t cgpu_get16(const void *bytes, uint32_t offset)
{
	uint16_t value;

	memcpy(&value, (const uint8_t *)bytes + offset, sizeof(value));
	return value;
}

uint32_t cgpu_get32(const void *bytes, uint32_t offset)
{
	uint32_t value;

	memcpy(&value, (const uint8_t *)bytes + offset, sizeof(value));
	return value;
}

uint64_t cgpu_get64(const void *bytes, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, (const uint8_t *)bytes + offset, sizeof(value));
	return value;
}

void cgpu_put32(void *bytes, uint32_t offset, uint32_t value)
{
	memcpy((uint8_t *)bytes + offset, &value, sizeof(value));
}

void cgpu_put64(void *bytes, uint32_t offset, uint64_t value)
{
	memcpy((uint8_t *)bytes + offset, &value, sizeof(value));
}
