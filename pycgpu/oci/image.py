# SPDX-License-Identifier: MIT
"""
What an image sets for its container besides ENV: annotations, under Podman.

Podman (4.3.1, and up to 5; not later) adds an image's annotations to the container's own. There
they look like those given with ``--annotation``. Podman's storage has the image's manifest, and an
annotation in both may be the image's. Docker and containerd do not add an image's annotations.
"""

from __future__ import annotations

import posix

from .. import json_text
from ..errors import HookError

#: Names in an image's directory of storage: plain, and in base64.
_MANIFESTS = ("manifest", "=bWFuaWZlc3Q")
_SUFFIX = "-containers"
_RECORDS = ("containers.json", "volatile-containers.json")


def check(bundle: str, annotations: dict[str, object], root: object) -> None:
    """
    Raise HookError if one of *annotations* may be the image's, or the image cannot be read.

    Args:
        bundle: Podman's is ``<storage>/<driver>-containers/<id>/userdata``, beside its record of
            the container; CRI-O's is of the same form, and its record with the container's root.
        root: the container's root, ``<storage>/<driver>/…``, a path that no image chooses.
    """
    place, _, last = posix.fspath(bundle).rstrip("/").rpartition("/")
    place, _, container_id = place.rpartition("/")
    storage, _, kind = place.rpartition("/")
    if last != "userdata" or not kind.endswith(_SUFFIX):
        return
    image = _image_of(place, container_id)
    if image == "" or (image is None and _is_recorded_elsewhere(kind, container_id, root)):
        return
    images = f"{storage}/{kind.removesuffix(_SUFFIX)}-images"
    own = None if image is None else _annotations_of(f"{images}/{image}")
    for key, value in annotations.items():
        if own is None:
            raise HookError(
                f"the annotation {key} may be the image's, whose manifest is not in {images}: give"
                " it in the environment"
            )
        if (key, value) in own:
            raise HookError(
                f"the annotation {key}={value!r} is the image's own, and would count as the"
                " operator's: give another value, or make the image without"
            )


def _is_recorded_elsewhere(kind: str, container_id: str, root: object) -> bool:
    """Tell CRI-O's bundle, which lies apart from its storage, by that storage."""
    storage, driver, _ = str(root).rpartition(f"/{kind.removesuffix(_SUFFIX)}/")
    return bool(driver) and _image_of(f"{storage}/{kind}", container_id) is not None


def _image_of(place: str, container_id: str) -> str | None:
    """Return the id of a container's image; None: no such container, empty: it has no image."""
    for name in _RECORDS:
        try:
            with open(f"{place}/{name}", encoding="utf-8") as file:
                records = json_text.loads(file.read())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise HookError(f"{place}/{name}: {error}") from None
        for record in records if isinstance(records, list) else []:
            if isinstance(record, dict) and record.get("id") == container_id:
                return str(record.get("image", ""))
    return None


def _annotations_of(directory: str) -> set[tuple[str, object]] | None:
    """Return the annotations in all manifests of an image; None: there is no manifest."""
    found: set[tuple[str, object]] = set()
    seen = False
    try:
        for name in posix.listdir(directory):
            if not name.startswith(_MANIFESTS):
                continue
            with open(f"{directory}/{name}", encoding="utf-8") as file:
                manifest = json_text.loads(file.read())
            seen = True
            annotations = manifest.get("annotations") if isinstance(manifest, dict) else None
            if isinstance(annotations, dict):
                found.update((key, str(value)) for key, value in annotations.items())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise HookError(f"{directory}: {error}") from None
    return found if seen else None
