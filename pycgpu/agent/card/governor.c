// SPDX-License-Identifier: GPL-2.0-only
/*
 * One thread a card asks the scheduler for the next action and does it: gates by gate.c, timeslices
 * by slices.c. It waits for nothing that a tenant can delay. The loop is that of core/sched/loop.c,
 * as in kmod/linux/governor.c.
 */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/sched/loop.h"
#include "card/card.h"
#include "gate/gate.h"

enum {
	PRIORITY = 10,
	/*
	 * The time that a call that shuts channels takes for each channel after the card has
	 * stopped. On an H200 one process ran beside eight, with 8 channels each. It had 51.6 % of
	 * the work done with 0 here, 49.4 % with 2700.
	 */
	AFTER_STOP_NS = 2000,
	FEW_CHANNELS = 8
};

/* Does the next action. Return: containers whose gate is not yet wholly open. */
static uint64_t carry_out(uint32_t minor, struct cgpu_loop *loop)
{
	const struct cgpu_sched_action *action = &loop->action[loop->taken];
	uint64_t start = now_ns(), end, took, after = 0, partly = 0;
	uint32_t count;

	pthread_rwlock_rdlock(&door.life);
	if (action->kind == CGPU_SCHED_SLICE) {
		slices_want(minor, action->mask, action->slice_us);
	} else if (action->kind == CGPU_SCHED_OPEN) {
		move_gates(minor, action->mask, false, &partly);
	} else {
		count = move_gates(minor, action->mask, true, NULL);
		if (count > FEW_CHANNELS)
			after = (count - FEW_CHANNELS) * AFTER_STOP_NS;
	}
	pthread_rwlock_unlock(&door.life);
	end = now_ns();
	took = end - start;
	pthread_mutex_lock(&door.lock);
	cgpu_loop_done(loop, CGPU_LOOP_MOVE, start,
		       end - (after < took / 2 ? after : took / 2), 0);
	if (action->kind != CGPU_SCHED_SLICE) {
		door.count.gate_calls++;
		door.count.gate_ns += took;
		if (took > door.count.gate_max_ns)
			door.count.gate_max_ns = took;
	}
	pthread_mutex_unlock(&door.lock);
	return partly;
}

static void open_wholly(uint32_t minor, uint64_t mask)
{
	pthread_rwlock_rdlock(&door.life);
	move_gates(minor, mask, false, NULL);
	pthread_rwlock_unlock(&door.life);
}

static void carry_out_all(uint32_t minor, struct cgpu_loop *loop)
{
	uint64_t partly = 0;

	while (loop->taken < loop->count) {
		if (loop->action[loop->taken].kind == CGPU_SCHED_SHUT)
			partly &= ~loop->action[loop->taken].mask;
		partly |= carry_out(minor, loop);
	}
	if (partly)
		open_wholly(minor, partly);
}

/* Context: door.lock, released while waiting. */
static void wait_until(uint64_t wake_ns)
{
	uint64_t now = now_ns();

	/* look in once a second even if nothing is planned */
	if (wake_ns > now + 1000000000)
		wake_ns = now + 1000000000;
	cond_wait_until(&door.changed, wake_ns);
}

static void *drive(void *data)
{
	uint32_t minor = (uint32_t)(uintptr_t)data;
	struct cgpu_sched_action actions[CGPU_SCHED_ACTIONS];
	/* channels are looked at by a thread of their own: demand.c */
	struct cgpu_loop loop = {
		.sched = &door.sched[minor],
		.log = switch_log_of(minor),
		.action = actions,
	};
	struct sched_param priority = { .sched_priority = PRIORITY };
	enum cgpu_loop_step step;

	prctl(PR_SET_NAME, "cgpud-gates");
	/* a window must not wait for busy programs; the kernel may refuse the priority */
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority))
		prctl(PR_SET_TIMERSLACK, 1000);
	pthread_mutex_lock(&door.lock);
	while (door.running) {
		if (door.reopen[minor]) {
			uint64_t mask = door.reopen[minor];

			door.reopen[minor] = 0;
			pthread_mutex_unlock(&door.lock);
			open_wholly(minor, mask);
			pthread_mutex_lock(&door.lock);
		}
		step = cgpu_loop_next(&loop, now_ns());
		if (step == CGPU_LOOP_MOVE) {
			pthread_mutex_unlock(&door.lock);
			carry_out_all(minor, &loop);
			pthread_mutex_lock(&door.lock);
			continue;
		}
		switch_log_plan(minor, loop.due_ns);
		if (step == CGPU_LOOP_READ) {
			switch_log_read(minor);
			cgpu_loop_done(&loop, step, 0, now_ns(), 0);
		}
		demand_follow(minor);
		if (step == CGPU_LOOP_WAIT)
			wait_until(loop.due_ns < loop.wake_ns ? loop.due_ns : loop.wake_ns);
	}
	pthread_mutex_unlock(&door.lock);
	return NULL;
}

/*
 * Makes the schedule anew from the promises. An agent before may have been killed amid a change of
 * it, and its plan is of another time. The usage stays.
 */
static void begin(uint32_t minor)
{
	struct cgpu_sched *s = &door.sched[minor];
	struct cgpu_sched_stat stat[CGPU_SCHED_SLOTS];
	uint64_t used_ns = s->used_ns;
	int i;

	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		stat[i] = s->slot[i].stat;
	cgpu_sched_init(s, now_ns());
	sync_card(minor);
	s->used_ns = used_ns;
	for (i = 0; i < CGPU_SCHED_SLOTS; i++)
		if (s->slot[i].present)
			s->slot[i].stat = stat[i];
}

void governors_start(void)
{
	pthread_t thread;
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++) {
		if (!door.host.card[minor].present)
			continue;
		switch_log_open(minor);
		begin(minor);
		demand_start(minor);
		if (!pthread_create(&thread, NULL, drive, (void *)(uintptr_t)minor))
			pthread_detach(thread);
	}
}
