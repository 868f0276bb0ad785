"""Settings of a server process: values a user chooses, which `solo` and `workers` turn into parts."""

from dataclasses import dataclass, field
from pathlib import Path

from syncpoint.base.tracing.tracer import TracingSettings
from syncpoint.broker.export.buckets import Place
from syncpoint.log.storage.settings import StorageSettings
from syncpoint.watch.metrics.otlp_export import MetricsExportSettings
from syncpoint.wire.transport.limits import TransportLimits


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a process that clients call is given for its port, and for what it does for them."""

    host: str = "127.0.0.1"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # clients must show a certificate that it signed
    host_names: tuple[str, ...] = ()  # further names for HTTP requests to a server on loopback without `auth`
    auth: Path | None = None  # the file of principals and roles; None: everybody may do everything
    push_networks: tuple[str, ...] = ()  # that pushes may go to although they are not public; "loopback": this machine
    push_issuer: str = ""  # what tokens of pushes name as their issuer: our https address; none: nothing is signed
    models: tuple[tuple[str, str], ...] = ()  # of transforms that ask a model: endpoint name, http or https address
    buckets: tuple[tuple[str, Place], ...] = ()  # of Cloud Storage subscriptions: by name, where they are
    transport_limits: TransportLimits = field(
        default_factory=TransportLimits
    )  # of the connections of clients; not of workers


@dataclass(frozen=True, slots=True)
class ServeSettings(ClientSettings):
    """What `syncpoint serve` was given."""

    port: int = 8085  # 0: any free one
    region: str = ""  # where it stores messages, for topics that say where they may be; "": nowhere that has a name
    data: Path = Path("syncpoint-data")  # identities and the catalog's copy
    disks: tuple[Path, ...] = ()  # 1, 3 or 5 folders; none: one inside `data`
    durability: str = "sync"
    workers: int = 0  # processes that share the port; 0: one that does everything itself
    metrics: str = ""  # HOST:PORT where /metrics is answered to anybody; "": on the port for clients alone
    metrics_export: MetricsExportSettings = field(default_factory=MetricsExportSettings)
    monitor: Path | None = None  # the monitor's file: objectives, and who is notified; None: what is shipped
    tracing: TracingSettings = field(default_factory=TracingSettings)
    drain_s: float = 5.0  # how long open calls may take to finish after SIGTERM
    storage: StorageSettings = field(default_factory=StorageSettings)

    @property
    def disk_folders(self) -> tuple[Path, ...]:
        return self.disks or (self.data / "disk-1",)
