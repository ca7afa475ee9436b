# SPDX-License-Identifier: MIT
"""
What containers may ask for on this node: ``/etc/cgpu/policy.toml``.

A container's environment mixes its image's ENV lines with the operator's variables. So by default
the environment may only ask for what binds the container itself. Whatever takes from neighbours, or
overrides the operator, needs an annotation, which no image can set, or permission in this file. Its
tables ``[[group]]`` say which users and pods may join which group: :mod:`.group_rule`::

    [environment]
    allow = ["weight"]          # of weight, priority, policy, quota_min, disable, group
    deny = ["oom_script"]       # idle_park, or ["*"]: annotations alone count

    [node]
    without_bridge = "warn"     # a quota or weight that nobody enforces: "refuse" unless told so

    [maximum]                   # of what any container may ask, each card
    memory = "24GiB"
    quota = 80
    weight = 4
    priority = 1
    idle_park = "1h"            # whoever is idle for longer may be parked for others

    [default]                   # what a container has that asks for nothing
    idle_park = "10m"           # unless told so, that of [maximum]
"""

from __future__ import annotations

from ..errors import RequestError

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NamedTuple

    from .group_rule import Asker, Rule
    from .model import Grant, Refusal
else:
    from .record import Record as NamedTuple

PATH = "/etc/cgpu/policy.toml"
#: The variables of all dialects that each word stands for.
VARIABLES = {
    "weight": ("CGPU_WEIGHT", "ALIYUN_COM_GPU_SCHD_WEIGHT"),
    "priority": (
        "CGPU_PRIORITY",
        "ALIYUN_COM_GPU_HIGH_PRIO",
        "GPU_CONTAINER_PRIORITY",
        "nvidia.com/priority",
    ),
    "policy": ("CGPU_POLICY", "GPU_POLICY", "vke.volcengine.com/mgpu-compute-policy"),
    "quota_min": ("CGPU_QUOTA_MIN",),
    "disable": (
        "CGPU_DISABLE",
        "CUDA_DISABLE_CONTROL",
        "GPU_CORE_UTILIZATION_POLICY",
        "ALIYUN_COM_GPU_VISIBLE_DEVICES",
    ),
    "oom_script": ("CGPU_OOM_SCRIPT", "ALIYUN_COM_GPU_OOM_SCRIPT"),
    "group": ("CGPU_GROUP",),
    "idle_park": ("CGPU_IDLE_PARK",),
}
ALL = "*"
#: Words that an environment may not use unless the file allows them.
DENIED = ("weight", "priority", "policy", "quota_min", "disable", "group")
REFUSE, WARN = "refuse", "warn"
#: Settings that may have a maximum, and those that may have a default.
NUMBERS = ("quota", "weight", "priority")
MAXIMA = ("memory", *NUMBERS, "idle_park")
DEFAULTS = ("idle_park",)


