# SPDX-License-Identifier: MIT
"""
Values of environment variables, read strictly.

``int()`` takes ``1_000``, `` 3`` and the digits of every script; a limit that was mistyped must be
refused, not guessed.
"""

from __future__ import annotations

from ..errors import RequestError
from ..request.size import is_number as is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def fail(key: str, value: str, wanted: str) -> RequestError:
    """Return the error for ``key=value`` where *wanted* was expected, quoting the value."""
    shown = value if len(value) <= 80 else value[:77] + "..."
    return RequestError(f"{key}={shown!r}: {wanted}", key, value)


def integer(
    env: Mapping[str, str], key: str, low: int, high: int | None, wanted: str
) -> int | None:
    """
    Return the whole number in *key*, or None if the key is absent.

    Raises:
        RequestError: not a number, or outside *low*..*high*.
    """
    text = env.get(key)
    if text is None:
        return None
    if not is_number(text) or int(text) < low or (high is not None and int(text) > high):
        raise fail(key, text, wanted)
    return int(text)


def integers(env: Mapping[str, str], key: str, wanted: str) -> tuple[int, ...] | None:
    """Return the comma-separated whole numbers in *key*, or None if the key is absent."""
    text = env.get(key)
    if text is None:
        return None
    parts = text.split(",")
    if not all(is_number(part) for part in parts):
        raise fail(key, text, wanted)
    return tuple(int(part) for part in parts)


def switch(env: Mapping[str, str], key: str) -> bool | None:
    """Return whether the switch *key* is on (1, true) or off (0, false, empty); None if absent."""
    text = env.get(key)
    if text is None:
        return None
    if text.lower() in ("1", "true"):
        return True
    if text.lower() in ("", "0", "false"):
        return False
    raise fail(key, text, "write 1 or true, 0 or false")


def cards(env: Mapping[str, str], key: str) -> tuple[int | str, ...] | None:
    """
    Return the cards that *key* lists by index or UUID, mixed; None for ``all`` or an absent key.

    Raises:
        RequestError: no card is named, a card twice, a MIG device, or an unreadable part.
    """
    text = env.get(key)
    if text is None or text == "all":
        return None
    named: list[int | str] = []
    for part in text.split(","):
        name = part.strip()
        # CDI's spelling of the same, by the toolkit or the device plugin: nvidia.com/gpu=0,
        # runtime.nvidia.com/gpu=0
        vendor, equals, device = name.partition("nvidia.com/gpu=")
        if equals and (not vendor or vendor.endswith(".")):
            name = device
            if name == "all" and part == text:
                return None
        if is_number(name):
            selector: int | str = int(name)
        elif name.startswith("GPU-") and name.isascii() and name.replace("-", "").isalnum():
            selector = name
        elif name.startswith("MIG-") or name.replace(":", "").isdecimal():
            raise fail(key, text, f"{name!r} is a MIG device; name whole cards")
        elif name in ("", "none", "void"):
            raise fail(
                key, text, "a GPU limit is asked for, but no card is named; write indexes or UUIDs"
            )
        else:
            raise fail(key, text, f"{name!r} is neither a card's index nor its UUID")
        if selector in named:
            raise fail(key, text, f"card {name} is named twice")
        named.append(selector)
    return tuple(named)


VISIBLE = "NVIDIA_VISIBLE_DEVICES"
#: Followed by a card's index: set by the devices of our CDI specification.
CDI_CARD = "CGPU_CARD_"


def visible_cards(env: Mapping[str, str]) -> tuple[int | str, ...] | None:
    """
    Return the cards of ``NVIDIA_VISIBLE_DEVICES``; None for ``all`` or when it is absent.

    CUDA images set ``all`` by themselves, so it never contradicts a shorter list: that of CDI's
    devices comes first.
    """
    listed = cards(env, VISIBLE)
    if listed is None:
        devices = [key for key in env if key.startswith(CDI_CARD)]
        for key in devices:
            if not is_number(key[len(CDI_CARD) :]):
                raise fail(key, env[key], f"the form is {CDI_CARD}N, N a card's index")
        listed = tuple(sorted(int(key[len(CDI_CARD) :]) for key in devices)) or None
    return listed


def script(env: Mapping[str, str], key: str) -> str | None:
    """Return the absolute path in *key*, or None if it is absent or empty."""
    path = env.get(key) or None
    if path is not None and (
        not path.startswith("/") or any(ord(char) < 32 for char in path) or len(path) > 4095
    ):
        raise fail(key, path, "write the script's absolute path in the container")
    return path
