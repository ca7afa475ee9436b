// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Lifetimes: a file's clients are children of its root object, so closing a file is removing one
 * subtree; its ranges are cut by address. Memory that another file still holds (a UVM mapping, an
 * export) keeps its charge by reference.
 */
#include "core/memory/page_tables.h"
#include "core/memory/tenant.h"

uint64_t cgpu_gpu_promises(const struct cgpu_gpu *gpu)
{
	return gpu->promisable_bytes ? gpu->promisable_bytes : gpu->total_bytes;
}

void cgpu_tenant_init(struct cgpu_tenant *tenant, uint32_t capacity_max, uint64_t seed)
{
	memset(tenant, 0, sizeof(*tenant));
	cgpu_ledger_init(&tenant->ledger);
	cgpu_objects_init(&tenant->objects, seed);
	cgpu_ranges_init(&tenant->ranges);
	cgpu_table_init(&tenant->files, sizeof(struct cgpu_file));
	tenant->capacity_max = capacity_max;
	tenant->files_max = capacity_max;
}

static struct cgpu_table *table_of(struct cgpu_tenant *tenant, uint32_t table)
{
	switch (table) {
	case CGPU_TABLE_CHARGES:
		return &tenant->ledger.charges;
	case CGPU_TABLE_OBJECTS:
		return &tenant->objects.table;
	case CGPU_TABLE_RANGES:
		return &tenant->ranges.table;
	default:
		return &tenant->files;
	}
}

size_t cgpu_tenant_wants(const struct cgpu_tenant *tenant, uint32_t table,
			 uint32_t *capacity)
{
	const struct cgpu_table *entries = table_of((struct cgpu_tenant *)tenant, table);
	uint32_t max = table == CGPU_TABLE_FILES ? tenant->files_max : tenant->capacity_max;

	if (cgpu_table_room(entries) >= CGPU_TABLE_SPARE || entries->capacity >= max)
		return 0;
	*capacity = entries->capacity ? entries->capacity * 2 : CGPU_TABLE_FIRST_CAPACITY;
	if (*capacity > max)
		*capacity = max;
	switch (table) {
	case CGPU_TABLE_OBJECTS:
		return cgpu_objects_bytes(*capacity);
	default:
		return (size_t)*capacity * entries->entry_bytes;
	}
}

void *cgpu_tenant_grow(struct cgpu_tenant *tenant, uint32_t table, void *storage,
		       uint32_t capacity)
{
	/* another thread was faster */
	if (capacity <= table_of(tenant, table)->capacity)
		return storage;
	switch (table) {
	case CGPU_TABLE_OBJECTS:
		return cgpu_objects_grow(&tenant->objects, storage, capacity);
	default:
		return cgpu_table_grow(table_of(tenant, table), storage, capacity);
	}
}

void *cgpu_tenant_storage(struct cgpu_tenant *tenant, uint32_t table)
{
	return table_of(tenant, table)->entries;
}

struct cgpu_file *cgpu_tenant_file(const struct cgpu_tenant *tenant, uint32_t file)
{
	return cgpu_table_entry(&tenant->files, file);
}

/* `by`: 1 or -1 */
static void count_open(struct cgpu_tenant *tenant, uint32_t number, uint32_t by)
{
	const struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	if (file->pid && file->device == CGPU_DEVICE_GPU && file->minor < CGPU_MAX_CARDS)
		tenant->open[file->minor] += by;
}

static uint64_t file_bytes(uint32_t device)
{
	return device == CGPU_DEVICE_UVM    ? CGPU_UVM_FILE_BYTES :
	       device == CGPU_DEVICE_DMABUF ? 0 :
					      CGPU_RM_FILE_BYTES;
}

static uint32_t open_file(struct cgpu_tenant *tenant, uint32_t device, uint32_t minor,
			  uint32_t pid)
{
	uint32_t file = cgpu_table_take(&tenant->files);
	uint32_t root = 0;

	if (!file)
		return 0;
	if (device == CGPU_DEVICE_CTL) {
		root = cgpu_object_add(&tenant->objects, &tenant->ledger, 0, 0, file,
				       CGPU_CLASS_FILE);
		if (!root) {
			cgpu_table_give(&tenant->files, file);
			return 0;
		}
		cgpu_object_at(&tenant->objects, root)->file = file;
	}
	*cgpu_tenant_file(tenant, file) = (struct cgpu_file){
		.device = device, .minor = minor, .pid = pid, .root = root,
	};
	count_open(tenant, file, 1);
	return file;
}

