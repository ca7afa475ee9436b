# SPDX-License-Identifier: MIT
"""``cgpu spark-java``: the Java of a Spark executor that has a part of a card."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from pycgpu.agent import caller, launch
from pycgpu.batch import spark
from pycgpu.errors import CgpuError, LaunchError
from pycgpu.request import permit
from pycgpu.tree import group as groups

app = typer.Typer(add_completion=False)


@app.command(
    "spark-java", context_settings={"allow_extra_args": True, "allow_interspersed_args": False}
)
def spark_java(
    arguments: Annotated[list[str], typer.Argument(help="Java's arguments, after --.")],
    java: Annotated[str, typer.Option(help="The Java that it becomes.")],
) -> None:
    """
    Become the executor as a tenant: limits from CGPU_MEM and CGPU_QUOTA, the card from Spark.
    CGPU_GROUP puts the executors on a card into a group.

    The launcher that spark-setup writes calls it; under sudo it goes on as the caller.
    """
    identity = caller.caller(os.environ)
    environment = os.environ if identity is None else identity.environment
    path = spark.after(arguments, "--resourcesFile")
    try:
        resources = caller.read(path, identity) if path else None
        allowed = permit.load()
        name, wanted, joins = spark.executor(arguments, environment, resources, allowed)
        group = None if joins is None else _group(joins, identity)
    except CgpuError as error:
        raise LaunchError(f"this executor gets no part of a card: {error}") from None
    launch.run(name, wanted, [java, *arguments], identity=identity, allowed=allowed, group=group)


def _group(name: str, identity: caller.Identity | None) -> groups.Group:
    caller.check_name(name, identity, "CGPU_GROUP")
    return groups.Group(name, 0 if identity is None else identity.uid, policy_asked=False)
