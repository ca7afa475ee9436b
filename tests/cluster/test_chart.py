# SPDX-License-Identifier: MIT
"""The chart as it is published, by the real Helm, and applied to a real API server."""

from __future__ import annotations

import importlib.resources
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import REPOSITORY, ControlPlane
from tests.cluster.objects import MANIFESTS
from tests.cluster.releases import Helm

EVERYTHING = [
    word
    for name in ("devicePlugin", "dra", "exporter", "scheduler", "policy")
    for word in ("--set", f"{name}.enabled=true")
]

#: Of Kubernetes, for the schemas of what the chart makes.
RELEASES = ("1.36.0", "1.37.0")
SCHEMA = "{{.NormalizedKubernetesVersion}}{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json"
MONITORS = [
    word
    for name in ("podMonitor", "serviceMonitor", "prometheusRule")
    for word in ("--set", f"exporter.{name}.enabled=true")
]
RECOMMENDED = {
    *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "component")),
    *(f"app.kubernetes.io/{name}" for name in ("part-of", "managed-by")),
    "helm.sh/chart",
}


def install(mode: str) -> tuple[str, str]:
    return "--set", f"install.mode={mode}"


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    for mode in ("none", "module", "agent", "auto"):
        said = helm("lint", "--strict", helm.chart, *EVERYTHING, *MONITORS, *install(mode)).stdout
        assert "0 chart(s) failed" in said
        assert "WARNING" not in said


def test_the_manifests_are_what_the_chart_makes(helm: Helm, tmp_path: Path) -> None:
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
        ("namespace=gpus", "namespace"),
        ("install.mode=dkms", "install/mode"),
        ("cards.overcommitRatio=99", "cards/overcommitRatio"),
        ("cards.overcommitRatio=1001", "cards/overcommitRatio"),
        ("cards.overcommitRatio=twice", "cards/overcommitRatio"),
        ("image=example.com/any:1", "image"),
        ("scheduler.managedResources={gpu}", "managedResources"),
    ],
)
def test_values_that_mean_nothing_are_refused(helm: Helm, setting: str, says: str) -> None:
    done = helm("template", "cgpu", helm.chart, "--set", setting, check=False)
    assert done.returncode != 0
    assert says in done.stderr


def test_a_ratio_is_told_to_what_publishes_cards(helm: Helm) -> None:
    def told(*words: str) -> list[str]:
        made = helm("template", "cgpu", helm.chart, *EVERYTHING, *words).stdout
        return re.findall(r"- (--(?:overcommit|evict).*)", made)

    ratio = ("--set", "cards.overcommitRatio=150")
    assert told() == []
    assert told(*ratio) == ["--overcommit-ratio=150"] * 2
    assert sorted(told(*ratio, "--set", "dra.evict=true")) == [
        "--evict",
        *["--overcommit-ratio=150"] * 2,
    ]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("module", ["--no-runtimes"]),
        ("agent", ["--agent", "--restart"]),
        ("auto", ["--or-agent", "--restart"]),
    ],
)
def test_a_mode_is_told_to_what_installs_a_node(helm: Helm, mode: str, words: list[str]) -> None:
    options = ("--set", "install.options={--modules=/m}")
    made = helm("template", "cgpu", helm.chart, *install(mode), *options).stdout
    command = made.split("- /usr/lib/cgpu/install-on-node\n")[1].split("securityContext")[0]
    told = re.findall(r"^ *- (.*)$", command, re.MULTILINE)
    assert told == ["/host", *words, '"--modules=/m"']


def test_an_older_cluster_is_told(helm: Helm) -> None:
    done = helm("template", "cgpu", helm.chart, "--kube-version", "1.30.0", check=False)
    assert done.returncode != 0
    assert ">=1.31" in done.stderr


