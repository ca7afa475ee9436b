# SPDX-License-Identifier: MIT
"""Each container's slices are sent, all of them, and none waits for another container's."""

from __future__ import annotations

from pathlib import Path

from tests.host.agent_part import MAKE_ROOM, run

#: The first container has 3000 groups, and one whose descriptors cannot be had for now.
PROGRAM = (
    """
#include <stdio.h>
#include "pycgpu/agent/card/slices.c"

struct door door = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct container *of[2];
static volatile unsigned int sent[2];
static volatile bool waits = true;

uint64_t now_ns(void)
{
	return 1;
}

bool is_gated_group(const struct cgpu_object *o, uint32_t minor)
{
	return o->hClient && !minor && o->hClass == KEPLER_CHANNEL_GROUP_A;
}

bool rotates(const struct container *c, uint32_t minor)
{
	return false;
}

uint32_t leads_in_window(const struct container *c, uint32_t minor)
{
	return 1;
}

void resend(struct container *c)
{
}

void worker_left(struct container *c)
{
	c->workers--;
}

int file_duplicate(struct container *c, uint32_t number)
{
	while (waits && c == of[0])
		usleep(1000);
	return dup(0);
}

uint32_t rm_control(int fd, uint32_t hClient, uint32_t hObject, uint32_t cmd, void *params,
			uint32_t size)
{
	sent[hClient - 1] += *(uint64_t *)params == 700;
	return 0;
}

"""
    + MAKE_ROOM
    + """
static void add(struct container *c, uint32_t hClient, uint32_t groups)
{
	struct cgpu_objects *objects = &c->tenant.objects;
	uint32_t parent, group, i;

	make_room(c);
	parent = cgpu_object_add(objects, &c->tenant.ledger, 0, hClient, hClient, NV01_ROOT_CLIENT);
	for (i = 0; i < groups; i++) {
		make_room(c);
		group = cgpu_object_add(objects, &c->tenant.ledger, parent, hClient, 100 + i,
					KEPLER_CHANNEL_GROUP_A);
		cgpu_object_set_runnable(objects, group, 0);
	}
}

static void tell(unsigned int first, unsigned int second)
{
	int tries;

	for (tries = 0; tries < 5000 && (sent[0] < first || sent[1] < second); tries++)
		usleep(1000);
	printf("%u %u\\n", sent[0], sent[1]);
}

int main(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++) {
		of[i] = calloc(1, sizeof(**of));
		cgpu_tenant_init(&of[i]->tenant, 1 << 14, 0);
		pthread_cond_init(&of[i]->slices, NULL);
		of[i]->grant[0].present = true;
		of[i]->grant[0].instance = i;
		door.container[i] = of[i];
		add(of[i], i + 1, i ? 2 : 3000);
		if (slices_start(of[i]))
			return 1;
	}
	slices_want(0, 3, 700);
	tell(0, 2);
	waits = false;
	tell(3000, 2);
	pthread_mutex_lock(&door.lock);
	for (i = 0; i < 2; i++) {
		of[i]->ending = true;
		pthread_cond_signal(&of[i]->slices);
	}
	pthread_mutex_unlock(&door.lock);
	for (i = 0; i < 5000 && of[0]->workers + of[1]->workers; i++)
		usleep(1000);
	printf("%u\\n", of[0]->workers + of[1]->workers);
	return 0;
}
"""
)


def test_all_slices_are_sent_and_no_container_waits_for_another(tmp_path: Path) -> None:
    """A list of 1024 groups for all containers left the later ones' slices unsent."""
    assert run(PROGRAM, tmp_path) == ["0 2", "3000 2", "0"]
