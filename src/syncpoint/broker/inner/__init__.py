"""Inner consumers: what the service consumes itself, to push, forward or export it, by one machine."""
