"""Auto-forward: a subscription whose messages are published to another topic."""
