"""Types of blocks.py; the rest is for the kernel alone."""

NEVER: int
