"""What HELLO says of whatever decides numbers."""

import pytest

from daemons.worker import versions


def test_the_attention_backend_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(versions.ATTENTION, raising=False)
    assert versions.installed_versions().numbers["attention_backend"] == "native"
    monkeypatch.setenv(versions.ATTENTION, "_native_math")
    assert versions.installed_versions().numbers["attention_backend"] == "_native_math"


def test_without_diffusers_there_is_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda name: None)
    assert versions.installed_versions().numbers == {}
