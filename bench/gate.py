"""What access control costs per call: the gate around methods that do nothing, minus those methods.

Run: `python -m bench.gate`. Prints microseconds of processor time per call, median of 7 runs, on one thread without a
network. The clock is the machine's: decisions run out and are made again as on a server, and a token that is cached is
verified once in the twenty seconds for which a session stands.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from syncpoint.base.runtime.clock import SystemClock
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.keysets import canonical, key_id
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.settings import parse
from syncpoint.catalog.access.tokens import Authenticator
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import iam, pubsub
from syncpoint.wire.rest.app import RestApp
from syncpoint.wire.transport.calls import Call, Unary
from syncpoint.wire.transport.memory import MemoryCall

TOPIC, SUBSCRIPTION = "projects/bench/topics/one", "projects/bench/subscriptions/one"
KEYS: dict[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(65537, 2048),
}
ACCOUNTS = {"ES256": "short@bench.example", "RS256": "long@bench.example"}
QUOTAS = {"default": {"requests_per_s": 1e9, "bytes_per_s": 1e12, "connections": 1000, "streams": 1000}}


def gate(quotas: dict[str, Any]) -> Gate:
    """A gate over a topic and a subscription that the accounts may use."""
    catalog, clock = Catalog(), SystemClock()
    accounts = [{"email": email, "key_files": [f"{alg}.pem"]} for alg, email in ACCOUNTS.items()]
    files = {Path(f"{alg}.pem"): canonical(key.public_key()).encode() for alg, key in KEYS.items()}
    policies = Policies(catalog)

    def apply(*changes: CatalogChange) -> None:
        for change in catalog.assign(changes):
            catalog.apply(change)

    apply(CatalogChange.put(Topic(1, TOPIC)), CatalogChange.put(Subscription(2, SUBSCRIPTION, 1, TOPIC)))
    members = [f"serviceAccount:{email}" for email in ACCOUNTS.values()]
    for name, role in ((TOPIC, "publisher"), (SUBSCRIPTION, "admin"), ("projects/bench", "viewer")):
        policy = iam.Policy(bindings=[iam.Binding(role=f"roles/pubsub.{role}", members=members)])
        apply(CatalogChange.put(policies.changed(name, policy)[0]))
    settings = parse({"audiences": ["https://bench"], "service_accounts": accounts, "quotas": quotas})
    return Gate(Authenticator(settings, catalog, clock, files.__getitem__), policies, catalog, clock)


def token(alg: str, number: int = 0) -> bytes:
    """A new one for each number."""
    now, email = int(time.time()), ACCOUNTS[alg]
    claims = {"iss": email, "sub": email, "aud": "https://bench", "iat": now, "exp": now + 3600, "jti": str(number)}
    made = jwt.encode(claims, KEYS[alg], alg, {"kid": key_id(KEYS[alg].public_key())})
    return b"Bearer " + made.encode()


def new_token(alg: str, numbers: Iterator[int]) -> bytes:
    """One that was not seen yet."""
    return token(alg, next(numbers))


def published(messages: int, size: int) -> bytes:
    """A PublishRequest."""
    each = [pubsub.PubsubMessage(data=b"x" * size)] * messages
    request: bytes = pubsub.PublishRequest(topic=TOPIC, messages=each).SerializeToString()
    return request


def requests() -> Iterator[tuple[str, methods.Method, bytes]]:
    """What is called, and with what."""
    yield "Publish, 1 x 100 B", methods.PUBLISHER.Publish, published(1, 100)
    yield "Publish, 100 x 100 B", methods.PUBLISHER.Publish, published(100, 100)
    yield "Publish, 1 x 1 MB", methods.PUBLISHER.Publish, published(1, 1_000_000)
    acks = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=["x" * 48] * 100)
    yield "Acknowledge, 100 ids", methods.SUBSCRIBER.Acknowledge, acks.SerializeToString()
    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=100)
    yield "Pull", methods.SUBSCRIBER.Pull, pull.SerializeToString()
    yield "GetTopic", methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=TOPIC).SerializeToString()
    named = pubsub.UpdateSubscriptionRequest(subscription={"name": SUBSCRIPTION}, update_mask={"paths": ["labels"]})
    yield "UpdateSubscription", methods.SUBSCRIBER.UpdateSubscription, named.SerializeToString()


def cost(run: Callable[[Any, bytes], None], call: Callable[[], Any], request: bytes, calls: int) -> float:
    """Microseconds of one."""
    prepared = [call() for _ in range(calls)]
    before = time.process_time_ns()
    for one in prepared:
        run(one, request)
    return (time.process_time_ns() - before) / calls / 1e3


def nothing(call: Call, request: bytes) -> None:
    """The method."""


def measured(made: Gate, path: methods.Method, request: bytes, header: Callable[[], bytes], calls: int) -> float:
    """What the gate adds, in the median."""
    method = made.guarded({path.encode(): Unary(nothing)})[path.encode()]
    assert isinstance(method, Unary)

    def call() -> MemoryCall:
        return MemoryCall(path.encode(), {b"authorization": header()}, None, lambda error=None: None)

    found = []
    for _ in range(7):
        bare = cost(nothing, call, request, calls)
        found.append(cost(method.handler, call, request, calls) - bare)
    return statistics.median(found)


async def heads(calls: int) -> float:
    """What it costs to ask about a request by its head, before there is a body."""
    made = gate({})
    table = {path.encode(): Unary(nothing) for path in methods.PUBLISHER}
    app, path = RestApp(made.guarded(table), 1 << 24, made.admit), f"/v1/{TOPIC}:publish"
    headers = [(b"host", b"here"), (b"authorization", token("ES256")), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "raw_path": path.encode(), "query_string": b"", "headers": headers}
    found = []
    for _ in range(7):
        before = time.process_time_ns()
        for _ in range(calls):
            app.refuses(scope)
        found.append((time.process_time_ns() - before) / calls / 1e3)
    return statistics.median(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    calls = parser.parse_args().calls
    fixed = token("ES256")
    print(f"{'processor time that the gate adds, µs per call':<48} {'':>8} {'quotas':>8}")
    for name, path, request in requests():
        plain, counted = (measured(gate(one), path, request, lambda: fixed, calls) for one in ({}, QUOTAS))
        print(f"{name + ', token cached':<48} {plain:>8.2f} {counted:>8.2f}")
    for alg in KEYS:
        new = measured(gate({}), methods.PUBLISHER.Publish, published(1, 100), partial(new_token, alg, count()), 100)
        print(f"{f'Publish, 1 x 100 B, token new ({alg})':<48} {new:>8.2f}")
    print(f"{'REST: the head of a request with a body':<48} {asyncio.run(heads(calls)):>8.2f}")


if __name__ == "__main__":
    main()
