// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which core is in charge, and how the next one takes over.
 *
 * A second core stands by from its loading on. A switch stops the threads of the one in charge,
 * closes both drains, lets the other adopt the state and opens them. Calls that came meanwhile have
 * waited and find the new core. Until it is accepted, the new core is on trial and the old one
 * stays loaded. If the trial ends without acceptance, the door goes back to the old one, so that an
 * upgrade that dies half-way ends where it began.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid_namespace.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "core_drain.h"
#include "events.h"
#include "gap.h"
#include "hook.h"
#include "switch.h"

enum {
	TRIAL_MAX_MS = 600 * MSEC_PER_SEC,
	COMMAND_MAX = 128,
};

static DEFINE_MUTEX(switch_lock); /* all below, and which core is in charge */
static const struct cgpu_core_ops *standby;
static void *state;
static const struct cgpu_bridge_ops *bridge; /* written under bridge_lock besides */
static DEFINE_SPINLOCK(bridge_lock);
static unsigned int containers; /* under bridge_lock */
static bool bridge_held;        /* likewise: a reference of its module */
static unsigned long trial_end; /* jiffies; meaningful while on_trial */
static bool on_trial;           /* standby is the former core, and is pinned */
static u64 switches, reverts, pause_ns, pause_max_ns;
static int last_error;

static void trial_over(struct work_struct *work);
static DECLARE_DELAYED_WORK(trial_work, trial_over);

/* ---------------------------------------------------------------- switch */

/* Context: switch_lock; `to` stands by. */
static int hand_over(const struct cgpu_core_ops *to)
{
	const struct cgpu_core_ops *from = cgpu_core_in_charge();
	u64 start_ns;
	int err;

	from->quiesce();
	start_ns = ktime_get_ns();
	err = cgpu_core_close();
	if (!err) {
		err = to->adopt(state);
		if (!err) {
			cgpu_core_replace(to);
			from->forget();
			standby = from;
		}
		cgpu_core_open();
		pause_ns = ktime_get_ns() - start_ns;
		pause_max_ns = max(pause_max_ns, pause_ns);
	}
	cgpu_core_in_charge()->resume();
	last_error = err;
	if (!err)
		switches++;
	return err;
}

/* Context: switch_lock. */
static void end_trial(void)
{
	if (!on_trial)
		return;
	on_trial = false;
	module_put(standby->owner);
}

static int revert(void)
{
	const struct cgpu_core_ops *former = standby;
	int err;

	if (!on_trial)
		return -ENOENT;
	err = hand_over(former);
	if (err)
		return err;
	/* the pin of the trial was the former one's, which containers pin again */
	on_trial = false;
	module_put(former->owner);
	reverts++;
	cgpu_event("revert core %s", module_name(former->owner));
	pr_notice("cgpu: back to %s\n", module_name(former->owner));
	return 0;
}

static void trial_over(struct work_struct *work)
{
	mutex_lock(&switch_lock);
	/* as long as a call stays behind the drain: not given up */
	if (on_trial && time_after_eq(jiffies, trial_end) && revert() == -EBUSY)
		schedule_delayed_work(&trial_work, HZ / 10);
	mutex_unlock(&switch_lock);
}

static int begin_trial(const char *name, unsigned int trial_ms)
{
	const struct cgpu_core_ops *former = cgpu_core_in_charge(), *next;
	int err;

	if (former && !strcmp(module_name(former->owner), name))
		return -EALREADY;
	if (!former || !standby || strcmp(module_name(standby->owner), name))
		return -ENOENT;
	if (on_trial)
		return -EALREADY; /* to the former one: that is a revert */
	/* neither may be on its way out */
	if (!try_module_get(standby->owner))
		return -ENOENT;
	if (!try_module_get(former->owner)) {
		module_put(standby->owner);
		return -ENOENT;
	}
	next = standby;
	err = hand_over(next);
	module_put(next->owner);
	if (err) {
		module_put(former->owner);
		return err;
	}
	on_trial = true;
	trial_end = jiffies + msecs_to_jiffies(trial_ms);
	mod_delayed_work(system_wq, &trial_work, msecs_to_jiffies(trial_ms));
	cgpu_event("switch core %s", name);
	pr_notice("cgpu: %s is in charge, on trial for %u ms\n", name, trial_ms);
	return 0;
}

static int accept(void)
{
	if (!on_trial)
		return -ENOENT;
	end_trial();
	cgpu_event("accept core %s", module_name(cgpu_core_in_charge()->owner));
	return 0;
}

/* ---------------------------------------------------------- cores come and go */

