# SPDX-License-Identifier: MIT
"""What options of a command line ask for: the project's own variables by another name."""

from __future__ import annotations

from pycgpu.dialects import cgpu
from pycgpu.errors import RequestError
from pycgpu.request.model import Request

#: One grammar for both.
OPTIONS = {
    cgpu.GPU: "--gpu",
    cgpu.MEM: "--mem",
    cgpu.QUOTA: "--quota",
    cgpu.WEIGHT: "--weight",
    cgpu.POLICY: "--policy",
    cgpu.IDLE_PARK: "--idle-park",
}


def parse(asked: dict[str, str]) -> Request:
    """
    Return the request of these variables; without a card it is the first.

    Raises:
        RequestError: which option cannot be, and its bounds.
    """
    try:
        found = cgpu.parse({cgpu.GPU: "0"} | asked)
    except RequestError as error:
        raise RequestError(in_options(str(error))) from None
    if found is None:
        raise RequestError("nothing is asked for")
    return found


def in_options(text: str) -> str:
    """Return an error about variables in the words of the options."""
    for key, option in OPTIONS.items():
        text = text.replace(f"{key}=", f"{option} ").replace(key, option)
    return text
