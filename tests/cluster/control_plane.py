# SPDX-License-Identifier: MIT
"""etcd, API server, scheduler and controller manager on this machine, and how to ask them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import ssl
import subprocess
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
#: What runs: scripts/build-cluster has the newest if nothing is said.
NEWEST = "1.37"
KUBERNETES = os.environ.get("CGPU_KUBERNETES") or NEWEST
#: This machine as a guest behind QEMU's user network sees it.
HOST_FROM_GUEST = "10.0.2.2"
START_S = 180
#: User, and the groups that give it its rights.
USERS = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controllers": ("system:kube-controller-manager", ""),
}
#: Where a kind's objects are, {} its namespace.
_KINDS = {
    "nodes": "api/v1/nodes",
    **{
        one: f"api/v1/namespaces/{{}}/{one}"
        for one in ("pods", "serviceaccounts", "resourcequotas", "events")
    },
    "daemonsets": "apis/apps/v1/namespaces/{}/daemonsets",
    "deviceclasses": "apis/resource.k8s.io/v1/deviceclasses",
    "resourceclaims": "apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "resourceslices": "apis/resource.k8s.io/v1/resourceslices",
    "validatingadmissionpolicybindings": (
        "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
}


def free_ports(number: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def programs() -> Path:
    """Return the directory with the cluster's programs; built first if need be."""
    done = subprocess.run(
        [str(REPOSITORY / "scripts/build-cluster")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


class ControlPlane:
    """
    A cluster without nodes; entered, it runs.

    Args:
        programs: the directory that scripts/build-cluster prints.
        directory: for keys, logs and etcd's data.
        nodes: names of the nodes that will join.
        scheduler: a configuration for the scheduler instead of its own defaults.
        gates: features to switch on, and with them the alpha and beta APIs that they are for.
    """

    def __init__(
        self,
        programs: Path,
        directory: Path,
        nodes: Sequence[str],
        scheduler: Any = None,
        gates: Sequence[str] = (),
    ) -> None:
        self.programs = programs
        self.directory = directory
        self.scheduler = scheduler
        self.gates = (
            [f"--feature-gates={','.join(f'{one}=true' for one in gates)}"] if gates else []
        )
        self._connection: http.client.HTTPSConnection | None = None
        self.tokens = {name: secrets.token_hex(16) for name in (*USERS, *nodes)}
        self.nodes = nodes
        self.port, self.etcd_port, self.peer_port, self.scheduler_port = free_ports(4)
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> ControlPlane:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._keys()
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        etcd, peer = (f"http://127.0.0.1:{p}" for p in (self.etcd_port, self.peer_port))
        self.daemon(
            *("etcd", "--data-dir", f"{self.directory}/etcd", "--unsafe-no-fsync"),
            *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )
        at = self.directory
        self.daemon(
            *("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1"),
            *("--secure-port", str(self.port), "--cert-dir", f"{at}/made"),
            *("--tls-cert-file", f"{at}/server.crt", "--tls-private-key-file", f"{at}/server.key"),
            *("--token-auth-file", f"{at}/tokens.csv", "--authorization-mode", "Node,RBAC"),
            *("--enable-admission-plugins", "NodeRestriction"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", f"{at}/accounts.key"),
            *("--service-account-signing-key-file", f"{at}/accounts.key"),
            *("--service-cluster-ip-range", "10.96.0.0/16", "--advertise-address", HOST_FROM_GUEST),
            # The range's first address would need a kube-proxy; nobody asks for it.
            *("--endpoint-reconciler-type", "none", "--allow-privileged"),
            *self.gates,
            *(["--runtime-config=api/alpha=true,api/beta=true"] if self.gates else []),
        )
        until(self.ready, "the API server", START_S)
        config = self.config("controllers", "127.0.0.1")
        self.daemon(
            *("kube-controller-manager", "--kubeconfig", str(config), "--leader-elect=false"),
            *("--bind-address", "127.0.0.1", "--secure-port", "0"),
            *("--root-ca-file", f"{at}/ca.crt", "--use-service-account-credentials"),
            *("--service-account-private-key-file", f"{at}/accounts.key"),
            # A guest under emulation on a busy machine is late, and not dead.
            *("--node-monitor-grace-period", "10m"),
            *self.gates,
        )
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start the scheduler, by its configuration if there is one."""
        config = self.config("scheduler", "127.0.0.1")
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # So that what is measured is its own time, and not how often it may ask.
            "clientConnection": {"kubeconfig": str(config), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
            **(self.scheduler or {}),
        }
        path = self.directory / "scheduler.json"
        path.write_text(json.dumps(settings))
        self.daemon(
            *("kube-scheduler", "--config", str(path), "--bind-address", "127.0.0.1"),
            *("--secure-port", str(self.scheduler_port), "--v", "2"),
            *("--authorization-always-allow-paths", "/metrics"),
            *self.gates,
        )

    def _keys(self) -> None:
        at = self.directory

        def openssl(*words: object) -> None:
            subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)

        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 7, "-subj", "/CN=ca"),
            *("-keyout", at / "ca.key", "-out", at / "ca.crt"),
        )
        openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver"),
            *("-keyout", at / "server.key", "-out", at / "server.csr"),
        )
        (at / "names").write_text(
            f"subjectAltName=IP:127.0.0.1,IP:{HOST_FROM_GUEST},IP:10.96.0.1,DNS:localhost\n"
        )
        openssl(
            *("x509", "-req", "-in", at / "server.csr", "-CA", at / "ca.crt"),
            *("-CAkey", at / "ca.key", "-CAcreateserial", "-days", 7),
            *("-extfile", at / "names", "-out", at / "server.crt"),
        )
        openssl("genrsa", "-out", at / "accounts.key", 2048)
        users = {**USERS, **{one: (f"system:node:{one}", "system:nodes") for one in self.nodes}}
        (at / "tokens.csv").write_text(
            "".join(
                f'{self.tokens[key]},{user},{key},"{groups}"\n'
                for key, (user, groups) in users.items()
            )
        )

    def config(self, user: str, host: str, directory: Path | None = None) -> Path:
        """Write a kubeconfig of a user, for someone who reaches this machine as *host*."""
        path = (directory or self.directory) / f"{user}.kubeconfig"
        authority = path.with_name("ca.crt")
        if directory is not None:
            authority.write_bytes((self.directory / "ca.crt").read_bytes())
        cluster = {
            "server": f"https://{host}:{self.port}",
            "certificate-authority": authority.name,
        }
        one = [{"name": "x", "cluster": cluster}]
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": one,
                    "users": [{"name": "x", "user": {"token": self.tokens[user]}}],
                    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                    "current-context": "x",
                }
            )
        )
        return path

    def daemon(self, name: str, *words: str) -> None:
        """Run one of the programs until the end; its log is kept."""
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self.programs / name), *words], stdout=log, stderr=log, cwd=self.directory
            )
        self._processes[name] = process
        self._stack.callback(self.end, name)

    def end(self, name: str) -> None:
        """End one of them, and wait for it."""
        process = self._processes[name]
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ready(self) -> bool:
        """Whether the API server answers; AssertionError if one of them has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                text = (self.directory / f"{name}.log").read_text()[-3000:]
                raise AssertionError(f"{name} ended with {process.returncode}:\n{text}")
        return self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0

    def kubectl(
        self, *words: object, text: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the cluster's administrator; AssertionError with what it says."""
        path = self.directory / "admin.kubeconfig"
        if not path.exists():
            self.config("admin", "127.0.0.1")
        done = subprocess.run(
            [str(self.programs / "kubectl"), "--kubeconfig", str(path), *map(str, words)],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": str(self.directory)},
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {words}: {done.stdout}{done.stderr}")
        return done

    def get(
        self, kind: str, name: str = "", *, namespace: str = "default", selector: str = ""
    ) -> Any:
        """
        Return an object, or the list of a kind's; AssertionError if there is none.

        It is asked again and again while a node is at work: over one connection, and without a
        program each time.
        """
        path = "/" + (_KINDS.get(kind) or _KINDS[f"{kind}s"]).format(namespace)
        if name:
            path += f"/{name}"
        if selector:
            path += f"?labelSelector={urllib.parse.quote(selector)}"
        status, text = self._ask(path)
        assert status == http.HTTPStatus.OK, f"{path}: {status} {text.decode()}"
        return json.loads(text)

    def _ask(self, path: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        for again in (True, False):
            if self._connection is None:
                context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
                self._connection = http.client.HTTPSConnection(
                    "127.0.0.1", self.port, timeout=START_S, context=context
                )
            try:
                self._connection.request("GET", path, headers=headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, ConnectionError):
                # The server ends one that was idle for long.
                self._connection.close()
                self._connection = None
                if not again:
                    raise
        raise AssertionError

    def apply(self, *objects: Any) -> None:
        """Create or change objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", text=json.dumps(listed))

    def token(self, account: str, namespace: str) -> str:
        """Return a token of a service account, as its pods have."""
        words = ("create", "token", account, "-n", namespace, "--duration", "10h")
        return self.kubectl(*words).stdout.strip()
