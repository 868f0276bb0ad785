"""HTTP to models, at addresses that only the operator names."""

from __future__ import annotations

import asyncio
import ssl

import httpcore

_CONNECTIONS_MAX = 64


class ModelClient:
    """Send requests to model endpoints, over connections that are kept for the next request.

    `connect`: opens connections, and may refuse an address with `OSError`; None: the system's network.
    """

    def __init__(self, connect: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._connect = connect
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def __call__(
        self, url: str, body: bytes, authorization: bytes, timeout_s: float, answer_bytes_max: int
    ) -> tuple[int, bytes]:
        if self._pool is None:  # the certificates of the system are read from many files
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=ssl.create_default_context(),
                max_connections=_CONNECTIONS_MAX,
                network_backend=self._connect,
            )
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if authorization:
            headers.append((b"authorization", authorization))
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._pool.stream("POST", url, headers=headers, content=body) as found,
            ):
                pieces, size = [], 0
                async for piece in found.aiter_stream():
                    pieces.append(piece)
                    size += len(piece)
                    if size > answer_bytes_max:
                        raise OSError(f"the answer is larger than {answer_bytes_max} bytes")
                return int(found.status), b"".join(pieces)
        except TimeoutError:
            raise OSError(f"no answer within {timeout_s:g} s") from None
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol,
                ssl.SSLError) as error:  # fmt: skip
            raise OSError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """End all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()
