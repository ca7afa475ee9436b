# SPDX-License-Identifier: MIT
"""The services of systemd that an installation may have, and their unit files."""

from __future__ import annotations

MODULE = "cgpu.service"
EXPORTER = "cgpu-exporter.service"
AGENT = "cgpud.service"
USAGE = "cgpu-usage.service"
PARKD = "cgpu-parkd.service"

#: The exporter's, unless it is told another.
EXPORTER_PORT = 9836

#: Services that start containers: of engines, of distributions of Kubernetes, of snaps.
ENGINES = (
    *("docker.service", "containerd.service", "crio.service", "podman.service", "kubelet.service"),
    *("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"),
    *("k0scontroller.service", "k0sworker.service", "snap.docker.dockerd.service"),
    *("snap.microk8s.daemon-containerd.service", "snap.microk8s.daemon-kubelite.service"),
)

_MODULE = """\
[Unit]
Description=cgpu: modules that share NVIDIA GPUs between containers
Documentation=man:modprobe(8)
# Containers that start with the engine must find their limits enforced.
Before={engines}
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/modprobe cgpu_km
# Without the bridge memory is limited and compute is not: better than nothing at all.
ExecStart=-/sbin/modprobe cgpu_rm
# /etc/cgpu/cards.toml, which the module has forgotten.
ExecStartPost=-{cgpu} cards --apply
# After a boot without X nobody has made the driver's nodes.
ExecStartPost=-{cgpu} device-nodes

[Install]
WantedBy=multi-user.target
"""
_EXPORTER = """\
[Unit]
Description=cgpu: metrics for Prometheus
After=cgpu.service cgpud.service network.target

[Service]
# CGPU_EXPORTER_LISTEN=:9836 there serves other machines too, and asks none for a password.
EnvironmentFile=-/etc/default/cgpu-exporter
ExecStart={cgpu} exporter
DynamicUser=yes
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
_USAGE = """\
[Unit]
Description=cgpu: record of what containers had of the cards
After=cgpu.service cgpud.service

[Service]
ExecStart={cgpu} usage --record
# The record is root's alone: it says who worked when.
StateDirectory=cgpu/usage
StateDirectoryMode=0700
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
_PARKD = """\
[Unit]
Description=cgpu: parks containers of the module, and brings them back
After=cgpu.service

[Service]
ExecStart={cgpu} parkd
Restart=always
RestartSec=100ms
# Those that are parked wait for it.
OOMScoreAdjust=-900
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""
_AGENT = """\
[Unit]
Description=cgpu: agent that shares NVIDIA GPUs without a kernel module
Before={engines}
After=nvidia-persistenced.service
ConditionPathExists=/proc/driver/nvidia/version
# Tenants wait for the next one, however often the last ones have ended.
StartLimitIntervalSec=0

[Service]
ExecStart={cgpu} agent
Restart=on-failure
RestartSec=100ms
# Its watchdog, which is left over, keeps the tenants for the next agent.
KillMode=process
# A thread of it may wait for a tenant's file system, which no signal ends.
TimeoutStopSec=5
LimitNOFILE=65536
# A container has up to 400 threads here, by its own limits: none takes another's.
TasksMax=infinity
# Tenants' ioctls wait for it.
OOMScoreAdjust=-900
Nice=-10

[Install]
WantedBy=multi-user.target
"""
_RULES = """\
# cgpu: NVIDIA's devices are of no class, so udev itself makes neither nodes of them nor links in
# /dev/char, by which systemd knows the devices of a container.
ACTION=="add", SUBSYSTEM=="module", KERNEL=="nvidia|nvidia_uvm", RUN+="{cgpu} device-nodes"
ACTION=="bind", SUBSYSTEM=="pci", DRIVER=="nvidia", RUN+="{cgpu} device-nodes"
"""
_TEXTS = {MODULE: _MODULE, EXPORTER: _EXPORTER, AGENT: _AGENT, USAGE: _USAGE, PARKD: _PARKD}

#: Services that run the package's own programs: they keep its files and the tree's events open.
OWN = (EXPORTER, USAGE, AGENT, PARKD)


#: The udev rules for when the driver is loaded.
RULES_D = "etc/udev/rules.d/70-cgpu.rules"


def rules(cgpu: str) -> str:
    """Return udev's rules; *cgpu* is the program that they start."""
    return _RULES.format(cgpu=cgpu)


def text(unit: str, cgpu: str) -> str:
    """Return a unit's file; *cgpu* is the program that it starts."""
    return _TEXTS[unit].format(cgpu=cgpu, engines=" ".join(ENGINES))
