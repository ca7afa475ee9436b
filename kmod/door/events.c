// SPDX-License-Identifier: GPL-2.0-only
/*
 * A ring of the last lines. Each open file has its own position, a number of a line since the
 * module was loaded. A reader that falls behind the ring, or opens the file late, is told how many
 * lines are gone and continues with the oldest.
 *
 * A select() keeps pointing at the wait queue after the file's handlers are through, so an open
 * file pins the module. It pins the core too, which has to be unloaded before the door.
 */
#include <linux/ctype.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "core_drain.h"
#include "events.h"

enum {
	RING_LINES = 512,
	LINE_BYTES = 254
};

struct line {
	u16 length;
	char text[LINE_BYTES];
};

struct reader {
	struct mutex lock; /* next, against threads that share the file */
	u64 next;
};

static struct line ring[RING_LINES];
static u64 written; /* lines ever */
static DEFINE_SPINLOCK(ring_lock); /* ring, written */
static DECLARE_WAIT_QUEUE_HEAD(readers);

static u16 begin_line(struct line *line)
{
	return scnprintf(line->text, LINE_BYTES, "%llu ", ktime_get_real_ns());
}

/* Makes one line of the printed text. */
static void end_line(struct line *line)
{
	u16 index;

	for (index = 0; index < line->length; index++)
		if (iscntrl(line->text[index]))
			line->text[index] = '?';
	line->text[line->length++] = '\n';
}

void cgpu_event(const char *format, ...)
{
	struct line *line;
	unsigned long flags;
	va_list args;

	va_start(args, format);
	spin_lock_irqsave(&ring_lock, flags);
	line = &ring[written % RING_LINES];
	line->length = begin_line(line);
	line->length += vscnprintf(line->text + line->length, LINE_BYTES - line->length,
				   format, args);
	end_line(line);
	WRITE_ONCE(written, written + 1);
	spin_unlock_irqrestore(&ring_lock, flags);
	va_end(args);
	wake_up_interruptible_poll(&readers, EPOLLIN | EPOLLRDNORM);
}
EXPORT_SYMBOL_GPL(cgpu_event);

/* Return: the position after the line that was copied out, or `next`: none is there. */
static u64 next_line(u64 next, struct line *out)
{
	unsigned long flags;
	u64 oldest;

	spin_lock_irqsave(&ring_lock, flags);
	oldest = written > RING_LINES ? written - RING_LINES : 0;
	if (next < oldest) {
		out->length = begin_line(out);
		out->length += scnprintf(out->text + out->length, LINE_BYTES - out->length,
					 "lost %llu", oldest - next);
		end_line(out);
		next = oldest;
	} else if (next < written) {
		*out = ring[next % RING_LINES];
		next++;
	}
	spin_unlock_irqrestore(&ring_lock, flags);
	return next;
}

static bool anything_new(struct reader *reader)
{
	return READ_ONCE(reader->next) < READ_ONCE(written);
}

/* Whole lines, as many as there are and fit. */
static ssize_t copy_lines(struct reader *reader, char __user *buf, size_t size)
{
	struct line line;
	size_t copied = 0;

	for (;;) {
		u64 next = next_line(reader->next, &line);

		if (next == reader->next)
			return copied;
		if (line.length > size - copied)
			return copied ? copied : -EINVAL;
		if (copy_to_user(buf + copied, line.text, line.length))
			return copied ? copied : -EFAULT;
		copied += line.length;
		WRITE_ONCE(reader->next, next);
	}
}

static ssize_t events_read(struct file *file, char __user *buf, size_t size, loff_t *position)
{
	struct reader *reader = file->private_data;
	ssize_t copied;

	if (!size)
		return 0;
	for (;;) {
		if (mutex_lock_interruptible(&reader->lock))
			return -ERESTARTSYS;
		copied = copy_lines(reader, buf, size);
		mutex_unlock(&reader->lock);
		if (copied)
			return copied;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(readers, anything_new(reader)))
			return -ERESTARTSYS;
	}
}

static __poll_t events_poll(struct file *file, poll_table *table)
{
	struct reader *reader = file->private_data;

	poll_wait(file, &readers, table);
	return anything_new(reader) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int may_read(void)
{
	const struct cgpu_core_ops *core = cgpu_core_enter(&cgpu_calls);
	int err = core ? core->events_open() : 0;

	cgpu_core_leave(&cgpu_calls);
	return err;
}

static int events_open(struct inode *inode, struct file *file)
{
	struct reader *reader;
	int err;

	if (file->f_mode & FMODE_WRITE)
		return -EACCES;
	err = may_read();
	if (err)
		return err;
	reader = kzalloc(sizeof(*reader), GFP_KERNEL);
	if (!reader)
		return -ENOMEM;
	if (!cgpu_core_pin()) {
		kfree(reader);
		return -ENODEV;
	}
	mutex_init(&reader->lock);
	file->private_data = reader;
	return stream_open(inode, file);
}

static int events_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	cgpu_core_unpin();
	return 0;
}

static const struct proc_ops events_ops = {
	.proc_open = events_open,
	.proc_read = events_read,
	.proc_poll = events_poll,
	.proc_release = events_release,
};

int cgpu_events_init(struct proc_dir_entry *root)
{
	return proc_create("events", 0444, root, &events_ops) ? 0 : -ENOMEM;
}
