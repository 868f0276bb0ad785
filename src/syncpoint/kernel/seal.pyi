"""Types of seal.py; see there."""

from collections.abc import Callable, Mapping

from typing_extensions import Buffer

HEADER_BYTES: int
NONCE_BYTES: int
TAG_BYTES: int
OVERHEAD_BYTES: int

Cipher = Callable[[bytes, bytes, bytes], bytes]

def header_of(key: int) -> bytes: ...
def seal_request(request: Buffer, header: bytes, nonce: int, encrypt: Cipher) -> tuple[bytes, int]: ...
def open_response(response: Buffer, keys: Mapping[int, Cipher]) -> tuple[bytes, list[bytes], list[int]]: ...
