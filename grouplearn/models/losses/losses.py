"""The losses of linear models: those that the modules of this folder declare, one in each."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from grouplearn.models.losses.loss import Loss

_MODULES = sorted(each.name for each in pkgutil.iter_modules([str(Path(__file__).parent)]))
LOSSES: tuple[Loss, ...] = tuple(
    declared
    for name in _MODULES
    if name != "losses"
    for declared in vars(importlib.import_module(f"grouplearn.models.losses.{name}")).values()
    if isinstance(declared, Loss)
)
