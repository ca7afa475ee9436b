# SPDX-License-Identifier: MIT
"""
Decide whether a container gets its request. Pure: request and cards in, grant or refusal out.

Everything is checked before anything is reserved, and all cards are granted or none. The rules:

* Memory counts against a card's *nominal* size, its total rounded up to whole GiB: a board sold
  with 32 GB reports a little less than 32768 MiB, and its users divide 32768. The last container
  gets the rest, and is refused if that is less than half of its request.
* Limits may add up to ``overcommit_ratio`` percent of the card. A single limit is at most the card,
  and a percentage refers to the card itself.
* Quotas (percent) of the containers on a card may add up to 100, and so may their guarantees.
* Promises that do not depend on other containers add up to at most the card: fixed parts,
  guarantees, and requested weights by their part of ``max_inst``, the sum of all weights.
* A container that is alone on a card sets its policy, unless an operator has. With others it gets
  its request within the card's policy; under native that is not possible.
* A requested weight above ``free_weight`` is refused, as by the door itself. A container without a
  request for compute gets weight 0 and no compute if none is free (cGPU's rule), with a note.
* A card holds ``max_inst`` containers.
* A whole card, where a vendor has such, is one without containers; it leaves no memory for others.
  A card that promises more than it has cannot be granted whole.
"""

from __future__ import annotations

from ..errors import RequestError
from .model import (
    AVERAGE,
    BURST,
    FIXED,
    GIB,
    MIB,
    MIXED,
    NATIVE,
    ONLINE,
    POLICIES,
    WEIGHTED,
    WEIGHTED_CONSERVING,
    Card,
    CardGrant,
    CardShare,
    Grant,
    MemoryShare,
    Refusal,
    Request,
)

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PPM = 1_000_000


def admit(request: Request, cards: Sequence[Card]) -> Grant | Refusal:
    """
    Return the grant of *cards* for *request*, or a refusal with the reason in numbers.

    Args:
        cards: every card of the host, with the containers that are on it now.
    """
    try:
        chosen = bind(choose(request, cards), cards)
    except RequestError as error:
        return Refusal((str(error),))
    reasons: list[str] = []
    granted: list[CardGrant] = []
    notes: list[str] = []
    short: list[str] = []
    for card, share in chosen:
        grant, refused = _admit_card(card, share)
        reasons += refused
        if not refused:
            granted.append(grant._replace(idle_park_s=request.idle_park_s))
            short += _short(card, grant)
            notes += _policy_note(card, grant)
    if reasons:
        return Refusal(tuple(reasons), tuple(granted))
    return Grant(tuple(granted), request.oom_script, tuple(notes), tuple(short))


def choosable(request: Request, cards: Sequence[Card]) -> bool:
    """Tell whether *request* wants some of *cards* and does not say which."""
    some = request.count is not None and request.count < len(cards)
    return some and request.selectors is None and len(request.shares) == 1


def choose(request: Request, cards: Sequence[Card]) -> Request:
    """
    Return *request* with its cards named, where it only says how many.

    Of the cards that have room those with the least of it are taken: whole cards stay whole. One
    that would then promise more than it has comes after those that would not.

    Args:
        cards: every card of the host, with the containers that are on it now.

    Raises:
        RequestError: too few cards have room; it says why for each.
    """
    count = request.count
    if count is None or not choosable(request, cards):
        return request
    among = [card for card in cards if request.nodes is None or card.index in request.nodes]
    judged = [(card, *_admit_card(card, request.shares[0])) for card in among]
    fitting = sorted(
        (_overcommits(card, grant), card.free_bytes, card.index)
        for card, grant, reasons in judged
        if not reasons
    )
    if len(fitting) < count:
        why = "; ".join(reason for *_, reasons in judged for reason in reasons)
        raise RequestError(f"{count} of {len(among)} cards asked, {len(fitting)} fit: {why}")
    return request._replace(selectors=tuple(index for *_, index in fitting[:count]))


def _overcommits(card: Card, grant: CardGrant) -> bool:
    return card.allocated_bytes + (grant.memory_bytes or 0) > card.usable_bytes


def bind(request: Request, cards: Sequence[Card]) -> list[tuple[Card, CardShare]]:
    """
    Return the cards that *request* names, each with its requested share.

    Raises:
        RequestError: a card is unknown, named twice or not given, or lists do not fit each other.
    """
    if not cards:
        raise RequestError("this host has no card under control; see /proc/cgpu_km")
    limited = list(cards) if request.selectors is None else _resolve(request.selectors, cards)
    if request.visible is not None:
        visible = _resolve(request.visible, cards)
        if {card.index for card in visible} != {card.index for card in limited}:
            raise RequestError(
                f"cards {_indexes(limited)} are given a limit, but NVIDIA_VISIBLE_DEVICES shows"
                f" {_indexes(visible)}; name the same cards in both"
            )
    if request.count is not None and request.count != len(limited):
        raise RequestError(
            f"{request.count} cards asked, but NVIDIA_VISIBLE_DEVICES shows"
            f" {len(limited)} ({_indexes(limited)})"
        )
    asked, shown = len(request.shares), len(limited)
    if asked > shown or (asked < shown and not request.repeat_last):
        raise RequestError(f"{asked} limits given for {shown} cards ({_indexes(limited)})")
    chosen = [
        (card, request.shares[min(position, asked - 1)]) for position, card in enumerate(limited)
    ]
    taken = {card.index for card in limited}
    chosen += [
        (card, CardShare()) for card in _resolve(request.native, cards) if card.index not in taken
    ]
    _check_nodes([card for card, _ in chosen], request.nodes)
    return chosen


