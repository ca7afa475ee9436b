# SPDX-License-Identifier: MIT
"""
From a container's environment to a :class:`~pycgpu.request.model.Request`.

One module a vendor, each with ``parse(env) -> Request | None``: pure, None when the vendor's own
rules say that nothing is limited. Annotations are settings too: :func:`settings` merges them.
"""

from __future__ import annotations

from ..errors import ConflictError, RequestError
from ..request import permit
from ..request.model import Request

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType
    from typing import Any

#: (module, name for people, the settings by which a container speaks this dialect, its others).
DIALECTS = (
    (
        "alibaba_egpu",
        "Alibaba eGPU",
        ("AMP_VGPU_ENABLE",),
        (
            "GPU_MEM_PER_DEVICE",
            "GPU_UTIL_PER_DEVICE",
            "ALIYUN_COM_GPU_MEM_RESERVED",
            "ALIYUN_COM_GPU_OOM_SCRIPT",
        ),
    ),
    (
        "alibaba_cgpu",
        "Alibaba cGPU",
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "ALIYUN_COM_GPU_VISIBLE_DEVICES"),
        (
            "ALIYUN_COM_GPU_MEM_DEV",
            "ALIYUN_COM_GPU_MEM_UNIT",
            "ALIYUN_COM_GPU_SCHD_WEIGHT",
            "ALIYUN_COM_GPU_HIGH_PRIO",
        ),
    ),
    ("ctyun_egpu", "CTyun eGPU", ("EGPU",), ()),
    (
        "volcengine_mgpu",
        "Volcengine mGPU",
        (
            "emr.serverless.mgpu.core",
            "emr.serverless.mgpu.memory",
            "vke.volcengine.com/mgpu-core",
            "vke.volcengine.com/mgpu-memory",
        ),
        ("vke.volcengine.com/mgpu-compute-policy", "vke.volcengine.com/container-multiple-gpu"),
    ),
    (
        "huawei_xgpu",
        "Huawei xGPU",
        ("GPU_CONTAINER_MEM", "GPU_CONTAINER_QUOTA_PERCENT"),
        ("GPU_IDX", "GPU_POLICY", "GPU_CONTAINER_PRIORITY"),
    ),
    (
        "kubernetes",
        "Kubernetes (HAMi)",
        (
            "CUDA_DEVICE_MEMORY_LIMIT*",
            "CUDA_DEVICE_SM_LIMIT*",
            "nvidia.com/gpumem",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/gpucores",
        ),
        (
            "nvidia.com/gpu",
            "nvidia.com/priority",
            "GPU_CORE_UTILIZATION_POLICY",
            "CUDA_DISABLE_CONTROL",
        ),
    ),
    (
        "kai",
        "KAI",
        ("gpu-fraction", "gpu-memory", "nvidia.com/container.*"),
        ("gpu-fraction-container-name", "gpu-fraction-num-devices"),
    ),
    (
        "volcano",
        "Volcano",
        (
            "volcano.sh/vgpu-memory",
            "volcano.sh/vgpu-memory-percentage",
            "volcano.sh/vgpu-cores",
        ),
        ("volcano.sh/vgpu-number",),
    ),
    (
        "koordinator",
        "Koordinator",
        (
            "koordinator.sh/gpu",
            "koordinator.sh/gpu-memory",
            "koordinator.sh/gpu-memory-ratio",
            "koordinator.sh/gpu-core",
        ),
        ("koordinator.sh/gpu.shared",),
    ),
    (
        "cgpu",
        "cGPU",
        ("CGPU_*",),
        (),
    ),
)

DISABLE = "CGPU_DISABLE"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
COUNT = "nvidia.com/gpu"
#: Other programs' names, too.
_SHARED = ("GPU_IDX", "GPU_POLICY")
#: CDI's variable, followed by an index; it asks for nothing by itself.
_CDI_CARD = "CGPU_CARD_"
#: Settings that ask for nothing and may accompany any request: eGPU's constant, and the notes of
#: Alibaba's device plugin on its choice.
HARMLESS = (
    "AMP_USE_HOST_DAEMON",
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_ASSIGNED",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
)
#: Prefixes that only one dialect uses, so an unknown setting with one is mistyped. The dialect of
#: ``CGPU_`` checks that prefix itself.
FAMILIES = (
    "ALIYUN_COM_GPU_",
    "AMP_VGPU_",
    "GPU_CONTAINER_",
    "emr.serverless.mgpu.",
    "vke.volcengine.com/mgpu-",
)

