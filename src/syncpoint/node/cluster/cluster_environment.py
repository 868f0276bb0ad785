"""What a process of a cluster is handed of its machine and network; a simulation hands in its own."""

from __future__ import annotations

import logging
import platform
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.base.runtime.files import Files
from syncpoint.base.runtime.machine import network_of_machine
from syncpoint.catalog.metadata.etcd import open_etcd
from syncpoint.catalog.metadata.remote import open_remote
from syncpoint.catalog.metadata.store_client import SharedStore
from syncpoint.log.diskserver.remote_files import DiskAddress, RemoteFiles
from syncpoint.node.certificate_files import reason_of
from syncpoint.node.cluster.settings import ClusterSettings
from syncpoint.node.cluster.tls import Tls
from syncpoint.node.node_environment import ProcessEnvironment
from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.network import AnyChannel, Network, TcpNetwork, split_address
from syncpoint.wire.transport.unsent import Unsent

AddressOf = Callable[[str], str | None]
"""Where a storage process of that name serves its disks; None while it is not there."""


log = logging.getLogger(__name__)


class EtcdNetwork(TcpNetwork):
    """Connections to etcd by TLS. `ca`: who signs the certificates of etcd; None: the authorities of the system.
    `certificate`, `key`: shown to an etcd that asks for one. Raises `InvalidArgument`.

    Every new connection trusts the authority and shows the certificate that are on the disk by then. Files that cannot
    be used are logged, and connections are made with those before them.
    """

    def __init__(self, ca: Path | None, certificate: Path | None, key: Path | None) -> None:
        self._ca, self._certificate, self._key = ca, certificate, key
        try:
            super().__init__(client_tls=self._read())
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument("metadata", self._problem(error)) from None

    def channel(self, address: str) -> AnyChannel:
        """Open a channel with the current certificates. The client of etcd calls this after a member has failed."""
        try:
            self._client_tls = self._read()
        except (ssl.SSLError, OSError) as error:
            log.error("%s; the previous files stay in use", self._problem(error))
        return super().channel(address)

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key)
        return context

    def _problem(self, error: ssl.SSLError | OSError) -> str:
        files = ", ".join(str(one) for one in (self._ca, self._certificate, self._key) if one is not None)
        return f"{files} cannot be used for etcd: {reason_of(error)}"


@dataclass(frozen=True)
class ClusterEnvironment(ProcessEnvironment):
    """`host` names the machine, `machine` distinguishes it from others (see `runtime.machine`)."""

    network: Network = field(default_factory=TcpNetwork)
    drain_s: float = 5.0  # how long open calls may take to finish
    tls: Tls | None = None  # between processes
    one_server: bool = False  # its processes are the workers of one server, which show their metrics together
    host: str = field(default_factory=platform.node)
    machine: str = field(default_factory=network_of_machine)
    unsent: Unsent = field(
        default_factory=lambda: Unsent(TransportLimits().unsent_total_bytes)
    )  # of all servers of the process
    open_metadata: Callable[[ClusterSettings], Awaitable[SharedStore]] | None = None
    open_files: Callable[[ChainRecord, int, AddressOf], tuple[Files, list[str]]] | None = None

    @staticmethod
    def of(tls: Tls | None) -> ClusterEnvironment:
        """The real ones. Raises `InvalidArgument` for certificates that cannot be used."""
        unsent = Unsent(TransportLimits().unsent_total_bytes)
        if tls is None:
            return ClusterEnvironment(network=TcpNetwork(unsent=unsent), unsent=unsent)
        return ClusterEnvironment(network=TcpNetwork(tls.client(), tls.server(), unsent), tls=tls, unsent=unsent)

    def public_network(self, tls: ssl.SSLContext | None) -> Network:
        """Where clients come in."""
        return self.network if tls is None and self.tls is None else TcpNetwork(server_tls=tls, unsent=self.unsent)

    async def metadata(self, settings: ClusterSettings) -> SharedStore:
        """The cluster's metadata store."""
        if self.open_metadata is not None:
            return await self.open_metadata(settings)
        if settings.metadata:
            return await open_remote(settings.metadata, self.network, clock=self.clock)
        user = None
        if settings.etcd_user:
            from syncpoint.catalog.metadata.etcd_client import User

            password = _secret(settings.etcd_password_file)
            user = User(settings.etcd_user, password)
        network: Network = TcpNetwork()
        if settings.etcd_ca is not None or settings.etcd_certificate is not None:
            certificate, key = settings.etcd_certificate, settings.etcd_key
            if certificate is None and self.tls is not None:
                certificate, key = self.tls.files.certificate, self.tls.files.key
            network = EtcdNetwork(settings.etcd_ca, certificate, key)
        return await open_etcd(settings.etcd, network, clock=self.clock, random=self.random, user=user)

    def disks_of(self, record: ChainRecord, epoch: int, address_of: AddressOf) -> tuple[Files, list[str]]:
        """The files of a chain's disks under an epoch, and the roots in slot order."""
        if self.open_files is not None:
            return self.open_files(record, epoch, address_of)
        places: dict[str, Callable[[], DiskAddress | None]] = {}
        for place in record.places:
            places[root_of(place.cluster, place.disk)] = partial(_where, address_of, place)
        tls = self.tls.client() if self.tls is not None else None
        files = RemoteFiles(places, record.number, epoch, self.clock, durability=record.durability, tls=tls)
        return files, list(places)


def _where(address_of: AddressOf, place: DiskPlace) -> DiskAddress | None:
    """Asked at every connection, from any thread: a storage process may come back elsewhere."""
    address = address_of(place.process)
    if not address:
        return None
    host, port = split_address(address)
    return DiskAddress(host, port, place.disk)


def root_of(cluster: str, disk: str) -> str:
    """What a disk of a chain is called as a folder."""
    return f"/{cluster}/{disk}"


def _secret(path: Path | None) -> str:
    if path is None:
        raise Unavailable("metadata: set `password_file` along with the user")
    return path.read_text().strip()
