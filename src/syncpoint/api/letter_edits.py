"""What is changed of dead letters that are published again: their attributes, by the action of a rule.

Place: under `letter_admin`. The action is that of SQL rules, on the message as it would be published again.
Promise: the same letter comes to the same message, however often it is tried. A letter that the action fails at is not
published, nor are later ones of its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from uuid import UUID

from syncpoint.api.letter_texts import published_again
from syncpoint.api.peek_admin import PeekedCopy
from syncpoint.model.errors import InvalidArgument
from syncpoint.rules.sql_compile import Action, compile_action
from syncpoint.rules.sql_values import RuleError
from syncpoint.rules.system_properties import RuleMessage
from syncpoint.wire.messages import pubsub

Found = tuple[PeekedCopy, pubsub.PubsubMessage]


class LetterEdit:
    """See the module; `action` "": nothing is changed. Raises `InvalidArgument` for an action without meaning."""

    def __init__(self, action: str) -> None:
        self._act = _action(action) if action else None

    def __bool__(self) -> bool:
        return self._act is not None

    def published(self, copy: PeekedCopy, letter: pubsub.PubsubMessage) -> pubsub.PubsubMessage:
        """The message that is published for a letter. Raises `RuleError`."""
        message = published_again(letter)
        if self._act is not None:
            seen = RuleMessage(
                dict(message.attributes), letter.message_id, letter.ordering_key, letter.publish_time.ToNanoseconds()
            )
            attributes = self._act(seen, lambda number: _new_id(copy, number))
            message.attributes.clear()
            message.attributes.update(attributes)
        return message

    def possible(self, found: Sequence[Found]) -> tuple[Sequence[Found], str]:
        """Of letters of one key those before the first that the action fails at; and why it does, "": it does not."""
        for at, one in enumerate(found if self else ()):
            try:
                self.published(*one)
            except RuleError as error:
                return found[:at], str(error)
        return found, ""


def _action(text: str) -> Action:
    from syncpoint.rules.sql_parser import parse_action  # its parser is large: only who asks by SQL loads it

    try:
        return compile_action(parse_action(text))
    except InvalidArgument as error:
        raise InvalidArgument("action", error.problem) from None


def _new_id(copy: PeekedCopy, number: int) -> str:
    digest = md5(f"{copy.source}/{copy.place}/{number}".encode(), usedforsecurity=False).digest()
    return str(UUID(bytes=digest, version=4))