/* No container exists, and no file of the tree is open. */
static void dismiss(const struct cgpu_core_ops *core)
{
	core->quiesce();
	while (cgpu_core_close())
		;
	cgpu_core_replace(NULL);
	cgpu_core_open();
	core->end();
	state = NULL;
}

static int take_charge(const struct cgpu_core_ops *core)
{
	int err = core->begin(&state);

	if (err)
		return err;
	cgpu_core_replace(core);
	err = core->start();
	if (!err) {
		cgpu_core_started();
		/* no driver yet is no error: the notifier, or create, attaches later */
		cgpu_hook_look();
		return 0;
	}
	dismiss(core);
	return err;
}

static int stand_by(const struct cgpu_core_ops *core, const struct cgpu_core_ops *in_charge)
{
	if (core->state_version != in_charge->state_version) {
		pr_err("cgpu: %s takes states of version %u, and %s is of version %u: no hot upgrade\n",
		       module_name(core->owner), core->state_version,
		       module_name(in_charge->owner), in_charge->state_version);
		return -EPROTO;
	}
	if (core->state_digest != in_charge->state_digest) {
		pr_err("cgpu: %s: its state of version %u is laid out otherwise than %s's: no hot upgrade\n",
		       module_name(core->owner), core->state_version,
		       module_name(in_charge->owner));
		return -EPROTO;
	}
	if (standby)
		return -EBUSY;
	standby = core;
	return 0;
}

int cgpu_door_register(const struct cgpu_core_ops *core)
{
	const struct cgpu_core_ops *in_charge;
	int err;

	if (core->door_api != CGPU_DOOR_API) {
		pr_err("cgpu: %s is made for another cgpu_km: door API %u, not %u\n",
		       module_name(core->owner), core->door_api, CGPU_DOOR_API);
		return -EPROTO;
	}
	mutex_lock(&switch_lock);
	in_charge = cgpu_core_in_charge();
	err = in_charge ? stand_by(core, in_charge) : take_charge(core);
	mutex_unlock(&switch_lock);
	return err;
}
EXPORT_SYMBOL_GPL(cgpu_door_register);

/* A core that stands by, unless it is being unloaded too, has nothing to take over. */
static void begin_afresh(void)
{
	struct module *owner = standby ? standby->owner : NULL;

	if (!owner || !try_module_get(owner))
		return;
	if (!take_charge(standby))
		standby = NULL;
	module_put(owner);
}

void cgpu_door_unregister(const struct cgpu_core_ops *core)
{
	mutex_lock(&switch_lock);
	if (core == standby) {
		standby = NULL;
	} else {
		end_trial();
		dismiss(core);
		begin_afresh();
	}
	mutex_unlock(&switch_lock);
}
EXPORT_SYMBOL_GPL(cgpu_door_unregister);

/* ---------------------------------------------------------------- bridge */

/*
 * Without the bridge every gate opens, so it stays while a container counts on it. A bridge that is
 * being unloaded at that moment says so itself, and is let go.
 */
static void hold_bridge(void)
{
	if (containers && bridge && !bridge_held)
		bridge_held = try_module_get(bridge->owner);
}

static void let_bridge_go(void)
{
	if (bridge_held)
		module_put(bridge->owner);
	bridge_held = false;
}

static void set_bridge(const struct cgpu_bridge_ops *ops)
{
	unsigned long flags;

	spin_lock_irqsave(&bridge_lock, flags);
	WARN_ON(bridge_held);
	bridge = ops;
	hold_bridge();
	spin_unlock_irqrestore(&bridge_lock, flags);
}

bool cgpu_door_pin(void)
{
	unsigned long flags;

	if (!cgpu_core_pin_state())
		return false;
	spin_lock_irqsave(&bridge_lock, flags);
	containers++;
	cgpu_gap_guard(true);
	hold_bridge();
	spin_unlock_irqrestore(&bridge_lock, flags);
	return true;
}
EXPORT_SYMBOL_GPL(cgpu_door_pin);

void cgpu_door_unpin(void)
{
	unsigned long flags;

	spin_lock_irqsave(&bridge_lock, flags);
	if (!--containers) {
		cgpu_gap_guard(false);
		let_bridge_go();
	}
	spin_unlock_irqrestore(&bridge_lock, flags);
	cgpu_core_unpin();
}
EXPORT_SYMBOL_GPL(cgpu_door_unpin);

int cgpu_bridge_register(const struct cgpu_bridge_ops *ops)
{
	const struct cgpu_core_ops *core;
	int err = 0;

	mutex_lock(&switch_lock);
	if (bridge) {
		err = -EBUSY;
	} else {
		set_bridge(ops);
		core = cgpu_core_in_charge();
		if (core)
			core->bridge_changed(ops);
	}
	mutex_unlock(&switch_lock);
	return err;
}
EXPORT_SYMBOL(cgpu_bridge_register);

