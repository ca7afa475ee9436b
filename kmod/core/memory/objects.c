// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * RM frees an object together with its children and its dependents (a vaspace takes the channel
 * groups that run in it along). The tree here follows that, so that a handle which the driver hands
 * out again never meets a stale entry and no charge outlives its object.
 *
 * Dependants are only channel groups, context shares and channels; of duplicates, too, which name
 * nothing: cgpu_pre_dup() finds what they depend on. They are few (CGPU_MAX_RUNNABLES), so they are
 * found by walking the list of runnable objects. An operation on many of them walks it once, and
 * not for each.
 */
#include "core/memory/objects.h"
#include "core/rm/abi.h"
#include "core/rm/decode.h"

void cgpu_objects_init(struct cgpu_objects *objects, uint64_t seed)
{
	memset(objects, 0, sizeof(*objects));
	objects->multiplier = seed | 1;
	cgpu_table_init(&objects->table, sizeof(struct cgpu_object));
}

struct cgpu_object *cgpu_object_at(const struct cgpu_objects *objects, uint32_t index)
{
	return cgpu_table_entry(&objects->table, index);
}

static uint32_t bucket_of(const struct cgpu_objects *objects, uint32_t hClient,
			  uint32_t hObject)
{
	/*
	 * The highest bits of the product with a random odd number: without knowing it, no tenant
	 * can choose two handles that share a bucket more often than any others.
	 */
	uint64_t key = ((uint64_t)hClient << 32 | hObject) * objects->multiplier;

	return (uint32_t)((key >> 32) * ((uint64_t)objects->bucket_mask + 1) >> 32);
}

size_t cgpu_objects_bytes(uint32_t capacity)
{
	return (size_t)capacity * (sizeof(struct cgpu_object) + sizeof(uint32_t));
}

static void hash_insert(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);
	uint32_t bucket = bucket_of(objects, object->hClient, object->hObject);

	CGPU_TOUCHED(&objects->buckets[bucket], sizeof(objects->buckets[bucket]));
	object->chain = objects->buckets[bucket];
	objects->buckets[bucket] = index;
}

void *cgpu_objects_grow(struct cgpu_objects *objects, void *storage, uint32_t capacity)
{
	uint32_t *old_buckets = objects->buckets;
	uint32_t old_mask = objects->bucket_mask;
	void *old = cgpu_table_grow(&objects->table, storage, capacity);
	uint32_t bucket, index, next;

	objects->buckets = (uint32_t *)((uint8_t *)storage +
					(size_t)capacity * sizeof(struct cgpu_object));
	objects->bucket_mask = capacity - 1;
	memset(objects->buckets, 0, (size_t)capacity * sizeof(uint32_t));
	if (!old)
		return NULL;
	for (bucket = 0; bucket <= old_mask; bucket++) {
		for (index = old_buckets[bucket]; index; index = next) {
			next = cgpu_object_at(objects, index)->chain;
			hash_insert(objects, index);
		}
	}
	return old;
}

uint32_t cgpu_object_find(const struct cgpu_objects *objects, uint32_t hClient,
			  uint32_t hObject)
{
	uint32_t index;

	if (!objects->buckets)
		return 0;
	index = objects->buckets[bucket_of(objects, hClient, hObject)];
	while (index) {
		const struct cgpu_object *object = cgpu_object_at(objects, index);

		if (object->hClient == hClient && object->hObject == hObject)
			break;
		index = object->chain;
	}
	return index;
}

static void hash_remove(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);
	uint32_t *link = &objects->buckets[bucket_of(objects, object->hClient,
						     object->hObject)];

	while (*link != index)
		link = &cgpu_object_at(objects, *link)->chain;
	CGPU_TOUCHED(link, sizeof(*link));
	*link = object->chain;
}

