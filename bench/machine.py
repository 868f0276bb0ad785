"""What the figures depend on besides the server: the machine, its disk right now, and who else is using it.

Beside every figure, never on a message's path. Promises: nothing here changes the machine; the disk probe writes only
below the folder it is given and removes what it wrote. Leaves the judging to the reader: it rejects nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PROBE_BYTES = 4096
_PROBE_FILE_BYTES = 8 << 20


def describe(folder: Path) -> dict[str, str]:
    """Names the machine: processor, cores, memory, kernel, Python, file system of `folder`, and the code's commit."""
    models = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": models[0] if models else "?",
        "cores": str(os.cpu_count()),
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "disk": _file_system(folder),
        "commit": _commit(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _file_system(folder: Path) -> str:
    best = ("", "?", "?")
    for line in _lines("/proc/mounts"):
        device, point, kind = line.split()[:3]
        if str(folder.resolve()).startswith(point) and len(point) > len(best[0]):
            best = (point, device, kind)
    return f"{best[2]} on {best[1]}"


def _commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    return found.stdout.strip() or "?"


@dataclass
class DiskProbe:
    """Durations of 4 KiB pwrite + fdatasync on a pre-written file: the least a durable publish can cost here.

    Probes are short and repeated between the runs they are compared with, since a disk's tail changes by the minute.
    """

    folder: Path
    samples_ms: list[float] = field(default_factory=list)

    def run(self, seconds: float = 0.5, per_second: float = 0.0) -> None:
        """Probes for `seconds`, back to back or, with `per_second`, at that pace (an idle disk may answer later)."""
        path = self.folder / "disk-probe"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(fd, b"\xa5" * _PROBE_FILE_BYTES, 0)
            os.fsync(fd)
            page = os.urandom(_PROBE_BYTES)
            offset = 0
            due = time.monotonic()
            end = due + seconds
            while (begin := time.monotonic()) < end:
                os.pwrite(fd, page, offset)
                os.fdatasync(fd)
                self.samples_ms.append((time.monotonic() - begin) * 1e3)
                offset = (offset + _PROBE_BYTES) % _PROBE_FILE_BYTES
                if per_second:
                    due += 1 / per_second
                    time.sleep(max(0.0, due - time.monotonic()))
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)

    def percentile(self, share: float) -> float:
        """The duration in ms that `share` of all samples do not exceed; 0 without samples."""
        ordered = sorted(self.samples_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def report(self) -> dict[str, float]:
        """p50 and p99 in ms, and how many samples they come from."""
        return {
            "fdatasync_p50_ms": self.percentile(0.5),
            "fdatasync_p99_ms": self.percentile(0.99),
            "fdatasync_samples": float(len(self.samples_ms)),
        }


def busy_seconds() -> float:
    """Seconds of CPU spent by everybody since boot, all cores (of /proc/stat: resolution 10 ms, steal included)."""
    ticks = os.sysconf("SC_CLK_TCK")
    for line in _lines("/proc/stat"):
        if line.startswith("cpu "):
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(part) for part in line.split()[1:9])
            return (user + nice + system + irq + softirq + steal) / ticks
    return 0.0


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process: all its threads, ended ones too, to the nanosecond.

    This is the process CPU clock of clock_getcpuclockid(3); summing /proc/PID/task/*/schedstat gives the same for live
    threads but forgets ended ones, and utime + stime of /proc/PID/stat counts in ticks of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def memory_bytes(pid: int) -> dict[str, int]:
    """Resident memory of a process in bytes: `rss` now, `anonymous` of it, and `peak` since it started."""
    names = {"VmRSS": "rss", "RssAnon": "anonymous", "VmHWM": "peak"}
    found = dict.fromkeys(names.values(), 0)
    for line in _lines(f"/proc/{pid}/status"):
        key, _, rest = line.partition(":")
        if key in names:
            found[names[key]] = int(rest.split()[0]) * 1024
    return found


def private_bytes(pid: int) -> int:
    """Memory that a process shares with no other, in bytes."""
    fields = (line.split() for line in _lines(f"/proc/{pid}/smaps_rollup"))
    return sum(int(words[1]) * 1024 for words in fields if words[0] in ("Private_Clean:", "Private_Dirty:"))


def wake_ups(pid: int) -> int:
    """How often threads of a process that live now have gone to sleep by themselves so far."""
    lines = (line for task in os.listdir(f"/proc/{pid}/task") for line in _lines(f"/proc/{pid}/task/{task}/status"))
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
