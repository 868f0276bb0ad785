"""What is read again while a listener is open: the file, its keys, the sets of issuers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from syncpoint.catalog.access.access import AccessFile
from syncpoint.catalog.access.services import FRESH_S
from syncpoint.catalog.access.settings import load
from syncpoint.catalog.access.tokens import Refused
from syncpoint.catalog.access.upkeep import AccessUpkeep, fetch
from syncpoint.catalog.metadata.records import CatalogChange, Subscription, Topic
from syncpoint.testing.rigs.plain_tests import on_loop

from .conftest import ISSUER, KEY, OTHER_KEY, Harness, jwks

URL = "https://login.example.com/keys"


class Issuers:
    """Who answers for key sets."""

    def __init__(self) -> None:
        self.sets: dict[str, bytes] = {URL: jwks(key_1=KEY)}
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.sets:
            raise OSError("no answer")
        return self.sets[url]


def written(path: Path, harness: Harness, **changes: Any) -> Path:
    content = {**harness.content, **changes}
    content["issuers"] = [{"issuer": ISSUER, "jwks_url": URL, "domains": ["example.com"]}]
    content["service_accounts"] = []
    path.write_text(yaml.safe_dump(content))
    return path


@on_loop
async def test_keys_are_fetched_before_the_listener_opens_and_an_issuer_that_is_silent_does_not_keep_it_shut(
    *, harness: Harness, tmp_path: Path
) -> None:
    path = written(tmp_path / "auth.yaml", harness)
    harness.authenticator.take(load(path))
    issuers = Issuers()
    upkeep = AccessUpkeep(path, harness.gate, issuers)
    await upkeep.start()
    await upkeep.stop()
    assert issuers.asked == [URL]
    assert harness.authenticator.by_token(harness.token().removeprefix(b"Bearer ")).principal
    issuers.sets.clear()
    again = AccessUpkeep(path, harness.gate, issuers)
    await again.start()
    await again.stop()
    assert harness.authenticator.by_token(harness.token().removeprefix(b"Bearer ")).principal, (
        "they stand in the meantime"
    )
    issuers.sets[URL] = jwks(key_1=OTHER_KEY)
    await AccessUpkeep(path, harness.gate, issuers)._fetch(ISSUER)
    with pytest.raises(Refused):
        harness.authenticator.by_token(harness.token().removeprefix(b"Bearer "))


def test_the_file_is_taken_over_when_it_changes_and_not_when_it_is_wrong(harness: Harness, tmp_path: Path) -> None:
    path = written(tmp_path / "auth.yaml", harness)
    harness.authenticator.take(load(path))
    upkeep = AccessUpkeep(path, harness.gate, Issuers())
    before = harness.authenticator.generation
    upkeep.reload()
    assert harness.authenticator.generation == before
    written(path, harness, owners=["user:ann@example.com", "user:longer@example.com"])
    upkeep.reload()
    assert "user:longer@example.com" in harness.authenticator.settings.owners
    before = harness.authenticator.generation
    path.write_text("owners: [nobody]")
    upkeep.reload()
    assert "user:longer@example.com" in harness.authenticator.settings.owners
    assert harness.authenticator.generation == before


def test_a_process_without_a_listener_follows_the_file_too(harness: Harness, tmp_path: Path) -> None:
    path = written(tmp_path / "auth.yaml", harness)
    topic = Topic(1, "projects/a/topics/one")
    subscription = Subscription(2, "projects/a/subscriptions/two", 1, topic.name)
    harness.apply(CatalogChange.put(topic), CatalogChange.put(subscription))
    harness.grant(subscription.name, "roles/pubsub.subscriber", "serviceAccount:mover@example.com")
    served = AccessFile(path, harness.catalog, harness.clock)
    own = [(("projects/a",), 5)]
    assert (served.outstanding_bounds("projects/a"), not served.service.delivery_refusal(subscription)) == ([], False)
    quotas = {"default": {"outstanding_bytes": 5}}
    written(path, harness, service_identity="serviceAccount:mover@example.com", quotas=quotas)
    served.look()
    harness.clock.advance(FRESH_S)
    assert (served.outstanding_bounds("projects/a"), not served.service.delivery_refusal(subscription)) == (
        own,
        True,
    )
    path.write_text("owners: [nobody]")
    served.look()
    harness.clock.advance(FRESH_S)
    assert (served.outstanding_bounds("projects/a"), not served.service.delivery_refusal(subscription)) == (
        own,
        True,
    )


@pytest.fixture
def site() -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("location", "/keys")
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (1 << 20) if self.path == "/large" else b"{}")

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_leads_nowhere_else_and_is_bounded(site: str) -> None:
    assert fetch(f"{site}/keys") == b"{}"
    with pytest.raises(OSError, match="302"):
        fetch(f"{site}/moved")
    large = fetch(f"{site}/large")
    assert len(large) <= 256 * 1024 + 1
