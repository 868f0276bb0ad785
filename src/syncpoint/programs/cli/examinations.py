"""What `syncpoint doctor` examines: one function per question, each answering with findings.

Place: below the command `doctor`, beside a server.
Promises: nothing of a server's files is touched; a measuring file is removed again, also after an error; measuring
one disk takes at most `MEASURE_S_MAX` seconds and writes at most a few MiB.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syncpoint.base.model.wording import counted, lasting
from syncpoint.programs.cli.installed import folder_of
from syncpoint.programs.cli.serve import no_authority, unusable
from syncpoint.programs.cli.settings import ADDRESS_VARIABLES, Settings

MEASURE_S_MAX = 2.0
SYNCS = 200
BLOCK_BYTES = 16 * 1024
"""What a group commit of a few dozen small messages writes."""
FREE_BYTES_PROBLEM = 256 * 2**20
FREE_BYTES_WARNING = 2 * 2**30
SYNC_MS_WARNING = 20.0
SYNC_MS_UNBELIEVABLE = 0.02
OPEN_FILES_WARNING = 4_096


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    state: Literal["ok", "warning", "problem"]
    found: str
    advice: str = ""


def python_version(running: tuple[int, int, int] = sys.version_info[:3]) -> Finding:
    """Is this Python new enough?"""
    version = ".".join(map(str, running))
    if running < (3, 11):
        return Finding("Python", "problem", version, "Install Python 3.11 or newer and run `make setup` again.")
    return Finding("Python", "ok", f"{version} ({sys.executable})")


def kernel() -> Finding:
    """Does the per-message code run compiled?"""
    from syncpoint.base import kernel as room

    if room.COMPILED:
        folder = Path(room.__file__).parent
        if stale := _of_other_sources(folder):
            found = f"compiled from outdated sources: {', '.join(stale)}"
            return Finding("kernel", "problem", found, _again(folder))
        return Finding("kernel", "ok", "compiled")
    if os.environ.get("SYNCPOINT_PURE_KERNEL"):
        advice = "Unset SYNCPOINT_PURE_KERNEL."
    else:
        advice = "Install a C compiler and Python's headers (Debian: gcc python3-dev), then run `make setup`."
    return Finding("kernel", "warning", "runs uncompiled: correct, but several times slower", advice)


def _of_other_sources(folder: Path) -> list[str]:
    """Compiled modules whose source was changed after they were made. What they were made from they carry along: times
    of files say nothing where somebody copied them. One that carries nothing is not judged.
    """
    from syncpoint.base.kernel.build import MARK, mark_of

    compiled = {path.name.partition(".")[0]: path for path in folder.glob("*.so")}
    sources = ((name, folder / f"{name}.py", path) for name, path in sorted(compiled.items()))
    found = []
    for name, source, path in sources:
        made = path.read_bytes()
        if source.exists() and MARK in made and mark_of(source) not in made:
            found.append(name)
    return found


def _again(folder: Path) -> str:
    """How the kernel is made again: in a clone, or where pip installed it from."""
    clone = folder.parents[3]
    if (clone / "Makefile").exists():
        return f"Run `make setup` in {clone}."
    return f'Install it again: pip install --force-reinstall --no-deps "{folder_of()}"'


def event_loop() -> Finding:
    """Is the faster event loop there?"""
    try:
        version = importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        return Finding("event loop", "warning", "the asyncio default, slightly slower than uvloop", "Run `make setup`.")
    return Finding("event loop", "ok", f"uvloop {version}")


def open_files() -> Finding:
    """May a process open enough files for many clients and segments?"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_number(soft)} (can be raised to {_number(hard)})"
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_WARNING:
        advice = f"Each client uses one: `ulimit -n {_number(hard)}` before `syncpoint serve`."
        return Finding("open files", "warning", found, advice)
    return Finding("open files", "ok", found)


def writable(what: str, folder: Path) -> Finding:
    """Can files be made in a folder (or the folder itself, if it does not exist)?"""
    there = folder.exists()
    try:
        with _measuring_file(folder):
            pass
    except OSError as error:
        return Finding(what, "problem", f"{folder}: {error.strerror}", _advice(error, folder))
    return Finding(what, "ok", f"{folder}{'' if there else ' (will be created)'}")


def disk(folder: Path) -> list[Finding]:
    """Is a disk's folder writable, has it space, and how long does a sync take?"""
    access = writable("disk", folder)
    if access.state == "problem":
        return [access]
    return [access, _free(folder), _sync(folder)]


