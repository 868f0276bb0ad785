"""Checks that topics, subscriptions and snapshots share, with the texts users of Pub/Sub know.

Place: called while a request is turned into a record, before anything is changed.
Promise: every refusal is INVALID_ARGUMENT (or UNIMPLEMENTED for what is not served) and names the field.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.limits import LABEL_KEY_CHARACTERS_MAX, LABEL_VALUE_CHARACTERS_MAX, LABELS_MAX
from syncpoint.wire.protobuf.messages import well_known

CONFIG_BYTES_MAX = 192 * 1024  # what one resource may keep; above anything the documented limits add up to
_NANOS = 10**9
_DURATION_S_MAX = 315_576_000_000  # google.protobuf.Duration: ten thousand years


def refused(field: str, text: str) -> InvalidArgument:
    """An `InvalidArgument` with exactly this text, for texts that name the field themselves."""
    error = InvalidArgument("", text)
    error.field = field
    return error


def in_bounds(field: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Raise unless low <= value <= high."""
    if value < low:
        problem, bound = "small", f"minimum value is {low:.15g}{unit}"
    elif value > high:
        problem, bound = "large", f"maximum value is {high:.15g}{unit}"
    else:
        return
    passed = f"You passed {value:.15g}{unit} in the request, but the {bound}."
    raise refused(field, f"The value for {field} is too {problem}. {passed}")


def seconds_of(message: Message, field: str) -> float | None:
    """A Duration field in seconds; None when it is not set."""
    if not message.HasField(field):
        return None
    duration = getattr(message, field)
    in_range = -_DURATION_S_MAX <= duration.seconds <= _DURATION_S_MAX and -_NANOS < duration.nanos < _NANOS
    if not in_range or duration.seconds * duration.nanos < 0:
        raise refused(
            field,
            f"The value for {field} is not a valid duration: seconds and nanos must be in range and have the same"
            " sign.",
        )
    return float(duration.seconds + duration.nanos / _NANOS)


def nanoseconds_of(message: Message, field: str) -> int:
    """A Timestamp field in nanoseconds since 1970; 0 when it is not set. Raises `InvalidArgument` for what is no time
    of the years 1 to 9999.
    """
    try:
        return int(getattr(message, field).ToNanoseconds())
    except ValueError as bad:
        raise refused(field, f"The value for {field} is not a valid time: {bad}") from None


def whole_seconds(seconds: float) -> int:
    """Rounded up: what is kept for a time is never kept for less."""
    return -int(-seconds // 1)


def duration(seconds: float) -> well_known.Duration:
    """A Duration of that many seconds."""
    nanos = round(seconds * _NANOS)
    return well_known.Duration(seconds=nanos // _NANOS, nanos=nanos % _NANOS)


def check_labels(labels: dict[str, str]) -> None:
    """The label rules of Google Cloud: count, lengths, and characters that are lower case or have no case."""
    if len(labels) > LABELS_MAX:
        raise refused("labels", f"Too many labels: at most {LABELS_MAX} are allowed, the request has {len(labels)}.")
    for key, value in sorted(labels.items()):
        if not 1 <= len(key) <= LABEL_KEY_CHARACTERS_MAX or not _lower(key) or not key[0].isalpha():
            raise refused(
                "labels",
                f"Invalid label key: {key!r}. Use 1 to {LABEL_KEY_CHARACTERS_MAX} lowercase letters, digits, - and _,"
                " beginning with a letter.",
            )
        if len(value) > LABEL_VALUE_CHARACTERS_MAX or not _lower(value):
            raise refused(
                "labels",
                f"Invalid value of label {key!r}: {value!r}. Use up to {LABEL_VALUE_CHARACTERS_MAX} lowercase"
                " letters, digits, - and _.",
            )


def _lower(text: str) -> bool:
    return all(char in "-_" or (char.isalnum() and char == char.lower()) for char in text)


def config_of(message: Message, without: Iterable[str]) -> bytes:
    """What is kept of a resource: everything except for these fields, unknown ones included."""
    kept = type(message)()
    kept.CopyFrom(message)
    for field in without:
        kept.ClearField(field)
    if kept.ByteSize() > CONFIG_BYTES_MAX:
        name = message.DESCRIPTOR.name
        raise refused("", f"The {name} is too large: {kept.ByteSize()} bytes, at most {CONFIG_BYTES_MAX} are allowed.")
    data: bytes = kept.SerializeToString(deterministic=True)
    return data
