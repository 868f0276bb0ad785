"""The note in a data folder that says it is run by workers. Apart from the rest, for whoever only asks this."""

from __future__ import annotations

import json
from pathlib import Path

from syncpoint.model.errors import FailedPrecondition

NOTE = "workers.json"


def noted_workers(data: Path) -> int:
    """How many workers ran on a folder last; 0 when it is the folder of a single server, or new."""
    try:
        return int(json.loads((data / NOTE).read_text())["workers"])
    except FileNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as error:
        raise FailedPrecondition(f"{data / NOTE} cannot be read ({error}): give the number by --workers") from error
