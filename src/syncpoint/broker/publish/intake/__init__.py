"""Intake: the way of a publish into the log, from a client, another process, or a schedule."""
