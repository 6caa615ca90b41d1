"""An environment is made once, by whoever is first; where it cannot be made, that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guests import hosting
from tests.guests.hosting import guest

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for guests, from which nothing outside can be reached."""
    monkeypatch.setattr(hosting, "HERE", tmp_path)
    monkeypatch.setattr(hosting, "ROOT", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PLAIT_REQUIRE_GUESTS", raising=False)
    (tmp_path / "echo.py").write_text(
        "import json, sys; print(json.dumps([sys.prefix, json.load(sys.stdin)]))"
    )
    return tmp_path


def test_a_guest_that_cannot_be_had_is_skipped_or_missed(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house / "nobody.txt").write_text("no-such-guest==1.0\n")
    with pytest.raises(pytest.skip.Exception, match=r"nobody cannot be installed: .*no-such-guest"):
        guest("nobody", "echo.py", 1)
    monkeypatch.setenv("PLAIT_REQUIRE_GUESTS", "1")
    with pytest.raises(AssertionError, match="nobody is required here"):
        guest("nobody", "echo.py", 1)
    assert not (house / ".venv-guests" / "nobody" / "ready").exists()


def test_an_environment_is_made_once_and_anew_for_other_requirements(house: Path) -> None:
    (house / "somebody.txt").write_text("# nothing\n")
    home = house / ".venv-guests" / "somebody"
    assert guest("somebody", "echo.py", {"a": 1}) == [str(home), {"a": 1}]
    made = (home / "pyvenv.cfg").stat().st_mtime_ns
    hosting._python.cache_clear()  # pyright: ignore[reportPrivateUsage]  as in another process
    guest("somebody", "echo.py", 2)
    assert (home / "pyvenv.cfg").stat().st_mtime_ns == made
    (house / "somebody.txt").write_text("# other\n")
    hosting._python.cache_clear()  # pyright: ignore[reportPrivateUsage]
    guest("somebody", "echo.py", 3)
    assert (home / "pyvenv.cfg").stat().st_mtime_ns != made