uint32_t cgpu_object_add(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			 uint32_t parent, uint32_t hClient, uint32_t hObject,
			 uint32_t hClass)
{
	struct cgpu_object *object;
	uint32_t stale = cgpu_object_find(objects, hClient, hObject);
	uint32_t index;

	if (stale) {
		uint32_t above;

		if (cgpu_object_at(objects, stale)->users)
			return 0;
		/* its own ancestor cannot be gone: not an answer of the driver */
		for (above = parent; above; above = cgpu_object_at(objects, above)->parent)
			if (above == stale)
				return 0;
		if (cgpu_object_at(objects, stale)->dying)
			cgpu_object_remove(objects, ledger, stale);
		else
			cgpu_object_forget(objects, ledger, stale);
	}
	index = cgpu_table_take(&objects->table);
	if (!index)
		return 0;

	object = cgpu_object_at(objects, index);
	object->hClient = hClient;
	object->hObject = hObject;
	object->hClass = hClass;
	object->serial = ++objects->serial;
	object->card = CGPU_NO_CARD;
	hash_insert(objects, index);

	if (parent) {
		struct cgpu_object *above = cgpu_object_at(objects, parent);

		object->parent = parent;
		cgpu_object_place(objects, index, above->card);
		object->file = above->file;
		object->pid = above->pid;
		object->next_sibling = above->first_child;
		if (above->first_child)
			cgpu_object_at(objects, above->first_child)->prev_sibling = index;
		above->first_child = index;
	}
	return index;
}

static uint32_t list_of(uint32_t pid)
{
	return pid & (CGPU_PROCESS_LISTS - 1);
}

uint32_t cgpu_object_client_of(const struct cgpu_objects *objects, uint32_t pid)
{
	uint32_t index = objects->processes[list_of(pid)];

	while (index && cgpu_object_at(objects, index)->pid != pid)
		index = cgpu_object_at(objects, index)->next_process;
	return index;
}

void cgpu_object_own(struct cgpu_objects *objects, uint32_t index, uint32_t pid)
{
	struct cgpu_object *client = cgpu_object_at(objects, index), *first;
	uint32_t known = cgpu_object_client_of(objects, pid);
	uint32_t *list = &objects->processes[list_of(pid)];

	client->pid = pid;
	if (!known) {
		CGPU_TOUCHED(list, sizeof(*list));
		client->next_process = *list;
		*list = index;
		return;
	}
	first = cgpu_object_at(objects, known);
	client->prev_client = known;
	client->next_client = first->next_client;
	if (first->next_client)
		cgpu_object_at(objects, first->next_client)->prev_client = index;
	first->next_client = index;
}

static void disown(struct cgpu_objects *objects, uint32_t index)
{
	const struct cgpu_object *client = cgpu_object_at(objects, index);
	uint32_t *link = &objects->processes[list_of(client->pid)];
	uint32_t next = client->next_client;

	if (next)
		cgpu_object_at(objects, next)->prev_client = client->prev_client;
	if (client->prev_client) {
		cgpu_object_at(objects, client->prev_client)->next_client = next;
		return;
	}
	while (*link && *link != index)
		link = &cgpu_object_at(objects, *link)->next_process;
	if (!*link)
		return; /* nobody's */
	if (next)
		cgpu_object_at(objects, next)->next_process = client->next_process;
	CGPU_TOUCHED(link, sizeof(*link));
	*link = next ? next : client->next_process;
}

/* `by`: 1 or -1 */
static void count_device(struct cgpu_objects *objects, const struct cgpu_object *object,
			 uint32_t by)
{
	if (object->hClass == NV01_DEVICE_0 && object->card < CGPU_MAX_CARDS)
		objects->devices[object->card] += by;
}

void cgpu_object_place(struct cgpu_objects *objects, uint32_t index, uint32_t card)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	count_device(objects, object, (uint32_t)-1);
	object->card = card;
	count_device(objects, object, 1);
}

bool cgpu_object_class_runs(uint32_t hClass)
{
	return hClass == KEPLER_CHANNEL_GROUP_A || hClass == FERMI_CONTEXT_SHARE_A ||
	       cgpu_is_channel_class(hClass);
}