def disk_set(disks: tuple[Path, ...]) -> list[Finding]:
    """Do the disks together protect against the loss of one?"""
    findings = []
    if disks and len(disks) % 2 == 0:
        advice = "Give an odd number: 3 disks tolerate the loss of 1, 5 the loss of 2."
        findings.append(
            Finding("number of disks", "problem", f"{len(disks)}: an even number has no better majority", advice)
        )
    devices: dict[int, list[Path]] = {}
    for folder in disks:
        with contextlib.suppress(OSError):
            devices.setdefault(_existing(folder).stat().st_dev, []).append(folder)
    for shared in devices.values():
        if len(shared) > 1:
            found = f"{', '.join(map(str, shared))} are on one device"
            advice = "Fine for a trial; for safety put each folder on a separate device."
            findings.append(Finding("independence of disks", "warning", found, advice))
    return findings


def durability(chosen: str) -> Finding:
    """What a crash may cost with the chosen durability."""
    if chosen == "memory":
        advice = "Fine for tests; otherwise serve with --durability sync."
        return Finding("durability", "warning", "memory: all messages are lost when the server stops", advice)
    if chosen == "async":
        return Finding("durability", "ok", "async: a power failure may lose the most recent messages")
    return Finding("durability", "ok", "sync: every acknowledged publish is on disk")


def tls(cert: Path | None, key: Path | None, client_ca: Path | None = None) -> list[Finding]:
    """Can TLS be served with these files?"""
    if cert is None or key is None:
        if cert == key:
            return []
        return [Finding("TLS", "problem", "one file of two", "--tls-cert and --tls-key must be given together.")]
    if reason := unusable(cert, key):
        advice = "Both files must be in PEM form, and the key, without a password, that of the first certificate."
        return [Finding("TLS", "problem", f"{cert}, {key}: {reason}", advice)]
    if client_ca is not None and (reason := no_authority(client_ca)):
        return [Finding("TLS", "problem", f"{client_ca}: {reason}", "It must hold certificates in PEM form.")]
    return [Finding("TLS", "ok", f"{cert}, {key}")]


def port(settings: Settings, host: str, number: int) -> list[Finding]:
    """Is the port free, or does a server answer there? Port 0 is always free."""
    what = f"port {number}"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
            return [Finding(what, "ok", "free")]
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                advice = (
                    "Choose another --port; ports below 1024 need privileges."
                    if number < 1024
                    else "Choose another --host."
                )
                return [Finding(what, "problem", f"{host}: {error.strerror}", advice)]
    return _server(settings, "127.0.0.1" if host in ("0.0.0.0", "") else host, number)


def endpoint(settings: Settings, origin: str) -> list[Finding]:
    """What answers where every command calls."""
    where = settings.endpoint
    unset = {
        **{name: f"`unset {name}`" for name in ADDRESS_VARIABLES},
        "syncpoint config": "`syncpoint config unset endpoint`",
    }
    advice = "Start a server there"
    advice += f", or unset it: {unset[origin]}." if origin in unset else "."
    advice += " A server with TLS answers only with the right --tls-ca FILE."
    return _asked(settings, f"endpoint {where}", f"set by {origin}; no server answers", advice)


def _server(settings: Settings, host: str, number: int) -> list[Finding]:
    """What answers at a port that is taken, and how its disks are."""
    settings.endpoint_option = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
    advice = "Stop it, or choose another port: syncpoint serve --port 8086."
    advice += " A server that serves TLS answers only with the right --tls-ca FILE."
    return _asked(settings, f"port {number}", "taken, but no server answers", advice)


