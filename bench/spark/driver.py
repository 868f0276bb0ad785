"""The driver's process: makes one session of Spark, then does what comes on its standard input, line by line.

A line is `[work, arguments]`: a function of `bench.spark.work`, called with the session; the answer is one line with
its result or its error. `start` makes the session, with its arguments as settings. The end of the input is the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from typing import Any

from bench.spark import work

_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Serve standard input; what libraries print goes where errors go."""
    # Workers whose parent has ended become children of this process, so that their CPU stays counted.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        session: Any = None
        for line in sys.stdin:
            name, arguments = json.loads(line)
            try:
                if name == "start":
                    session, result = work.start(sys.argv[1], arguments), None
                else:
                    result = getattr(work, name)(session, **arguments)
                answer = {"result": result}
            except Exception as error:  # whatever Spark makes of it, reported to the one who asked
                traceback.print_exc()
                said = [one for one in str(error).splitlines() if one.strip()]
                shown = [one for one in said if one.startswith(("pyspark_pubsub.", "bench."))]
                answer = {"error": (shown or said or [type(error).__name__])[0][:2000]}
            answers.write(json.dumps(answer) + "\n")
        if session is not None:
            session.stop()


if __name__ == "__main__":
    main()