class Permit(NamedTuple):
    """
    The permissions of a node.

    denied: words of :data:`VARIABLES` that an environment may not use.
    annotations_only: an environment may ask for nothing at all.
    without_bridge: a quota or weight is refused where nothing enforces it, or logged: ``warn``.
    memory_bytes, quota, weight, priority: maxima for each card; None: none.
    groups: which users and pods may join which group.
    idle_park_most_s: the longest idle time before a container may be parked; None: no bound.
    idle_park_s: the idle time of a container that sets none.
    """

    denied: tuple[str, ...] = DENIED
    annotations_only: bool = False
    without_bridge: str = REFUSE
    memory_bytes: int | None = None
    quota: int | None = None
    weight: int | None = None
    priority: int | None = None
    groups: tuple[Rule, ...] = ()
    idle_park_most_s: int | None = None
    idle_park_s: int | None = None

    def check_join(self, asker: Asker) -> None:
        """Raise RequestError if a user or pod may not join a group."""
        if self.groups:
            from . import group_rule

            group_rule.check(self.groups, asker, PATH)

    def denies(self, variable: str, value: str) -> str | None:
        """Return the word by which an environment may not set *variable* so, or None."""
        if variable == "EGPU" and "ONLINE=1" in value.partition(":")[0].split(","):
            return "priority" if "priority" in self.denied else None
        for word in self.denied:
            if variable in VARIABLES[word]:
                return word
        return None

    def check(self, asked: Mapping[str, str]) -> None:
        """Raise RequestError if a user other than root asks by our variables for what is denied."""
        for key, value in asked.items():
            if self.annotations_only:
                raise RequestError(
                    f"{key}={value!r}: root alone asks for anything on this node ({PATH})",
                    key,
                    value,
                )
            word = self.denies(key, value)
            if word is not None:
                raise RequestError(
                    f"{key}={value!r}: it takes from others, and is root's to ask for; allow"
                    f" {word!r} in {PATH}",
                    key,
                    value,
                )

    def bounded(self, found: Grant | Refusal, parks: Callable[[], bool]) -> Grant | Refusal:
        """
        Return the decision *found* with the node's defaults, or a refusal of a request above the
        node's maxima.

        Args:
            parks: tells whether the door parks containers; called only if that matters.
        """
        from .model import Grant, Refusal

        if not isinstance(found, Grant):
            return found
        found = self._with_defaults(found, parks)
        exceeded = self.exceeded(found)
        return Refusal(exceeded) if exceeded else found

    def _with_defaults(self, grant: Grant, parks: Callable[[], bool]) -> Grant:
        idle_park_s = self.idle_park_s
        if idle_park_s is None or any(card.idle_park_s is not None for card in grant.cards):
            return grant
        if not parks():
            from .idle_time import shown

            note = f"idle park {shown(idle_park_s)} of {PATH} does not hold: this door cannot park"
            return grant._replace(notes=(*grant.notes, note))
        cards = tuple(card._replace(idle_park_s=idle_park_s) for card in grant.cards)
        return grant._replace(cards=cards)

    def exceeded(self, grant: Grant) -> tuple[str, ...]:
        """Return, in numbers, where *grant* is more than a container may have here."""
        from .admission import format_mib

        reasons = []
        for card in grant.cards:
            where = f"card {card.index}: "
            if self.memory_bytes is not None and (
                card.memory_bytes is None or card.memory_bytes > self.memory_bytes
            ):
                asked = "all" if card.memory_bytes is None else format_mib(card.memory_bytes)
                reasons.append(f"{where}{asked} memory, {_at_most(format_mib(self.memory_bytes))}")
            # Without a quota of its own a container may have the whole card.
            quota = 100 if card.quota is None else card.quota
            if self.quota is not None and quota > self.quota:
                reasons.append(f"{where}quota {quota} %, {_at_most(f'{self.quota} %')}")
            for word, most in (("weight", self.weight), ("priority", self.priority)):
                asked_number = getattr(card, word) or 0
                if most is not None and asked_number > most:
                    reasons.append(f"{where}{word} {asked_number}, {_at_most(most)}")
            if self.idle_park_most_s is not None and card.idle_park_s is not None:
                from .idle_time import shown

                if not 0 < card.idle_park_s <= self.idle_park_most_s:
                    most_s = shown(self.idle_park_most_s)
                    reasons.append(
                        f"{where}idle park {shown(card.idle_park_s)}, {_at_most(most_s)}"
                    )
        return tuple(reasons)


def _at_most(bound: object) -> str:
    return f"a container may have {bound} on this node ({PATH})"


DEFAULT = Permit()


def load(path: str = PATH) -> Permit:
    """
    Return the permissions in *path*; the defaults if there is no such file.

    Raises:
        RequestError: the file cannot be read or has an unknown setting. Then no container with a
            request starts, because the file's author meant to restrict.
    """
    try:
        with open(path, "rb") as file:
            # Imported here, because most hosts have no such file and tomllib takes milliseconds.
            import tomllib

            text = tomllib.load(file)
    except FileNotFoundError:
        if _is_there(path):
            raise RequestError(f"{path}: a link to a file that is not there") from None
        return DEFAULT
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise RequestError(f"{path}: {error}") from None
    return parse(text, path)


