"""Numbers of things in sentences for people: "1 link", "2 links".

Place: texts of the command line, and of what it reads.
"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number and the noun, in the plural unless it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
