from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test plans with the default coefficients, whatever was measured on the machine it runs on."""
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", str(tmp_path / "calibration.json"))
