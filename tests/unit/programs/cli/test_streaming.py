"""Messages as they come: how a line looks, pipes whose readers pause or leave, and what ends it."""

import asyncio
import os
import queue
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import grpc
import pytest

from syncpoint.base.model.errors import NotFound
from syncpoint.programs.cli import streaming, tail
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.streaming import Interruption, Lines, write_out
from syncpoint.wire.protobuf.messages import admin, pubsub


def received(data=b"hello", **fields):
    message = pubsub.PubsubMessage(data=data, message_id="17", **fields)
    message.publish_time.FromJsonString("2026-11-22T11:00:35.527192659Z")
    return pubsub.ReceivedMessage(ack_id="ack", message=message)


def test_a_message_is_one_line():
    table = Lines("table", with_ack_ids=False)
    assert table.of(received(b"a longer one")) == b"2026-11-22T11:00:35.527Z   a longer one\n"
    line = table.of(received(b"two\nlines", attributes={"b": "2", "a": "1"}, ordering_key="k"))
    assert line == b"2026-11-22T11:00:35.527Z   two\\nlines     [k]   a=1, b=2\n"
    whole = pubsub.ReceivedMessage()
    whole.message.publish_time.seconds = 1
    assert table.of(whole).startswith(b"1970-01-01T00:00:01.000Z")
    assert table.of(received(b"\xff")).rstrip().endswith(rb"b'\xff'")
    assert Lines("table", with_ack_ids=True).of(received()).endswith(b"   ack\n")
    assert Lines("lines", with_ack_ids=True).of(received(b"\xff\x00")) == b"\xff\x00\n"
    assert b'"ackId": "ack"' in Lines("json", with_ack_ids=True).of(received())
    json = Lines("json", with_ack_ids=False).of(received("ü".encode(), attributes={"ü": "a\nb"}))
    assert json.count(b"\n") == 1
    assert b"ackId" not in json


class Pipe:
    def __init__(self, descriptor):
        self.fileno = lambda: descriptor


def test_a_reader_that_pauses_holds_up_only_the_output(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(streaming.sys, "stdout", Pipe(writer))

    async def write():
        data = bytes(range(256)) * 2_000  # more than a pipe holds
        task = asyncio.create_task(write_out(data))
        got = b""
        while len(got) < len(data):
            await asyncio.sleep(0)
            got += os.read(reader, 30_000)
        await task
        assert got == data
        # Nobody reads: writing can be given up, and goes on to fail once the reader has gone.
        stuck = asyncio.create_task(write_out(data))
        assert not (await asyncio.wait([stuck], timeout=0.1))[0]
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            await asyncio.wait_for(stuck, 30)

    asyncio.run(write())
    os.close(writer)


def test_the_first_signal_ends_what_is_followed_and_the_next_one_the_command():
    before = signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption:

        async def follow():
            over = asyncio.Event()
            with interruption.ends(asyncio.get_running_loop(), over):
                signal.raise_signal(signal.SIGTERM)
                await asyncio.wait_for(over.wait(), 30)
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)

        asyncio.run(follow())
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def tailed(server, monkeypatch):
    """Makes and deletes subscriptions; what would be followed is noted instead."""
    server.answers["Subscriber.CreateSubscription"] = lambda request: request
    for method in ("Subscriber.Seek", "Subscriber.DeleteSubscription", "Admin.CreateRule", "Admin.DeleteRule"):
        server.answers[method] = None
    followed = []
    monkeypatch.setattr(tail, "follow", lambda *given, **options: followed.append((given, options)))
    return followed


def test_tail_leaves_nothing_behind(server, run, tailed, monkeypatch):
    result = run("tail", "orders", "--filter", 'attributes.region = "eu"', "--count", "3")
    assert result.exit_code == 0, result.output
    made, deleted = server.request("Subscriber.CreateSubscription"), server.request("Subscriber.DeleteSubscription")
    assert (made.name, made.topic) == (deleted.subscription, "projects/p/topics/orders")
    assert made.filter == 'attributes.region = "eu"'
    assert made.expiration_policy.ttl.seconds == made.message_retention_duration.seconds == 86_400
    ((given, options),) = tailed
    assert (given[1], options["messages"]) == (made.name, 3)

    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(tail, "follow", interrupted)
    server.answers["Subscriber.DeleteSubscription"] = NotFound("x")
    assert run("tail", "orders").exit_code == 0
    assert [method for method, _ in server.calls].count("Subscriber.DeleteSubscription") == 2


