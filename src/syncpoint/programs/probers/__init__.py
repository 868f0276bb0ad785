"""Probers: clients that try the service again and again, and thirty metrics that say if it did as it should."""
