// SPDX-License-Identifier: MIT
/*
 * Bytes as a container's doing: ioctls with sensible and with arbitrary
 * arguments, several of them in the driver at once, a driver that answers
 * anything, files that come and go, tables that run full.
 *
 * For libFuzzer (LLVMFuzzerTestOneInput), or by itself: `core_fuzz STEPS SEED`
 * makes random bytes. Built with AddressSanitizer every argument lies in a
 * block of exactly its size, so that a byte read too far is found; the ledger
 * is added up as it goes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/call/call.h"
#include "core/tree/card.h"

enum {
	FILES = 12,
	FLIGHTS = 8,
	CARDS = 3,
	STEPS_PER_CONTAINER = 1000
};

static const char *const versions[] = { "535.288.01", "550.163.01", "570.211.01", "580.142",
				       "590.48.01", "595.44.03" };

struct input {
	const uint8_t *bytes;
	size_t left;
	uint64_t state; /* not 0: bytes come from a generator */
};

struct flight {
	bool used;
	struct cgpu_call call;
};

struct world {
	struct input *in;
	struct cgpu_abi abi;
	struct cgpu_topology topology;
	struct cgpu_tenant tenant;
	uint32_t file[FILES];
	struct flight flight[FLIGHTS];
};

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "core_fuzz: %s\n", what);
	abort();
}

static uint64_t draw64(struct input *in)
{
	uint64_t value = 0;

	if (in->state) {
		in->state ^= in->state << 13;
		in->state ^= in->state >> 7;
		in->state ^= in->state << 17;
		return in->state * 0x2545F4914F6CDD1Dull;
	}
	if (in->left >= 8) {
		memcpy(&value, in->bytes, 8);
		in->bytes += 8;
		in->left -= 8;
	} else {
		in->left = 0;
	}
	return value;
}

static uint32_t below(struct input *in, uint32_t bound)
{
	return (uint32_t)((draw64(in) >> 16) % bound);
}

static void fill(struct input *in, uint8_t *bytes, uint32_t size)
{
	uint32_t at;

	for (at = 0; at < size; at++)
		bytes[at] = at % 8 ? bytes[at - 1] * 31 + 7 : (uint8_t)draw64(in);
}

/* a block that ends where its last byte ends */
static uint8_t *block(uint32_t size)
{
	uint8_t *bytes = calloc(1, size ? size : 1);

	require(bytes, "no memory");
	return bytes;
}

/* ------------------------------------------------------------ the container */

static void make_room(struct world *world)
{
	uint32_t table, capacity;
	size_t bytes;

	for (table = 0; table < CGPU_TABLE_COUNT; table++) {
		bytes = cgpu_tenant_wants(&world->tenant, table, &capacity);
		if (bytes)
			free(cgpu_tenant_grow(&world->tenant, table, block((uint32_t)bytes),
					      capacity));
	}
}

static void check_account(const struct world *world, uint32_t card)
{
	const struct cgpu_account *account = &world->tenant.ledger.account[card];
	const struct cgpu_table *charges = &world->tenant.ledger.charges;
	uint64_t sum = 0;
	uint32_t i;

	for (i = 1; i < charges->touched; i++) {
		const struct cgpu_charge *charge = cgpu_table_entry(charges, i);

		if (charge->bytes && charge->card == card)
			sum += charge->bytes;
	}
	for (i = 1; i < world->tenant.files.touched; i++) {
		const struct cgpu_file *file = cgpu_tenant_file(&world->tenant, i);

		if (file->pid && file->gpu_mask & (1u << card))
			sum += file->managed_bytes;
	}
	require(account->current_bytes == sum, "the sum of the charges is not what is charged");
	require(account->unlimited || account->current_bytes <= account->max_bytes,
		"more is charged than the limit");
}

