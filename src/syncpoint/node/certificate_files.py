"""Certificates that are replaced on disk while a process runs.

Place: under `public_tls`, of listeners for clients, and `cluster/tls`, of connections between processes.
Promise: a certificate that is replaced is shown to every connection from a few seconds later on; one that cannot be
used, or is half written, is not taken over, and the one before stays. Whom processes trust follows its file as soon: an
authority that is taken out is trusted by no handshake any more, and whoever wants it (`on_removed`) is called, because
connections that are open were made under it.
"""

from __future__ import annotations

import logging
import ssl
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.file_marks import marks_of
from syncpoint.base.runtime.periodic import Periodic

LOOK_S: Final = 5.0

log = logging.getLogger(__name__)


class FollowingContext(ssl.SSLContext):
    """A context whose handshakes are made by `made`, which can be exchanged: a context in use forgets no authority."""

    made: ssl.SSLContext
    _protocols: Sequence[str] = ()

    def follow(self, made: ssl.SSLContext) -> None:
        """Shake hands by this one from now on."""
        if self._protocols:
            made.set_alpn_protocols(list(self._protocols))
        self.check_hostname, self.verify_mode, self.made = made.check_hostname, made.verify_mode, made

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        self._protocols = tuple(alpn_protocols)
        self.made.set_alpn_protocols(list(self._protocols))

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        return self.made.wrap_socket(*args, **kwargs)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.made.wrap_bio(*args, **kwargs)


class CertificateFiles:
    """A certificate with its key, and the contexts that show it. `load` puts it into one more of them. `ca`: who is
    trusted to sign those of others, where contexts that `following` makes read it. `on_removed`: called after an
    authority was taken out of it."""

    def __init__(self, certificate: Path, key: Path, ca: Path | None = None) -> None:
        self._certificate, self._key, self._ca = certificate, key, ca
        self._files = [one for one in (certificate, key, ca) if one is not None]
        self._contexts: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
        self._made: weakref.WeakKeyDictionary[FollowingContext, Callable[[], ssl.SSLContext]]
        self._made = weakref.WeakKeyDictionary()
        self._following = Periodic(self._follow, lambda: LOOK_S)
        self._seen = marks_of(self._files)
        self._trusted = frozenset[bytes]()
        self._removed = False
        self.on_removed: Callable[[], Awaitable[None]] | None = None

    def load(self, context: ssl.SSLContext) -> None:
        """Let a context show the certificate, now and later. Raises `SSLError` and `OSError`."""
        context.load_cert_chain(self._certificate, self._key)
        self._contexts.add(context)

    def following(self, make: Callable[[], ssl.SSLContext]) -> FollowingContext:
        """A context that is made anew whenever a file has changed. Raises what `make` does."""
        made = make()
        context = FollowingContext(made.protocol)
        context.follow(made)
        self._made[context] = make
        self._trusted |= frozenset(made.get_ca_certs(binary_form=True))
        return context

    def start(self) -> None:
        """Follow the files."""
        self._following.start()

    async def stop(self) -> None:
        """Do not any more."""
        await self._following.stop()

    def reload(self) -> bool:
        """Take over what has changed; whether there was something."""
        marks = marks_of(self._files)
        if marks == self._seen:
            return False
        try:
            # Into contexts of their own first: what does not fit together must not spoil those in use.
            trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            trial.load_cert_chain(self._certificate, self._key)
            if self._ca is not None:
                trial.load_verify_locations(self._ca)
            made = [(context, make()) for context, make in list(self._made.items())]
            for context in list(self._contexts):
                context.load_cert_chain(self._certificate, self._key)
        except (ssl.SSLError, OSError, InvalidArgument) as error:
            log.error("cannot load the new %s: %s", self._names(), reason_of(error))
            return False
        trusted = frozenset(trial.get_ca_certs(binary_form=True))
        for following, fresh in made:
            following.follow(fresh)
        self._removed, self._trusted = self._removed or not self._trusted <= trusted, trusted
        self._seen = marks
        log.info("loaded the new %s", self._names())
        return True

    async def _follow(self) -> None:
        self.reload()
        if self._removed and self.on_removed is not None:
            self._removed = False
            await self.on_removed()

    def _names(self) -> str:
        return ", ".join(map(str, self._files))


def reason_of(error: ssl.SSLError | OSError | InvalidArgument) -> str:
    """The reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)


def readable(key: str, path: Path) -> str:
    """The path of a file that can be read. Raises `InvalidArgument` naming `key`, the setting that named it."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise InvalidArgument(key, f"{path} cannot be read: {error.strerror}") from None
    return str(path)
