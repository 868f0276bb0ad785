"""TLS at a public listener follows its files."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

from syncpoint.node.public_tls import PublicTls
from syncpoint.testing.certificates import Authority


def shown_to(shown_tls: PublicTls, ca: Path) -> bool:
    """Whether a client that trusts `ca` accepts what the listener shows."""
    client = ssl.create_default_context(cafile=str(ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        shown_tls.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return not ends


def test_a_certificate_that_is_replaced_is_shown_and_one_that_can_not_be_used_is_not(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    certificate, key = old.issue("shown_tls")
    shown_tls = PublicTls(certificate, key, None, optional=False)
    assert shown_to(shown_tls, old.ca)
    assert not shown_tls.files.look()
    other_certificate, other_key = new.issue("shown_tls")
    shutil.copy(other_certificate, certificate)
    assert not shown_tls.files.look(), "the key is not that of the certificate yet"
    assert shown_to(shown_tls, old.ca)
    shutil.copy(other_key, key)
    assert shown_tls.files.look()
    assert shown_to(shown_tls, new.ca)
    assert not shown_to(shown_tls, old.ca)