def test_a_release_comes_changes_and_goes(helm: Helm, api: ControlPlane) -> None:
    def daemons() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"]
            for one in api.get("daemonsets", namespace="gpus")["items"]
        }

    def classes() -> list[str]:
        return [one["metadata"]["name"] for one in api.get("deviceclasses")["items"]]

    named = ("--namespace", "gpus")
    words = ("install", "cgpu", helm.chart, *named, "--create-namespace", *EVERYTHING)
    notes = helm(*words, api=api).stdout
    assert "kubectl label namespace gpus pod-security.kubernetes.io/enforce=privileged" in notes
    image = "docker.io/library/busybox:stable"
    assert daemons() == dict.fromkeys(("device-plugin", "dra-driver", "exporter"), image)
    assert classes() == ["gpu.cgpu.io"]
    policy = json.dumps(api.get("validatingadmissionpolicybinding", "cgpu"))
    assert '"kube-system", "gpus"' in policy
    settings = (*install("module"), "--set", "image.repository=example.com/any,image.tag=v1")
    helm("upgrade", "cgpu", helm.chart, *named, *settings, api=api)
    assert daemons() == {"device-plugin": "example.com/any:v1"}
    assert classes() == []
    helm("uninstall", "cgpu", *named, "--cascade", "background", api=api)
    left = api.kubectl("get", "clusterroles", "-o", "name").stdout
    assert "cgpu" not in left


def made_by(helm: Helm, api: ControlPlane, *words: str) -> list[Any]:
    """The objects of the chart, as the API server takes them: no field that it does not know."""
    text = helm("template", "cgpu", helm.chart, "--namespace", "default", *words).stdout
    file = api.directory / "made.yaml"
    file.write_text(text)
    told = ("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", file)
    listed = api.kubectl(*map(str, told)).stdout
    found = []
    while listed := listed.strip():
        one, end = json.JSONDecoder().raw_decode(listed)
        listed = listed[end:]
        found += one.get("items", [one])
    return found


