// SPDX-License-Identifier: GPL-2.0-only
/* The cards: models, module parameters, identities. */
#include <linux/delay.h>
#include <linux/module.h>
#include "nvsim.h"

/*
 * fb_mib is what nvidia-smi prints as the card's total (FB_INFO index 8), of
 * which the driver keeps reserved_mib to itself. V100's is the nominal 32768 MiB
 * that driver 510 and later print (older ones printed 32510); T4's 15109 is
 * what drivers before 510 printed and what the vendors' examples are written
 * in. H200's two are measured. The parameter fb_mib overrides the first.
 */
static const struct nvsim_model models[] = {
	{ .key = "t4", .name = "Tesla T4",
	  .device_id = 0x1eb8, .subsystem_id = 0x12a2,
	  .fb_mib = 15109, .reserved_mib = 0, .bus_width = 256, .ram_type = 14,
	  .sm_count = 40, .compute_major = 7, .compute_minor = 5,
	  .arch_id = 0x160, .impl = 4, .generation = 1,
	  .channel_class = 0xc46f, .usermode_class = 0xc461,
	  .compute_class = 0xc5c0, .copy_class = 0xc5b5,
	  .bar1_mib = 256 },
	{ .key = "v100", .name = "Tesla V100-SXM2-32GB",
	  .device_id = 0x1db5, .subsystem_id = 0x1249,
	  .fb_mib = 32768, .reserved_mib = 258, .bus_width = 4096, .ram_type = 15,
	  .sm_count = 80, .compute_major = 7, .compute_minor = 0,
	  .arch_id = 0x140, .impl = 0, .generation = 0,
	  .channel_class = 0xc36f, .usermode_class = 0xc361,
	  .compute_class = 0xc3c0, .copy_class = 0xc3b5,
	  .bar1_mib = 32768 },
	{ .key = "a10", .name = "NVIDIA A10",
	  .device_id = 0x2236, .subsystem_id = 0x1482,
	  .fb_mib = 23028, .reserved_mib = 512, .bus_width = 384, .ram_type = 14,
	  .sm_count = 72, .compute_major = 8, .compute_minor = 6,
	  .arch_id = 0x170, .impl = 2, .generation = 2,
	  .channel_class = 0xc56f, .usermode_class = 0xc561,
	  .compute_class = 0xc7c0, .copy_class = 0xc7b5,
	  .bar1_mib = 32768 },
	{ .key = "a100", .name = "NVIDIA A100-SXM4-40GB",
	  .device_id = 0x20b0, .subsystem_id = 0x134f,
	  .fb_mib = 40960, .reserved_mib = 424, .bus_width = 5120, .ram_type = 15,
	  .sm_count = 108, .compute_major = 8, .compute_minor = 0,
	  .arch_id = 0x170, .impl = 0, .generation = 2,
	  .channel_class = 0xc56f, .usermode_class = 0xc561,
	  .compute_class = 0xc6c0, .copy_class = 0xc6b5,
	  .bar1_mib = 65536 },
	{ .key = "h200", .name = "NVIDIA H200",
	  .device_id = 0x2335, .subsystem_id = 0x18be,
	  .fb_mib = 143771, .reserved_mib = 615, .bus_width = 6144, .ram_type = 16,
	  .sm_count = 132, .compute_major = 9, .compute_minor = 0,
	  .arch_id = 0x180, .impl = 0, .generation = 4,
	  .channel_class = 0xc86f, .usermode_class = 0xc661,
	  .compute_class = 0xcbc0, .copy_class = 0xc8b5,
	  .bar1_mib = 262144 },
};

static char *cards[NVSIM_MAX_CARDS] = { "1" };
static int ncards_given = 1;
module_param_array(cards, charp, &ncards_given, 0444);
MODULE_PARM_DESC(cards, "number of cards, 1 to 8, or the model of each: cards=t4,a100");

static char *model[NVSIM_MAX_CARDS];
static int nmodel;
module_param_array(model, charp, &nmodel, 0444);
MODULE_PARM_DESC(model, "t4, v100, a10, a100 or h200 for each card; the last one repeats");

static uint fb_mib[NVSIM_MAX_CARDS];
static int nfb_mib;
module_param_array(fb_mib, uint, &nfb_mib, 0444);
MODULE_PARM_DESC(fb_mib, "memory of each card in MiB in place of the model's; 0: the model's");

static uint branch = 550;
module_param(branch, uint, 0444);
MODULE_PARM_DESC(branch, "driver branch to imitate: 535, 550, 570, 580, 590, 595 or 610; 700 to 999: the last of these under a number that nobody knows");

uint nvsim_latency_pct;
module_param_named(latency_pct, nvsim_latency_pct, uint, 0644);
MODULE_PARM_DESC(latency_pct, "RPC latencies in percent of those measured on an H200; default 0");

uint nvsim_ctxsw_us = 150;
module_param_named(ctxsw_us, nvsim_ctxsw_us, uint, 0644);
MODULE_PARM_DESC(ctxsw_us, "cost of switching channel groups on an engine, microseconds");

bool nvsim_trace;
module_param_named(trace, nvsim_trace, bool, 0644);
MODULE_PARM_DESC(trace, "log every RM control and allocation");

struct nvsim_card nvsim_cards[NVSIM_MAX_CARDS];
int nvsim_ncards;
int nvsim_branch;
const char *nvsim_version;

