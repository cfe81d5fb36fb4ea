# SPDX-License-Identifier: Apache-2.0
"""Where a tensor lies: from data_ptr() (PyTorch), __array_interface__ (numpy), DLPack, or a writable buffer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Sequence

_TORCH = {"torch.bfloat16": "bf16", "torch.float32": "f32", "torch.float64": "f64", "torch.int32": "i32",
          "torch.int64": "i64", "torch.uint8": "u8", "torch.uint16": "u16", "torch.uint32": "u32",
          "torch.float8_e4m3fn": "e4m3"}
_KINDS = {"f4": "f32", "f8": "f64", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16", "u4": "u32"}
_DLPACK = {(2, 32): "f32", (2, 64): "f64", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (1, 16): "u16", (1, 32): "u32",
           (4, 16): "bf16"}
_BITS = {"bf16": "u16", "e4m3": "u8"}  # what carries a type that numpy has not


@dataclass(frozen=True)
class Place:
    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    keep: Any  # what keeps the memory
    writable: bool = True


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _elements(strides: Sequence[int], size: int) -> tuple[int, ...]:
    """Of strides in bytes. Raises ValueError where an element does not begin at a multiple of its size."""
    if any(s % size for s in strides):
        raise ValueError(f"strides of {tuple(strides)} bytes are no multiples of the element's {size}")
    return tuple(s // size for s in strides)


def _from_dlpack(tensor: Any) -> Place:
    capsule = tensor.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    t = ctypes.cast(get(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    dtype = _DLPACK.get((t.code, t.bits)) if t.lanes == 1 else None
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else _dense(shape)
    # The capsule is not consumed: it gives the tensor back when it goes.
    return Place((t.data or 0) + t.byte_offset, dtype or f"DLPack {t.code}, {t.bits} bits", shape, strides, capsule)


def buffer_dtype(view: memoryview) -> str:
    kind = {"f": "f4", "d": "f8", "i": "i4", "l": f"i{view.itemsize}", "q": "i8", "B": "u1", "H": "u2", "I": "u4",
            "L": f"u{view.itemsize}"}.get(view.format.lstrip("<@="), view.format)
    return _KINDS.get(kind, kind)


def _from_buffer(buffer: Any) -> Place:
    view = memoryview(buffer)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if view.nbytes else 0
    return Place(address, buffer_dtype(view), view.shape or (), _elements(view.strides or (), view.itemsize), buffer)


def place(tensor: Any) -> Place:
    """Raises TypeError for what is no tensor, ValueError for one whose elements do not lie one element apart."""
    if hasattr(tensor, "data_ptr"):
        dtype = _TORCH.get(str(tensor.dtype), str(tensor.dtype))
        return Place(tensor.data_ptr(), dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor)
    if hasattr(tensor, "__array_interface__"):
        a = tensor.__array_interface__
        size = int(a["typestr"][2:])
        shape = tuple(a["shape"])
        strides = _elements(a["strides"], size) if a["strides"] else _dense(shape)
        foreign = a["typestr"][0] == ">"  # bytes in the other order
        dtype = a["typestr"] if foreign else _KINDS.get(a["typestr"][1:], a["typestr"])
        return Place(a["data"][0], dtype, shape, strides, tensor, writable=not a["data"][1])
    if hasattr(tensor, "__dlpack__"):
        return _from_dlpack(tensor)
    return _from_buffer(tensor)


def carries(found: str, wanted: str) -> str:
    """The dtype that `found` stands for where `wanted` is asked: bits of the same size, else itself."""
    return wanted if _BITS.get(wanted) == found else found
