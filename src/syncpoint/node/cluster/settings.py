"""cluster.yaml: what all processes of a cluster must agree on, and what each process is given for itself.

Place: read by `syncpoint run` and `syncpoint cluster`; turned into running parts by `process`.
Promise: a file with a mistake is refused with the place and the reason. Cluster-wide settings have a fingerprint:
processes compare it when they join, so two files that disagree are noticed before anything is stored.
`docs/operations.md` explains every key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from syncpoint.base.model.cluster import PROXY, SUBSCRIBE
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.settings_section import SettingsSection, file_named
from syncpoint.base.model.yaml_text import load_yaml
from syncpoint.base.tracing.tracer import TracingSettings, checked_tracing
from syncpoint.broker.export.buckets import Place, place_of
from syncpoint.broker.push.addresses import networks
from syncpoint.broker.router.location import DEFAULT_CLASS
from syncpoint.catalog.transforms.inference import check_model
from syncpoint.cluster.control.durability_classes import CLASSES, DurabilityClass
from syncpoint.cluster.mitigation.mitigator import MitigationMode, MitigationSettings
from syncpoint.cluster.mitigation.sickness import SicknessLimits
from syncpoint.log.storage.placement import MODES
from syncpoint.log.storage.settings import MIB, Durability, StorageSettings
from syncpoint.watch.metrics.otlp_export import MetricsExportSettings, checked_export
from syncpoint.wire.transport.network import join_address, split_address

ROLES = ("storage", "publish-forwarder", "subscribe-forwarder", "router", "proxy")
WEIGHT_MAX = 1000.0
SPLIT_AT = 120_000.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """How processes of the cluster prove to each other who they are; `{name}` in a path stands for the process."""

    certificate: Path
    key: Path
    ca: Path  # who signs the processes' certificates
    client_certificates: bool = True  # clients must present one, too

    def of(self, name: str) -> TlsFiles:
        """The files of one process."""
        certificate, key, ca = (Path(str(one).replace("{name}", name)) for one in (self.certificate, self.key, self.ca))
        return TlsFiles(certificate, key, ca, self.client_certificates)


@dataclass(frozen=True, slots=True)
class PushSettings:
    """Where pushes may go beside public addresses, and who they say they come from."""

    networks: tuple[str, ...] = ()  # 10.1.0.0/16; "loopback": this machine
    issuer: str = ""  # the https address of the proxies as endpoints see it; none: no tokens


@dataclass(frozen=True, slots=True)
class MonitorPlace:
    """Which process watches over the others, and keeps history."""

    process: str
    data: Path  # the folder of its file
    file: Path | None = None  # objectives, and who is notified; None: what is shipped


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """One process: its own settings, which may differ between processes."""

    name: str
    roles: tuple[str, ...]
    listen: str = "127.0.0.1:0"  # where other processes call it
    public: str = ""  # proxies: where clients call it
    metrics: str = ""  # where /metrics is answered to anybody; "": nowhere but on `public`
    region: str = "local"
    zone: str = ""
    rack: str = ""
    cluster: str = ""  # storage: the failure domain its disks belong to
    disks: Mapping[str, Path] = field(default_factory=dict)  # storage: name -> folder
    disks_listen: str = ""  # storage: where the disks are served; without it a process that only stores uses `listen`
    require_disks: bool = False  # storage: refuse a disk folder that is new, wiped or not mounted
    tls_cert: Path | None = None  # proxies: what clients are shown
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # proxies: clients must show a certificate that it signed
    weight: float = 1.0  # forwarders: the share of topics and subscriptions, in proportion to the others


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The whole file."""

    name: str
    etcd: tuple[str, ...]
    classes: Mapping[str, DurabilityClass]
    processes: Mapping[str, ProcessSettings]
    etcd_peers: tuple[str, ...] = ()  # where members of etcd call each other; nothing is sent there for users
    etcd_user: str = ""
    etcd_password_file: Path | None = None
    etcd_ca: Path | None = None  # with any of these three, etcd is called by TLS
    etcd_certificate: Path | None = None  # shown to etcd
    etcd_key: Path | None = None
    metadata: str = ""  # instead of etcd: HOST:PORT of a process that serves its own store
    tls: TlsFiles | None = None  # between processes; None: plain TCP
    auth: Path | None = None  # proxies: the file of principals and roles; None: everybody may do everything
    host_names: tuple[str, ...] = ()  # further names for HTTP requests to proxies on loopback without `auth`
    insecure: bool = False  # listeners that others than this machine reach may go without TLS, and without `auth`
    sealing_key_file: Path | None = None  # given: message data is sealed under this key-encryption key
    balance: float = 0.25  # no forwarder above (1 + balance) times the average
    split_at: float = SPLIT_AT  # messages and KiB per second below which no topic or subscription is split
    mitigation: MitigationSettings = field(default_factory=MitigationSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    push: PushSettings = field(default_factory=PushSettings)
    models: tuple[tuple[str, str], ...] = ()  # of transforms that ask a model: endpoint name, address
    buckets: tuple[tuple[str, Place], ...] = ()  # of Cloud Storage subscriptions: by name, where they are
    monitor: MonitorPlace | None = None  # None: nobody watches, unless `syncpoint monitor` does
    tracing: TracingSettings = field(default_factory=TracingSettings)
    metrics_export: MetricsExportSettings = field(default_factory=MetricsExportSettings)
    fixed_classes: bool = False  # workers of one server: there is no other class, and none can be added
    source: str = ""  # of the file's bytes, the first 16 hexadecimal digits of SHA-256; "" where there was no file

    def fingerprint(self) -> dict[str, Any]:
        """What every process must agree on, as plain values."""
        return {
            "name": self.name,
            CLASSES: {name: asdict(one) for name, one in sorted(self.classes.items())},
            "sealing": self.sealing_key_file is not None,
            "balance": self.balance,
            "segment_bytes": self.storage.segment_bytes,
            **({} if self.split_at == SPLIT_AT else {"split_at": self.split_at}),  # earlier versions do not name it
        }

    def digest(self) -> str:
        """The fingerprint in 16 hexadecimal digits."""
        text = json.dumps(self.fingerprint(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def check_files(self, roles: Collection[str]) -> None:
        """Raises `InvalidArgument` naming the key of a file that a process of these roles needs and cannot read."""
        named = {
            "metadata.password_file": self.etcd_password_file,
            "metadata.ca_file": self.etcd_ca,
            "metadata.cert_file": self.etcd_certificate,
            "metadata.key_file": self.etcd_key,
            "auth": self.auth if PROXY in roles or SUBSCRIBE in roles else None,
            "sealing.key_file": self.sealing_key_file if PROXY in roles else None,
        }
        for key, path in named.items():
            if path is not None:
                with file_named(f"cluster.yaml: {key}", path):
                    path.open("rb").close()

    def process(self, name: str, roles: tuple[str, ...] = ()) -> ProcessSettings:
        """One process. A name that is not in the file gets defaults; `roles` replace those of the file."""
        found = self.processes.get(name) or ProcessSettings(name, roles)
        found = replace(found, roles=roles or found.roles)
        if not found.roles:
            raise InvalidArgument("roles", f"process {name} has no roles; set one or more of {', '.join(ROLES)}")
        if "storage" in found.roles and not (found.cluster and found.disks):
            raise InvalidArgument("disks", f"process {name} has the role storage and needs `cluster` and `disks`")
        if found.roles == ("storage",) and not found.disks_listen:
            host, _ = split_address(found.listen)
            found = replace(found, disks_listen=found.listen, listen=join_address(host, 0))
        if "storage" in found.roles and not found.disks_listen:
            raise InvalidArgument(
                "disks_listen", f"process {name} has roles besides storage and needs an address to serve its disks"
            )
        return found


class SettingsRefused(InvalidArgument):
    """A mistake in a cluster's file."""

    def __init__(self, path: Path, line: int | None, reason: str) -> None:
        super().__init__(f"{path}, line {line}" if line else str(path), reason)
        self.settings_file = path


def load(path: Path) -> ClusterSettings:
    """Read cluster.yaml. Raises `SettingsRefused` naming the line and the key, `OSError` when it cannot be read."""
    data = path.read_bytes()
    text = data.decode()
    try:
        content = load_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsRefused(path, None, f"is not YAML: {error}") from None
    try:
        found = replace(parse(content, path.parent), source=source_of(data))
        return found if found.etcd_peers else replace(found, etcd_peers=_peers_beside(path))
    except InvalidArgument as error:
        reason = error.message.removeprefix("cluster.yaml: ")
        raise SettingsRefused(path, line_of(text, reason), reason) from None


def _peers_beside(path: Path) -> tuple[str, ...]:
    """User and password of the etcd that an earlier `cluster up` made; its file does not name them."""
    try:
        return tuple(json.loads((path.parent / "etcd.json").read_text())["peers"])
    except (OSError, ValueError, KeyError):
        return ()


def source_of(data: bytes) -> str:
    """The `ClusterSettings.source` of a file with these bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def line_of(text: str, reason: str) -> int | None:
    """The line of the key that a refusal names, as far down as the file has it."""
    node, line = yaml.compose(text), None
    for word in re.split(r"[:;.,'\s]+", reason):
        if not isinstance(node, yaml.MappingNode):
            break
        for key, value in node.value:
            if key.value == word:
                line, node = key.start_mark.line + 1, value
                break
    return line


def parse(content: Any, base: Path = Path()) -> ClusterSettings:
    """The file's content as settings; relative paths start at `base`. Raises `InvalidArgument`."""
    top = _ClusterSection(content, "cluster.yaml", base)
    metadata = top.section("metadata")
    etcd = tuple(metadata.texts("etcd"))
    served = metadata.text("service")
    if bool(etcd) == bool(served):
        raise InvalidArgument("metadata", "set either `etcd`, a list of HOST:PORT, or `service`, one HOST:PORT")
    _check_zones(etcd, metadata.texts("zones"))
    peers = tuple(metadata.texts("peers"))
    for address in (*etcd, *peers, *([served] if served else [])):
        _address("metadata", address)
    default = _durability_class(DEFAULT_CLASS, top.section("replication"), DurabilityClass())
    classes = {DEFAULT_CLASS: default}
    extra = top.section("classes")
    for name in extra.names():
        classes[name] = _durability_class(name, extra.section(name), replace(default, name=name))
    processes = {}
    listed = top.section("processes")
    for name in listed.names():
        processes[name] = _process(name, listed.section(name))
    store = top.section("storage")
    storage = StorageSettings(
        segment_bytes=store.whole("segment_bytes", 16 * MIB),  # each disk has one, and a spare one, for every chain
        cache_bytes=store.whole("cache_bytes", 64 * MIB),
        pool_segments=store.whole("pool_segments", 1),
        hung_s=store.number("hung_s", StorageSettings().hung_s),
        probe_interval_s=store.number("probe_interval_s", 2.0),
        commit_spacing_s=store.number("commit_spacing_s", 0.03),  # binds only where a commit takes more than half of it
        scrub_bytes_s=store.whole("scrub_bytes_s", MIB),
    )
    store.done()
    settings = ClusterSettings(
        name=top.text("cluster") or "syncpoint",
        etcd=etcd,
        classes=classes,
        processes=processes,
        etcd_peers=peers,
        etcd_user=metadata.text("user"),
        etcd_password_file=metadata.path("password_file"),
        etcd_ca=metadata.path("ca_file"),
        etcd_certificate=metadata.path("cert_file"),
        etcd_key=metadata.path("key_file"),
        metadata=served,
        tls=_tls(top.section("tls")) if top.has("tls") else None,
        auth=top.path("auth"),
        host_names=tuple(top.texts("host_names")),
        insecure=top.flag("insecure", False),
        sealing_key_file=top.section("sealing").path("key_file"),
        balance=top.number("balance", 0.25),
        split_at=top.number("split_at", SPLIT_AT),
        mitigation=_mitigation(top.section("mitigation")),
        storage=storage,
        push=_push(top.section("push")),
        models=_models(top.section("models")),
        buckets=_buckets(top.section("buckets"), base),
        monitor=_monitor(top.section("monitor"), processes) if top.has("monitor") else None,
        tracing=_tracing(top.section("tracing")),
        metrics_export=_metrics_export(top.section("metrics")),
    )
    if (settings.etcd_certificate is None) != (settings.etcd_key is None):
        raise InvalidArgument("metadata.cert_file", "must be set together with `key_file`")
    if settings.balance <= 0:
        raise InvalidArgument("balance", "must be above 0, for instance 0.25")
    if settings.split_at <= 0:
        raise InvalidArgument("split_at", "must be above 0, for instance 120000")
    metadata.done()
    top.done()
    return settings


def _check_zones(etcd: Sequence[str], zones: Sequence[str]) -> None:
    """Return if the loss of any one zone leaves a majority of the members of etcd. Raises `InvalidArgument`."""
    if not zones:
        return
    if len(zones) != len(etcd):
        raise InvalidArgument(
            "metadata.zones", f"must name the zone of each member of `etcd`: {len(etcd)} members, {len(zones)} zones"
        )
    zone, members = Counter(zones).most_common(1)[0]
    if 2 * (len(etcd) - members) <= len(etcd):
        raise InvalidArgument(
            "metadata.zones",
            f"{zone} has {members} of {len(etcd)} members of etcd: without it the others are no majority. Place three"
            " members in three zones, or five in three zones with two at most in each",
        )


def _mitigation(reader: _ClusterSection) -> MitigationSettings:
    base = MitigationSettings()
    limits = SicknessLimits(
        reader.number("loop_lag_s", base.limits.loop_lag_s),
        reader.whole("bad_looks", base.limits.bad_looks),
        reader.number("window_s", base.limits.window_s),
        reader.number("probation_s", base.limits.probation_s),
        reader.number("errors_share", base.limits.errors_share),
        reader.whole("calls_min", base.limits.calls_min),
        reader.number("disk_p99_s", base.limits.disk_p99_s),
    )
    mode = MitigationMode(reader.choice("mode", tuple(one.value for one in MitigationMode), base.mode.value))
    made = MitigationSettings(mode, limits, reader.number("share", base.share))
    if min(*limits, made.share) <= 0 or max(made.share, limits.errors_share) > 1:
        raise InvalidArgument("mitigation", "all numbers must be above 0, and `share` and `errors_share` at most 1")
    return made


def _durability_class(name: str, reader: _ClusterSection, base: DurabilityClass) -> DurabilityClass:
    made = DurabilityClass(
        name=name,
        clusters=reader.whole("clusters", base.clusters),
        disks=reader.whole("disks", base.disks),
        within=reader.choice("within", ("majority", "all"), base.within),
        over=reader.choice("over", ("majority", "all"), base.over),
        durability=reader.choice("durability", tuple(one.value for one in Durability), base.durability),
        placement=reader.choice("placement", MODES, base.placement),
        racks_min=reader.whole("racks_min", base.racks_min),
        spans_regions=reader.flag("spans_regions", base.spans_regions),
    )
    for key, value in (("clusters", made.clusters), ("disks", made.disks)):
        if value < 1 or value % 2 == 0:
            raise reader.refused(key, f"must be odd, so that a majority can decide, not {value}")
    reader.done()
    return made


def _tracing(reader: _ClusterSection) -> TracingSettings:
    otlp, ratio = reader.text("otlp"), reader.number("ratio", 0.0)
    reader.done()
    return checked_tracing(otlp, ratio, "tracing.otlp", "tracing.ratio")


def _metrics_export(reader: _ClusterSection) -> MetricsExportSettings:
    otlp = reader.text("otlp")
    interval_s = reader.number("interval_s", 0.0) if reader.has("interval_s") else None
    reader.done()
    return checked_export(otlp, interval_s, "metrics.otlp", "metrics.interval_s")


def _models(reader: _ClusterSection) -> tuple[tuple[str, str], ...]:
    found = tuple((name, reader.text(name)) for name in reader.names())
    for name, url in found:
        try:
            check_model(name, url)
        except ValueError as error:
            raise reader.refused(name, str(error)) from None
    return found


def _buckets(reader: _ClusterSection, base: Path) -> tuple[tuple[str, Place], ...]:
    found = []
    for name in reader.names():
        try:
            if isinstance(reader.value(name), dict):
                one = reader.section(name)
                options = one.value("options") or {}
                if not isinstance(options, dict):
                    raise one.refused("options", "must be a mapping of keys to values")
                found.append((name, place_of(one.text("url"), options, base, one.text("region"))))
                one.done()
            else:
                found.append((name, place_of(reader.text(name), base=base)))
        except ValueError as error:
            raise InvalidArgument(f"{reader.place}.{name}", str(error)) from None
    return tuple(found)


def _push(reader: _ClusterSection) -> PushSettings:
    made = PushSettings(tuple(reader.texts("networks")), reader.text("issuer"))
    try:
        networks(made.networks)
    except ValueError as error:
        raise reader.refused("networks", str(error)) from None
    if made.issuer and not made.issuer.startswith("https://"):
        raise reader.refused("issuer", "must begin with https://")
    reader.done()
    return made


def _monitor(reader: _ClusterSection, processes: Mapping[str, ProcessSettings]) -> MonitorPlace:
    name, data = reader.text("process"), reader.path("data")
    if name not in processes:
        raise reader.refused("process", f"{name!r} must be one of {', '.join(processes)}")
    if data is None:
        raise reader.refused("data", "must be set to the folder for the history")
    made = MonitorPlace(name, data, reader.path("file"))
    reader.done()
    return made


def _tls(reader: _ClusterSection) -> TlsFiles:
    certificate, key, ca = (reader.path(one) for one in ("certificate", "key", "ca"))
    if certificate is None or key is None or ca is None:
        raise InvalidArgument(reader.place, "`certificate`, `key` and `ca` must be set to paths of PEM files")
    made = TlsFiles(certificate, key, ca, reader.flag("client_certificates", True))
    reader.done()
    return made


def _process(name: str, reader: _ClusterSection) -> ProcessSettings:
    disks = reader.section("disks")
    made = ProcessSettings(
        name=name,
        roles=tuple(reader.texts("roles")),
        listen=reader.text("listen") or "127.0.0.1:0",
        public=reader.text("public"),
        metrics=reader.text("metrics"),
        region=reader.text("region") or "local",
        zone=reader.text("zone"),
        rack=reader.text("rack"),
        cluster=reader.text("cluster"),
        disks={disk: disks.path(disk) or Path() for disk in disks.names()},
        disks_listen=reader.text("disks_listen"),
        require_disks=reader.flag("require_disks", False),
        tls_cert=reader.path("tls_cert"),
        tls_key=reader.path("tls_key"),
        tls_client_ca=reader.path("tls_client_ca"),
        weight=reader.number("weight", 1.0),
    )
    if not 0 < made.weight <= WEIGHT_MAX:
        raise reader.refused("weight", f"must be above 0 and at most {WEIGHT_MAX:g}")
    if (made.tls_cert is None) != (made.tls_key is None) or (made.tls_client_ca and not made.tls_cert):
        raise reader.refused("tls_cert", "TLS for clients needs both `tls_cert` and `tls_key`")
    for role in made.roles:
        if role not in ROLES:
            raise reader.refused("roles", f"{role!r} must be one of {', '.join(ROLES)}")
    _address(f"{reader.place}.listen", made.listen)
    for key, address in (("disks_listen", made.disks_listen), ("public", made.public), ("metrics", made.metrics)):
        if address:
            _address(f"{reader.place}.{key}", address)
    reader.done()
    return made


def _address(place: str, address: str) -> None:
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidArgument(place, str(error)) from None


class _ClusterSection(SettingsSection):
    """One mapping of the file. `base`: the folder that paths in it start from."""

    def __init__(self, content: Any, place: str, base: Path) -> None:
        super().__init__({} if content is None else content, place)
        self._base = base

    def names(self) -> list[str]:
        self._asked.update(self._content)
        return [str(key) for key in self._content]

    def has(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._content

    def section(self, key: str) -> _ClusterSection:
        return _ClusterSection(self.value(key), f"{self.place}: {key}", self._base)

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self._base / Path(value).expanduser() if value else None
