// SPDX-License-Identifier: GPL-2.0-only
/* Load and unload of the simulated nvidia.ko. */
#include <linux/module.h>
#include "nvsim.h"

static int __init nvsim_init(void)
{
	int ret;

	ret = nvsim_cards_init();
	if (ret)
		return ret;
	ret = nvsim_procfs_init();
	if (ret)
		goto err_cards;
	ret = nvsim_chardev_init();
	if (ret)
		goto err_procfs;
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
