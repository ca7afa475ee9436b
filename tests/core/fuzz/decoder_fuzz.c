// SPDX-License-Identifier: MIT
/*
 * Bytes for the decoder: `decoder_fuzz INPUTS SEED CORPUS`, which scripts/dev fuzz-decoder builds
 * and runs. A third are recorded calls with some bytes changed, a third calls of a size that
 * the driver takes with numbers of the table and the like in their fields, the rest random.
 * Each argument and each block of parameters lies in memory of exactly its size, so that
 * AddressSanitizer finds a byte read before or after it; the places that the decoder hands
 * on must be inside the argument.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/rm/decode.h"

enum {
	ABIS = 6,
	NUMBERS = 256,        /* of escapes, and of UVM's commands but for two */
	SIZES = 4,            /* of one command, as far as they are tried */
	TRIED_BYTES = 512,
	LIST_MAX = 128 * 8
};

static const char *const versions[ABIS] = { "535.288.01", "550.163.01", "570.211.01",
					    "580.142", "590.48.01", "595.44.03" };

struct sample {
	uint32_t device, nr, args_size, params_size;
	const uint8_t *args, *params;
};

struct corpus {
	uint32_t number_count, sample_count;
	uint32_t *number;
	struct sample *sample;
	uint8_t *bytes;
};

struct command {
	uint32_t size[SIZES];
	uint32_t count;
};

static struct cgpu_abi abis[ABIS];
static struct command escapes[ABIS][NUMBERS];
static uint64_t state, decoded, with_params;

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "decoder_fuzz: %s\n", what);
	abort();
}

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545F4914F6CDD1Dull;
}

static uint32_t below(uint32_t bound)
{
	return (uint32_t)((draw() >> 32) * bound >> 32);
}

/* ----------------------------------------------------------- what is known */

static uint8_t *slurp(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *bytes;
	long end = 0;

	require(file, "no corpus");
	if (!fseek(file, 0, SEEK_END))
		end = ftell(file);
	require(end > 0, "no corpus");
	rewind(file);
	bytes = malloc((size_t)end);
	require(bytes && fread(bytes, 1, (size_t)end, file) == (size_t)end, "no corpus");
	fclose(file);
	*size = (size_t)end;
	return bytes;
}

/* u32 n, n numbers; then samples until the end: four u32, the argument, the parameters */
static struct corpus read_corpus(const char *path)
{
	struct corpus corpus = { 0 };
	size_t size, at = 4;
	uint32_t i;

	corpus.bytes = slurp(path, &size);
	corpus.number_count = cgpu_get32(corpus.bytes, 0);
	corpus.number = calloc(corpus.number_count, sizeof(*corpus.number));
	corpus.sample = calloc(size / 16, sizeof(*corpus.sample));
	require(corpus.number_count && corpus.number && corpus.sample, "no corpus");
	for (i = 0; i < corpus.number_count; i++, at += 4)
		corpus.number[i] = cgpu_get32(corpus.bytes, (uint32_t)at);
	while (at < size) {
		struct sample *sample = &corpus.sample[corpus.sample_count++];

		sample->device = cgpu_get32(corpus.bytes, (uint32_t)at);
		sample->nr = cgpu_get32(corpus.bytes, (uint32_t)at + 4);
		sample->args_size = cgpu_get32(corpus.bytes, (uint32_t)at + 8);
		sample->params_size = cgpu_get32(corpus.bytes, (uint32_t)at + 12);
		sample->args = corpus.bytes + at + 16;
		sample->params = sample->args + sample->args_size;
		at += 16 + sample->args_size + sample->params_size;
	}
	require(corpus.sample_count && at == size, "a corpus of another shape");
	return corpus;
}

