// SPDX-License-Identifier: GPL-2.0-only
/*
 * The character devices, major 195: minors 0 to 247 are cards, 255 is the
 * control device. Branch 535 registers one frontend and dispatches by minor;
 * 550 and later register two cdevs over one non-const file_operations.
 */
#include <linux/cdev.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include "nvsim.h"

atomic_long_t nvsim_live_files;

static int nvsim_open(struct inode *inode, struct file *filp)
{
	unsigned int minor = iminor(inode);
	struct nvsim_card *card = NULL;
	struct nvsim_file *nf;

	nvsim_pause(NVSIM_PAUSE_OPEN, minor);
	if (minor != NVSIM_MINOR_CTL) {
		card = nvsim_card_by_minor(minor);
		if (!card)
			return -ENODEV;
	}
	nf = kzalloc(sizeof(*nf), GFP_KERNEL);
	if (!nf)
		return -ENOMEM;
	nf->minor = minor;
	nf->card = card;
	INIT_LIST_HEAD(&nf->clients);
	INIT_LIST_HEAD(&nf->doorbell_node);
	mutex_init(&nf->map_lock);
	init_waitqueue_head(&nf->wait);
	if (card) {
		/* Mappings of one file can then be revoked without the others'. */
		address_space_init_once(&nf->mapping);
		nf->mapping.host = inode;
		nf->mapping.a_ops = inode->i_mapping->a_ops;
		filp->f_mapping = &nf->mapping;
		atomic_inc(&card->usage);
	}
	filp->private_data = nf;
	atomic_long_inc(&nvsim_live_files);
	return 0;
}

static int nvsim_release(struct inode *inode, struct file *filp)
{
	struct nvsim_file *nf = filp->private_data;
	unsigned int i;

	filp->private_data = NULL;
	nvsim_os_event_release(nf);
	nvsim_clients_of_file(nf);
	nvsim_mapping_release(nf);
	nvsim_export_release(nf);
	for (i = 0; i < nf->nattached; i++)
		if (nf->attached[i])
			nvsim_gpu_put(nf->attached[i]);
	kfree(nf->attached);
	if (nf->card)
		atomic_dec(&nf->card->usage);
	if (nf->ctl_filp)
		fput(nf->ctl_filp);
	kfree(nf);
	atomic_long_dec(&nvsim_live_files);
	return 0;
}

static struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvsim_open,
	.release = nvsim_release,
	.unlocked_ioctl = nvsim_ioctl,
	.compat_ioctl = nvsim_ioctl,
	.mmap = nvsim_mmap,
	.poll = nvsim_poll,
};

/* ---- 535's frontend: finds the module that serves a minor, then calls through ---- */

static const struct file_operations *frontend_table[NVSIM_MINOR_CTL + 1];

static int nv_frontend_open(struct inode *inode, struct file *filp)
{
	const struct file_operations *ops = frontend_table[iminor(inode) & 0xff];

	return ops ? ops->open(inode, filp) : -ENODEV;
}

static int nv_frontend_close(struct inode *inode, struct file *filp)
{
	return frontend_table[iminor(inode) & 0xff]->release(inode, filp);
}

static long nv_frontend_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return frontend_table[iminor(file_inode(filp)) & 0xff]->unlocked_ioctl(filp, cmd, arg);
}

static __poll_t nv_frontend_poll(struct file *filp, struct poll_table_struct *wait)
{
	return frontend_table[iminor(file_inode(filp)) & 0xff]->poll(filp, wait);
}

static int nv_frontend_mmap(struct file *filp, struct vm_area_struct *vma)
{
	return frontend_table[iminor(file_inode(filp)) & 0xff]->mmap(filp, vma);
}

static struct file_operations nv_frontend_fops = {
	.owner = THIS_MODULE,
	.open = nv_frontend_open,
	.release = nv_frontend_close,
	.unlocked_ioctl = nv_frontend_unlocked_ioctl,
	.compat_ioctl = nv_frontend_unlocked_ioctl,
	.mmap = nv_frontend_mmap,
	.poll = nv_frontend_poll,
};

