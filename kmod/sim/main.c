// SPDX-License-Identifier: GPL-2.0-only
/* Load and unload of the simulated nvidia.ko. */
#include <linux/module.h>
#include <linux/slab.h>
#include "nvsim.h"

/* /sys/module/nvidia/version tells the branch in force, as with the real driver. */
static int tell_version(void)
{
	const char *version = kstrdup(nvsim_version, GFP_KERNEL);

	if (!version)
		return -ENOMEM;
	/* the module loader frees what stands there when the module goes */
	kfree(THIS_MODULE->version);
	THIS_MODULE->version = version;
	return 0;
}

static int __init nvsim_init(void)
{
	int ret;

	ret = nvsim_cards_init();
	if (ret)
		return ret;
	ret = tell_version();
	if (ret)
		goto err_cards;
	ret = nvsim_procfs_init();
	if (ret)
		goto err_cards;
	ret = nvsim_chardev_init();
	if (ret)
		goto err_procfs;
	nvsim_pci_init();
	pr_info("nvidia: simulated driver %s, %d card(s)\n", nvsim_version, nvsim_ncards);
	return 0;
err_procfs:
	nvsim_procfs_exit();
err_cards:
	nvsim_cards_exit();
	return ret;
}

static void __exit nvsim_exit(void)
{
	nvsim_pci_exit();
	nvsim_chardev_exit();
	nvsim_procfs_exit();
	nvsim_cards_exit();
	WARN(atomic_long_read(&nvsim_live_objects), "nvsim: objects leak\n");
	WARN(atomic_long_read(&nvsim_live_mem), "nvsim: memory leaks\n");
	WARN(atomic_long_read(&nvsim_live_files), "nvsim: files leak\n");
}

module_init(nvsim_init);
module_exit(nvsim_exit);
MODULE_DESCRIPTION("Simulated NVIDIA driver for tests without a GPU");
MODULE_LICENSE("GPL");
MODULE_VERSION("550.163.01");
