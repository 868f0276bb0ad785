"""Values a user chooses, and what they mean when nothing was chosen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from syncpoint.log.storage.settings import Durability, StorageSettings
from syncpoint.node.settings import ServeSettings


def test_without_disks_there_is_one_inside_the_data_folder() -> None:
    assert ServeSettings(data=Path("/d")).disk_folders == (Path("/d/disk-1"),)
    disks = (Path("/a"), Path("/b"), Path("/c"))
    assert ServeSettings(data=Path("/d"), disks=disks).disk_folders == disks


def test_the_defaults_are_careful() -> None:
    settings = ServeSettings()
    assert (settings.host, settings.port, settings.durability) == ("127.0.0.1", 8085, "sync")
    assert settings.tls_cert is None
    assert settings.storage.durability is Durability.SYNC


def test_settings_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServeSettings().port = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="never"):
        StorageSettings(durability="never")
