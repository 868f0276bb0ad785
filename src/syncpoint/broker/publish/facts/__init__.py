"""Facts: what one log remembers of its messages, and how that looks in the log."""
