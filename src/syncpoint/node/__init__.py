"""Composition: settings and parts become one running process. Nothing is decided here; the rooms below do that."""