static void begin_world(struct world *world, struct input *in)
{
	uint32_t card;

	memset(world, 0, sizeof(*world));
	world->in = in;
	require(!cgpu_abi_find(versions[below(in, 6)], false, &world->abi), "version");
	/* small tables, so that they run full */
	cgpu_tenant_init(&world->tenant, below(in, 2) ? 1024 : 4096, draw64(in));
	make_room(world);
	for (card = 0; card < CARDS; card++) {
		world->topology.gpu[card].present = true;
		world->topology.gpu[card].device_instance = CARDS - 1 - card;
		memset(world->topology.gpu[card].uuid, 0x60 + (int)card, 16);
	}
	for (card = 0; card < 2; card++) {
		struct cgpu_account *account = &world->tenant.ledger.account[card];

		account->present = true;
		account->unlimited = card && below(in, 2);
		account->max_bytes = 64ull << 20;
		account->oom_kill = below(in, 4) == 0;
		account->uvm_disable = below(in, 8) == 0;
		account->slices_owned = below(in, 2);
	}
}

/* ------------------------------------------------------------------- calls */

static uint32_t handle(struct input *in)
{
	static const uint32_t handles[] = {
		0, 1, 2, 3, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0xC1D00000
	};

	return handles[below(in, 13)];
}

static uint32_t client(struct input *in)
{
	return 0xC1D00000 + below(in, 2);
}

static uint32_t parent(struct input *in)
{
	return below(in, 4) ? 1 + below(in, 2) : client(in);
}

static uint64_t size_bytes(struct input *in)
{
	static const uint64_t sizes[] = {
		0, 1, 4096, 65536, 100000, 1 << 20, 3 << 20, 1ull << 40, UINT64_MAX
	};

	return sizes[below(in, 9)];
}

