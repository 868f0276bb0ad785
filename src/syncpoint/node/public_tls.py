"""TLS at a listener for clients: files as a context that follows them.

Place: made for `client_port`, from the settings of a node or of a proxy.
Promise: who is trusted to sign clients' certificates follows its file as the listener's own certificate does. An
authority that is taken out of the file is trusted by no handshake from a few seconds later on, also of a session that
began before; open connections that showed a certificate end in order and shake hands anew.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.file_marks import Mark, mark_of
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.node.certificate_files import LOOK_S, CertificateFiles, readable, reason_of
from syncpoint.node.settings import ClientSettings

log = logging.getLogger(__name__)


def public_tls(settings: ClientSettings, *, optional: bool = False) -> PublicTls | None:
    """What clients are shown; None: plain TCP. `optional`: clients may come without a certificate, too. Raises
    `InvalidArgument`."""
    certificate, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if certificate is None or key is None:
        return None
    for name, path in (("tls_cert", certificate), ("tls_key", key), ("tls_client_ca", client_ca)):
        if path is not None:
            readable(name, path)
    return PublicTls(certificate, key, client_ca, optional=optional)


class PublicTls:
    """`client_ca`: who signs clients' certificates. `optional`: a client without one is let in, to show a token."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None, *, optional: bool) -> None:
        """Raises `InvalidArgument`."""
        self.files = CertificateFiles(certificate, key)
        self._client_ca, self._optional = client_ca, optional
        self._following: Periodic | None = None
        self._seen = self._mark()
        try:
            self.context = self._made()
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument("tls_cert", f"{certificate} and {key} cannot be used: {reason_of(error)}") from None
        try:
            self._trust(self.context)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument("tls_client_ca", f"{client_ca} cannot be used: {reason_of(error)}") from None

    def start(self, renew: Callable[[ssl.SSLContext], Awaitable[None]]) -> None:
        """Follow the files. `renew`: the listener shakes hands by another context from now on."""
        self.files.start()
        if self._client_ca is not None:
            self._following = Periodic(partial(self._follow, renew), lambda: LOOK_S)
            self._following.start()

    async def stop(self) -> None:
        """Do not any more."""
        if self._following is not None:
            await self._following.stop()
        await self.files.stop()

    def reload(self) -> bool:
        """Whether clients' authorities have changed: `context` is a new one then, because a context forgets none."""
        mark = self._mark()
        if mark == self._seen:
            return False
        try:
            context = self._made()
            self._trust(context)
        except (ssl.SSLError, OSError) as error:
            log.error("cannot load the new %s: %s", self._client_ca, reason_of(error))
            return False
        self._seen, self.context = mark, context
        log.info("loaded the new %s", self._client_ca)
        return True

    async def _follow(self, renew: Callable[[ssl.SSLContext], Awaitable[None]]) -> None:
        if self.reload():
            await renew(self.context)

    def _made(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.files.load(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL if self._optional else ssl.CERT_REQUIRED

    def _mark(self) -> Mark | None:
        return None if self._client_ca is None else mark_of(self._client_ca)
