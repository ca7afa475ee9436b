// SPDX-License-Identifier: GPL-2.0-only
/*
 * For the simulation's own tests: a bad hook and a good kernel client.
 *
 * fd=: give that open file of insmod a copy of its file_operations, as an unsound
 * hook does; taken back on unload. The driver's identity checks must notice.
 * client=: by nvidia_get_rm_ops(), ask that RM client for its cards with kernel
 * buffers; first_status, version and control_status say what came of it. Then,
 * as a client of its own, write to memory of no card by MAP_MEMORY: map_status,
 * map_value, and unmap_status of a second UNMAP_MEMORY.
 * fail_mkdir=: of the directories that are made in /proc while it is loaded, the
 * first is number 1; this one gets no memory.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static int fd = -1;
module_param(fd, int, 0444);
static uint client, first_status, second_status, control_status, gpus;
module_param(client, uint, 0444);
module_param(first_status, uint, 0444);
module_param(second_status, uint, 0444);
module_param(control_status, uint, 0444);
module_param(gpus, uint, 0444);
static uint map_status = ~0u, map_value, unmap_status;
module_param(map_status, uint, 0444);
module_param(map_value, uint, 0444);
module_param(unmap_status, uint, 0444);
static char version_text[64];
module_param_string(version, version_text, sizeof(version_text), 0444);

static uint fail_mkdir;
module_param(fail_mkdir, uint, 0444);

static struct file_operations copy;
static const struct file_operations *original;
static struct file *shadowed;

static int shadow(void)
{
	/* insmod has inherited the descriptor of the test that runs it. */
	shadowed = fget(fd);
	if (!shadowed)
		return -EBADF;
	original = shadowed->f_op;
	copy = *original;
	shadowed->f_op = &copy;
	return 0;
}

struct rm_ops {
	const char *version_string;
	u64 system_info;
	int (*alloc_stack)(void **sp);
	void (*free_stack)(void *sp);
	u32 (*enumerate_gpus)(void *info);
	int (*open_gpu)(u32 gpu_id, void *sp);
	void (*close_gpu)(u32 gpu_id, void *sp);
	void (*op)(void *sp, void *cmd);
	int (*set_callbacks)(const void *cb);
};

u32 nvidia_get_rm_ops(struct rm_ops *ops);

static u8 info[32 * 24];
static u32 ids[32];

static u64 memory_params[16];

/* NVOS21 and NVOS64 are alike up to pAllocParms; the handle comes back in both. */
static u32 make(struct rm_ops *ops, void *sp, u32 root, u32 new, u32 class, void *params)
{
	struct { u32 op, pad; u32 hRoot, hParent, hNew, hClass; u64 params; u8 rest[64]; } c = {
		.op = 0x15, .hRoot = root, .hParent = root, .hNew = new, .hClass = class,
		.params = (uintptr_t)params };

	ops->op(sp, &c);
	return c.hNew;
}

static void map(struct rm_ops *ops, void *sp)
{
	struct { u32 op, pad; u32 hClient, hDevice, hMemory, pad2; u64 offset, length, at;
		 u32 status, flags; u8 rest[32]; } c = { .op = 0x21, .hMemory = 7, .offset = 4096,
							 .length = 4096 };
	struct { u32 op, pad; u32 hClient, hDevice, hMemory, pad2; u64 at; u32 status, flags;
		 u8 rest[32]; } u = { .op = 0x22, .hMemory = 7 };
	struct { u32 op, pad; u32 hRoot, hParent, hOld, status; u8 rest[64]; } f = { .op = 0 };

	c.hClient = c.hDevice = make(ops, sp, 0, 0, 0, NULL);
	memory_params[8] = 8192;	/* size */
	make(ops, sp, c.hClient, c.hMemory, 0x90ce, memory_params);
	ops->op(sp, &c);
	map_status = c.status;
	if (!map_status) {
		*(u32 *)(uintptr_t)(c.at + 4092) = 4711;
		ops->op(sp, &c);
		map_value = *(u32 *)(uintptr_t)(c.at + 4092);
		u.hClient = u.hDevice = c.hClient;
		u.at = c.at;
		ops->op(sp, &u);
		ops->op(sp, &u);
		ops->op(sp, &u);
		unmap_status = u.status;
	}
	f.hRoot = f.hOld = c.hClient;
	ops->op(sp, &f);
}

static void ask(void)
{
	struct { u32 op, pad; u32 hClient, hObject, cmd, flags; u64 params; u32 size, status;
		 u8 rest[32]; } c = { .op = 0x36, .hClient = client, .hObject = client,
				      .cmd = 0x201, .params = (uintptr_t)ids,
				      .size = sizeof(ids) };
	struct rm_ops ops = { .version_string = "?" };
	void *sp = NULL;

	first_status = nvidia_get_rm_ops(&ops);
	strscpy(version_text, ops.version_string, sizeof(version_text));
	second_status = nvidia_get_rm_ops(&ops);
	if (second_status || ops.alloc_stack(&sp))
		return;
	gpus = ops.enumerate_gpus(info);
	ops.op(sp, &c);
	control_status = c.status;
	map(&ops, sp);
	ops.free_stack(sp);
}

static noinline notrace void *no_memory(void)
{
	return NULL;
}

static int on_mkdir(struct kprobe *probe, struct pt_regs *regs)
{
	static atomic_t made;

	if (atomic_inc_return(&made) != fail_mkdir)
		return 0;
	regs->ip = (unsigned long)no_memory;
	return 1;
}

/* With it the kernel leaves the entry a place where the path may change. */
static void after_mkdir(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe mkdir_probe = {
	.symbol_name = "proc_mkdir_data", .pre_handler = on_mkdir, .post_handler = after_mkdir,
};

static int __init check_init(void)
{
	if (fail_mkdir)
		return register_kprobe(&mkdir_probe);
	if (client)
		ask();
	return fd >= 0 ? shadow() : 0;
}

static void __exit check_exit(void)
{
	if (fail_mkdir)
		unregister_kprobe(&mkdir_probe);
	if (!shadowed)
		return;
	shadowed->f_op = original;
	fput(shadowed);
}

module_init(check_init);
module_exit(check_exit);
MODULE_DESCRIPTION("Tests of the simulated NVIDIA driver");
MODULE_LICENSE("GPL");
