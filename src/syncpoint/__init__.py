"""Syncpoint: a self-hosted messaging service that speaks the Google Cloud Pub/Sub API.

The package is a house of rooms, one sub-package each; a room imports only the rooms below it. This module itself holds
nothing but the version, so that importing any room stays cheap.
"""

__version__ = "0.1.0"
