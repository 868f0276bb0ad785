"""The Helm chart, rendered by Helm itself: schemas of Kubernetes take what comes out, and so does the program.

No Kubernetes runs here; `tests/packages/test_chart_runs.py` runs the pods without one.
"""

from __future__ import annotations

import copy
import functools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from syncpoint.node.cluster.settings import ClusterSettings, parse
from syncpoint.programs.cli.federation_file import load_file
from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("packages")

helm = pytest.importorskip("helm_python", reason="Helm has no wheel for this machine: the chart is not rendered")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

DEPLOY = Path(__file__).parents[3] / "deploy" / "helm"
CHART = DEPLOY / "syncpoint"
EXAMPLES = sorted(path.stem for path in (DEPLOY / "examples").glob("*.yaml"))
KUBERNETES = ("1.27", "1.37")  # the oldest that Chart.yaml takes, and the newest whose schemas there are
NAMESPACE = "shop"
Manifest = dict[str, Any]


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "examples" / f"{name}.yaml").read_text())
    return found


def rendered(values: dict[str, Any]) -> list[Manifest]:
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="sp", namespace=NAMESPACE)
    found = [yaml.safe_load_all(text) for name, text in texts.items() if name.endswith(".yaml")]
    return [one for documents in found for one in documents if one]


@functools.cache
def of_example(name: str) -> list[Manifest]:
    """The manifests of an example; not to be changed."""
    return rendered(example(name))


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest, Manifest]]:
    """Each set of pods: its name, its specification, the pod's."""
    for name, one in of_kind(manifests, "StatefulSet").items():
        yield name, one["spec"], one["spec"]["template"]["spec"]


def settings_of(manifests: list[Manifest]) -> ClusterSettings:
    (file,) = of_kind(manifests, "ConfigMap").values()
    return parse(yaml.safe_load(file["data"]["cluster.yaml"]), Path("/etc/syncpoint/cluster"))


def test_there_are_examples_of_both() -> None:
    assert {example(name)["mode"] for name in EXAMPLES} == {"node", "cluster"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_helm_has_nothing_to_say(name: str) -> None:
    report = helm.lint(CHART, example(name), strict=True)
    assert [one for one in report["messages"] if one["severity"] > 1] == report["errors"] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_schemas_of_kubernetes_take_it(name: str, version: str) -> None:
    manifests = of_example(name)
    checked = [one for one in manifests if one["kind"] != "ServiceMonitor"]  # another project's, without a schema here
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)
    assert len(checked) >= 4
    for one in of_kind(manifests, "ServiceMonitor").values():
        assert one["apiVersion"] == "monitoring.coreos.com/v1"
        assert {endpoint["port"] for endpoint in one["spec"]["endpoints"]} == {"metrics"}


