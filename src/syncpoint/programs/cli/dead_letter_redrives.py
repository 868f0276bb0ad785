"""A redrive of dead letters, call by call: page by page, and with new data that a command of the user's makes.

Place: under `syncpoint dead-letters redrive`; the server selects, publishes and acknowledges.
Promise: what a command made is published by the same call as always, so the same letter is not published twice, and is
acknowledged once it is persisted. A letter that the command fails at stays, and so do later ones of its key; others go
on. What becomes a letter again in the meantime is left alone.
"""

from __future__ import annotations

import base64
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import click

COMMAND_S: Final = 60.0
DATA_BYTES: Final = 4 << 20
"""Of new data in one call, beyond the first letter's."""
EDITS_MAX: Final = 100
"""That a dry run shows."""


class DataEdit(NamedTuple):
    """What a command made of a letter's data."""

    letter_id: str
    before: bytes
    after: bytes

    def as_json(self) -> dict[str, str]:
        """As JSON has bytes."""
        before, after = (base64.b64encode(one).decode() for one in (self.before, self.after))
        return {"letterId": self.letter_id, "data": before, "newData": after}


class Redrive:
    """One redrive; `request`: what is asked, without a page. `rate`: letters a second, None: any. `failures`: why
    letters were not published; `topic`: where they go; `edits`: the first ones of a dry run.
    """

    def __init__(self, client: Any, request: Any, rate: float | None) -> None:
        self._client, self._request, self._rate = client, request, rate
        self.failures: list[str] = []
        self.edits: list[DataEdit] = []
        self.topic = ""
        self._kept_keys: set[str] = set()  # a letter of these stays, so later ones do

    def plain(self) -> Iterator[Any]:
        """Each answer; the first that fails is the last. Raises `SyncpointError`."""
        request, more = self._request, True
        while more and not self.failures:
            answer = self._asked(request)
            yield answer
            if not request.selection.HasField("end_time"):
                request.selection.end_time.CopyFrom(answer.time)
            request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
            self._pause(answer.redriven, more=more)

    def mapped(self, command: str) -> Iterator[Any]:
        """Redrive letters with their data replaced by the output of a command, which gets the data on standard input.

        Raises `click.UsageError` for an invalid command, and `SyncpointError`.
        """
        from syncpoint.wire.protobuf.messages import admin

        words = _words(command)
        first = admin.RedriveDeadLettersRequest()
        first.CopyFrom(self._request)
        first.dry_run, first.page_size = True, 1
        begun = self._client.call("Admin.RedriveDeadLetters", first)  # refuses what would be refused later
        self.topic = begun.topic
        listed = admin.ListDeadLettersRequest(selection=self._request.selection, page_size=self._request.page_size)
        listed.selection.end_time.CopyFrom(begun.time)
        more, refused = True, False
        while more and not refused:
            page = self._client.call("Admin.ListDeadLetters", listed)
            self.failures += page.unknown
            for part in self._parts(words, page.letters):
                request = admin.RedriveDeadLettersRequest()
                request.CopyFrom(self._request)
                request.selection.message_ids[:] = [one.letter_id for one in part]
                request.page_token = listed.page_token
                for one in part:
                    if one.after != one.before:
                        request.data[one.letter_id] = one.after
                before = len(self.failures)
                answer = self._asked(request)
                yield answer
                refused = len(self.failures) > before
                if refused:
                    break
                self._pause(answer.redriven, more=True)
            listed.page_token, more = page.next_page_token, bool(page.next_page_token)

    def _asked(self, request: Any) -> Any:
        answer = self._client.call("Admin.RedriveDeadLetters", request)
        self.failures += answer.failures
        self.topic = answer.topic
        return answer

    def _pause(self, redriven: int, *, more: bool) -> None:
        if more and self._rate is not None and not self._request.dry_run:
            time.sleep(redriven / self._rate)

    def _parts(self, words: Sequence[str], letters: Sequence[Any]) -> Iterator[list[DataEdit]]:
        """Letters of a page with their new data, as many as one call takes."""
        part: list[DataEdit] = []
        nbytes = 0
        for message in (one.message for one in letters):
            if message.ordering_key in self._kept_keys:
                continue
            after, why = _output(words, message.data)
            if why:
                self.failures.append(f"{message.message_id} was not published: {words[0]} {why}")
                if message.ordering_key:
                    self._kept_keys.add(message.ordering_key)
                continue
            edit = DataEdit(message.message_id, message.data, after)
            if self._request.dry_run and len(self.edits) < EDITS_MAX:
                self.edits.append(edit)
            if part and nbytes + len(after) > DATA_BYTES:
                yield part
                part, nbytes = [], 0
            part.append(edit)
            nbytes += len(after)
        if part:
            yield part


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--map: {error}") from None
    if not words:
        raise click.UsageError("--map: name a command.")
    return words


def _output(words: Sequence[str], data: bytes) -> tuple[bytes, str]:
    """What a command makes of data; and why it makes nothing of it, "": it does."""
    try:
        ended = subprocess.run(words, input=data, capture_output=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        return b"", f"did not end within {COMMAND_S:.0f} s"
    except OSError as error:
        raise click.UsageError(f"--map: {words[0]} cannot be run: {error.strerror}") from None
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return b"", f"ended with {ended.returncode}" + (f": {lines[-1][:200]}" if lines else "")
    return ended.stdout, ""
