// SPDX-License-Identifier: GPL-2.0-only
/* cgpu_km: what stays when the core is replaced. Order of initialisation, and of its reverse. */
#include <linux/module.h>
#include <linux/string.h>

#include "core/tree/card.h"
#include "authority.h"
#include "bars.h"
#include "dmabuf.h"
#include "door.h"
#include "events.h"
#include "hook.h"
#include "listing.h"
#include "notice.h"
#include "scratch.h"
#include "switch.h"
#include "tree.h"

static unsigned int max_objects = 262144;
module_param(max_objects, uint, 0444);
MODULE_PARM_DESC(max_objects, "objects, charges and ranges a container may have (power of two)");

static char *unknown_driver = "refused";
module_param(unknown_driver, charp, 0444);
MODULE_PARM_DESC(unknown_driver, "a driver of a branch newer than all known: refused (default), or newest: checked against the newest layouts, and refused if it does not have them");

/* for every card, until its file is written */
static struct cgpu_card_defaults defaults = {
	.policy = CGPU_POLICY_DEFAULT,
	.max_inst = CGPU_MAX_INST_DEFAULT,
	.timeslice_us = CGPU_TIMESLICE_US_DEFAULT,
};
module_param_named(policy, defaults.policy, uint, 0444);
MODULE_PARM_DESC(policy, "policy that a card begins with, 0 to 9 (7, weighted-conserving)");
module_param_named(max_inst, defaults.max_inst, uint, 0444);
MODULE_PARM_DESC(max_inst, "containers that a card takes to begin with, 1 to 64 (20)");
module_param_named(timeslice_us, defaults.timeslice_us, uint, 0444);
MODULE_PARM_DESC(timeslice_us, "unit of windows that a card begins with, in microseconds, 1000 to 1000000 (5000)");

unsigned int cgpu_door_max_objects(void)
{
	return max_objects;
}
EXPORT_SYMBOL_GPL(cgpu_door_max_objects);

/* the name that cores of this CGPU_DOOR_API ask by */
bool cgpu_door_force_branch(void)
{
	return !strcmp(unknown_driver, "newest");
}
EXPORT_SYMBOL_GPL(cgpu_door_force_branch);

const struct cgpu_card_defaults *cgpu_door_card_defaults(void)
{
	return &defaults;
}
EXPORT_SYMBOL_GPL(cgpu_door_card_defaults);

static int __init door_init(void)
{
	int err;

	if (strcmp(unknown_driver, "newest") && strcmp(unknown_driver, "refused")) {
		pr_err("cgpu: unknown_driver=%s: use refused or newest\n", unknown_driver);
		return -EINVAL;
	}
	err = cgpu_door_tree_init();
	if (err)
		return err;
	if (cgpu_agent_answers()) {
		pr_err("cgpu: the agent of `cgpu run` shares this host's cards: end its programs and the agent first (`cgpu ps`)\n");
		err = -EBUSY;
		goto err_tree;
	}
	err = cgpu_events_init(cgpu_door_root());
	if (err)
		goto err_tree;
	err = cgpu_notice_init();
	if (err)
		goto err_tree;
	err = cgpu_switch_init(cgpu_door_root());
	if (err)
		goto err_notice;
	/* a failure for lack of memory or ftrace lasts until the next loading */
	err = cgpu_dmabuf_init();
	if (err)
		goto err_notice;
	err = cgpu_listing_init();
	if (err)
		goto err_dmabuf;
	err = cgpu_bars_init();
	if (err)
		goto err_listing;
	err = cgpu_hook_init();
	if (err)
		goto err_bars;
	return 0;

err_bars:
	cgpu_bars_exit();
err_listing:
	cgpu_listing_exit();
err_dmabuf:
	cgpu_dmabuf_exit();
err_notice:
	cgpu_notice_exit();
err_tree:
	cgpu_door_tree_exit();
	return err;
}

static void __exit door_exit(void)
{
	/* a core needs symbols of ours: there is none, and hence no container */
	cgpu_hook_exit();
	cgpu_bars_exit();
	cgpu_listing_exit();
	cgpu_dmabuf_exit();
	cgpu_switch_exit();
	cgpu_notice_exit();
	cgpu_door_tree_exit();
	cgpu_scratch_exit();
}

module_init(door_init);
module_exit(door_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The cgpu authors");
MODULE_DESCRIPTION("Containers share NVIDIA GPUs: the part that stays");
MODULE_VERSION(CGPU_VERSION);
/* what decides is a module of its own, so that it can be replaced */
MODULE_SOFTDEP("post: cgpu-core");
