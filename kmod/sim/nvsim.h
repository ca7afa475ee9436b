/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The simulated NVIDIA driver: what its files share.
 *
 * Locks, outermost first:
 *   rm_lock       the RM API lock: clients, objects, everything reached from them
 *   evbuf_lock          event buffers and who is bound to a card's log of switches
 *   card->engine->lock  runlists of a card and its log
 *   card->pma_lock      free video memory of a card
 * User memory is never touched under rm_lock, because mmap handlers run under
 * the caller's mmap_lock and a page fault taken under rm_lock would close a
 * cycle. struct nvsim_mem has its own reference count and is released without
 * rm_lock, so UVM may let go of it from a vma's close.
 */
#ifndef NVSIM_H
#define NVSIM_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/xarray.h>
#include "abi.h"

#define NVSIM_MAX_CARDS		8
#define NVSIM_MAJOR		195
#define NVSIM_MINOR_CTL		255
#define NVSIM_MINOR_REGULAR_MAX	247
#define NVSIM_MAX_RUNLISTS	11
#define NVSIM_VASPACE_BYTES	nvsim_hidden(SZ_64K)	/* the first VA space on a card */
#define NVSIM_UVM_BYTES	nvsim_hidden(3264ull << 10)	/* while UVM has the card registered */

struct nvsim_file;
struct nvsim_engine;
struct nvsim_ctxsw;
struct nvsim_evbuf;
struct nvsim_client;
struct seq_file;

/* ---- card.c: models and module parameters ---- */

struct nvsim_model {
	const char *key, *name;
	u16 device_id, subsystem_id;
	u32 fb_mib;		/* what nvidia-smi prints as total */
	u32 reserved_mib;	/* of it, what the driver keeps to itself */
	u32 bus_width, ram_type;
	u32 sm_count;
	u32 compute_major, compute_minor;
	u32 arch_id, impl;	/* NV2080 MC ARCH_INFO */
	u32 generation;		/* 0 volta 1 turing 2 ampere 4 hopper: class numbers */
	u32 channel_class, usermode_class, compute_class, copy_class;
	u32 bar1_mib;
};

struct nvsim_card {
	u32 index, minor, gpu_id;	/* index: deviceInstance */
	u8 bus;
	const struct nvsim_model *model;
	u8 uuid[16];
	char uuid_text[48];

	spinlock_t pma_lock;
	u64 board;			/* bytes on the board, constant */
	u64 pma_total, pma_free;	/* bytes; protected by pma_lock */
	u64 next_offset;

	u32 vaspaces;			/* rm_lock; the first takes memory */
	u32 uvm_users;			/* UVM's managed_lock; likewise */
	u64 bar1_used;			/* bytes; rm_lock */
	struct page *doorbell;		/* page 0 of the usermode region */
	struct nvsim_engine *engine;
	struct nvsim_ctxsw *ctxsw;
	atomic_t usage;
};

extern struct nvsim_card nvsim_cards[NVSIM_MAX_CARDS];
extern int nvsim_ncards;
extern int nvsim_branch;
extern const char *nvsim_version;
extern bool nvsim_trace;
extern uint nvsim_latency_pct, nvsim_ctxsw_us;

