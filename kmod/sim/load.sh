#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Load the simulated driver and make its device nodes.
# usage: load.sh [module parameters of nvidia.ko, e.g. cards=2 model=t4,a10 branch=550]
#        load.sh --unload
# NVSIM_DIR: where nvidia.ko and nvidia-uvm.ko are (default: this directory).
set -e
dir=${NVSIM_DIR:-$(dirname "$0")}
PATH=$PATH:/sbin:/usr/sbin

if [ "${1-}" = --unload ]; then
	rmmod nvidia-uvm nvidia
	rm -f /dev/nvidiactl /dev/nvidia[0-9] /dev/nvidia-uvm /dev/nvidia-uvm-tools
	exit 0
fi
insmod "$dir/nvidia.ko" "$@"
insmod "$dir/nvidia-uvm.ko"

node() {
	rm -f "$1"
	mknod -m 666 "$1" c "$2" "$3"
}
node /dev/nvidiactl 195 255
for information in /proc/driver/nvidia/gpus/*/information; do
	minor=$(sed -n 's/^Device Minor:[^0-9]*//p' "$information")
	node "/dev/nvidia$minor" 195 "$minor"
done
major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
node /dev/nvidia-uvm "$major" 0
node /dev/nvidia-uvm-tools "$major" 1
