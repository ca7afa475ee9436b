# SPDX-License-Identifier: MIT
"""``cgpu spark-setup``: the discovery script and the executors' launcher, on a host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.batch import spark
from pycgpu.errors import CgpuError

app = typer.Typer(add_completion=False)


@app.command("spark-setup")
def spark_setup(
    java: Annotated[
        str | None, typer.Option(help="Java's program; default: that of JAVA_HOME, or of PATH.")
    ] = None,
    cgpu: Annotated[str | None, typer.Option(help="cgpu's program; default: that of PATH.")] = None,
    prefix: Annotated[str, typer.Option(help="Write below this directory.")] = "/",
) -> None:
    """
    Write the script by which Spark finds cards, where Volcengine's documents have it, and the
    launcher that makes executors tenants; print both paths.
    """
    home = os.environ.get("JAVA_HOME")
    found = java or (f"{home}/bin/java" if home else shutil.which("java"))
    if not found or not os.access(found, os.X_OK):
        raise CgpuError(f"no Java at {found or 'PATH'}: name it by --java")
    program = cgpu or shutil.which("cgpu")
    if not program or not os.access(program, os.X_OK):
        raise CgpuError(f"no cgpu at {program or 'PATH'}: name it by --cgpu")
    files = {
        spark.DISCOVERY: spark.DISCOVERY_SCRIPT,
        f"{spark.JAVA_HOME}/bin/java": spark.launcher(os.path.realpath(found), [program]),
    }
    for name, text in files.items():
        path = Path(prefix, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        except OSError as error:
            raise CgpuError(f"{path}: {error.strerror}") from None
        print(path)
