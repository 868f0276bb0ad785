"""What a client shows to a server that asks who calls: a token from a file, or one made with a key file.

Place: handed to `Client`, which asks for it before every attempt.
Promise: a token that is replaced in its file is used from the next call on; one that is made here is good for an hour
and made again before it ends. Neither token nor key is ever printed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final, Protocol

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.transport.client import MetadataItems

LIFE_S: Final = 3600
SPARE_S: Final = 300
SCOPE: Final = "https://www.googleapis.com/auth/pubsub"


class CallCredentials(Protocol):
    """Whatever has a header for a call."""

    def metadata(self) -> MetadataItems:
        """The header. Raises `InvalidArgument` where there is none."""
        ...


class Credentials:
    """A file with a token, or with the key of a service account (JSON, as Google's libraries read it)."""

    def __init__(self, path: Path) -> None:
        """Raises `InvalidArgument` for a file that holds neither, and `OSError`."""
        self.path = path
        self._key: dict[str, Any] | None = None
        self._token, self._until = "", 0.0
        text = path.read_text().strip()
        if text.startswith("{"):
            try:
                key = json.loads(text)
                self._key = {name: str(key[name]) for name in ("client_email", "private_key", "private_key_id")}
            except (ValueError, KeyError, TypeError):
                raise InvalidArgument(
                    "",
                    f"{path} is not a service account key file: client_email, private_key and private_key_id are"
                    " needed",
                ) from None
        elif not text or any(char.isspace() for char in text):
            raise InvalidArgument("", f"{path} must contain a token or a service account key in JSON")

    @property
    def signing(self) -> bool:
        """Whether the file has a key, and no token."""
        return self._key is not None

    def token(self) -> str:
        """A token for now. Raises `OSError`, and `InvalidArgument` for a key that cannot sign."""
        if self._key is None:
            return self.path.read_text().strip()
        now = time.time()
        if now >= self._until - SPARE_S:
            self._token, self._until = self_signed(self._key, now), now + LIFE_S
        return self._token

    def metadata(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header of a call."""
        return ((b"authorization", b"Bearer " + self.token().encode()),)


def self_signed(key: dict[str, Any], now: float) -> str:
    """A token that a service account signs itself, as the official libraries do. Raises `InvalidArgument`."""
    import jwt  # not with every command
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    email, issued = key["client_email"], int(now)
    claims = {"iss": email, "sub": email, "scope": SCOPE, "iat": issued, "exp": issued + LIFE_S}
    try:
        private: Any = load_pem_private_key(key["private_key"].encode(), None)
        algorithm = "ES256" if isinstance(private, ec.EllipticCurvePrivateKey) else "RS256"
        return jwt.encode(claims, private, algorithm, {"kid": key["private_key_id"]})
    except (ValueError, TypeError, jwt.PyJWTError) as error:
        raise InvalidArgument("", f"the private key of {email} cannot be used: {error}") from None
