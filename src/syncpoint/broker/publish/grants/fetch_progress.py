"""Fetch progress: what holders of sources wait for, and how far messages were handed out to them.

Beside `dispatch`. A holder whose fetch found nothing is notified of the next message, once; whatever comes while it is
being answered makes it look again.
"""

Key = tuple[int, int]
"""Subscription, source."""


class FetchProgress:
    """Track fetches of all subscriptions and sources of one chain."""

    def __init__(self) -> None:
        self._waiting: set[Key] = set()  # the holder waits for Data
        self._news: dict[Key, int] = {}  # how often something came of which the holder was not notified
        self._handed_out: dict[Key, int] = {}  # handed out up to there

    def is_waiting(self, key: Key) -> bool:
        """Whether the holder is to be notified of the next message."""
        return key in self._waiting

    def data_came(self, key: Key) -> None:
        """Something came of which the holder is not notified: one that is being answered may have to look again."""
        self._news[key] = self._news.get(key, 0) + 1

    def news(self, key: Key) -> int | None:
        """To be compared with later."""
        return self._news.get(key)

    def wait(self, key: Key) -> None:
        """The holder knows of all there is. Another lane of it may be asked for at this moment, so `news` stays."""
        self._waiting.add(key)

    def notified(self, key: Key) -> None:
        """The holder was notified that there is more."""
        self._waiting.discard(key)

    def granted(self, key: Key) -> None:
        """Somebody else may be the holder now, who has asked for nothing yet."""
        self._waiting.discard(key)
        self._news.pop(key, None)

    def hand_out(self, key: Key, end: int) -> None:
        """Messages up to there have left for the holder."""
        self._handed_out[key] = max(end, self._handed_out.get(key, 0))

    def handed_out(self, subscription: int, source: int) -> int:
        """The offset up to which messages have left for a holder; 0 also when that is not known any more."""
        return self._handed_out.get((subscription, source), 0)

    def done(self, key: Key) -> None:
        """Nothing of the source is left to hand out."""
        self.granted(key)
        self._handed_out.pop(key, None)

    def forget_fetches(self, subscription: int) -> None:
        """Its holders begin anew."""
        for key in [key for key in (*self._waiting, *self._news) if key[0] == subscription]:
            self.granted(key)

    def forget(self, subscription: int) -> None:
        """Nobody serves it any more."""
        self.forget_fetches(subscription)
        for key in [key for key in self._handed_out if key[0] == subscription]:
            del self._handed_out[key]
