"""Families of the process itself: time, memory, files, threads, garbage, and how late the event loop is.

Place: in every process, whatever its roles.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import threading
from collections.abc import Mapping
from typing import Final

from prometheus_client.process_collector import ProcessCollector

from syncpoint import __version__
from syncpoint.base.model.histogram import Histogram
from syncpoint.base.runtime.clock import until_beat
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples

LOOK_S: Final = 0.5
_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
FAMILIES: Final = (
    Family("process_cpu_seconds_total", _C, "seconds", (), "CPU time of the process, in user and system mode."),
    Family("process_resident_memory_bytes", _G, "bytes", (), "Memory in use."),
    Family("process_virtual_memory_bytes", _G, "bytes", (), "Address space in use."),
    Family("process_start_time_seconds", _G, "seconds", (), "Start time of the process, in Unix time."),
    Family("process_open_fds", _G, "", (), "Open files and sockets."),
    Family("process_max_fds", _G, "", (), "Limit on open files and sockets."),
    Family(
        "syncpoint_process_info",
        _G,
        "",
        ("version", "name", "roles"),
        "Always 1; the labels name the version, process and roles.",
    ),
    Family("syncpoint_process_cpu_seconds_total", _C, "seconds", ("mode",), "CPU time, user or system."),
    Family("syncpoint_process_peak_memory_bytes", _G, "bytes", (), "Peak memory use."),
    Family("syncpoint_process_switches_total", _C, "", ("kind",), "Context switches: voluntary (waited) or preempted."),
    Family("syncpoint_process_page_faults_total", _C, "", ("kind",), "Page faults: minor, or major (read from disk)."),
    Family("syncpoint_process_threads", _G, "", (), "Python threads."),
    Family("syncpoint_process_uptime_seconds", _G, "seconds", (), "Time since the process became ready."),
    Family("syncpoint_gc_collections_total", _C, "", ("generation",), "Garbage collections."),
    Family("syncpoint_gc_collected_total", _C, "", ("generation",), "Objects freed by garbage collections."),
    Family("syncpoint_loop_lag_seconds", _H, "seconds", (), "Delay of the event loop, sampled twice a second."),
    Family("syncpoint_loop_tasks", _G, "", (), "Event loop tasks."),
)


class ProcessRoom(QuickCollector):
    """`name_of_process`: as in the cluster's file; `roles`: what it does. Needs `start` for the lag."""

    name = "process"

    def __init__(self, name_of_process: str, roles: tuple[str, ...]) -> None:
        self._labels = (__version__, name_of_process, ",".join(roles))
        self._standard = ProcessCollector(registry=None)
        self.lag = Histogram()
        self._tasks = Tasks()
        self._began = 0.0

    def start(self) -> None:
        """Begin to measure how late the event loop is."""
        self._began = asyncio.get_running_loop().time()
        self._tasks.start(self._measure())

    async def stop(self) -> None:
        """Do not any more."""
        await self._tasks.stop()

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            pause_s = until_beat(loop.time(), LOOK_S)
            due = loop.time() + pause_s
            await asyncio.sleep(pause_s)
            self.lag.note(max(0.0, loop.time() - due))

    def collect(self, samples: Samples) -> None:
        for family in self._standard.collect():
            for one in family.samples:
                samples.put(one.name, one.value)
        used = resource.getrusage(resource.RUSAGE_SELF)
        samples.put("syncpoint_process_info", 1, *self._labels)
        by_label: Mapping[str, Mapping[str, float]] = {
            "syncpoint_process_cpu_seconds_total": {"user": used.ru_utime, "system": used.ru_stime},
            "syncpoint_process_switches_total": {"waited": used.ru_nvcsw, "preempted": used.ru_nivcsw},
            "syncpoint_process_page_faults_total": {"minor": used.ru_minflt, "major": used.ru_majflt},
        }
        for name, values in by_label.items():
            for label, value in values.items():
                samples.put(name, value, label)
        samples.put("syncpoint_process_peak_memory_bytes", used.ru_maxrss * 1024)
        samples.put("syncpoint_process_threads", threading.active_count())
        loop = asyncio.get_running_loop()
        samples.put("syncpoint_process_uptime_seconds", loop.time() - self._began)
        for generation, found in enumerate(gc.get_stats()):
            samples.put("syncpoint_gc_collections_total", found["collections"], str(generation))
            samples.put("syncpoint_gc_collected_total", found["collected"], str(generation))
        samples.put_histogram("syncpoint_loop_lag_seconds", self.lag)
        samples.put("syncpoint_loop_tasks", len(asyncio.all_tasks(loop)))