def _asked(settings: Settings, what: str, silent: str, advice: str) -> list[Finding]:
    from syncpoint.base.model.errors import SyncpointError
    from syncpoint.programs.cli.disks import DAMAGED_ADVICE, failed_advice
    from syncpoint.programs.cli.errors import Problem
    from syncpoint.wire.protobuf.messages import admin

    settings.timeout_option = settings.timeout_option or 5.0
    try:
        with settings.client(patience_s=0.0) as client:
            server = client.call("Admin.GetServer", admin.GetServerRequest())
            disks = client.call("Admin.ListDisks", admin.ListDisksRequest()).disks
    except Problem as error:
        return [Finding(what, "problem", error.message, error.advice)]
    except (SyncpointError, OSError) as error:
        return [Finding(what, "problem", f"{silent} ({error})", advice)]
    topics = counted(server.topics, "topic")
    shown = f"a server answers: version {server.version}, up {lasting(server.uptime.seconds)}, {topics}"
    findings = [Finding(what, "ok", shown)]
    for one in disks:
        if one.state == admin.Disk.DAMAGED:
            found = f"{one.path}: {counted(one.damaged, 'place')} damaged, {one.reason}"
            findings.append(Finding("server's disk", "problem", found, DAMAGED_ADVICE))
        elif one.state in (admin.Disk.FAILED, admin.Disk.AWAY):
            advice = failed_advice(disks)
            findings.append(Finding("server's disk", "problem", f"{one.path}: {one.reason}", advice))
        elif one.state == admin.Disk.UNKNOWN:
            advice = "No fault is known; check again with `syncpoint disks list` once all processes answer."
            findings.append(Finding("server's disk", "warning", f"{one.path}: unknown: {one.reason}", advice))
    if server.catalog_copy_error:
        advice = "Nothing is lost: the log is complete. Reduce the catalog or free disk space, then restart."
        findings.append(Finding("copy of the catalog", "warning", server.catalog_copy_error, advice))
    if not server.compiled_kernel:
        findings.append(Finding("server's kernel", "warning", "runs uncompiled", "Run `make setup`, then restart it."))
    return findings


def _free(folder: Path) -> Finding:
    status = os.statvfs(_existing(folder))
    free = status.f_bavail * status.f_frsize
    found = f"{free / 2**30:,.1f} GiB of {status.f_blocks * status.f_frsize / 2**30:,.1f} GiB"
    if free < FREE_BYTES_PROBLEM:
        return Finding("free space", "problem", found, "Free space; the server rejects publishes when a disk is full.")
    if free < FREE_BYTES_WARNING:
        return Finding("free space", "warning", found, "A backlog may fill this soon; free space.")
    return Finding("free space", "ok", found)


def _sync(folder: Path) -> Finding:
    """Times writes of one block, each followed by fdatasync, into space that was allocated before."""
    times_ms = []
    block = os.urandom(BLOCK_BYTES)
    try:
        with _measuring_file(folder) as file:
            for index in range(SYNCS):  # written once, as the server's segments are before they are used
                os.pwrite(file, block, index * BLOCK_BYTES)
            os.fsync(file)
            end = time.monotonic() + MEASURE_S_MAX
            for index in range(SYNCS):
                begun = time.perf_counter()
                os.pwrite(file, block, index * BLOCK_BYTES)
                os.fdatasync(file)
                times_ms.append((time.perf_counter() - begun) * 1e3)
                if time.monotonic() > end:
                    break
    except OSError as error:
        return Finding("sync", "problem", f"{folder}: {error.strerror}", _advice(error, folder))
    times_ms.sort()
    p50, p99 = times_ms[len(times_ms) // 2], times_ms[min(len(times_ms) - 1, len(times_ms) * 99 // 100)]
    found = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(times_ms)} syncs of {BLOCK_BYTES // 1024} KiB)"
    if p50 < SYNC_MS_UNBELIEVABLE:
        advice = "This is memory, not a disk: data here are lost when the machine stops. Fine for a trial."
        return Finding("sync", "warning", found, advice)
    if p50 > SYNC_MS_WARNING:
        advice = "Each publish waits at least this long: use an SSD, or --durability async if losing 1 s is acceptable."
        return Finding("sync", "warning", found, advice)
    return Finding("sync", "ok", found)


@contextlib.contextmanager
def _measuring_file(folder: Path) -> Iterator[int]:
    """An open file in a folder, or in the nearest folder above it that exists; it has no name and vanishes when
    closed."""
    with tempfile.TemporaryFile(dir=_existing(folder), prefix=".syncpoint-doctor-") as file:
        yield file.fileno()


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _advice(error: OSError, folder: Path) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Give this user the folder: sudo chown -R $(id -un) {folder}"
    if error.errno == errno.ENOSPC:
        return "The disk is full: free space."
    if error.errno == errno.EROFS:
        return "The disk is read-only: mount it for writing; after an error the system may have made it so (see dmesg)."
    if error.errno == errno.ENOTDIR:
        return "A file has this name; choose another folder."
    return "Choose another folder with --data or --disk."


def _number(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}"
