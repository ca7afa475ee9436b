// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The only file that imports a symbol of the NVIDIA driver: nvidia_get_rm_ops, made for
 * nvidia-modeset, gives RM calls at kernel privilege with kernel buffers on any client. Uses no
 * GPL-only symbol of the kernel, so that it loads beside the closed flavour too, where importing
 * from the driver makes those unavailable.
 *
 * Layouts: nv-modeset-interface.h and nv-kernel-rmapi-ops.h of NVIDIA/open-gpu-kernel-modules, 535
 * to 595. Another branch may change the signatures of its functions, as 595 did, so it is refused
 * here as well.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "../door/bridge.h"

enum {
	NV04_FREE = 0x00,
	NV04_ALLOC = 0x15,
	NV04_MAP_MEMORY = 0x21,
	NV04_CONTROL = 0x36,
	NV01_ROOT = 0x0,
	NV01_DEVICE_0 = 0x80,
	NV20_SUBDEVICE_0 = 0x2080,
	NV0080_ALLOC_PARAMETERS_BYTES = 56,
	/* from this branch on NV04_ALLOC takes NVOS64_PARAMETERS, before NVOS21 */
	BRANCH_NVOS64 = 580,
	/* from this one on open_gpu and close_gpu take a third argument */
	BRANCH_RESET_AWARE = 595,
};

struct rm_ops {
	const char *version_string;
	u64 system_info;
	int (*alloc_stack)(void **stack);
	void (*free_stack)(void *stack);
	u32 (*enumerate_gpus)(void *gpu_info);
	/* `reset_aware`: the driver does not count this user when the card is reset */
	union {
		int (*open_gpu)(u32 gpu_id, void *stack);
		int (*open_gpu_595)(u32 gpu_id, void *stack, u8 reset_aware);
	};
	union {
		void (*close_gpu)(u32 gpu_id, void *stack);
		void (*close_gpu_595)(u32 gpu_id, void *stack, u8 reset_aware);
	};
	void (*op)(void *stack, void *command);
	int (*set_callbacks)(const void *callbacks);
	void *later[16]; /* fields that newer branches append */
};

struct rm_command {
	u32 op;
	u32 pad;
	union {
		struct { u32 hRoot, hObjectParent, hObjectOld, status; } free;
		struct { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms;
			 u32 paramsSize, status; } nvos21;
		struct { u32 hRoot, hObjectParent, hObjectNew, hClass; u64 pAllocParms;
			 u64 pRightsRequested; u32 paramsSize, flags, status, pad; } nvos64;
		struct { u32 hClient, hDevice, hMemory, pad; u64 offset, length,
			 pLinearAddress; u32 status, flags; } map;
		struct { u32 hClient, hObject, cmd, flags; u64 params;
			 u32 paramsSize, status; } control;
		u8 largest[64];
	};
};

extern u32 nvidia_get_rm_ops(struct rm_ops *ops);

static struct rm_ops rm;
static unsigned long branch;

static u32 rm_alloc(struct cgpu_rm_card *card, u32 hParent, u32 *hObject, u32 hClass,
		    void *params, u32 size)
{
	struct rm_command command = { .op = NV04_ALLOC };
	u32 status;

	command.nvos21.hRoot = card->hClient;
	command.nvos21.hObjectParent = hParent;
	command.nvos21.hObjectNew = *hObject;
	command.nvos21.hClass = hClass;
	command.nvos21.pAllocParms = (u64)(uintptr_t)params;
	if (branch >= BRANCH_NVOS64)
		command.nvos64.paramsSize = size;
	else
		command.nvos21.paramsSize = size;
	rm.op(card->stack, &command);
	status = branch >= BRANCH_NVOS64 ? command.nvos64.status : command.nvos21.status;
	if (!status)
		*hObject = command.nvos21.hObjectNew;
	return status;
}

static int open_gpu(u32 gpu_id, void *stack)
{
	return branch >= BRANCH_RESET_AWARE ? rm.open_gpu_595(gpu_id, stack, false) :
					      rm.open_gpu(gpu_id, stack);
}

static void close_gpu(u32 gpu_id, void *stack)
{
	if (branch >= BRANCH_RESET_AWARE)
		rm.close_gpu_595(gpu_id, stack, false);
	else
		rm.close_gpu(gpu_id, stack);
}

