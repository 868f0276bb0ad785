"""Where buckets are: an operator's map to fsspec addresses, and whether each can be written to now.

Place: one in every process that may export; asked by the driver and by the api. What waits runs in threads.
Promise: only the operator sets where a bucket is. A file appears under its name whole or not at all (see
`bucket_files`), and what processes that were killed left of unfinished ones is removed after an hour.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from syncpoint.base.runtime.own_threads import in_own_thread
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.broker.export.bucket_files import (
    OURS,
    BucketFile,
    StoreFailed,
    is_local,
    is_object_store,
    protocols,
    put_whole,
    remove_left,
)
from syncpoint.broker.export.contents import Contents
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.wire.protobuf.messages import pubsub

PROBE_S, PROBE_AGAIN_S = 10.0, 1.0  # between two looks at buckets that can be written to, and at others
STORES_MAX: Final = 8  # files of a bucket that are written at the same time: each has a thread
LEFT_S = 3_600.0  # after which a file that is not finished has been left: one is open for ten minutes at most
_STATES: Final = pubsub.CloudStorageConfig
_CHECK_NAME: Final = f"{OURS}check"

log = logging.getLogger(__name__)
Blocking = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """An fsspec address, the options of its file system as JSON, and in which region it is ("": where the process is
    that writes). A text `$NAME` in the options stands for a variable of the environment, `@PATH` for a file's content:
    secrets are read when they are needed, and stand neither here nor on a command line."""

    url: str
    options: str = "{}"
    region: str = ""


def place_of(text: str, options: Mapping[str, Any] | None = None, base: Path | None = None, region: str = "") -> Place:
    """An address as operators write it: a folder, or URL?OPTION=VALUE&... Raises `ValueError`."""
    url, _, query = text.partition("?")
    if not url:
        raise ValueError("a bucket needs a folder or a URL, such as s3://bucket/folder")
    if "://" not in url:
        url = f"file://{(base or Path()).absolute() / url}"
    found = {**dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))), **(options or {})}
    from fsspec import get_filesystem_class

    try:
        get_filesystem_class(url.partition("://")[0])
    except (ValueError, ImportError) as error:
        raise ValueError(f"{url}: {error}") from None
    return Place(url, json.dumps(_with_paths(found, base or Path()), sort_keys=True), region)


def options_of(place: Place) -> dict[str, Any]:
    """With the secrets that stand elsewhere. Raises `ValueError`, which does not say what was read."""
    found: dict[str, Any] = _read_secrets(json.loads(place.options))
    return found


def addresses_in(value: Any) -> Iterator[str]:
    """All texts in a place that may say where a store is: an address of its own, or one in its options."""
    if isinstance(value, dict):
        if "host" in value:
            yield f"{value['host']}:{value.get('port', 0)}"
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from addresses_in(one)
    elif isinstance(value, str) and "://" in value:
        yield value


def _with_paths(value: Any, base: Path) -> Any:
    if isinstance(value, dict):
        return {key: _with_paths(one, base) for key, one in value.items()}
    if isinstance(value, str) and value.startswith("@"):
        return f"@{base.absolute() / value[1:]}"
    return value


def _read_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _read_secrets(one) for key, one in value.items()}
    if isinstance(value, str) and value.startswith("$"):
        found = os.environ.get(value[1:])
        if found is None:
            raise ValueError(f"the environment has no variable {value[1:]}")
        return found
    if isinstance(value, str) and value.startswith("@"):
        try:
            return Path(value[1:]).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{value[1:]} cannot be read: {error_kind(error)}") from None
    return value


def error_kind(error: BaseException) -> str:
    """What an error is, without the paths and addresses that its text may have: those are the operator's."""
    return (
        f"{type(error).__name__}: {error.strerror}"
        if isinstance(error, OSError) and error.strerror
        else type(error).__name__
    )


