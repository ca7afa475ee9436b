/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What cgpu_km needs of the NVIDIA driver's kernel interface, and cgpu_rm.ko provides. It is a
 * module of its own because only the bridge may depend on a symbol of the driver: it pins the
 * driver, and the closed flavour taints it.
 */
#ifndef CGPU_DOOR_BRIDGE_H
#define CGPU_DOOR_BRIDGE_H

#include <linux/types.h>

struct module;

/* A client of our own on one card. */
struct cgpu_rm_card {
	u32 gpu_id;
	u32 hClient;
	u32 hDevice;
	u32 hSubdevice;
	void *stack;    /* the driver's; one user at a time */
};

struct cgpu_bridge_ops {
	struct module *owner;
	/*
	 * Opens a card and makes a client, device and subdevice on it. Context:
	 * sleeps, maybe for seconds. Return: 0, -EIO, -ENOMEM.
	 */
	int (*open_card)(struct cgpu_rm_card *card, u32 gpu_id, u32 device_instance);
	void (*close_card)(struct cgpu_rm_card *card);
	/*
	 * RM control on any client's object with kernel privilege; `params` is
	 * kernel memory. Context: sleeps. Return: NVIDIA's status.
	 */
	u32 (*control)(struct cgpu_rm_card *card, u32 hClient, u32 hObject, u32 cmd,
		       void *params, u32 size);
	/*
	 * An object of our client; it goes with the card. `*hObject` is the handle
	 * wanted. Context: sleeps. Return: NVIDIA's status.
	 */
	u32 (*alloc)(struct cgpu_rm_card *card, u32 hParent, u32 *hObject, u32 hClass,
		     void *params, u32 size);
	/*
	 * Memory of our client that belongs to no device, in the kernel's address
	 * space until the card is closed. Context: sleeps. Return: NVIDIA's status.
	 */
	u32 (*map)(struct cgpu_rm_card *card, u32 hMemory, u64 length, void **address);
};

/**
 * cgpu_bridge_register() - a bridge came
 * @ops: stays until cgpu_bridge_unregister()
 *
 * Context: sleeps.
 * Return: 0, -EBUSY: there is a bridge already.
 */
int cgpu_bridge_register(const struct cgpu_bridge_ops *ops);

/**
 * cgpu_bridge_unregister() - a bridge goes
 * @ops: as it was registered
 *
 * Every gate is open and every card closed on return.
 *
 * Context: sleeps.
 */
void cgpu_bridge_unregister(const struct cgpu_bridge_ops *ops);

#endif
