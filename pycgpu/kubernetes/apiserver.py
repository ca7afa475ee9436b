# SPDX-License-Identifier: MIT
"""
The few things that a node's agent asks the API server: its pods, and its own node's status.

There is no client library here, because one costs every node more than these few calls. Importing
this file takes 43 ms of processor time and 18 MiB. lightkube 1.0.1 takes 145 ms and 30 MiB, kr8s
0.20.15 248 ms and 42 MiB, and each brings some fifteen packages (2026-11-29, Python 3.11). Neither
has two things that are needed here. A server that does not answer is asked only once within a
kubelet's call, and a watch that falls silent ends.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from ..errors import CgpuError
from .families import quantity

#: Where a pod finds its service account.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_S = 10.0
#: After that long the server ends a watch, and a new one begins.
WATCH_S = 300
MERGE = "application/merge-patch+json"
#: Of a list with keys, such as conditions, it changes those that it names.
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
RESOURCES = "/apis/resource.k8s.io/v1"


class ApiError(CgpuError):
    """The API server cannot be asked, or refuses; ``code`` is HTTP's, 0 where it did not answer."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Access(NamedTuple):
    """How to reach the API server; read again for each call, as tokens are renewed in place."""

    url: str
    token_file: str = f"{ACCOUNT}/token"
    ca_file: str = f"{ACCOUNT}/ca.crt"

    def call(self, method: str, path: str, body: object = None, kind: str = MERGE) -> Any:
        """
        Return the answer to one call.

        Raises:
            ApiError: there is none, or it is a refusal.
        """
        with contextlib.closing(Session(self)) as session:
            return session.call(method, path, body, kind)

    def watch(self, path: str, version: str) -> Iterator[Any]:
        """
        Yield the changes from *version* on, until the server ends the watch.

        Raises:
            ApiError: it cannot be asked, refuses, or falls silent for minutes.
        """
        query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds={WATCH_S}"
        try:
            with contextlib.closing(self.connection(WATCH_S + TIMEOUT_S)) as connection:
                answer = self.ask(connection, "GET", query, None, MERGE)
                while line := answer.readline():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"{self.url}{path}: {error}") from None

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection that is made by the first call."""
        url = urllib.parse.urlsplit(self.url)
        host = url.hostname or ""
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            return http.client.HTTPSConnection(
                host, url.port or 443, timeout=timeout_s, context=context
            )
        return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)

    def ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        kind: str,
    ) -> http.client.HTTPResponse:
        """Return the answer to one call, to be read; ApiError if it is a refusal."""
        headers = {"Accept": "application/json"}
        if os.path.exists(self.token_file):
            with open(self.token_file, encoding="utf-8") as file:
                headers["Authorization"] = f"Bearer {file.read().strip()}"
        if body is not None:
            headers["Content-Type"] = kind
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status < 300:
            return answer
        raw = answer.read()
        try:
            why = str(json.loads(raw)["message"])
        except (ValueError, KeyError, TypeError):
            why = answer.reason
        raise ApiError(f"{method} {path}: {answer.status} {why}", answer.status)


class Session:
    """
    Calls over one connection, because connecting is the slowest part of a call.

    A server that does not answer is not asked again. Two threads must not share a session.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._connection: http.client.HTTPConnection | None = None
        self._silent: Exception | None = None

    def call(self, method: str, path: str, body: object = None, kind: str = MERGE) -> Any:
        """
        Return the answer to one call.

        Raises:
            ApiError: there is none, or it is a refusal.
        """
        try:
            if self._silent is not None:
                raise self._silent
            if self._connection is None:
                self._connection = self.access.connection(TIMEOUT_S)
            return json.loads(self.access.ask(self._connection, method, path, body, kind).read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._silent = error
            raise ApiError(f"{self.access.url}{path}: {error}") from None

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()


def in_cluster() -> Access:
    """
    Return the access that a pod has.

    Raises:
        ApiError: this process runs in no pod.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ApiError("no API server: run in a pod with a service account, or give --api")
    return Access(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


def access(url: str | None, token_file: str | None, ca_file: str | None) -> Access:
    """Return the access that was asked for; a pod's own replaces each None."""
    found = in_cluster() if url is None else Access(url)
    return found._replace(
        token_file=token_file or found.token_file, ca_file=ca_file or found.ca_file
    )


def pod(api: Access | Session, namespace: str, name: str) -> dict[str, Any]:
    """Return a pod; ApiError if it is not there."""
    found: dict[str, Any] = api.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return found


def publish(
    access: Access,
    node: str,
    resources: Mapping[str, int],
    annotations: Mapping[str, str],
    condition: Mapping[str, str],
) -> bool:
    """
    Let the node say that it has so much of each resource, *annotations* and a condition.

    Returns:
        False: it did already.

    A node's status is all that this takes leave to write: its annotations go with it.
    """
    found = access.call("GET", f"/api/v1/nodes/{node}")
    status = found["status"]
    said = found["metadata"].get("annotations", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    known = conditions.get(condition["type"], {})
    told = condition.items() <= known.items() and annotations.items() <= said.items()
    if told and all(
        name in status.get(where, {}) and quantity(name, status[where][name]) == number
        for name, number in resources.items()
        for where in ("capacity", "allocatable")
    ):
        return False
    amounts = {name: str(number) for name, number in resources.items()}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = known.get("status") == condition["status"] and known.get("lastTransitionTime")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": same or now}
    access.call(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        {
            "metadata": {"annotations": dict(annotations)},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{**condition, **times}],
            },
        },
        STRATEGIC,
    )
    return True


def claim(access: Access, namespace: str, name: str) -> dict[str, Any]:
    """Return a ResourceClaim; ApiError if it is not there."""
    path = f"{RESOURCES}/namespaces/{namespace}/resourceclaims/{name}"
    found: dict[str, Any] = access.call("GET", path)
    return found


def publish_slice(
    access: Access,
    node: str,
    make: Callable[[str], dict[str, Any]],
    renewed: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any] | None],
) -> dict[str, Any] | None:
    """
    Create or replace a node's ResourceSlice at the API server.

    Args:
        make: returns the slice for the node's uid.
        renewed: returns the replacement of the existing slice; None: that is right.

    Returns:
        The server's version of the slice; None: it has the slice already.
    """
    wanted = make(access.call("GET", f"/api/v1/nodes/{node}")["metadata"]["uid"])
    path = f"{RESOURCES}/resourceslices"
    own = f"{path}/{wanted['metadata']['name']}"
    try:
        said = access.call("GET", own)
    except ApiError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        made: dict[str, Any] = access.call("POST", path, wanted, JSON)
    else:
        better = renewed(said, wanted)
        if better is None:
            return None
        made = access.call("PUT", own, better, JSON)
    return made
