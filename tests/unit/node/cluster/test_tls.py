"""Certificates of processes: good ones are taken, others are refused with the reason."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from syncpoint.base.model.cluster import Member
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.cluster.control.peer_channels import process_methods
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.settings import TlsFiles, parse
from syncpoint.node.cluster.tls import Tls, operator_tls, tls_of, welcome
from syncpoint.node.public_tls import public_tls
from syncpoint.node.settings import ClientSettings
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.wire.transport.calls import Methods, Unary
from syncpoint.wire.transport.network import AnyChannel, TcpNetwork, join_address, split_address

pytestmark = pytest.mark.shows("tls")

PATH = "/t.T/Ping"
METHODS: Methods = {PATH.encode(): Unary(lambda call, request: call.reply(b""))}


def tls(authority: Authority, name: str = "p", *, clients: bool = True, ca: Path | None = None) -> Tls:
    return Tls(
        TlsFiles(authority.folder / f"{name}.pem", authority.folder / f"{name}.key", ca or authority.ca, clients)
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "good")
    made.issue("p", ["127.0.0.1", "box.example"])
    return made


def test_a_good_certificate_proves_itself(authority: Authority) -> None:
    tls(authority).prove("127.0.0.1", "box.example", "0.0.0.0")


def test_contexts_in_use_show_a_certificate_that_is_replaced(authority: Authority, tmp_path: Path) -> None:
    made, other = tls(authority), Authority(tmp_path / "other")
    other.issue("p")

    async def run() -> None:
        serving = TcpNetwork(made.client(), made.server())
        trusting = ssl.create_default_context(cafile=str(other.ca))
        trusting.load_cert_chain(authority.folder / "p.pem", authority.folder / "p.key")
        listening = await serving.serve({}, "127.0.0.1", 0)
        address = join_address(listening.host, listening.port)
        assert not await handshake(trusting, address)
        for kind in ("pem", "key"):
            shutil.copy(other.folder / f"p.{kind}", authority.folder / f"p.{kind}")
        assert made.shown.reload()
        assert await handshake(trusting, address)
        await listening.close()

    asyncio.run(run())


def test_contexts_in_use_trust_an_authority_that_is_added(authority: Authority, tmp_path: Path) -> None:
    made, other = tls(authority), Authority(tmp_path / "other", "new-ca")
    other.issue("p")
    new = tls(other)

    async def run() -> None:
        olds = TcpNetwork(made.client(), made.server())
        listening = await olds.serve(METHODS, "127.0.0.1", 0)
        theirs = await TcpNetwork(new.client(), new.server()).serve(METHODS, "127.0.0.1", 0)
        calling = olds.channel(join_address(theirs.host, theirs.port))
        other.ca.write_bytes(both := other.ca.read_bytes() + authority.ca.read_bytes())
        assert new.shown.reload()
        with pytest.raises(Unavailable):
            await calling.unary(PATH, b"")
        authority.ca.write_bytes(both)
        assert made.shown.reload()
        assert await calling.unary(PATH, b"") == b""
        called = TcpNetwork(new.client(), new.server()).channel(join_address(listening.host, listening.port))
        assert await called.unary(PATH, b"") == b""
        for one in (calling, called, listening, theirs):
            await one.close()

    asyncio.run(run())


def test_an_authority_that_is_taken_out_is_trusted_by_no_handshake_and_open_connections_end(
    authority: Authority, tmp_path: Path
) -> None:
    made, other = tls(authority), Authority(tmp_path / "other", "old-ca")
    other.issue("p")
    alone = authority.ca.read_bytes()
    authority.ca.write_bytes(both := alone + other.ca.read_bytes())
    other.ca.write_bytes(both)
    old = tls(other)
    removed = []

    async def run() -> None:
        ours, theirs = TcpNetwork(made.client(), made.server()), TcpNetwork(old.client(), old.server())
        here, there = [await one.serve(METHODS, "127.0.0.1", 0) for one in (ours, theirs)]
        calling = ours.channel(join_address(there.host, there.port))
        called = theirs.channel(join_address(here.host, here.port))
        assert [await one.unary(PATH, b"") for one in (calling, called)] == [b"", b""]

        async def renew() -> None:
            removed.append(True)
            await here.renew(made.server(), 0.0)
            ours.renew(0.0)

        made.shown.on_removed = renew
        await made.shown._follow()
        authority.ca.write_bytes(alone)
        await made.shown._follow()
        assert removed == [True], "when it was taken out, and not before"
        for one in (calling, called):
            while await answers(one):  # what is under way may end
                await asyncio.sleep(0.01)
            assert not await answers(one), "a new connection is refused"
        own = ours.channel(join_address(here.host, here.port))
        assert await own.unary(PATH, b"") == b"", "who has a certificate of the other authority goes on"
        for closing in (calling, called, own, here, there):
            await closing.close()

    asyncio.run(run())


def test_an_authority_that_cannot_be_read_leaves_all_as_it_was(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    made = tls(authority)
    made.server()
    authority.ca.write_text("nothing of the kind")
    assert not made.shown.reload()
    assert "cannot load the new" in caplog.text


async def answers(channel: AnyChannel) -> bool:
    try:
        return await channel.unary(PATH, b"") == b""
    except SyncpointError:
        return False


async def handshake(context: ssl.SSLContext, address: str) -> bool:
    host, port = split_address(address)
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError:
        return False
    writer.transport.abort()
    return True


@pytest.mark.parametrize(
    ("name", "words"),
    [("expired", "expired"), ("elsewhere", "mismatch|not valid for"), ("stranger", "issuer|self|unable to get")],
)
def test_others_say_what_is_wrong(authority: Authority, tmp_path: Path, name: str, words: str) -> None:
    other = Authority(tmp_path / "other")
    authority.issue("expired", days=-1)
    authority.issue("elsewhere", ["10.9.9.9"])
    other.issue("stranger")
    made = tls(other, name, ca=authority.ca) if name == "stranger" else tls(authority, name)
    with pytest.raises(InvalidArgument, match=f"(?s){name}.pem is not valid.*({words})"):
        made.prove("127.0.0.1")


def test_files_that_are_missing_or_do_not_fit_are_named(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"nobody\.pem cannot be read"):
        tls(authority, "nobody").server()
    authority.issue("q")
    files = TlsFiles(authority.folder / "p.pem", authority.folder / "q.key", authority.ca)
    with pytest.raises(InvalidArgument, match="do not belong together"):
        Tls(files).client()
    with pytest.raises(InvalidArgument, match=r"no\.pem cannot be read"):
        tls(authority, ca=tmp_path / "no.pem").client()


def test_the_name_stands_in_the_path(authority: Authority) -> None:
    content = {
        "metadata": {"etcd": ["h:1"]},
        "tls": {"ca": "ca.pem", "certificate": "{name}.pem", "key": "{name}.key"},
        "processes": {"gone": {"roles": ["router"]}, "p": {"roles": ["router"]}},
    }
    settings = parse(content, authority.folder)
    found = tls_of(settings, "p")
    assert found is not None
    assert found.files == TlsFiles(authority.folder / "p.pem", authority.folder / "p.key", authority.ca)
    operator = operator_tls(settings)
    assert operator == found, "the first whose files are here"
    (authority.folder / "p.key").unlink()
    with pytest.raises(InvalidArgument, match="no certificate of a process"):
        operator_tls(settings)
    del content["tls"]
    assert tls_of(parse(content), "p") is None
    with pytest.raises(InvalidArgument, match="must be set"):
        parse({**content, "tls": None})  # nothing is sent in the clear because the lines below were lost


async def serving(made: Tls | None) -> tuple[Member, object]:
    listening = await ClusterEnvironment.of(made).network.serve(process_methods(dict), "127.0.0.1", 0)
    return Member(
        "there", ("router",), join_address(listening.host, listening.port), 1, tls=made is not None
    ), listening


def test_who_is_refused_does_not_join(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    other.issue("p")
    gone = Member("gone", ("router",), "127.0.0.1:1", 1, tls=True)

    async def run() -> None:
        there, listening = await serving(tls(authority))
        try:
            await welcome(tls(authority), "me", [there])
            with pytest.raises(FailedPrecondition, match=r"me has no valid certificate .*there at .*rejected here"):
                await welcome(tls(other), "me", [gone, there])
            # It trusts them, and they do not trust it.
            with pytest.raises(FailedPrecondition, match=r"me has no valid certificate .*(unknown ca|it closes)"):
                await welcome(tls(other, ca=authority.ca), "me", [gone, there])
            await welcome(tls(other), "me", [gone])  # nobody can know
            with pytest.raises(FailedPrecondition, match="there use TLS inside the cluster, but me uses plain TCP"):
                await welcome(None, "me", [there])
            await welcome(None, "there", [there])  # what it was itself, before it was restarted
        finally:
            await listening.close()  # type: ignore[attr-defined]
        plain, listening = await serving(None)
        with pytest.raises(FailedPrecondition, match="there use plain TCP"):
            await welcome(tls(authority), "me", [plain])
        await listening.close()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_nobody_without_a_certificate_is_listened_to(authority: Authority) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.ca))

    async def answered(made: Tls, client: TcpNetwork) -> bool:
        there, listening = await serving(made)
        channel = client.channel(there.address)
        try:
            await channel.unary("/syncpoint.internal.v1.Process/Ping", b"", timeout=5)
        except Exception:
            return False
        finally:
            await channel.close()
            await listening.close()  # type: ignore[attr-defined]
        return True

    async def run() -> None:
        assert not await answered(tls(authority), TcpNetwork())
        assert not await answered(tls(authority), TcpNetwork(trusting))
        assert await answered(tls(authority), TcpNetwork(tls(authority).client()))
        assert await answered(tls(authority, clients=False), TcpNetwork(trusting))

    asyncio.run(run())


def test_what_a_proxy_shows_its_clients(authority: Authority) -> None:
    assert public_tls(ClientSettings()) is None
    shown = ClientSettings(tls_cert=authority.folder / "p.pem", tls_key=authority.folder / "p.key")
    found = public_tls(shown)
    assert found is not None
    assert found.context.verify_mode is ssl.CERT_NONE
    asking = replace(shown, tls_client_ca=authority.ca)
    found = public_tls(asking)
    assert found is not None
    assert found.context.verify_mode is ssl.CERT_REQUIRED
    found = public_tls(asking, optional=True)
    assert found is not None
    assert found.context.verify_mode is ssl.CERT_OPTIONAL
