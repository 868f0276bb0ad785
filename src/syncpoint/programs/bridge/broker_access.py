"""What is shown to the other broker, from files.

Place: under `mqtt_link` and `rabbit_link`. Raises `OSError` for files that cannot be read.
"""

from __future__ import annotations

import ssl

from syncpoint.front.client.client import client_tls
from syncpoint.programs.bridge.bridge_file import OtherBroker


def tls_of(broker: OtherBroker) -> ssl.SSLContext:
    """The context for the broker."""
    return client_tls(*(str(one) if one else None for one in (broker.ca, broker.cert, broker.key)))


def password_of(broker: OtherBroker) -> str | None:
    """The password that a file holds."""
    return broker.password_file.read_text().strip() if broker.password_file else None
