"""Randomness, passed as an argument: the system's, or drawn from a seed.

Place: handed to everything that mints identities or spreads load. Only `SystemRandom` may mint what has to be unique or
secret; `SeededRandom` makes a run repeatable.
"""

from __future__ import annotations

import random as _random
import secrets
from typing import Protocol


class Random(Protocol):
    """A source of chance."""

    def token(self, size: int) -> bytes:
        """`size` random bytes."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """A whole number in [start, stop)."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemRandom:
    """The operating system's generator, fit for identities and keys."""

    __slots__ = ("_generator",)

    def __init__(self) -> None:
        self._generator = _random.SystemRandom()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def randrange(self, start: int, stop: int) -> int:
        return self._generator.randrange(start, stop)

    def random(self) -> float:
        return self._generator.random()


class SeededRandom:
    """A repeatable generator for simulations and tests."""

    __slots__ = ("_generator",)

    def __init__(self, seed: int) -> None:
        self._generator = _random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._generator.randbytes(size)

    def randrange(self, start: int, stop: int) -> int:
        return self._generator.randrange(start, stop)

    def random(self) -> float:
        return self._generator.random()