uint32_t cgpu_tenant_open(struct cgpu_tenant *tenant, uint32_t device, uint32_t minor,
			  uint32_t pid)
{
	uint64_t bytes = file_bytes(device);
	uint32_t file;

	/* a place was reserved for the dma-buf, whatever the limit is by now */
	if (bytes && cgpu_account_charge(&tenant->ledger, CGPU_HOST, bytes))
		return 0;
	file = open_file(tenant, device, minor, pid);
	if (!file)
		cgpu_account_uncharge(&tenant->ledger, CGPU_HOST, bytes);
	return file;
}

static void uncharge_managed(struct cgpu_tenant *tenant, const struct cgpu_file *file,
			     uint64_t bytes)
{
	uint32_t card;

	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (file->gpu_mask & (1u << card))
			cgpu_account_uncharge(&tenant->ledger, card, bytes);
}

static bool file_is_used(const struct cgpu_tenant *tenant, const struct cgpu_file *file)
{
	return file->users ||
	       (file->root && cgpu_object_at(&tenant->objects, file->root)->users);
}

/* Return: true: there may be more of them. */
static bool cut_ranges(struct cgpu_tenant *tenant, uint32_t number, uint32_t kinds, uint64_t base,
		       uint64_t length_bytes)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);
	bool more;
	uint64_t bytes = cgpu_range_cut_step(&tenant->ranges, &tenant->ledger, number, kinds,
					     base, length_bytes, &more);

	file->managed_bytes -= bytes;
	uncharge_managed(tenant, file, bytes);
	cgpu_page_tables_settle(&tenant->ledger, &tenant->ranges);
	return more;
}

void cgpu_tenant_unused(struct cgpu_tenant *tenant, uint32_t number)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	if (!number || !file->closing || file->over || file_is_used(tenant, file))
		return;
	file->over = true;
	file->next_over = tenant->first_over;
	tenant->first_over = number;
}

void cgpu_tenant_close(struct cgpu_tenant *tenant, uint32_t number)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	file->closing = true;
	if (file->root)
		cgpu_object_at(&tenant->objects, file->root)->dying = 1;
	cgpu_tenant_unused(tenant, number);
}

int cgpu_tenant_add_event(struct cgpu_tenant *tenant, uint32_t number, uint64_t key)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);
	int err = cgpu_range_add(&tenant->ranges, CGPU_RANGE_OS_EVENT, 0, key, 1, 0, number);
	uint32_t index;

	if (err)
		return err;
	index = cgpu_range_since(&tenant->ranges, 0, CGPU_RANGE_OS_EVENT, key,
				 tenant->ranges.serial);
	cgpu_range_at(&tenant->ranges, index)->chain = file->first_event;
	if (file->first_event)
		cgpu_range_at(&tenant->ranges, file->first_event)->prev = index;
	file->first_event = index;
	tenant->os_events++;
	return 0;
}

static void drop_event(struct cgpu_tenant *tenant, uint32_t index)
{
	const struct cgpu_range *event = cgpu_range_at(&tenant->ranges, index);

	if (event->chain)
		cgpu_range_at(&tenant->ranges, event->chain)->prev = event->prev;
	if (event->prev)
		cgpu_range_at(&tenant->ranges, event->prev)->chain = event->chain;
	else
		cgpu_tenant_file(tenant, event->card)->first_event = event->chain;
	cgpu_range_drop(&tenant->ranges, &tenant->ledger, index);
	tenant->os_events--;
}

void cgpu_tenant_drop_event(struct cgpu_tenant *tenant, uint64_t key, uint64_t since,
			    uint64_t until)
{
	uint32_t index = cgpu_range_since(&tenant->ranges, 0, CGPU_RANGE_OS_EVENT, key, since);

	if (index && cgpu_range_at(&tenant->ranges, index)->serial <= until)
		drop_event(tenant, index);
}

static void drop_events(struct cgpu_tenant *tenant, const struct cgpu_file *file)
{
	uint32_t left = CGPU_CUT_STEP;

	while (file->first_event && left--)
		drop_event(tenant, file->first_event);
}

