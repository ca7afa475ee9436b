// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver's answer goes to memory of the process, where any thread can write, by a
 * system call at least, before we have read it: an allocation that says it failed is
 * not charged. So the answer is taken where the driver has it in its hands.
 *
 * Parameters are copied by one function of the driver's interface to the kernel, which
 * is answered in its place. The argument is copied by the ioctl itself, from memory
 * that it handed to the function that did the work: that function says where, and it
 * is read when the copying begins, which faults (scratch.c).
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

static DEFINE_HASHTABLE(answers, 8); /* by task */
/* raw: taken by probes */
static DEFINE_RAW_SPINLOCK(answers_lock);

struct cgpu_answer *cgpu_answer_of_current(void)
{
	struct cgpu_answer *answer, *found = NULL;
	unsigned long flags;

	if (hlist_empty(&answers[hash_min((unsigned long)current, HASH_BITS(answers))]))
		return NULL;
	raw_spin_lock_irqsave(&answers_lock, flags);
	hash_for_each_possible(answers, answer, node, (unsigned long)current) {
		if (answer->task == current) {
			found = answer;
			break;
		}
	}
	raw_spin_unlock_irqrestore(&answers_lock, flags);
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

/* Runs in the place of os_memcpy_to_user(). Return: NV_OK. */
static noinline notrace u32 copied(void)
{
	return 0;
}

/* NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n) */
static int on_copy(struct kprobe *probe, struct pt_regs *regs)
{
	struct cgpu_answer *answer = cgpu_answer_of_current();
	unsigned long to = regs_get_kernel_argument(regs, 0);
	const void *from = (const void *)regs_get_kernel_argument(regs, 1);
	u32 bytes = regs_get_kernel_argument(regs, 2);

	if (!answer || !answer->copies || to < answer->user || to - answer->user >= answer->bytes ||
	    bytes > answer->bytes - (to - answer->user))
		return 0;
	memcpy(answer->to + (to - answer->user), from, bytes);
	instruction_pointer_set(regs, (unsigned long)copied);
	return 1;
}

/* With it the kernel leaves the entry a place where the path may change. */
static void after_copy(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

/* A function that does the work, and which of its arguments is the ioctl's. */
struct worker {
	const char *symbol;
	unsigned int argument;
	struct kprobe probe;
};

static int on_work(struct kprobe *probe, struct pt_regs *regs)
{
	const struct worker *worker = container_of(probe, struct worker, probe);
	struct cgpu_answer *answer = cgpu_answer_of_current();

	if (answer && !answer->argument)
		answer->argument =
			(const void *)regs_get_kernel_argument(regs, worker->argument);
	return 0;
}

/* Of the commands whose outcome the core counts by. Not all drivers have all. */
static struct worker rm_workers[] = {
	/* rm_ioctl(sp, nv, nvfp, cmd, argument, size) */
	{ "nvidia:rm_ioctl", 4 },
	/* nv_dma_buf_export(nv, argument) */
	{ "nvidia:nv_dma_buf_export", 1 },
};

static struct worker uvm_workers[] = {
	/* uvm_api_…(argument, file) */
	{ "nvidia_uvm:uvm_api_register_gpu", 0 },
	{ "nvidia_uvm:uvm_api_unregister_gpu", 0 },
	{ "nvidia_uvm:uvm_api_create_external_range", 0 },
	{ "nvidia_uvm:uvm_api_map_external_allocation", 0 },
	{ "nvidia_uvm:uvm_api_unmap_external", 0 },
	{ "nvidia_uvm:uvm_api_free", 0 },
	{ "nvidia_uvm:uvm_api_alloc_semaphore_pool", 0 },
	{ "nvidia_uvm:uvm_api_alloc_device_p2p", 0 },
};

static struct kprobe copy_probe;

/* One of the driver's two modules. */
struct side {
	struct worker *workers;
	size_t count;
	bool there, attached, failed;
};

static struct side rm = { .workers = rm_workers, .count = ARRAY_SIZE(rm_workers) };
static struct side uvm = { .workers = uvm_workers, .count = ARRAY_SIZE(uvm_workers) };
static DEFINE_MUTEX(probe_lock); /* of both sides */

static void detach(struct side *side)
{
	size_t i;

	if (side == &rm && copy_probe.addr) {
		unregister_kprobe(&copy_probe);
		copy_probe.addr = NULL;
	}
	for (i = 0; i < side->count; i++) {
		if (side->workers[i].probe.addr)
			unregister_kprobe(&side->workers[i].probe);
		side->workers[i].probe.addr = NULL;
	}
	WRITE_ONCE(side->attached, false);
}

/* Return: as register_kprobe(). `probe->addr` says whether it is registered. */
static int probe_at(struct kprobe *probe, const char *symbol, kprobe_pre_handler_t handler,
		    kprobe_post_handler_t after)
{
	int err;

	*probe = (struct kprobe){
		.symbol_name = symbol, .pre_handler = handler, .post_handler = after,
	};
	err = register_kprobe(probe);
	if (err)
		probe->addr = NULL;
	return err;
}

static bool is_due(const struct side *side)
{
	return READ_ONCE(side->there) && !READ_ONCE(side->attached) && !READ_ONCE(side->failed);
}

/* Text of the driver is changed for those alone who need it: a host without tenants does not. */
static void attach(struct side *side)
{
	size_t i;
	int err = 0;

	mutex_lock(&probe_lock);
	if (!is_due(side))
		goto out;
	if (side == &rm)
		err = probe_at(&copy_probe, "nvidia:os_memcpy_to_user", on_copy, after_copy);
	for (i = 0; i < side->count && (!err || err == -ENOENT); i++)
		err = probe_at(&side->workers[i].probe, side->workers[i].symbol, on_work, NULL);
	/* the first does most of the work of its side, and every driver has it */
	if (!side->workers[0].probe.addr || (side == &rm && !copy_probe.addr)) {
		detach(side);
		side->failed = true;
		pr_warn("cgpu: the answers of the driver cannot be followed (%d): they are believed as a process leaves them\n",
			err);
	} else {
		WRITE_ONCE(side->attached, true);
	}
out:
	mutex_unlock(&probe_lock);
}

void cgpu_answer_attach(bool of_uvm)
{
	mutex_lock(&probe_lock);
	(of_uvm ? &uvm : &rm)->there = true;
	mutex_unlock(&probe_lock);
}

void cgpu_answer_detach(bool of_uvm)
{
	struct side *side = of_uvm ? &uvm : &rm;

	mutex_lock(&probe_lock);
	detach(side);
	side->there = side->failed = false;
	mutex_unlock(&probe_lock);
}

void cgpu_answer_begin(struct cgpu_answer *answer, unsigned long user, u8 *to, size_t bytes,
		       size_t args_bytes)
{
	if (is_due(&rm))
		attach(&rm);
	if (is_due(&uvm))
		attach(&uvm);
	*answer = (struct cgpu_answer){
		.task = current, .user = user, .to = to, .bytes = bytes,
		.args_bytes = args_bytes, .copies = READ_ONCE(rm.attached),
	};
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
