"""Functions run in processes of their own: what they return, and what they cannot do."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from syncpoint.catalog.transforms import sandbox as module
from syncpoint.catalog.transforms.errors import NotTried, TransformError, TryLater
from syncpoint.catalog.transforms.sandbox import Function, Sandbox
from tests.kit.loops import on_loop

pytestmark = pytest.mark.shows("transforms")

P = "projects/p"
ECHO = Function("echo", "function echo(message, metadata) { return message; }")


with_sandbox = on_loop(lambda: Sandbox(processes=1), Sandbox.close)


def text(data: str, **metadata: str) -> str:
    return json.dumps([{"data": data, "attributes": {"a": "1"}}, metadata])


def does(body: str) -> Function:
    return Function("f", f"function f(message, metadata) {{ {body} }}")


@with_sandbox
async def test_what_a_function_returns_comes_back_in_order(sandbox: Sandbox) -> None:
    function = does(
        "if (message.data === 'x') return null; message.attributes.id = metadata.message_id; return message;"
    )
    found = await sandbox.run(P, function, [text(data, message_id=str(n)) for n, data in enumerate("axb\0")])
    assert found[1] is None
    messages = [json.loads(one) for one in found if isinstance(one, str)]
    assert [one["data"] for one in messages] == ["a", "b", "\0"]
    assert [one["attributes"]["id"] for one in messages] == ["0", "2", "3"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("function f( {", "SyntaxError"),
        ("function g() {}", "defines no function f"),
        ("const f = 1;", "defines no function f"),
        ("throw new Error('no')", "Error: no"),
        ("while (true);", "longer than"),
    ],
)
@with_sandbox
async def test_code_that_cannot_be_loaded_is_refused(sandbox: Sandbox, *, code: str, said: str) -> None:
    with pytest.raises(TransformError, match=said):
        await sandbox.check(P, Function("f", code))
    await sandbox.check(P, ECHO)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("throw new TypeError('odd')", "TypeError: odd"),
        ("throw Symbol('odd')", "no text"),
        ("return undefined", "neither a message nor null"),
        ("return 'text'", "neither a message nor null"),
        ("return [message]", "neither a message nor null"),
        ("return {attributes: {}}", "data is not a string"),
        ("return {data: 'x', attributes: {n: 1}}", "attribute that is not a string"),
        ("return {data: 'x', attributes: 'n'}", "attributes that are not an object"),
        ("while (true);", "ran longer than"),
        ("const all = []; while (true) all.push(new Uint8Array(1 << 22))", "memory"),
        ("return 'x'.repeat(1 << 28)", "memory"),
        ("const g = () => g(); g()", "stack"),
    ],
)
@with_sandbox
async def test_a_message_that_fails_says_why_and_spoils_nothing(sandbox: Sandbox, *, body: str, said: str) -> None:
    (failed,) = await sandbox.run(P, does(body), [text("a")])
    assert isinstance(failed, TransformError)
    assert said in str(failed)
    (good,) = await sandbox.run(P, ECHO, [text("b")])
    assert isinstance(good, str)


@with_sandbox
async def test_what_the_engine_cannot_interrupt_is_killed_and_costs_others_nothing(sandbox: Sandbox) -> None:
    slow = does("if (message.data === 'a') /(a+)+$/.test('a'.repeat(40) + 'b'); return message;")
    first, second = await sandbox.run(P, slow, [text("a"), text("b")])
    assert "longer than" in str(first)
    assert isinstance(second, str), "a message that hangs must not fail those that came with it, again and again"


@with_sandbox
async def test_time_in_which_a_process_does_not_run_is_not_a_functions(sandbox: Sandbox) -> None:
    await sandbox.check(P, ECHO)
    process = sandbox._runners[0]._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)  # as where others have the processor
    asyncio.get_running_loop().call_later(1.2 * module.MESSAGE_S, process.send_signal, signal.SIGCONT)
    (found,) = await sandbox.run(P, ECHO, [text("a")])
    assert isinstance(found, str)
    assert sandbox._runners[0]._process is process


@with_sandbox
async def test_a_process_that_says_nothing_is_killed(sandbox: Sandbox, *, monkeypatch: pytest.MonkeyPatch) -> None:
    await sandbox.check(P, ECHO)
    process = sandbox._runners[0]._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    (found,) = await sandbox.run(P, ECHO, [text("a")])
    assert "longer than" in str(found)
    assert await process.wait() == -signal.SIGKILL


@with_sandbox
async def test_messages_behind_those_that_took_all_the_time_or_room_are_not_tried(
    sandbox: Sandbox, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RUN_S", 0.1)
    first, *others = await sandbox.run(P, does("while (true);"), [text("a")] * 50)
    assert "longer than" in str(first)
    assert {type(one) for one in others} == {TryLater}
    monkeypatch.setattr(module, "RUN_S", 10.0)
    monkeypatch.setattr(module, "RESULTS_MAX", 100_000)
    found = await sandbox.run(P, does("return {data: 'x'.repeat(30000)};"), [text("a")] * 50)
    assert [type(one) for one in found] == [str] * 3 + [NotTried] * 47


@with_sandbox
async def test_messages_do_not_answer_for_a_process_that_somebody_else_ended(sandbox: Sandbox) -> None:
    await sandbox.check(P, ECHO)
    process = sandbox._runners[0]._process
    assert process is not None
    running = asyncio.ensure_future(sandbox.run(P, ECHO, [text("a" * 1_000_000)] * 20))
    await asyncio.sleep(0.05)
    process.kill()
    assert [isinstance(one, str) for one in await running] == [True] * 20


@with_sandbox
async def test_one_function_sees_nothing_of_another(sandbox: Sandbox) -> None:
    spoiler = does("globalThis.kept = 1; Object.prototype.data = 'q'; JSON.stringify = () => '0'; return message;")
    assert json.loads(str((await sandbox.run(P, spoiler, [text("a")]))[0]))["data"] == "a"
    looker = does("return {data: typeof kept + typeof ({}).data + typeof require + typeof std + typeof os}")
    (found,) = await sandbox.run(P, looker, [text("a")])
    assert json.loads(str(found)) == {"data": "undefined" * 5, "attributes": {}}


@pytest.mark.parametrize(
    "body",
    [
        "Object.prototype.toJSON = () => 5; return {data: 'x', attributes: {a: 'y'}}",
        "return {data: 'x', attributes: Object.assign(Object.create({toJSON: () => 5}), {a: 'y'})}",
        "let reads = 0; return {data: 'x', attributes: {get a() { return reads++ ? [] : 'y' }}}",
    ],
)
@with_sandbox
async def test_what_is_returned_is_what_was_checked(sandbox: Sandbox, *, body: str) -> None:
    (found,) = await sandbox.run(P, does(body), [text("a")])
    assert json.loads(str(found)) == {"data": "x", "attributes": {"a": "y"}}


@with_sandbox
async def test_a_caller_that_gives_up_leaves_no_answer_for_the_next(sandbox: Sandbox) -> None:
    await sandbox.check(P, ECHO)
    waiting = asyncio.ensure_future(sandbox.run(P, does("while (true);"), [text("a")] * 20))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (found,) = await sandbox.run(P, ECHO, [text("b")])
    assert json.loads(str(found))["data"] == "b"


@pytest.mark.parametrize("turns", range(4))
@with_sandbox
async def test_who_gives_up_when_the_answer_comes_has_given_up(
    sandbox: Sandbox, *, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    await sandbox.check(P, ECHO)
    process = sandbox._runners[0]._process
    assert process is not None
    reader = asyncio.StreamReader()
    monkeypatch.setattr(process, "stdout", reader)
    running = asyncio.ensure_future(sandbox.run(P, ECHO, [text("a"), text("b")]))
    await asyncio.sleep(0.05)
    reader.feed_data(b"N\0\0\0\0")
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    reader.feed_data(b"N\0\0\0\0")
    with pytest.raises(asyncio.CancelledError):
        await running


@with_sandbox
async def test_large_messages_and_many_of_them_pass(sandbox: Sandbox) -> None:
    large = "é" * 3_000_000
    (found,) = await sandbox.run(P, ECHO, [text(large)])
    assert json.loads(str(found))["data"] == large
    many = [text("x" * 5_000 + str(n)) for n in range(500)]
    assert [json.loads(str(one))["data"][5_000:] for one in await sandbox.run(P, ECHO, many)] == [*map(str, range(500))]


@with_sandbox
async def test_the_same_text_shares_nothing_between_projects(sandbox: Sandbox) -> None:
    """In whichever process it runs, and however projects take turns."""
    hoarder = Function(
        "f",
        "let last = 'nothing';"
        "function f(message) { const was = last + typeof ({}).seen; last = message.data; Object.prototype.seen = 1;"
        " return {data: was}; }",
    )
    for project in (P, "projects/other", "projects/third"):
        (found,) = await sandbox.run(project, hoarder, [text("secret")])
        assert json.loads(str(found))["data"] == "nothingundefined", project
    for _ in range(4):
        found = await asyncio.gather(*(sandbox.run(f"projects/{n}", hoarder, [text(f"of {n}")]) for n in range(6)))
        for number, (result,) in enumerate(found):
            data = json.loads(str(result))["data"]
            assert data in ("nothingundefined", f"of {number}number"), data
