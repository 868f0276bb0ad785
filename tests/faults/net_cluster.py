"""A cluster each of whose processes is a machine of its own to the network, with disks that fail and clocks that jump.

Every process lives in a network namespace behind one bridge, so that iptables parts exactly who should be parted;
storage processes run under the shim of `build_shim`, all of the product under libfaketime where it is installed. Needs
root, `ip` and `iptables`. `close` takes away all it made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from syncpoint.programs.clusters.local import LocalCluster, Shape
from tests.faults.build_shim import Faults, compiler

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclass(frozen=True, slots=True)
class NetShape(Shape):
    """`servers`: storage processes of each cluster, which share its disks. `clocks`: they can be set; every look at one
    costs reading a file.
    """

    servers: int = 1
    clocks: bool = False


def why_not() -> str | None:
    """Why there can be no such cluster here; None when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "iptables", "etcd") if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: iproute2, iptables, etcd-server)"
    return None if compiler() else "there is no C compiler for the shim"


def run(*command: str, check: bool = True) -> None:
    """One command; what it says is reported only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class NetCluster(LocalCluster):
    """`number` distinguishes several on one machine (0 to 255): their bridges and addresses."""

    def __init__(self, folder: Path, number: int = 77) -> None:
        super().__init__(folder)
        self.number = number
        self.bridge = f"spf{number}"
        self.addresses: dict[str, str] = {}
        self.faults: dict[str, Faults] = {}
        self.clocks = True

    # -- making it ---------------------------------------------------------------------------------------------------

    def create(self, shape: Shape, changes: dict[str, Any] | None = None) -> None:
        """As always, but every process gets an address of its own."""
        super().create(shape, changes)
        content = yaml.safe_load(self.settings_path.read_text())
        if isinstance(shape, NetShape):
            self.clocks = shape.clocks
            content["processes"] = _split(content["processes"], shape.servers)
        peers = json.loads((self.folder / "etcd.json").read_text())["peers"]
        names = [f"etcd-{n}" for n in range(1, len(peers) + 1)] + list(content["processes"])
        self.addresses = {name: f"10.{self.number}.0.{10 + n}" for n, name in enumerate(names)}

        def moved(address: str, name: str) -> str:
            return f"{self.addresses[name]}:{address.rpartition(':')[2]}"

        etcd = content["metadata"]["etcd"]
        content["metadata"]["etcd"] = [moved(one, f"etcd-{n}") for n, one in enumerate(etcd, 1)]
        peers = [moved(one, f"etcd-{n}") for n, one in enumerate(peers, 1)]
        for name, one in content["processes"].items():
            one["listen"] = moved(one["listen"], name)
            one |= {field: moved(one[field], name) for field in ("public", "disks_listen") if field in one}
        content["insecure"] = True  # the network is one of this machine's own
        (self.folder / "etcd.json").write_text(json.dumps({"peers": peers}))
        self.settings_path.write_text(yaml.safe_dump(content, sort_keys=False))
        self._lay_wires()
        for name in content["processes"]:
            (self.folder / "clocks").mkdir(exist_ok=True)
            self._clock(name).write_text("+0\n")
            if name.startswith("storage"):
                place = self.folder / "faults" / name
                place.mkdir(parents=True)
                self.faults[name] = Faults(place)

    def _space(self, name: str) -> str:
        return f"{self.bridge}-{list(self.addresses).index(name)}"

    def _clock(self, name: str) -> Path:
        return self.folder / "clocks" / name

    def _lay_wires(self) -> None:
        self._take_wires_away()
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"10.{self.number}.0.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        for number, (name, address) in enumerate(self.addresses.items()):
            space, outer, inner = self._space(name), f"{self.bridge}v{number}", f"{self.bridge}i{number}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            run("ip", "link", "set", inner, "netns", space)
            run("ip", "link", "set", outer, "master", self.bridge, "up")
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", inner)
            run("ip", "-n", space, "link", "set", inner, "up")
            run("ip", "-n", space, "link", "set", "lo", "up")

    def _take_wires_away(self) -> None:
        for number in range(len(self.addresses)):
            run("ip", "netns", "del", f"{self.bridge}-{number}", check=False)
            run("ip", "link", "del", f"{self.bridge}v{number}", check=False)
        run("ip", "link", "del", self.bridge, check=False)

    def close(self) -> None:
        """End everything and take the wires away; the folder stays."""
        try:
            self.heal()
            self.down()
        finally:
            self._take_wires_away()

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        inside = ["ip", "netns", "exec", self._space(name), "env"]
        inside += [f"{key}={value}" for key, value in self._environment(name).items()]
        super()._spawn(name, [*inside, *command])

    def _environment(self, name: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if name.startswith("etcd"):
            return found
        # Large buffers are mapped each for itself, so that the next one of them meets a limit of memory.
        found["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)
        libraries = []
        if name in self.faults:
            found |= self.faults[name].env
            libraries.append(found["LD_PRELOAD"])
        if self.clocks and FAKETIME.exists():
            libraries.append(str(FAKETIME))
            found |= {"FAKETIME_TIMESTAMP_FILE": str(self._clock(name)), "FAKETIME_NO_CACHE": "1"}
            found |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
        if libraries:
            found["LD_PRELOAD"] = ":".join(libraries)
        return found

    # -- breaking it -------------------------------------------------------------------------------------------------

    def tables(self, name: str, *rule: str) -> None:
        """One iptables rule inside of a process's machine."""
        run("ip", "netns", "exec", self._space(name), "iptables", "-w", *rule)

    def cut(self, name: str, others: Iterable[str] | None = None, *, how: Sequence[str] = ("DROP",)) -> None:
        """Nothing reaches this process any more, or nothing from these others; what it sends still leaves."""
        if others is None:
            self.tables(name, "-A", "INPUT", "!", "-i", "lo", "-j", *how)
            return
        for other in others:
            self.tables(name, "-A", "INPUT", "-s", self.addresses[other], "-j", *how)

    def cut_off(self, name: str) -> None:
        """Neither in nor out."""
        self.cut(name)
        self.tables(name, "-A", "OUTPUT", "!", "-o", "lo", "-j", "DROP")

    def part(self, these: Iterable[str], those: Iterable[str]) -> None:
        """Nobody of these receives anything of those, nor the other way round."""
        these, those = list(these), list(those)
        for one in these:
            self.cut(one, those)
        for one in those:
            self.cut(one, these)

    def lose(self, name: str, share: float) -> None:
        """So much of what comes in is lost."""
        self.cut(name, how=("DROP", "-m", "statistic", "--mode", "random", "--probability", f"{share}"))

    def mend(self, name: str) -> None:
        """The network of one process is whole."""
        self.tables(name, "-F")

    def shift(self, name: str, seconds: int) -> None:
        """Its wall clock is so far from the true time."""
        beside = self._clock(name).with_suffix(".new")
        beside.write_text(f"{seconds:+d}\n")
        os.replace(beside, self._clock(name))

    def heal(self) -> None:
        """Networks, disks and clocks are whole; paused processes go on; dead ones stay dead."""
        for name in self.addresses:
            with contextlib.suppress(RuntimeError):
                self.mend(name)
            if not name.startswith("etcd"):
                self.shift(name, 0)
        for faults in self.faults.values():
            faults.set()
        for one in self.states():
            if one.state == "paused":
                self.resume(one.name)

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        """Whatever is done in the block is mended after it, and dead processes are started."""
        try:
            yield
        finally:
            self.heal()
            self.up()


def _split(processes: Mapping[str, Any], servers: int) -> dict[str, Any]:
    """Each storage process as so many, at the same ports of different machines."""
    made: dict[str, Any] = {}
    for name, one in processes.items():
        disks = list(one.get("disks", {}).items())
        split = disks and servers > 1
        for number in range(servers if split else 1):
            of = {"disks": dict(disks[number::servers])} if split else {}
            made[f"{name}-{number + 1}" if split else name] = {**one, **of}
    return made
