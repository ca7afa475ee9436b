// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a container without a grant may do with a card: the parameter `ungranted`. A container that
 * was started past our runtime (--gpus, --device, a hostPath) is seen here.
 */
#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/fs_struct.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/path.h>
#include <linux/pid_namespace.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <linux/user_namespace.h>

#include "door.h"

/* by itself a module limits nobody until somebody asks, and then whoever came past it */
static int ungranted = CGPU_UNGRANTED_ASKED;

static const char *const words[] = { "allow", "refuse", "asked" };
static const int values[] = {
	CGPU_UNGRANTED_ALLOW, CGPU_UNGRANTED_REFUSE, CGPU_UNGRANTED_ASKED,
};

static void root_of(struct task_struct *task, struct path *root)
{
	task_lock(task);
	if (task->fs)
		get_fs_root(task->fs, root);
	task_unlock(task);
}

/* Is the root directory not process 1's? A mount namespace alone, as services have, keeps it. */
static bool has_own_root(void)
{
	struct path own = {}, hosts = {};
	bool differs;

	root_of(current, &own);
	root_of(init_pid_ns.child_reaper, &hosts);
	differs = own.dentry && hosts.dentry && own.dentry != hosts.dentry;
	path_put(&own);
	path_put(&hosts);
	return differs;
}

bool cgpu_door_has_namespaces(void)
{
	/* an exiting task has no namespaces left, and opens nothing */
	return current->nsproxy &&
	       (task_active_pid_ns(current) != &init_pid_ns ||
		current_user_ns() != &init_user_ns ||
		current->nsproxy->cgroup_ns != init_task.nsproxy->cgroup_ns);
}

bool cgpu_door_in_container(void)
{
	/* an engine can leave a container all of the host's namespaces, and not its files */
	return cgpu_door_has_namespaces() || (current->nsproxy && has_own_root());
}
EXPORT_SYMBOL_GPL(cgpu_door_in_container);

int cgpu_door_ungranted(void)
{
	return READ_ONCE(ungranted);
}
EXPORT_SYMBOL_GPL(cgpu_door_ungranted);

static int set_ungranted(const char *text, const struct kernel_param *param)
{
	char digits[8] = "";
	unsigned int percent;
	int word, err;

	/* a container with a sysfs of its own to write */
	if (cgpu_door_in_container())
		return -EPERM;
	word = sysfs_match_string(words, text);
	if (word >= 0) {
		WRITE_ONCE(ungranted, values[word]);
		return 0;
	}
	strscpy(digits, text, sizeof(digits));
	strim(digits);
	if (!digits[0] || digits[strlen(digits) - 1] != '%')
		return -EINVAL;
	digits[strlen(digits) - 1] = 0;
	err = kstrtouint(digits, 10, &percent);
	if (err)
		return err;
	if (!percent || percent > 100)
		return -ERANGE;
	WRITE_ONCE(ungranted, (int)percent);
	return 0;
}

static int get_ungranted(char *text, const struct kernel_param *param)
{
	int value = cgpu_door_ungranted();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		if (values[i] == value)
			return sysfs_emit(text, "%s\n", words[i]);
	return sysfs_emit(text, "%d%%\n", value);
}

static const struct kernel_param_ops ungranted_ops = {
	.set = set_ungranted,
	.get = get_ungranted,
};
module_param_cb(ungranted, &ungranted_ops, NULL, 0644);
MODULE_PARM_DESC(ungranted, "a card opened by a container of no grant: allow, refuse, asked (refuse once any container asked for something; the default) or a share of the card such as 10%");
