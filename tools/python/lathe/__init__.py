# SPDX-License-Identifier: Apache-2.0
"""Lathe from Python: liblathe through ctypes, nothing else. lathe.h is the reference; names are its names.

    with lathe.Engine("tiny", serving={"requests": 1, "q": 1}) as engine:
        if reason := engine.unsupported():
            raise SystemExit(reason)
        engine.build("calm:3")
        engine.write("tokens", array.array("i", [7]))
        ...
        engine.run(engine.plan(requests=1, q=1, longest=1))
        engine.finish()
        tokens = engine.read("next_tokens")

A call that fails raises lathe.Error with the library's message; a number that its C type does not hold OverflowError, text
with a NUL ValueError.
"""

from ._library import Error, Status
from .engine import Array, Engine, Group, Info, Meeting, Plan

__version__ = "0.1"
__all__ = ["Array", "Engine", "Error", "Group", "Info", "Meeting", "Plan", "Status"]
