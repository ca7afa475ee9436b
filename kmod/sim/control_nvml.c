// SPDX-License-Identifier: GPL-2.0-only
/* Controls that NVML and nvidia-smi ask of a card beyond memory and processes. */
#include <linux/string.h>
#include "nvsim.h"

const struct nvsim_ctl_entry nvsim_nvml_controls[] = {
	{}
};
