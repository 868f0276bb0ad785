"""Data keys: one per topic and version, stored in the metadata, wrapped by a key-encryption key that is not.

Place: under `sealing`. The key-encryption key (KEK) comes from a file that only proxies can read; who has the metadata,
the disks and the wire between processes has nothing without it.
Stored: keys/topics/TOPIC holds the number that is used for new messages; keys/data/NUMBER holds a wrapped key. Numbers
are unique in the cluster, so a message finds its key by the number in its header, whatever topic it came by; that
another topic has messages under a key, dead letters, stands in keys/lent/NUMBER/TOPIC.
Rotation: `rewrap` when the KEK changes (messages stay as they are), `rotate` for a new data key (old messages keep
theirs). A key is never deleted here: a snapshot may bring its messages back. See `key_admin` for what operators do.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncpoint.base.kernel.seal import NONCE_BYTES, header_of
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.file_marks import mark_of
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.contract import (
    Compare,
    Indeterminate,
    KeyValue,
    Put,
    StoreUnavailable,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.layout import DATA_KEYS, KEY_COUNTER, LENT_KEYS, TOPIC_KEYS
from syncpoint.catalog.metadata.store_client import SharedStore, answered, read_all

KEY_BYTES = 32
NO_ANSWER = "The keys of sealed messages cannot be looked up"
REFRESH_S = 60.0  # how long after a rotation another proxy may still seal with the old key
CACHED_MAX = 100_000
_STORE_S = 3.0
_ATTEMPTS = 10

Cipher = Callable[[bytes, bytes, bytes], bytes]  # (nonce, data, header)

log = logging.getLogger(__name__)


class KeyRing:
    """Key-encryption keys by id. The first one wraps; the others only unwrap what was wrapped before.

    One that came from a file looks at it again before it wraps, and when a key is missing: a line added there is in use
    at once, in every proxy.
    """

    def __init__(self, keys: Iterable[bytes], path: Path | None = None) -> None:
        self._path, self._mark = path, None if path is None else mark_of(path)
        self._take(keys)

    def _take(self, keys: Iterable[bytes]) -> None:
        listed = list(keys)
        if not listed or any(len(key) != KEY_BYTES for key in listed):
            raise ValueError(f"key-encryption keys of {KEY_BYTES} bytes are needed")
        self._ciphers = {hashlib.sha256(key).hexdigest()[:16]: AESGCM(key) for key in listed}
        self.current = next(iter(self._ciphers))

    @property
    def ids(self) -> list[str]:
        """Return the ids of all keys, in the order of the file."""
        return list(self._ciphers)

    @staticmethod
    def load(path: Path) -> KeyRing:
        """Read a file: 32 raw bytes, or lines of 64 hexadecimal digits or of base64. Raises `InvalidArgument`, and
        `OSError` when it cannot be read.
        """
        return KeyRing(_keys_in(path), path)

    def refresh(self) -> None:
        """Take the file over if it has changed; one that cannot be used leaves the keys as they were."""
        if self._path is None or (mark := mark_of(self._path)) == self._mark:
            return
        try:
            self._take(_keys_in(self._path))
            self._mark = mark
        except (OSError, ValueError, InvalidArgument) as error:
            log.warning("the changed key file is not used: %s", error)

    def wrap(self, key: bytes, nonce: bytes, bound_to: bytes) -> tuple[str, bytes]:
        """A key under the current KEK, and the id of that; it opens only for the same `bound_to`."""
        self.refresh()
        return self.current, nonce + self._ciphers[self.current].encrypt(nonce, key, bound_to)

    def unwrap(self, kek: str, wrapped: bytes, bound_to: bytes) -> bytes:
        """The key again. Raises `FailedPrecondition`."""
        if kek not in self._ciphers:
            self.refresh()
        cipher = self._ciphers.get(kek)
        if cipher is None:
            raise FailedPrecondition(
                f"The key-encryption key {kek} is not in this proxy's key file. Add it to sealing.key_file."
            )
        try:
            return cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], bound_to)
        except InvalidTag:
            raise FailedPrecondition(
                f"A data key encrypted with {kek} was changed after it was stored and cannot be used."
            ) from None


class DataKey:
    """One key in use. Nonces count on from a random one, so that no two messages share one, of whatever proxy."""

    __slots__ = ("_nonce", "encrypt", "header", "number", "read_at")

    def __init__(self, number: int, cipher: AESGCM, nonce: int, read_at: float) -> None:
        self.number, self.header, self.encrypt = number, header_of(number), cipher.encrypt
        self.read_at = read_at
        self._nonce = nonce

    def nonces(self, count: int) -> int:
        """The first of `count` nonces."""
        first = self._nonce
        self._nonce = (first + count) % (1 << 96)
        return first


class TopicKeys:
    """The keys of all topics, as far as they were needed. `ciphers`: what opens, by number."""

    def __init__(self, store: SharedStore, ring: KeyRing, clock: Clock, random: Random) -> None:
        self._store, self.ring, self._clock, self._random = store, ring, clock, random
        self._current: dict[int, DataKey] = {}
        self._known: dict[int, AESGCM] = {}
        self._tasks: dict[int, asyncio.Task[DataKey]] = {}
        self._lent: dict[tuple[int, int], None] = {}
        self.ciphers: dict[int, Cipher] = {}
        self._refused: dict[int, float] = {}  # number -> when it was looked for

    def current_now(self, topic: int) -> DataKey | None:
        """The key for new messages of a topic, if it is at hand. One read long ago is read again in the meantime."""
        found = self._current.get(topic)
        if found is not None and self._clock.monotonic() > found.read_at + REFRESH_S and topic not in self._tasks:
            found.read_at = self._clock.monotonic()
            self._obtain(topic).add_done_callback(_note_failure)
        return found

    async def current(self, topic: int) -> DataKey:
        """The key for new messages of a topic; the first one is made now. Raises `SyncpointError`."""
        found = self.current_now(topic)
        return found if found is not None else await asyncio.shield(self._obtain(topic))

    async def load(self, numbers: Iterable[int]) -> None:
        """Fill `ciphers`. Raises `Unavailable` when keys cannot be looked up now. For a key that is not there, or that
        the key file does not open, stands what refuses everything, and for a minute it is not looked for again.
        """
        for number in numbers:
            if number not in self.ciphers:
                try:
                    await self._cipher(number)
                except FailedPrecondition as error:
                    log.error("messages sealed under data key %d are not delivered: %s", number, error.message)
                    self.ciphers[number] = _refuse
                    self._refused[number] = self._clock.monotonic()

    def retry_refused(self) -> None:
        """Forget which keys could not be had a minute ago."""
        now = self._clock.monotonic()
        for number in [one for one, at in self._refused.items() if now > at + REFRESH_S]:
            del self._refused[number]
            if self.ciphers.get(number) is _refuse:
                del self.ciphers[number]

    async def lend(self, number: int, topic: int) -> None:
        """Note that another topic gets messages under a key, before it does. Raises `SyncpointError`."""
        if (number, topic) in self._lent:
            return
        key = LENT_KEYS.key(number, topic)
        if await self._get(key) is None and not await self._txn([], [Put(key, b"{}")]):
            raise Unavailable("The keys of sealed messages cannot be written. Try again.")
        if len(self._lent) >= CACHED_MAX:
            del self._lent[next(iter(self._lent))]
        self._lent[number, topic] = None

    async def rotate(self, topic: int) -> int:
        """Use a new data key for new messages from now on (other proxies within a minute); returns its number."""
        for _ in range(_ATTEMPTS):
            known = await self._get(TOPIC_KEYS.key(topic))
            number, cipher, puts = await self._made(topic)
            revision = 0 if known is None else known.revision
            if await self._txn([unchanged(TOPIC_KEYS.key(topic), revision)], puts):
                self._use(topic, number, cipher)
                return number
        raise Unavailable("Another process kept changing the topic's key at the same time. Try again.")

    async def rewrap(self) -> int:
        """Wrap every data key that is under an older KEK with the current one; returns how many."""
        found, _ = await answered(read_all(self._store, DATA_KEYS), NO_ANSWER)
        changed = 0
        self.ring.refresh()
        for item in found:
            values = json.loads(item.value)
            if values["kek"] == self.ring.current:
                continue
            number = DATA_KEYS.number(item.key)
            key = self._unwrapped(number, values)
            put = Put(item.key, self._stored(number, values["topic"], key, values["created_ns"]))
            changed += await self._txn([unchanged(item.key, item.revision)], [put])
        return changed

    # -- one key -----------------------------------------------------------------------------------------------------

    def _obtain(self, topic: int) -> asyncio.Task[DataKey]:
        task = self._tasks.get(topic)
        if task is None:
            task = self._tasks[topic] = asyncio.get_running_loop().create_task(self._read_current(topic))
            task.add_done_callback(lambda _: self._tasks.pop(topic, None))
        return task

    async def _read_current(self, topic: int) -> DataKey:
        known = await self._get(TOPIC_KEYS.key(topic))
        if known is None:
            number, cipher, puts = await self._made(topic)
            if await self._txn([absent(TOPIC_KEYS.key(topic))], puts):
                return self._use(topic, number, cipher)
            known = await self._get(TOPIC_KEYS.key(topic))
            if known is None:
                raise Unavailable("The topic's key was removed while this call ran. Try again.")
        number = json.loads(known.value)["number"]
        used = self._current.get(topic)
        if used is not None and used.number == number:
            used.read_at = self._clock.monotonic()
            return used
        return self._use(topic, number, await self._cipher(number))

    def _use(self, topic: int, number: int, cipher: AESGCM) -> DataKey:
        if len(self._current) >= CACHED_MAX:
            del self._current[next(iter(self._current))]
        self._remember(number, cipher)
        nonce = int.from_bytes(self._random.token(NONCE_BYTES), "little")
        key = self._current[topic] = DataKey(number, cipher, nonce, self._clock.monotonic())
        return key

    def _remember(self, number: int, cipher: AESGCM) -> None:
        if len(self._known) >= CACHED_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest], self.ciphers[oldest]
        self._known[number] = cipher
        self.ciphers[number] = cipher.decrypt

    async def _cipher(self, number: int) -> AESGCM:
        known = self._known.get(number)
        if known is not None:
            return known
        found = await self._get(DATA_KEYS.key(number))
        if found is None:
            raise FailedPrecondition(
                f"Data key {number} does not exist any more; messages sealed with it cannot be read."
            )
        cipher = AESGCM(self._unwrapped(number, json.loads(found.value)))
        self._remember(number, cipher)
        return cipher

    async def _made(self, topic: int) -> tuple[int, AESGCM, list[Put]]:
        """A new key, and what stores it."""
        number = await answered(self._store.counter(KEY_COUNTER, deadline_s=_STORE_S), NO_ANSWER)
        key = self._random.token(KEY_BYTES)
        data = Put(DATA_KEYS.key(number), self._stored(number, topic, key, self._clock.time_ns()))
        return number, AESGCM(key), [data, Put(TOPIC_KEYS.key(topic), json.dumps({"number": number}).encode())]

    def _stored(self, number: int, topic: int, key: bytes, created_ns: int) -> bytes:
        kek, wrapped = self.ring.wrap(key, self._random.token(NONCE_BYTES), _bound_to(number, topic))
        values = {
            "created_ns": created_ns,
            "kek": kek,
            "topic": topic,
            "wrapped": base64.b64encode(wrapped).decode(),
        }
        return json.dumps(values).encode()

    def _unwrapped(self, number: int, values: Mapping[str, str | int]) -> bytes:
        wrapped = base64.b64decode(str(values["wrapped"]))
        return self.ring.unwrap(str(values["kek"]), wrapped, _bound_to(number, int(values["topic"])))

    # -- the store ---------------------------------------------------------------------------------------------------

    async def _get(self, key: str) -> KeyValue | None:
        return await answered(self._store.get(key, deadline_s=_STORE_S), NO_ANSWER)

    async def _txn(self, compares: list[Compare], puts: list[Put]) -> bool:
        try:
            return (await self._store.txn(compares, puts, deadline_s=_STORE_S)).ok
        except StoreUnavailable as error:
            raise Unavailable(f"{NO_ANSWER}: {error}") from error
        except Indeterminate:
            # Nobody else writes these very bytes.
            found = await self._get(puts[-1].key)
            return found is not None and found.value == puts[-1].value


def _refuse(nonce: bytes, data: bytes, header: bytes) -> bytes:
    """In place of the cipher of a key that cannot be had."""
    raise InvalidTag


def _keys_in(path: Path) -> list[bytes]:
    content = path.read_bytes()
    if len(content) == KEY_BYTES:
        return [content]
    try:
        lines = [line.split("#")[0].strip() for line in content.decode("ascii").splitlines()]
        found = [_decoded(line) for line in lines if line]
        if not found or any(len(key) != KEY_BYTES for key in found):
            raise ValueError("no key")
        return found
    except (UnicodeDecodeError, ValueError) as error:
        # Nothing of the content may show in a message.
        kind = "is not text" if isinstance(error, UnicodeDecodeError) else "has a line that is not a key"
        raise InvalidArgument(
            "sealing.key_file", f"{path} {kind}: a key is 32 bytes in hexadecimal or base64"
        ) from None


def _decoded(line: str) -> bytes:
    try:
        return bytes.fromhex(line) if len(line) == 2 * KEY_BYTES else base64.b64decode(line, validate=True)
    except binascii.Error:
        raise ValueError("no key") from None


def _bound_to(number: int, topic: int) -> bytes:
    return f"syncpoint data key {number} of topic {topic}".encode()


def _note_failure(task: asyncio.Task[DataKey]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, SyncpointError):
        log.warning("the key in use goes on being used: %s", error)
    elif error is not None:
        log.error("looking for a newer key failed", exc_info=error)