/* ---- the driver's own identity checks ---- */

static int match_card(const void *data, struct file *filp, unsigned int fd)
{
	struct nvsim_file *nf;

	if (!filp || !filp->private_data || !file_inode(filp))
		return 0;
	if (nvsim_branch == 535) {
		if (imajor(file_inode(filp)) != NVSIM_MAJOR)
			return 0;
	} else if (filp->f_op != &nvidia_fops) {
		return 0;
	}
	nf = filp->private_data;
	return nf->card == data;
}

/* Does the calling process have this card open? */
bool nvsim_gpu_accessible(struct nvsim_card *card)
{
	return current->files && iterate_fd(current->files, 0, match_card, card);
}

/*
 * The driver's file behind a descriptor, told by the device number alone.
 * ctl: it must be the control device. The caller drops *ref. By name and arguments
 * the real driver's: the door follows it.
 */
struct nvsim_file *nv_get_file_private(int fd, bool ctl, struct file **ref)
{
	struct file *filp = fget(fd);
	struct inode *inode;

	if (!filp)
		return NULL;
	inode = file_inode(filp);
	if (imajor(inode) != NVSIM_MAJOR || !filp->private_data)
		goto fail;
	if (ctl ? iminor(inode) != NVSIM_MINOR_CTL : !nvsim_card_by_minor(iminor(inode)))
		goto fail;
	*ref = filp;
	return filp->private_data;
fail:
	fput(filp);
	return NULL;
}

int nvsim_gpu_get(u32 gpu_id)
{
	struct nvsim_card *card = nvsim_card_by_gpu_id(gpu_id);

	if (!card)
		return -ENODEV;
	atomic_inc(&card->usage);
	return 0;
}

void nvsim_gpu_put(u32 gpu_id)
{
	struct nvsim_card *card = nvsim_card_by_gpu_id(gpu_id);

	if (card)
		atomic_dec(&card->usage);
}

/* ---- registration ---- */

static struct cdev gpu_cdev, ctl_cdev;

static int add_cdev(struct cdev *cdev, unsigned int minor, unsigned int count, const char *name)
{
	dev_t dev = MKDEV(NVSIM_MAJOR, minor);
	int ret;

	ret = register_chrdev_region(dev, count, name);
	if (ret)
		return ret;
	cdev_init(cdev, &nvidia_fops);
	cdev->owner = THIS_MODULE;
	ret = cdev_add(cdev, dev, count);
	if (ret)
		unregister_chrdev_region(dev, count);
	return ret;
}

int nvsim_chardev_init(void)
{
	int i, ret;

	if (nvsim_branch == 535) {
		for (i = 0; i < nvsim_ncards; i++)
			frontend_table[i] = &nvidia_fops;
		frontend_table[NVSIM_MINOR_CTL] = &nvidia_fops;
		return register_chrdev(NVSIM_MAJOR, "nvidia-frontend", &nv_frontend_fops);
	}
	ret = add_cdev(&gpu_cdev, 0, NVSIM_MINOR_REGULAR_MAX + 1, "nvidia");
	if (ret)
		return ret;
	ret = add_cdev(&ctl_cdev, NVSIM_MINOR_CTL, 1, "nvidiactl");
	if (ret) {
		cdev_del(&gpu_cdev);
		unregister_chrdev_region(MKDEV(NVSIM_MAJOR, 0), NVSIM_MINOR_REGULAR_MAX + 1);
	}
	return ret;
}

void nvsim_chardev_exit(void)
{
	if (nvsim_branch == 535) {
		unregister_chrdev(NVSIM_MAJOR, "nvidia-frontend");
		return;
	}
	cdev_del(&ctl_cdev);
	unregister_chrdev_region(MKDEV(NVSIM_MAJOR, NVSIM_MINOR_CTL), 1);
	cdev_del(&gpu_cdev);
	unregister_chrdev_region(MKDEV(NVSIM_MAJOR, 0), NVSIM_MINOR_REGULAR_MAX + 1);
}
