"""Grants: which subscribe forwarder delivers which source of a chain."""
