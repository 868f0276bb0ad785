"""What is changed of dead letters that are published again: their attributes, by the action of a rule, and their data.

Place: under `letter_admin`. The action is that of SQL rules, on the message as it would be published again; new data is
given for each letter.
Promise: the same letter comes to the same message, however often it is tried. A letter that the action fails at is not
published, nor are later ones of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import md5
from uuid import UUID

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.sql_compile import Action, check_targets, compile_action
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RuleMessage
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.front.api.letter_texts import LetterSelection, published_again
from syncpoint.front.api.peek_admin import PeekedCopy
from syncpoint.wire.protobuf.messages import admin, pubsub

Found = tuple[PeekedCopy, pubsub.PubsubMessage]


Choice = bool | dict[str, str] | str
"""Of a letter: False: it is not wanted; True: it is; with an action, the attributes of its message, or why it fails."""


def chosen(selection: bytes, action: str, copies: Sequence[PeekedCopy]) -> list[Choice]:
    """What becomes of each letter under a serialised DeadLetterSelection; to be called in any process. Raises
    `InvalidArgument` for a filter or an action without meaning."""
    wanted, act = LetterSelection(admin.DeadLetterSelection.FromString(selection)), _action(action) if action else None
    found: list[Choice] = []
    for copy in copies:
        letter = pubsub.PubsubMessage.FromString(copy.message)
        found.append(wanted.takes(letter) and (act is None or _acted(act, copy, letter)))
    return found


def _acted(act: Action, copy: PeekedCopy, letter: pubsub.PubsubMessage) -> dict[str, str] | str:
    attributes = dict(published_again(letter).attributes)
    seen = RuleMessage(attributes, letter.message_id, letter.ordering_key, letter.publish_time.ToNanoseconds())
    try:
        return act(seen, partial(_new_id, copy))
    except RuleError as error:
        return str(error)


class LetterEdit:
    """Edits of dead letters that are published again.

    `choices`: results of the action, by letter; `data`: replacement data, by letter id.
    """

    def __init__(self, choices: Mapping[CopyId, Choice], data: Mapping[str, bytes]) -> None:
        self._choices, self._data = choices, data

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
        choice = self._choices[copy.copy]
        if isinstance(choice, str):
            raise RuleError(choice)
        if isinstance(choice, dict):
            message.attributes.clear()
            message.attributes.update(choice)
        return message

    def possible(self, found: Sequence[Found]) -> tuple[Sequence[Found], str]:
        """Return the letters of a key before the first that the action fails for, and the reason of that failure, or
        "".
        """
        for at, (copy, _) in enumerate(found):
            choice = self._choices[copy.copy]
            if isinstance(choice, str):
                return found[:at], choice
        return found, ""


def _action(text: str) -> Action:
    from syncpoint.base.rules.sql_parser import parse_action  # its parser is large: only who asks by SQL loads it

    try:
        statements = parse_action(text)
        check_targets(statements)
        return compile_action(statements)
    except InvalidArgument as error:
        raise InvalidArgument("action", error.problem) from None


def _new_id(copy: PeekedCopy, number: int) -> str:
    digest = md5(f"{copy.copy.source}/{copy.copy.place}/{number}".encode(), usedforsecurity=False).digest()
    return str(UUID(bytes=digest, version=4))