bool cgpu_tenant_close_step(struct cgpu_tenant *tenant)
{
	uint32_t number = tenant->first_over;
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	if (!number)
		return false;
	if (file_is_used(tenant, file)) {
		tenant->first_over = file->next_over;
		file->over = false;
	} else if (file->root) {
		if (cgpu_object_forget_step(&tenant->objects, &tenant->ledger, file->root))
			file->root = 0;
	} else if (file->first_event) {
		drop_events(tenant, file);
	} else if (!cut_ranges(tenant, number, ~0u, 0, UINT64_MAX)) {
		tenant->first_over = file->next_over;
		count_open(tenant, number, (uint32_t)-1);
		tenant->range_groups -= file->range_groups;
		cgpu_account_uncharge(&tenant->ledger, CGPU_HOST, file_bytes(file->device));
		cgpu_table_give(&tenant->files, number);
	}
	return tenant->first_over;
}

static int map(struct cgpu_tenant *tenant, uint32_t number, uint64_t address,
	       uint64_t length_bytes)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);
	uint64_t tables_bytes = cgpu_range_tables(length_bytes), bytes;
	uint32_t card, undo;
	bool denied;
	int err = 0;

	cgpu_ledger_clear_shortage(&tenant->ledger);
	/* no process has addresses from there on */
	if (!length_bytes || address > UINT64_MAX / 2 || length_bytes > UINT64_MAX / 2 - address)
		return -ENOMEM;
	if (cgpu_range_covers(&tenant->ranges, number, CGPU_RANGE_RESERVED, address,
			      length_bytes))
		return 0;
	/*
	 * Every program that computes has a pool, so one that may be there is mapped. It may be
	 * none, too: then this is managed memory, and charged as such.
	 */
	denied = !cgpu_range_covers(&tenant->ranges, number, CGPU_RANGE_ANNOUNCED, address,
				    length_bytes);
	for (card = 0; card < CGPU_MAX_CARDS && denied; card++) {
		struct cgpu_account *account = &tenant->ledger.account[card];

		/* before a card is registered, the container's cards count */
		if (account->present && account->uvm_disable &&
		    (!file->gpu_mask || file->gpu_mask & (1u << card))) {
			account->refused++;
			return -ENOMEM;
		}
	}
	bytes = cgpu_range_managed(&tenant->ranges, number, address, length_bytes);
	for (card = 0; card < CGPU_MAX_CARDS; card++) {
		if (!(file->gpu_mask & (1u << card)))
			continue;
		err = cgpu_account_charge(&tenant->ledger, card, bytes);
		if (err)
			break;
	}
	if (!err && !cgpu_page_tables_promise(&tenant->ledger, &tenant->ranges, ~0u,
					      tables_bytes)) {
		err = cgpu_range_add(&tenant->ranges, CGPU_RANGE_MANAGED, number, address,
				     length_bytes, 0, CGPU_NO_CARD);
		cgpu_page_tables_release(&tenant->ledger, &tenant->ranges, ~0u, tables_bytes);
		cgpu_page_tables_settle(&tenant->ledger, &tenant->ranges);
		if (!err) {
			file->managed_bytes += bytes;
			return 0;
		}
	}
	for (undo = 0; undo < card; undo++)
		if (file->gpu_mask & (1u << undo))
			cgpu_account_uncharge(&tenant->ledger, undo, bytes);
	return -ENOMEM;
}

void cgpu_tenant_enter(struct cgpu_tenant *tenant, uint32_t pid)
{
	uint32_t index;

	if (tenant->ledger.park_state != CGPU_PARK_PARKING &&
	    tenant->ledger.park_state != CGPU_PARK_RESUMING)
		return;
	for (index = 0; index < tenant->parking.count; index++)
		tenant->ledger.returns |= tenant->parking.pid[index] == pid;
}

void cgpu_tenant_leave(struct cgpu_tenant *tenant)
{
	tenant->ledger.returns = false;
}

int cgpu_tenant_mmap(struct cgpu_tenant *tenant, uint32_t number, uint64_t address,
		     uint64_t length_bytes)
{
	int err;

	cgpu_tenant_enter(tenant, cgpu_tenant_file(tenant, number)->pid);
	err = map(tenant, number, address, length_bytes);
	cgpu_tenant_leave(tenant);
	return err;
}

bool cgpu_tenant_map_reserved(struct cgpu_tenant *tenant, uint32_t number, uint64_t address,
			      uint64_t length_bytes)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	if (!cgpu_range_covers(&tenant->ranges, number, CGPU_RANGE_RESERVED, address,
			       length_bytes))
		return false;
	file->mapping_base = address;
	file->mapping_bytes = length_bytes;
	return true;
}

