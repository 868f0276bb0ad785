"""TLS at a public listener follows its files."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from pathlib import Path

import uvloop

from syncpoint.base.model.errors import SyncpointError
from syncpoint.node.public_tls import PublicTls
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.wire.transport.calls import Call, Methods, Streaming, StreamingCall, Unary
from syncpoint.wire.transport.client import Channel
from syncpoint.wire.transport.server import serve

CALL, LISTEN = "/test.Service/Call", "/test.Service/Listen"


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
    assert not shown_tls.files.reload()
    other_certificate, other_key = new.issue("shown_tls")
    shutil.copy(other_certificate, certificate)
    assert not shown_tls.files.reload(), "the key is not that of the certificate yet"
    assert shown_to(shown_tls, old.ca)
    shutil.copy(other_key, key)
    assert shown_tls.files.reload()
    assert shown_to(shown_tls, new.ca)
    assert not shown_to(shown_tls, old.ca)


def echoing() -> Methods:
    def answer(call: Call, request: bytes) -> None:
        call.reply(str(dict(call.certificate or {}).get("subject", "nobody")).encode())

    def listen(stream: StreamingCall) -> None:
        stream.on_message = stream.send
        stream.on_drain = stream.finish

    return {CALL.encode(): Unary(answer), LISTEN.encode(): Streaming(listen)}


async def asked(channel: Channel) -> str:
    """What the server calls the client; "" if it does not let it in."""
    try:
        return (await channel.unary(CALL, b"", timeout=5.0)).decode()
    except SyncpointError:
        return ""


async def clients_authorities_change(folder: Path) -> None:
    public, old, new = Authority(folder / "public"), Authority(folder / "old"), Authority(folder / "new")
    trusted = folder / "clients.pem"
    shutil.copy(old.ca, trusted)
    certificate, key = public.issue("server")
    tls = PublicTls(certificate, key, trusted, optional=True)
    server = await serve(echoing(), tls=tls.context)

    def client(authority: Authority | None) -> Channel:
        context = ssl.create_default_context(cafile=str(public.ca))
        if authority is not None:
            context.load_cert_chain(*authority.issue("client"))
        return Channel("127.0.0.1", server.port, context)

    async with contextlib.AsyncExitStack() as stack:

        async def asks(authority: Authority | None) -> str:
            channel = client(authority)
            stack.push_async_callback(channel.close)
            return await asked(channel)

        stack.push_async_callback(server.close)
        earlier, nameless = client(old), client(None)
        stack.push_async_callback(earlier.close)
        stack.push_async_callback(nameless.close)
        stream = earlier.stream(LISTEN)
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        unnamed = nameless.stream(LISTEN)
        assert "client" in await asked(earlier)
        assert not await asks(new)
        assert not tls.reload()

        trusted.write_text("-----BEGIN CERTIFICATE-----\nhalf")
        assert not tls.reload(), "what is half written is not taken over"
        assert "client" in await asks(old)
        shutil.copy(new.ca, trusted)
        assert tls.reload()
        before = tls.context
        await server.renew(tls.context)
        assert await stream.receive() is None, "who showed a certificate must show it again"
        await unnamed.send(b"y")
        assert await unnamed.receive() == b"y", "who shows none goes on"
        assert not await asked(earlier)
        assert not await asks(old)
        assert "client" in await asks(new)
        assert await asks(None) == "nobody"
        assert not tls.reload()
        assert tls.context is before


def test_who_signs_certificates_of_clients_is_read_again(tmp_path: Path) -> None:
    asyncio.run(clients_authorities_change(tmp_path / "asyncio"))
    uvloop.run(clients_authorities_change(tmp_path / "uvloop"))
