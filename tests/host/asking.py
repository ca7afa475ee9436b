# SPDX-License-Identifier: MIT
"""What an environment asks for and gets, where a test is sure that it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pycgpu.dialects import request_from
from pycgpu.request.admission import admit
from pycgpu.request.model import Card, Grant, Refusal, Request


def asked(env: Mapping[str, str]) -> Request:
    """Return the request that *env* makes."""
    request = request_from(env)
    assert request is not None, env
    return request


def granted(env: Mapping[str, str], cards: Sequence[Card]) -> Grant:
    """Return what *env* is granted on *cards*."""
    result = admit(asked(env), cards)
    assert isinstance(result, Grant), result
    return result


def refused(env: Mapping[str, str], cards: Sequence[Card]) -> Refusal:
    """Return why *env* is granted nothing on *cards*."""
    result = admit(asked(env), cards)
    assert isinstance(result, Refusal), result
    return result
