"""Commit: one write per turn, answered once it is persisted."""