/* arguments that often mean something: handles, sizes and addresses of few values */
static uint32_t make_args(struct world *world, struct cgpu_request *req, uint32_t device,
			  uint8_t **args)
{
	static const uint32_t rm[] = {
		39, 40, 41, 41, 42, 42, 43, 43, 43, 43, 52, 52, 53, 65, 74, 74, 78, 79, 84,
		201, 217, 94, 87, 87, 88, 89, 206, 206, 207
	};
	static const uint32_t uvm[] = {
		25, 27, 33, 33, 33, 34, 34, 37, 37, 38, 66, 66, 68, 78, 0x30000001, 0x30000002
	};
	static const uint32_t classes[] = {
		0, 0x41, 0x80, 0x80, 0x40, 0x40, 0x40, 0x3E, 0x3F, 0xC2, 0x90F1, 0xA06C,
		0x9067, 0xC86F, 2, 0x79, 0x83DE, 0xFFFF
	};
	static const uint32_t cmds[] = {
		0x3D05, 0x3D06, 0x3D0B, 0x3D0C, 0x20801301, 0x20801303, 0x2080110B,
		0xA06C0101, 0xA06C0103, 0xA06C0104, 0xA06C0107, 0x20801210, 0x00801711, 0x205,
		0xA06F0103, 0x20801208, 0x2080FFFF
	};
	struct input *in = world->in;
	uint32_t nr = device == CGPU_DEVICE_UVM ? uvm[below(in, 16)] : rm[below(in, 29)];
	uint32_t size = 0, at;

	if (device == CGPU_DEVICE_UVM)
		size = cgpu_args_size(&world->abi, device, nr);
	if (device != CGPU_DEVICE_UVM) {
		static const uint32_t sizes[][2] = {
			{ 39, 56 }, { 40, 20 }, { 41, 16 }, { 42, 32 }, { 43, 48 }, { 52, 28 },
			{ 53, 24 }, { 65, 56 }, { 74, 184 }, { 78, 56 }, { 79, 32 }, { 84, 56 },
			{ 201, 4 }, { 217, 0 }, { 94, 40 }, { 89, 16 }, { 206, 16 }, { 207, 16 }
		};

		for (at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++)
			if (sizes[at][0] == nr)
				size = sizes[at][1];
		if (nr == 217)
			size = world->abi.dmabuf_size;
		if (nr == 87)
			size = world->abi.map_dma_size;
		if (nr == 88)
			size = world->abi.unmap_dma_size;
		if (nr == 43 && below(in, 4) == 0)
			size = 32;
	}
	if (below(in, 16) == 0)
		size = below(in, 300); /* what the driver refuses */

	*args = block(size);
	if (below(in, 6) == 0) {
		fill(in, *args, size);
	} else {
		for (at = 0; at + 4 <= size && at < 64; at += 4)
			cgpu_put32(*args, at, handle(in));
		if (device != CGPU_DEVICE_UVM && size >= 16 && nr != 217 && below(in, 8)) {
			cgpu_put32(*args, 0, client(in));
			if (nr != 42 && nr != 53)
				cgpu_put32(*args, 4, parent(in));
			if (nr == 52)
				cgpu_put32(*args, 12, client(in));
			/* a client or a device does not live long otherwise */
			if (nr == 41 && below(in, 8))
				cgpu_put32(*args, 8, 0x10 + below(in, 64));
		}
		if (device != CGPU_DEVICE_UVM && size >= 32) {
			if (nr == 42)
				cgpu_put32(*args, 8, cmds[below(in, 17)]);
			if (nr == 42)
				cgpu_put32(*args, 24, below(in, 8) ? 4096 : below(in, 5000));
			if (nr == 43 || nr == 84)
				cgpu_put32(*args, 12, classes[below(in, 18)]);
			if (nr == 43 && below(in, 8) && cgpu_get32(*args, 12) == 0x41)
				cgpu_put32(*args, 8, client(in));
			if (nr == 43 && below(in, 8) && cgpu_get32(*args, 12) == 0x80) {
				cgpu_put32(*args, 4, cgpu_get32(*args, 0));
				cgpu_put32(*args, 8, 1 + below(in, 2));
			}
			if (nr == 74 && size >= 184) {
				cgpu_put32(*args, 8, below(in, 4) ? 2 + below(in, 2) : below(in, 30));
				cgpu_put64(*args, 88, size_bytes(in));
			}
			if (nr == 217)
				cgpu_put32(*args, 12, below(in, 3) ? below(in, 3) : below(in, 40));
		}
		if (device == CGPU_DEVICE_UVM && size >= 20 && nr != 37 && nr != 38 && nr != 25 &&
		    nr != 27) {
			cgpu_put64(*args, 0, (uint64_t)below(in, 8) << 20);
			cgpu_put64(*args, 8, below(in, 16) ? (uint64_t)below(in, 4) << 20 :
							      draw64(in));
		}
		if (device == CGPU_DEVICE_UVM && size >= 20 && (nr == 37 || nr == 38 || nr == 25))
			memset(*args, 0x60 + (int)below(in, 4), 16);
		if (nr == 66 && size == 40)
			memset(*args + 16, 0x60 + (int)below(in, 4), 16);
		if (nr == 33 && size == world->abi.uvm_map_external_size) {
			memset(*args + 24, 0x60 + (int)below(in, 3), 16);
			memset(*args + 60, 0x60 + (int)below(in, 3), 16);
			cgpu_put32(*args, world->abi.uvm_map_external_size - 24,
				   below(in, 300));
			cgpu_put32(*args, world->abi.uvm_map_external_size - 12, client(in));
			cgpu_put32(*args, world->abi.uvm_map_external_size - 8,
				   0x10 + below(in, 32));
		}
	}
	if (cgpu_decode(&world->abi, device, nr, *args, size, req)) {
		free(*args);
		return 0;
	}
	return size ? size : 1;
}

static void make_params(struct world *world, struct cgpu_call *call)
{
	struct cgpu_request *req = &call->req;
	struct input *in = world->in;
	uint32_t at;

	if (!req->params_size)
		return;
	call->params = block(req->params_size);
	if (below(in, 4) == 0)
		fill(in, call->params, req->params_size);
	else
		for (at = 0; at + 4 <= req->params_size && at < 128; at += 4)
			cgpu_put32(call->params, at, handle(in));
	if (req->op == CGPU_OP_ALLOC && req->hClass == NV01_MEMORY_LOCAL_USER)
		cgpu_put64(call->params, 64, size_bytes(in));
	if (req->op == CGPU_OP_ALLOC && req->hClass == NV01_DEVICE_0)
		cgpu_put32(call->params, 0, below(in, CARDS + 1));
	if (req->params_size == 2128)
		cgpu_put32(call->params, 2124, below(in, 3) | below(in, 3) << 16);
	if (req->params_size == 652)
		cgpu_put32(call->params, 648, below(in, 3) | below(in, 3) << 16);
	cgpu_decode_params(&world->abi, call->params, req->params_size, req);
	if (req->list_size)
		call->list = block(req->list_size);
}