def _check_nodes(chosen: Sequence[Card], nodes: tuple[int, ...] | None) -> None:
    """Raise RequestError for a card that is named, perhaps by the image, and was not given."""
    outside = [card for card in chosen if nodes is not None and card.index not in nodes]
    if outside:
        raise RequestError(
            f"cards {_indexes(outside)} are asked for, but the container is given the device nodes"
            f" of {','.join(map(str, nodes or ()))}; name the same cards in both"
        )


def _resolve(selectors: Iterable[int | str], cards: Sequence[Card]) -> list[Card]:
    found: list[Card] = []
    for selector in selectors:
        if isinstance(selector, int):
            matches = [card for card in cards if card.index == selector]
        else:
            wanted = selector.lower()
            matches = [card for card in cards if card.uuid.lower() == wanted] or [
                card for card in cards if card.uuid.lower().startswith(wanted)
            ]
        if not matches:
            raise RequestError(f"card {selector} is not on this host, which has {_indexes(cards)}")
        if len(matches) > 1:
            raise RequestError(f"card {selector} could be {_indexes(matches)}; write more of it")
        if matches[0] in found:
            raise RequestError(f"card {selector} is card {matches[0].index}, named twice")
        found.append(matches[0])
    return found


def _admit_card(card: Card, share: CardShare) -> tuple[CardGrant, list[str]]:
    where = f"card {card.index}"
    reasons: list[str] = []
    memory_bytes = asked_bytes = None
    if share.memory is not None:
        asked_bytes = share.memory.on(card.total_bytes, card.reserved_bytes)
        memory_bytes = min(asked_bytes, card.grantable_bytes)
        reason = _memory_reason(card, asked_bytes)
        if isinstance(share.memory, MemoryShare) and share.memory.understates(card.total_bytes):
            reason = (
                f"{share.memory.numerator} of {share.memory.denominator} GiB asked, and the card"
                f" has {card.total_bytes // GIB}"
            )
        if reason:
            reasons.append(f"{where}: {reason}")
    for asked, held, what in (
        (share.quota, [tenant.quota for tenant in card.tenants], "of compute"),
        (share.quota_min, [tenant.quota_min for tenant in card.tenants], "guaranteed"),
    ):
        free = 100 - sum(percent or 0 for percent in held)
        if asked is not None and asked > free:
            reasons.append(
                f"{where}: {asked} % {what} asked, {max(0, free)} % free"
                f" ({_holders(card)} {100 - free} %)"
            )
    weight, reason = _weight(card, share)
    if reason:
        reasons.append(f"{where}: {reason}")
    reason = _promise_reason(card, share, weight)
    if reason and not reasons:
        reasons.append(f"{where}: {reason}")
    if len(card.tenants) >= card.max_inst:
        reasons.append(f"{where}: {_containers(card)}, and max_inst is {card.max_inst}")
    if card.mig:
        reasons.append(
            f"{where}: it is in MIG mode, and cgpu divides whole cards: `nvidia-smi -i"
            f" {card.uuid or card.index} -mig 0`, or another card"
        )
    if share.whole and card.tenants:
        reasons.append(f"{where}: the whole card asked, {_holders(card)} a part of it")
    if share.whole and card.overcommit_ratio > 100:
        reasons.append(
            f"{where}: the whole card asked, and its overcommit_ratio {card.overcommit_ratio} lets"
            " others beside it: ask for a part, or set it to 100 (/etc/cgpu/cards.toml)"
        )
    grant = CardGrant(
        index=card.index,
        memory_bytes=memory_bytes,
        asked_bytes=asked_bytes,
        weight=weight,
        quota=share.quota,
        quota_min=share.quota_min,
        priority=share.priority,
        policy=share.policy,
        uvm_disable=share.uvm_disable,
        oom_action=share.oom_action,
    )
    return grant, reasons


def format_mib(value_bytes: int) -> str:
    """Return *value_bytes* in whole MiB, rounded down, as nvidia-smi prints it."""
    return f"{value_bytes >> 20} MiB"


def _memory_reason(card: Card, asked_bytes: int) -> str | None:
    asked = format_mib(asked_bytes)
    if asked_bytes <= 0:
        return f"nothing is left of {format_mib(card.total_bytes)} after what is held back"
    if asked_bytes < MIB:
        return f"{asked_bytes} bytes asked, and the least is 1 MiB"
    if asked_bytes > card.nominal_bytes:
        return f"{asked} asked, {format_mib(card.nominal_bytes)} on the card"
    promised = f"{_holders(card)} {format_mib(card.allocated_bytes)}"
    short = card.grantable_bytes < max(MIB, asked_bytes / 2)
    most_bytes = card.nominal_bytes * card.overcommit_ratio // 100
    if short or card.allocated_bytes + asked_bytes > most_bytes:
        ratio = card.overcommit_ratio
        overcommit = f" at overcommit_ratio {ratio}" if ratio != 100 else ""
        return (
            f"{asked} asked, {format_mib(card.free_bytes)} free of"
            f" {format_mib(card.total_bytes)}{overcommit} ({promised})"
        )
    return None


