"""When the clock says that a connection is not worth keeping."""

from __future__ import annotations

from syncpoint.wire.transport.limits import TransportLimits
from syncpoint.wire.transport.liveness import Liveness, Overdue

LIMITS = TransportLimits(frame_s=10.0, stall_s=20.0, keepalive_s=5.0, keepalive_answer_s=3.0)


def greeted(started_at: float = 0.0) -> Liveness:
    liveness = Liveness(LIMITS, 1.0, started_at)
    liveness.greeted = True
    return liveness


def overdue(liveness: Liveness, now: float, *, partial: bool = False, progressed: bool = False) -> str:
    late = liveness.overdue(now, partial=partial, progressed=progressed, full_since=None)
    return late.reason if late else ""


def test_a_greeting_must_come_in_time() -> None:
    liveness = Liveness(LIMITS, 1.0, 100.0)
    assert not overdue(liveness, 101.0)
    assert "handshake" in overdue(liveness, 101.1)


def test_a_frame_may_take_its_time_from_the_sweep_that_first_saw_it() -> None:
    liveness = greeted()
    assert not overdue(liveness, 5.0, partial=True, progressed=True)
    assert not overdue(liveness, 15.0, partial=True)
    assert "frame" in overdue(liveness, 15.1, partial=True)


def test_another_frame_begins_the_time_anew() -> None:
    liveness = greeted()
    overdue(liveness, 5.0, partial=True)
    assert not overdue(liveness, 14.0, partial=True, progressed=True)
    assert not overdue(liveness, 24.0, partial=True)
    assert not overdue(liveness, 25.0)
    assert not overdue(liveness, 26.0, partial=True)


def test_a_full_socket_is_cut_off() -> None:
    assert greeted().overdue(30.0, partial=False, progressed=False, full_since=10.0) is None
    late = greeted().overdue(30.1, partial=False, progressed=False, full_since=10.0)
    assert late is not None
    assert late.abort


def test_silence_is_asked_once_and_then_ends_the_connection() -> None:
    liveness = greeted()
    assert liveness.keep_alive(4.0, received=False) is False
    assert liveness.keep_alive(5.0, received=False) is True
    assert liveness.keep_alive(7.0, received=False) is False
    assert isinstance(liveness.keep_alive(8.0, received=False), Overdue)


def test_an_answer_ends_the_silence() -> None:
    liveness = greeted()
    assert liveness.keep_alive(5.0, received=False) is True
    assert liveness.keep_alive(6.0, received=True) is False
    assert liveness.keep_alive(10.9, received=False) is False
    assert liveness.keep_alive(11.0, received=False) is True
