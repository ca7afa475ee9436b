# SPDX-License-Identifier: MIT
"""Admission: every rule with its numbers, and that no sum is ever exceeded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pycgpu.request.admission import admit
from pycgpu.request.model import (
    GIB,
    MIB,
    Card,
    CardShare,
    Grant,
    MemoryBytes,
    MemoryShare,
    Refusal,
    Request,
    Tenant,
)


def granted(request: Request, cards: list[Card]) -> Grant:
    result = admit(request, cards)
    assert isinstance(result, Grant), result
    return result


def refused(request: Request, cards: list[Card]) -> Refusal:
    result = admit(request, cards)
    assert isinstance(result, Refusal), result
    return result


def request(*shares: Any, selectors: Any = None, **fields: Any) -> Request:
    return Request("test", selectors, shares, **fields)


def mib(amount: Any) -> Any:
    return CardShare(memory=MemoryBytes(amount * MIB))


def test_a_card_that_the_driver_divides_is_given_to_nobody() -> None:
    cards = [Card(0, "GPU-0", 16 * GIB, mig=True), Card(1, "GPU-1", 16 * GIB)]
    said = refused(request(mib(1024), selectors=(0,)), cards).reason
    assert said.startswith("card 0: it is in MIG mode, and cgpu divides whole cards: `nvidia-smi")
    # Whoever leaves the choice gets the other.
    assert [card.index for card in granted(request(mib(1024), count=1), cards).cards] == [1]


@pytest.mark.parametrize(
    ("card", "share", "reason"),
    [
        (
            Card(2, "GPU-2", 32768 * MIB),
            mib(40960),
            "card 2: 40960 MiB asked, 32768 MiB on the card",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, allocated_bytes=15 * GIB, tenants=(Tenant("a"),)),
            mib(2048),
            "card 0: 2048 MiB asked, 1024 MiB free of 16384 MiB (1 container holds 15360 MiB)",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, tenants=(Tenant("a", quota=60),)),
            CardShare(quota=50),
            "card 0: 50 % of compute asked, 40 % free (1 container holds 60 %)",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, tenants=(Tenant("a", quota_min=60),)),
            CardShare(quota_min=50),
            "card 0: 50 % guaranteed asked, 40 % free (1 container holds 60 %)",
        ),
        (
            Card(0, "GPU-0", 16 * GIB),
            CardShare(MemoryShare(5, 16, reserved_bytes=5 * GIB - 1)),
            "card 0: 1 bytes asked, and the least is 1 MiB",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, free_weight=3, tenants=(Tenant("a"),)),
            CardShare(weight=4),
            "card 0: weight 4 asked, 3 free (1 container holds 17 of max_inst 20)",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, free_weight=0, tenants=(Tenant("a"),)),
            CardShare(quota=10),
            "card 0: free_weight is 0, and without a weight a quota gets no compute"
            " (1 container holds 20 of max_inst 20)",
        ),
        (
            Card(0, "GPU-0", 16 * GIB, max_inst=1, tenants=(Tenant("a"),)),
            CardShare(),
            "card 0: 1 container, and max_inst is 1",
        ),
    ],
)
def test_a_refusal_says_why_in_numbers(card: Any, share: Any, reason: Any) -> None:
    assert admit(request(share), [card]) == Refusal((reason,))


def test_limits_add_up_to_what_the_ratio_lets_a_card_promise() -> None:
    card = Card(0, "GPU-0", 16 * GIB, GIB, 12 * GIB, tenants=(Tenant("a"),), overcommit_ratio=150)
    assert card.free_bytes == 11 * GIB
    grant = granted(request(mib(11 * 1024)), [card])
    assert (grant.cards[0].memory_bytes, grant.short) == (11 * GIB, ())
    full = card._replace(allocated_bytes=22 * GIB)
    assert refused(request(mib(4096)), [full]).reason == (
        "card 0: 4096 MiB asked, 1024 MiB free of 16384 MiB at overcommit_ratio 150"
        " (1 container holds 22528 MiB)"
    )
    (short,) = granted(request(mib(1536)), [full]).short
    assert short == (
        "card 0: 1536 MiB asked, the last 1024 MiB of the card granted: of its 23552 MiB"
        " 1 container holds 22528 MiB"
    )


def test_no_container_has_more_than_the_card_whatever_it_promises() -> None:
    card = Card(0, "GPU-0", 15800 * MIB, 300 * MIB, overcommit_ratio=1000)
    grant = granted(request(mib(16384)), [card])
    assert grant.cards[0].memory_bytes == 15500 * MIB
    assert grant.short == (
        "card 0: 16384 MiB asked, 15500 MiB granted, which is all that the card has",
    )
    assert refused(request(mib(16385)), [card]).reason == (
        "card 0: 16385 MiB asked, 16384 MiB on the card"
    )


def test_a_percentage_is_one_of_the_card_itself() -> None:
    share = CardShare(MemoryShare(5000, 10000, granule_bytes=MIB, usable=True))
    one = Card(0, "GPU-0", 16 * GIB, GIB)
    given_bytes = {
        granted(request(share), [one._replace(overcommit_ratio=ratio)]).cards[0].memory_bytes
        for ratio in (100, 300)
    }
    assert given_bytes == {15 * GIB // 2}


def test_a_card_that_still_has_the_memory_itself_is_chosen_first() -> None:
    first = Card(0, "GPU-0", 16 * GIB, allocated_bytes=10 * GIB, overcommit_ratio=200)
    second = Card(1, "GPU-1", 16 * GIB, overcommit_ratio=200)

    def chosen(amount: int, *cards: Card) -> int:
        return granted(request(mib(amount), count=1), list(cards)).cards[0].index

    assert chosen(6 * 1024, first, second) == 0
    assert chosen(7 * 1024, first, second) == 1
    both = second._replace(allocated_bytes=12 * GIB)
    # Where none has, the fullest that may promise it.
    assert chosen(7 * 1024, first, both) == 1
    assert chosen(7 * 1024, first, both._replace(overcommit_ratio=100)) == 0


def test_a_whole_card_is_not_given_of_one_that_promises_more() -> None:
    share = CardShare(MemoryShare(1, 1), whole=True)
    cards = [Card(0, "GPU-0", 16 * GIB, overcommit_ratio=200), Card(1, "GPU-1", 16 * GIB)]
    said = refused(request(share, selectors=(0,)), cards).reason
    assert said.startswith("card 0: the whole card asked, and its overcommit_ratio 200 lets others")
    assert [card.index for card in granted(request(share, count=1), cards).cards] == [1]


def test_all_cards_are_refused_with_the_one_that_does_not_fit() -> None:
    cards = [Card(0, "GPU-0", 16 * GIB), Card(1, "GPU-1", 8 * GIB)]
    refusal = refused(request(mib(12288)), cards)
    assert refusal.reasons == ("card 1: 12288 MiB asked, 8192 MiB on the card",)
    assert [grant.index for grant in refusal.fitting] == [0]


def test_the_size_on_the_box_is_admitted_and_capped_to_what_the_board_has() -> None:
    card = Card(0, "GPU-0", 32510 * MIB, reserved_bytes=300 * MIB)
    grant = granted(request(mib(32768)), [card])
    assert grant.cards[0].memory_bytes == 32210 * MIB
    (short,) = grant.short
    assert short.startswith("card 0: 32768 MiB asked, the last 32210 MiB of the card granted: of")


def test_less_than_half_of_what_was_asked_is_a_refusal_and_no_grant() -> None:
    card = Card(0, "GPU-0", 32510 * MIB, allocated_bytes=32400 * MIB, tenants=(Tenant("a"),))
    assert isinstance(admit(request(mib(220)), [card]), Grant)
    assert isinstance(admit(request(mib(221)), [card]), Refusal)


def test_uuids_may_be_shortened_while_they_are_unambiguous() -> None:
    cards = [Card(0, "GPU-28df2127-fac9", GIB), Card(1, "GPU-28dfaaaa-fac9", GIB)]
    grant = granted(request(mib(1), selectors=("gpu-28DFA",)), cards)
    assert grant.cards[0].index == 1
    refusal = refused(request(mib(1), selectors=("GPU-28df",)), cards)
    assert refusal.reason == "card GPU-28df could be 0,1; write more of it"


def test_a_card_named_by_index_and_by_uuid_is_refused() -> None:
    cards = [Card(0, "GPU-28df2127", GIB)]
    refusal = refused(request(mib(1), selectors=(0, "GPU-28df2127")), cards)
    assert refusal.reason == "card GPU-28df2127 is card 0, named twice"


def test_a_host_without_cards_refuses() -> None:
    assert isinstance(admit(request(mib(1)), []), Refusal)


def test_who_asks_for_no_compute_where_no_weight_is_free_gets_weight_0_and_a_note() -> None:
    card = Card(0, "GPU-0", GIB, free_weight=0)
    grant = granted(request(CardShare()), [card])
    assert grant.cards[0].weight is None  # the door's default, which is 0 then
    assert grant.short == ("card 0: free_weight is 0: weight 0, which gets no compute",)


def test_percents_that_fill_a_card_fit_although_their_weights_are_rounded_up() -> None:
    free = 20
    for percent in (33, 33, 34):
        grant = granted(
            request(CardShare(weight_percent=percent)), [Card(0, "GPU-0", GIB, free_weight=free)]
        )
        free -= grant.cards[0].weight or 0
    assert free == 0


SHARES = st.builds(
    CardShare,
    memory=st.one_of(
        st.none(),
        st.builds(MemoryBytes, st.integers(1, 40 * GIB)),
        st.builds(
            MemoryShare,
            st.integers(1, 40),
            st.one_of(st.none(), st.integers(1, 40)),
            st.sampled_from([0, 10 * MIB]),
            st.sampled_from([1, MIB]),
        ),
    ),
    quota=st.one_of(st.none(), st.integers(1, 100)),
    quota_min=st.one_of(st.none(), st.integers(0, 100)),
    weight_percent=st.one_of(st.none(), st.integers(1, 100)),
)


@given(
    total_bytes=st.integers(1 * GIB, 80 * GIB),
    reserved_bytes=st.integers(0, GIB),
    max_inst=st.integers(1, 25),
    ratio=st.integers(100, 1000),
    shares=st.lists(SHARES, max_size=30),
)
def test_what_is_granted_never_exceeds_the_card(
    total_bytes: Any, reserved_bytes: Any, max_inst: Any, ratio: Any, shares: Any
) -> None:
    card = Card(0, "GPU-0", total_bytes, reserved_bytes, max_inst=max_inst, overcommit_ratio=ratio)
    for number, share in enumerate(shares):
        result = admit(request(share), [card])
        if isinstance(result, Refusal):
            assert result.reason
            continue
        (given_card,) = result.cards
        tenant = Tenant(
            str(number),
            quota=given_card.quota,
            quota_min=given_card.quota_min,
        )
        card = card._replace(
            allocated_bytes=card.allocated_bytes + (given_card.memory_bytes or 0),
            tenants=(*card.tenants, tenant),
        )
        if given_card.memory_bytes is not None:
            assert 2 * (given_card.memory_bytes or 0) >= (given_card.asked_bytes or 0)
            assert given_card.memory_bytes <= total_bytes - reserved_bytes
            assert card.allocated_bytes <= total_bytes * ratio // 100 - reserved_bytes
        assert sum(tenant.quota or 0 for tenant in card.tenants) <= 100
        assert sum(tenant.quota_min or 0 for tenant in card.tenants) <= 100
        assert len(card.tenants) <= max_inst
