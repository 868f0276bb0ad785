"""A server that asks who calls, for the official Python client: key files of accounts, tokens of an issuer, TLS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google.auth.transport.grpc
import grpc
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.oauth2 import credentials as tokens
from google.oauth2 import service_account

from syncpoint.catalog.access.keysets import canonical, key_id
from syncpoint.testing.rigs.certificates import Authority
from tests.kit.issuer import TokenIssuer

OWNER = "root@demo.example"


class GuardedServer:
    """A server with an owner who has a key file, and an issuer whose key the test has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority(folder / "ca")
        self.ca, (self.cert, self.key) = authority.ca, authority.issue("server", ["localhost", "127.0.0.1"])
        self.owner = self.key_file(OWNER)
        issuer = TokenIssuer(
            folder,
            owners=[f"serviceAccount:{OWNER}"],
            buckets={"archive": ["projects/a", "projects/r"]},
            service_accounts=[{"email": OWNER, "key_files": ["root@demo.example.pub"]}],
        )
        self.auth, self.token = issuer.auth, issuer.token

    def key_file(self, email: str) -> Path:
        """A key file as the official libraries read it, and its public half beside it."""
        key = rsa.generate_private_key(65537, 2048)
        (self.folder / f"{email}.pub").write_text(canonical(key.public_key()))
        path = self.folder / f"{email}.json"
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        content = {
            "type": "service_account", "project_id": "a", "client_email": email, "private_key": pem,
            "private_key_id": key_id(key.public_key()), "token_uri": "https://localhost/token",
        }  # fmt: skip
        path.write_text(json.dumps(content))
        return path

    def channel(self, endpoint: str, credentials: Any) -> Any:
        plugin = google.auth.transport.grpc.AuthMetadataPlugin(credentials, None)
        tls = grpc.ssl_channel_credentials(self.ca.read_bytes())
        both = grpc.composite_channel_credentials(tls, grpc.metadata_call_credentials(plugin))
        return grpc.secure_channel(f"localhost:{endpoint.rpartition(':')[2]}", both)


def signing(path: Path) -> Any:
    """What the official clients make of a key file: tokens that they sign themselves."""
    scopes = ["https://www.googleapis.com/auth/pubsub"]
    found = service_account.Credentials.from_service_account_file(str(path), scopes=scopes)
    return found.with_always_use_jwt_access(True)


def bearer(token: str) -> Any:
    return tokens.Credentials(token)