@pytest.mark.parametrize("mode", ["none", "module", "agent", "auto"])
def test_the_api_server_knows_each_field_and_finds_each_recommended_label(
    helm: Helm, api: ControlPlane, mode: str
) -> None:
    secret = ("--set", "imagePullSecrets[0].name=registry", "--set", "openshift.privileged=true")
    made = made_by(helm, api, *EVERYTHING, *install(mode), *secret)
    assert {one["kind"] for one in made} >= {"DaemonSet", "Deployment", "ClusterRole"}
    for one in made:
        assert one["metadata"]["labels"].keys() >= RECOMMENDED, one["metadata"]["name"]
        template = one.get("spec", {}).get("template")
        if template is not None:
            assert template["metadata"]["labels"].keys() >= RECOMMENDED
            assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
            selector = one["spec"]["selector"]["matchLabels"]
            assert selector.items() <= template["metadata"]["labels"].items()
            assert "app.kubernetes.io/version" not in selector
    installing = [
        one["metadata"]["name"]
        for one in made
        if one["kind"] == "DaemonSet" and one["spec"]["template"]["spec"].get("initContainers")
    ]
    wanted = [] if mode == "none" else ["device-plugin", "dra-driver", "exporter"]
    assert sorted(installing) == wanted
    assert ("RuntimeClass" in {one["kind"] for one in made}) is (mode != "none")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubernetes' JSON schemas of two releases, of a package that has them without a network."""
    packaged = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    made = tmp_path_factory.mktemp("schemas")
    for release in RELEASES:
        folder = made / f"v{release}-strict"
        folder.mkdir()
        for path in (packaged / f"v{release}-local-strict").iterdir():
            # They name each other by addresses that the package's own program resolves.
            text = path.read_text().replace('"/api/_definitions.json#', '"_definitions.json#')
            schema = json.loads(text)
            for key in ("$id", "$schema"):
                schema.pop(key, None)
            (folder / path.name).write_text(json.dumps(schema))
    return made


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("mode", ["none", "module", "agent", "auto"])
def test_kubeconform_finds_each_object_as_its_schema_has_it(
    helm: Helm, schemas: Path, mode: str, release: str
) -> None:
    words = (*EVERYTHING, *install(mode), "--set", "createNamespace=true,dra.evict=true")
    made = helm("template", "cgpu", helm.chart, "--namespace", "gpus", *words).stdout

    def conform(text: str) -> Any:
        judge = helm.program.with_name("kubeconform")
        done = subprocess.run(
            [
                *(str(judge), "-strict", "-summary", "-output", "json"),
                *("-kubernetes-version", release, "-schema-location", f"{schemas}/{SCHEMA}"),
            ],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        told = json.loads(done.stdout)
        assert (done.returncode == 0) is not told.get("resources"), done.stdout
        return told["summary"]

    objects = len(re.findall("^kind: ", made, re.MULTILINE))
    nothing = {"invalid": 0, "errors": 0, "skipped": 0}
    assert conform(made) == {**nothing, "valid": objects}
    daemons = made.count("hostPID: true")
    assert daemons == 3
    wrong = made.replace("hostPID: true", "hostPIDs: true")
    assert conform(wrong) == {**nothing, "valid": objects - daemons, "invalid": daemons}


@pytest.mark.parametrize(
    ("mode", "labels", "runs"),
    [
        ("none", {"cgpu.io/node": "true"}, {"device-plugin", "exporter"}),
        ("none", {"cgpu.io/dra": "true"}, {"dra-driver"}),
        ("none", {"cgpu.io/dra": "true", "cgpu.io/node": "true"}, {"dra-driver", "exporter"}),
        ("none", {"nvidia.com/gpu.present": "true"}, set()),
        ("module", {"nvidia.com/gpu.present": "true"}, {"device-plugin", "exporter"}),
        (
            "module",
            {"feature.node.kubernetes.io/pci-10de.present": "true"},
            {"device-plugin", "exporter"},
        ),
        ("module", {"nvidia.com/gpu.present": "true", "cgpu.io/node": "false"}, set()),
        (
            "module",
            {"nvidia.com/gpu.present": "true", "cgpu.io/dra": "true"},
            {"dra-driver", "exporter"},
        ),
        ("module", {}, set()),
    ],
)
def test_nodes_are_found_by_the_labels_of_nfd_and_gfd(
    helm: Helm, api: ControlPlane, mode: str, labels: dict[str, str], runs: set[str]
) -> None:
    made = made_by(helm, api, *EVERYTHING, *install(mode))
    found = {
        one["metadata"]["name"]
        for one in made
        if one["kind"] == "DaemonSet" and fits(one["spec"]["template"]["spec"], labels)
    }
    assert found == runs


def fits(spec: Any, labels: dict[str, str]) -> bool:
    """As a scheduler judges: one of the terms, and in it every expression."""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert not spec.get("nodeSelector")
    return any(
        all(
            (labels.get(one["key"]) in one["values"]) is (one["operator"] == "In")
            for one in term["matchExpressions"]
        )
        for term in required["nodeSelectorTerms"]
    )


def test_monitors_and_rules_are_what_prometheus_operator_takes(helm: Helm) -> None:
    """Its custom resources are not there: these are judged by what they are of."""
    words = ("template", "cgpu", helm.chart, "--namespace", "gpus", *EVERYTHING, *MONITORS)
    text = helm(*words).stdout
    alerts = (REPOSITORY / "docs/alerts.yml").read_text()
    rule = text[text.index("kind: PrometheusRule") :].split("\n---")[0]
    names = re.findall(r"- alert: (\w+)", alerts)
    assert names and re.findall(r"- alert: (\w+)", rule) == names
    assert [line.strip() for line in alerts.splitlines() if "expr" in line] == [
        line.strip() for line in rule.splitlines() if "expr" in line
    ]
    for kind in ("ServiceMonitor", "PodMonitor"):
        monitor = text[text.index(f"kind: {kind}") :].split("\n---")[0]
        assert "honorLabels: true" in monitor and "port: metrics" in monitor
        assert "app.kubernetes.io/name: cgpu-exporter" in monitor.split("matchLabels:")[1]