def _weight(card: Card, share: CardShare) -> tuple[int | None, str | None]:
    """Return the weight to ask the door for (None: its default), and why there is none."""
    free = card.free_weight
    if share.weight_percent is not None:
        # Rounding up must not refuse parts that fill the card.
        whole = card.max_inst * share.weight_percent
        asked = max(1, min(-(-whole // 100), max(free, whole // 100)))
    elif share.weight is not None:
        asked = share.weight
    elif free or (share.quota is None and share.quota_min is None):
        return None, None
    else:
        return (
            None,
            f"free_weight is 0, and without a weight a quota gets no compute ({_held(card)})",
        )
    reason = f"weight {asked} asked, {free} free ({_held(card)})" if asked > free else None
    return asked, reason


def promised_ppm(max_inst: int, share: CardShare, weight: int | None) -> int:
    """Return the part of the card's compute that *share* promises whatever other containers do."""
    own = 0
    if share.policy == MIXED and share.quota is not None:
        own = share.quota * _PPM // 100
    elif share.policy in (AVERAGE, FIXED):
        own = (1 if share.policy == AVERAGE else weight or 1) * _PPM // max_inst
        own = min(own, (share.quota or 100) * _PPM // 100)
    elif share.quota_min is not None:
        own = share.quota_min * _PPM // 100
    elif share.policy in (WEIGHTED, WEIGHTED_CONSERVING, BURST, ONLINE) and weight is not None:
        own = min(weight * _PPM // max_inst, (share.quota or 100) * _PPM // 100)
    return own


def _promise_reason(card: Card, share: CardShare, weight: int | None) -> str | None:
    asked = promised_ppm(card.max_inst, share, weight)
    # Alone on the card it is under its own policy.
    native = card.policy == NATIVE and bool(card.tenants) and not card.policy_by_hand
    if native and (asked or share.quota is not None or share.priority):
        return (
            f"a part of the compute asked, and the card has policy {_policy(NATIVE)} for"
            f" {_containers(card)} on it, which enforces no part;"
            f" set another policy by hand (cgpu policy {card.index} {POLICIES[MIXED]})"
        )
    held = sum(one.promised_ppm or (one.quota_min or 0) * _PPM // 100 for one in card.tenants)
    if asked and asked > _PPM - held:
        return (
            f"{_percent(asked)} % of compute asked, {_percent(max(0, _PPM - held))} % free"
            f" ({_holders(card)} {_percent(held)} %)"
        )
    return None


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.4g}"


def _policy(number: int) -> str:
    return f"{number} {POLICIES[number]}" if 0 <= number < len(POLICIES) else str(number)


def _policy_note(card: Card, grant: CardGrant) -> list[str]:
    """Say whether the card gets the policy that a request's words mean."""
    if grant.policy is None or grant.policy == card.policy:
        return []
    asked, now = _policy(grant.policy), _policy(card.policy)
    if card.policy_by_hand:
        stays = "was set by hand"
    elif card.tenants:
        stays = f"is that of the {_containers(card)} on it"
    else:
        return [
            f"card {card.index}: policy {asked} in place of {now}, as this container asks, until"
            " the card's last container goes"
        ]
    return [
        f"card {card.index}: policy {asked} asked; {now} stays, which {stays}, and this container"
        " has what it asks for within it"
    ]


def _held(card: Card) -> str:
    return f"{_holders(card)} {card.max_inst - card.free_weight} of max_inst {card.max_inst}"


def _short(card: Card, grant: CardGrant) -> list[str]:
    short = []
    if grant.asked_bytes is not None and grant.memory_bytes != grant.asked_bytes:
        granted = format_mib(grant.memory_bytes or 0)
        if card.free_bytes > card.usable_bytes:
            why = f"{granted} granted, which is all that the card has"
        else:
            why = (
                f"the last {granted} of the card granted: of its"
                f" {format_mib(card.promisable_bytes)} {_holders(card)}"
                f" {format_mib(card.allocated_bytes)}"
            )
        short.append(f"card {card.index}: {format_mib(grant.asked_bytes)} asked, {why}")
    if not card.free_weight and grant.weight is None:
        short.append(f"card {card.index}: free_weight is 0: weight 0, which gets no compute")
    return short


def _containers(card: Card) -> str:
    number = len(card.tenants)
    return f"{number} container" if number == 1 else f"{number} containers"


def _holders(card: Card) -> str:
    return f"{_containers(card)} {'holds' if len(card.tenants) == 1 else 'hold'}"


def _indexes(cards: Iterable[Card]) -> str:
    return ",".join(str(card.index) for card in cards)