/* Which sizes the driver takes of each escape, as the decoder has it. */
static void find_sizes(void)
{
	static const uint8_t zeros[TRIED_BYTES];
	uint32_t abi, nr, size;

	for (abi = 0; abi < ABIS; abi++)
		for (nr = 0; nr < NUMBERS; nr++)
			for (size = 0; size < TRIED_BYTES; size++) {
				struct command *command = &escapes[abi][nr];
				struct cgpu_request req;

				if (command->count < SIZES &&
				    !cgpu_decode(&abis[abi], CGPU_DEVICE_CTL, nr, zeros, size, &req))
					command->size[command->count++] = size;
			}
}

/* ------------------------------------------------------------------ inputs */

static uint32_t word(const struct corpus *corpus)
{
	static const uint32_t some[] = { 0, 1, 2, 8, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000,
					 0xffffffff, 4096, 4097, 0xC1D00000, 16384 };

	switch (below(4)) {
	case 0:
		return corpus->number[below(corpus->number_count)];
	case 1:
		return some[below(sizeof(some) / sizeof(some[0]))];
	case 2:
		return below(256);
	default:
		return (uint32_t)draw();
	}
}

static uint8_t *block(uint32_t size)
{
	uint8_t *bytes = malloc(size ? size : 1);

	require(bytes, "no memory");
	return bytes;
}

static void fill(const struct corpus *corpus, uint8_t *bytes, uint32_t size)
{
	uint32_t at;

	for (at = 0; at + 4 <= size; at += 4)
		cgpu_put32(bytes, at, word(corpus));
	for (; at < size; at++)
		bytes[at] = (uint8_t)draw();
}

static void randomise(uint8_t *bytes, uint32_t size)
{
	uint32_t at;

	for (at = 0; at + 8 <= size; at += 8)
		cgpu_put64(bytes, at, draw());
	for (; at < size; at++)
		bytes[at] = (uint8_t)draw();
}

static void change(const struct corpus *corpus, uint8_t *bytes, uint32_t size)
{
	uint32_t times = below(4);

	while (size && times--) {
		uint32_t at = below(size);

		if (below(2) && size >= 4)
			cgpu_put32(bytes, at % (size - 3) & ~3u, word(corpus));
		else
			bytes[at] ^= (uint8_t)(1u << below(8));
	}
}

/* A copy of `given` bytes in a block of `size`. */
static uint8_t *copy(const uint8_t *given, uint32_t given_size, uint32_t size)
{
	uint8_t *bytes = block(size);

	memset(bytes, 0, size);
	memcpy(bytes, given, given_size < size ? given_size : size);
	return bytes;
}

static uint32_t near(uint32_t size)
{
	switch (below(16)) {
	case 0:
		return size + below(9);
	case 1:
		return size > 8 ? size - below(9) : size;
	default:
		return size;
	}
}

/* mostly one of those that are looked into */
static uint32_t number(uint32_t device)
{
	uint32_t nr, tries = 8;

	if (device != CGPU_DEVICE_UVM && below(2))
		return below(2) ? NV_ESC_RM_CONTROL : NV_ESC_RM_ALLOC;
	do {
		if (device != CGPU_DEVICE_UVM)
			nr = below(NUMBERS);
		else
			nr = below(16) ? below(96) : UVM_INITIALIZE + below(2);
	} while (!cgpu_command_known(device, nr) && --tries);
	return nr;
}

/* ------------------------------------------------------------------- check */

static void check(const struct cgpu_request *req, uint32_t size)
{
	require(req->args_size == size, "its size");
	require(req->judge <= CGPU_JUDGE_NEVER, "its judge");
	require(req->status_offset == CGPU_NO_OFFSET || req->status_offset + 4 <= size,
		"a status outside the argument");
	require(!req->hObject_offset || req->hObject_offset + 4 <= size,
		"a handle outside the argument");
	require(!req->size_offset || req->size_offset + 8 <= size, "a size outside the argument");
	require(!req->base_offset || req->base_offset + 8 <= size,
		"an address outside the argument");
	require(!req->handles_offset || req->handles_offset + 4 <= size,
		"a list outside the argument");
	require(!req->params_size || req->params_ptr_offset + 8 <= size,
		"a pointer outside the argument");
	require(req->params_size <= CGPU_PARAMS_MAX, "more parameters than are copied");
	require(req->list_size <= LIST_MAX, "a longer list than there is");
}

