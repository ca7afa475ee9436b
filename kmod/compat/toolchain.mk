# SPDX-License-Identifier: GPL-2.0-only
# Modules take the compiler that built the kernel, whoever calls make: DKMS gives LLVM=1 to the last
# of its commands alone, and versions of it to none. Exported, for the kernel's own make reads it.
kernel_config := $(firstword $(wildcard $(KDIR)/.config $(KDIR)/include/config/auto.conf))
ifneq ($(kernel_config),)
ifneq ($(shell grep '^CONFIG_CC_IS_CLANG=y' $(kernel_config)),)
clang_major := $(shell sed -n 's/^CONFIG_CLANG_VERSION=\([0-9]*\)[0-9]\{4\}$$/\1/p' $(kernel_config))
# Distributions have several, with the number in their names; LLVM=-14 takes those.
LLVM ?= $(if $(shell command -v clang-$(clang_major) && command -v ld.lld-$(clang_major)),-$(clang_major),1)
export LLVM
endif
endif
