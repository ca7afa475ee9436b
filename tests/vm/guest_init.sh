# SPDX-License-Identifier: MIT
# The guest's process 1 once the host's root is in place. vm.py puts the settings (VM_*)
# and the command's environment before this text.

mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue 2>/dev/null
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
ln -sf fd/2 /dev/stderr
mkdir -p /run/lock
for fs in debugfs:/sys/kernel/debug tracefs:/sys/kernel/tracing bpf:/sys/fs/bpf \
    securityfs:/sys/kernel/security configfs:/sys/kernel/config; do
    mount -t "${fs%%:*}" "${fs%%:*}" "${fs#*:}" 2>/dev/null
done

if [ "$VM_CGROUP" = 2 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    while read -r name _ _ enabled; do
        [ "$enabled" = 1 ] || continue
        mkdir "/sys/fs/cgroup/$name"
        mount -t cgroup -o "$name" cgroup "/sys/fs/cgroup/$name" 2>/dev/null ||
            rmdir "/sys/fs/cgroup/$name"
    done < <(grep -v '^#' /proc/cgroups)
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi

if [ -n "$VM_MODULES" ]; then
    mkdir -p "/lib/modules/$(uname -r)"
    mount --bind "$VM_MODULES" "/lib/modules/$(uname -r)"
fi
ip link set lo up 2>/dev/null || busybox ifconfig lo 127.0.0.1 up 2>/dev/null
hostname cgpu-vm 2>/dev/null
ulimit -c 0
cd "$VM_CWD" || cd /
# From here on everything that the kernel says is of interest, up to its last words.
echo 8 >/proc/sys/kernel/printk

if [ "$VM_TERMINAL" = 1 ]; then
    # shellcheck disable=SC2086 # several words
    stty -F /dev/ttyS0 sane $VM_SIZE
    # Messages would tear up the screen; the second serial line still has them.
    setsid -c -w "${VM_COMMAND[@]}" <>/dev/ttyS0 >&0 2>&0
else
    "${VM_COMMAND[@]}" </dev/null >/run/vm/output 2>&1
fi
status=$?

if [ -e /sys/kernel/debug/kmemleak ]; then
    # An object must be seen unreferenced by two scans some seconds apart.
    echo scan >/sys/kernel/debug/kmemleak
    sleep 6
    echo scan >/sys/kernel/debug/kmemleak
    # The log takes one line at a time, of its own kind; and as many as there are.
    echo on >/proc/sys/kernel/printk_devkmsg
    while IFS= read -r line; do echo "kmemleak: $line"; done \
        </sys/kernel/debug/kmemleak >/dev/kmsg
fi
dmesg >/run/vm/dmesg
echo "$status" >/run/vm/status
sync
if command -v busybox >/dev/null; then
    busybox poweroff -f
fi
echo o >/proc/sysrq-trigger
sleep 60
