# SPDX-License-Identifier: Apache-2.0
"""An engine: one rank of a step. Methods are the calls of lathe.h; see there for what they promise."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Tuple, Union

from . import _library as c
from ._tensor import buffer_dtype, carries, place

_ROLES = ("weight", "prepared", "kv", "scratch", "persistent", "mailbox", "input", "output", "build")
_MESSAGE_BYTES = 65536  # room for a list of missing tensors

Key = Union[str, Tuple[str, int]]  # a name, or a name and a layer
Path = Union[str, bytes, "os.PathLike[str]"]
Plan = c.StepPlan


@dataclass(frozen=True)
class Array:
    """Memory of the step. `address` is 0 before build; `strides` in elements."""

    name: str
    layer: int  # -1: not per layer
    role: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int


@dataclass(frozen=True)
class Info:
    layout: str
    deployment: str
    arch: str
    tensor_parallel: int
    rank: int
    max_context: int
    page_tokens: int
    max_rows: int
    max_requests: int
    layers: int
    variants: tuple[tuple[int, int], ...]  # requests, q
    groups: dict[str, tuple[int, int]]  # name: window (0: all), pages of a table's row


def _make(status: int, message: Any) -> None:
    if status:
        raise c.Error(status, message.value.decode(errors="replace"))


class Group:
    """One rank's share of a meeting; the engine that takes it must be closed first."""

    def __init__(self, handle: c_void_p, meeting: Optional[Meeting] = None) -> None:
        self._handle, self._meeting, self._engines = handle, meeting, 0

    @classmethod
    def by_file(cls, path: Path, rank: int, world: int, timeout: float = 120.0) -> Group:
        """Ranks that are processes of one machine."""
        handle, message = c_void_p(), ctypes.create_string_buffer(_MESSAGE_BYTES)
        _make(c.call("lathe_group_file_create", path, rank, world, int(timeout * 1e9), byref(handle), message,
                                                  _MESSAGE_BYTES), message)
        return cls(handle)

    def close(self) -> None:
        if self._engines:
            raise c.Error(c.Status.INVALID, f"lathe_group_destroy: found {self._engines} engines open, allowed: none")
        if self._handle:
            c.call("lathe_group_destroy", self._handle)
            self._handle = c_void_p()
            if self._meeting:
                self._meeting._open -= 1

    def __del__(self) -> None:
        if not self._engines:
            self.close()


class Meeting:
    """Where the ranks of one process, a thread each, meet. Close it after their groups."""

    def __init__(self, world: int, timeout: float = 120.0) -> None:
        self._handle, self._open = c_void_p(), 0
        status = c.call("lathe_meeting_create", world, int(timeout * 1e9), byref(self._handle))
        if status:
            raise c.Error(status, f"no meeting of {world} ranks")

    def join(self, rank: int) -> Group:
        handle = c_void_p()
        if not self._handle:
            raise c.Error(c.Status.INVALID, "lathe_group_join: the meeting is closed")
        status = c.call("lathe_group_join", self._handle, rank, byref(handle))
        if status:
            raise c.Error(status, f"rank {rank} cannot join")
        self._open += 1
        return Group(handle, self)

    def close(self) -> None:
        if self._open:
            raise c.Error(c.Status.INVALID, f"lathe_meeting_destroy: found {self._open} groups open, allowed: none")
        c.call("lathe_meeting_destroy", self._handle)
        self._handle = c_void_p()