#: Annotations are read only under these names: pods carry many that are none of ours.
ANNOTATION_PREFIXES = (
    "vke.volcengine.com/",
    "nvidia.com/",
    "emr.serverless.mgpu.",
    "gpu-fraction",
    "gpu-memory",
    "kai.scheduler/gpu-",
    "volcano.sh/vgpu-",
    "koordinator.sh/gpu",
)
#: The container's name in its pod, where the engine tells one: no environment sets it.
CONTAINER = "io.kubernetes.container.name"
#: ``cgpu.io/<variable>`` is that variable, set by whoever starts the container and by no image.
OPERATOR = "cgpu.io/"
#: The group that a container joins, and the idle time after which it may be parked; both go with
#: any dialect.
GROUP = "CGPU_GROUP"
IDLE_PARK = "CGPU_IDLE_PARK"
#: Annotations that have a shorter name than their variable.
_SHORT = {"group": GROUP, "idle-park": IDLE_PARK}


def settings(
    env: Iterable[object], annotations: object = None, allowed: permit.Permit = permit.DEFAULT
) -> dict[str, str]:
    """
    Return a container's settings from OCI's ``process.env`` list and its annotations.

    An annotation ``cgpu.io/<variable>`` overrides that variable of the environment.

    Args:
        allowed: what an environment may set, see :mod:`pycgpu.request.permit`.

    Raises:
        RequestError: an entry is not text, an environment sets what it may not, an annotation
            ``cgpu.io/…`` is no setting, or one of our settings is given twice with different values
            (which of them a process would see depends on its libc).
    """
    found: dict[str, str] = {}
    twice: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for entry in env:
        if not isinstance(entry, str):
            raise RequestError(f"process.env holds {entry!r}, which is not text")
        key, equals, value = entry.partition("=")
        if equals:
            pairs.append((key, value))
    if annotations is not None and not isinstance(annotations, dict):
        raise RequestError(f"annotations are {type(annotations).__name__}, not a map")
    operators: dict[str, str] = {}
    given: set[str] = set()
    for key, value in (annotations or {}).items():
        if isinstance(key, str) and key.startswith((OPERATOR, *ANNOTATION_PREFIXES)):
            if not isinstance(value, str):
                raise RequestError(f"annotation {key} is {value!r}, which is not text", key)
            name = key.removeprefix(OPERATOR)
            if key != name:
                name = _SHORT.get(name, name)
            if key != name and not _is_setting(name):
                raise RequestError(
                    f"annotation {key} is no setting; give a variable by its own name, as in"
                    f" {OPERATOR}CGPU_MEM",
                    key,
                    value,
                )
            if key.startswith(OPERATOR):
                given.add(name)
            if operators.setdefault(name, value) != value:
                raise RequestError(
                    f"annotations give {name} as {operators[name]!r} and as {value!r}; keep one",
                    name,
                    value,
                )
    pairs = [(key, value) for key, value in pairs if key not in given]
    _check(pairs, operators, allowed)
    if allowed.annotations_only:
        pairs = [(key, value) for key, value in pairs if not _asks(key)]
    pairs += operators.items()
    # `docker run --gpus '"device=0"'` adds its list behind the `all` that the image has.
    if any(key == _VISIBLE and value != "all" for key, value in pairs):
        pairs = [pair for pair in pairs if pair != (_VISIBLE, "all")]
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            twice[key] = value
    for key, value in twice.items():
        if _is_ours(key):
            raise RequestError(f"{key} is given as {found[key]!r} and as {value!r}", key, value)
    return found