bool cgpu_object_is_group(const struct cgpu_objects *objects,
			  const struct cgpu_object *object)
{
	if (object->hClass == KEPLER_CHANNEL_GROUP_A)
		return true;
	return cgpu_is_channel_class(object->hClass) && object->parent &&
	       cgpu_object_at(objects, object->parent)->hClass != KEPLER_CHANNEL_GROUP_A;
}

static bool is_listed(const struct cgpu_objects *objects, uint32_t index)
{
	return cgpu_object_at(objects, index)->prev_runnable ||
	       objects->first_runnable == index;
}

static void join_handles(struct cgpu_objects *objects, uint32_t index, uint32_t source)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);
	struct cgpu_object *same = cgpu_object_at(objects, source);

	if (!same->next_handle)
		same->next_handle = same->prev_handle = source;
	object->next_handle = same->next_handle;
	object->prev_handle = source;
	cgpu_object_at(objects, same->next_handle)->prev_handle = index;
	same->next_handle = index;
}

/* Where the first handle goes a duplicate that stays is the group from now on. */
static void leave_handles(struct cgpu_objects *objects, const struct cgpu_object *object)
{
	struct cgpu_object *next, *prev;

	if (!object->next_handle)
		return;
	next = cgpu_object_at(objects, object->next_handle);
	prev = cgpu_object_at(objects, object->prev_handle);
	if (!(object->flags & CGPU_OBJECT_DUPLICATE)) {
		next->flags &= ~(uint32_t)CGPU_OBJECT_DUPLICATE;
		next->flags |= object->flags & CGPU_OBJECT_SHUT;
	}
	next->prev_handle = object->prev_handle;
	prev->next_handle = object->next_handle;
	if (next == prev)
		next->next_handle = next->prev_handle = 0;
}

void cgpu_object_join_space(struct cgpu_objects *objects, uint32_t index, uint32_t source)
{
	join_handles(objects, index, source);
}

uint32_t cgpu_object_space_in(const struct cgpu_objects *objects, uint32_t space,
			      uint32_t hClient, uint32_t *count)
{
	uint32_t index = space;

	*count = 0;
	do {
		const struct cgpu_object *object = cgpu_object_at(objects, index);

		if (object->hClient == hClient)
			return index;
		index = object->next_handle;
		(*count)++;
	} while (index && index != space && *count < CGPU_SPACE_HANDLES);
	return 0;
}

enum {
	/* flags that a further handle of a group, or of a channel, has from the first */
	OF_DUPLICATES = CGPU_OBJECT_SCHEDULED | CGPU_OBJECT_ENABLED | CGPU_OBJECT_BORROWED
};

void cgpu_object_set_runnable(struct cgpu_objects *objects, uint32_t index,
			      uint32_t source)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);
	const struct cgpu_object *same = source ? cgpu_object_at(objects, source) : NULL;

	if (!cgpu_object_class_runs(object->hClass))
		return;
	if (same && object->hClass != FERMI_CONTEXT_SHARE_A) {
		object->flags |= CGPU_OBJECT_DUPLICATE;
		join_handles(objects, index, source);
	} else if (!cgpu_object_is_group(objects, object) && object->parent) {
		same = cgpu_object_at(objects, object->parent);
	}
	object->identity = same ? same->identity : object->serial;
	if (same) {
		object->flags |= same->flags & (source ? OF_DUPLICATES : CGPU_OBJECT_SCHEDULED);
		object->engineType = same->engineType;
	}
	if (source) {
		object->lender = same->lender;
		object->lender_serial = same->lender_serial;
	}
	object->next_runnable = objects->first_runnable;
	if (objects->first_runnable)
		cgpu_object_at(objects, objects->first_runnable)->prev_runnable = index;
	objects->first_runnable = index;
	objects->runnables++;
	objects->runnable_changes++;
}

void cgpu_object_borrow(struct cgpu_objects *objects, uint32_t index,
			const struct cgpu_object *source, uint32_t lender)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	cgpu_object_set_runnable(objects, index, 0);
	object->flags |= CGPU_OBJECT_DUPLICATE | CGPU_OBJECT_BORROWED |
			 (source->flags & (CGPU_OBJECT_SCHEDULED | CGPU_OBJECT_ENABLED));
	object->engineType = source->engineType;
	object->lender = lender;
	object->lender_serial = source->serial;
}

