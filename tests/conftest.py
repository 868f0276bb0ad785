"""For all tests: what is there once they are collected stays, so no search for garbage walks through it again."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
