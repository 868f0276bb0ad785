"""TLS at a listener for clients: files as a context that follows them.

Place: made by `process` and by the role of proxies.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from syncpoint.model.errors import InvalidArgument
from syncpoint.node.certificate_files import CertificateFiles, reason_of


class PublicTls:
    """`client_ca`: who signs clients' certificates. `optional`: a client without one is let in, to show a token."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None, *, optional: bool) -> None:
        """Raises `InvalidArgument`."""
        self.files = CertificateFiles(certificate, key)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.files.load(self.context)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument("tls_cert", f"{certificate} and {key} cannot be used: {reason_of(error)}") from None
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as error:
                raise InvalidArgument("tls_client_ca", f"{client_ca} cannot be used: {reason_of(error)}") from None
            self.context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