static bool in_flight(const struct world *world, uint32_t file)
{
	uint32_t i;

	for (i = 0; i < FLIGHTS; i++)
		if (world->flight[i].used && world->flight[i].call.file == file)
			return true;
	return false;
}

static void forget(struct flight *flight)
{
	free(flight->call.args);
	free(flight->call.params);
	free(flight->call.list);
	flight->used = false;
}

static void launch(struct world *world, uint32_t file)
{
	struct flight *flight = &world->flight[below(world->in, FLIGHTS)];
	struct cgpu_call *call = &flight->call;
	uint32_t device = cgpu_tenant_file(&world->tenant, file)->device;

	if (flight->used)
		return;
	memset(flight, 0, sizeof(*flight));
	if (!make_args(world, &call->req, device, &call->args))
		return;
	make_params(world, call);
	call->file = file;
	/* what is exported to a dma-buf has its file afterwards */
	if (call->req.op != CGPU_OP_EXPORT_DMABUF)
		call->fd_file = world->file[below(world->in, FILES)];
	call->pid = 1 + below(world->in, 3);
	if (below(world->in, 32))
		make_room(world);
	flight->used = cgpu_call_pre(&world->tenant, &world->topology, call) == CGPU_FORWARD;
	if (!flight->used)
		forget(flight);
}

/* the driver answers, usually well-formed */
static void land(struct world *world, struct flight *flight)
{
	struct cgpu_call *call = &flight->call;
	struct input *in = world->in;
	uint8_t undo_args[16];
	int32_t result = below(in, 16) ? 0 : -22;

	if (!flight->used)
		return;
	if (below(in, 16) == 0)
		fill(in, call->args, call->req.args_size);
	if (below(in, 16) == 0)
		fill(in, call->params, call->params ? call->req.params_size : 0);
	if (call->req.hObject_offset &&
	    !cgpu_get32(call->args, call->req.hObject_offset))
		cgpu_put32(call->args, call->req.hObject_offset,
			   below(in, 3) ? 0x10 + below(in, 64) : 0xC1D00000);
	if (call->req.status_offset != CGPU_NO_OFFSET)
		cgpu_put32(call->args, call->req.status_offset, below(in, 4) ? 0 : 0x57);
	if (call->req.op == CGPU_OP_EXPORT_DMABUF)
		call->fd_file = world->file[below(in, FILES)];
	if (cgpu_call_post(&world->tenant, &world->topology, call, result) == CGPU_UNDO) {
		do
			cgpu_call_undo_args(call, undo_args);
		while (cgpu_call_undone(&world->tenant, call));
	}
	forget(flight);
}

static void open_or_close(struct world *world)
{
	uint32_t *file = &world->file[below(world->in, FILES)];

	if (!*file) {
		if (below(world->in, 32))
			make_room(world);
		*file = cgpu_tenant_open(&world->tenant,
					 below(world->in, 2) ? CGPU_DEVICE_CTL :
					 below(world->in, 4) ? CGPU_DEVICE_UVM :
							       below(world->in, 4),
					 below(world->in, 3), 1 + below(world->in, 3));
	} else if (!in_flight(world, *file) && below(world->in, 12) == 0) {
		cgpu_tenant_close(&world->tenant, *file);
		*file = 0;
	}
}

static void map_or_unmap(struct world *world, uint32_t file)
{
	uint64_t base = (uint64_t)below(world->in, 8) << 20;
	uint64_t length = below(world->in, 16) ? (uint64_t)(1 + below(world->in, 4)) << 20 :
						 draw64(world->in);

	if (below(world->in, 2))
		cgpu_tenant_mmap(&world->tenant, file, base, length);
	else
		while (cgpu_tenant_munmap(&world->tenant, file, base, length))
			;
}

