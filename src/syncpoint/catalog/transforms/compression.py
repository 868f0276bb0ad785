"""Compressing and decompressing what a message holds, with zlib (RFC 1950) or Zstandard (RFC 8878)."""

from __future__ import annotations

import zlib
from threading import local

import zstandard

from syncpoint.base.model.limits import PUBLISH_REQUEST_BYTES_MAX as MESSAGE_BYTES_MAX
from syncpoint.catalog.transforms.errors import TransformError
from syncpoint.wire.protobuf.messages import pubsub

_WINDOW_BYTES_MAX = 8 << 20  # of a Zstandard frame: what every decoder must take
_OF_THREAD = local()  # a compressor costs more to make than to use, and works for one thread at a time


def compressed(data: bytes, kind: pubsub.Compression) -> bytes:
    """The data, compressed or decompressed according to `kind`. Raises `TransformError` for what is not compressed
    data, and for what would be larger than a message may be: no more than that is ever decompressed.
    """
    zstd = kind.compression_algorithm == pubsub.Compression.ZSTD
    if kind.compression_mode == pubsub.Compression.COMPRESS:
        return _zstd_compressor().compress(data) if zstd else zlib.compress(data)
    try:
        found, rest = _from_zstd(data) if zstd else _from_zlib(data)
    except (zlib.error, zstandard.ZstdError) as error:
        raise TransformError(f"the data cannot be decompressed: {error}") from None
    if len(found) > MESSAGE_BYTES_MAX:
        raise TransformError(f"the decompressed data is larger than {MESSAGE_BYTES_MAX} bytes")
    if rest:
        raise TransformError("the compressed data ends early or is followed by other bytes")
    return found


def _zstd_compressor() -> zstandard.ZstdCompressor:
    found: zstandard.ZstdCompressor | None = getattr(_OF_THREAD, "compressor", None)
    if found is None:
        found = _OF_THREAD.compressor = zstandard.ZstdCompressor()
    return found


def _from_zlib(data: bytes) -> tuple[bytes, bool]:
    stream = zlib.decompressobj()
    found = stream.decompress(data, MESSAGE_BYTES_MAX + 1)
    return found, bool(stream.unused_data) or not stream.eof


def _from_zstd(data: bytes) -> tuple[bytes, bool]:
    # Only the reader is bounded, and only the object knows where the data ends: the first measures for the second.
    with zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).stream_reader(data) as reader:
        size = 0
        while piece := reader.read(1 << 20):
            size += len(piece)
            if size > MESSAGE_BYTES_MAX:
                return bytes(size), False
    stream = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX).decompressobj()
    return stream.decompress(data), bool(stream.unused_data) or not stream.eof