static void close_card(struct cgpu_rm_card *card)
{
	struct rm_command command = { .op = NV04_FREE };

	if (card->hClient) {
		command.free.hRoot = card->hClient;
		command.free.hObjectOld = card->hClient;
		rm.op(card->stack, &command);
	}
	close_gpu(card->gpu_id, card->stack);
	rm.free_stack(card->stack);
	memset(card, 0, sizeof(*card));
}

static int open_card(struct cgpu_rm_card *card, u32 gpu_id, u32 device_instance)
{
	u8 params[NV0080_ALLOC_PARAMETERS_BYTES] = {};
	u32 subdevice = 0;

	memset(card, 0, sizeof(*card));
	card->gpu_id = gpu_id;
	if (rm.alloc_stack(&card->stack))
		return -ENOMEM;
	if (open_gpu(gpu_id, card->stack)) {
		rm.free_stack(card->stack);
		return -EIO;
	}
	card->hDevice = 0xc6700003;
	card->hSubdevice = 0xc6700004;
	memcpy(params, &device_instance, sizeof(device_instance));
	if (rm_alloc(card, 0, &card->hClient, NV01_ROOT, NULL, 0) ||
	    rm_alloc(card, card->hClient, &card->hDevice, NV01_DEVICE_0, params,
		     sizeof(params)) ||
	    rm_alloc(card, card->hDevice, &card->hSubdevice, NV20_SUBDEVICE_0, &subdevice,
		     sizeof(subdevice))) {
		close_card(card);
		return -EIO;
	}
	return 0;
}

static u32 control(struct cgpu_rm_card *card, u32 hClient, u32 hObject, u32 cmd,
		   void *params, u32 size)
{
	struct rm_command command = { .op = NV04_CONTROL };

	command.control.hClient = hClient;
	command.control.hObject = hObject;
	command.control.cmd = cmd;
	command.control.params = (u64)(uintptr_t)params;
	command.control.paramsSize = size;
	rm.op(card->stack, &command);
	return command.control.status;
}

static u32 map(struct cgpu_rm_card *card, u32 hMemory, u64 length, void **address)
{
	struct rm_command command = { .op = NV04_MAP_MEMORY };

	command.map.hClient = card->hClient;
	/* such memory is the client's own child */
	command.map.hDevice = card->hClient;
	command.map.hMemory = hMemory;
	command.map.length = length;
	rm.op(card->stack, &command);
	*address = (void *)(uintptr_t)command.map.pLinearAddress;
	return command.map.status;
}

static const struct cgpu_bridge_ops ops = {
	.owner = THIS_MODULE,
	.open_card = open_card,
	.close_card = close_card,
	.control = control,
	.alloc = rm_alloc,
	.map = map,
};

/* Return: 0, -EINVAL: not a version, -EOPNOTSUPP: a branch that is not verified. */
static int check_branch(const char *version)
{
	static const unsigned long known[] = { 535, 550, 570, 580, 590, 595 };
	int i;

	branch = simple_strtoul(version, NULL, 10);
	if (!branch) {
		pr_err("cgpu_rm: driver version %s is not understood\n", version);
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i] == branch)
			return 0;
	/* signatures cannot be tried out: a call with wrong arguments crashes the kernel */
	pr_err("cgpu_rm: driver %s: branch %lu not known; compute is not shared by the module. The agent (`cgpu run`, without cgpu_km) shares it\n",
	       version, branch);
	return -EOPNOTSUPP;
}

static int __init cgpu_rm_init(void)
{
	int err;

	/* the first call fails and tells the version, which the second must name */
	rm.version_string = "?";
	nvidia_get_rm_ops(&rm);
	if (nvidia_get_rm_ops(&rm)) {
		pr_err("cgpu_rm: the driver refuses its kernel interface\n");
		return -EIO;
	}
	err = check_branch(rm.version_string);
	if (err)
		return err;
	return cgpu_bridge_register(&ops);
}

static void __exit cgpu_rm_exit(void)
{
	cgpu_bridge_unregister(&ops);
}

module_init(cgpu_rm_init);
module_exit(cgpu_rm_exit);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_AUTHOR("The cgpu authors");
MODULE_DESCRIPTION("RM calls of the NVIDIA driver for cgpu_km");