def test_the_check_by_schema_can_fail() -> None:
    (node,) = of_kind(of_example("node"), "StatefulSet").values()
    spoilt = copy.deepcopy(node)
    spoilt["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_pods_may_do_nothing_but_their_work(name: str) -> None:
    for _, _, pod in pods(of_example(name)):
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_program_takes_what_it_is_started_with(name: str) -> None:
    for _, _, pod in pods(of_example(name)):
        command, *words = pod["containers"][0]["args"]
        known = cli.get_command(click.Context(cli), command)
        assert known is not None
        options = {option: one for one in known.params for option in one.opts}
        for word in words:
            option, equals, _ = word.partition("=")
            assert option in options, word
            assert bool(equals) != bool(getattr(options[option], "is_flag", False)), word


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_file_that_is_named_is_mounted_and_every_mount_is_a_volume(name: str) -> None:
    manifests = of_example(name)
    for set_name, spec, pod in pods(manifests):
        (container,) = pod["containers"]
        volumes = {one["name"] for one in pod["volumes"]}
        claims = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", [])}
        mounts = container["volumeMounts"]
        assert sorted(one["name"] for one in mounts) == sorted(volumes | claims)
        folders = tuple(one["mountPath"] + "/" for one in mounts)
        said = " ".join(container["args"])
        if container["args"][0] == "run":
            process = settings_of(manifests).process(f"{set_name}-0")
            said += " " + " ".join(map(str, process.disks.values()))
            (file,) = of_kind(manifests, "ConfigMap").values()
            said += " " + " ".join(re.findall(r"/etc/syncpoint/(?!monitor)[^\s,}]+", file["data"]["cluster.yaml"]))
        paths = re.findall(r"/(?:etc|disks|var)/[^\s,}=]+", said)
        assert paths
        for path in paths:
            assert f"{path}/".startswith(folders), path


@pytest.mark.parametrize("name", EXAMPLES)
def test_probes_ask_ports_that_the_process_opens(name: str) -> None:
    for _, _, pod in pods(of_example(name)):
        (container,) = pod["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe].get("httpGet") or container[probe]["grpc"]
            assert asked["port"] in (*ports, *ports.values())
            assert asked.get("path", "/metrics") == "/metrics"


@pytest.mark.parametrize("name", [one for one in EXAMPLES if example(one)["mode"] == "cluster"])
class TestClusterFile:
    """The file that all processes of a cluster read."""

    def test_the_program_takes_it(self, name: str) -> None:
        settings, values = settings_of(of_example(name)), example(name)
        assert list(settings.etcd) == values["cluster"]["etcd"]["endpoints"]
        assert settings.insecure == values.get("insecure", False)
        assert (settings.tls is not None) == ("tlsSecret" in values["cluster"])
        given = values["cluster"].get("config", {})
        assert set(settings.classes) == {"default", *given.get("classes", {})}
        default = settings.classes["default"]
        stores = [one for one in settings.processes.values() if "storage" in one.roles]
        assert len({one.cluster for one in stores}) == default.clusters
        assert {len(one.disks) for one in stores} == {default.disks}

    def test_it_has_every_pod_under_the_name_that_the_pod_is_called_by(self, name: str) -> None:
        manifests = of_example(name)
        settings, seen = settings_of(manifests), set()
        (internal,) = (one for one in of_kind(manifests, "Service").values() if one["spec"].get("clusterIP") == "None")
        for set_name, spec, pod in pods(manifests):
            assert spec["serviceName"] == internal["metadata"]["name"]
            ports = {one["name"]: one["containerPort"] for one in pod["containers"][0]["ports"]}
            for number in range(spec["replicas"]):
                seen.add(one := f"{set_name}-{number}")
                process = settings.process(one)
                host = f"{one}.{internal['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
                assert process.listen == f"{host}:{ports['members']}"
                assert process.metrics == f"{host}:{ports['metrics']}"
                assert process.disks_listen == (f"{host}:{ports['disks']}" if process.disks else "")
                assert process.public.partition(":")[2] == str(ports.get("clients", ""))
        assert seen == set(settings.processes)
        if settings.monitor is not None:
            assert settings.monitor.process in seen

    def test_another_file_is_another_pod(self, name: str) -> None:
        def mark(values: dict[str, Any]) -> set[str]:
            sets = of_kind(rendered(values), "StatefulSet").values()
            return {one["spec"]["template"]["metadata"]["annotations"]["checksum/cluster-file"] for one in sets}

        before, changed = mark(example(name)), example(name)
        changed["cluster"]["etcd"]["endpoints"] = ["10.9.9.9:2379"]
        assert len(before) == 1
        assert before.isdisjoint(mark(changed))

    def test_failure_domains_stand_apart_and_others_are_spread(self, name: str) -> None:
        values = example(name)
        apart = values["cluster"].get("storage", {}).get("apartBy", "topology.kubernetes.io/zone")
        for set_name, _, pod in pods(rendered(values)):
            rules = pod["affinity"]["podAntiAffinity"]
            if set_name.endswith("-storage"):
                (rule,) = rules["requiredDuringSchedulingIgnoredDuringExecution"]
                assert rule["topologyKey"] == apart
            else:
                (spread,) = pod["topologySpreadConstraints"]
                assert spread["topologyKey"] == "topology.kubernetes.io/zone"

    def test_one_pod_of_each_part_may_be_taken_away_at_a_time(self, name: str) -> None:
        manifests = of_example(name)
        budgets = of_kind(manifests, "PodDisruptionBudget")
        for set_name, spec, _ in pods(manifests):
            if set_name.endswith("-monitor"):
                continue
            budget = budgets[set_name]["spec"]
            assert budget["maxUnavailable"] == 1
            assert budget["selector"] == spec["selector"]


FEDERATION: dict[str, Any] = {
    "image": "registry.example/syncpoint-spark:0.1.0",
    "envSecret": "tokens",
    "filesSecret": "certificates",
    "file": {
        "version": 1,
        "clusters": {
            "eu": {"endpoint": "eu:8085", "tls": {"ca": "/etc/syncpoint/files/ca.crt"}, "token": {"env": "EU_TOKEN"}},
            "us": {"endpoint": "us:8085"},
        },
        "namespaces": {"shop": {"clusters": ["eu", "us"]}},
        "runtime": {"shared": "projects/shop/federations/main", "trigger": "1s"},
    },
}


@pytest.mark.parametrize("name", ["node", "cluster"])
def test_a_federation_is_a_file_and_a_pair_of_pods_that_run_it(name: str, tmp_path: Path) -> None:
    values = merged(example(name), {"federations": {"shop": FEDERATION}, "metrics": {"otlp": "http://collector:4318"}})
    manifests, full = rendered(values), "sp-syncpoint-federation-shop"
    deployment, file = of_kind(manifests, "Deployment")[full], of_kind(manifests, "ConfigMap")[full]
    for version in KUBERNETES:
        kubernetes_validate.validate(deployment, version, strict=True)
        kubernetes_validate.validate(file, version, strict=True)
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts.keys() == {one["name"] for one in pod["volumes"]}
    assert container["envFrom"] == [{"secretRef": {"name": "tokens"}}]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    (tmp_path / "federation.yaml").write_text(file["data"]["federation.yaml"])
    found, _ = load_file(tmp_path / "federation.yaml")
    assert found.runtime.shared == FEDERATION["file"]["runtime"]["shared"]
    assert str(found.runtime.state).startswith(mounts["state"] + "/")
    assert found.runtime.metrics == f"0.0.0.0:{container['ports'][0]['containerPort']}"
    group, command, path, *words = container["args"]
    assert path == mounts["file"] + "/federation.yaml"
    federation = cli.get_command(click.Context(cli), group)
    assert isinstance(federation, click.Group)
    run = federation.get_command(click.Context(federation), command)
    assert run is not None
    assert {word.partition("=")[0] for word in words} <= {option for one in run.params for option in one.opts}
    others = {one["metadata"]["name"] for one in of_kind(manifests, "StatefulSet").values()}
    assert others == {one["metadata"]["name"] for one in of_kind(rendered(example(name)), "StatefulSet").values()}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("node", {"federations": {"shop": {"image": "i", "file": {"runtime": {}}}}}, "shared"),
        ("node", {"federations": {"Shop": FEDERATION}}, "Shop"),
        ("node", {"insecure": False}, "without TLS"),
        ("node-production", {"auth": {"secretName": ""}}, "insecure=true"),
        ("cluster", {"cluster": {"tlsSecret": ""}}, "would not be encrypted"),
        ("cluster", {"cluster": {"etcd": {"endpoints": []}}}, "cluster.etcd.endpoints is required"),
        ("cluster", {"cluster": {"config": {"processes": {}}}}, "cluster.config.processes"),
        ("cluster", {"publicTls": {"secretName": "", "clientCa": True}}, "publicTls.clientCa needs"),
        ("cluster", {"cluster": {"storage": {"clusters": 2}}}, "clusters"),
        ("node", {"node": {"disk": 3}}, "disk"),
        ("node", {"replicas": 3}, "replicas"),
    ],
)
def test_what_cannot_work_is_refused_with_the_value(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(said)):
        rendered(merged(example(name), change))


def merged(values: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    both = dict(values)
    for key, value in change.items():
        both[key] = merged(both.get(key, {}), value) if isinstance(value, dict) and value else value
    return both


def test_defaults_are_named_by_the_schema_and_need_a_word_on_security() -> None:
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema({})
        with pytest.raises(helm.HelmError, match="insecure=true"):
            chart.render({}, name="sp", namespace=NAMESPACE)
        defaults, schema = chart.values, chart.schema

    def known(part: dict[str, Any], of: dict[str, Any], place: str) -> None:
        for key, value in part.items():
            assert key in of["properties"], f"{place}.{key}"
            if isinstance(value, dict) and "properties" in of["properties"][key]:
                known(value, of["properties"][key], f"{place}.{key}")

    assert schema is not None
    known(defaults, schema, "values")