int nvsim_cards_init(void);
void nvsim_cards_exit(void);
struct nvsim_card *nvsim_card_by_gpu_id(u32 gpu_id);
struct nvsim_card *nvsim_card_by_uuid(const u8 *uuid);
struct nvsim_card *nvsim_card_by_minor(unsigned int minor);
/* Return: bytes of the UUID as text with its end, or as 16 bytes. */
u32 nvsim_card_put_uuid(const struct nvsim_card *card, bool binary, u8 *out, u32 size);
void nvsim_latency_us(unsigned int us);
#define nvsim_debug(fmt, ...) \
	do { if (nvsim_trace) pr_info("trace %d/%s: " fmt, current->tgid, current->comm, \
				      ##__VA_ARGS__); } while (0)

/* ---- memory.c: physical memory ---- */

struct nvsim_mem {
	struct kref ref;		/* pins, plus one while there are holders */
	atomic_t holders;		/* the charge goes back when this reaches 0 */
	struct nvsim_card *card;	/* NULL: system memory */
	u64 size;			/* bytes that the allocation may be used for */
	u64 charged;			/* bytes taken from the card */
	u64 offset;
	u32 class;
	bool user_read_only;
	struct xarray pages;		/* backing, made at first touch */
};

extern atomic_long_t nvsim_live_mem;

u64 nvsim_round_size(u64 size, u32 attr, u32 attr2, u64 *page_size);
struct nvsim_mem *nvsim_mem_alloc(struct nvsim_card *card, u32 class, u64 size, u32 *status);
struct nvsim_mem *nvsim_mem_get(struct nvsim_mem *mem);
void nvsim_mem_put(struct nvsim_mem *mem);
struct nvsim_mem *nvsim_mem_pin(struct nvsim_mem *mem);
void nvsim_mem_unpin(struct nvsim_mem *mem);
struct page *nvsim_mem_page(struct nvsim_mem *mem, pgoff_t index);
/* All of it in the kernel's address space, until vunmap(). */
void *nvsim_mem_vmap(struct nvsim_mem *mem);
/* Memory that no ioctl shows: so many bytes, or none if a parameter says so. */
u64 nvsim_hidden(u64 bytes);
bool nvsim_pma_try(struct nvsim_card *card, u64 bytes);
bool nvsim_pma_take(struct nvsim_card *card, u64 bytes);
void nvsim_pma_give(struct nvsim_card *card, u64 bytes);
u64 nvsim_pma_free_bytes(struct nvsim_card *card);
typedef u64 (*nvsim_evict_fn)(struct nvsim_card *card, u64 bytes);
void nvsim_pma_set_evict(nvsim_evict_fn fn);

/* ---- client.c, object.c: the RM object tree; all under rm_lock ---- */

extern struct mutex rm_lock;
extern atomic_long_t nvsim_live_objects;

enum nvsim_priv { NVSIM_USER, NVSIM_USER_ROOT, NVSIM_KERNEL };

/* The caller: the file's identity and the caller's privilege. */
struct nvsim_caller {
	struct nvsim_file *owner;	/* ctl_nvfp or the file itself; NULL: kernel */
	enum nvsim_priv priv;
	bool user_params;
};

#define NVSIM_MAX_SHARES 8

/* With whom an object is shared; until it is its own, as what is above it. */
struct nvsim_shares {
	bool own;
	unsigned int count;
	struct nv_share_policy list[NVSIM_MAX_SHARES];
};

struct nvsim_client {
	u32 handle;
	struct nvsim_file *owner;
	struct list_head owner_node;
	struct pid *pid;
	pid_t tgid;
	kuid_t euid;
	bool kernel;
	u32 handle_gen;
	u32 subdevice_gen;
	struct xarray objects;
	struct list_head roots;		/* objects whose parent is the client */
	struct nvsim_shares shares;
	char name[100];
};

struct nvsim_tsg;
struct nvsim_chan;

/* An address space: its objects are the one that it was made by, and duplicates of that. */
struct nvsim_space {
	struct nvsim_card *card;
	u64 id;
	unsigned int objects;
};

struct nvsim_object {
	u32 handle, class;
	struct nvsim_client *client;
	struct nvsim_object *parent;	/* NULL: the client itself */
	struct list_head sibling, children;
	struct list_head dependents;	/* struct nvsim_dep.of_target */
	struct list_head depends_on;	/* struct nvsim_dep.of_user */
	struct nvsim_card *card;
	struct nvsim_shares shares;
	u32 aux;			/* class-specific: engine type, notify index ... */
	struct nvsim_space *space;	/* of an address space's object */
	u64 in_space;			/* id, of a group or context share; 0: the device's own */
	struct nvsim_mem *mem;
	bool duplicate;			/* of somebody's object */
	struct nvsim_tsg *tsg;
	struct nvsim_chan *chan;
	struct nvsim_evbuf *evbuf;
	void *kmap;			/* of mem, for kernel clients */
	unsigned int kmaps;		/* so many MAP_MEMORY without their UNMAP_MEMORY */
	struct list_head windows;	/* struct nvsim_window: of mem, in the card's BAR1 */
};

struct nvsim_client *nvsim_client_find(u32 handle);
struct nvsim_client *nvsim_client_validate(u32 handle, const struct nvsim_caller *who);
/* The status for a handle that is no client of the caller's: unknown, or another's. */
u32 nvsim_client_refusal(u32 handle);
u32 nvsim_client_create(u32 *handle, const struct nvsim_caller *who, struct nvsim_client **out);
void nvsim_client_destroy(struct nvsim_client *client);
void nvsim_clients_of_file(struct nvsim_file *owner);
void nvsim_clients_each(void (*fn)(struct nvsim_client *, void *), void *arg);

struct nvsim_object *nvsim_object_find(struct nvsim_client *client, u32 handle);
/* An object's handle, or the client's own. */
bool nvsim_object_exists(struct nvsim_client *client, u32 handle);
struct nvsim_object *nvsim_object_new(struct nvsim_client *client, u32 parent, u32 *handle,
				      u32 class, u32 *status);
void nvsim_object_free(struct nvsim_object *obj);
int nvsim_object_depend(struct nvsim_object *user, struct nvsim_object *target);
u32 nvsim_rm_free(u32 root, u32 handle, const struct nvsim_caller *who);

/* ---- alloc.c, heap.c ---- */

void nvsim_space_put(struct nvsim_space *space);
bool nvsim_class_is_channel(u32 class);
bool nvsim_class_is_usermode(u32 class);
bool nvsim_class_is_compute(u32 class);
bool nvsim_class_is_copy(u32 class);
int nvsim_alloc_params_size(u32 class);
u32 nvsim_rm_alloc(u32 root, u32 parent, u32 *handle, u32 class, void *params, u32 size,
		   const struct nvsim_caller *who);
void nvsim_vid_heap(struct nvos32 *p, const struct nvsim_caller *who);
u32 nvsim_alloc_memory(struct nvos02 *p, const struct nvsim_caller *who);

/* ---- share.c ---- */

u32 nvsim_dup_object(struct nvos55 *p, const struct nvsim_caller *who);
u32 nvsim_share(struct nvos57 *p, const struct nvsim_caller *who);
/* `obj`: NULL: the client itself */
u32 nvsim_share_add(struct nvsim_client *client, struct nvsim_object *obj,
		    const struct nv_share_policy *policy);
struct nvsim_export_list {	/* NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS */
	s32 fd;
	u32 hDevice;
	u16 max;
	u8 metadata[64];
	u32 objects[NVSIM_EXPORT_LIST];
	u16 num, index;
};

u32 nvsim_export_create(struct nvsim_client *client, u32 hDevice, int fd, unsigned int max,
			const u8 *metadata);
u32 nvsim_export_object(struct nvsim_client *client, u32 hDevice, u32 handle, int fd);
u32 nvsim_export_objects(struct nvsim_client *client, const struct nvsim_export_list *list);
void nvsim_export_release(struct nvsim_file *nf);
/* @type: NULL: it must be there; otherwise set to what is in the place, perhaps nothing */
u32 nvsim_import_object(struct nvsim_client *client, u32 parent, u32 *handle, int fd,
			unsigned int place, u8 *type);

/* ---- control*.c ---- */

struct nvsim_ctl {
	struct nvsim_client *client;
	struct nvsim_object *obj;	/* NULL: the client itself */
	struct nvsim_card *card;	/* NULL for the client's own controls */
	u32 cmd, size;
	void *p;			/* kernel copy of the parameters */
	const struct nvsim_caller *who;
};

enum nvsim_ctl_priv { CTL_ANY, CTL_NICE, CTL_ROOT, CTL_KERNEL };

struct nvsim_ctl_entry {
	u32 cmd;
	enum nvsim_ctl_priv priv;
	u32 size[4];			/* by branch: 535, 550, 570, 580 on; 0: not checked */
	u32 (*fn)(struct nvsim_ctl *c);
};
#define CTL(cmd, priv, size, fn)	{ cmd, priv, { size, size, size, size }, fn }
#define CTL4(cmd, priv, a, b, c, d, fn)	{ cmd, priv, { a, b, c, d }, fn }

extern const struct nvsim_ctl_entry nvsim_root_controls[], nvsim_gpu_controls[],
	nvsim_fifo_controls[], nvsim_nvml_controls[], nvsim_evbuf_controls[];
u32 nvsim_rm_control(struct nvos54 *p, void *params, const struct nvsim_caller *who);

/* Handlers of controls that do nothing, and that answer zeroes. */
u32 nvsim_ctl_ok(struct nvsim_ctl *c);
u32 nvsim_ctl_zero(struct nvsim_ctl *c);

/* GET_INFO controls: a list of {index, data}, where `get` knows what data an index has. */
typedef u32 nvsim_get_info(struct nvsim_ctl *c, u32 index, u32 *data);
/* The first versions: parameters are the count and a pointer. No list: nothing to do. */
u32 nvsim_info_at_pointer(struct nvsim_ctl *c, nvsim_get_info *get);
/* The second versions: the list follows its count. */
u32 nvsim_info_in_place(struct nvsim_ctl *c, nvsim_get_info *get);

/* Embedded user pointers of a control, fetched before and stored after it. */
#define NVSIM_MAX_EMBEDDED 3
struct nvsim_embedded { u32 cmd, count_at, elem_size, ptr_at, max, nptrs; };
const struct nvsim_embedded *nvsim_control_embedded(u32 cmd);

/* ---- chardev.c, escape.c, mapping.c, event.c, dmabuf.c ---- */

struct nvsim_mmap_ctx {
	bool valid;
	bool usermode;
	bool read_only;
	struct nvsim_mem *mem;
	u64 page_index, length;
};

struct nvsim_export {
	struct nvsim_mem *mem;		/* NULL: the place is empty */
	u32 class;
};

struct nvsim_file {
	unsigned int minor;
	struct nvsim_card *card;	/* NULL: control device */
	struct nvsim_file *ctl;		/* set once by REGISTER_FD */
	struct file *ctl_filp;		/* reference that keeps ctl alive */
	struct list_head clients;
	struct address_space mapping;
	struct mutex map_lock;
	struct nvsim_mmap_ctx map;
	struct list_head doorbell_node;
	u32 *attached;
	unsigned int nattached;
	/* exported objects; NULL: it carries none */
	struct nvsim_export *exports;
	unsigned int max_exports;
	u32 export_device;
	u8 export_metadata[64];
	wait_queue_head_t wait;
};

extern atomic_long_t nvsim_live_files;
int nvsim_chardev_init(void);
void nvsim_chardev_exit(void);
bool nvsim_gpu_accessible(struct nvsim_card *card);
struct nvsim_file *nv_get_file_private(int fd, bool ctl, struct file **ref);
int nvsim_gpu_get(u32 gpu_id);
void nvsim_gpu_put(u32 gpu_id);

long nvsim_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);

u32 nvsim_map_memory(struct nvos33 *p, int fd, const struct nvsim_caller *who);
u32 nvsim_unmap_memory(struct nvos34 *p, const struct nvsim_caller *who);
/* Of a card's memory: it is known by another address. */
u32 nvsim_move_mapping(const struct nvos56 *p, const struct nvsim_caller *who);
/* Of an object that is freed. */
void nvsim_unmap_windows(struct nvsim_object *obj);
u32 nvsim_map_kernel(struct nvos33 *p, const struct nvsim_caller *who);
u32 nvsim_unmap_kernel(struct nvos34 *p, const struct nvsim_caller *who);
int nvsim_mmap(struct file *filp, struct vm_area_struct *vma);
void nvsim_mapping_release(struct nvsim_file *nf);
/* Unmap the doorbell of a card everywhere, so that the next write is noticed. */
void nvsim_doorbell_arm(struct nvsim_card *card);

/* Context: rm_lock. */
bool nvsim_os_event_exists(u32 hClient, u32 fd);
u32 nvsim_os_event_alloc(struct nvsim_file *nf, struct nv_ioctl_os_event *p);
u32 nvsim_os_event_free(struct nv_ioctl_os_event *p);
void nvsim_os_event_release(struct nvsim_file *nf);
void nvsim_os_event_client_freed(u32 hClient);
__poll_t nvsim_poll(struct file *filp, struct poll_table_struct *wait);

int rm_ioctl(void *sp, void *nv, struct nvsim_file *nf, u32 nr, void *arg, u32 size);
u32 os_memcpy_from_user(void *to, const void __user *from, u32 bytes);
u32 os_memcpy_to_user(void __user *to, const void *from, u32 bytes);
u32 nv_dma_buf_export(struct nvsim_card *card, void *arg, const struct nvsim_caller *who);

/* ---- runlist.c ---- */

int nvsim_engine_init(struct nvsim_card *card);
void nvsim_engine_exit(struct nvsim_card *card);
void nvsim_engine_kick(struct nvsim_card *card);
void nvsim_engine_show(struct nvsim_card *card, struct seq_file *m);
/* Calls fn with the runlists walked up to now, under the engine's lock. */
void nvsim_engine_settle(struct nvsim_card *card, void (*fn)(struct nvsim_ctxsw *log));

/* ---- channel.c ---- */

struct nvsim_tsg *nvsim_tsg_create(struct nvsim_card *card, u32 engine_type,
				   const struct nvsim_client *owner);
/* Several objects may stand for a group: it goes with the last. */
struct nvsim_tsg *nvsim_tsg_get(struct nvsim_tsg *tsg);
void nvsim_tsg_put(struct nvsim_tsg *tsg);
u32 nvsim_tsg_id(struct nvsim_tsg *tsg);
u64 nvsim_tsg_timeslice_us(struct nvsim_tsg *tsg);
u32 nvsim_tsg_set_timeslice(struct nvsim_tsg *tsg, u64 us);
void nvsim_tsg_preempt(struct nvsim_tsg *tsg);
void nvsim_tsg_restart(struct nvsim_tsg *tsg, bool force);
void nvsim_tsg_schedule(struct nvsim_tsg *tsg, bool enable);
void nvsim_chan_schedule(struct nvsim_chan *chan, bool enable);
u32 nvsim_tsg_set_cilp(struct nvsim_tsg *tsg);
void nvsim_tsg_set_interleave(struct nvsim_tsg *tsg, u32 level);
u32 nvsim_tsg_interleave(struct nvsim_tsg *tsg);
u32 nvsim_tsg_engine(struct nvsim_tsg *tsg);
struct nvsim_chan *nvsim_chan_create(struct nvsim_tsg *tsg, struct nvsim_mem *userd, u64 offset);
void nvsim_chan_destroy(struct nvsim_chan *chan);
u32 nvsim_chan_id(struct nvsim_chan *chan);
void nvsim_chan_disable(struct nvsim_chan *chan, bool disable, bool only_scheduling, bool rewind);
void nvsim_chan_kill(struct nvsim_chan *chan);

/* ---- ctxsw.c, evbuf.c: the log of context switches, and the buffers that receive it ---- */

extern struct mutex evbuf_lock;

/* Whose context it is. */
struct nvsim_ctxsw_owner { u32 context, pid; kuid_t user; bool kernel; };

int nvsim_ctxsw_init(struct nvsim_card *card);
void nvsim_ctxsw_exit(struct nvsim_card *card);
/* Under the engine's lock; begun is when saving or loading began, ns when it was done. */
void nvsim_ctxsw_note(struct nvsim_ctxsw *log, const struct nvsim_ctxsw_owner *owner, bool end,
		      u64 begun, u64 ns);
u32 nvsim_ctxsw_bind(struct nvsim_card *card, struct nvsim_evbuf *buf, bool all_users, u32 detail,
		     u32 filter, const struct nvsim_client *client,
		     const struct nvsim_caller *who);
void nvsim_ctxsw_unbind(struct nvsim_evbuf *buf);
void nvsim_ctxsw_flush(void);

u32 nvsim_evbuf_make(struct nvsim_object *obj, struct nv_event_buffer_alloc *p);
void nvsim_evbuf_free(struct nvsim_evbuf *buf);
void nvsim_evbuf_skip(struct nvsim_evbuf *buf, u32 records);
void nvsim_evbuf_add(struct nvsim_evbuf *buf, struct nv_fecs_record_v2 *record);

/* ---- procfs.c, pcidev.c ---- */

void nvsim_pci_init(void);
void nvsim_pci_exit(void);


/* pause.c: where a test may hold a call */
enum nvsim_pause {
	NVSIM_PAUSE_ARGUMENT,	/* nothing of the caller's memory has been read */
	NVSIM_PAUSE_PARAMS,	/* the argument has been read, its parameters have not */
	NVSIM_PAUSE_ANSWER,	/* all is done but writing the argument back */
	NVSIM_PAUSE_RETURN,	/* that too */
	NVSIM_PAUSE_OPEN,	/* the device of that minor is being opened */
	NVSIM_PAUSE_MAP,	/* it is being mapped, with mmap_lock held */
	NVSIM_PAUSE_COUNT
};
void nvsim_pause(enum nvsim_pause at, unsigned int nr);
/* Return: true: what is copied there next shall fail, once. */
bool nvsim_fault(enum nvsim_pause at, unsigned int nr);

int nvsim_procfs_init(void);
void nvsim_procfs_exit(void);

/* ---- what nvidia-uvm.ko asks of nvidia.ko ---- */

u32 nvsim_uvm_dup_memory(u32 hClient, u32 hMemory, struct nvsim_mem **mem);
u32 nvsim_uvm_check_vaspace(u32 hClient, u32 hVaSpace, const u8 *uuid);
u32 nvsim_uvm_retain_channel(u32 hClient, u32 hChannel, const u8 *uuid);
struct nvsim_card *nvsim_uvm_card(const u8 *uuid);
struct nvsim_card *nvsim_uvm_card_at(u32 index);
bool nvsim_uvm_gpu_accessible(struct nvsim_card *card);
int nvsim_uvm_branch(void);
void nvsim_uvm_set_evict(nvsim_evict_fn fn);

#endif
