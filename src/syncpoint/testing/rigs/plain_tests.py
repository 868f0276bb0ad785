"""Coroutine functions as plain tests: what runs them makes what they are given, on a loop of its own.

Place: beside the harnesses, which offer decorators made here. Promise: pytest sees a plain function that takes the
keyword-only arguments of the test and of what runs it, and nothing else. Leaves to the runner: the loop, and its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any

Work = Callable[..., Coroutine[Any, Any, None]]


def plain_test(run: Callable[..., object], *args: Any, **named: Any) -> Callable[[Work], Callable[..., None]]:
    """A decorator: `run(work, *args, **named)` is the test; keyword-only arguments of both come from pytest."""
    for_run = _from_pytest(run, named)

    def decorate(work: Work) -> Callable[..., None]:
        for_work = _from_pytest(work, {})

        @wraps(work)
        def test(**given: Any) -> None:
            bound = partial(work, **{name: given[name] for name in for_work})
            run(bound, *args, **named, **{name: given[name] for name in for_run})

        test.__signature__ = Signature(list((for_run | for_work).values()))  # type: ignore[attr-defined]
        return test

    return decorate


def _from_pytest(function: Callable[..., object], known: dict[str, Any]) -> dict[str, Parameter]:
    """The keyword-only arguments that have no value yet."""
    found = signature(function).parameters
    return {
        name: one
        for name, one in found.items()
        if one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty and name not in known
    }


on_loop = plain_test(lambda work: asyncio.run(work()))
"""A decorator: a coroutine function without arguments of its own as a plain test, on a loop of asyncio."""