void cgpu_tenant_mapped(struct cgpu_tenant *tenant, uint32_t number, uint64_t address,
			uint64_t length_bytes, bool done)
{
	struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	/* nothing else is mapped at that place */
	while (!file->mapping_bytes && !done &&
	       cgpu_tenant_munmap(tenant, number, address, length_bytes))
		;
	file->mapping_bytes = 0;
}

bool cgpu_tenant_is_mapping(const struct cgpu_tenant *tenant, uint32_t number, uint64_t base,
			    uint64_t length_bytes)
{
	const struct cgpu_file *file = cgpu_tenant_file(tenant, number);

	return base >= file->mapping_base ?
		       base - file->mapping_base < file->mapping_bytes :
		       file->mapping_bytes && length_bytes > file->mapping_base - base;
}

bool cgpu_tenant_munmap(struct cgpu_tenant *tenant, uint32_t number, uint64_t address,
			uint64_t length_bytes)
{
	return cut_ranges(tenant, number, 1u << CGPU_RANGE_MANAGED, address, length_bytes);
}

uint32_t cgpu_topology_by_instance(const struct cgpu_topology *topology,
				   uint32_t device_instance)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (topology->gpu[minor].present &&
		    topology->gpu[minor].device_instance == device_instance)
			return minor;
	return CGPU_NO_CARD;
}

uint32_t cgpu_topology_by_uuid(const struct cgpu_topology *topology,
			       const uint8_t *uuid)
{
	uint32_t minor;

	for (minor = 0; minor < CGPU_MAX_CARDS; minor++)
		if (topology->gpu[minor].present &&
		    !memcmp(topology->gpu[minor].uuid, uuid, 16))
			return minor;
	return CGPU_NO_CARD;
}

/* engines 1 to 8 are graphics; 0: not said, as old user modes do for compute */
bool cgpu_engine_computes(uint32_t engineType)
{
	return engineType <= 8;
}

uint32_t cgpu_tenant_groups(const struct cgpu_tenant *tenant, uint32_t card,
			    struct cgpu_handle *out, uint32_t max)
{
	uint32_t count = 0, index;

	for (index = tenant->objects.first_runnable; index;
	     index = cgpu_object_at(&tenant->objects, index)->next_runnable) {
		const struct cgpu_object *object = cgpu_object_at(&tenant->objects, index);

		if (object->card != card || object->hClass != KEPLER_CHANNEL_GROUP_A ||
		    object->flags & CGPU_OBJECT_DUPLICATE ||
		    !cgpu_engine_computes(object->engineType))
			continue;
		if (count < max)
			out[count] = (struct cgpu_handle){ object->hClient, object->hObject };
		count++;
	}
	return count;
}

bool cgpu_tenant_is_gated(const struct cgpu_object *object, uint32_t card)
{
	/* a second handle of a channel: disabled twice, it would have to be enabled twice */
	return object->card == card && cgpu_is_channel_class(object->hClass) &&
	       object->flags & CGPU_OBJECT_SCHEDULED &&
	       !(object->flags & CGPU_OBJECT_DUPLICATE) && cgpu_engine_computes(object->engineType);
}

bool cgpu_tenant_mark(struct cgpu_object *object, uint32_t card, bool shut)
{
	if (!(object->flags & CGPU_OBJECT_SHUT) != shut || !cgpu_tenant_is_gated(object, card))
		return false;
	object->flags ^= CGPU_OBJECT_SHUT;
	object->flags &= ~(uint32_t)CGPU_OBJECT_REFUSED;
	return true;
}

uint32_t cgpu_tenant_gate(struct cgpu_tenant *tenant, uint32_t card, bool shut,
			  struct cgpu_handle *out, uint32_t max)
{
	uint32_t count = 0, index;

	for (index = tenant->objects.first_runnable; index && count < max;
	     index = cgpu_object_at(&tenant->objects, index)->next_runnable) {
		struct cgpu_object *object = cgpu_object_at(&tenant->objects, index);

		if (!cgpu_tenant_mark(object, card, shut))
			continue;
		out[count++] = (struct cgpu_handle){ object->hClient, object->hObject };
	}
	return count;
}

void cgpu_tenant_not_shut(struct cgpu_tenant *tenant, const struct cgpu_handle *channel)
{
	uint32_t index = cgpu_object_find(&tenant->objects, channel->hClient, channel->hObject);

	if (index)
		cgpu_object_at(&tenant->objects, index)->flags |= CGPU_OBJECT_REFUSED;
}

