// SPDX-License-Identifier: GPL-2.0-only
/*
 * cgpu_core_<version>: the parts of the state, in the order in which they are
 * made, adopted and, in reverse, freed; and what the door may ask.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "core/tree/nodes.h"
#include "discover.h"
#include "door/door.h"
#include "driver.h"
#include "fops.h"
#include "governors.h"
#include "ioctl.h"
#include "lifecycle.h"
#include "node_file.h"
#include "open_file.h"
#include "registry.h"
#include "state.h"
#include "tree.h"
#include "verify.h"

static struct cgpu_state *state;

struct part {
	size_t place; /* in struct cgpu_state */
	int (*begin)(void **part);
	void (*adopt)(void *part);
	void (*end)(void);
};

#define PART(member, name) { offsetof(struct cgpu_state, member), cgpu_##name##_begin, \
			     cgpu_##name##_adopt, cgpu_##name##_end }

static const struct part parts[] = {
	PART(registry, registry),
	PART(open_files, open_files),
	PART(discovery, discovery),
	PART(tree, tree),
	PART(governors, governors),
};

static void **place_of(const struct part *part, struct cgpu_state *in)
{
	return (void **)((u8 *)in + part->place);
}

static void end_parts(size_t count)
{
	while (count--)
		parts[count].end();
	kfree(state);
	state = NULL;
}

static int begin(void **made)
{
	size_t i;
	int err;

	state = kzalloc(sizeof(*state), GFP_KERNEL);
	if (!state)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		err = parts[i].begin(place_of(&parts[i], state));
		if (err) {
			end_parts(i);
			return err;
		}
	}
	*made = state;
	return 0;
}

static void driver_changed(enum cgpu_driver driver, bool present)
{
	cgpu_tree_set_feature(driver == CGPU_DRIVER_RM ? CGPU_FEATURE_MEMORY :
							 CGPU_FEATURE_MANAGED,
			      present && cgpu_driver_trusted());
	if (driver == CGPU_DRIVER_RM && !present)
		cgpu_discover_forget();
}

/* The door stays hooked when a core goes. */
static int look_at_driver(void)
{
	int err;

	if (!cgpu_door_is_hooked(CGPU_DRIVER_RM))
		return 0;
	err = cgpu_driver_known(cgpu_door_driver_version());
	if (err)
		return err;
	driver_changed(CGPU_DRIVER_RM, true);
	if (cgpu_door_is_hooked(CGPU_DRIVER_UVM))
		driver_changed(CGPU_DRIVER_UVM, true);
	return 0;
}

static int start(void)
{
	int err;

	/* it may have been in charge before */
	cgpu_lifecycle_resume();
	err = cgpu_governors_watch();
	if (err)
		return err;
	err = look_at_driver();
	if (err)
		return err;
	/* a missing driver is no error; an unknown one is */
	err = cgpu_discover(0);
	if (err && err != -ENODEV)
		return err;
	/* a driver that fails it may be replaced, and so may what it failed for */
	cgpu_verify_driver();
	if (cgpu_door_bridge())
		cgpu_governors_bridge(cgpu_door_bridge());
	return 0;
}

static void end(void)
{
	rcu_barrier(); /* containers are freed by code of this module */
	end_parts(ARRAY_SIZE(parts));
}

static void quiesce(void)
{
	cgpu_governors_quiesce();
	cgpu_lifecycle_quiesce();
}

static void settle(void)
{
	cgpu_lifecycle_settle();
	cgpu_governors_settle();
}

static void resume(void)
{
	cgpu_lifecycle_resume();
	cgpu_governors_resume();
}

static int adopt(void *given)
{
	struct cgpu_state *theirs = given;
	size_t i;
	int err;

	if (cgpu_door_is_hooked(CGPU_DRIVER_RM)) {
		err = cgpu_driver_known(cgpu_door_driver_version());
		if (err)
			return err;
	}
	state = theirs;
	for (i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i].adopt(*place_of(&parts[i], state));
	/* what the former core found of it was by the former's layouts */
	if (cgpu_driver_on_trial()) {
		cgpu_tree_set_feature(CGPU_FEATURE_MEMORY, false);
		cgpu_tree_set_feature(CGPU_FEATURE_MANAGED, false);
	}
	return 0;
}

static void forget(void)
{
	state = NULL;
}

static struct cgpu_core_ops ops = {
	.owner = THIS_MODULE,
	.door_api = CGPU_DOOR_API,
	.state_version = CGPU_STATE_VERSION,
	.begin = begin,
	.start = start,
	.end = end,
	.quiesce = quiesce,
	.settle = settle,
	.resume = resume,
	.adopt = adopt,
	.forget = forget,
	.driver_known = cgpu_driver_known,
	.driver_changed = driver_changed,
	.bridge_changed = cgpu_governors_bridge,
	.open_pre = cgpu_open_pre,
	.open_post = cgpu_open_post,
	.release_pre = cgpu_release_pre,
	.release_post = cgpu_release_post,
	.ioctl_pre = cgpu_ioctl_pre,
	.ioctl_post = cgpu_call_end,
	.mmap_pre = cgpu_mmap_pre,
	.mmap_post = cgpu_mmap_post,
	.unmapped = cgpu_open_file_unmapped,
	.events_open = cgpu_node_file_open_events,
	.node_open = cgpu_node_file_open,
	.node_release = cgpu_node_file_release,
	.node_show = cgpu_node_file_show,
	.node_write = cgpu_node_file_write,
	.name_shown = cgpu_tree_shows,
};

static u64 digest_of_state(void)
{
	u64 digest = cgpu_digest(0xcbf29ce484222325ull, sizeof(struct cgpu_state));

	digest = cgpu_registry_digest(digest);
	digest = cgpu_open_files_digest(digest);
	digest = cgpu_discovery_digest(digest);
	digest = cgpu_tree_digest(digest);
	digest = cgpu_governors_digest(digest);
	return cgpu_ioctl_digest(digest);
}

static int __init core_init(void)
{
	ops.state_digest = digest_of_state();
	return cgpu_door_register(&ops);
}

static void __exit core_exit(void)
{
	cgpu_door_unregister(&ops);
	/* also one that gave its state away may have containers on their way to be freed */
	rcu_barrier();
}

module_init(core_init);
module_exit(core_exit);

#define TEXT(number) TEXT_(number)
#define TEXT_(number) #number

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The cgpu authors");
MODULE_DESCRIPTION("Containers share NVIDIA GPUs: the part that decides");
MODULE_VERSION(CGPU_VERSION);
MODULE_ALIAS("cgpu-core");
MODULE_INFO(cgpu_door_api, TEXT(CGPU_DOOR_API));
MODULE_INFO(cgpu_state, TEXT(CGPU_STATE_VERSION));
