# SPDX-License-Identifier: MIT
"""``cgpu``: one program, a file a command, imported only when it is the one that runs."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from pycgpu.errors import CgpuError, LaunchError

from . import _locale, _output

#: By what they are for, as ``--help`` shows them; the commonest first. A command is added by a
#: line here: its name, the module with a typer ``app``, and a line of help.
PANELS = {
    "Use": {
        "run": ("pycgpu.cli.run", "Run a program on a part of a card, without a module."),
        "create": (
            "pycgpu.cli.create",
            "Give a running container or a cgroup a part of cards.",
        ),
        "set": ("pycgpu.cli.set", "Change weight, quota or memory of a running container."),
        "park": ("pycgpu.cli.park", "Move an idle container's memory to the host."),
        "resume": ("pycgpu.cli.resume", "Bring a parked container back to its cards."),
        "destroy": ("pycgpu.cli.destroy", "Take a container's part of its cards back."),
        "attach": ("pycgpu.cli.attach", "Give a process that asks for it a part of a card."),
    },
    "Watch": {
        "smi": ("pycgpu.cli.smi_command", "Show cards, containers and processes, as cgpu-smi."),
        "ps": ("pycgpu.cli.ps", "List containers that have a part of a GPU."),
        "top": ("pycgpu.cli.top", "Show which containers use the cards of several nodes."),
        "web": ("pycgpu.cli.web", "Serve a page of cards and containers over the last hour."),
        "events": ("pycgpu.cli.events", "Show what happened, and what happens."),
        "usage": ("pycgpu.cli.usage", "Show each container's time, memory, energy and GPU-hours."),
        "advise": ("pycgpu.cli.advise", "Say which containers would do more in a group."),
        "doctor": ("pycgpu.cli.doctor", "Check this host, and name a remedy for each fault."),
    },
    "Set up": {
        "install": ("pycgpu.cli.install", "Install the module, the runtime and the services."),
        "upgrade": ("pycgpu.cli.upgrade", "Upgrade the installation to this version, hot or cold."),
        "uninstall": ("pycgpu.cli.uninstall", "Leave the host as it was before the installation."),
        "policy": ("pycgpu.cli.policy", "Show or set the policy of a card."),
        "cards": ("pycgpu.cli.cards", "Apply /etc/cgpu/cards.toml to the cards."),
        "install-runtime": (
            "pycgpu.cli.install_runtime",
            "Register the runtime with Docker, containerd, Podman and CRI-O.",
        ),
        "cdi": ("pycgpu.cli.cdi", "Write a CDI specification of this host's cards."),
        "device-nodes": (
            "pycgpu.cli.device_nodes",
            "Make the driver's device nodes and their links.",
        ),
        "spark-setup": (
            "pycgpu.cli.spark_setup",
            "Write what Spark's executors need on this host.",
        ),
        "completion": (
            "pycgpu.cli.completion",
            "Print the script by which a shell completes cgpu.",
        ),
    },
    "Daemons": {
        "agent": ("pycgpu.cli.agent", "Serve `cgpu run` as its daemon, or print its counters."),
        "parkd": ("pycgpu.cli.parkd", "Park and resume containers of the module."),
        "exporter": ("pycgpu.cli.exporter", "Serve metrics for Prometheus."),
        "device-plugin": (
            "pycgpu.cli.device_plugin",
            "Offer this node's cards to Kubernetes' kubelet.",
        ),
        "dra-driver": (
            "pycgpu.cli.dra_driver",
            "Offer this node's cards to Kubernetes as devices of claims.",
        ),
        "scheduler-extender": (
            "pycgpu.cli.scheduler_extender",
            "Tell a kube-scheduler which nodes have cards for a pod.",
        ),
    },
    "Started by other programs": {
        "hook": ("pycgpu.cli.hook", "Run as an OCI hook: register or remove a container."),
        "slurm-task": ("pycgpu.cli.slurm_task", "Give a task of a Slurm job its shards' limits."),
        "spark-conf": ("pycgpu.cli.spark_conf", "Turn a job's mGPU settings into Spark's own."),
        "spark-java": ("pycgpu.cli.spark_java", "Run the Java of a Spark executor under limits."),
    },
}
#: Name: (module, line of help).
COMMANDS = {name: row for panel in PANELS.values() for name, row in panel.items()}
_PANEL_OF = {name: title for title, panel in PANELS.items() for name in panel}


# Newer releases of typer bring a click of their own, and neither's is typer's to name.
_UsageError: Any = typer.BadParameter.__mro__[1]


class _Lazy(TyperCommand):
    """Stands for a command in the list of commands; becomes it when it is called."""

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, help=help, short_help=help, rich_help_panel=_PANEL_OF[name])
        self.module = module

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        command = typer.main.get_command(import_module(self.module).app)
        try:
            return command.make_context(*args, **kwargs)
        except _UsageError as error:
            # 2 could be the program's own.
            if self.name == "run":
                error.exit_code = LaunchError.STATUS
            raise


class _Commands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _Lazy(cmd_name, *COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            from difflib import get_close_matches

            if close := get_close_matches(args[0], COMMANDS):
                error.message += f" Did you mean {' or '.join(close)}?"
            raise


_app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Share NVIDIA GPUs between containers."""
    if version:
        from pycgpu import __version__

        print(f"cgpu {__version__}")
        raise typer.Exit()


def app() -> None:
    """Run ``cgpu``; an error is one line, its traceback shown only with ``--debug``."""
    _output.open_streams()
    _locale.obey()
    debug = "--debug" in sys.argv[1:2]
    if debug:
        del sys.argv[1]
    if "_CGPU_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # it exports none

        completion_init()
    try:
        with contextlib.nullcontext() if debug else _output.Told("cgpu"):
            _app(prog_name="cgpu")
    except CgpuError as error:
        if debug:
            raise
        print(f"cgpu: {error}", file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    app()
