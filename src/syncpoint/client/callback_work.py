"""Messages for callbacks: which may run now, in several threads, and which wait for another one of their key.

Place: between `reception` and the threads or tasks of `subscribe`. `KeyedWork` decides and is synchronous; its users
guard it. Promise: messages of one ordering key are handed out one after the other, in the order in which they came.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from syncpoint.client.received_messages import Message
from syncpoint.client.reception import Reception
from syncpoint.client.service_link import log

CHUNK_MAX: Final = 64
"""Messages that a thread takes at once, where many wait."""

Callback = Callable[[Message], object]


class KeyedWork:
    """Messages that wait for a callback."""

    def __init__(self) -> None:
        self.ready: deque[Message] = deque()
        self._keys: dict[str, deque[Message]] = {}  # of which one is ready or handed out

    def offer(self, messages: Iterable[Message]) -> None:
        """Take these, in order."""
        for message in messages:
            key = message.ordering_key
            if not key:
                self.ready.append(message)
            elif (later := self._keys.get(key)) is not None:
                later.append(message)
            else:
                self._keys[key] = deque()
                self.ready.append(message)

    def take(self, workers: int) -> list[Message]:
        """Some of what may run now: a share of it that leaves enough to as many others."""
        count = max(1, min(CHUNK_MAX, len(self.ready) // (4 * workers)))
        return [self.ready.popleft() for _ in range(min(count, len(self.ready)))]

    def handled(self, message: Message) -> None:
        """A message was handled; the next one of its key may run."""
        key = message.ordering_key
        if key:
            later = self._keys[key]
            if later:
                self.ready.append(later.popleft())
            else:
                del self._keys[key]

    def drop(self) -> list[Message]:
        """Everything that was not handed out, which is forgotten here."""
        found = [*self.ready, *(message for later in self._keys.values() for message in later)]
        for message in self.ready:
            self._keys.pop(message.ordering_key, None)
        self.ready.clear()
        for later in self._keys.values():  # one of each is handed out
            later.clear()
        return found


class CallbackThreads:
    """Threads that call back for what a reception brings. Their number is that of messages handled at once."""

    def __init__(self, callback: Callback, workers: int) -> None:
        self._callback, self._workers = callback, workers
        self._work = KeyedWork()
        self._changed = threading.Condition()
        self._reception: Reception | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"syncpoint-callback-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self, reception: Reception) -> None:
        """Begin."""
        self._reception = reception
        for thread in self._threads:
            thread.start()

    def arrived(self) -> bool:
        """Something came, or it is over; returns whether it is."""
        reception = self._reception
        with self._changed:
            if reception is not None and reception.gives_back:
                for message in self._work.drop():
                    message.nack()
            self._changed.notify_all()
        return reception is not None and reception.over

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for callbacks under way."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def _run(self) -> None:
        reception = self._reception
        assert reception is not None
        while chunk := self._next(reception):
            for message in chunk:
                if reception.gives_back:
                    message.nack()
                else:
                    self._call(message)
                with self._changed:
                    self._work.handled(message)
                    if self._work.ready:
                        self._changed.notify()

    def _next(self, reception: Reception) -> list[Message]:
        """What to handle next; nothing at the end."""
        with self._changed:
            while not reception.over:
                if self._work.ready:
                    return self._work.take(self._workers)
                batch = reception.take()
                if batch is None:
                    self._changed.wait()
                else:
                    self._work.offer(batch)
                    self._changed.notify(self._workers - 1)
        return []

    def _call(self, message: Message) -> None:
        try:
            self._callback(message)
        except Exception:
            log.exception("The callback failed; message %s is given back.", message.message_id)
            message.nack()
