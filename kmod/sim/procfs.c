// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/driver/nvidia as tools read it, and /proc/driver/nvidia-sim with the
 * simulation's own counters, which the real driver does not have.
 */
#include <linux/moduleparam.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include "compat.h"
#include "nvsim.h"

static struct proc_dir_entry *root, *sim;

/* The driver's own default is 1; by 0 NVIDIA's programs leave /dev to the tests. */
static uint modify_device_files;
module_param(modify_device_files, uint, 0444);
MODULE_PARM_DESC(modify_device_files, "as NVreg_ModifyDeviceFiles");

static int version_show(struct seq_file *m, void *v)
{
	seq_printf(m, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (simulated)\n"
		      "GCC version:  gcc version " __VERSION__ "\n", nvsim_version);
	return 0;
}

static int params_show(struct seq_file *m, void *v)
{
	seq_puts(m, "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\n");
	seq_printf(m, "ModifyDeviceFiles: %u\n", modify_device_files);
	seq_puts(m, "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
		    "InitializeSystemMemoryAllocations: 1\nUsePageAttributeTable: 4294967295\n"
		    "EnableMSI: 1\nEnablePCIeGen3: 0\nMemoryPoolSize: 0\nKMallocHeapMaxSize: 0\n"
		    "EnableGpuFirmware: 18\nEnableResizableBar: 0\nRegistryDwords: \"\"\n"
		    "RegistryDwordsPerDevice: \"\"\nRmMsg: \"\"\nGpuBlacklist: \"\"\n"
		    "TemporaryFilePath: \"\"\nExcludedGpus: \"\"\n");
	return 0;
}

/* Names of what was written: the driver's own first, then each card's. */
static char registries[1 + NVSIM_MAX_CARDS][64];

static int registry_show(struct seq_file *m, void *v)
{
	seq_printf(m, "Binary: \"%s\"\n", (const char *)m->private);
	return 0;
}

static int registry_open(struct inode *inode, struct file *file)
{
	return single_open(file, registry_show, pde_data(inode));
}

/* "name=value". Like the driver's own, it checks no capability. */
static ssize_t registry_write(struct file *file, const char __user *buf, size_t size,
			      loff_t *position)
{
	char text[sizeof(registries[0])] = "";

	if (size >= sizeof(text))
		return -ENOSPC;
	if (copy_from_user(text, buf, size))
		return -EFAULT;
	if (!strchr(text, '='))
		return -EINVAL;
	*strchr(text, '=') = 0;
	strscpy(pde_data(file_inode(file)), text, sizeof(text));
	return size;
}

static const struct proc_ops registry_ops = {
	.proc_open = registry_open,
	.proc_read = seq_read,
	.proc_write = registry_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int information_show(struct seq_file *m, void *v)
{
	struct nvsim_card *card = m->private;

	seq_printf(m, "Model: \t\t %s\nIRQ:   \t\t 11\nGPU UUID: \t %s\n"
		      "Video BIOS: \t 00.00.00.00.00\nBus Type: \t PCIe\nDMA Size: \t 47 bits\n"
		      "DMA Mask: \t 0x7fffffffffff\nBus Location: \t 0000:%02x:00.0\n"
		      "Device Minor: \t %u\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
		   card->model->name, card->uuid_text, card->bus, card->minor, nvsim_version);
	return 0;
}

static int power_show(struct seq_file *m, void *v)
{
	seq_puts(m, "Runtime D3 status:          Disabled by default\nVideo Memory:               Active\n");
	return 0;
}

/* The same minors as the driver's, though there is no nvidia-caps device here. */
static int capability_show(struct seq_file *m, void *v)
{
	seq_printf(m, "DeviceFileMinor: %ld\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
		   (long)m->private);
	return 0;
}

static int sim_show(struct seq_file *m, void *v)
{
	int i;

	seq_printf(m, "objects %ld\nmemories %ld\nfiles %ld\n",
		   atomic_long_read(&nvsim_live_objects), atomic_long_read(&nvsim_live_mem),
		   atomic_long_read(&nvsim_live_files));
	for (i = 0; i < nvsim_ncards; i++) {
		struct nvsim_card *card = &nvsim_cards[i];

		seq_printf(m, "card %d model %s total %llu free %llu users %d\n", i,
			   card->model->key, card->pma_total, nvsim_pma_free_bytes(card),
			   atomic_read(&card->usage));
		nvsim_engine_show(card, m);
	}
	return 0;
}

int nvsim_procfs_init(void)
{
	struct proc_dir_entry *gpus, *dir, *caps;
	char name[16];
	int i;

	root = proc_mkdir("driver/nvidia", NULL);
	if (!root)
		return -ENOMEM;
	proc_create_single("version", 0444, root, version_show);
	proc_create_single("params", 0444, root, params_show);
	proc_create_data("registry", 0644, root, &registry_ops, registries[0]);
	gpus = proc_mkdir("gpus", root);
	for (i = 0; gpus && i < nvsim_ncards; i++) {
		snprintf(name, sizeof(name), "0000:%02x:00.0", nvsim_cards[i].bus);
		dir = proc_mkdir(name, gpus);
		if (!dir)
			break;
		proc_create_single_data("information", 0444, dir, information_show,
					&nvsim_cards[i]);
		proc_create_single("power", 0444, dir, power_show);
		proc_create_data("registry", 0644, dir, &registry_ops, registries[1 + i]);
	}
	caps = proc_mkdir("driver/nvidia/capabilities", NULL);
	if (caps) {
		dir = proc_mkdir("mig", caps);
		if (dir) {
			proc_create_single_data("config", 0400, dir, capability_show, (void *)1);
			proc_create_single_data("monitor", 0400, dir, capability_show, (void *)2);
		}
	}
	sim = proc_create_single("driver/nvidia-sim", 0444, NULL, sim_show);
	return 0;
}

void nvsim_procfs_exit(void)
{
	proc_remove(sim);
	proc_remove(root);
}
