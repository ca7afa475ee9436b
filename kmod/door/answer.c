// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's answer goes to memory of the process. Any thread can write there, by a system call
 * at least, before we have read it, and a forged failure would leave an allocation uncharged. So
 * the answer is taken while the driver holds it.
 *
 * Most calls are RM's. The driver copies their argument and hands the copy to rm_ioctl(), which
 * here gets the judged one instead. So the process's own memory has no effect, then or afterwards.
 * Two functions of the driver's interface to the kernel copy the parameters; handlers run in their
 * place.
 *
 * The driver reads the argument of other calls from memory that no process can write (scratch.c).
 * It writes back from memory that it handed to the function that did the work. That function shows
 * where, and we read it when the writing begins, which faults.
 *
 * Some answers are read where they were written: those of a driver that lacks these functions, and
 * of commands that change nothing that is counted.
 */
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "answer.h"
#include "entry.h"
#include "errand.h"
#include "probe_lock.h"

static DEFINE_HASHTABLE(answers, 8); /* by task */
/* raw: taken by probes */
static DEFINE_RAW_SPINLOCK(answers_lock);

struct cgpu_answer *cgpu_answer_of_current(void)
{
	struct cgpu_answer *answer, *found = NULL;
	unsigned long flags;

	if (hlist_empty(&answers[hash_min((unsigned long)current, HASH_BITS(answers))]))
		return NULL;
	flags = cgpu_probe_lock(&answers_lock);
	hash_for_each_possible(answers, answer, node, (unsigned long)current) {
		if (answer->task == current) {
			found = answer;
			break;
		}
	}
	cgpu_probe_unlock(&answers_lock, flags);
	return found; /* it goes by this task alone */
}

/* By its task alone, which may be in a handler. */
static void forget(struct cgpu_answer *answer)
{
	unsigned long flags = cgpu_probe_lock(&answers_lock);

	hash_del(&answer->node);
	cgpu_probe_unlock(&answers_lock, flags);
}

void cgpu_answer_take(struct cgpu_answer *answer)
{
	if (!answer->argument || answer->taken)
		return;
	memcpy(answer->to, answer->argument, answer->args_bytes);
	answer->taken = true;
}

/* ------------------------------------------------------------------ entries */

/* Runs in the place of a function that copies. Return: NV_OK. */
static noinline notrace u32 copied(void)
{
	return 0;
}

/* Where in the call's memory a copy of the driver's lies, or NULL: elsewhere. */
static u8 *ours(unsigned long user, u32 bytes)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();
	size_t offset;

	if (!answer || !answer->copies || user < answer->user)
		return NULL;
	offset = user - answer->user;
	return offset < answer->bytes && bytes <= answer->bytes - offset ?
		answer->to + offset : NULL;
}

/* NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n) */
static bool on_copy_from_user(struct pt_regs *regs)
{
	void *to = (void *)regs_get_kernel_argument(regs, 0);
	u32 bytes = regs_get_kernel_argument(regs, 2);
	const u8 *from = ours(regs_get_kernel_argument(regs, 1), bytes);

	if (!from)
		return false;
	memcpy(to, from, bytes);
	instruction_pointer_set(regs, (unsigned long)copied);
	return true;
}

/* NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n) */
static bool on_copy_to_user(struct pt_regs *regs)
{
	const void *from = (const void *)regs_get_kernel_argument(regs, 1);
	u32 bytes = regs_get_kernel_argument(regs, 2);
	u8 *to = ours(regs_get_kernel_argument(regs, 0), bytes);

	if (!to)
		return false;
	memcpy(to, from, bytes);
	instruction_pointer_set(regs, (unsigned long)copied);
	return true;
}

/* rm_ioctl(sp, nv, nvfp, cmd, argument, size): on x86-64 in r8 and r9 */
static bool on_rm_ioctl(struct pt_regs *regs)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();

	if (!answer || answer->taken || answer->argument)
		return false;
	if (answer->through_rm && (u32)regs->r9 == answer->args_bytes) {
		regs->r8 = (unsigned long)answer->to;
		answer->taken = true;
		/* what the driver copies from here on is not looked for */
		if (answer->alone)
			forget(answer);
	} else {
		answer->argument = (const void *)regs->r8;
	}
	return false;
}

static void show(unsigned long argument)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();

	if (answer && !answer->argument)
		answer->argument = (const void *)argument;
}

/* nv_dma_buf_export(nv, argument) */
static bool on_export(struct pt_regs *regs)
{
	show(regs_get_kernel_argument(regs, 1));
	return false;
}

/* uvm_api_...(argument, file) */
static bool on_uvm(struct pt_regs *regs)
{
	show(regs_get_kernel_argument(regs, 0));
	return false;
}

