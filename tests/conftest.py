import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that runs tests in the background has them, and all that they start, ignore Ctrl-C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Where no bytecode may be written, each of the hundreds of processes that are started here would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples every time, so that what passes here passes there; GROUPLEARN_EXPLORE=1 looks for new ones.
settings.register_profile("grouplearn", derandomize="GROUPLEARN_EXPLORE" not in os.environ, deadline=None)
settings.load_profile("grouplearn")


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test plans with the default coefficients, whatever was measured on the machine it runs on."""
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", str(tmp_path / "calibration.json"))
    monkeypatch.setenv("GROUPLEARN_CALIBRATE_RUNS", "off")
