"""Disks of other processes: served over TCP (`server`), used like local ones (`files`). Read `DESIGN.md` first."""
