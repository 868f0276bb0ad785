"""Where buckets are: an operator's map to fsspec addresses, and whether each can be written to now.

Place: one in every process that may export; asked by the driver and by the api. What waits runs in threads.
Promise: nobody but the operator says where a bucket is. A file appears under its name whole or not at all: on local
folders it is written under another name, made durable and renamed; object stores take it in one put. No file lies
outside the bucket's place, whatever it is called.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from syncpoint.runtime.tasks import stop
from syncpoint.wire.messages import pubsub

PROBE_S, PROBE_AGAIN_S = 10.0, 1.0  # between two looks at buckets that can be written to, and at others
WHOLE_PUT: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})
_STATES: Final = pubsub.CloudStorageConfig
_CHECK_NAME: Final = ".syncpoint-check"

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
        raise ValueError("a bucket needs a folder or an address, like s3://bucket/folder")
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
    """See the module. `places`: by the names of buckets."""

    def __init__(self, places: Mapping[str, Place], blocking: Blocking = asyncio.to_thread) -> None:
        self.places, self.blocking = places, blocking
        self._systems: dict[str, tuple[Any, str]] = {}
        self._states: dict[str, int] = {}
        self._errors: dict[str, str] = {}
        self._failed: set[str] = set()  # a file could not be stored: the next look stores one
        self._looking: asyncio.Task[None] | None = None
        self._again = asyncio.Event()  # something failed: look soon

    def start(self) -> None:
        """Look at the buckets from now on. Needs the event loop."""
        if self.places:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        if self._looking is not None:
            await stop([self._looking])

    def state(self, bucket: str) -> int:
        """As the API calls it."""
        return self._states.get(bucket, _STATES.NOT_FOUND)

    def error(self, bucket: str) -> str:
        """Why it is not active."""
        if bucket not in self.places:
            return "The operator has not said where this bucket is."
        return self._errors.get(bucket, "")

    async def look(self) -> None:
        """At all of them, once."""
        for bucket in self.places:
            try:
                await self.blocking(partial(self._probe, bucket, bucket in self._failed))
            except Exception as error:
                self._note(bucket, error)
            else:
                self._failed.discard(bucket)
                self._errors.pop(bucket, None)
                self._states[bucket] = _STATES.ACTIVE

    async def put(self, bucket: str, name: str, content: Callable[[], tuple[bytes, frozenset[str]]]) -> frozenset[str]:
        """Store a file whole; `content` is made in the same thread, and one of no bytes beside the ids of what is not
        in it is not stored. Those ids come back. Raises whatever the place does."""

        def made() -> tuple[BaseException | None, frozenset[str]]:
            data, unfit = content()
            if data or not unfit:
                try:
                    self._put(bucket, name, data)
                except Exception as error:
                    return error, unfit
            return None, unfit

        error: BaseException | None
        unfit: frozenset[str]
        error, unfit = await self.blocking(made)
        if error is not None:
            self._failed.add(bucket)
            self._again.set()
            self._note(bucket, error)
            raise error
        return unfit

    async def _look(self) -> None:
        while True:
            await self.look()
            active = all(self.state(one) == _STATES.ACTIVE for one in self.places)
            if active:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._again.wait(), PROBE_S)
            self._again.clear()
            if not active:
                await asyncio.sleep(PROBE_AGAIN_S)

    def _note(self, bucket: str, error: BaseException) -> None:
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
        if _is_local(system):
            if not os.path.isdir(root):
                raise FileNotFoundError(f"no folder {root}")
            if not os.access(root, os.W_OK | os.X_OK):
                raise PermissionError(f"{root} cannot be written to")
        elif not write and "memory" not in _protocols(system):
            start = root if WHOLE_PUT.isdisjoint(_protocols(system)) else root.partition("/")[0]
            if not system.exists(start):
                raise FileNotFoundError(f"no bucket {start}")
        if write:
            self._put(bucket, _CHECK_NAME, b".")
            system.rm_file(f"{root}/{_CHECK_NAME}")

    def _put(self, bucket: str, name: str, data: bytes) -> None:
        system, root = self._system(bucket)
        if _is_local(system):
            _put_local(Path(root, *_folder_parts(name)), data)
        elif not WHOLE_PUT.isdisjoint(_protocols(system)):
            system.pipe_file(f"{root}/{name}", data)
        else:
            path = "/".join((root.rstrip("/"), *_folder_parts(name)))
            folder, _, last = path.rpartition("/")
            system.makedirs(folder, exist_ok=True)
            system.pipe_file(f"{folder}/.{last}.part", data)
            system.mv(f"{folder}/.{last}.part", path)


def _protocols(system: Any) -> tuple[str, ...]:
    named = system.protocol
    return (named,) if isinstance(named, str) else tuple(named)


def _is_local(system: Any) -> bool:
    return "file" in _protocols(system)


def _folder_parts(name: str) -> list[str]:
    """The name of an object as folders and a file: what means another folder on file systems is written as hexadecimal
    digits, and empty parts are left out."""
    return [part.replace(".", "%2E") if part in (".", "..") else part for part in name.split("/") if part]


def _put_local(path: Path, data: bytes) -> None:
    """Durable, and whole from the moment at which it has its name. What a crash leaves is called .NAME.part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