void cgpu_object_inherit(struct cgpu_objects *objects, const struct cgpu_objects *lender)
{
	uint32_t index;

	for (index = objects->first_runnable; index;
	     index = cgpu_object_at(objects, index)->next_runnable) {
		struct cgpu_object *object = cgpu_object_at(objects, index);

		if (!(object->flags & CGPU_OBJECT_BORROWED) ||
		    !(object->flags & CGPU_OBJECT_DUPLICATE) ||
		    (lender && cgpu_object_at(lender, object->lender)->serial ==
				       object->lender_serial))
			continue;
		object->flags &= ~(uint32_t)CGPU_OBJECT_DUPLICATE;
		objects->runnable_changes++;
	}
}

void cgpu_object_set_scheduled(struct cgpu_objects *objects, uint32_t index)
{
	uint32_t identity = cgpu_object_at(objects, index)->identity;

	cgpu_object_at(objects, index)->flags |= CGPU_OBJECT_SCHEDULED;
	objects->runnable_changes++;
	for (index = objects->first_runnable; identity && index;
	     index = cgpu_object_at(objects, index)->next_runnable)
		if (cgpu_object_at(objects, index)->identity == identity)
			cgpu_object_at(objects, index)->flags |= CGPU_OBJECT_SCHEDULED;
}

static void set_enabled(struct cgpu_object *object, bool enabled, bool first)
{
	if (object->flags & CGPU_OBJECT_ENABLED && !first)
		return;
	object->flags &= ~(uint32_t)(CGPU_OBJECT_SHUT | CGPU_OBJECT_REFUSED);
	if (enabled)
		object->flags |= CGPU_OBJECT_ENABLED;
}

void cgpu_object_set_enabled(struct cgpu_objects *objects, uint32_t index, bool enabled)
{
	const struct cgpu_object *object = cgpu_object_at(objects, index);
	uint32_t identity = object->identity, begin = index;
	bool first = !(object->flags & CGPU_OBJECT_ENABLED);

	objects->runnable_changes++;
	if (cgpu_is_channel_class(object->hClass)) {
		do {
			set_enabled(cgpu_object_at(objects, index), enabled, false);
			index = cgpu_object_at(objects, index)->next_handle;
		} while (index && index != begin);
		return;
	}
	for (index = objects->first_runnable; identity && index;
	     index = cgpu_object_at(objects, index)->next_runnable)
		if (cgpu_object_at(objects, index)->identity == identity)
			set_enabled(cgpu_object_at(objects, index), enabled, first);
}

bool cgpu_object_is_enabled(const struct cgpu_objects *objects, uint32_t index)
{
	const struct cgpu_object *object = cgpu_object_at(objects, index);
	uint32_t identity = object->identity;
	bool any = false;

	if (cgpu_is_channel_class(object->hClass))
		return object->flags & CGPU_OBJECT_ENABLED;
	for (index = objects->first_runnable; identity && index; index = object->next_runnable) {
		object = cgpu_object_at(objects, index);
		if (object->identity != identity || !cgpu_is_channel_class(object->hClass))
			continue;
		if (!(object->flags & CGPU_OBJECT_ENABLED))
			return false;
		any = true;
	}
	return any;
}

void cgpu_object_drive(struct cgpu_objects *objects, uint32_t index, uint32_t place,
		       uint32_t memory)
{
	struct cgpu_object *channel = cgpu_object_at(objects, index);

	channel->driven[place] = memory;
	channel->driven_serial[place] = cgpu_object_at(objects, memory)->serial;
	cgpu_object_at(objects, memory)->drives++;
}

static void unlink_orphan(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	if (object->prev_orphan)
		cgpu_object_at(objects, object->prev_orphan)->next_orphan = object->next_orphan;
	else
		objects->first_orphan = object->next_orphan;
	if (object->next_orphan)
		cgpu_object_at(objects, object->next_orphan)->prev_orphan = object->prev_orphan;
	object->next_orphan = object->prev_orphan = 0;
	object->flags &= ~(uint32_t)CGPU_OBJECT_ORPHAN;
}

