"""Pages of sorted lists: sizes, and tokens that say where the next page begins.

Place: used by every List method.
Promise: a token names the last item given, so what is created or deleted in the meantime neither repeats nor hides
another. A page of large items holds fewer of them than were asked for: one answer neither costs nor weighs much. It is
opaque to clients, and good for the same list only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from syncpoint.base.model.limits import PAGE_BYTES_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, PAGE_TOKEN_BYTES_MAX
from syncpoint.front.api.validate import refused

_Item = TypeVar("_Item")


class Asked(NamedTuple):
    """How many items at most, and after which name (None: from the start)."""

    size: int
    after: str | None


def asked(page_size: int, page_token: str, listing: str) -> Asked:
    """What a request asks for. `listing` distinguishes this list from all others, for instance `topics of projects/p`.

    Sizes above the maximum are cut, 0 means the default. Raises `InvalidArgument` for a negative size or a token that
    was not given out for this list.
    """
    if page_size < 0:
        raise refused("page_size", f"The value for page_size must not be negative. You passed {page_size}.")
    after = _decode(page_token, listing) if page_token else None
    return Asked(min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX), after)


def gathered(items: Iterable[_Item], page: Asked, size: Callable[[_Item], int]) -> list[_Item]:
    """As many of what is left of a list as `cut` needs for a page with the same `size`; no more are made."""
    found, room = list[_Item](), PAGE_BYTES_MAX
    for item in items:
        found.append(item)
        room -= size(item)
        if len(found) > page.size or (room < 0 and len(found) > 1):
            break
    return found


def cut(
    found: Sequence[_Item],
    page: Asked,
    listing: str,
    name: Callable[[_Item], str],
    size: Callable[[_Item], int] | None = None,
) -> tuple[Sequence[_Item], str]:
    """The items of one page and the token of the next ("" at the end). `found`: one more than asked, if there is.

    `size`: bytes of an item; items beyond `PAGE_BYTES_MAX` are for the next page.
    """
    items = found[: page.size]
    if size is not None:
        total = 0
        for at, item in enumerate(items):
            total += size(item)
            if total > PAGE_BYTES_MAX and at:
                items = items[:at]
                break
    if len(items) == len(found):
        return items, ""
    return items, token_of(name(items[-1]), listing)


def token_of(last: str, listing: str) -> str:
    """The token of the page that begins after `last`."""
    return base64.urlsafe_b64encode(f"1\n{listing}\n{last}".encode()).decode().rstrip("=")


def _decode(token: str, listing: str) -> str:
    wrong = refused(
        "page_token", "Invalid page_token: it must be the next_page_token of a previous response for this list."
    )
    if len(token) > PAGE_TOKEN_BYTES_MAX or not token.isascii():
        raise wrong
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise wrong from None
    version, _, rest = text.partition("\n")
    found, _, last = rest.partition("\n")
    if version != "1" or found != listing or not last:
        raise wrong
    return last
