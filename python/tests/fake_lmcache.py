"""A stand-in for LMCache: the names that valkeyrdma.lmcache imports, with the interface of LMCache's MP mode for L2
adapters of type "plugin", and a controller that uses an adapter as LMCache's do.

install() puts the modules where `import lmcache…` finds them.
"""

import dataclasses
import select
import sys
import types
from abc import ABC, abstractmethod


@dataclasses.dataclass(frozen=True)
class ObjectKey:
    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int = 0
    cache_salt: str = ""


@dataclasses.dataclass
class L1MemoryDesc:
    ptr: int
    size: int
    align_bytes: int = 4096
    stable_registration_size: "int | None" = None


class MemoryObj:
    """A logical size in memory that may be padded."""

    def __init__(self, view: memoryview, size: int) -> None:
        self._view, self._size = view, size

    @property
    def byte_array(self) -> memoryview:
        return self._view

    def get_size(self) -> int:
        return self._size

    def get_physical_size(self) -> int:
        return len(self._view)


class Bitmap:
    def __init__(self, size: int) -> None:
        self.bits = [False] * size

    def set(self, index: int) -> None:
        self.bits[index] = True

    def test(self, index: int) -> bool:
        return self.bits[index]

    def popcount(self) -> int:
        return sum(self.bits)


class L2AdapterConfigBase(ABC):
    @classmethod
    @abstractmethod
    def from_dict(cls, d): ...

    @classmethod
    @abstractmethod
    def help(cls): ...


class L2AdapterInterface(ABC):
    def __init__(self) -> None:
        self.total, self.accessed = 0, 0

    def _notify_keys_stored(self, keys, sizes) -> None:
        assert len(keys) == len(sizes)
        self.total += sum(sizes)

    def _notify_keys_accessed(self, keys) -> None:
        self.accessed += len(keys)

    def _notify_keys_deleted(self, keys, sizes) -> None:
        assert len(keys) == len(sizes)
        self.total -= sum(sizes)

    @abstractmethod
    def get_store_event_fd(self) -> int: ...

    @abstractmethod
    def get_lookup_and_lock_event_fd(self) -> int: ...

    @abstractmethod
    def get_load_event_fd(self) -> int: ...

    @abstractmethod
    def submit_store_task(self, keys, objects) -> int: ...

    @abstractmethod
    def pop_completed_store_tasks(self) -> dict: ...

    @abstractmethod
    def submit_lookup_and_lock_task(self, keys, group_layout_descs=None) -> int: ...

    @abstractmethod
    def query_lookup_and_lock_result(self, task_id): ...

    @abstractmethod
    def submit_load_task(self, keys, objects) -> int: ...

    @abstractmethod
    def query_load_result(self, task_id): ...

    @abstractmethod
    def submit_unlock(self, keys) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def delete(self, keys) -> None: ...


def install() -> None:
    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names, __path__=[])
        sys.modules[name] = made

    for name in ("lmcache", "lmcache.v1", "lmcache.v1.distributed", "lmcache.v1.distributed.l2_adapters"):
        module(name)
    module("lmcache.v1.distributed.l2_adapters.base", L2AdapterInterface=L2AdapterInterface)
    module("lmcache.v1.distributed.l2_adapters.config", L2AdapterConfigBase=L2AdapterConfigBase)
    module("lmcache.lmcache_native", Bitmap=Bitmap)


def make(entry: dict, l1_memory_desc=None):
    """An adapter from an entry of --l2-adapter, as LMCache makes it."""
    import importlib

    module = importlib.import_module(entry["module_path"])
    cls = getattr(module, entry["class_name"])
    name = entry.get("config_class_name") or entry["class_name"] + "Config"
    config_class = getattr(module, name, None) or getattr(cls, "config_class_name", None)
    assert issubclass(cls, L2AdapterInterface) and issubclass(config_class, L2AdapterConfigBase)
    config = config_class.from_dict(entry["adapter_params"])
    return cls(config, **({"l1_memory_desc": l1_memory_desc} if l1_memory_desc else {}))


def until(fd: int, poll, patience: float = 20.0):
    """What poll() returns when it is not None, asking only when the descriptor says so."""
    import os

    while True:
        found = poll()
        if found is not None:
            return found
        ready, _, _ = select.select([fd], [], [], patience)
        assert ready, "no event"
        os.read(fd, 8)


def store(adapter, keys, objects):
    task = adapter.submit_store_task(keys, objects)
    done = {}

    def poll():
        done.update(adapter.pop_completed_store_tasks())
        return done.get(task)

    return until(adapter.get_store_event_fd(), poll)


def lookup(adapter, keys, **more):
    task = adapter.submit_lookup_and_lock_task(keys, **more)
    return until(adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task))


def load(adapter, keys, objects):
    task = adapter.submit_load_task(keys, objects)
    return until(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
