"""The C library, by ctypes: types and functions of valkeyrdma.h 1.1, and the memory of Python's buffers."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint, c_uint32, c_uint64, c_void_p,
)

ERROR_MAX = 512
REGION_GET, REGION_SET = 1, 2
CHECK, NX, XX, KEEPTTL, ASKING = 1, 2, 4, 8, 16


class Item(Structure):
    _fields_ = [
        ("key", c_char_p),
        ("key_length", c_size_t),
        ("region", c_void_p),
        ("offset", c_size_t),
        ("length", c_size_t),
        ("reserved", c_uint64 * 2),
        ("result", c_int),
        ("checksum", c_uint32),
        ("value_length", c_uint64),
        ("error_text", c_char_p),
    ]


class PlacementOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("source_host", c_char_p),
        ("username", c_char_p),
        ("password", c_char_p),
        ("database", c_int),
        ("in_flight", c_uint),
        ("data", c_void_p),
    ]


class BatchOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("timeout_ms", c_int),
        ("flags", c_int),
        ("expire_ms", c_int64),
        ("data", c_void_p),
    ]


_SUBMIT = (c_void_p, [c_void_p, POINTER(Item), c_size_t, POINTER(BatchOptions)])
_FUNCTIONS = {
    "version": (c_char_p, []),
    "available": (c_int, [c_char_p, c_size_t]),
    "set": (c_int, [c_char_p, c_int64]),
    "context_new": (c_void_p, [c_char_p, c_size_t]),
    "context_free": (None, [c_void_p]),
    "context_fd": (c_int, [c_void_p]),
    "context_process": (c_int, [c_void_p]),
    "context_wait": (c_int, [c_void_p, c_int]),
    "context_wake": (None, [c_void_p]),
    "region_register": (c_void_p, [c_void_p, c_void_p, c_size_t, c_int, c_char_p, c_size_t]),
    "region_register_dmabuf": (c_void_p, [c_void_p, c_int, c_uint64, c_size_t, c_int, c_char_p, c_size_t]),
    "region_free": (None, [c_void_p]),
    "placement_new": (c_void_p, [c_void_p, c_char_p, c_int, POINTER(PlacementOptions), c_char_p, c_size_t]),
    "placement_connect": (c_int, [c_void_p, c_int]),
    "placement_state": (c_int, [c_void_p]),
    "placement_error_text": (c_char_p, [c_void_p]),
    "placement_free": (None, [c_void_p]),
    "placement_get": _SUBMIT,
    "placement_set": _SUBMIT,
    "placement_exists": _SUBMIT,
    "placement_delete": _SUBMIT,
    "batch_wait": (c_int, [c_void_p, c_int]),
    "batch_next": (c_void_p, [c_void_p]),
    "batch_cancel": (None, [c_void_p]),
    "batch_free": (None, [c_void_p]),
    "checksum": (c_uint32, [c_void_p, c_size_t]),
}


class _Library:
    """The functions of the library without their prefix. Loaded at the first use."""

    def __getattr__(self, name: str):
        _load()
        return self.__dict__[name]


lib = _Library()


def _candidates() -> list[str]:
    """VALKEYRDMA_LIBRARY; else that of the source tree or prefix that this file lies in, and the system's."""
    here = os.path.dirname(os.path.abspath(__file__))
    near = [os.path.join(here, *path, "libvalkeyrdma.so.1") for path in (("..", "..", "build", "lib"), [".."] * 3)]
    named = os.environ.get("VALKEYRDMA_LIBRARY")
    if named:
        return [named]
    return [path for path in near if os.path.exists(path)] + ["libvalkeyrdma.so.1"]


def _load() -> None:
    error: OSError | None = None
    for name in _candidates():
        try:
            loaded = ctypes.CDLL(name, use_errno=True)
            for function, (result, arguments) in _FUNCTIONS.items():
                found = getattr(loaded, "valkeyrdma_" + function)
                found.restype, found.argtypes = result, arguments
                lib.__dict__[function] = found
            return
        except AttributeError as missing:
            raise OSError(f"{name} is older than 1.1: {missing}") from None
        except OSError as failure:
            error = failure
    raise OSError(f"libvalkeyrdma.so.1 cannot be loaded: {error}")


class _PyBuffer(Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", ctypes.py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype, _get_buffer.argtypes = c_int, [ctypes.py_object, c_void_p, c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, [c_void_p]


class Memory:
    """Address and length of an object's memory, which stays where it is until release().

    The object has the buffer protocol (bytearray, mmap, numpy array, memoryview: contiguous), or, as a tensor of torch,
    data_ptr(), is_contiguous() and nbytes.
    """

    def __init__(self, memory: object, writable: bool) -> None:
        self._held: object = memory
        self._view: _PyBuffer | None = None
        if hasattr(memory, "data_ptr") and hasattr(memory, "is_contiguous"):
            if not memory.is_contiguous():
                raise ValueError("the tensor is not contiguous")
            size = getattr(memory, "nbytes", None)
            self.address = int(memory.data_ptr())
            self.length = int(size if size is not None else memory.numel() * memory.element_size())
            return
        view = _PyBuffer()
        if _get_buffer(memory, ctypes.addressof(view), 1 if writable else 0) != 0:
            raise BufferError("the object has no contiguous memory" + (" that can be written" if writable else ""))
        self._view = view
        self.address, self.length = view.buf or 0, view.len

    def release(self) -> None:
        if self._view is not None:
            _release_buffer(ctypes.addressof(self._view))
            self._view = None
        self._held = None


def milliseconds(seconds: float | None) -> int:
    """Of a deadline for the library: 0 is none, and a short one is at least 1."""
    return 0 if seconds is None else max(1, min(int(seconds * 1000), 2**31 - 1))