def _asks(key: str) -> bool:
    """A variable that asks for something; which cards a container sees is no request."""
    return _is_ours(key) and key != _VISIBLE and not key.startswith(_CDI_CARD)


def _check(
    pairs: list[tuple[str, str]], operators: Mapping[str, str], allowed: permit.Permit
) -> None:
    """Raise RequestError if an environment, which its image can set, asks for what it may not."""
    asking = [key for key, _ in pairs if _asks(key)]
    if allowed.annotations_only:
        if asking and not any(asked_by(operators, keys) for _, _, keys, _ in DIALECTS):
            raise RequestError(
                f"{asking[0]} stands in the environment, which asks for nothing on this node"
                f" ({permit.PATH}); {_as_annotation(asking[0])}, or take its deny out",
                asking[0],
            )
        return
    given = {**dict(pairs), **operators}
    for key, value in pairs:
        word = allowed.denies(key, value)
        if word is None or (word == "disable" and not _lifts(key, value, given)):
            continue
        raise RequestError(
            f"{key}={value!r}: an image could set it, so it does not count in the environment;"
            f" {_as_annotation(key)}{_LATER.get(word, '')}, or allow {word!r} in {permit.PATH}",
            key,
            value,
        )


#: Root's commands for a running container, by words of :mod:`pycgpu.request.permit`.
_LATER = {
    "weight": ", start it without and run `cgpu set NAME --weight N`",
    "priority": ", start it without and run `cgpu set NAME --priority N`",
    "quota_min": ", start it without and run `cgpu set NAME --quota-min N`",
    "policy": ", start it without and run `cgpu policy GPU POLICY`",
    "idle_park": ", start it without and run `cgpu set NAME --idle-park TIME`",
}


def _as_annotation(key: str) -> str:
    """Say how to give a setting as no image can; a Docker older than 24 has no way to."""
    name = next((short for short, variable in _SHORT.items() if variable == key), key)
    return (
        f"give it as the annotation {OPERATOR}{name} (--annotation of podman, and of docker from"
        " 24 on; a pod's)"
    )


def _lifts(key: str, value: str, given: Mapping[str, str]) -> bool:
    """
    Tell whether ``key=value`` removes a limit that is also given.

    Alone it removes nothing, and images with it must start where no limit is set.
    """
    if key == "ALIYUN_COM_GPU_VISIBLE_DEVICES":
        # Of a list the other cards have no limit then.
        return "ALIYUN_COM_GPU_MEM_CONTAINER" in given and given.get(_VISIBLE, "all") != "all"
    if key == "GPU_CORE_UTILIZATION_POLICY":
        limits: tuple[str, ...] = ("CUDA_DEVICE_SM_LIMIT*",)
        return value.lower() == "disable" and asked_by(given, limits) is not None
    if value.lower() in ("", "0", "false"):
        return False
    if key == "CUDA_DISABLE_CONTROL":
        limits = next(keys for module, _, keys, _ in DIALECTS if module == "kubernetes")
        return asked_by(given, limits) is not None
    return any(_asks(other) and other != DISABLE for other in given)


