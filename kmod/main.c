// SPDX-License-Identifier: GPL-2.0-only
/* Order of initialisation, and of its reverse. */
#include <linux/module.h>

#include "actuator.h"
#include "container.h"
#include "discover.h"
#include "events.h"
#include "hook.h"
#include "open_file.h"
#include "procfs.h"
#include "scratch.h"

static int __init cgpu_init(void)
{
	int err;

	err = cgpu_registry_init();
	if (err)
		return err;
	err = cgpu_scratch_init();
	if (err)
		goto err_registry;
	err = cgpu_open_file_init();
	if (err)
		goto err_scratch;
	err = cgpu_procfs_init();
	if (err)
		goto err_open_file;
	err = cgpu_actuator_init();
	if (err)
		goto err_procfs;
	err = cgpu_hook_init();
	if (err)
		goto err_actuator;
	/* no driver yet is no error; an unknown one is */
	err = cgpu_discover();
	if (err && err != -ENODEV)
		goto err_hook;
	return 0;

err_hook:
	cgpu_hook_exit();
err_actuator:
	cgpu_actuator_exit();
err_procfs:
	cgpu_procfs_exit();
err_open_file:
	cgpu_open_file_exit();
err_scratch:
	cgpu_scratch_exit();
err_registry:
	cgpu_registry_exit();
	return err;
}

static void __exit cgpu_exit(void)
{
	/* containers hold the module: there is none, and hence no open file */
	cgpu_hook_exit();
	cgpu_actuator_exit();
	cgpu_procfs_exit();
	cgpu_open_file_exit();
	cgpu_scratch_exit();
	cgpu_registry_exit();
}

module_init(cgpu_init);
module_exit(cgpu_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The cgpu authors");
MODULE_DESCRIPTION("Containers share NVIDIA GPUs");
MODULE_VERSION(CGPU_VERSION);
