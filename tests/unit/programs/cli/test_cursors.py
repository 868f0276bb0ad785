"""`syncpoint cursors`: which requests become of the commands, and what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from syncpoint.base.model.errors import NotFound
from syncpoint.wire.protobuf.messages import pipeline

FOUND = pipeline.ListCursorsResponse(
    cursors=[
        pipeline.Cursor(
            topic="projects/p/topics/orders",
            name="nightly",
            lag_messages=12,
            lag_bytes=3400,
            used={"seconds": 1_700_000_000},
            lost=[{"source": 1, "begin": 3, "end": 8}, {"source": 2, "begin": 0, "end": 1}],
        )
    ]
)


def test_list(server: Any, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    server.answers["LogReader.ListCursors"] = FOUND
    shown = run("cursors", "list")
    assert shown.exit_code == 0
    assert server.request("LogReader.ListCursors") == pipeline.ListCursorsRequest(project="projects/p")
    for text in ("nightly", "projects/p/topics/orders", "12", "3400", "6", "2023-11-14 22:13:20"):
        assert text in shown.output
    server.calls.clear()
    found = run_json("cursors", "list", "--topic", "orders")
    assert server.request("LogReader.ListCursors") == pipeline.ListCursorsRequest(topic="projects/p/topics/orders")
    assert (found[0]["name"], found[0]["lagMessages"]) == ("nightly", "12")


def test_delete(server: Any, run: Callable[..., Result]) -> None:
    server.answers["LogReader.DeleteCursor"] = pipeline.DeleteCursorResponse()
    shown = run("cursors", "delete", "nightly", "hourly", "--topic", "orders")
    assert shown.exit_code == 0, shown.output
    asked = [(request.topic, request.name) for _, request in server.calls]
    assert asked == [("projects/p/topics/orders", "nightly"), ("projects/p/topics/orders", "hourly")]
    server.answers["LogReader.DeleteCursor"] = NotFound("nightly", "The topic has no cursor 'nightly'.")
    missing = run("cursors", "delete", "nightly", "--topic", "orders")
    assert missing.exit_code == 3
    assert "no cursor" in missing.output
    assert run("cursors", "delete", "nightly").exit_code == 2
