"""What is changed of dead letters that are published again: their attributes, by the action of a rule, and their data.

Place: under `letter_admin`. The action is that of SQL rules, on the message as it would be published again; new data is
given for each letter.
Promise: the same letter comes to the same message, however often it is tried. A letter that the action fails at is not
published, nor are later ones of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import md5
from uuid import UUID

from syncpoint.api.letter_texts import published_again
from syncpoint.api.peek_admin import PeekedCopy
from syncpoint.model.errors import InvalidArgument
from syncpoint.rules.sql_compile import Action, check_targets, compile_action
from syncpoint.rules.sql_values import RuleError
from syncpoint.rules.system_properties import RuleMessage
from syncpoint.wire.messages import pubsub

Found = tuple[PeekedCopy, pubsub.PubsubMessage]


class LetterEdit:
    """See the module; `action` "": no attribute is changed; `data`: by the ids of letters, what is published instead of
    theirs. Raises `InvalidArgument` for an action without meaning.
    """

    def __init__(self, action: str, data: Mapping[str, bytes] | None = None) -> None:
        self._act = _action(action) if action else None
        self._data = dict(data or {})

    @property
    def acts(self) -> bool:
        """Whether there is an action."""
        return self._act is not None

    def replaces(self, letter: pubsub.PubsubMessage) -> bool:
        """Whether a letter is published with other data."""
        return letter.message_id in self._data

    def size(self, copy: PeekedCopy, letter: pubsub.PubsubMessage) -> int:
        """About how many bytes are published for a letter."""
        return max(len(copy.message), len(self._data.get(letter.message_id, b"")))

    def published(self, copy: PeekedCopy, letter: pubsub.PubsubMessage) -> pubsub.PubsubMessage:
        """The message that is published for a letter. Raises `RuleError`."""
        message = published_again(letter)
        message.data = self._data.get(letter.message_id, message.data)
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
        for at, one in enumerate(found if self.acts else ()):
            try:
                self.published(*one)
            except RuleError as error:
                return found[:at], str(error)
        return found, ""


def _action(text: str) -> Action:
    from syncpoint.rules.sql_parser import parse_action  # its parser is large: only who asks by SQL loads it

    try:
        statements = parse_action(text)
        check_targets(statements)
        return compile_action(statements)
    except InvalidArgument as error:
        raise InvalidArgument("action", error.problem) from None


def _new_id(copy: PeekedCopy, number: int) -> str:
    digest = md5(f"{copy.copy.source}/{copy.copy.place}/{number}".encode(), usedforsecurity=False).digest()
    return str(UUID(bytes=digest, version=4))
