"""Connections to etcd by TLS, with files that may be replaced while a process runs.

Place: under `cluster_environment`; the files stand under `metadata` in `cluster.yaml`.
Promise: every new connection trusts the authority and shows the certificate that are on the disk by then. Files that
cannot be used are logged, and connections are made with those before them.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.node.certificate_files import reason_of
from syncpoint.wire.transport.network import AnyChannel, TcpNetwork

log = logging.getLogger(__name__)


class EtcdNetwork(TcpNetwork):
    """`ca`: who signs the certificates of etcd; None: the authorities of the system. `certificate`, `key`: shown to
    an etcd that asks for one. Raises `InvalidArgument`."""

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
            log.error("%s; the files before go on to be used", self._problem(error))
        return super().channel(address)

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, self._key)
        return context

    def _problem(self, error: ssl.SSLError | OSError) -> str:
        files = ", ".join(str(one) for one in (self._ca, self._certificate, self._key) if one is not None)
        return f"{files} cannot be used for etcd: {reason_of(error)}"
