"""Who asks a model, and in which order: tokens of requests, turns of projects; and the requests themselves."""

from __future__ import annotations

import asyncio

import pytest

from syncpoint.base.model.errors import PermissionDenied, Unavailable
from syncpoint.catalog.transforms.errors import TransformError, TryLater
from syncpoint.catalog.transforms.inference import TOGETHER_MAX, Models
from syncpoint.catalog.transforms.model_client import ModelClient
from syncpoint.wire.protobuf.messages import pubsub
from tests.kit.loops import in_simulated_time, on_loop

MODEL, URL = "projects/p/locations/l/endpoints/sentiment", "http://model.example/predict"
ACCOUNT = "asker@p.example"


class Model:
    """Answers after a while that is a field of the data."""

    def __init__(self) -> None:
        self.together = self.together_max = 0
        self.authorizations: list[bytes] = []

    async def __call__(
        self, url: str, body: bytes, authorization: bytes, timeout_s: float, answer_bytes_max: int
    ) -> tuple[int, bytes]:
        self.authorizations.append(authorization)
        self.together += 1
        self.together_max = max(self.together_max, self.together)
        await asyncio.sleep(10.0 if b"slow" in body else 0.1)
        self.together -= 1
        return 200, b"{}"


class Signer:
    """Signs for one account, once it can."""

    ready = False

    def bearer(self, account: str, audience: str) -> bytes:
        if account != ACCOUNT:
            raise PermissionDenied(f"The service account {account} does not exist.")
        if not self.ready:
            raise Unavailable("not yet")
        return f"Bearer {account} {audience}".encode()


def asked_by(account: str) -> pubsub.AIInference:
    return pubsub.AIInference(endpoint=MODEL, service_account_email=account)


@in_simulated_time
async def test_a_request_carries_a_token_of_the_account_that_its_transform_names() -> None:
    model, signer = Model(), Signer()
    models = Models({MODEL: URL}, model)
    with pytest.raises(TransformError, match="signs no tokens"):
        await models.infer("projects/p", asked_by(ACCOUNT), b"{}")
    models.tokens = signer
    with pytest.raises(TryLater):
        await models.infer("projects/p", asked_by(ACCOUNT), b"{}")
    signer.ready = True
    with pytest.raises(TransformError, match="does not exist") as refused:
        await models.infer("projects/p", asked_by("gone@p.example"), b"{}")
    assert not isinstance(refused.value, TryLater)
    await models.infer("projects/p", asked_by(""), b"{}")
    await models.infer("projects/p", asked_by(ACCOUNT), b"{}")
    assert model.authorizations == [b"", f"Bearer {ACCOUNT} {URL}".encode()]


@in_simulated_time
async def test_a_project_leaves_requests_to_others_however_many_it_has() -> None:
    models, loop = Models({MODEL: URL}, model := Model()), asyncio.get_running_loop()
    busy = [
        asyncio.ensure_future(models.infer("projects/busy", asked_by(""), b'{"slow": 1}'))
        for _ in range(3 * TOGETHER_MAX)
    ]
    await asyncio.sleep(1.0)
    assert model.together == TOGETHER_MAX - 1
    began = loop.time()
    for _ in range(5):
        await models.infer("projects/other", asked_by(""), b"{}")
    assert loop.time() - began < 1.0
    await asyncio.gather(*busy)
    assert model.together_max == TOGETHER_MAX


async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request with its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(head), head))
    writer.close()
    await writer.wait_closed()


@on_loop(ModelClient, ModelClient.close)
async def test_the_client_sends_the_header_and_bounds_the_answer(client: ModelClient) -> None:
    async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/predict"
        status, head = await client(url, b"{}", b"Bearer x", 30.0, 10_000)
        assert (status, b"\r\nauthorization: Bearer x\r\n" in head.replace(b"Authorization", b"authorization")) == (
            200,
            True,
        )
        status, head = await client(url, b"{}", b"", 30.0, 10_000)
        assert b"uthorization" not in head
        with pytest.raises(OSError, match="larger than 10 bytes"):
            await client(url, b"{}", b"", 30.0, 10)