class Buckets:
    """Resolve bucket names to writable places.

    `places`: by bucket name. `now_s`: the time as file systems report it; None: unfinished files are not cleaned up.
    """

    def __init__(
        self,
        places: Mapping[str, Place],
        blocking: Blocking = in_own_thread,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.places, self.blocking, self._now_s = places, blocking, now_s
        self.may_use: Callable[[str, str], bool] = lambda project, bucket: True
        """Whether messages of a project may be exported to a bucket now."""
        self.is_own: Callable[[str], bool] = lambda url: False
        """Whether an address is one of this deployment itself, where nothing may be written."""
        self._turns = {bucket: asyncio.Semaphore(STORES_MAX) for bucket in places}
        self._cleaned: dict[str, float] = {}
        self._systems: dict[str, tuple[Any, str]] = {}
        self._states: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self._failed: set[str] = set()  # a file could not be stored: the next look stores one
        self._tasks = Tasks()
        self._again = {bucket: asyncio.Event() for bucket in places}  # something failed: look soon

    def start(self) -> None:
        """Look at the buckets from now on, at each by itself: one that does not answer delays no other. Needs the event
        loop."""
        for bucket in self.places:
            self._tasks.start(self._look_on(bucket))

    async def stop(self) -> None:
        await self._tasks.stop()

    def state(self, bucket: str) -> int:
        """As the API calls it."""
        return self._states.get(bucket, _STATES.NOT_FOUND)

    def error(self, bucket: str) -> str:
        """Why it is not active."""
        if bucket not in self.places:
            return "This server has no bucket with this name. Ask the operator to configure it."
        return self._errors.get(bucket, "")

    async def look(self, bucket: str) -> None:
        """At one of them, once."""
        try:
            self._check_address(bucket)
            await self.blocking(partial(self._probe, bucket, bucket in self._failed))
        except Exception as error:
            self._note(bucket, error)
        else:
            self._failed.discard(bucket)
            self._errors.pop(bucket, None)
            self._states[bucket] = _STATES.ACTIVE

    async def store(self, bucket: str, work: Callable[[], frozenset[CopyId]]) -> frozenset[CopyId]:
        """Do what stores a file or a piece of one, in a thread. Raises what it raises; of `StoreFailed` the reason,
        which is one of the bucket."""
        self._check_address(bucket)
        try:
            async with self._turns[bucket]:
                found: frozenset[CopyId] = await self.blocking(work)
        except StoreFailed as failed:
            self._failed.add(bucket)
            self._again[bucket].set()
            self._note(bucket, failed.reason)
            raise failed.reason from None
        return found

    def _check_address(self, bucket: str) -> None:
        place = self.places[bucket]
        if any(map(self.is_own, addresses_in([place.url, json.loads(place.options)]))):
            raise PermissionError(errno.EACCES, "its address leads back to this deployment")

    def file(self, bucket: str, name: str, contents: Contents) -> BucketFile:
        """A file that is to be written; whatever it does waits."""
        return BucketFile(partial(self._system, bucket), name, contents)

    async def _look_on(self, bucket: str) -> None:
        again = self._again[bucket]
        while True:
            await self.look(bucket)
            active = self.state(bucket) == _STATES.ACTIVE
            if active:
                with suppress(TimeoutError):
                    await asyncio.wait_for(again.wait(), PROBE_S)
            again.clear()
            if not active:
                await asyncio.sleep(PROBE_AGAIN_S)

    def _note(self, bucket: str, error: Exception) -> None:
        if self._errors.get(bucket) != error_kind(error):
            log.warning("bucket %s cannot be written to: %s: %s", bucket, type(error).__name__, error)
        self._errors[bucket] = error_kind(error)
        denied = isinstance(error, PermissionError)
        self._systems.pop(bucket, None)  # a key may have been replaced: it is read anew
        self._states[bucket] = _STATES.PERMISSION_DENIED if denied else _STATES.NOT_FOUND

    # -- in threads --------------------------------------------------------------------------------------------------

    def _system(self, bucket: str) -> tuple[Any, str]:
        found = self._systems.get(bucket)
        if found is None:
            from fsspec.core import url_to_fs

            place = self.places[bucket]
            options = options_of(place)
            found = self._systems[bucket] = url_to_fs(place.url, use_listings_cache=False, **options)
        return found

    def _probe(self, bucket: str, write: bool) -> None:
        system, root = self._system(bucket)
        if is_local(system):
            if not os.path.isdir(root):
                raise FileNotFoundError(f"no folder {root}")
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(f"{root} cannot be written to")
        elif not write and "memory" not in protocols(system):
            start = root.partition("/")[0] if is_object_store(system) else root
            if not system.exists(start):
                raise FileNotFoundError(f"no bucket {start}")
        if write:
            put_whole(system, root, _CHECK_NAME, b".")
            system.rm_file(f"{root}/{_CHECK_NAME}")
        now_s = 0.0 if self._now_s is None else self._now_s()
        if now_s - self._cleaned.get(bucket, 0.0) >= LEFT_S:
            self._cleaned[bucket] = now_s
            try:
                removed = remove_left(system, root, now_s - LEFT_S)
            except Exception:  # the bucket can be written to, which is more
                log.exception("bucket %s: unfinished files were not removed", bucket)
            else:
                if removed:
                    log.warning("bucket %s: removed %d unfinished files that were left", bucket, removed)
