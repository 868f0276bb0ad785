"""Types of publish.py; see there."""

from typing_extensions import Buffer

MARK_TTL: int
MARK_SCHEDULED: int

def topic_of(request: Buffer) -> bytes: ...
def scan(
    request: Buffer, prefix: bytes, first_offset: int, seconds: int, nanos: int, room: int = 0, added: int = 0
) -> tuple[int, bytes, bytes, int, bytes, int]: ...