static void drive_no_more(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *memory = cgpu_object_at(objects, index);

	if (--memory->drives || !(memory->flags & CGPU_OBJECT_LEFT))
		return;
	memory->flags |= CGPU_OBJECT_ORPHAN;
	memory->next_orphan = objects->first_orphan;
	if (memory->next_orphan)
		cgpu_object_at(objects, memory->next_orphan)->prev_orphan = index;
	objects->first_orphan = index;
}

void cgpu_object_leave(struct cgpu_objects *objects, uint32_t index)
{
	cgpu_object_at(objects, index)->dying++;
	cgpu_object_at(objects, index)->flags |= CGPU_OBJECT_LEFT;
}

uint32_t cgpu_object_take_orphan(struct cgpu_objects *objects, uint32_t hClient)
{
	uint32_t index = objects->first_orphan;

	while (index && cgpu_object_at(objects, index)->hClient != hClient)
		index = cgpu_object_at(objects, index)->next_orphan;
	if (index)
		unlink_orphan(objects, index);
	return index;
}

void cgpu_object_map(struct cgpu_objects *objects, uint32_t index, bool map)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	if (!map && !object->mappings)
		return;
	object->mappings += map ? 1 : (uint32_t)-1;
	objects->mappings += map ? 1 : (uint32_t)-1;
}

void cgpu_object_hold_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint32_t charge, uint64_t base)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	cgpu_charge_at(ledger, charge)->base = base;
	cgpu_charge_at(ledger, charge)->next = object->first_mapping;
	object->first_mapping = charge;
}

bool cgpu_object_move_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint64_t base, uint64_t to)
{
	struct cgpu_charge *found = NULL, *charge;
	uint32_t at;

	for (at = cgpu_object_at(objects, index)->first_mapping; at; at = charge->next) {
		charge = cgpu_charge_at(ledger, at);
		if (charge->base == to || (charge->base == base && found))
			return false;
		if (charge->base == base)
			found = charge;
	}
	if (found)
		found->base = to;
	return found;
}

void cgpu_object_drop_mapping(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			      uint32_t index, uint64_t base)
{
	uint32_t *link = &cgpu_object_at(objects, index)->first_mapping, *best = NULL;
	uint32_t charge;

	/* of several at an address the shortest: which of them the driver took is not known */
	for (; *link; link = &cgpu_charge_at(ledger, *link)->next)
		if (cgpu_charge_at(ledger, *link)->base == base &&
		    (!best || cgpu_charge_at(ledger, *link)->bytes <
			      cgpu_charge_at(ledger, *best)->bytes))
			best = link;
	if (!best)
		return;
	charge = *best;
	*best = cgpu_charge_at(ledger, charge)->next;
	cgpu_charge_put(ledger, charge);
}

static void drop_mappings(struct cgpu_ledger *ledger, uint32_t charge)
{
	uint32_t next;

	for (; charge; charge = next) {
		next = cgpu_charge_at(ledger, charge)->next;
		cgpu_charge_put(ledger, charge);
	}
}

static void unlink_runnable(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	if (!is_listed(objects, index))
		return;
	objects->runnables--;
	objects->runnable_changes++;
	if (object->prev_runnable)
		cgpu_object_at(objects, object->prev_runnable)->next_runnable =
			object->next_runnable;
	else
		objects->first_runnable = object->next_runnable;
	if (object->next_runnable)
		cgpu_object_at(objects, object->next_runnable)->prev_runnable =
			object->prev_runnable;
	leave_handles(objects, object);
}

static void unlink_sibling(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	if (object->prev_sibling)
		cgpu_object_at(objects, object->prev_sibling)->next_sibling =
			object->next_sibling;
	else if (object->parent)
		cgpu_object_at(objects, object->parent)->first_child =
			object->next_sibling;
	if (object->next_sibling)
		cgpu_object_at(objects, object->next_sibling)->prev_sibling =
			object->prev_sibling;
}

