"""The file of measured coefficients: one JSON file per user and machine, for all databases.

A calibration says how fast this machine is. A database moves to other machines, may be read-only, and rolls back; so the
file is ``$XDG_CACHE_HOME/grouplearn/calibration.json`` (default ``~/.cache``), or the path in ``GROUPLEARN_CALIBRATION``.
If it is lost, CALIBRATE measures again. CALIBRATE, EXPLAIN ANALYZE and every longer TRAIN write to it; TRAIN does not if
``GROUPLEARN_CALIBRATE_RUNS`` is ``off``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from grouplearn.bind.sql.external_access import ExternalAccess
from grouplearn.data.files.own_files import PRIVATE, plain_file, replace_file
from grouplearn.failures import NotMeasured
from grouplearn.learners.contract.cost import UNKNOWN, Coefficients
from grouplearn.plan.cost.coefficients import Machine, Rates, default, of_runs
from grouplearn.plan.explain.measured import Measured, MeasuredUnit, asked_for
from grouplearn.plan.operator_choice import Choice
from grouplearn.plan.physical import PhysicalPlan

#: Coefficients of an earlier version belong to another cost model and are ignored.
_VERSION = 3
#: How many of a learner's latest runs are kept.
MOST_RUNS = 8


def path() -> Path:
    """Return the file of this user and machine."""
    named = os.environ.get("GROUPLEARN_CALIBRATION")
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # Path.expanduser raises for an unknown user; this leaves the name as it is.
    return Path(os.path.expanduser(named or os.path.join(cache, "grouplearn", "calibration.json")))


def load(outside: ExternalAccess | None = None) -> Rates:
    """Return the stored coefficients; defaults where there are none or where the file is ``outside`` of what may be read.

    Raises NotMeasured for a file that is not ours.
    """
    document = _read() if closed(outside) is None else _empty()
    learners, dates, runs = {}, {}, {}
    for name, stored in document["learners"].items():
        known = {field.name: stored[field.name] for field in fields(Coefficients) if field.name in stored}
        learners[name] = replace(default(name), **known)
        if "measured" in stored:
            dates[name] = stored["measured"]
        runs[name] = tuple(stored.get("runs", ()))
    return Rates(learners, replace(Machine(), **document["machine"]), dates, runs)


def closed(outside: ExternalAccess | None) -> str | None:
    """Return why the file may not be used, None if it may."""
    return None if outside is None else outside.refusal(path().parent)


def store_learner(name: str, measured: Coefficients, date: str) -> None:
    """Store the coefficients of a learner, measured on ``date``, and drop the correction of older ones."""
    document = _read()
    document["learners"][name] = {**asdict(replace(measured, correction=1.0)), "measured": date}
    _write(document)


def store_correction(name: str, factor: float) -> None:
    """Store the correction that EXPLAIN ANALYZE measured, and drop those of earlier runs."""
    document = _read()
    document["learners"].setdefault(name, {}).update(correction=factor, runs=[factor])
    _write(document)


def note_run(
    physical: PhysicalPlan, choice: Choice, units: Mapping[int, MeasuredUnit], outside: ExternalAccess
) -> None:
    """Store the correction that follows from how a run's units ran, beside those of the latest runs.

    If the file cannot be written, the correction is lost, not the model. Two processes that write at the same time may lose
    one correction. Models do not depend on estimates, which only decide what runs where and when.
    """
    if os.environ.get("GROUPLEARN_CALIBRATE_RUNS") == "off":
        return
    factor, name = asked_for(physical, choice, units), physical.bound.learner.way
    if factor is None or closed(outside) is not None:
        return
    with suppress(NotMeasured):
        document = _read()
        stored = document["learners"].setdefault(name, {})
        runs = [*stored.get("runs", ()), factor][-MOST_RUNS:]
        stored.update(correction=of_runs(runs), runs=runs)
        _write(document)


def keep_correction(way: str, measured: Measured, outside: ExternalAccess) -> Measured:
    """Store what EXPLAIN ANALYZE measured; if the file cannot be written, the verdict says so and the model is kept."""
    if measured.ratio is None:
        return measured
    reason = closed(outside)
    if reason is not None:
        return replace(measured, verdict=f"{measured.verdict}: no, {reason}")
    try:
        store_correction(way, measured.known.correction)
    except NotMeasured as error:
        return replace(measured, verdict=f"{measured.verdict}: no, {error}")
    return measured


def store_machine(measured: Machine) -> None:
    """Keep the coefficients of the machine."""
    _write(_read() | {"machine": asdict(measured)})


def forget() -> bool:
    """Delete the file; return whether there was one."""
    there = path().exists()
    path().unlink(missing_ok=True)
    return there


def _read() -> dict[str, Any]:
    try:
        with plain_file(path()) as file:
            text = file.read()
    except FileNotFoundError:
        return _empty()
    except OSError as error:
        raise _unusable(error) from None
    try:
        return _checked(json.loads(text.decode()))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise _unusable(error) from None


def _empty() -> dict[str, Any]:
    return {"version": _VERSION, "machine": {}, "learners": {}}


def _checked(document: Any) -> dict[str, Any]:
    """Return the document if every number in it is usable; an empty one for an earlier version."""
    if document["version"] in range(1, _VERSION):
        return _empty()
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']}, not {_VERSION}")
    replace(Machine(), **document["machine"])
    numbers = list(document["machine"].values())
    for stored in document["learners"].values():
        names = {field.name for field in fields(Coefficients)}
        replace(UNKNOWN, **{name: value for name, value in stored.items() if name not in ("measured", "runs")})
        runs = stored.get("runs", [])
        if not all(isinstance(factor, int | float) and 0 < factor < float("inf") for factor in runs):
            raise ValueError("a correction that is not a number above 0")
        numbers += [value for name, value in stored.items() if name in names and value is not None]
    if not all(isinstance(number, int | float) and 0 <= number < float("inf") for number in numbers):
        raise ValueError("a coefficient that is not a number of at least 0")
    if not all(document["machine"].get(rate, 1) > 0 for rate in ("memory", "disk", "network")):
        raise ValueError("a bandwidth of 0")
    checked: dict[str, Any] = document
    return checked


def _write(document: dict[str, Any]) -> None:
    target = path()
    try:
        target.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        replace_file(target, f"{json.dumps(document, indent=2)}\n".encode())
    except OSError as error:
        message = f"the calibration cannot be stored in {target}: {error.strerror or error}"
        raise NotMeasured(message, hint="Name a file that can be written in GROUPLEARN_CALIBRATION.") from None


def _unusable(error: Exception) -> NotMeasured:
    message = f"the calibration in {path()} cannot be used: {error}"
    return NotMeasured(message, hint="RESET CALIBRATION removes it; CALIBRATE measures anew.")
