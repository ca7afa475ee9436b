# SPDX-License-Identifier: MIT
"""Charges against the stupidest ledger: a dictionary of sizes and references."""

from __future__ import annotations

import errno
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from pycgpu.core import Tenant, Topology, ffi, lib, round_memory
from tests.core.model import KIB64

MIB = 1 << 20
U64 = (1 << 64) - 1
CARDS = {0: 100, 3: 7, 31: None}
SIZES = st.one_of(st.integers(0, 120), st.integers(U64 - 120, U64))


class Ledger(RuleBasedStateMachine):
    """Two limited cards, one without a limit, one that the container does not have."""

    charges = Bundle("charges")

    def __init__(self) -> None:
        super().__init__()
        self.tenant = Tenant(Topology(), capacity_max=1024)
        self.raw = ffi.addressof(self.tenant.raw.ledger)
        for card, limit in CARDS.items():
            self.tenant.give(card, limit)
        self.model: dict[int, list[int]] = {}  # index: [card, bytes, references]
        self.refused = dict.fromkeys(CARDS, 0)

    def used(self, card: int) -> int:
        return sum(size for on, size, _ in self.model.values() if on == card)

    def fits(self, card: int, more: int) -> bool:
        limit = CARDS[card]
        return self.used(card) + more <= (U64 if limit is None else limit)

    @rule(target=charges, card=st.sampled_from([*CARDS, 5]), size=SIZES)
    def charge(self, card: Any, size: Any) -> Any:
        index = ffi.new("uint32_t *")
        err = lib.cgpu_charge_new(self.raw, card, size, 7, index)
        if card not in CARDS:
            assert err == -errno.ENODEV
        elif not self.fits(card, size):
            assert err == -errno.ENOSPC
            self.refused[card] += 1
        else:
            assert err == 0
            assert index[0] not in self.model
            self.model[index[0]] = [card, size, 1]
            return index[0]
        return multiple()

    @rule(index=charges, size=SIZES)
    def settle(self, index: Any, size: Any) -> None:
        if index not in self.model:
            return
        card, before, _ = self.model[index]
        err = lib.cgpu_charge_settle(self.raw, index, size)
        if size <= before or self.fits(card, size - before):
            assert err == 0
            self.model[index][1] = size
        else:
            assert err == -errno.ENOSPC
            self.refused[card] += 1

    @rule(index=charges)
    def share(self, index: Any) -> None:
        if index in self.model:
            lib.cgpu_charge_get(self.raw, index)
            self.model[index][2] += 1

    @rule(index=charges)
    def let_go(self, index: Any) -> None:
        if index in self.model:
            lib.cgpu_charge_put(self.raw, index)
            self.model[index][2] -= 1
            if not self.model[index][2]:
                del self.model[index]

    @invariant()
    def the_sum_of_the_charges_is_what_is_charged_and_within_the_limit(self) -> None:
        for card, limit in CARDS.items():
            account = self.tenant.account(card)
            assert account.current_bytes == self.used(card)
            assert limit is None or account.current_bytes <= limit
            assert account.peak_bytes >= account.current_bytes
            assert account.oom == self.refused[card]
        assert self.raw.charges.used == len(self.model)


TestLedger = Ledger.TestCase


def test_a_full_table_refuses_and_charges_nothing() -> None:
    tenant = Tenant(Topology(), capacity_max=1024)
    tenant.give(0, 1 << 40)
    raw, index = ffi.addressof(tenant.raw.ledger), ffi.new("uint32_t *")
    for made in range(1023):
        assert lib.cgpu_charge_new(raw, 0, 1, 1, index) == 0, made
    assert lib.cgpu_charge_new(raw, 0, 1, 1, index) == -errno.ENOMEM
    assert tenant.account(0).current_bytes == 1023
    lib.cgpu_charge_put(raw, index[0])
    assert lib.cgpu_charge_new(raw, 0, 5, 1, index) == 0
    assert tenant.account(0).current_bytes == 1027


@given(st.integers(0, U64), st.integers(0, U64), st.booleans())
def test_free_memory_is_what_is_left_of_the_limit_and_of_the_card(
    limit: Any, card_free: Any, unlimited: Any
) -> None:
    account = ffi.new("struct cgpu_account *")
    account.unlimited, account.max_bytes, account.current_bytes = unlimited, limit, limit // 3
    shown = lib.cgpu_account_free(account, card_free)
    assert shown == (card_free if unlimited else min(card_free, limit - limit // 3))


def test_a_limit_set_below_what_is_used_leaves_nothing_free() -> None:
    account = ffi.new("struct cgpu_account *")
    account.max_bytes, account.current_bytes = 5, 6
    assert lib.cgpu_account_free(account, 100) == 0


@given(st.integers(0, U64), st.sampled_from([0, 1, 2, 3]), st.integers(0, 3))
def test_the_bound_before_the_call_is_never_below_what_the_driver_takes(
    size: Any, page: Any, huge: Any
) -> None:
    # seen on an H200: rounded to the page, and never less than 64 KiB pieces
    pages = {0: 2 * MIB if size >= 2 * MIB else KIB64, 1: KIB64, 2: KIB64, 3: 2 * MIB}
    grain = {2: 512 * MIB, 3: 256 << 30}.get(huge, pages[3]) if page == 3 else pages[page]
    taken = -(-size // grain) * grain
    bound = round_memory(size, page << 23, huge << 20)
    assert bound == min(taken, U64) or (bound == U64 and taken > U64 - grain)
