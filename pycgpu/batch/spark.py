# SPDX-License-Identifier: MIT
"""
Spark: an executor gets its part of a card as it starts, and all its tasks share it.

``spark.executorEnv.JAVA_HOME`` chooses an executor's Java, and names a launcher. It makes the
executor a tenant by its environment (``CGPU_MEM``, ``CGPU_QUOTA``) and the cards that Spark wrote
for it. With ``CGPU_GROUP=NAME`` the executor becomes a member of the group NAME-CARD. Its Python
workers are its children, and have the same limits.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from pycgpu.batch import settings as volcengine
from pycgpu.batch import written
from pycgpu.dialects import cgpu
from pycgpu.errors import RequestError
from pycgpu.request import permit
from pycgpu.request.model import MIB, MemoryBytes, Request

#: Where Volcengine's documents have the discovery script, and where the launcher stands.
DISCOVERY = "opt/emr/current/spark/examples/src/main/scripts/getGpusResources.sh"
JAVA_HOME = "usr/local/lib/cgpu/java"
EXECUTOR = "CoarseGrainedExecutorBackend"

DISCOVERY_SCRIPT = """\
#!/bin/sh
# The cards of this host, as Spark asks for them.
cards=$(ls /dev | sed -n 's/^nvidia\\([0-9][0-9]*\\)$/"\\1"/p' | sort | paste -sd , -)
printf '{"name": "gpu", "addresses": [%s]}\\n' "$cards"
"""


def launcher(java: str, command: Sequence[str]) -> str:
    """Return the text of ``bin/java``: an executor runs by *command*, anything else by *java*."""
    quoted = shlex.quote(java)
    return f"""\
#!/bin/sh
# Spark's executors become tenants of cgpu; every other program of Java's runs as ever.
case " $* " in
*{EXECUTOR}*) ;;
*) exec {quoted} "$@" ;;
esac
[ -n "${{CGPU_MEM:-}}${{CGPU_QUOTA:-}}${{CGPU_GROUP:-}}" ] || exec {quoted} "$@"
set -- {shlex.join(command)} spark-java --java {quoted} -- "$@"
[ "$(id -u)" = 0 ] && exec "$@"
exec sudo -n "$@"
"""


def configuration(text: str, java_home: str = f"/{JAVA_HOME}") -> str:
    """
    Return a job's file as Spark's own, with our settings turned into executors' limits.

    Lines that Spark reads stay unchanged, to the last character. Spark's settings in the documents'
    forms are rewritten as Spark reads them.

    Raises:
        RequestError: see :func:`pycgpu.batch.settings.request`; or the file has limits of its own.
    """
    lines = written.lines(text)
    given = volcengine.merged(lines)
    (share,) = volcengine.request(given).shares
    if not isinstance(share.memory, MemoryBytes):
        raise RequestError(
            f"executors have whole cards by Spark's own settings; for a part of one give"
            f" {volcengine.CORE} and {volcengine.MEMORY}"
        )
    limits = {cgpu.MEM: f"{share.memory.bytes // MIB}MiB", cgpu.QUOTA: str(share.quota)}
    wanted = {f"spark.executorEnv.{key}": value for key, value in limits.items()}
    wanted["spark.executorEnv.JAVA_HOME"] = java_home
    for key, value in wanted.items():
        if given.get(key, value) != value:
            raise RequestError(f"{key} is {given[key]!r}, and the limits need {value!r}", key)
    wanted[volcengine.SPARK_AMOUNT] = "1"
    kept = "".join(line.source if line.is_spark else _properties(line.settings) for line in lines)
    if kept and not kept.endswith(("\n", "\r")):
        kept += "\n"
    if re.search(r"(?<!\\)(?:\\\\)*\\(?:\r\n?|\n)\Z", kept):
        # An empty line ends a last line that would continue on the next one. The first line feed
        # may be the second half of its line end, so two are added.
        kept += "\n\n"
    return kept + _properties((key, value) for key, value in wanted.items() if key not in given)


def _properties(settings: Iterable[tuple[str, str]]) -> str:
    """Return settings as Spark reads them, without ours, which it does not know."""
    import javaproperties

    return "".join(
        javaproperties.join_key_value(key, value, " ", ensure_ascii=False) + "\n"
        for key, value in settings
        if not key.startswith(written.OURS)
    )


def executor(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    resources: str | None,
    allowed: permit.Permit = permit.DEFAULT,
) -> tuple[str, Request, str | None]:
    """
    Return an executor's name, its request, and the group of the executors on its card.

    Args:
        environment: written by the job's author, and permitted no more than an image's.
        resources: text of the file that its ``--resourcesFile`` names; None: Spark gave no cards.

    Raises:
        RequestError: no card, more than one, or a limit that is invalid or not permitted.
    """
    cards = _addresses(resources) if resources else []
    if len(cards) != 1:
        raise RequestError(
            f"Spark gave this executor {len(cards)} cards: {volcengine.SPARK_AMOUNT} is to be 1"
        )
    limits = {key: value for key, value in environment.items() if key.startswith("CGPU_")}
    # The group takes nothing from others, unlike an image's: its members are the same user's.
    group = limits.pop(cgpu.GROUP, None)
    allowed.check(limits)
    found = cgpu.parse(limits | {cgpu.GPU: cards[0]})
    assert found is not None  # a card is named
    app, number = after(arguments, "--app-id"), after(arguments, "--executor-id")
    joins = f"{group}-{cards[0]}" if group else None
    return f"spark-{app or 'app'}-{number or '0'}", found, joins


def after(arguments: Sequence[str], option: str) -> str | None:
    """Return the word that follows *option*."""
    at = arguments.index(option) if option in arguments else -1
    return arguments[at + 1] if 0 <= at < len(arguments) - 1 else None


def _addresses(text: str) -> list[str]:
    try:
        return [
            str(address)
            for one in json.loads(text)
            if one["id"]["resourceName"] == "gpu"
            for address in one["addresses"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        # Do not quote the file: the user who named it may not be allowed to read it.
        raise RequestError("Spark's file of resources (--resourcesFile) is not as known") from None
