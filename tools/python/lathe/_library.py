# SPDX-License-Identifier: Apache-2.0
"""lathe.h for ctypes: its structs in its order, its calls, and statuses as exceptions."""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
import operator
import os
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

DIMS = 8
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_int, c_int)
ALLOCATE = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)


class Status(enum.IntEnum):
    OK = 0
    INVALID = 1
    UNSUPPORTED = 2
    NO_MEMORY = 3
    NO_DEVICE = 4
    COMPILE = 5
    IO = 6
    DEVICE_FAULT = 7
    PEER_LOST = 8
    DISAGREE = 9


class Error(Exception):
    """What the library said; `status` is its lathe_status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = Status(status)


_RANGES = {kind: (-(1 << 8 * ctypes.sizeof(kind) - 1), (1 << 8 * ctypes.sizeof(kind) - 1) - 1) for kind in (c_int, c_int64)}
_RANGES.update({kind: (0, (1 << 8 * ctypes.sizeof(kind)) - 1) for kind in (c_size_t, c_uint64)})
_ADDRESSES = _RANGES[c_size_t]


def checked(kind: Any, value: Any, name: str = "argument") -> Any:
    """`value` as a field or an argument of that C type: ctypes would cut an integer to its low bits, and text at a NUL.
    Raises OverflowError, ValueError or TypeError."""
    if kind in _RANGES or (kind is c_void_p and isinstance(value, int)):
        value, (least, most) = operator.index(value), _RANGES.get(kind, _ADDRESSES)
        if not least <= value <= most:
            raise OverflowError(f"{name}: found {value}, allowed: {least} to {most}")
    elif kind is c_char_p and value is not None:
        value = os.fsencode(value)
        if b"\0" in value:
            raise ValueError(f"{name}: found a NUL in {value!r}")
    return value


def filled(struct: Any, **fields: Any) -> Any:
    """A struct with its size and these fields, each checked."""
    kinds = dict(struct._fields_)
    return struct(size=ctypes.sizeof(struct), **{name: checked(kinds[name], value, name) for name, value in fields.items()})


class Serving(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("architecture", c_char_p), ("dense_layers", c_int64), ("shared_experts", c_int64),
        ("expert_groups", c_int64), ("routing", c_char_p), ("route_scale", c_double), ("rope_theta", c_double),
        ("rope_type", c_char_p), ("swiglu_limit", c_double), ("swiglu_alpha", c_double), ("swiglu_beta", c_double),
        ("norm_size", c_int64), ("attention_temperature", c_bool), ("kv_sharing", c_bool), ("fp32_router_input", c_bool),
        ("requests", c_int64), ("q", c_int64), ("max_context", c_int64), ("kv_dtype", c_char_p), ("kv_layout", c_char_p),
        ("kv_page_tokens", c_int64), ("tensor_parallel", c_int64), ("data_parallel", c_int64),
        ("pipeline_parallel", c_int64), ("context_parallel", c_int64), ("sequence_parallel", c_bool),
        ("moe_backend", c_char_p), ("expert_load_balancing", c_bool), ("routed_expert_capture", c_bool), ("lora", c_bool),
        ("unreduced_output", c_bool),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("directory", c_char_p), ("device", c_int), ("ordinal", c_int), ("rank", c_int),
        ("seed", c_uint64), ("cache", c_char_p), ("nvrtc", c_char_p), ("jobs", c_int), ("kv_pages", c_int64),
        ("allow_spills", c_bool), ("no_graphs", c_bool), ("log", LOG), ("log_context", c_void_p), ("group", c_void_p),
        ("timeout_ns", c_uint64), ("serving", POINTER(Serving)), ("external_caches", c_bool), ("stream", c_void_p),
        ("allocate", ALLOCATE), ("release", RELEASE), ("allocator_context", c_void_p), ("no_probe", c_bool),
        ("loopback", c_bool),
    ]


class Batch(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("requests", c_int64), ("q", c_int64), ("longest", c_int64), ("table_width", c_int64),
                ("page_tokens", c_int64)]


class StepPlan(ctypes.Structure):
    _fields_ = [("variant", c_int), ("requests", c_int64), ("q", c_int64), ("rows", c_int64), ("ticket", c_uint64)]


class ArrayStruct(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("layer", c_int), ("dtype", c_char_p), ("rank", c_int),
                ("shape", c_int64 * DIMS), ("strides", c_int64 * DIMS), ("data", c_void_p)]


class InfoStruct(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("layout", c_char_p), ("deployment", c_char_p), ("arch", c_char_p),
                ("tensor_parallel", c_int), ("rank", c_int), ("max_context", c_int64), ("page_tokens", c_int64),
                ("max_rows", c_int64), ("max_requests", c_int64), ("layers", c_int), ("variants", c_int), ("groups", c_int),
                ("arrays", c_int)]


STRUCTS = {"lathe_serving": Serving, "lathe_options": Options, "lathe_batch": Batch, "lathe_step_plan": StepPlan,
           "lathe_array": ArrayStruct, "lathe_info": InfoStruct}

# name: (result, arguments); a result of "status" is checked.
_text = [c_void_p, c_size_t]  # the caller's buffer
CALLS: dict[str, tuple[Any, list[Any]]] = {
    "lathe_create": (c_int, [POINTER(Options), POINTER(c_void_p), *_text]),
    "lathe_destroy": (None, [c_void_p]),
    "lathe_message": (c_char_p, [c_void_p]),
    "lathe_unsupported": (c_char_p, [c_void_p]),
    "lathe_build": (c_int, [c_void_p, c_void_p]),
    "lathe_plan": (c_int, [c_void_p, POINTER(Batch), POINTER(StepPlan)]),
    "lathe_run": (c_int, [c_void_p, POINTER(StepPlan)]),
    "lathe_enqueue": (c_int, [c_void_p, POINTER(StepPlan)]),
    "lathe_finish": (c_int, [c_void_p]),
    "lathe_rejoin": (c_int, [c_void_p]),
    "lathe_describe": (c_int, [c_void_p, POINTER(InfoStruct)]),
    "lathe_describe_variant": (c_int, [c_void_p, c_int, POINTER(c_int64), POINTER(c_int64)]),
    "lathe_describe_group": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(c_int64), POINTER(c_int64)]),
    "lathe_describe_array": (c_int, [c_void_p, c_int, POINTER(ArrayStruct), POINTER(c_int)]),
    "lathe_find": (c_int, [c_void_p, c_char_p, c_int, POINTER(ArrayStruct)]),
    "lathe_read": (c_int, [c_void_p, c_char_p, c_int, c_size_t, c_void_p, c_size_t]),
    "lathe_write": (c_int, [c_void_p, c_char_p, c_int, c_size_t, c_void_p, c_size_t]),
    "lathe_bind_weights": (c_int, [c_void_p, POINTER(ArrayStruct), c_int]),
    "lathe_bind_caches": (c_int, [c_void_p, POINTER(ArrayStruct), c_int]),
    "lathe_checkpoint_open": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), *_text]),
    "lathe_checkpoint_source": (c_void_p, [c_void_p]),
    "lathe_checkpoint_close": (None, [c_void_p]),
    "lathe_meeting_create": (c_int, [c_int, c_uint64, POINTER(c_void_p)]),
    "lathe_meeting_destroy": (None, [c_void_p]),
    "lathe_group_join": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "lathe_group_file_create": (c_int, [c_char_p, c_int, c_int, c_uint64, POINTER(c_void_p), *_text]),
    "lathe_group_destroy": (None, [c_void_p]),
}

_loaded: ctypes.CDLL | None = None


def loaded() -> ctypes.CDLL:
    """liblathe: LATHE_LIBRARY, else what the loader finds. Raises OSError where it is not found."""
    global _loaded
    if _loaded is None:
        path = os.environ.get("LATHE_LIBRARY") or ctypes.util.find_library("lathe") or "liblathe.so.0"
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            raise OSError(f"{error}; the environment's LATHE_LIBRARY may name liblathe.so") from None
        for name, (result, arguments) in CALLS.items():
            call = getattr(loaded, name)
            call.restype, call.argtypes = result, arguments
        _loaded = loaded
    return _loaded


def call(name: str, *arguments: Any) -> Any:
    """A call of lathe.h, its arguments checked."""
    kinds = CALLS[name][1]
    return getattr(loaded(), name)(*(checked(kind, value, f"{name}, argument {i + 1}")
                                     for i, (kind, value) in enumerate(zip(kinds, arguments))))
