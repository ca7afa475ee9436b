// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's answer goes to memory of the process, where any thread can write, by a
 * system call at least, before we have read it: an allocation that says it failed is
 * not charged. So the answer is taken where the driver has it in its hands.
 *
 * Most calls are RM's. The driver copies their argument and hands the copy to
 * rm_ioctl(), which here gets the one that was judged instead, so that what the process
 * has in its memory, then and afterwards, is of no consequence. Parameters are copied by
 * two functions of the driver's interface to the kernel, which are answered in their
 * place.
 *
 * Of other calls the argument is read from memory that nobody can write (scratch.c), and
 * written back from memory that the driver handed to the function that did the work: that
 * function says where, and it is read when the writing begins, which faults.
 *
 * What a driver does not show is read where it was written: by a driver that lacks
 * these functions, and of commands that change nothing that is counted.
 */
#include <linux/hashtable.h>
#include <linux/kprobes.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "answer.h"
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

void cgpu_answer_take(struct cgpu_answer *answer)
{
	if (!answer->argument || answer->taken)
		return;
	memcpy(answer->to, answer->argument, answer->args_bytes);
	answer->taken = true;
}

/* ------------------------------------------------------------------ probes */

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
static int on_copy_from_user(struct kprobe *probe, struct pt_regs *regs)
{
	void *to = (void *)regs_get_kernel_argument(regs, 0);
	u32 bytes = regs_get_kernel_argument(regs, 2);
	const u8 *from = ours(regs_get_kernel_argument(regs, 1), bytes);

	if (!from)
		return 0;
	memcpy(to, from, bytes);
	instruction_pointer_set(regs, (unsigned long)copied);
	return 1;
}

/* NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n) */
static int on_copy_to_user(struct kprobe *probe, struct pt_regs *regs)
{
	const void *from = (const void *)regs_get_kernel_argument(regs, 1);
	u32 bytes = regs_get_kernel_argument(regs, 2);
	u8 *to = ours(regs_get_kernel_argument(regs, 0), bytes);

	if (!to)
		return 0;
	memcpy(to, from, bytes);
	instruction_pointer_set(regs, (unsigned long)copied);
	return 1;
}

/* With it the kernel leaves an entry a place where the path may change. */
static void after_copy(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

/* rm_ioctl(sp, nv, nvfp, cmd, argument, size): on x86-64 in r8 and r9 */
static int on_rm_ioctl(struct kprobe *probe, struct pt_regs *regs)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();

	if (!answer || answer->taken || answer->argument)
		return 0;
	if (answer->through_rm && (u32)regs->r9 == answer->args_bytes) {
		regs->r8 = (unsigned long)answer->to;
		answer->taken = true;
	} else {
		answer->argument = (const void *)regs->r8;
	}
	return 0;
}

static void show(unsigned long argument)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();

	if (answer && !answer->argument)
		answer->argument = (const void *)argument;
}

/* nv_dma_buf_export(nv, argument) */
static int on_export(struct kprobe *probe, struct pt_regs *regs)
{
	show(regs_get_kernel_argument(regs, 1));
	return 0;
}

/* uvm_api_...(argument, file) */
static int on_uvm(struct kprobe *probe, struct pt_regs *regs)
{
	show(regs_get_kernel_argument(regs, 0));
	return 0;
}

/* A function of the driver. */
struct place {
	const char *symbol;
	kprobe_pre_handler_t handler;
	kprobe_post_handler_t after;
	bool optional;             /* not every driver has it */
	struct kprobe probe;       /* addr NULL: not registered */
};

static struct place rm_places[] = {
	{ "nvidia:rm_ioctl", on_rm_ioctl },
	{ "nvidia:os_memcpy_from_user", on_copy_from_user, after_copy },
	{ "nvidia:os_memcpy_to_user", on_copy_to_user, after_copy },
	{ "nvidia:nv_dma_buf_export", on_export, .optional = true },
};

/* The commands by whose outcome the core counts. */
static struct place uvm_places[] = {
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
	struct place *places;
	size_t count;
	bool there, followed, failed;
};

static struct side rm = { .places = rm_places, .count = ARRAY_SIZE(rm_places) };
static struct side uvm = { .places = uvm_places, .count = ARRAY_SIZE(uvm_places) };
static DEFINE_MUTEX(sides_lock); /* of both */

static void unfollow(struct side *side)
{
	size_t i;

	for (i = 0; i < side->count; i++) {
		if (side->places[i].probe.addr)
			unregister_kprobe(&side->places[i].probe);
		side->places[i].probe.addr = NULL;
	}
	WRITE_ONCE(side->followed, false);
}

static int probe_at(struct place *place)
{
	int err;

	place->probe = (struct kprobe){
		.symbol_name = place->symbol,
		.pre_handler = place->handler,
		.post_handler = place->after,
	};
	err = register_kprobe(&place->probe);
	if (err)
		place->probe.addr = NULL;
	return err == -ENOENT && place->optional ? 0 : err;
}

static bool is_due(const struct side *side)
{
	return READ_ONCE(side->there) && !READ_ONCE(side->followed) && !READ_ONCE(side->failed);
}

/* Return: 0: it is followed, or never will be; -ENOMEM: not now. */
static int follow(struct side *side)
{
	size_t i;
	int err = 0;

	mutex_lock(&sides_lock);
	if (!is_due(side))
		goto out;
	for (i = 0; i < side->count && !err; i++)
		err = probe_at(&side->places[i]);
	if (err == -ENOMEM) {
		unfollow(side);
	} else if (err) {
		pr_warn("cgpu: %s cannot be followed (%d): a container may hide what its calls did\n",
			side->places[i - 1].symbol, err);
		unfollow(side);
		side->failed = true;
		err = 0;
	} else {
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

/* Text of the driver is changed for those alone who need it: a host without tenants does not. */
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
	raw_spin_lock_irq(&answers_lock);
	hash_del(&answer->node);
	raw_spin_unlock_irq(&answers_lock);
}