def _is_there(path: str) -> bool:
    import posix

    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def parse(text: Mapping[str, object], path: str = PATH) -> Permit:
    """Return a policy file's permissions; raise RequestError naming an unknown setting."""
    _only(text, ("environment", "node", "maximum", "default", "group"), path)
    groups: tuple[Rule, ...] = ()
    if "group" in text:
        from . import group_rule

        groups = group_rule.parse(text["group"], path)
    node = _table(text, "node", path)
    _only(node, ("without_bridge",), f"{path}: [node]")
    without_bridge = node.get("without_bridge", REFUSE)
    if without_bridge not in (REFUSE, WARN):
        raise RequestError(f"{path}: without_bridge = {without_bridge!r}: write {REFUSE} or {WARN}")
    environment = _table(text, "environment", path)
    _only(environment, ("allow", "deny"), f"{path}: [environment]")
    allow = _words(environment, "allow", path)
    deny = _words(environment, "deny", path)
    both = sorted(set(allow) & set(deny))
    if both:
        raise RequestError(f"{path}: {both[0]!r} is both allowed and denied; keep one of them")
    maximum = _table(text, "maximum", path)
    _only(maximum, MAXIMA, f"{path}: [maximum]")
    numbers = {key: _number(maximum, key, path) for key in NUMBERS}
    idle_park_most_s = _idle_park(maximum, "maximum", path)
    if idle_park_most_s == 0:
        raise RequestError(f"{path}: [maximum] idle_park is never: leave it out")
    default = _table(text, "default", path)
    _only(default, DEFAULTS, f"{path}: [default]")
    idle_park_s = _idle_park(default, "default", path)
    if idle_park_s is None:
        idle_park_s = idle_park_most_s
    elif idle_park_most_s is not None and not 0 < idle_park_s <= idle_park_most_s:
        raise RequestError(f"{path}: [default] idle_park is more than that of [maximum]")
    memory_bytes = None
    if "memory" in maximum:
        from .size import parse_bytes

        try:
            memory_bytes = parse_bytes(str(maximum["memory"]))
        except ValueError as error:
            raise RequestError(f"{path}: [maximum] memory: {error}") from None
    everything = ALL in allow
    return Permit(
        denied=tuple(
            word
            for word in VARIABLES
            if (word in DENIED and not everything and word not in allow) or word in deny
        ),
        annotations_only=ALL in deny,
        without_bridge=str(without_bridge),
        memory_bytes=memory_bytes,
        quota=numbers["quota"],
        weight=numbers["weight"],
        priority=numbers["priority"],
        groups=groups,
        idle_park_most_s=idle_park_most_s,
        idle_park_s=idle_park_s or None,
    )


def _only(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise RequestError(f"{where}: {key!r} is unknown; known are {', '.join(known)}")


def _table(text: Mapping[str, object], key: str, path: str) -> dict[str, object]:
    table = text.get(key, {})
    if not isinstance(table, dict):
        raise RequestError(f"{path}: {key} is not a table; write [{key}]")
    return table


def _words(table: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    listed = table.get(key, [])
    words = (*VARIABLES, ALL)
    # A word may be a list, which is in no dict.
    if not isinstance(listed, list) or any(word not in words for word in listed):
        known = ", ".join(words)
        raise RequestError(f"{path}: [environment] {key} = {listed!r}: list of {known}")
    return tuple(listed)


def _idle_park(table: Mapping[str, object], name: str, path: str) -> int | None:
    if "idle_park" not in table:
        return None
    from .idle_time import parse_seconds

    try:
        return parse_seconds(str(table["idle_park"]))
    except ValueError as error:
        raise RequestError(f"{path}: [{name}] idle_park: {error}") from None


def _number(table: Mapping[str, object], key: str, path: str) -> int | None:
    number = table.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise RequestError(f"{path}: [maximum] {key} = {number!r}: write a whole number")
    return number
