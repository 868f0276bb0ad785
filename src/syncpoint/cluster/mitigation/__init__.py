"""Mitigation: a sick process is drained before clients notice it, and put back once it has been well for a while.

Place: runs in the router that leads. `health_reports` is what processes report, `trouble` says what is wrong with which
of them, `sickness` counts it, `zones` knows who was there, `drain_budget` limits how many may be drained, `mitigator`
decides, `mitigation_driver` reads the metadata and acts by `control.operations`.
Promise: only what mitigation has drained is put back by it; nothing is drained beyond the budget, and never the last of
a role. Of two routers that believe they lead, the second one's change is refused (`control.operations`), and both find
in the stored drains what was done. Leaves to operators: `syncpoint mitigation`, and every drain of their own.
"""
