# SPDX-License-Identifier: MIT
"""
A kubelet's side of the CRI, as far as a pod with one container takes it.

gRPC is a POST over HTTP/2 of a message behind five bytes, which curl can send; the few messages are
written field by field, numbered as in ``api.proto`` of Kubernetes' cri-api v1.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from tests.vm.loaded import until

#: NamespaceMode: the container's own, the node's, another container's.
CONTAINER, NODE, TARGET = 1, 2, 3
EXITED = 2

Value = int | str | bytes


class CriError(Exception):
    """The engine refused; the text is its ``grpc-message``."""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def message(*fields: tuple[int, Value]) -> bytes:
    """Return a protobuf message of (field number, value); a message in it is bytes."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return out


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the (field number, value) of a protobuf message that has numbers, texts, messages."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = raw[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(raw):
        key = varint()
        size = varint()
        if key & 7 == 0:
            yield key >> 3, size
        elif key & 7 == 2:
            yield key >> 3, raw[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")


def archive(
    layer: Path, name: str, path: Path, command: Sequence[str] = ("sleep", "1000000")
) -> None:
    """Write an image of one *layer*, which runs *command*, as `docker save` does."""
    raw = layer.read_bytes()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(raw).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    with tarfile.open(path, "w") as tar:
        for file, content in (
            *((file, json.dumps(text).encode()) for file, text in files.items()),
            ("layer.tar", raw),
        ):
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


class Cri:
    """A CRI engine behind a socket; its files are kept in *directory*."""

    def __init__(self, socket: Path, directory: Path) -> None:
        self.socket = socket
        self.directory = directory

    def call(self, method: str, *request: tuple[int, Value]) -> bytes:
        """Return the answer to one call, or raise CriError with the engine's reason."""
        body = message(*request)
        sent, got, heads = (self.directory / name for name in ("sent", "got", "heads"))
        sent.write_bytes(b"\0" + len(body).to_bytes(4, "big") + body)
        got.unlink(missing_ok=True)
        heads.write_text("")
        subprocess.run(
            [
                *("curl", "--silent", "--http2-prior-knowledge"),
                *("--unix-socket", str(self.socket), "--data-binary", f"@{sent}"),
                *("-H", "content-type: application/grpc", "-H", "te: trailers"),
                *("--dump-header", str(heads), "--output", str(got), "--max-time", "300"),
                f"http://localhost/runtime.v1.RuntimeService/{method}",
            ],
            capture_output=True,
            check=False,
        )
        head = dict(line.split(": ", 1) for line in heads.read_text().splitlines() if ": " in line)
        if head.get("grpc-status") != "0":
            raise CriError(unquote(f"{method}: {head.get('grpc-message', head)}"))
        return got.read_bytes()[5:] if got.exists() else b""

    def answers(self) -> bool:
        """Tell whether the engine is there."""
        try:
            return bool(self.call("Version"))
        except CriError:
            return False


class Pod:
    """A pod in the node's network; made when it is entered, removed at the end."""

    def __init__(
        self, cri: Cri, name: str, handler: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        self.cri = cri
        self.handler = handler
        self.logs = cri.directory / name
        namespaces = message((1, NODE), (2, CONTAINER), (3, CONTAINER))
        self.config = message(
            (1, message((1, name), (2, f"{name}-uid"), (3, "default"))),
            (3, str(self.logs)),
            *((7, message(*item)) for item in _pairs(annotations or {})),
            (8, message((2, message((1, namespaces))))),
        )
        self.namespaces = namespaces

    def __enter__(self) -> Pod:
        self.logs.mkdir()
        answer = self.cri.call("RunPodSandbox", (1, self.config), (2, self.handler))
        self.id = dict(fields(answer))[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.cri.call("StopPodSandbox", (1, self.id))
        self.cri.call("RemovePodSandbox", (1, self.id))

    def run(
        self,
        image: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        mounts: Mapping[str, Path],
        annotations: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run a container to its end; return its exit status and its log."""
        container = self.start(image, command, environment, mounts, annotations)

        def status() -> dict[int, int | bytes]:
            answer = self.cri.call("ContainerStatus", (1, container))
            return dict(fields(dict(fields(answer))[1]))  # type: ignore[arg-type]

        until(lambda: status().get(3) == EXITED, "the container's end", deadline_s=120)
        return int(status().get(7, 0)), (self.logs / "main.log").read_text()

    def start(
        self,
        image: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        mounts: Mapping[str, Path],
        annotations: Mapping[str, str] | None = None,
        *,
        name: str = "main",
        target: bytes | None = None,
    ) -> bytes:
        """
        Start a container; return its id.

        Args:
            target: the container whose pid namespace it enters, as `kubectl debug --target` makes
                one.
        """
        namespaces = self.namespaces
        if target is not None:
            namespaces = message((1, NODE), (2, TARGET), (3, CONTAINER), (4, target))
        config = message(
            (1, message((1, name))),
            (2, message((1, image))),
            *((3, word) for word in command),
            *((6, message(*item)) for item in _pairs(environment)),
            *((7, message((1, inside), (2, str(path)), (3, 1))) for inside, path in mounts.items()),
            *((10, message(*item)) for item in _pairs(annotations or {})),
            (11, f"{name}.log"),
            (15, message((2, message((3, namespaces))))),
        )
        answer = self.cri.call("CreateContainer", (1, self.id), (2, config), (3, self.config))
        container = dict(fields(answer))[1]
        assert isinstance(container, bytes)
        self.cri.call("StartContainer", (1, container))
        return container


def _pairs(items: Mapping[str, str]) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    return (((1, key), (2, value)) for key, value in items.items())
