"""A process of a cluster that can be held at named points: `python pausing_server.py FOLDER run ...`.

Who comes to a point of `POINTS` while FOLDER has a file of its name takes the file, as POINT.PID, and stands still,
with everything that runs on its loop, until that file is gone. So exactly one process is held, once, and whoever takes
its work over is not. Pieces and turns are small, so that an epoch of a few hundred messages takes several.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTS = ("stage", "staged", "decide", "decided", "place", "done", "answer", "read")
"""In a stage, behind one; before a decision, behind it; between the turns that store its messages; before it is written
to be done, and before that is answered; before a range is read.
"""


def install(folder: Path) -> None:
    """Put the points where they are."""
    from syncpoint.broker.pipeline import epoch_apply, staging
    from syncpoint.broker.pipeline.epoch_apply import EpochApply
    from syncpoint.broker.pipeline.epochs import EpochState
    from syncpoint.broker.pipeline.reading import LogReader
    from syncpoint.broker.pipeline.staging import StageStream
    from syncpoint.broker.pipeline.writing import EpochWriter

    def pause(point: str) -> None:
        mine = folder / f"{point}.{os.getpid()}"
        try:
            (folder / point).rename(mine)
        except FileNotFoundError:
            return
        while mine.exists():
            time.sleep(0.01)

    def around(owner: Any, name: str, before: str = "", after: str = "") -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def held(*arguments: Any, **more: Any) -> Any:
            pause(before) if before else None
            result = inner(*arguments, **more)
            pause(after) if after else None
            return result

        setattr(owner, name, held)

    around(StageStream, "_frame", after="stage")
    around(EpochState, "stage", after="staged")
    around(EpochState, "decide", before="decide")
    around(EpochApply, "begin", before="decided")
    around(EpochState, "applied", after="place")
    around(EpochState, "done", before="done")
    around(LogReader, "read_range", before="read")
    commit = EpochWriter.commit_epoch

    async def answered(self: EpochWriter, asked: Any) -> Any:
        result = await commit(self, asked)
        pause("answer")
        return result

    EpochWriter.commit_epoch = answered  # type: ignore[method-assign]
    staging.PIECE_BYTES = 4_000
    epoch_apply.TURN_BYTES = 8_000


if __name__ == "__main__":
    install(Path(sys.argv.pop(1)))
    from syncpoint.programs.cli.main import main

    main()
