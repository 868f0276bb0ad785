"""Runs the pods of a rendered chart without Kubernetes, in a network and a file tree of their own.

Usage, as root: unshare --mount --net python -m tests.packages.pods EXAMPLE

What a kubelet would do is done in its place: every pod has an address and its name leads to it (`/etc/hosts` of this
mount namespace), volumes are folders, secrets are files, ports of the pods are those of the manifest, and a pod is
ready when its probe says so. Paths in the arguments and in cluster.yaml lead to the pod's folder, and a proxy listens
at its pod's address alone, since there is one loopback for all.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import helm_python as helm
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.rigs.etcd import EtcdCluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm"
NAMESPACE, RELEASE, PATIENCE_S = "shop", "sp", 120.0
DOMAIN = f"{RELEASE}-syncpoint-internal.{NAMESPACE}.svc.cluster.local"
SYNCPOINT = [sys.executable, "-m", "syncpoint.programs.cli"]
MESSAGES = 50

Manifest = dict[str, Any]


class Pod:
    """One pod of a StatefulSet: `name`, its address, its folder, and the process."""

    def __init__(self, name: str, address: str, folder: Path, pod: Manifest, cluster_file: str | None) -> None:
        (self._container,) = pod["containers"]
        self.name, self.address, self.folder = name, address, folder
        self.host = f"{name}.{DOMAIN}"
        self._process: subprocess.Popen[bytes] | None = None
        for mount in self._container["volumeMounts"]:
            self._at(mount["mountPath"]).mkdir(parents=True, exist_ok=True)
        if cluster_file is not None:
            text = self._moved(cluster_file).replace("public: 0.0.0.0:", f"public: {self.host}:")
            self._at("/etc/syncpoint/cluster/cluster.yaml").write_text(text)

    def _at(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _moved(self, text: str) -> str:
        for root in ("/etc/syncpoint/", "/disks/", "/var/lib/syncpoint"):
            text = text.replace(root, f"{self.folder}{root}")
        return text

    def give_secret(self, path: str, files: dict[str, bytes]) -> None:
        """Files of a secret, where the pod mounts it."""
        if self._at(path).is_dir():
            for name, content in files.items():
                (self._at(path) / name).write_bytes(content)

    def start(self) -> None:
        words = [self._moved(one.replace("$(POD_NAME)", self.name)) for one in self._container["args"]]
        words = [one.replace("=0.0.0.0", f"={self.address}") for one in words]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(SYNCPOINT + words, stdout=log, stderr=log)

    def wait(self) -> None:
        """Return when the readiness probe succeeds."""
        assert self._process is not None
        probe, end = self._container["readinessProbe"], time.monotonic() + PATIENCE_S
        while not self._answers(probe):
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self.name} is not ready:\n{(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def _answers(self, probe: Manifest) -> bool:
        ports = {one["name"]: one["containerPort"] for one in self._container["ports"]}
        try:
            if asked := probe.get("httpGet"):
                url = f"http://{self.host}:{ports[asked['port']]}{asked['path']}"
                with urllib.request.urlopen(url, timeout=probe["timeoutSeconds"]) as answer:
                    return bool(answer.status == 200)
            with grpc.insecure_channel(f"{self.host}:{probe['grpc']['port']}") as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
        except (OSError, grpc.RpcError):
            return False

    def stop(self) -> int:
        """As Kubernetes stops a pod."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def manifests(values: dict[str, Any]) -> list[Manifest]:
    with helm.Chart.load(CHART / "syncpoint") as chart:
        texts = chart.render(values, name=RELEASE, namespace=NAMESPACE)
    found = [yaml.safe_load_all(text) for name, text in texts.items() if name.endswith(".yaml")]
    return [one for documents in found for one in documents if one]