/* an allocation that succeeds, as a program's first ones do */
static void make(struct world *world, uint32_t hClient, uint32_t hParent, uint32_t hObject,
		 uint32_t hClass, uint32_t deviceId)
{
	struct cgpu_call call = { .file = world->file[0], .pid = 1 };
	uint8_t args[48] = { 0 }, params[56] = { 0 };

	cgpu_put32(args, 0, hClient);
	cgpu_put32(args, 4, hParent);
	cgpu_put32(args, 8, hObject);
	cgpu_put32(args, 12, hClass);
	cgpu_put64(args, 16, 1);
	cgpu_put32(params, 0, deviceId);
	call.args = args;
	call.params = params;
	require(!cgpu_decode(&world->abi, CGPU_DEVICE_CTL, NV_ESC_RM_ALLOC, args, 48, &call.req),
		"decode");
	cgpu_decode_params(&world->abi, params, call.req.params_size, &call.req);
	require(cgpu_call_pre(&world->tenant, &world->topology, &call) == CGPU_FORWARD, "pre");
	require(cgpu_call_post(&world->tenant, &world->topology, &call, 0) == CGPU_DONE, "post");
}

static void start(struct world *world)
{
	uint32_t i;

	world->file[0] = cgpu_tenant_open(&world->tenant, CGPU_DEVICE_CTL, 0, 1);
	world->file[1] = cgpu_tenant_open(&world->tenant, CGPU_DEVICE_UVM, 0, 1);
	for (i = 0; i < 2; i++) {
		make(world, 0, 0, 0xC1D00000 + i, NV01_ROOT_CLIENT, 0);
		make(world, 0xC1D00000 + i, 0xC1D00000 + i, 1, NV01_DEVICE_0, CARDS - 1);
		make(world, 0xC1D00000 + i, 0xC1D00000 + i, 2, NV01_DEVICE_0, CARDS - 2);
	}
}

static void step(struct world *world)
{
	uint32_t file = world->file[below(world->in, FILES)];

	switch (below(world->in, 16)) {
	case 0:
		open_or_close(world);
		break;
	case 1:
		if (file && cgpu_tenant_file(&world->tenant, file)->device == CGPU_DEVICE_UVM)
			map_or_unmap(world, file);
		break;
	case 2:
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
		land(world, &world->flight[below(world->in, FLIGHTS)]);
		break;
	default:
		if (file)
			launch(world, file);
	}
}

static void end_world(struct world *world)
{
	struct cgpu_process processes[CGPU_HELD_STEP];
	uint32_t i, count, from = 0;

	do {
		count = cgpu_tenant_held(&world->tenant, 0, &from, processes);
		require(cgpu_processes_sum(processes, count) <= count, "processes");
	} while (from);
	for (i = 0; i < FLIGHTS; i++)
		land(world, &world->flight[i]);
	for (i = 0; i < FILES; i++)
		if (world->file[i])
			cgpu_tenant_close(&world->tenant, world->file[i]);
	while (cgpu_tenant_close_step(&world->tenant))
		;
	for (i = 0; i < CARDS; i++)
		check_account(world, i);
	require(cgpu_tenant_idle(&world->tenant), "something is charged or open after all is closed");
	require(!world->tenant.ledger.charges.used, "a charge is left");
	require(!world->tenant.objects.table.used, "an object is left");
	require(!world->tenant.ranges.count, "a range is left");
	for (i = 0; i < CGPU_TABLE_COUNT; i++)
		free(cgpu_tenant_storage(&world->tenant, i));
}

static void run(struct input *in, uint64_t steps)
{
	static struct world world;
	uint64_t i;

	begin_world(&world, in);
	start(&world);
	for (i = 0; i < steps && (in->state || in->left); i++) {
		step(&world);
		if (i % 64 == 0)
			check_account(&world, i / 64 % 2);
	}
	end_world(&world);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct input in = { .bytes = bytes, .left = size };

	run(&in, UINT64_MAX);
	return 0;
}

#ifndef CORE_FUZZ_LIBFUZZER
int main(int argc, char **argv)
{
	uint64_t steps, seed, done;

	if (argc != 3) {
		fprintf(stderr, "usage: core_fuzz STEPS SEED\n");
		return 2;
	}
	steps = strtoull(argv[1], NULL, 0);
	seed = strtoull(argv[2], NULL, 0);
	for (done = 0; done < steps; done += STEPS_PER_CONTAINER) {
		struct input in = { .state = (seed + done + 1) * 0x9E3779B97F4A7C15ull };

		run(&in, STEPS_PER_CONTAINER);
	}
	printf("%llu steps\n", (unsigned long long)steps);
	return 0;
}
#endif