/* removes one object that has no children left */
static void remove_leaf(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);
	uint32_t i;

	if (cgpu_object_class_runs(object->hClass))
		unlink_runnable(objects, index);
	else if (object->hClass == FERMI_VASPACE_A)
		leave_handles(objects, object);
	unlink_sibling(objects, index);
	if (object->hClass == NV01_ROOT_CLIENT)
		disown(objects, index);
	/* unless it went first, with the device that is above both */
	for (i = 0; i < CGPU_DRIVEN_MAX; i++)
		if (object->driven[i] && cgpu_object_at(objects, object->driven[i])->serial ==
						 object->driven_serial[i])
			drive_no_more(objects, object->driven[i]);
	if (object->flags & CGPU_OBJECT_ORPHAN)
		unlink_orphan(objects, index);
	count_device(objects, object, (uint32_t)-1);
	objects->mappings -= object->mappings;
	drop_mappings(ledger, object->first_mapping);
	hash_remove(objects, index);
	if (object->charge)
		cgpu_charge_put(ledger, object->charge);
	cgpu_table_give(&objects->table, index);
}

/* `left`: how many objects at most. Return: true: `index` was the last of them. */
static bool forget(struct cgpu_objects *objects, struct cgpu_ledger *ledger, uint32_t index,
		   uint32_t left)
{
	uint32_t at = index;

	/* descend to a leaf, remove it, go on from its parent */
	while (left) {
		struct cgpu_object *object = cgpu_object_at(objects, at);
		uint32_t parent = object->parent;

		if (object->first_child) {
			at = object->first_child;
			continue;
		}
		remove_leaf(objects, ledger, at);
		if (at == index)
			return true;
		at = parent;
		left--;
	}
	return false;
}

void cgpu_object_forget(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			uint32_t index)
{
	forget(objects, ledger, index, ~0u);
}

bool cgpu_object_forget_step(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			     uint32_t index)
{
	return forget(objects, ledger, index, CGPU_FORGET_STEP);
}

bool cgpu_object_is_below(const struct cgpu_objects *objects, uint32_t index, uint32_t above)
{
	while (index && index != above)
		index = cgpu_object_at(objects, index)->parent;
	return index;
}

/* A group may be below one device and run in an address space below another. */
static bool has_spaces(const struct cgpu_object *object)
{
	return object->first_child &&
	       (object->hClass == NV01_DEVICE_0 || object->hClass == NV20_SUBDEVICE_0);
}

/* `second`: of something that is going itself. */
static bool depends(const struct cgpu_objects *objects, const struct cgpu_object *object,
		    uint32_t hDepend, uint32_t dead, bool second)
{
	const struct cgpu_object *gone = cgpu_object_at(objects, dead);
	uint32_t named;

	if (!hDepend)
		return false;
	if (!second && hDepend == gone->hObject)
		return true;
	if (!second && !has_spaces(gone))
		return false;
	named = cgpu_object_find(objects, object->hClient, hDepend);
	if (second)
		return named && cgpu_object_at(objects, named)->flags & CGPU_OBJECT_GOING;
	return cgpu_object_is_below(objects, named, dead);
}

/*
 * Marks objects that named the handle of `dead`, of an object below it, or of one that is going
 * itself. They are no newer than its RM_FREE. Objects below it go anyway. Return: how many.
 */
static uint32_t mark_level(struct cgpu_objects *objects, uint32_t dead, bool second)
{
	const struct cgpu_object *gone = cgpu_object_at(objects, dead);
	uint32_t marked = 0, index;

	for (index = objects->first_runnable; index;
	     index = cgpu_object_at(objects, index)->next_runnable) {
		struct cgpu_object *object = cgpu_object_at(objects, index);

		if (object->hClient != gone->hClient ||
		    (int32_t)(object->serial - gone->newest) > 0 ||
		    object->flags & CGPU_OBJECT_GOING ||
		    !(depends(objects, object, object->hDepend[0], dead, second) ||
		      depends(objects, object, object->hDepend[1], dead, second)) ||
		    cgpu_object_is_below(objects, index, dead))
			continue;
		object->flags |= CGPU_OBJECT_GOING;
		marked++;
	}
	return marked;
}

