// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells a container on its own standard error why it was refused something, or ended: often its
 * user sees nothing else. A worker writes, through a file of its own that never blocks. A reader
 * that takes nothing, or a writer that holds the pipe, must hold up no call and no lock of ours.
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/major.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "notice.h"

enum {
	STANDARD_ERROR = 2,
	TEXT_BYTES = 384,
	UNDER_WAY_MAX = 64
};

struct notice {
	struct work_struct work;
	struct file *file;
	char text[TEXT_BYTES];
};

static struct workqueue_struct *writers;
static atomic_t under_way;

static bool is_terminal(const struct inode *inode)
{
	return S_ISCHR(inode->i_mode) && imajor(inode) >= UNIX98_PTY_SLAVE_MAJOR &&
	       imajor(inode) < UNIX98_PTY_SLAVE_MAJOR + UNIX98_PTY_MAJOR_COUNT;
}

/* Return: the container's log or terminal behind current's standard error, or NULL. */
static struct file *readers_end(void)
{
	struct file *file = fget(STANDARD_ERROR);

	if (!file)
		return NULL;
	if (file->f_mode & FMODE_WRITE &&
	    (S_ISFIFO(file_inode(file)->i_mode) || is_terminal(file_inode(file))))
		return file;
	fput(file);
	return NULL;
}

static void write_notice(struct work_struct *work)
{
	struct notice *notice = container_of(work, struct notice, work);
	struct file *file = dentry_open(&notice->file->f_path, O_WRONLY | O_NONBLOCK | O_NOCTTY,
					current_cred());
	loff_t place = 0;

	if (!IS_ERR(file)) {
		kernel_write(file, notice->text, strlen(notice->text), &place);
		fput(file);
	}
	fput(notice->file);
	kfree(notice);
	atomic_dec(&under_way);
}

void cgpu_notice(const char *format, ...)
{
	static int last; /* a library tries one node after the other */
	struct notice *notice = NULL;
	struct file *file;
	va_list arguments;
	int length;

	if (xchg(&last, task_tgid_nr(current)) == task_tgid_nr(current))
		return;
	file = readers_end();
	if (!file)
		return;
	if (atomic_inc_return(&under_way) <= UNDER_WAY_MAX)
		notice = kmalloc(sizeof(*notice), GFP_KERNEL);
	if (!notice) {
		atomic_dec(&under_way);
		fput(file);
		return;
	}
	va_start(arguments, format);
	length = vscnprintf(notice->text, sizeof(notice->text) - 1, format, arguments);
	va_end(arguments);
	strcpy(notice->text + length, "\n");
	notice->file = file;
	INIT_WORK(&notice->work, write_notice);
	queue_work(writers, &notice->work);
}
EXPORT_SYMBOL_GPL(cgpu_notice);

int cgpu_notice_init(void)
{
	writers = alloc_workqueue("cgpu_notice", WQ_UNBOUND, UNDER_WAY_MAX);
	return writers ? 0 : -ENOMEM;
}

void cgpu_notice_exit(void)
{
	destroy_workqueue(writers);
}
