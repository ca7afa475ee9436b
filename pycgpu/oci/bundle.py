# SPDX-License-Identifier: MIT
"""An OCI bundle's ``config.json``, and the request of the container that it describes."""

from __future__ import annotations

import posix

from .. import dialects, json_text
from ..errors import HookError, RequestError
from ..request import permit

# typing's name for it, which type checkers know; importing typing would cost too much here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from ..request.model import Request


#: The annotations by which CRI engines mark the container that only holds a pod's namespaces. It
#: has the pod's annotations too, and would take a share of its own.
SANDBOX = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")


#: The annotations with a pod's namespace.
NAMESPACES = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
#: Settings that a CDI device of one container brings, as options of the hook in it.
GIVEN = "--set"
#: A setting for the container of this name alone, ``NAME:KEY=VALUE``. An init container passes its
#: device on to a later one, and only the engine tells which of them this is.
GIVEN_TO = "--set-for"
CONTAINER_NAMES = ("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
#: The uid of the pod for which that device was made: an engine may have read it for another's.
FOR_POD = "--pod"
POD_UIDS = ("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")
#: Of NVIDIA's devices; its minors below 254 are cards, by their index.
NVIDIA_MAJOR = 195
#: Every container with a card gets these. The module opens nvidia-uvm-tools to no container.
CONTROL_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_CARD_MINORS = range(254)
#: The CDI specification of NVIDIA's toolkit sets this, so that its runtime adds no cards. The
#: container's cards are then those whose nodes CDI brought.
VOID = "NVIDIA_VISIBLE_DEVICES=void"
#: In the names of the hooks by which NVIDIA's toolkit brings cards.
_TOOLKITS = "nvidia-c"
#: The tenant that the container is of, together with others.
TENANT = "--tenant"
HOOK = "cgpu-hook"
#: By these crun opens a file of the host's, as root, and has hooks write there.
HOOK_OUTPUT = "run.oci.hooks."


def load_config(bundle: str) -> dict[str, object]:
    """Return ``config.json`` of *bundle*; raise HookError if there is none to read."""
    path = f"{bundle}/config.json"
    try:
        with open(path, encoding="utf-8") as file:
            config = json_text.loads(file.read())
    except OSError as error:
        raise HookError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise HookError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise HookError(f"{path}: not a JSON object")
    return config


def hook_output(annotations: object) -> str | None:
    """Return the annotation by which hooks write to a file that it names, or None."""
    return next(
        (
            str(key)
            for key in (annotations if isinstance(annotations, dict) else {})
            if str(key).startswith(HOOK_OUTPUT)
        ),
        None,
    )


def check_hook_output(config: dict[str, object]) -> None:
    """Raise HookError if a container with a request would have our hook write to its file."""
    name = hook_output(config.get("annotations"))
    if name is not None:
        raise HookError(
            f"the annotation {name} has crun write, as root, to a file of the host's: leave it out"
        )


def check_annotations(bundle: str, config: dict[str, object]) -> None:
    """Raise HookError if its image may have set an annotation that counts as the operator's."""
    annotations = config.get("annotations")
    if not isinstance(annotations, dict):
        return
    counting = [
        key
        for key in annotations
        if (key in SANDBOX and annotations[key] == "sandbox")
        or str(key).startswith((dialects.OPERATOR, *dialects.ANNOTATION_PREFIXES))
    ]
    check_given(bundle, config, counting)


def check_given(bundle: str, config: dict[str, object], counting: Collection[str]) -> None:
    """Raise HookError if its image may have set one of these annotations."""
    annotations = config.get("annotations")
    if counting and isinstance(annotations, dict):
        # Most containers have none, and need not wait for this.
        from . import image

        root: object = config.get("root")
        path = root.get("path") if isinstance(root, dict) else None
        given = {key: annotations[key] for key in counting if key in annotations}
        image.check(bundle, given, path)


def request_of(
    config: dict[str, object], allowed: permit.Permit = permit.DEFAULT
) -> Request | None:
    """Return the permitted request of the container of an OCI *config*; None: it has none."""
    process = config.get("process")
    env = process.get("env") if isinstance(process, dict) else None
    if env is not None and not isinstance(env, list):
        raise RequestError("process.env is not a list")
    annotations = config.get("annotations")
    given = _given(config)
    if not given and isinstance(annotations, dict) and _is_sandbox(annotations):
        return None
    if given:
        annotations = {**(annotations if isinstance(annotations, dict) else {}), **given}
    cards, privileged = given_cards(config)
    if cards:
        env = [entry for entry in env or [] if entry != VOID]
    settings = dialects.settings(env or [], annotations, allowed)
    settings.pop(dialects.CONTAINER, None)
    named = said(config, CONTAINER_NAMES)
    if named:
        settings[dialects.CONTAINER] = ",".join(sorted(named))
    request = dialects.request_from(settings)
    told = cards or privileged
    if request is not None and request.only_given and not (request.selectors or told):
        return None
    if request is None and given:
        raise RequestError(
            f"{dialects.DISABLE} would take off the limits of the device that the container was"
            " given: leave it out"
        )
    # The cards of a device with settings are these, also where its container has fewer nodes.
    if request is None or given or privileged or not cards:
        return request
    # A number of cards is chosen elsewhere; as many nodes are that choice.
    if request.selectors is None and request.count in (None, len(cards)):
        return request._replace(selectors=cards)
    return request._replace(nodes=cards)


def check_card(config: dict[str, object]) -> None:
    """
    Raise RequestError if a container without a request names a card that nothing brings it.

    Vendors' products start it with the whole card; here it would silently start without one.
    """
    process, hooks = config.get("process"), config.get("hooks")
    env = process.get("env") if isinstance(process, dict) else None
    if given_cards(config) != ((), False) or not isinstance(env, list):
        return
    stages = hooks.values() if isinstance(hooks, dict) else ()
    entries = [entry for stage in stages if isinstance(stage, list) for entry in stage]
    if any(_TOOLKITS in str(entry.get("path")) for entry in entries if isinstance(entry, dict)):
        return
    own = dict(str(entry).partition("=")[::2] for entry in env)
    key = dialects.means_a_card(own)
    if key is not None:
        raise RequestError(
            f"{key}={own[key]!r} asks for no part of a card, and brings none. Write"
            " CGPU_MEM=max in its place for the whole card, or NVIDIA_VISIBLE_DEVICES=none and no"
            f" {dialects.COUNT} for no card",
            key,
            own[key],
        )


def _is_sandbox(annotations: dict[object, object]) -> bool:
    """Tell whether all present marks say so: under one engine a pod may set another's mark."""
    kinds = [annotations[key] for key in SANDBOX if key in annotations]
    return bool(kinds) and all(kind == "sandbox" for kind in kinds)


def given_cards(config: dict[str, object]) -> tuple[tuple[int, ...], bool]:
    """
    Return the cards whose nodes the engine gives to the container, by --device or CDI, and whether
    it is privileged. A privileged container gets the nodes of all cards, asked for or not.
    """
    linux = config.get("linux")
    if not isinstance(linux, dict):
        return (), False
    resources, devices = linux.get("resources"), linux.get("devices")
    rules = resources.get("devices") if isinstance(resources, dict) else None
    privileged = any(
        isinstance(rule, dict)
        and rule.get("allow") is True
        and rule.get("type") in (None, "a")
        and "w" in str(rule.get("access", "rwm"))
        for rule in (rules if isinstance(rules, list) else [])
    )
    cards = [
        node["minor"]
        for node in (devices if isinstance(devices, list) else [])
        if isinstance(node, dict)
        and (node.get("type"), node.get("major")) == ("c", NVIDIA_MAJOR)
        and node.get("minor") in _CARD_MINORS
    ]
    return tuple(dict.fromkeys(cards)), privileged


def _given(config: dict[str, object]) -> dict[str, str]:
    """Return the settings that our hook's entry carries, as annotations of the operator's."""
    hooks = config.get("hooks")
    entries = hooks.get("createRuntime") if isinstance(hooks, dict) else None
    found: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else []:
        words = entry.get("args") if isinstance(entry, dict) else None
        if not isinstance(words, list) or str(entry.get("path")).rpartition("/")[2] != HOOK:
            continue
        if (GIVEN in words or GIVEN_TO in words) and found:
            # Neither device's limits hold for the whole container.
            raise RequestError(
                "the container has parts of two claims, or two devices of its own: put the requests"
                " of both into one claim"
            )
        pairs = [(word, str(words[at + 1])) for at, word in enumerate(words[:-1])]
        found |= _setting([value for word, value in pairs if word == GIVEN])
        found |= _setting(_of_this([value for word, value in pairs if word == GIVEN_TO], config))
        for word, value in pairs:
            if word == FOR_POD and said(config, POD_UIDS) - {value}:
                raise RequestError(
                    f"its device was made for pod {value}: the engine has not read its own yet, and"
                    " is asked again"
                )
    return found


def _setting(words: list[str]) -> dict[str, str]:
    parted = (word.partition("=") for word in words)
    return {dialects.OPERATOR + key: text for key, _, text in parted}


def _of_this(words: list[str], config: dict[str, object]) -> list[str]:
    """Return those settings that are for a container of this one's name."""
    parted = [word.partition(":") for word in words]
    names = {name for name, _, _ in parted}
    these = said(config, CONTAINER_NAMES)
    if names and (len(these) != 1 or not these <= names):
        raise RequestError(
            f"its device is for {', '.join(sorted(names))}, and the engine says that this is"
            f" {' and '.join(sorted(these)) or 'nobody of them'}"
        )
    return [setting for name, _, setting in parted if name in these]


def said(config: dict[str, object], keys: tuple[str, ...]) -> set[str]:
    """Return the values that the container's engine, or the pod, gave these annotations."""
    annotations = config.get("annotations")
    given = annotations if isinstance(annotations, dict) else {}
    return {str(given[key]) for key in keys if key in given}


def names(config: dict[str, object], variable: str) -> bool:
    """Tell whether the container's environment or an annotation of the operator sets *variable*."""
    process, annotations = config.get("process"), config.get("annotations")
    env = process.get("env") if isinstance(process, dict) else None
    if isinstance(env, list) and any(str(entry).startswith(f"{variable}=") for entry in env):
        return True
    return isinstance(annotations, dict) and dialects.OPERATOR + variable in annotations


def save_config(bundle: str, config: dict[str, object]) -> None:
    """Replace the bundle's config.json in one step, with the mode and owner that it had."""
    path = f"{bundle}/config.json"
    draft = f"{path}.cgpu"
    try:
        status = posix.stat(path)
        with open(draft, "w", encoding="utf-8") as file:
            file.write(json_text.dumps(config))
        posix.chmod(draft, status.st_mode & 0o7777)
        posix.chown(draft, status.st_uid, status.st_gid)
        posix.rename(draft, path)
    except OSError as error:
        raise HookError(f"{path}: {error.strerror}") from None