@pytest.mark.parametrize(("given", "age_s"), [("90m", 5_400), ("-1h30m", 5_400), ("5400", 5_400)])
def test_tail_begins_in_the_past(server, run, tailed, given, age_s):
    assert run("tail", "orders", "--from", given).exit_code == 0
    seconds = server.request("Subscriber.Seek").time.seconds
    assert abs(datetime.now(UTC).timestamp() - age_s - seconds) < 60
    kept = server.request("Subscriber.CreateSubscription").message_retention_duration.seconds
    assert 0 <= kept - 86_400 - age_s < 60


def test_tail_by_sql_counts_also_for_stored_messages(server, run, tailed):
    assert run("tail", "orders", "--sql", "total > 5").exit_code == 0
    created, deleted = server.request("Admin.CreateRule"), server.request("Admin.DeleteRule")
    every = admin.RuleScope.Value("ALL_MESSAGES")
    assert (created.rule.sql, created.scope, deleted.scope, deleted.name) == ("total > 5", every, every, "$Default")
    assert run("tail", "orders", "--sql", "total >").exit_code == 1
    assert len([1 for method, _ in server.calls if method == "Subscriber.CreateSubscription"]) == 1


class StoredMessages:
    """Two sources of a topic, of which one has been cut off at its beginning."""

    def __init__(self, server):
        self.sources = {4: (0, 100), 9: (30, 50)}
        self.read = 0
        server.answers["Admin.GetTopicState"] = admin.TopicState(
            sources=[
                admin.SourceState(source=one, first_offset=begin, next_offset=end)
                for one, (begin, end) in self.sources.items()
            ]
        )
        server.answers["Admin.PeekTopic"] = self.peek

    def peek(self, request):
        source, offset = int(request.message_id[13:-12]), int(request.message_id[-12:])
        answer = admin.PeekResponse()
        for at in range(offset, self.sources[source][1]):
            self.read += 1
            if request.filter and at % 10:
                continue
            message = pubsub.PubsubMessage(data=f"{source}/{at}".encode(), message_id=f"{source}{at}")
            message.attributes["at"] = str(at)
            message.publish_time.seconds = 2 * at + source
            answer.messages.add(message=message, source=source, offset=at)
        return answer


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--last", "2"], ["4/98", "4/99"]),
        (["--last", "3", "--filter", "x"], ["4/70", "4/80", "4/90"]),
        (["--last", "9", "--filter", "x"], ["4/30", "9/30", "4/40", "9/40", "4/50", "4/60", "4/70", "4/80", "4/90"]),
        (["--last", "3", "--sql", "at < 40"], ["9/37", "9/38", "9/39"]),
        (["--last", "500", "--sql", "at < 0"], []),
    ],
)
def test_the_last_messages_are_found_from_the_end(server, run, tailed, words, shown):
    stored = StoredMessages(server)
    result = run("tail", "orders", "--format", "lines", *words)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == shown
    ((_, options),) = tailed
    assert len(options["skip"]) == len(shown)
    if words == ["--last", "2"]:
        assert stored.read == 4, "only the end of each source is read"


def test_tail_refuses_what_excludes_each_other(run, server):
    for words in (["--from", "1h", "--last", "3"], ["--sql", "a = 1", "--filter", "x"], ["--from", "yesterday"]):
        assert run("tail", "orders", *words).exit_code == 2
    assert server.calls == []


def test_one_pull_may_print_lines_and_has_a_bound(server, run):
    answer = pubsub.PullResponse(received_messages=[received(b"a"), received(b"b")])
    server.answers["Subscriber.Pull"] = answer
    assert run("subscriptions", "pull", "billing", "--format", "lines").stdout == "a\nb\n"
    assert server.request("Subscriber.Pull").max_messages == 1
    assert run("subscriptions", "pull", "billing", "--limit", "1001").exit_code == 2


