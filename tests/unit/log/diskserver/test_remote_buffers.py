"""What a read finds behind writes that are under way, and which writes buffers become."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.log.diskserver.protocol import ChangeKind, FileChange
from syncpoint.log.diskserver.remote_files import as_changes, overlay

changes = st.lists(
    st.one_of(
        st.builds(
            lambda at, data: FileChange(ChangeKind.WRITE, at, len(data), data),
            st.integers(0, 30),
            st.binary(max_size=10),
        ),
        st.builds(lambda at, size: FileChange(ChangeKind.ZERO, at, size), st.integers(0, 30), st.integers(0, 10)),
        st.builds(lambda size: FileChange(ChangeKind.TRUNCATE, 0, size), st.integers(0, 40)),
        st.builds(lambda size: FileChange(ChangeKind.ALLOCATE, 0, size), st.integers(1, 40)),
    ),
    max_size=6,
)


@given(st.binary(max_size=40), changes, st.integers(0, 45), st.integers(1, 45), st.integers(0, 6))
def test_what_a_read_finds_whatever_the_server_has_done_already(
    base: bytes, todo: list[FileChange], offset: int, size: int, done: int
) -> None:
    def apply(data: bytes, some: list[FileChange]) -> bytes:
        held = bytearray(data)
        for change in some:
            if change.kind == ChangeKind.TRUNCATE:
                held = held[: change.size].ljust(change.size, b"\0")
            elif change.kind == ChangeKind.ALLOCATE:
                held = held.ljust(change.size, b"\0")
            elif change.size:
                held = held.ljust(change.offset + change.size, b"\0")
                new = change.data if change.kind == ChangeKind.WRITE else bytes(change.size)
                held[change.offset : change.offset + change.size] = new
        return bytes(held)

    if any(change.kind in (ChangeKind.TRUNCATE, ChangeKind.ALLOCATE) for change in todo):
        done = len(todo)  # these are sent at once, with what came before them
    server = apply(base, todo[:done])
    found = overlay(server[offset : offset + size], offset, size, todo)
    assert found == apply(base, todo)[offset : offset + size]


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(bytearray), st.binary().map(memoryview))),
    st.integers(0, 100),
)
def test_buffers_become_writes_of_the_same_bytes(buffers: list[Any], offset: int) -> None:
    changes = as_changes(buffers, offset, 20)
    assert overlay(b"", 0, 10_000, changes) == (bytes(offset) if changes else b"") + b"".join(buffers)
    assert all(change.size == len(change.data) > 0 for change in changes)
    kept = [change.data for change in changes if type(change.data) is bytes]
    assert [id(data) for data in kept] == [id(data) for data in buffers if type(data) is bytes and len(data) >= 20]