void cgpu_tenant_gate_anew(struct cgpu_tenant *tenant, uint32_t card)
{
	uint32_t index;

	for (index = tenant->objects.first_runnable; index;
	     index = cgpu_object_at(&tenant->objects, index)->next_runnable) {
		struct cgpu_object *object = cgpu_object_at(&tenant->objects, index);

		if (object->card == card && object->flags & CGPU_OBJECT_REFUSED)
			object->flags &= ~(uint32_t)(CGPU_OBJECT_REFUSED | CGPU_OBJECT_SHUT);
	}
}

bool cgpu_tenant_has_open(const struct cgpu_tenant *tenant, uint32_t card)
{
	/* its files may be closed, but its clients' objects live on, and queued work runs */
	return (card < CGPU_MAX_CARDS && tenant->open[card]) ||
	       cgpu_tenant_groups(tenant, card, NULL, 0);
}

bool cgpu_tenant_idle(const struct cgpu_tenant *tenant)
{
	uint32_t card;

	if (tenant->files.used)
		return false;
	for (card = 0; card < CGPU_MAX_CARDS; card++)
		if (tenant->ledger.account[card].current_bytes)
			return false;
	return true;
}

/* Return: false: it holds nothing of the card. */
static bool file_held(const struct cgpu_file *file, uint32_t card, struct cgpu_process *out)
{
	bool managed = file->gpu_mask & (1u << card);

	*out = (struct cgpu_process){
		.pid = file->pid, .bytes = managed ? file->managed_bytes : 0,
	};
	/* without a process: a free entry, see cgpu_table_give() */
	return file->pid &&
	       (managed || (file->device == CGPU_DEVICE_GPU && file->minor == card));
}

static bool charge_held(const struct cgpu_charge *charge, uint32_t card,
			struct cgpu_process *out)
{
	*out = (struct cgpu_process){ .pid = charge->pid, .bytes = charge->bytes };
	return charge->card == card && charge->pid && charge->bytes;
}

/* Files have even places, charges odd ones, so that neither table's growth moves the other. */
uint32_t cgpu_tenant_held(const struct cgpu_tenant *tenant, uint32_t card, uint32_t *from,
			  struct cgpu_process *out)
{
	const struct cgpu_table *files = &tenant->files, *charges = &tenant->ledger.charges;
	uint32_t last = files->touched > charges->touched ? files->touched : charges->touched;
	uint32_t count = 0, place = *from ? *from : 2, steps;

	for (steps = 0; steps < CGPU_HELD_STEP && place / 2 < last; steps++, place++) {
		uint32_t index = place / 2;

		if (place % 2)
			count += index < charges->touched &&
				 charge_held(cgpu_table_entry(charges, index), card, &out[count]);
		else
			count += index < files->touched &&
				 file_held(cgpu_table_entry(files, index), card, &out[count]);
	}
	*from = place / 2 < last ? place : 0;
	return count;
}

/* Of the heap of `count` that `processes` is but for `at`. */
static void sift_down(struct cgpu_process *processes, uint32_t at, uint32_t count)
{
	struct cgpu_process moved = processes[at];
	uint32_t child;

	for (; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && processes[child + 1].pid > processes[child].pid)
			child++;
		if (processes[child].pid <= moved.pid)
			break;
		processes[at] = processes[child];
	}
	processes[at] = moved;
}

static void sort(struct cgpu_process *processes, uint32_t count)
{
	struct cgpu_process last;
	uint32_t i;

	for (i = count / 2; i--;)
		sift_down(processes, i, count);
	for (i = count; i-- > 1;) {
		last = processes[i];
		processes[i] = processes[0];
		processes[0] = last;
		sift_down(processes, 0, i);
	}
}

uint32_t cgpu_processes_sum(struct cgpu_process *processes, uint32_t count)
{
	uint32_t left = 0, i;

	sort(processes, count);
	for (i = 0; i < count; i++) {
		if (left && processes[left - 1].pid == processes[i].pid)
			processes[left - 1].bytes += processes[i].bytes;
		else
			processes[left++] = processes[i];
	}
	return left;
}

bool cgpu_tenant_has_process(const struct cgpu_tenant *tenant, uint32_t pid)
{
	return cgpu_object_client_of(&tenant->objects, pid);
}
