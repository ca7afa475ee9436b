// SPDX-License-Identifier: GPL-2.0-only
/*
 * A PCI function for each card, for tools that look cards up in sysfs as NVML does. It has
 * configuration space only: no BARs, no interrupts, nothing to drive.
 */
#include <linux/pci.h>
#include "nvsim.h"

#ifdef CONFIG_X86
#include <asm/pci.h>

static struct pci_dev_bus {
	struct pci_sysdata sysdata;
	struct resource busn;
	struct pci_bus *bus;
	u8 config[256];
} buses[NVSIM_MAX_CARDS];

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct pci_dev_bus *b = container_of(bus->sysdata, struct pci_dev_bus, sysdata);

	*value = ~0u;
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where + size > sizeof(b->config))
		return PCIBIOS_BAD_REGISTER_NUMBER;
	*value = 0;
	memcpy(value, b->config + where, size);
	return PCIBIOS_SUCCESSFUL;
}

/* Read-only: a BAR that stays 0 when written is a BAR that is not there. */
static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	return devfn ? PCIBIOS_DEVICE_NOT_FOUND : PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = { .read = config_read, .write = config_write };

static void fill_config(u8 *c, const struct nvsim_model *m)
{
	const u16 words[][2] = {
		{ PCI_VENDOR_ID, 0x10de }, { PCI_DEVICE_ID, m->device_id },
		{ PCI_CLASS_DEVICE, PCI_CLASS_DISPLAY_3D },
		{ PCI_SUBSYSTEM_VENDOR_ID, 0x10de }, { PCI_SUBSYSTEM_ID, m->subsystem_id } };
	int i;

	memset(c, 0, 256);
	for (i = 0; i < ARRAY_SIZE(words); i++)
		memcpy(c + words[i][0], &words[i][1], 2);
	c[PCI_REVISION_ID] = 0xa1;
}

void nvsim_pci_init(void)
{
	int i;

	for (i = 0; i < nvsim_ncards; i++) {
		struct pci_dev_bus *b = &buses[i];
		LIST_HEAD(resources);

		fill_config(b->config, nvsim_cards[i].model);
		b->sysdata = (struct pci_sysdata){ .domain = 0, .node = NUMA_NO_NODE };
		b->busn = (struct resource){ .name = "nvsim", .flags = IORESOURCE_BUS,
					     .start = nvsim_cards[i].bus,
					     .end = nvsim_cards[i].bus };
		pci_add_resource(&resources, &b->busn);
		pci_lock_rescan_remove();
		b->bus = pci_scan_root_bus(NULL, nvsim_cards[i].bus, &config_ops, &b->sysdata,
					   &resources);
		if (b->bus)
			pci_bus_add_devices(b->bus);
		pci_unlock_rescan_remove();
		if (!b->bus) {
			/* That bus number is taken by real hardware: go without. */
			pci_free_resource_list(&resources);
			pr_info("nvidia: no PCI function for card %d\n", i);
		}
	}
}

void nvsim_pci_exit(void)
{
	struct pci_host_bridge *bridge;
	int i;

	for (i = 0; i < nvsim_ncards; i++) {
		if (!buses[i].bus)
			continue;
		bridge = to_pci_host_bridge(buses[i].bus->bridge);
		pci_lock_rescan_remove();
		pci_stop_root_bus(buses[i].bus);
		pci_remove_root_bus(buses[i].bus);
		pci_unlock_rescan_remove();
		/* pci_scan_root_bus() made it, and removing the bus does not give it back */
		pci_free_host_bridge(bridge);
		buses[i].bus = NULL;
	}
}

#else

void nvsim_pci_init(void)
{
}

void nvsim_pci_exit(void)
{
}

#endif
