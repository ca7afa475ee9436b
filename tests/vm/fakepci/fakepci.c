// SPDX-License-Identifier: GPL-2.0-only
/*
 * A PCI bus in software with one function that looks like an NVIDIA A100, so
 * that NVIDIA's own driver probes it in a machine without a card. There is
 * nothing behind it: the driver loads, makes its devices and serves what does
 * not need a card; opening the card itself fails.
 *
 * The function's BARs are RAM that the kernel was told to leave alone. Boot
 * with memmap=256M$0x40000000 and more than 1.25 GiB of memory.
 */
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/numa.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <asm/pci.h>

#define CONFIG_BYTES 4096
/* Domain 0 is the machine's own. */
#define FAKE_DOMAIN 1
/* Any line of the interrupt controller: nothing ever raises it. */
#define FAKE_IRQ 10

static ulong base = 0x40000000;
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "physical address of the reserved RAM, aligned to 128 MiB");

static ushort device = 0x20b0;
module_param(device, ushort, 0444);
MODULE_PARM_DESC(device, "PCI device id, default an A100-SXM4-40GB");

static ushort ports;
module_param(ports, ushort, 0444);
MODULE_PARM_DESC(ports, "first of 128 I/O ports of BAR 5, such as a GeForce has; 0, the default: none");

/* NVIDIA dev_boot.h (ga100): what the driver reads to tell the chip. */
#define NV_PMC_BOOT_0 0x000
#define NV_PMC_BOOT_42 0xa00

static uint boot_0 = 0x170000a1;
module_param(boot_0, uint, 0444);
MODULE_PARM_DESC(boot_0, "register NV_PMC_BOOT_0");

static uint boot_42 = 0x17000a10;
module_param(boot_42, uint, 0444);
MODULE_PARM_DESC(boot_42, "register NV_PMC_BOOT_42");

#define BAR_WIDE (PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH)

/* A wide BAR's upper half is the slot after it, of size 0 here. */
static const struct {
	u32 offset;
	u32 size;
	u32 flags;
} bars[6] = {
	[0] = { 0, SZ_16M, 0 },
	[1] = { SZ_64M, SZ_64M, BAR_WIDE },
	[3] = { SZ_128M, SZ_32M, BAR_WIDE },
};

#define PORTS_BAR 5
#define PORTS 128

static u8 config[CONFIG_BYTES];
static struct pci_sysdata sysdata = { .domain = FAKE_DOMAIN, .node = NUMA_NO_NODE };
static struct pci_bus *bus;

static struct resource memory = { .name = "fakepci memory", .flags = IORESOURCE_MEM };
static struct resource port_numbers = { .name = "fakepci ports", .flags = IORESOURCE_IO };
static struct resource numbers = { .name = "fakepci bus", .flags = IORESOURCE_BUS };

static void put16(unsigned int at, u16 value)
{
	memcpy(config + at, &value, sizeof(value));
}

static void put32(unsigned int at, u32 value)
{
	memcpy(config + at, &value, sizeof(value));
}

static int config_read(struct pci_bus *on, unsigned int devfn, int where, int size, u32 *value)
{
	*value = ~0u;
	if (devfn || where < 0 || where + size > CONFIG_BYTES)
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = 0;
	memcpy(value, config + where, size);
	return PCIBIOS_SUCCESSFUL;
}

/* The kernel sizes a BAR by writing ones and looking at which stay zero. */
static u32 bar_value(unsigned int index, u32 value)
{
	if (index == PORTS_BAR && ports)
		return (value & ~(PORTS - 1)) | PCI_BASE_ADDRESS_SPACE_IO;
	if (bars[index].size)
		return (value & ~(bars[index].size - 1)) | bars[index].flags;
	return index && bars[index - 1].flags & PCI_BASE_ADDRESS_MEM_TYPE_64 ? value : 0;
}