def asked_by(env: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    """Return the first setting in *env* that *keys* names, or None; ``X*`` is a prefix."""
    for key in keys:
        if key[-1] == "*":
            for name in env:
                if _names(key, name) and name != DISABLE and not name.startswith(_CDI_CARD):
                    return name
        elif key in env:
            return key
    return None


def _names(pattern: str, key: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern[-1] == "*" else key == pattern


def _owner(key: str) -> str | None:
    """Return the dialect that has the setting *key*, by its name for people, or None."""
    for _, name, keys, others in DIALECTS:
        if any(_names(pattern, key) for pattern in (*keys, *others)):
            return name
    return None


def _is_setting(key: str) -> bool:
    return key == _VISIBLE or key in HARMLESS or _owner(key) is not None


class _Noted(dict[str, str]):
    """Settings that remember which of them were read."""

    def __init__(self, env: Mapping[str, str]) -> None:
        super().__init__(env)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def request_from(env: Mapping[str, str]) -> Request | None:
    """
    Return a container's request, or None if it asks for no limit in any dialect.

    A group, and parking when idle, are asked for beside a request in any dialect, or alone: then
    for the whole card.

    With a request, each setting of any dialect must have been read for it. Otherwise a user would
    believe in a limit without effect. Settings that only remove limits are exempt.

    Raises:
        ConflictError: two dialects ask at once, or a setting has no effect beside what asks.
        RequestError: a value cannot be read, or a setting is not known; the message quotes it.
    """
    _check_families(env)
    beside = {key: env[key] for key in (GROUP, IDLE_PARK) if key in env}
    env = noted = _Noted({key: value for key, value in env.items() if key not in beside})
    off = disabled(env)
    requests: list[tuple[str, str, Request]] = []
    for module, name, keys, _ in DIALECTS:
        key = asked_by(env, keys)
        if key is None or (off and module in ("alibaba_cgpu", "alibaba_egpu", "cgpu")):
            continue
        request = _dialect(module).parse(env)
        if request is not None:
            requests.append((name, key, request))
    if off and requests:
        name, key, _ = requests[0]
        raise ConflictError(
            f"{DISABLE}={env[DISABLE]!r} contradicts {key} ({name}); remove one of them"
        )
    if len(requests) > 1:
        (name, key, _), (other, other_key, _) = requests[:2]
        raise ConflictError(
            f"{key} ({name}) and {other_key} ({other}) ask at once; keep one of them"
        )
    if not requests and beside and not off:
        # Of a pod's containers those with a card are meant.
        alone = _dialect("cgpu").parse(env)._replace(only_given=CONTAINER in env)
        requests = [("cGPU", next(iter(beside)), alone)]
    if not requests:
        return None
    name, key, request = requests[0]
    for idle in env:
        if idle in noted.read or not _asks(idle) or idle in permit.VARIABLES["disable"]:
            continue
        owner = _owner(idle)
        if owner is not None:
            raise ConflictError(
                f"{idle}={env[idle]!r} ({owner}) has no effect beside {key} ({name}); leave it out"
            )
    if IDLE_PARK in beside:
        request = request._replace(idle_park_s=_dialect("cgpu").idle_park_s(beside))
    return request._replace(group=beside.get(GROUP))


def means_a_card(env: Mapping[str, str]) -> str | None:
    """
    Return the setting by which a container without a request should get whole cards, or None.

    ``nvidia.com/gpu`` means that itself. A vendor's switch that is off means it for the cards in
    NVIDIA_VISIBLE_DEVICES. A name that other programs use, too, does not count.
    """
    if env.get(COUNT, "0") != "0":
        return COUNT
    if env.get(_VISIBLE, "none") in ("", "none", "void"):
        return None
    return next(
        (key for key in env if key not in _SHARED and _asks(key) and _owner(key) is not None), None
    )


def _check_families(env: Mapping[str, str]) -> None:
    from .value import fail

    for key, value in env.items():
        if key.startswith(FAMILIES) and not _is_setting(key):
            known = [
                setting
                for _, _, keys, others in DIALECTS
                for setting in (*keys, *others)
                if any(key.startswith(one) and setting.startswith(one) for one in FAMILIES)
            ]
            raise fail(key, value, f"unknown; known are {', '.join(known)}")


def _dialect(module: str) -> ModuleType:
    # importlib.import_module() does the same, but is itself a package to import.
    return __import__(f"{__name__}.{module}", fromlist=["parse"])


def disabled(env: Mapping[str, str]) -> bool:
    """
    Tell whether ``CGPU_DISABLE`` switches cGPU off for this container.

    Raises:
        RequestError: its value is neither 1, true, 0, false nor empty.
    """
    from .value import switch

    return bool(switch(env, DISABLE))


def _is_ours(key: str) -> bool:
    return key.startswith(
        (
            "ALIYUN_COM_GPU_",
            "AMP_",
            "GPU_",
            "CGPU_",
            "EGPU",
            "CUDA_DEVICE_",
            "CUDA_DISABLE_CONTROL",
            _VISIBLE,
            *ANNOTATION_PREFIXES,
        )
    )
