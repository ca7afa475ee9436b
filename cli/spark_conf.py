# SPDX-License-Identifier: MIT
"""``cgpu spark-conf``: a job's settings as Spark takes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pycgpu.batch import spark
from pycgpu.errors import CgpuError, RequestError

app = typer.Typer(add_completion=False)


@app.command("spark-conf")
def spark_conf(
    file: Annotated[Path, typer.Argument(help="The job's settings, emr.serverless.mgpu.* too.")],
    java_home: Annotated[
        str, typer.Option(help="Where spark-setup has put the executors' Java.")
    ] = f"/{spark.JAVA_HOME}",
) -> None:
    """Print a file for `spark-submit --properties-file`: executors with their parts of a card."""
    try:
        # Spark reads UTF-8, and what is none stays as it is.
        text = file.read_bytes().decode(errors="surrogateescape")
        found = spark.configuration(text, java_home)
    except (OSError, RequestError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CgpuError(f"{file}: {reason}") from None
    sys.stdout.flush()
    sys.stdout.buffer.write(found.encode(errors="surrogateescape"))