/* The same card has the same UUID at every load, as hardware does. */
static void card_make_uuid(struct nvsim_card *card)
{
	u32 h = 2166136261u;
	const char *s;
	int i;

	for (s = card->model->key; *s; s++)
		h = (h ^ *s) * 16777619u;
	h = (h ^ (card->index + 1)) * 16777619u;
	for (i = 0; i < 16; i++) {
		h = (h ^ i) * 16777619u;
		card->uuid[i] = h >> 24;
	}
	snprintf(card->uuid_text, sizeof(card->uuid_text), "GPU-%*phN-%*phN-%*phN-%*phN-%*phN",
		 4, card->uuid, 2, card->uuid + 4, 2, card->uuid + 6, 2, card->uuid + 8,
		 6, card->uuid + 10);
}

static const struct nvsim_model *model_by_key(const char *key)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(models); i++)
		if (!strcasecmp(models[i].key, key))
			return &models[i];
	return NULL;
}

int nvsim_cards_init(void)
{
	static char unknown[16];
	unsigned int n;
	int i;

	switch (branch) {
	case 535: nvsim_version = "535.261.03"; break;
	case 550: nvsim_version = "550.163.01"; break;
	case 570: nvsim_version = "570.211.01"; break;
	case 580: nvsim_version = "580.142"; break;
	case 590: nvsim_version = "590.48.01"; break;
	case 595: nvsim_version = "595.44.03"; break;
	case 610: nvsim_version = "610.57.04"; break;
	case 700 ... 999:
		snprintf(unknown, sizeof(unknown), "%u.10", branch);
		nvsim_version = unknown;
		break;
	default:
		pr_err("nvidia: branch=%u is not simulated; use 535, 550, 570, 580, 590, 595, 610 or 700 to 999\n",
		       branch);
		return -EINVAL;
	}
	nvsim_branch = branch;
	if (ncards_given != 1 || kstrtouint(cards[0], 10, &n)) {
		/* Not a number: the models themselves. */
		n = ncards_given;
		nmodel = n;
		for (i = 0; i < n; i++)
			model[i] = cards[i];
	}
	if (n < 1 || n > NVSIM_MAX_CARDS) {
		pr_err("nvidia: cards=%u; use 1 to %d\n", n, NVSIM_MAX_CARDS);
		return -EINVAL;
	}
	for (i = 0; i < n; i++) {
		struct nvsim_card *card = &nvsim_cards[i];
		const char *key = nmodel ? model[min(i, nmodel - 1)] : "t4";

		card->model = model_by_key(key);
		if (!card->model) {
			pr_err("nvidia: model %s is not known; use t4, v100, a10, a100 or h200\n",
			       key);
			goto err;
		}
		card->index = i;
		card->minor = i;
		card->bus = i + 1;
		card->gpu_id = card->bus << 8;
		spin_lock_init(&card->pma_lock);
		card->board = (u64)card->model->fb_mib << 20;
		if (i < nfb_mib && fb_mib[i])
			card->board = (u64)fb_mib[i] << 20;
		card->pma_total = card->board - min(card->board / 2,
						    (u64)card->model->reserved_mib << 20);
		card->pma_free = card->pma_total;
		card_make_uuid(card);
		card->doorbell = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!card->doorbell)
			goto err_nomem;
		nvsim_ncards = i + 1;
		if (nvsim_engine_init(card))
			goto err_nomem;
	}
	return 0;
err_nomem:
	nvsim_cards_exit();
	return -ENOMEM;
err:
	nvsim_cards_exit();
	return -EINVAL;
}

void nvsim_cards_exit(void)
{
	int i;

	for (i = 0; i < nvsim_ncards; i++) {
		struct nvsim_card *card = &nvsim_cards[i];

		nvsim_engine_exit(card);
		WARN(card->pma_free != card->pma_total, "nvsim: card %d leaks %llu bytes\n", i,
		     card->pma_total - card->pma_free);
		put_page(card->doorbell);
	}
	nvsim_ncards = 0;
}

struct nvsim_card *nvsim_card_by_gpu_id(u32 gpu_id)
{
	int i;

	for (i = 0; i < nvsim_ncards; i++)
		if (nvsim_cards[i].gpu_id == gpu_id)
			return &nvsim_cards[i];
	return NULL;
}

struct nvsim_card *nvsim_card_by_uuid(const u8 *uuid)
{
	int i;

	for (i = 0; i < nvsim_ncards; i++)
		if (!memcmp(nvsim_cards[i].uuid, uuid, 16))
			return &nvsim_cards[i];
	return NULL;
}

u32 nvsim_card_put_uuid(const struct nvsim_card *card, bool binary, u8 *out, u32 size)
{
	if (!binary)
		return strscpy(out, card->uuid_text, size) + 1;
	memcpy(out, card->uuid, 16);
	return 16;
}

struct nvsim_card *nvsim_card_by_minor(unsigned int minor)
{
	return minor < nvsim_ncards ? &nvsim_cards[minor] : NULL;
}

/* Stands for a call to the card's firmware; measured times scaled by latency_pct. */
void nvsim_latency_us(unsigned int us)
{
	us = us * nvsim_latency_pct / 100;
	if (us)
		usleep_range(us, us + us / 8 + 1);
}
