"""One log on M disks: entries go in, positions come out once they are safe, and nothing reported as safe is lost.

Start at `store` (the contract), then `DESIGN.md` beside this file; `docs/data-on-disk.md` draws the bytes.
"""