def pods(rendered: list[Manifest], folder: Path) -> list[Pod]:
    """The pods, under addresses of the loopback to which their names lead from now on."""
    files = [one["data"]["cluster.yaml"] for one in rendered if one["kind"] == "ConfigMap"]
    sets = [one for one in rendered if one["kind"] == "StatefulSet"]
    names = [(f"{one['metadata']['name']}-{n}", one) for one in sets for n in range(one["spec"]["replicas"])]
    made = [
        Pod(name, f"127.0.1.{at}", folder / name, one["spec"]["template"]["spec"], files[0] if files else None)
        for at, (name, one) in enumerate(names, 1)
    ]
    hosts = folder / "hosts"
    lines = [f"{pod.address} {pod.host} {pod.name}\n" for pod in made]
    hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    return made


def changed(values: dict[str, Any], etcd: list[str]) -> dict[str, Any]:
    """The example for here: its etcd is this one, in the clear; clients are not asked who they are."""
    values |= {"insecure": True, "publicTls": {}, "auth": {}, "tracing": {}, "metrics": {}}
    if values["mode"] == "cluster":
        values["cluster"] |= {"etcd": {"endpoints": etcd}, "monitor": {}}
    else:
        values["node"] = values.get("node", {}) | {"monitorSecret": ""}
    return values


@contextlib.contextmanager
def running(example: str, folder: Path) -> Iterator[tuple[list[Pod], str]]:
    """All pods, ready; and where clients call."""
    values = yaml.safe_load((CHART / "examples" / f"{example}.yaml").read_text())
    with contextlib.ExitStack() as stack:
        etcd = EtcdCluster(folder / "etcd").start() if values["mode"] == "cluster" else None
        if etcd is not None:
            stack.callback(etcd.close)
        found = pods(manifests(changed(values, [] if etcd is None else etcd.endpoints)), folder)
        authority = Authority(folder / "authority")
        certificate, key = authority.issue("members", [f"*.{DOMAIN}"])
        members = {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.ca}
        kek = secrets.token_hex(32).encode()
        for pod in found:
            pod.give_secret("/etc/syncpoint/tls", {name: path.read_bytes() for name, path in members.items()})
            pod.give_secret("/etc/syncpoint/sealing", {"kek": kek})
            stack.callback(pod.close)
            pod.start()
        for pod in found:
            pod.wait()
        clients = [one for one in found if "-proxy-" in one.name] or found
        yield found, f"{clients[0].host}:8085"


def said(*words: str, endpoint: str) -> str:
    """What a command prints; it has to go well."""
    env = os.environ | {"PUBSUB_EMULATOR_HOST": endpoint, "PUBSUB_PROJECT_ID": "demo"}
    done = subprocess.run([*SYNCPOINT, *words], env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def drive(example: str, folder: Path) -> dict[str, Any]:
    """Carry messages over a stop of the pod that stores, and say what was seen."""
    with running(example, folder) as (found, endpoint):
        said("topics", "create", "orders", endpoint=endpoint)
        said("subscriptions", "create", "billing", "--topic", "orders", endpoint=endpoint)
        said("bench", "pub", "--topic", "orders", "--messages", str(MESSAGES), endpoint=endpoint)
        stores = next((one for one in found if "-storage-" in one.name), found[0])
        code = stores.stop()
        stores.start()
        stores.wait()
        command = ("subscriptions", "pull", "billing", "--wait", "--auto-ack", "--limit", str(MESSAGES))
        got: set[str] = set()
        while len(got) < MESSAGES:
            pulled = json.loads(said(*command, "--format", "json", endpoint=endpoint))
            got |= {one["message"]["messageId"] for one in pulled}
        result: dict[str, Any] = {"pods": len(found), "received": len(got), "stopped": code}
        if routers := [one for one in found if "-router-" in one.name]:
            file = routers[0].folder / "etc/syncpoint/cluster/cluster.yaml"
            result["status"] = said("cluster", "status", "--config", str(file), endpoint=endpoint)
        result["codes"] = sorted({pod.stop() for pod in found})
        return result


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(drive(sys.argv[1], Path(made))))
