"""Why a message could not be transformed."""

from __future__ import annotations


class TransformError(Exception):
    """A message cannot be transformed. The text is meant for users: it begins with which transform it was."""


class NotTried(TransformError):
    """Nothing is known against the message itself: those that came with it took the time or the room."""


class TryLater(NotTried):
    """Those that came with it took the time, which on a machine with less to do they might not have; or nothing can be
    signed for the moment."""


class SandboxUnavailable(Exception):
    """No process that runs functions can be started."""
