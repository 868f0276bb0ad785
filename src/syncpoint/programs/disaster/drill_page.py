"""The certificate of a drill as a page that people read.

Place: under `syncpoint drill`; the same facts as the record in the admin API.
"""

from __future__ import annotations

from typing import Any

from syncpoint.base.model.wording import lasting


def rto_ms(certificate: Any) -> int:
    """The longest time without a publish or a message received."""
    return int(max(certificate.publish_gap_ms, certificate.receive_gap_ms))


def certificate_page(one: Any) -> str:
    """Markdown."""
    found = one.certificate
    ended = f"stopped: {one.reason}" if one.reason else "ended as planned"
    lines = [
        f"# Drill {one.drill}",
        "",
        f"{one.kind} of {one.target}, in {one.project}, {one.start_time.ToJsonString()} to"
        f" {one.end_time.ToJsonString()}: {ended}.",
        "",
    ]
    if not one.HasField("certificate"):
        return "\n".join([*lines, "Nothing was measured.", ""])
    copied = "not asked" if found.not_copied < 0 else f"{found.not_copied:,} messages"
    return "\n".join(
        [
            *lines,
            "| | |",
            "|---|---|",
            f"| RPO: confirmed messages that were lost | {found.lost:,} of {found.confirmed:,} |",
            f"| not copied to other sites when it began | {copied} |",
            f"| RTO: longest time without a publish or a message | {lasting(rto_ms(found) / 1000)} |",
            f"| without a publish that was answered | {lasting(found.publish_gap_ms / 1000)} |",
            f"| without a message received | {lasting(found.receive_gap_ms / 1000)} |",
            f"| received more than once | {found.twice:,} |",
            "",
            "Measured by a publisher and a receiver of the drill's own, from outside.",
            "",
        ]
    )