static struct cgpu_entry rm_entries[] = {
	{ "nvidia:rm_ioctl", on_rm_ioctl },
	{ "nvidia:os_memcpy_from_user", on_copy_from_user },
	{ "nvidia:os_memcpy_to_user", on_copy_to_user },
	{ "nvidia:nv_dma_buf_export", on_export, .optional = true },
};

/* The commands by whose outcome the core counts. */
static struct cgpu_entry uvm_entries[] = {
	{ "nvidia_uvm:uvm_api_register_gpu", on_uvm },
	{ "nvidia_uvm:uvm_api_unregister_gpu", on_uvm },
	{ "nvidia_uvm:uvm_api_register_gpu_va_space", on_uvm },
	{ "nvidia_uvm:uvm_api_unregister_gpu_va_space", on_uvm },
	{ "nvidia_uvm:uvm_api_register_channel", on_uvm },
	{ "nvidia_uvm:uvm_api_unregister_channel", on_uvm },
	{ "nvidia_uvm:uvm_api_create_external_range", on_uvm },
	{ "nvidia_uvm:uvm_api_map_external_allocation", on_uvm },
	{ "nvidia_uvm:uvm_api_unmap_external", on_uvm },
	{ "nvidia_uvm:uvm_api_free", on_uvm },
	{ "nvidia_uvm:uvm_api_alloc_semaphore_pool", on_uvm },
	{ "nvidia_uvm:uvm_api_map_dynamic_parallelism_region", on_uvm },
	{ "nvidia_uvm:uvm_api_map_external_sparse", on_uvm },
	{ "nvidia_uvm:uvm_api_alloc_device_p2p", on_uvm, .optional = true },
};

/* One of the driver's two modules. */
struct side {
	struct cgpu_entries entries;
	bool there, followed, failed;
};

static struct side rm = {
	.entries = { .entry = rm_entries, .count = ARRAY_SIZE(rm_entries) },
};
static struct side uvm = {
	.entries = { .entry = uvm_entries, .count = ARRAY_SIZE(uvm_entries) },
};
static DEFINE_MUTEX(sides_lock); /* of both */

static void unfollow(struct side *side)
{
	if (side->followed)
		cgpu_entries_leave(&side->entries);
	WRITE_ONCE(side->followed, false);
}

static bool is_due(const struct side *side)
{
	return READ_ONCE(side->there) && !READ_ONCE(side->followed) && !READ_ONCE(side->failed);
}

/* Return: 0: it is followed, or never will be; -ENOMEM, -EBUSY: not now. */
static int follow(struct side *side)
{
	const char *symbol;
	int err = 0;

	mutex_lock(&sides_lock);
	if (!is_due(side))
		goto out;
	err = cgpu_entries_follow(&side->entries, &symbol);
	if (err && !cgpu_entries_may_come(err)) {
		pr_warn("cgpu: %s cannot be followed (%d): a container may hide what its calls did\n",
			symbol, err);
		side->failed = true;
		err = 0;
	} else if (!err) {
		WRITE_ONCE(side->followed, true);
	}
out:
	mutex_unlock(&sides_lock);
	return err;
}

static int follow_both(void)
{
	int err = follow(&rm);

	return err ? err : follow(&uvm);
}

static DEFINE_CGPU_ERRAND(follow_errand, follow_both);

/* The driver's text is changed only when it is needed: a host without tenants does not need it. */
int cgpu_answer_follow(void)
{
	int err = 0;

	while (!err && (is_due(&rm) || is_due(&uvm)))
		err = cgpu_errand_send(&follow_errand);
	return err;
}


void cgpu_answer_attach(bool of_uvm)
{
	mutex_lock(&sides_lock);
	(of_uvm ? &uvm : &rm)->there = true;
	mutex_unlock(&sides_lock);
}

void cgpu_answer_detach(bool of_uvm)
{
	struct side *side = of_uvm ? &uvm : &rm;

	mutex_lock(&sides_lock);
	unfollow(side);
	side->there = side->failed = false;
	mutex_unlock(&sides_lock);
}

void cgpu_answer_exit(void)
{
	cgpu_errand_end(&follow_errand);
	cgpu_answer_detach(false);
	cgpu_answer_detach(true);
}

void cgpu_answer_begin(struct cgpu_answer *answer)
{
	answer->task = current;
	answer->copies = READ_ONCE(rm.followed);
	answer->through_rm &= answer->copies;
	answer->argument = NULL;
	answer->taken = false;
	raw_spin_lock_irq(&answers_lock);
	hash_add(answers, &answer->node, (unsigned long)current);
	raw_spin_unlock_irq(&answers_lock);
}

void cgpu_answer_end(struct cgpu_answer *answer)
{
	if (!hlist_unhashed(&answer->node))
		forget(answer);
}
