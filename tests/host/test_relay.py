# SPDX-License-Identifier: MIT
"""What the host's side of the VM ring does beside tests that run on the host."""

from __future__ import annotations

import os

import pytest

from tests.vm.relay import Relay


def test_builds_are_not_who_a_test_on_the_host_makes_itself(pytestconfig: pytest.Config) -> None:
    """Some ask as nobody, in whose home there is no cache."""
    relay = Relay(pytestconfig)
    try:
        relay.builder.submit(os.geteuid).result()
        mine = os.geteuid()
        if mine == 0:
            os.seteuid(65534)
        try:
            assert relay.builder.submit(os.geteuid).result() == mine
        finally:
            os.seteuid(mine)
    finally:
        relay.builder.shutdown()