static int config_write(struct pci_bus *on, unsigned int devfn, int where, int size, u32 value)
{
	if (devfn || where < 0 || where + size > CONFIG_BYTES)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (where < PCI_COMMAND || (where >= PCI_CLASS_REVISION && where < PCI_CACHE_LINE_SIZE) ||
	    where == PCI_ROM_ADDRESS)
		return PCIBIOS_SUCCESSFUL;
	if (where >= PCI_BASE_ADDRESS_0 && where <= PCI_BASE_ADDRESS_5 && size == 4)
		value = bar_value((where - PCI_BASE_ADDRESS_0) / 4, value);
	memcpy(config + where, &value, size);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops operations = { .read = config_read, .write = config_write };

static void fill_config(void)
{
	unsigned int i;

	put16(PCI_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(PCI_DEVICE_ID, device);
	put16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	put16(PCI_STATUS, PCI_STATUS_CAP_LIST);
	put32(PCI_CLASS_REVISION, PCI_CLASS_DISPLAY_3D << 16 | 0xa1);
	put16(PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(PCI_SUBSYSTEM_ID, 0x1463);
	for (i = 0; i < ARRAY_SIZE(bars); i++)
		if (bars[i].size)
			put32(PCI_BASE_ADDRESS_0 + 4 * i, (base + bars[i].offset) | bars[i].flags);

	if (ports) {
		put16(PCI_COMMAND, PCI_COMMAND_IO | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
		put32(PCI_BASE_ADDRESS_0 + 4 * PORTS_BAR, ports | PCI_BASE_ADDRESS_SPACE_IO);
	}

	/* Capabilities: power management, MSI with 64-bit addresses, PCIe endpoint. */
	config[PCI_CAPABILITY_LIST] = 0x60;
	put16(0x60, PCI_CAP_ID_PM | 0x68 << 8);
	put16(0x60 + PCI_PM_PMC, 3);
	put16(0x68, PCI_CAP_ID_MSI | 0x78 << 8);
	put16(0x68 + PCI_MSI_FLAGS, PCI_MSI_FLAGS_64BIT);
	put16(0x78, PCI_CAP_ID_EXP);
	put16(0x78 + PCI_EXP_FLAGS, 2);
	put32(0x78 + PCI_EXP_DEVCAP, 0x002c8025);
	put32(0x78 + PCI_EXP_LNKCAP, 0x0446d103);
	put16(0x78 + PCI_EXP_LNKCTL, 0x40);
	put16(0x78 + PCI_EXP_LNKSTA, 0x1103);
}

static int fill_registers(void)
{
	void __iomem *registers = ioremap(base, bars[0].size);

	if (!registers)
		return -ENOMEM;
	memset_io(registers, 0, bars[0].size);
	writel(boot_0, registers + NV_PMC_BOOT_0);
	writel(boot_42, registers + NV_PMC_BOOT_42);
	iounmap(registers);
	return 0;
}

static void remove_resources(void)
{
	if (ports)
		remove_resource(&port_numbers);
	remove_resource(&memory);
}

static int __init fakepci_init(void)
{
	struct pci_dev *function;
	LIST_HEAD(resources);
	int error;

	memory.start = base;
	/* Smaller than the reserved range, to become its child and not its parent. */
	memory.end = base + bars[3].offset + bars[3].size - 1;
	if (!IS_ALIGNED(base, SZ_128M) ||
	    region_intersects(base, SZ_256M, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
		    REGION_DISJOINT) {
		pr_err("fakepci: 256 MiB at 0x%lx are not reserved: boot with memmap=256M$0x%lx\n",
		       base, base);
		return -EBUSY;
	}
	fill_config();
	error = fill_registers();
	if (error)
		return error;
	error = insert_resource(&iomem_resource, &memory);
	if (error)
		return error;

	if (ports) {
		port_numbers.start = ports;
		port_numbers.end = ports + PORTS - 1;
		error = insert_resource(&ioport_resource, &port_numbers);
		if (error) {
			remove_resource(&memory);
			return error;
		}
		pci_add_resource(&resources, &port_numbers);
	}
	pci_add_resource(&resources, &memory);
	pci_add_resource(&resources, &numbers);
	pci_lock_rescan_remove();
	bus = pci_scan_root_bus(NULL, 0, &operations, &sysdata, &resources);
	if (bus) {
		pci_bus_claim_resources(bus);
		list_for_each_entry(function, &bus->devices, bus_list)
			function->irq = FAKE_IRQ;
		pci_bus_add_devices(bus);
	}
	pci_unlock_rescan_remove();
	if (!bus) {
		pci_free_resource_list(&resources);
		remove_resources();
		return -ENODEV;
	}
	return 0;
}

static void __exit fakepci_exit(void)
{
	struct pci_host_bridge *bridge = to_pci_host_bridge(bus->bridge);

	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
	/* pci_scan_root_bus() made it, and removing the bus does not give it back */
	pci_free_host_bridge(bridge);
	remove_resources();
}

module_init(fakepci_init);
module_exit(fakepci_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a PCI function for NVIDIA's driver without a card, for tests");
