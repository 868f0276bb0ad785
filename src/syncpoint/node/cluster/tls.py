"""TLS between the processes of a cluster: files of `cluster.yaml` as contexts.

Place: made by `cluster_environment`, asked by `context` when a process joins.
Promise: with `tls` in the file nothing between processes goes in the clear, and (unless `client_certificates: false`)
nobody without a certificate of the cluster's CA is listened to. A process whose own certificate cannot do that says so
before it does anything else: see `prove`. One whose certificate the others refuse does not join: see `welcome`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.node.certificate_files import CertificateFiles, readable, reason_of
from syncpoint.node.cluster.settings import ClusterSettings, TlsFiles
from syncpoint.wire.transport.frames import PREFACE
from syncpoint.wire.transport.network import split_address

_ASKED_MAX = 5
_ANSWER_S = 2.0
_NO_SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # an empty SETTINGS frame
_ANY_HOST = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of one process, and whom it trusts. Contexts show the certificate and trust the authorities that
    are there now, while `shown` is followed."""

    files: TlsFiles
    shown: CertificateFiles = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", CertificateFiles(self.files.certificate, self.files.key, self.files.ca))

    def client(self) -> ssl.SSLContext:
        """To call others: they must be named by the cluster's CA, with the address they are called at."""
        return self.shown.following(self._client)

    def server(self) -> ssl.SSLContext:
        """To be called by others."""
        return self.shown.following(self._server)

    def _client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=readable("tls.ca", self.files.ca))
        self._show(context)
        return context

    def _server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=readable("tls.ca", self.files.ca))
        context.verify_mode = ssl.CERT_REQUIRED if self.files.client_certificates else ssl.CERT_NONE
        self._show(context)
        return context

    def _show(self, context: ssl.SSLContext) -> None:
        readable("tls.certificate", self.files.certificate)
        readable("tls.key", self.files.key)
        try:
            context.load_cert_chain(self.files.certificate, self.files.key)
        except ssl.SSLError as error:
            raise InvalidArgument(
                "tls.certificate",
                f"{self.files.certificate} and {self.files.key} do not belong together: {reason_of(error)}",
            ) from None

    def prove(self, *hosts: str) -> None:
        """Shake hands with ourselves, once for each host we are called at.

        Raises `InvalidArgument` saying what is wrong with the certificate: signed by another CA, expired, made for
        another address, not fit for servers or for clients.
        """
        for host in hosts:
            try:
                _shake_hands(self._client(), self._server(), host if host not in _ANY_HOST else None)
            except ssl.SSLError as error:
                raise InvalidArgument(
                    "tls.certificate",
                    f"{self.files.certificate} is not valid for a process at {host}: {reason_of(error)}."
                    f" It must be signed by {self.files.ca}, be valid today, name that address, and allow the use by"
                    " servers and clients.",
                ) from None


def tls_of(settings: ClusterSettings, name: str) -> Tls | None:
    """What a process of that name shows and trusts; None: the cluster speaks plain TCP."""
    return None if settings.tls is None else Tls(settings.tls.of(name))


def operator_tls(settings: ClusterSettings) -> Tls | None:
    """For a command of the operator: the certificate of the first process whose files are on this machine."""
    if settings.tls is None:
        return None
    found = [settings.tls.of(name) for name in settings.processes]
    for files in found:
        if files.certificate.exists() and files.key.exists():
            return Tls(files)
    raise InvalidArgument("tls.certificate", "no certificate of a process is on this machine; commands need one, too")


async def welcome(tls: Tls | None, name: str, members: Iterable[Member]) -> None:
    """Return if this process can talk to those that are there. Raises `FailedPrecondition` when they speak plain TCP
    and it does not, or the other way round, and when its certificate or theirs is refused.
    """
    living = [member for member in members if member.name != name]
    other = sorted(member.name for member in living if member.tls != (tls is not None))
    if other:
        theirs, ours = ("plain TCP", "TLS") if tls is not None else ("TLS", "plain TCP")
        raise FailedPrecondition(
            f"{', '.join(other)} use {theirs} inside the cluster, but {name} uses {ours}. `tls` in cluster.yaml"
            " must be the same for all processes. To change it, stop all processes first."
        )
    if tls is None:
        return
    refused = ""
    for member in living[:_ASKED_MAX]:
        why = await asyncio.to_thread(_refusal, tls.client(), member.address)
        if why == "":
            return
        if why is not None and not refused:
            refused = f"{member.name} at {member.address}: {why}"
    if refused:
        raise FailedPrecondition(
            f"{name} has no valid certificate for this cluster ({tls.files.certificate}, trusting {tls.files.ca});"
            f" {refused}. Install one that is signed by the cluster's CA."
        )


def _refusal(context: ssl.SSLContext, address: str) -> str | None:
    """Why a process refuses us, or we refuse it; empty: it does not; None: it does not answer."""
    host, port = split_address(address)
    greeted = False
    try:
        with socket.create_connection((host, port), _ANSWER_S) as plain:
            plain.settimeout(_ANSWER_S)
            with context.wrap_socket(plain, server_hostname=host) as sock:
                greeted = True  # as far as this end knows: whether ours is refused is reported after the handshake
                sock.sendall(PREFACE + _NO_SETTINGS)
                return "" if sock.recv(1) else "it closes the connection"
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is rejected here: {reason_of(error)}"
    except TimeoutError:
        return None
    except ssl.SSLError as error:
        return f"it rejects the connection: {reason_of(error)}"
    except OSError:
        return "it closes the connection" if greeted else None


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str | None) -> None:
    """A handshake in memory; raises `SSLError`. Without a host, names are not compared."""
    if host is None:
        client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue  # the other end speaks next
        if not ends:
            return
    raise ssl.SSLError("the handshake did not complete")
