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

#: (module, name for people, the settings by which a container speaks this dialect).
DIALECTS = (
    (
        "alibaba_egpu",
        "Alibaba eGPU",
        ("AMP_VGPU_ENABLE",),
    ),
    (
        "alibaba_cgpu",
        "Alibaba cGPU",
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "ALIYUN_COM_GPU_VISIBLE_DEVICES"),
    ),
    ("ctyun_egpu", "CTyun eGPU", ("EGPU",)),
    (
        "volcengine_mgpu",
        "Volcengine mGPU",
        (
            "emr.serverless.mgpu.core",
            "emr.serverless.mgpu.memory",
            "vke.volcengine.com/mgpu-core",
            "vke.volcengine.com/mgpu-memory",
        ),
    ),
    (
        "huawei_xgpu",
        "Huawei xGPU",
        ("GPU_CONTAINER_MEM", "GPU_CONTAINER_QUOTA_PERCENT"),
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
    ),
    (
        "cgpu",
        "cGPU",
        ("CGPU_*",),
    ),
)

DISABLE = "CGPU_DISABLE"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
#: Variables of our own form that ask for nothing by themselves; the second is CDI's.
NOT_ASKING = (DISABLE, "CGPU_CARD_")

#: Annotations are read only under these names: pods carry many that are none of ours.
ANNOTATION_PREFIXES = ("vke.volcengine.com/", "nvidia.com/", "emr.serverless.mgpu.")
#: ``cgpu.io/<variable>`` is that variable, set by whoever starts the container and by no image.
OPERATOR = "cgpu.io/"


def settings(
    env: Iterable[object], annotations: object = None, allowed: permit.Permit = permit.DEFAULT
) -> dict[str, str]:
    """
    Return a container's settings from OCI's ``process.env`` list and its annotations.

    An annotation ``cgpu.io/<variable>`` goes before that variable of the environment.

    Args:
        allowed: what an environment may set, see :mod:`pycgpu.request.permit`.

    Raises:
        RequestError: an entry is not text, an environment sets what it may not, or one of our
            settings is given twice with different values (which of them a process would see
            depends on its libc).
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
    for key, value in (annotations or {}).items():
        if isinstance(key, str) and key.startswith((OPERATOR, *ANNOTATION_PREFIXES)):
            if not isinstance(value, str):
                raise RequestError(f"annotation {key} is {value!r}, which is not text", key)
            operators[key.removeprefix(OPERATOR)] = value
    pairs = [(key, value) for key, value in pairs if OPERATOR + key not in (annotations or {})]
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
    return _is_ours(key) and key != _VISIBLE and not key.startswith("CGPU_CARD_")


def _check(
    pairs: list[tuple[str, str]], operators: Mapping[str, str], allowed: permit.Permit
) -> None:
    """Raise RequestError if an environment, which its image can set, asks for what it may not."""
    asking = [key for key, _ in pairs if _asks(key)]
    if allowed.annotations_only:
        if asking and not any(asked_by(operators, keys) for _, _, keys in DIALECTS):
            raise RequestError(
                f"{asking[0]} stands in the environment, which asks for nothing on this node"
                f" ({permit.PATH}); give it as the annotation {OPERATOR}{asking[0]}",
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
            f" give it as the annotation {OPERATOR}{key}, or allow {word!r} in {permit.PATH}",
            key,
            value,
        )


def _lifts(key: str, value: str, given: Mapping[str, str]) -> bool:
    """
    Tell whether ``key=value`` takes off a limit that stands beside it.

    Alone it lifts nothing, and images that are switched off must start where nobody limits them.
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
        limits = next(keys for module, _, keys in DIALECTS if module == "kubernetes")
        return asked_by(given, limits) is not None
    return any(_asks(other) and other != DISABLE for other in given)


def asked_by(env: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    """Return the first setting in *env* that *keys* names, or None; ``X*`` is a prefix."""
    for key in keys:
        if key[-1] == "*":
            for name in env:
                if name.startswith(key[:-1]) and not name.startswith(NOT_ASKING):
                    return name
        elif key in env:
            return key
    return None


def request_from(env: Mapping[str, str]) -> Request | None:
    """
    Return what a container asks for, or None when it asks for no limit in any dialect.

    Raises:
        ConflictError: two dialects ask at once.
        RequestError: a value cannot be read; the message quotes it.
    """
    off = disabled(env)
    requests: list[tuple[str, str, Request]] = []
    for module, name, keys in DIALECTS:
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
    return requests[0][2] if requests else None


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
