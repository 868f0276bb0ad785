"""Words of a cluster: members, the places of a chain's disks, chains and their owners, as they stand in the metadata.

Place: written by `control`, read by every room that must know who is there. Values only; JSON is their stored form, and
fields that a newer version added are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any, NamedTuple

STORAGE = "storage"
PUBLISH = "publish-forwarder"
SUBSCRIBE = "subscribe-forwarder"
ROUTER = "router"
PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class Member:
    """One living process. `incarnation` is drawn at its start, so a restarted process is another member of that name.

    `cluster` and `disks` are set by processes that serve disks.
    """

    name: str
    roles: tuple[str, ...]
    address: str
    incarnation: int
    region: str = ""
    zone: str = ""
    rack: str = ""
    cluster: str = ""
    disks: tuple[str, ...] = ()
    version: str = ""
    draining: bool = False
    disk_address: str = ""  # where its disks are served
    oldest_format: int = 1  # it reads and writes the formats from here
    newest_format: int = 1  # to here
    weight: float = 1.0  # of a forwarder: its share of topics and subscriptions
    tls: bool = False  # it is called by TLS
    host: str = ""  # the machine it runs on, as that calls itself
    network: str = ""  # which one it is in: processes that say the same see the same of any address

    def covered_by(self, target: str) -> bool:
        """Whether a drain's target, NAME or cluster/NAME or region/NAME, means this process.

        A cluster is those who serve its disks, and the processes in the zone of that name.
        """
        kind, slash, name = target.partition("/")
        if not slash:
            return target == self.name
        if kind == "region":
            return name == self.region
        return kind == "cluster" and name in (self.cluster, self.zone)

    def encode(self) -> bytes:
        """The stored form."""
        return _dump({**asdict(self), "incarnation": f"{self.incarnation:016x}"})

    @staticmethod
    def decode(data: bytes) -> Member:
        """Raises `ValueError` for anything else."""
        values = _load(Member, data)
        values["incarnation"] = int(values["incarnation"], 16)
        return Member(**{**values, "roles": tuple(values["roles"]), "disks": tuple(values.get("disks", ()))})


class DiskPlace(NamedTuple):
    """One disk of a chain: which process serves it, under which name, and where it stands."""

    cluster: str
    disk: str
    process: str
    rack: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """A chain: the succession of logs on one set of disks. `places` are in slot order, cluster by cluster.

    `klass` names its durability class, `home` the member it was made for, `rule` is the ack rule (see
    `storage.quorum.AckRule`) as plain values, `below_policy` is set if its racks are fewer than wanted, `universe` is
    the one its message ids carry (0: the cluster's), `weight` is its home's, also while another has it open.
    """

    number: int
    name: str
    klass: str
    region: str
    home: str
    places: tuple[DiskPlace, ...] = ()
    rule: Mapping[str, Any] = field(default_factory=dict)
    durability: str = "sync"
    below_policy: bool = False
    universe: int = 0
    weight: float = 1.0

    def encode(self) -> bytes:
        """The stored form."""
        values = asdict(self)
        values["class"] = values.pop("klass")
        values["places"] = [place._asdict() for place in self.places]
        return _dump(values)

    @staticmethod
    def decode(data: bytes) -> ChainRecord:
        """Raises `ValueError` for anything else."""
        found = json.loads(data)
        found["klass"] = found.pop("class", "")
        values = _known(ChainRecord, found)
        places = tuple(DiskPlace(**_named(DiskPlace._fields, place)) for place in values.get("places", ()))
        return ChainRecord(**{**values, "places": places})


@dataclass(frozen=True, slots=True)
class ChainOwner:
    """Who has a chain open, under which epoch."""

    member: str
    incarnation: int
    epoch: int
    address: str

    def encode(self) -> bytes:
        """The stored form."""
        return _dump({**asdict(self), "incarnation": f"{self.incarnation:016x}"})

    @staticmethod
    def decode(data: bytes) -> ChainOwner:
        """Raises `ValueError` for anything else."""
        values = _load(ChainOwner, data)
        return ChainOwner(**{**values, "incarnation": int(values["incarnation"], 16)})


def _dump(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), sort_keys=True).encode()


def _load(kind: type[Any], data: bytes) -> dict[str, Any]:
    return _known(kind, json.loads(data))


def _known(kind: type[Any], found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"not a {kind.__name__} in JSON")
    names = [one.name for one in fields(kind)]
    missing = [one.name for one in fields(kind) if one.name not in found and _required(one)]
    if missing:
        raise ValueError(f"a {kind.__name__} without {', '.join(missing)}")
    return _named(names, found)


def _required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _named(names: Sequence[str], found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}