class Engine:
    def __init__(self, directory: Path, *, device: str = "host", ordinal: int = 0, rank: int = 0, seed: int = 0,
                 cache: Optional[Path] = None, nvrtc: Optional[Path] = None, jobs: int = 0, kv_pages: int = 0,
                 allow_spills: bool = False, no_graphs: bool = False, timeout: float = 0.0,
                 serving: Optional[Mapping[str, Any]] = None, external_caches: bool = False, stream: int = 0,
                 group: Optional[Group] = None, log: Optional[Callable[[str, str, int, int], None]] = None) -> None:
        """`serving`: fields of lathe_serving. `log(kind, text, done, total)`: kind is progress, note or warning."""
        self._handle = c_void_p()
        self._kept: dict[Any, Any] = {}  # what is bound, by name and layer
        if device not in ("host", "cuda"):
            raise ValueError(f"device: found {device}, allowed: host, cuda")
        if group and not group._handle:
            raise c.Error(c.Status.INVALID, "lathe_create: the group is closed")
        kinds = ("progress", "note", "warning")
        self._log = c.LOG(lambda _, kind, text, done, total: log(kinds[kind], text.decode(), done, total)) if log else c.LOG()
        self._group = group
        unknown = sorted(set(serving or {}) - {field[0] for field in c.Serving._fields_ if field[0] != "size"})
        if unknown:
            raise TypeError(f"serving: no field is called {', '.join(unknown)}")
        asked = c.filled(c.Serving, **(serving or {}))
        o = c.filled(c.Options, directory=directory, device=int(device == "cuda"), ordinal=ordinal, rank=rank, seed=seed,
                     cache=cache, nvrtc=nvrtc, jobs=jobs, kv_pages=kv_pages, allow_spills=allow_spills,
                     no_graphs=no_graphs, log=self._log, group=group._handle if group else None,
                     timeout_ns=int(timeout * 1e9), external_caches=external_caches, stream=stream or None)
        if serving is not None:
            o.serving = ctypes.pointer(asked)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        _make(c.call("lathe_create", byref(o), byref(self._handle), message, _MESSAGE_BYTES), message)
        if group:
            group._engines += 1

    # ---- life ----

    def close(self) -> None:
        if self._handle:
            c.call("lathe_destroy", self._handle)
            self._handle = c_void_p()
            self._kept.clear()
            if self._group:
                self._group._engines -= 1

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def _call(self, name: str, *arguments: Any) -> None:
        if not self._handle:
            raise c.Error(c.Status.INVALID, f"{name}: the engine is closed")
        status = c.call(name, self._handle, *arguments)
        if status:
            raise c.Error(status, c.call("lathe_message", self._handle).decode(errors="replace"))

    # ---- what the step is ----

    def unsupported(self) -> Optional[str]:
        """Why this deployment cannot serve here, or None."""
        if not self._handle:
            raise c.Error(c.Status.INVALID, "lathe_unsupported: the engine is closed")
        reason = c.call("lathe_unsupported", self._handle)
        return None if reason is None else reason.decode(errors="replace")

    def info(self) -> Info:
        raw = c.InfoStruct(size=ctypes.sizeof(c.InfoStruct))
        self._call("lathe_describe", byref(raw))
        variants, groups = [], {}
        name, a, b = c_char_p(), c_int64(), c_int64()
        for i in range(raw.variants):
            self._call("lathe_describe_variant", i, byref(a), byref(b))
            variants.append((a.value, b.value))
        for i in range(raw.groups):
            self._call("lathe_describe_group", i, byref(name), byref(a), byref(b))
            groups[(name.value or b"").decode()] = (a.value, b.value)
        return Info(raw.layout.decode(), raw.deployment.decode(), raw.arch.decode(), raw.tensor_parallel, raw.rank,
                    raw.max_context, raw.page_tokens, raw.max_rows, raw.max_requests, raw.layers, tuple(variants), groups)

    @staticmethod
    def _array(raw: Any, role: str) -> Array:
        return Array(raw.name.decode(), raw.layer, role, raw.dtype.decode(), tuple(raw.shape[:raw.rank]),
                     tuple(raw.strides[:raw.rank]), raw.data or 0)

    def arrays(self, role: Optional[str] = None) -> list[Array]:
        """All arrays of the step, or those of a role: weight, kv, input, output, ..."""
        if role not in (None, *_ROLES):
            raise ValueError(f"role: found {role}, allowed: {', '.join(_ROLES)}")
        info, found = c.InfoStruct(size=ctypes.sizeof(c.InfoStruct)), []
        self._call("lathe_describe", byref(info))
        for i in range(info.arrays):
            raw, number = c.ArrayStruct(), c_int()
            self._call("lathe_describe_array", i, byref(raw), byref(number))
            if role in (None, _ROLES[number.value]):
                found.append(self._array(raw, _ROLES[number.value]))
        return found

    def find(self, name: str, layer: int = -1) -> Array:
        raw = c.ArrayStruct()
        self._call("lathe_find", name, layer, byref(raw))
        return self._array(raw, "")

    # ---- memory of the caller's ----

    def _bind(self, call: str, role: str, tensors: Mapping[Key, Any]) -> None:
        wanted = {(a.name, a.layer): a.dtype for a in self.arrays(role)}
        structs, kept = (c.ArrayStruct * len(tensors))(), {}
        for i, (key, tensor) in enumerate(tensors.items()):
            name, layer = (key, -1) if isinstance(key, str) else key
            p = place(tensor)
            if role == "kv" and not p.writable:
                raise ValueError(f"{name}: a step writes caches, and this memory is read-only")
            rank = min(len(p.shape), c.DIMS)
            described = c.filled(c.ArrayStruct, name=name, layer=layer, rank=len(p.shape), data=p.address or None,
                                 dtype=carries(p.dtype, wanted.get((name, layer), "")))
            described.shape[:rank], described.strides[:rank] = p.shape[:rank], p.strides[:rank]
            structs[i] = described
            if 0 not in p.shape:  # an empty cache is ignored, and what was bound before stays
                kept[(name, layer)] = p.keep
        self._call(call, structs, len(tensors))
        self._kept.update(kept)

    def bind_weights(self, weights: Mapping[Key, Any]) -> None:
        """Before build. Tensors with data_ptr(), __array_interface__, DLPack or a writable buffer, kept alive here."""
        self._bind("lathe_bind_weights", "weight", weights)

    def bind_caches(self, caches: Mapping[Key, Any]) -> None:
        self._bind("lathe_bind_caches", "kv", caches)

    # ---- build and run ----

    def build(self, weights: Optional[Path] = None) -> None:
        """`weights`: a checkpoint's path, "calm:SEED", or None where all are bound."""
        if weights is None:
            self._call("lathe_build", None)
            return
        checkpoint, message = c_void_p(), ctypes.create_string_buffer(_MESSAGE_BYTES)
        _make(c.call("lathe_checkpoint_open", self._handle, weights, byref(checkpoint), message,
                                                  _MESSAGE_BYTES), message)
        try:
            self._call("lathe_build", c.call("lathe_checkpoint_source", checkpoint))
        finally:
            c.call("lathe_checkpoint_close", checkpoint)

    def plan(self, *, requests: int, q: int, longest: int, table_width: Optional[int] = None,
             page_tokens: Optional[int] = None) -> Plan:
        """`table_width`, `page_tokens`: those of the step unless the caller's differ."""
        info = self.info()
        width = max([pages for _, pages in info.groups.values()] or [0])
        batch = c.filled(c.Batch, requests=requests, q=q, longest=longest,
                         table_width=width if table_width is None else table_width,
                         page_tokens=info.page_tokens if page_tokens is None else page_tokens)
        plan = Plan()
        self._call("lathe_plan", byref(batch), byref(plan))
        return plan

    def run(self, plan: Plan) -> None:
        self._call("lathe_run", byref(plan))

    def enqueue(self, plan: Plan) -> None:
        self._call("lathe_enqueue", byref(plan))

    def finish(self) -> None:
        self._call("lathe_finish")

    def rejoin(self) -> None:
        self._call("lathe_rejoin")

    def write(self, name: str, data: Any, layer: int = -1, offset: int = 0) -> None:
        """`data`: bytes, or anything with a buffer, C order, whose elements are of the value's type; numpy arrays too."""
        view = memoryview(data)
        if view.format != "B" or view.itemsize != 1:
            found, wanted = buffer_dtype(view), self.find(name, layer).dtype
            if carries(found, wanted) != wanted:
                raise TypeError(f"{name}: dtype: found {found}, allowed {wanted}")
        view = view.cast("B")
        raw = (ctypes.c_char * view.nbytes).from_buffer_copy(view)
        self._call("lathe_write", name, layer, offset, raw, view.nbytes)

    def read(self, name: str, layer: int = -1, offset: int = 0, count: Optional[int] = None) -> memoryview:
        """`count` elements (default: all) from byte `offset`: i32, i64, f32, f64, u8, u32; bf16 as uint16, e4m3 as uint8.
        A view of fresh memory; numpy.asarray takes it as it is."""
        a = self.find(name, layer)
        item, code = {"bf16": (2, "H"), "f32": (4, "f"), "f64": (8, "d"), "i32": (4, "i"), "i64": (8, "q"), "u8": (1, "B"),
                      "u32": (4, "I"), "e4m3": (1, "B")}[a.dtype]
        if count is None:
            count = 1
            for n in a.shape:
                count *= n
        data = bytearray(count * item)
        raw = (ctypes.c_char * len(data)).from_buffer(data)
        self._call("lathe_read", name, layer, offset, raw, len(data))
        return memoryview(data).cast(code)
