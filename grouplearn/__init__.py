"""One model per group, from SQL: in-database machine learning for DuckDB.

``grouplearn.connect(path)`` opens a PEP 249 connection that speaks DuckDB's SQL and ours. Everything here is loaded on
first use, so that importing the package is quick and loads no library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from grouplearn.forking import register as _register_forking

if TYPE_CHECKING:
    from grouplearn.errors import (
        AccessRefused,
        BindError,
        Cancelled,
        DatabaseError,
        DataError,
        Error,
        IntegrityError,
        InterfaceError,
        InternalError,
        MissingDependency,
        ModelExists,
        NotSupportedError,
        NotSupportedHere,
        NotTrusted,
        OperationalError,
        OtherVersion,
        OutOfMemory,
        ParseError,
        ProgrammingError,
        ReadOnlyError,
        TrainingError,
        Warning,
    )
    from grouplearn.frontends.notebook.magics import load_ipython_extension, unload_ipython_extension
    from grouplearn.frontends.python.dbapi import Connection, connect, model
    from grouplearn.frontends.python.learners import register_learner, unregister
    from grouplearn.frontends.python.model import Model
    from grouplearn.frontends.python.networks import register
    from grouplearn.frontends.python.pep249 import (
        BINARY,
        DATETIME,
        NUMBER,
        ROWID,
        STRING,
        Binary,
        Date,
        DateFromTicks,
        Time,
        TimeFromTicks,
        Timestamp,
        TimestampFromTicks,
    )

    __version__: str

_register_forking()

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "AccessRefused",
    "Binary",
    "BindError",
    "Cancelled",
    "Connection",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "MissingDependency",
    "Model",
    "ModelExists",
    "NotSupportedError",
    "NotSupportedHere",
    "NotTrusted",
    "OperationalError",
    "OtherVersion",
    "OutOfMemory",
    "ParseError",
    "ProgrammingError",
    "ReadOnlyError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TrainingError",
    "Warning",
    "__version__",
    "apilevel",
    "connect",
    "load_ipython_extension",
    "model",
    "paramstyle",
    "register",
    "register_learner",
    "threadsafety",
    "unload_ipython_extension",
    "unregister",
]

_HOME = {
    "Connection": "grouplearn.frontends.python.dbapi",
    "connect": "grouplearn.frontends.python.dbapi",
    "load_ipython_extension": "grouplearn.frontends.notebook.magics",
    "unload_ipython_extension": "grouplearn.frontends.notebook.magics",
    "Model": "grouplearn.frontends.python.model",
    "model": "grouplearn.frontends.python.dbapi",
    "register": "grouplearn.frontends.python.networks",
    "register_learner": "grouplearn.frontends.python.learners",
    "unregister": "grouplearn.frontends.python.learners",
    "BINARY": "grouplearn.frontends.python.pep249",
    "Binary": "grouplearn.frontends.python.pep249",
    "DATETIME": "grouplearn.frontends.python.pep249",
    "Date": "grouplearn.frontends.python.pep249",
    "DateFromTicks": "grouplearn.frontends.python.pep249",
    "NUMBER": "grouplearn.frontends.python.pep249",
    "ROWID": "grouplearn.frontends.python.pep249",
    "STRING": "grouplearn.frontends.python.pep249",
    "Time": "grouplearn.frontends.python.pep249",
    "TimeFromTicks": "grouplearn.frontends.python.pep249",
    "Timestamp": "grouplearn.frontends.python.pep249",
    "TimestampFromTicks": "grouplearn.frontends.python.pep249",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("grouplearn")
    elif name in __all__:
        value = getattr(importlib.import_module(_HOME.get(name, "grouplearn.errors")), name)
    else:
        raise AttributeError(f"module 'grouplearn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
