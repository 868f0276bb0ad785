"""Types of call_frames.py; see there."""

from typing_extensions import Buffer

def read(
    received: Buffer, at: int, block: bytes, last_stream: int, count_max: int, data_max: int, bytes_max: int
) -> tuple[int, list[bytes], list[int], int, int, int]: ...
def write(messages: list[bytes], first_stream: int, head: bytes, tail: bytes) -> bytes: ...
