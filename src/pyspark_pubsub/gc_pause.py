"""A setting of Spark's Python workers: less work after every task.

Spark's workers serve one task after the other and collect garbage after each of them. That looks at every object of
every module that was imported, 20 to 30 ms of CPU, several times per micro-batch: more than a small batch costs
otherwise. What is there when the first task has done its work stays anyhow, so it is taken out of all collections.
"""

from __future__ import annotations

import gc
import sys

_DAEMON = "pyspark.daemon"


def spare_collections() -> None:
    """Once per process, and only in processes that Spark's daemon has forked."""
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name == _DAEMON and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
