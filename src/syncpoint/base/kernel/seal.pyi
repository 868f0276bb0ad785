"""Types of seal.py; see there."""

from collections.abc import Callable, Mapping

from typing_extensions import Buffer

HEADER_BYTES: int
NONCE_BYTES: int
TAG_BYTES: int
OVERHEAD_BYTES: int

_Cipher = Callable[[bytes, bytes, bytes], bytes]

def header_of(key: int) -> bytes: ...
def seal_request(request: Buffer, header: bytes, nonce: int, encrypt: _Cipher) -> tuple[bytes, int]: ...
def open_response(response: Buffer, keys: Mapping[int, _Cipher]) -> tuple[bytes, list[bytes], list[int]]: ...
def seal_values(
    batch: Buffer, column: tuple[int, int, int], rows: int, header: bytes, nonce: int, encrypt: _Cipher
) -> tuple[bytes, bytes, int]: ...
def open_values(
    batch: Buffer, column: tuple[int, int, int], rows: int, keys: Mapping[int, _Cipher]
) -> tuple[bytes, bytes, list[int], list[int]]: ...
