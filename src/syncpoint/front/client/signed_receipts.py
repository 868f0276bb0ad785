"""Signed receipts, checked without a server.

Place: under `syncpoint receipt verify`; the other half of `front.api.receipt_keys`.
Promise: a receipt that was changed, that another key signed, or that is a token of another kind is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.catalog.access.keysets import keys_of_set
from syncpoint.front.api.receipt_keys import ALGORITHM, TYPE


def read_receipt(text: str, key_sets: Sequence[bytes]) -> dict[str, Any]:
    """The content of a receipt, with `signed_at` as a time; `key_sets`: of `ListReceiptKeys`, of each site that is
    trusted. Raises `InvalidArgument`.
    """
    import jwt

    keys = {kid: key for one in key_sets for kid, key in keys_of_set(one).items()}
    try:
        header = jwt.get_unverified_header(text)
        key = keys.get(header.get("kid", ""))
        if header.get("typ") != TYPE:
            raise InvalidArgument("receipt", "it is not a receipt, but a token of another kind")
        if key is None:
            raise InvalidArgument(
                "receipt", "the keys do not include the one that signed it; get those of the server that did"
            )
        options = {"require": ["iss", "iat"], "verify_iat": False}
        found: dict[str, Any] = jwt.decode(text, key.key, algorithms=[ALGORITHM], options=options)  # type: ignore[arg-type]
    except jwt.PyJWTError as error:
        raise InvalidArgument("receipt", f"its signature does not match: {error}") from None
    found["signed_at"] = datetime.fromtimestamp(found["iat"], UTC).isoformat()
    return found
