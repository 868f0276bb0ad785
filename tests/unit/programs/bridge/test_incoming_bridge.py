"""What an incoming bridge does about publishes that fail, with a publisher and a source that are played."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.client import ClientFuture
from syncpoint.programs.bridge.bridge_file import BridgeFile, IncomingRule, OtherBroker
from syncpoint.programs.bridge.incoming_bridge import IncomingBridge
from syncpoint.programs.bridge.message_shape import ForeignMessage

RULE = IncomingRule("orders", "{key}")


class PlayedPublisher:
    """Keeps what is published, with its future."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, ClientFuture[str]]] = []

    def publish(self, topic: str, data: bytes, key: str = "", **_: str) -> ClientFuture[str]:
        outcome: ClientFuture[str] = ClientFuture()
        self.asked.append((topic.rpartition("/")[2], data, outcome))
        return outcome

    def resume_publish(self, topic: str, key: str) -> None:
        """Keys are never paused here."""

    def flush(self) -> None:
        """Nothing waits."""


class PlayedSource:
    def __init__(self) -> None:
        self.acknowledged: list[Hashable] = []
        self.drops = 0

    def acknowledge(self, tokens: list[Hashable]) -> None:
        self.acknowledged += tokens

    def drop_connection(self) -> None:
        self.drops += 1


def test_a_refused_message_becomes_a_letter_and_nothing_of_its_key_overtakes_what_comes_again() -> None:
    many, single, source = PlayedPublisher(), PlayedPublisher(), PlayedSource()
    played: Any = (source, many, lambda: single)
    file = BridgeFile(OtherBroker("mqtt", "h", 1), (RULE,), dead_letters="letters")
    bridge = IncomingBridge(file, "p", *played)

    def come(*numbers: int) -> None:
        for one in numbers:
            message = ForeignMessage("there", b"%d" % one, {"key": "k"})
            bridge.came(one, b"", message, RULE, again=False)

    bridge.connected(lambda _: False)
    come(1, 2)
    for _, _, outcome in many.asked:
        outcome.set_exception(InvalidArgument("messages", "2 is none"))
    assert source.drops == 2
    come(3)
    assert (len(many.asked), single.asked) == (2, []), "over the connection that ends"
    bridge.disconnected()
    bridge.connected(lambda _: False)
    come(1, 2, 3)
    assert [data for _, data, _ in single.asked] == [b"1"], "one of a key at a time"
    single.asked[0][2].set_result("id")
    assert source.acknowledged == [1]
    single.asked[1][2].set_exception(InvalidArgument("messages", "2 is none"))
    topic, data, letter = many.asked[2]
    assert (topic, data, len(single.asked)) == ("letters", b"2", 2)
    letter.set_result("id")
    assert source.acknowledged == [1, 2]
    single.asked[2][2].set_result("id")
    assert source.acknowledged == [1, 2, 3]
    status = bridge.status()
    assert (status["storedMessages"], status["deadLetters"], status["heldMessages"]) == (2, 1, 0)