/*
 * A context share is a dependent of its vaspace and has channels that depend on it, hence the
 * second look.
 */
static bool mark_dependents(struct cgpu_objects *objects, uint32_t dead)
{
	const struct cgpu_object *object = cgpu_object_at(objects, dead);

	/* a client or a file: all that could depend on it is below it */
	if (object->hObject == object->hClient || !object->hClient)
		return false;
	if (!mark_level(objects, dead, false))
		return false;
	mark_level(objects, dead, true);
	return true;
}

/* Goes on from the nearest one before it that stays: children of a group are before it. */
static void remove_marked(struct cgpu_objects *objects, struct cgpu_ledger *ledger)
{
	uint32_t index = objects->first_runnable, before;

	while (index) {
		const struct cgpu_object *object = cgpu_object_at(objects, index);

		if (!(object->flags & CGPU_OBJECT_GOING)) {
			index = object->next_runnable;
			continue;
		}
		before = object->prev_runnable;
		while (cgpu_object_is_below(objects, before, index))
			before = cgpu_object_at(objects, before)->prev_runnable;
		cgpu_object_forget(objects, ledger, index);
		index = before ? cgpu_object_at(objects, before)->next_runnable :
				 objects->first_runnable;
	}
}

void cgpu_object_remove(struct cgpu_objects *objects, struct cgpu_ledger *ledger,
			uint32_t index)
{
	bool marked = mark_dependents(objects, index);

	cgpu_object_forget(objects, ledger, index);
	if (marked)
		remove_marked(objects, ledger);
}

/* `change`: of the marked ones' `dying`. Return: true: a call needs one of them. */
static bool unmark(struct cgpu_objects *objects, int change)
{
	bool needed = false;
	uint32_t index;

	for (index = objects->first_runnable; index;
	     index = cgpu_object_at(objects, index)->next_runnable) {
		struct cgpu_object *object = cgpu_object_at(objects, index);

		if (!(object->flags & CGPU_OBJECT_GOING))
			continue;
		object->flags &= ~(uint32_t)CGPU_OBJECT_GOING;
		object->dying += (uint32_t)change;
		needed |= object->users > 0;
	}
	return needed;
}

bool cgpu_object_free_begins(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	object->newest = objects->serial;
	object->dying++;
	if (!mark_dependents(objects, index) || !unmark(objects, 1))
		return true;
	cgpu_object_free_fails(objects, index);
	return false;
}

void cgpu_object_free_fails(struct cgpu_objects *objects, uint32_t index)
{
	struct cgpu_object *object = cgpu_object_at(objects, index);

	object->dying--;
	if (mark_dependents(objects, index))
		unmark(objects, -1);
}

bool cgpu_object_is_dying(const struct cgpu_objects *objects, uint32_t index)
{
	while (index) {
		const struct cgpu_object *object = cgpu_object_at(objects, index);

		if (object->dying)
			return true;
		index = object->parent;
	}
	return false;
}

void cgpu_object_pin(struct cgpu_objects *objects, uint32_t index)
{
	for (; index; index = cgpu_object_at(objects, index)->parent)
		cgpu_object_at(objects, index)->users++;
}

void cgpu_object_unpin(struct cgpu_objects *objects, uint32_t index)
{
	objects->uses++;
	for (; index; index = cgpu_object_at(objects, index)->parent) {
		cgpu_object_at(objects, index)->users--;
		cgpu_object_at(objects, index)->used = objects->uses;
	}
}

bool cgpu_object_mistaken(const struct cgpu_objects *objects, uint32_t hClient,
			  uint32_t hObject, uint64_t uses)
{
	uint32_t index = cgpu_object_find(objects, hClient, hObject);

	/* no call names a dying object, until it is gone */
	return index && !cgpu_object_is_dying(objects, index) &&
	       (cgpu_object_at(objects, index)->users ||
		cgpu_object_at(objects, index)->used > uses);
}
