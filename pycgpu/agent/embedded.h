/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pointers and descriptors inside the parameters of RM controls and classes. The
 * agent performs a call with copies of its own, so each of these is replaced by
 * one to a copy, or the call is refused: left as it is, it would be a pointer into
 * the agent, or a number in the agent's table of descriptors.
 */
#ifndef CGPU_AGENT_EMBEDDED_H
#define CGPU_AGENT_EMBEDDED_H

#include <stdbool.h>
#include <stdint.h>

enum {
	EMBEDDED_MAX = 3,    /* pointers of one control */
	EMBEDDED_NONE = 0xff /* as `count`: the driver does not use the pointer */
};

/* Offsets into the parameters. */
struct embedded {
	uint32_t cmd;
	uint8_t pointer;
	uint8_t count;       /* a u32: number of elements behind the pointer */
	uint8_t element_bytes;
};

/* Return: how many there are, -1: the control has pointers that are not known here. */
int embedded_pointers(uint32_t cmd, const struct embedded **first);
/* Return: offset of a descriptor that the parameters name, -1: none. */
int embedded_descriptor(uint32_t cmd);
/* true: made by nobody but its process, or with memory or callbacks of its own. */
bool embedded_refuses_class(uint32_t hClass);
/* Return: offset of a u64 with a descriptor of nvidia-caps, -1: the class has none. */
int embedded_capability(uint32_t hClass);

#endif
