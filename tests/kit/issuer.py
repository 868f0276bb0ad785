"""An issuer of tokens that a server or a cluster trusts, and whose key a test has."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER, AUDIENCE = "https://login.example.com", "https://pubsub.example.com"


class TokenIssuer:
    """Write `auth.yaml` into a folder, with the issuer and `settings`; root@example.com owns the server if these do not
    name others.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key())), "kid": "k1"}
        (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
        issuer = {"issuer": ISSUER, "jwks_file": "keys.json", "domains": ["example.com"]}
        content = {"audiences": [AUDIENCE], "owners": ["user:root@example.com"], "issuers": [issuer], **settings}
        self.auth = folder / "auth.yaml"
        self.auth.write_text(yaml.safe_dump(content))

    def token(self, name: str, seconds: int = 600) -> str:
        """What NAME@example.com shows."""
        now, email = int(time.time()), f"{name}@example.com"
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": email, "email": email, "email_verified": True}
        return jwt.encode({**claims, "iat": now, "exp": now + seconds}, self._key, "ES256", {"kid": "k1"})
