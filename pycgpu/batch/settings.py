# SPDX-License-Identifier: MIT
"""
A job's request in Volcengine's words: ``emr.serverless.mgpu.*`` for Spark, Ray and custom jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pycgpu.batch import written
from pycgpu.dialects import volcengine_mgpu
from pycgpu.errors import RequestError
from pycgpu.request.model import CardShare, MemoryShare, Request
from pycgpu.request.size import is_number

CORE, MEMORY = volcengine_mgpu.EMR
_RAY, _JOB = "serverless.ray.worker.gpu.", "serverless.custom.job."
RAY_VENDOR, RAY_AMOUNT = f"{_RAY}vendor", f"{_RAY}amount"
JOB_ENABLED, JOB_CARDS = f"{_JOB}gpu.enabled", f"{_JOB}task.gpus"
SPARK_AMOUNT = "spark.executor.resource.gpu.amount"
VENDORS = (RAY_VENDOR, "spark.executor.resource.gpu.vendor")
AMOUNTS = (RAY_AMOUNT, JOB_CARDS, SPARK_AMOUNT)
_KNOWN = (CORE, MEMORY, RAY_VENDOR, RAY_AMOUNT, JOB_ENABLED)
#: A key below these that is not known is a limit that would be lost.
_CHECKED = ("emr.serverless.mgpu.", _RAY, f"{_JOB}gpu.")


def parse(text: str) -> dict[str, str]:
    """
    Return the settings in *text*, every key that stands there.

    Raises:
        RequestError: see :func:`merged` and :func:`pycgpu.batch.written.lines`.
    """
    return merged(written.lines(text))


def merged(lines: Iterable[written.Line]) -> dict[str, str]:
    """
    Return the settings of all *lines*; the last of two values of Spark's own wins, as in Spark.

    Raises:
        RequestError: a key of ours has two values.
    """
    found: dict[str, str] = {}
    for line in lines:
        for key, value in line.settings:
            if key.startswith(written.OURS) and found.get(key, value) != value:
                raise RequestError(f"{key} is given as {found[key]!r} and as {value!r}", key, value)
            found[key] = value
    return found


def request(settings: Mapping[str, str]) -> Request:
    """
    Return the request of a job's settings: a part of one card, or whole cards.

    Raises:
        RequestError: they ask for nothing, contradict each other, or a value is invalid.
    """
    for key in settings:
        if key.startswith(_CHECKED) and key not in _KNOWN:
            raise RequestError(f"{key}: unknown; known are {', '.join((*_KNOWN, JOB_CARDS))}", key)
    for key in VENDORS:
        if settings.get(key, "nvidia.com") != "nvidia.com":
            raise RequestError(f"{key}={settings[key]!r}: only nvidia.com is shared here", key)
    cards = _cards(settings)
    part = {key: settings[key] for key in (CORE, MEMORY) if key in settings}
    if settings.get(JOB_ENABLED, "true") != "true":
        if settings[JOB_ENABLED] != "false" or part or cards:
            raise RequestError(f"{JOB_ENABLED}={settings[JOB_ENABLED]!r}: write true for a card")
        raise RequestError(f"{JOB_ENABLED} is false: the job asks for no card")
    if part:
        key = next((key for key in AMOUNTS if key in settings), "")
        if cards not in (0, 1):
            raise RequestError(f"{key}={settings[key]!r}: {CORE} and {MEMORY} are of one card")
        found = volcengine_mgpu.parse(part)
        assert found is not None  # it returns one, or raises
        return found._replace(count=1)
    if not cards:
        raise RequestError(f"no {CORE} and {MEMORY}, and no number of cards: nothing is asked for")
    whole = CardShare(memory=MemoryShare(1, 1), whole=True)
    return Request(dialect="volcengine_mgpu", selectors=None, shares=(whole,), count=cards)


def _cards(settings: Mapping[str, str]) -> int:
    """Return how many cards each worker, task or executor has; 0: the settings do not say."""
    given = {key: settings[key] for key in AMOUNTS if key in settings}
    for key, text in given.items():
        if not (is_number(text) and 1 <= int(text) <= 8):
            raise RequestError(f"{key}={text!r}: write 1 to 8 cards", key, text)
    if len({int(text) for text in given.values()}) > 1:
        (one, first), (two, second) = list(given.items())[:2]
        raise RequestError(f"{one}={first} and {two}={second}: write the same")
    return int(next(iter(given.values()))) if given else 0
