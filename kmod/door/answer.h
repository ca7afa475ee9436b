/* SPDX-License-Identifier: GPL-2.0-only */
/* What the driver is asked and answers, kept out of memory that others can write. */
#ifndef CGPU_DOOR_ANSWER_H
#define CGPU_DOOR_ANSWER_H

#include <linux/list.h>
#include <linux/types.h>

struct task_struct;

/**
 * struct cgpu_answer - of one call under way
 * @node: among those under way
 * @task: the caller
 * @user: where the driver finds the call's memory
 * @to: kernel only: where the answer goes, laid out as the memory at @user
 * @bytes: of both
 * @args_bytes: of the argument, with which they begin
 * @through_rm: the driver hands the argument to rm_ioctl(), which gets @to instead
 * @alone: nothing but the argument is @to's
 * @copies: what the driver copies from @user and to it comes from @to and goes there
 * @argument: the driver's own copy of the argument; NULL: it has not shown any
 * @taken: @to begins with the argument as the driver left it
 */
struct cgpu_answer {
	struct hlist_node node;
	struct task_struct *task;
	unsigned long user;
	u8 *to;
	size_t bytes;
	size_t args_bytes;
	bool through_rm;
	bool alone;
	bool copies;
	const void *argument;
	bool taken;
};

/**
 * cgpu_answer_attach() - the driver is there: its answers can be taken from the first call on
 * @uvm: nvidia-uvm, else nvidia
 *
 * If they cannot, the kernel's log says so.
 */
void cgpu_answer_attach(bool uvm);

/**
 * cgpu_answer_detach() - it goes
 * @uvm: nvidia-uvm, else nvidia
 *
 * Context: as cgpu_descriptor_detach().
 */
void cgpu_answer_detach(bool uvm);

/**
 * cgpu_answer_follow() - text of the driver is changed, where that has not been done
 *
 * Context: sleeps.
 * Return: 0: also where it cannot be; -ENOMEM, -EBUSY (ftrace is off): not now; -EINTR: the
 * task is killed.
 */
int cgpu_answer_follow(void);

/** cgpu_answer_exit() - for good; no call is under way */
void cgpu_answer_exit(void);

/**
 * cgpu_answer_begin() - current asks the driver
 * @answer: @user, @to, @bytes, @args_bytes, @through_rm and @alone are set; @through_rm is
 *	unset where the driver cannot be followed
 */
void cgpu_answer_begin(struct cgpu_answer *answer);

/** cgpu_answer_end() - the driver is through; by the task that began */
void cgpu_answer_end(struct cgpu_answer *answer);

/** cgpu_answer_of_current() - Return: what current has under way, or NULL. Context: any. */
struct cgpu_answer *cgpu_answer_of_current(void);

/**
 * cgpu_answer_take() - the driver begins to write the argument back
 * @answer: of current
 */
void cgpu_answer_take(struct cgpu_answer *answer);

#endif
