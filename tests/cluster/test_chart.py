# SPDX-License-Identifier: MIT
"""The chart, by the real Helm, and applied to a real API server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane import REPOSITORY, ControlPlane
from tests.cluster.objects import MANIFESTS

CHART = MANIFESTS / "chart"
EVERYTHING = [
    word
    for name in ("devicePlugin", "dra", "exporter", "scheduler", "policy")
    for word in ("--set", f"{name}.enabled=true")
]


@pytest.fixture(scope="module")
def program() -> Path:
    done = subprocess.run(
        [str(REPOSITORY / "scripts/build-helm")], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane


def helm(
    program: Path, *words: object, home: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(program), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **({} if home is None else {"HOME": str(home)})},
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def test_helm_finds_nothing_to_complain_of(program: Path) -> None:
    said = helm(program, "lint", "--strict", CHART, *EVERYTHING).stdout
    assert "0 chart(s) failed" in said
    assert "WARNING" not in said


def test_the_manifests_are_what_the_chart_makes(program: Path, tmp_path: Path) -> None:
    subprocess.run([str(REPOSITORY / "scripts/make-manifests"), str(tmp_path)], check=True)

    def files(folder: Path) -> dict[str, str]:
        found = [*folder.glob("*.yaml"), *folder.glob("prometheus/*.yaml")]
        return {str(path.relative_to(folder)): path.read_text() for path in found}

    assert files(tmp_path) == files(MANIFESTS)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("devicePlugin.enabled=maybe", "devicePlugin/enabled"),
        ("devicePlugn.enabled=true", "devicePlugn"),
        ("namespace=Not_One", "namespace"),
        ("scheduler.managedResources={gpu}", "managedResources"),
    ],
)
def test_values_that_mean_nothing_are_refused(program: Path, setting: str, says: str) -> None:
    done = helm(program, "template", "cgpu", CHART, "--set", setting, check=False)
    assert done.returncode != 0
    assert says in done.stderr


def test_an_older_cluster_is_told(program: Path) -> None:
    done = helm(program, "template", "cgpu", CHART, "--kube-version", "1.30.0", check=False)
    assert done.returncode != 0
    assert ">=1.31" in done.stderr


def test_a_release_comes_changes_and_goes(program: Path, api: ControlPlane) -> None:
    config = api.config("admin", "127.0.0.1")

    def release(*words: object) -> None:
        helm(program, *words, "--kubeconfig", config, home=api.directory)

    def daemons() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"]
            for one in api.get("daemonsets", namespace="gpus")["items"]
        }

    def classes() -> list[str]:
        return [one["metadata"]["name"] for one in api.get("deviceclasses")["items"]]

    release("install", "cgpu", CHART, "--set", "namespace=gpus", *EVERYTHING)
    image = "docker.io/library/busybox:stable"
    assert daemons() == dict.fromkeys(("device-plugin", "dra-driver", "exporter"), image)
    assert classes() == ["gpu.cgpu.io"]
    policy = json.dumps(api.get("validatingadmissionpolicybinding", "cgpu"))
    assert '"kube-system", "gpus"' in policy
    settings = ("--set", "namespace=gpus", "--set", "image=example.com/any:1")
    release("upgrade", "cgpu", CHART, *settings)
    assert daemons() == {"device-plugin": "example.com/any:1"}
    assert classes() == []
    release("uninstall", "cgpu", "--cascade", "background")
    left = api.kubectl("get", "clusterroles", "-o", "name").stdout
    assert "cgpu" not in left
