"""Keys, tokens made with them, and a gate over methods that answer with nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.keysets import canonical, key_id
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.access.tokens import Authenticator
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import iam
from syncpoint.wire.transport.calls import Call, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.memory import MemoryCall

ISSUER, AUDIENCE = "https://login.example.com", "https://pubsub.example.com"
ACCOUNT = "app@a.example"
KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
KID = "key-1"


def jwks(**keys: Any) -> bytes:
    """A key set of the public halves."""
    listed = []
    for kid, key in keys.items():
        kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        listed.append({**json.loads(kind.to_jwk(key.public_key())), "kid": kid.replace("_", "-"), "use": "sig"})
    return json.dumps({"keys": listed}).encode()


class Harness:
    """A gate, whose catalog, clock and keys the test moves."""

    def __init__(self) -> None:
        self.catalog, self.clock = Catalog(), ManualClock()
        self.policies = Policies(self.catalog)
        self.files: dict[Path, bytes] = {
            Path("app.pem"): canonical(KEY.public_key()).encode(),
            Path("keys.json"): jwks(key_1=KEY, rsa=RSA_KEY),
        }
        self.content: dict[str, Any] = {
            "audiences": [AUDIENCE],
            "owners": ["user:root@example.com"],
            "issuers": [{"issuer": ISSUER, "jwks_file": "keys.json", "domains": ["example.com"]}],
            "service_accounts": [{"email": ACCOUNT, "key_files": ["app.pem"]}],
            "certificates": [{"match": "CN:etl", "principal": "serviceAccount:etl@a.example"}],
        }
        self.authenticator = Authenticator(parse(self.content), self.catalog, self.clock, self.files.__getitem__)
        self.audited: list[tuple[Any, ...]] = []
        self.gate = Gate(self.authenticator, self.policies, self.catalog, self.clock, self)
        self.reached: list[tuple[str, bytes]] = []
        self.drained: list[StreamingCall] = []
        table: dict[bytes, Unary | Streaming] = {
            path.encode(): Streaming(self._stream) if path.is_streaming else Unary(self._unary)
            for path in methods.BY_PATH.values()
        }
        self.table = self.gate.guarded(table)

    def note(self, *fields: Any) -> None:
        self.audited.append(fields)

    def _unary(self, call: Call, request: bytes) -> None:
        self.reached.append((call.path.decode(), request))
        call.reply(b"")

    def _stream(self, stream: StreamingCall) -> None:
        def taken(request: bytes) -> None:
            self.reached.append((stream.path.decode(), request))

        stream.on_message = taken
        stream.on_drain = lambda: self.drained.append(stream)

    def apply(self, *changes: CatalogChange) -> None:
        for change in self.catalog.assign(changes):
            self.catalog.apply(change)

    def grant(self, resource: str, role: str, *members: str) -> None:
        binding = iam.Binding(role=role, members=members)
        self.apply(CatalogChange.put(self.policies.changed(resource, iam.Policy(bindings=[binding]))[0]))

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(self.clock.time_ns() // 10**9)
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": "1", "email": "ann@example.com", "email_verified": True,
            "iat": now, "exp": now + 3600, **changes,
        }  # fmt: skip
        return {key: value for key, value in claims.items() if value is not None}

    def token(
        self, *, key: Any = KEY, alg: str = "ES256", header: Mapping[str, Any] | None = None, **changes: Any
    ) -> bytes:
        made = jwt.encode(self.claims(**changes), key, alg, {"kid": KID, **(header or {})})
        return b"Bearer " + made.encode()

    def signed_by_itself(self, *, key: Any = KEY, kid: str = "", email: str = ACCOUNT, **changes: Any) -> bytes:
        """As the official clients do."""
        claims = {"iss": email, "sub": email, "email": None, "email_verified": None, **changes}
        return self.token(key=key, header={"kid": kid or key_id(KEY.public_key())}, **claims)

    def call(
        self, path: str, request: Any, authorization: bytes | None = None, certificate: Any = None
    ) -> SyncpointError | None:
        """Call a method; the error it ends with, or None when it was reached."""
        ended: list[SyncpointError | None] = []
        call = self.opened(path, authorization, ended, certificate)
        if isinstance(self.table[path.encode()], Unary):
            call.run(self.table[path.encode()].handler, call, request.SerializeToString())
        else:
            call.run(self.table[path.encode()].handler, call)
            if not ended:
                assert call.on_message is not None
                call.on_message(request.SerializeToString())
        return ended[0] if ended else None

    def opened(
        self, path: str, authorization: bytes | None, ended: list[SyncpointError | None], certificate: Any = None
    ) -> MemoryCall:
        metadata = {} if authorization is None else {b"authorization": authorization}

        def finished(error: SyncpointError | None = None) -> None:
            ended.append(error)

        call = MemoryCall(path.encode(), metadata, None, finished)
        call.certificate = certificate
        return call


@pytest.fixture
def harness() -> Harness:
    return Harness()