void cgpu_bridge_unregister(const struct cgpu_bridge_ops *ops)
{
	const struct cgpu_core_ops *core;

	mutex_lock(&switch_lock);
	core = cgpu_core_in_charge();
	if (core)
		core->bridge_changed(NULL);
	set_bridge(NULL);
	mutex_unlock(&switch_lock);
}
EXPORT_SYMBOL(cgpu_bridge_unregister);

const struct cgpu_bridge_ops *cgpu_door_bridge(void)
{
	return bridge;
}
EXPORT_SYMBOL_GPL(cgpu_door_bridge);

/* ---------------------------------------------------- /proc/cgpu_km/upgrade */

static int upgrade_show(struct seq_file *seq, void *unused)
{
	const struct cgpu_core_ops *in_charge;
	unsigned long now = jiffies;

	mutex_lock(&switch_lock);
	in_charge = cgpu_core_in_charge();
	seq_printf(seq, "door_api %u\n", CGPU_DOOR_API);
	seq_printf(seq, "state %u\n", in_charge ? in_charge->state_version : 0);
	seq_printf(seq, "running %s\n", in_charge ? module_name(in_charge->owner) : "-");
	seq_printf(seq, "standby %s\n", standby ? module_name(standby->owner) : "-");
	seq_printf(seq, "trial_ms %u\n", on_trial && time_before(now, trial_end) ?
			jiffies_to_msecs(trial_end - now) : on_trial);
	seq_printf(seq, "switches %llu\n", switches);
	seq_printf(seq, "reverts %llu\n", reverts);
	seq_printf(seq, "last_error %d\n", -last_error);
	seq_printf(seq, "pause_ns %llu\n", pause_ns);
	seq_printf(seq, "pause_ns_max %llu\n", pause_max_ns);
	mutex_unlock(&switch_lock);
	return 0;
}

static int run_command(char *text)
{
	char *word = strim(text), *name, *ms;
	unsigned int trial_ms;

	if (!strcmp(word, "accept"))
		return accept();
	if (!strcmp(word, "revert"))
		return revert();
	if (strcmp(strsep(&word, " "), "switch"))
		return -EINVAL;
	name = strsep(&word, " ");
	ms = strsep(&word, " ");
	if (!name || !ms || word || kstrtouint(ms, 10, &trial_ms))
		return -EINVAL;
	if (!trial_ms || trial_ms > TRIAL_MAX_MS)
		return -ERANGE;
	return begin_trial(name, trial_ms);
}

static ssize_t upgrade_write(struct file *file, const char __user *user, size_t size,
			     loff_t *position)
{
	char *text;
	int err;

	if (size > COMMAND_MAX)
		return -EINVAL;
	text = memdup_user_nul(user, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&switch_lock);
	err = run_command(text);
	mutex_unlock(&switch_lock);
	kfree(text);
	return err ? err : size;
}

static int upgrade_open(struct inode *inode, struct file *file)
{
	const struct cgpu_core_ops *core;
	int err;

	/* only the core knows which container the process belongs to */
	core = cgpu_core_enter(&cgpu_calls);
	err = core && !(file->f_mode & FMODE_WRITE) ? core->events_open() : 0;
	cgpu_core_leave(&cgpu_calls);
	if (err)
		return err;
	/* root of a container that is shown this /proc is not the host's */
	if (file->f_mode & FMODE_WRITE &&
	    (!capable(CAP_SYS_ADMIN) || task_active_pid_ns(current) != &init_pid_ns))
		return -EPERM;
	/* a reader may wait for its own page for any time; unloading must not wait for it */
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	err = single_open(file, upgrade_show, NULL);
	if (err)
		module_put(THIS_MODULE);
	return err;
}

static int upgrade_release(struct inode *inode, struct file *file)
{
	/* procfs, which calls this, is waited for before the module goes */
	module_put(THIS_MODULE);
	return single_release(inode, file);
}

static const struct proc_ops upgrade_ops = {
	.proc_open = upgrade_open,
	.proc_read = seq_read,
	.proc_write = upgrade_write,
	.proc_lseek = seq_lseek,
	.proc_release = upgrade_release,
};

int cgpu_switch_init(struct proc_dir_entry *root)
{
	return proc_create("upgrade", 0644, root, &upgrade_ops) ? 0 : -ENOMEM;
}

void cgpu_switch_exit(void)
{
	/* a core needs the door's symbols: there is none any more */
	cancel_delayed_work_sync(&trial_work);
}
