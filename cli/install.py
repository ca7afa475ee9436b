# SPDX-License-Identifier: MIT
"""``cgpu install``: module, boot, runtimes and services on this host; all of it or nothing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.errors import InstallError
from pycgpu.install import installation, registration
from pycgpu.install.host import this_host

from ._shared import for_all

app = typer.Typer(add_completion=False)


def ask_ungranted() -> str:
    """Ask at the terminal what a container without a grant may do, until it is a word for that."""
    answer: str = typer.prompt(
        "What may a container do that was given a card past our runtime (--gpus all)?\n"
        "refuse: nothing; asked: nothing once any other asked for a share; allow: all; 10%",
        default=installation.Options().ungranted,
        value_proc=_word,
    )
    return answer


def _word(text: str) -> str:
    word = text.strip().lower()
    try:
        installation.check_ungranted(word)
    except InstallError as error:
        raise typer.BadParameter(str(error)) from None
    return word


def ask_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Ask whether `nvidia` shall be ours where it is the toolkit's; return all names."""
    if "nvidia" in names:
        return names
    own = typer.confirm(
        "`--runtime=nvidia`, which vendors' documents print, starts the toolkit's runtime here"
        " and limits nothing.\nShall it start ours, and that the toolkit's? An uninstallation"
        " gives the name back.",
        default=False,
    )
    return (*names, "nvidia") if own else names


def ask_default() -> bool:
    """Ask whether containers shall start by our runtime that name none, as vendors' lines do."""
    return typer.confirm(
        "Vendors' documents start containers without --runtime: `docker run --gpus all -e"
        " ALIYUN_COM_GPU_MEM_CONTAINER=6 ...`.\nShall cgpu's runtime be the engines' default, so"
        " that these lines give the part that they ask for? It passes on containers\nthat ask for"
        " nothing as they are. Otherwise such a line gets no card, until it names"
        " --runtime=cgpu.",
        default=False,
    )


def ask(
    ungranted: str | None, names: tuple[str, ...], default: bool | None, *, asks_names: bool
) -> tuple[str, tuple[str, ...], bool]:
    """
    Ask what no option says; return it with what options say.

    Raises:
        InstallError: whoever is asked does not answer (Ctrl-C, end of input).
    """
    try:
        if default is None:
            default = ask_default()
        if ungranted is None:
            ungranted = ask_ungranted()
        return ungranted, ask_names(names) if asks_names else names, default
    except typer.Abort:
        print()
        raise InstallError("not answered, so nothing was changed") from None


@app.command()
def install(
    dkms: Annotated[
        bool, typer.Option(help="Build by DKMS: new kernels get the module by themselves.")
    ] = True,
    modules: Annotated[
        Path | None,
        typer.Option(help="Directory with cgpu_km.ko, its core and cgpu_rm.ko, built already."),
    ] = None,
    runtimes: Annotated[
        bool, typer.Option(help="Register the runtime with the container engines here.")
    ] = True,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of the runtime; repeat for more. Default: cgpu, and nvidia where it is free."
        ),
    ] = None,
    default: Annotated[
        bool | None,
        typer.Option(
            "--default/--no-default",
            help="Make it the engines' default runtime, so that containers need not name it."
            " Default: asked for at a terminal, otherwise not.",
            show_default=False,
        ),
    ] = None,
    exporter: Annotated[
        bool, typer.Option("--exporter", help="Run the exporter as a service.")
    ] = False,
    usage: Annotated[
        bool,
        typer.Option("--usage", help="Record what containers have of the cards, as a service."),
    ] = False,
    agent: Annotated[
        bool, typer.Option("--agent", help="No module: the agent as a service in its place.")
    ] = False,
    or_agent: Annotated[
        bool,
        typer.Option(
            "--or-agent",
            help="The agent where no module can be built or loaded; the reason is kept.",
        ),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Restart the engines whose configuration was changed, Docker excepted.",
        ),
    ] = False,
    load: Annotated[bool, typer.Option(help="Load the module now.")] = True,
    ungranted: Annotated[
        str | None,
        typer.Option(
            metavar="refuse|asked|allow|N%",
            help="The part of a container that came past our runtime (--gpus all): nothing;"
            " nothing once any other asked for a share; all; or a share."
            " Default: asked for at a terminal, otherwise 'refuse'.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
) -> None:
    """Install the kernel module and all that belongs to it; undone if any of it fails."""
    for_all()
    host = this_host()
    if os.geteuid() and not dry_run:
        raise InstallError("installing takes root: run it with sudo")
    names = tuple(name or registration.names_free(host.prefix))
    # What the agent cannot see it lets nobody decide.
    decided = installation.Options().ungranted if ungranted is None and agent else ungranted
    options = installation.Options(
        dkms,
        None if modules is None else str(modules.resolve()),
        runtimes,
        names,
        bool(default),
        exporter,
        load,
        agent,
        shutil.which("cgpu") or os.path.realpath(sys.argv[0]),
        installation.Options().ungranted if decided is None else decided,
        usage,
        or_agent,
        restart=restart,
    )
    options = installation.settled(options, host, print)
    if sys.stdin.isatty() and not dry_run:
        # Nobody is asked for an installation that would be refused.
        installation.check(options, host)
        asked = default if runtimes else False
        answer, names, asked = ask(decided, names, asked, asks_names=runtimes and not name)
        options = options._replace(ungranted=answer, names=names, default=asked)
    if dry_run:
        for step in installation.plan(options, host):
            print(f"would: {step.shown}")
            for line in registration.left_out(step.data.get("engines", ()), host.prefix):
                print(line)
        try:
            installation.check(options, host)
        except InstallError as error:
            raise InstallError(f"would be refused: {error}") from None
        return
    for line in installation.install(options, host, print):
        print(line)
    print("installed; `cgpu doctor` looks whether all is well")
