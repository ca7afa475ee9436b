// SPDX-License-Identifier: GPL-2.0-only
/* until cdd30ebb1b9f ("module: Convert symbol namespace to string literal") in v6.13 */
#include <linux/module.h>

MODULE_IMPORT_NS(DMA_BUF);
