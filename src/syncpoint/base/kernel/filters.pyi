"""Types of filters.py; see there."""

from typing_extensions import Buffer

def matches(program: Buffer, message: Buffer) -> bool: ...