static void decode(const struct corpus *corpus, const struct sample *sample, uint32_t abi,
		   uint32_t device, uint32_t nr, const uint8_t *args, uint32_t size)
{
	struct cgpu_request req;
	uint32_t params_size;
	uint8_t *params;
	int err;

	if (device != CGPU_DEVICE_UVM && nr == NV_ESC_IOCTL_XFER_CMD) {
		uint32_t inner, inner_size;
		uint64_t pointer;

		err = cgpu_decode_xfer(args, size, &inner, &inner_size, &pointer);
		require(err == -EINVAL || inner_size <= CGPU_ARGS_MAX, "a wrapped call's size");
	}
	err = cgpu_decode(&abis[abi], device, nr, args, size, &req);
	require(!err || err == -EINVAL, "an error that is none of the decoder's");
	if (err)
		return;
	decoded++;
	check(&req, size);
	if (!req.params_size)
		return;
	with_params++;
	/* a door has as many as it asked for, or fewer */
	params_size = below(8) ? req.params_size : below(req.params_size + 1);
	if (sample && below(4)) {
		params = copy(sample->params, sample->params_size, params_size);
		change(corpus, params, params_size);
	} else {
		params = block(params_size);
		if (below(2))
			fill(corpus, params, params_size);
		else
			randomise(params, params_size);
	}
	cgpu_decode_params(&abis[abi], params, params_size, &req);
	free(params);
	check(&req, size);
}

static void one(const struct corpus *corpus)
{
	const struct sample *sample = NULL;
	uint32_t abi = below(ABIS), device = below(3), nr, size, kind = below(3);
	uint8_t *args;

	if (kind == 0) {
		sample = &corpus->sample[below(corpus->sample_count)];
		device = sample->device;
		nr = sample->nr;
		size = near(sample->args_size);
		args = copy(sample->args, sample->args_size, size);
		change(corpus, args, size);
	} else {
		nr = number(device);
		if (device == CGPU_DEVICE_UVM)
			size = cgpu_args_size(&abis[abi], device, nr);
		else if (escapes[abi][nr].count)
			size = escapes[abi][nr].size[below(escapes[abi][nr].count)];
		else
			size = below(64);
		size = kind == 1 ? near(size) : below(TRIED_BYTES);
		args = block(size);
		if (kind == 1)
			fill(corpus, args, size);
		else
			randomise(args, size);
		/* the command of a control, the class of what is allocated */
		if (nr == NV_ESC_RM_CONTROL && size >= 12 && below(8))
			cgpu_put32(args, 8, corpus->number[below(corpus->number_count)]);
		if (nr == NV_ESC_RM_ALLOC && size >= 16 && below(8))
			cgpu_put32(args, 12, corpus->number[below(corpus->number_count)]);
	}
	decode(corpus, sample, abi, device, nr, args, size);
	free(args);
}

int main(int argc, char **argv)
{
	struct corpus corpus;
	uint64_t inputs, i;

	require(argc == 4, "usage: decoder_fuzz INPUTS SEED CORPUS");
	inputs = strtoull(argv[1], NULL, 0);
	state = (strtoull(argv[2], NULL, 0) + 1) * 0x9E3779B97F4A7C15ull;
	corpus = read_corpus(argv[3]);
	for (i = 0; i < ABIS; i++)
		require(!cgpu_abi_find(versions[i], false, &abis[i]), "a branch");
	find_sizes();
	for (i = 0; i < inputs; i++)
		one(&corpus);
	printf("%llu %llu %llu\n", (unsigned long long)inputs, (unsigned long long)decoded,
	       (unsigned long long)with_params);
	free(corpus.number);
	free(corpus.sample);
	free(corpus.bytes);
	return 0;
}
