"""Types of publish.py; see there."""

from typing_extensions import Buffer

MARK_TTL: int
MARK_SCHEDULED: int

def topic_of(request: Buffer) -> bytes: ...
def scan(
    request: Buffer, prefix: bytes, first_offset: int, seconds: int, nanos: int, room: int = 0, added: int = 0
) -> tuple[int, bytes, bytes, int, bytes, int]: ...
def scan_plain(
    requests: list[bytes],
    first: int,
    topic: bytes,
    prefix: bytes,
    first_offset: int,
    seconds: int,
    nanos: int,
    room: int = 0,
) -> tuple[int, int, bytes, list[bytes]]: ...
def count_plain(requests: list[bytes], first: int, topic: bytes) -> list[int]: ...