class Reference(grpc.GenericRpcHandler):
    """A subscription with `waiting` messages; remembers what became of them."""

    def __init__(self):
        self.waiting = queue.Queue()
        self.breaks = 0  # streams that end before they bring anything
        self.refusals = []  # of acknowledgements
        self.acked, self.deadlines, self.outstanding = [], [], []

    def service(self, details):
        name = details.method.rpartition("/")[2]
        if name == "StreamingPull":
            return grpc.stream_stream_rpc_method_handler(self.streaming_pull)
        return grpc.unary_unary_rpc_method_handler(self.ack if name == "Acknowledge" else self.modify)

    def streaming_pull(self, requests, context):
        first = pubsub.StreamingPullRequest.FromString(next(requests))
        self.outstanding.append(first.max_outstanding_messages)
        if first.subscription != "projects/p/subscriptions/s":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such subscription")
        if self.breaks:
            self.breaks -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the stream has been open for long")
        over = []
        context.add_callback(lambda: over.append(1))
        ends = ThreadPoolExecutor(1).submit(lambda: list(requests))
        while not over and not ends.done():
            try:
                name = self.waiting.get(timeout=0.05)
            except queue.Empty:
                continue
            if over or ends.done():
                self.waiting.put(name)
                return
            one = pubsub.ReceivedMessage(ack_id=name, message={"data": name.encode()})
            yield pubsub.StreamingPullResponse(received_messages=[one]).SerializeToString()

    def ack(self, data, context):
        ids = pubsub.AcknowledgeRequest.FromString(data).ack_ids
        if self.refusals:
            context.abort(self.refusals.pop(0), "not now")
        self.acked += ids
        return b""

    def modify(self, data, context):
        asked = pubsub.ModifyAckDeadlineRequest.FromString(data)
        self.deadlines += [(one, asked.ack_deadline_seconds) for one in asked.ack_ids]
        return b""


@pytest.fixture
def reference(server, run, monkeypatch):
    """What is followed."""
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription()
    handler = Reference()
    made = grpc.server(ThreadPoolExecutor(6), handlers=(handler,))
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    monkeypatch.setenv("SYNCPOINT_ADDRESSES", f"127.0.0.1:{port}")
    yield handler
    made.stop(None)


def follow(run, *words, subscription="s"):
    return run("subscriptions", "pull", subscription, "--follow", "--format", "lines", "--timeout", "60", *words)


def test_messages_are_acknowledged_after_they_were_written_and_no_more_than_wanted(reference, run, monkeypatch):
    for number in range(5):
        reference.waiting.put(str(number))
    written = []

    async def write(data):
        assert not set(data.decode().split()) & set(reference.acked)
        written.extend(data.decode().split())

    monkeypatch.setattr(streaming, "write_out", write)
    assert follow(run, "--auto-ack", "--limit", "3").exit_code == 0
    assert written == reference.acked == ["0", "1", "2"]
    assert reference.outstanding == [3]
    assert not {one for one, _ in reference.deadlines} & set(reference.acked)


@pytest.mark.parametrize("stuck", [False, True])
def test_what_a_reader_did_not_take_is_given_back(reference, run, monkeypatch, stuck):
    reference.waiting.put("a")
    monkeypatch.setattr(streaming, "END_S", 0.5)

    async def write(data):
        if not stuck:
            raise BrokenPipeError
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(streaming, "write_out", write)
    result = follow(run, "--auto-ack")
    assert isinstance(result.exception, BrokenPipeError) is not stuck
    assert (reference.acked, reference.deadlines) == ([], [("a", 0)])


def test_without_acknowledging_everything_is_held_and_given_back(reference, run):
    for name in "abc":
        reference.waiting.put(name)
    assert follow(run, "--limit", "2").stdout == "a\nb\n"
    assert reference.acked == []
    assert sorted(reference.deadlines)[:2] == [("a", 0), ("b", 0)]


def test_what_fails_for_a_moment_is_tried_again(reference, run, monkeypatch):
    live = os.environ["SYNCPOINT_ADDRESSES"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dead = f"127.0.0.1:{silent.getsockname()[1]}"
    reference.breaks, reference.refusals = 1, [grpc.StatusCode.UNAVAILABLE]
    reference.waiting.put("a")
    result = follow(run, "--auto-ack", "--limit", "1", "--endpoint", f"{dead},{live}")
    assert reference.acked == ["a"]
    assert "UNAVAILABLE: the stream has been open for long Trying again ..." in result.stderr
    assert "UNAVAILABLE: not now Trying again ..." in result.stderr


def test_what_stays_wrong_ends_it(reference, run):
    assert follow(run, subscription="x").exit_code == 3
    reference.waiting.put("a")
    reference.refusals = [grpc.StatusCode.PERMISSION_DENIED]
    assert follow(run, "--auto-ack").exit_code == 1
    # With exactly-once delivery an acknowledgement may come too late: the message comes again, and no more is lost.
    reference.refusals = [grpc.StatusCode.FAILED_PRECONDITION]
    reference.waiting.put("b")
    reference.waiting.put("c")
    result = follow(run, "--auto-ack", "--limit", "2")
    assert (result.exit_code, sorted(result.stdout.split())) == (0, ["b", "c"])
    assert len(reference.acked) == 1
    assert "UNAVAILABLE" not in result.stderr, "its own end is no trouble"


def test_nothing_is_received_for_an_output_that_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(Problem, match="closed"):
        streaming.follow(None, "projects/p/subscriptions/abc", Interruption(), Lines("json", with_ack_ids=False))
