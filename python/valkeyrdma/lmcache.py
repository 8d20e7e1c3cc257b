"""A connector for LMCache (MP mode, L2 adapter of type "plugin"): blocks of a KV cache in a Valkey server, by RDMA.

    lmcache server … --no-l1-use-lazy --l2-adapter '{"type": "plugin", "module_path": "valkeyrdma.lmcache",
        "class_name": "ValkeyRdmaL2Adapter",
        "adapter_params": {"startup_nodes": "192.0.2.1:6379", "ttl_seconds": 86400}}'

adapter_params

    startup_nodes       "host:port[,host:port…]" of RDMA listeners; required
    cluster_mode        false; true: follow redirections
    username, password, database_id
    key_prefix          in front of each key, with "@"; none
    ttl_seconds         time to live that every store gives its key; none
    request_timeout     seconds for a task, 30. A task that is late fails, and ends its connection
    connection_timeout  seconds, 10
    verify_checksum     true: a load that does not have the server's checksum is a miss
    num_connections     connections to each node, 1; tasks use them in turn
    memory_address, memory_size
                        the memory to register, where LMCache passes no L1MemoryDesc

Keys are those of LMCache's other Valkey adapters, model@rank@group@hash[@salt], so that they see the same blocks. The
whole L1 memory is registered once, when the adapter is made. Objects elsewhere are registered for the time of their
task, which is slow. One thread handles what completes; submitting never waits. A load whose size is not that of the
object is a miss.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import os
import threading
from typing import Any, Iterable, Optional, Sequence

from ._core import Context, Error, Nodes, Operation, Options, Region
from ._library import CHECK, Memory, lib

__all__ = ["ValkeyRdmaL2Adapter", "ValkeyRdmaL2AdapterConfig", "wire_key"]


def _find(name: str, *modules: str) -> Any:
    """A name of LMCache, whose modules have moved between releases. None: there is no LMCache here."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


_Interface: Any = _find(
    "L2AdapterInterface", "lmcache.v1.distributed.l2_adapters.base", "lmcache.v1.distributed.l2_adapters"
) or object
_ConfigBase: Any = _find(
    "L2AdapterConfigBase", "lmcache.v1.distributed.l2_adapters.config", "lmcache.v1.distributed.l2_adapters.base",
    "lmcache.v1.distributed.l2_adapters",
) or object


def _bitmap(size: int) -> Any:
    kind = _find("Bitmap", "lmcache.lmcache_native", "lmcache.native_storage_ops")
    if kind is None:
        raise ImportError("LMCache, whose Bitmap the results are made of, is not installed")
    return kind(size)


class ValkeyRdmaL2AdapterConfig(_ConfigBase):  # type: ignore[misc]
    """adapter_params, checked. LMCache finds it by the adapter's name and "Config"."""

    _known = {
        "startup_nodes": str, "cluster_mode": bool, "username": str, "password": str, "database_id": int,
        "key_prefix": str, "ttl_seconds": (int, float), "request_timeout": (int, float),
        "connection_timeout": (int, float), "verify_checksum": bool, "num_connections": int, "memory_address": int,
        "memory_size": int, "max_capacity_gb": (int, float),
    }

    def __init__(self, **params: Any) -> None:
        try:
            super().__init__()
        except TypeError:  # a base that wants arguments has nothing for us to keep
            pass
        for name, value in params.items():
            if name not in self._known:
                raise ValueError(f"adapter_params: unknown {name!r}; known: {', '.join(self._known)}")
            if value is not None and not isinstance(value, self._known[name]):
                raise ValueError(f"adapter_params: {name} has the wrong type: {value!r}")
        self.nodes = [self._address(text) for text in str(params.get("startup_nodes") or "").split(",") if text.strip()]
        if not self.nodes:
            raise ValueError('adapter_params: startup_nodes is required, as "192.0.2.1:6379"')
        self.cluster_mode = bool(params.get("cluster_mode", False))
        self.username: Optional[str] = params.get("username") or None
        self.password: Optional[str] = params.get("password") or None
        self.database_id = int(params.get("database_id") or 0)
        self.key_prefix = str(params.get("key_prefix") or "")
        if "@" in self.key_prefix:
            raise ValueError("adapter_params: key_prefix must not contain '@'")
        self.ttl_seconds: Optional[float] = params.get("ttl_seconds") or None
        self.request_timeout = float(params.get("request_timeout") or 30)
        self.connection_timeout = float(params.get("connection_timeout") or 10)
        self.verify_checksum = bool(params.get("verify_checksum", True))
        self.num_connections = int(params.get("num_connections") or 1)
        self.memory_address = int(params.get("memory_address") or 0)
        self.memory_size = int(params.get("memory_size") or 0)
        self.max_capacity_gb = float(params.get("max_capacity_gb") or 0)

    @staticmethod
    def _address(text: str) -> tuple[str, int]:
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"adapter_params: startup_nodes: {text!r} is not host:port")
        return host.strip("[]"), int(port)

    @classmethod
    def from_dict(cls, params: dict[str, Any]) -> "ValkeyRdmaL2AdapterConfig":
        """Of the whole entry of the configuration or of its adapter_params."""
        inner = params.get("adapter_params", params)
        return cls(**{k: v for k, v in inner.items() if k not in ("type", "module_path", "class_name")})

    @classmethod
    def help(cls) -> str:
        return __doc__ or ""


def wire_key(key: Any, prefix: str = "") -> bytes:
    """[prefix@]model@rank@group@hash[@salt]: rank as 8 hex digits, group in hex, hash in hex."""
    parts = [prefix] if prefix else []
    parts += [key.model_name, f"{key.kv_rank:08x}", f"{key.object_group_id:x}", bytes(key.chunk_hash).hex()]
    if getattr(key, "cache_salt", ""):
        parts.append(key.cache_salt)
    return "@".join(parts).encode()


class _Event:
    """A descriptor that becomes readable: an eventfd, else a pipe."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def signal(self) -> None:
        try:
            os.write(self._write_fd, (1).to_bytes(8, "little"))
        except BlockingIOError:
            pass  # it is readable

    def close(self) -> None:
        for fd in {self.fd, self._write_fd}:
            os.close(fd)


class ValkeyRdmaL2Adapter(_Interface):  # type: ignore[misc]
    """See the module."""

    def __init__(self, config: Any, l1_memory_desc: Any = None, **more: Any) -> None:
        try:
            super().__init__()
        except TypeError:
            super().__init__(config)
        if isinstance(config, dict):
            config = ValkeyRdmaL2AdapterConfig.from_dict(config)
        self._config: ValkeyRdmaL2AdapterConfig = config
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._turn = itertools.count()
        self._stored: dict[int, int] = {}  # results of store tasks, by task
        self._found: dict[int, Any] = {}  # of lookups
        self._loaded: dict[int, Any] = {}
        self._sizes: dict[Any, int] = {}  # of the keys that were stored here, for the base class's count
        self._locked: dict[Any, int] = {}  # keys that lookups have found, with a count
        self._active = 0  # tasks under way
        self._idle = threading.Condition(self._lock)
        self._failure = ""
        self._closed = False
        self._events = [_Event(), _Event(), _Event()]  # store, lookup, load
        self._context = Context()
        try:
            self._region = self._register(l1_memory_desc)
            options = Options(
                username=config.username, password=config.password, database=config.database_id,
                connect_timeout=config.connection_timeout, cluster=config.cluster_mode, reconnect=True,
            )
            self._connections = [
                Nodes(self._context, config.nodes, options) for _ in range(max(1, config.num_connections))
            ]
            for nodes in self._connections:
                nodes.connect()
        except BaseException:
            self._context.free()
            for event in self._events:
                event.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="valkeyrdma", daemon=True)
        self._thread.start()

    def _register(self, desc: Any) -> Optional[Region]:
        address, size = self._config.memory_address, self._config.memory_size
        if not size and desc is not None:
            address, size = int(desc.ptr), int(desc.size)
            stable = getattr(desc, "stable_registration_size", None)
            if stable is not None:
                size = min(size, int(stable))
        return self._context.register_address(address, size) if size else None

    def _serve(self) -> None:
        """The thread that handles what completes."""
        while not self._closed:
            lib.context_wait(self._context.handle, -1)
            self._context.dispatch()

    # --- Memory ---

    def _place(self, obj: Any, own: list[Region]) -> tuple[Region, int, int]:
        """Where the object's bytes lie. A region made for it is appended to `own`."""
        held = Memory(obj.byte_array, writable=False)
        address = held.address
        held.release()
        size = int(obj.get_size())
        region = self._region
        if region and region.address <= address and address + size <= region.address + region.length:
            return region, address - region.address, size
        own.append(self._context.register_address(address, size))
        return own[-1], 0, size

    # --- Tasks ---

    def _start(
        self, kind: str, keys: Sequence[Any], objects: Optional[Sequence[Any]], finish: Any, flags: int = 0,
        expire: Optional[float] = None,
    ) -> int:
        """Starts a task; finish(task, results) stores its outcome, also (results None) if it cannot be started."""
        own: list[Region] = []
        task = next(self._ids)

        ended = False

        def done(operation: Optional[Operation]) -> None:
            nonlocal ended
            for region in own:
                region.free()
            results = operation.results if operation else None
            bad = next((r for r in results or [] if r.text), None)
            with self._lock:
                if ended:
                    return
                ended = True
                if bad:
                    self._failure = bad.text
                notify = finish(task, results)
                self._active -= 1
                self._idle.notify_all()
            if notify:
                notify()

        with self._lock:
            if self._closed:
                raise RuntimeError("the adapter is closed")
            self._active += 1
        operation: Optional[Operation] = None
        try:
            places = [self._place(obj, own) for obj in objects] if objects is not None else None
            nodes = self._connections[next(self._turn) % len(self._connections)]
            wired = [wire_key(key, self._config.key_prefix) for key in keys]
            operation = Operation(
                nodes, kind, wired, places, flags, expire, self._config.request_timeout,
                lambda finished: done(finished),
            )
            operation.start()
        except (Error, OSError, ValueError, BufferError) as error:
            self._failure = str(error)
            if operation:
                operation.cancel()
            done(None)
        return task

    # --- The interface of LMCache ---

    def get_store_event_fd(self) -> int:
        return self._events[0].fd

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._events[1].fd

    def get_load_event_fd(self) -> int:
        return self._events[2].fd

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        """Has the server read the objects. The result is the number of bytes, or -1 if one was not stored."""
        keys, objects = list(keys), list(objects)
        sizes = [int(obj.get_size()) for obj in objects]

        def finish(task: int, results: Any) -> Any:
            good = [i for i, result in enumerate(results or []) if result.ok]
            self._stored[task] = sum(sizes) if results is not None and len(good) == len(keys) else -1
            self._events[0].signal()
            more = [sizes[i] - self._sizes.get(keys[i], 0) for i in good]
            self._sizes.update((keys[i], sizes[i]) for i in good)
            return lambda: self._notify("stored", [keys[i] for i in good], more)

        return self._start("set", keys, objects, finish, expire=self._config.ttl_seconds)

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        with self._lock:
            stored, self._stored = self._stored, {}
            return stored

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], group_layout_descs: Any = None, **more: Any) -> int:
        """Asks which keys exist, and counts a lock for each that does: delete() leaves it alone."""
        keys = list(keys)

        def finish(task: int, results: Any) -> None:
            found = _bitmap(len(keys))
            for i, result in enumerate(results or []):
                if result.ok:
                    found.set(i)
                    self._locked[keys[i]] = self._locked.get(keys[i], 0) + 1
            self._found[task] = found
            self._events[1].signal()

        return self._start("exists", keys, None, finish)

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        """Has the server write values into the objects. One of another size than the object is a miss."""
        keys, objects = list(keys), list(objects)
        sizes = [int(obj.get_size()) for obj in objects]

        def finish(task: int, results: Any) -> Any:
            loaded = _bitmap(len(keys))
            good = [i for i, result in enumerate(results or []) if result.ok and result.size == sizes[i]]
            for i in good:
                loaded.set(i)
            self._loaded[task] = loaded
            self._events[2].signal()
            return lambda: self._notify("accessed", [keys[i] for i in good])

        return self._start("get", keys, objects, finish, CHECK if self._config.verify_checksum else 0)

    def query_load_result(self, task_id: int) -> Any:
        with self._lock:
            return self._loaded.pop(task_id, None)

    def submit_unlock(self, keys: Iterable[Any]) -> None:
        with self._lock:
            for key in keys:
                count = self._locked.get(key, 0) - 1
                if count > 0:
                    self._locked[key] = count
                else:
                    self._locked.pop(key, None)

    def delete(self, keys: Iterable[Any]) -> None:
        """Deletes keys that no lookup has locked, and waits until they are deleted."""
        with self._lock:
            free = [key for key in keys if key not in self._locked]
        if not free:
            return
        event = threading.Event()

        def finish(task: int, results: Any) -> Any:
            gone = [key for key, result in zip(free, results or []) if result.code in (0, -errno.ENOENT)]
            sizes = [self._sizes.pop(key, 0) for key in gone]

            def after() -> None:
                self._notify("deleted", gone, sizes)
                event.set()

            return after

        self._start("delete", free, None, finish)
        event.wait()

    def report_status(self) -> dict[str, Any]:
        connected = all(any(n.connected for n in nodes.known.values()) for nodes in self._connections)
        with self._lock:
            return {
                "is_healthy": connected and not self._closed,
                "type": "valkeyrdma",
                "nodes": [f"{host}:{port}" for host, port in self._config.nodes],
                "tasks": self._active,
                "locked_keys": len(self._locked),
                "last_error": self._failure,
            }

    def close(self) -> None:
        """Waits for the tasks that run, at most for their timeout, and frees everything."""
        with self._lock:
            if self._closed:
                return
            self._idle.wait_for(lambda: self._active == 0, self._config.request_timeout + 1)
            self._closed = True
        lib.context_wake(self._context.handle)
        self._thread.join()
        for nodes in self._connections:
            nodes.free()
        self._context.dispatch()
        self._context.free()
        for event in self._events:
            event.close()

    def _notify(self, what: str, *arguments: Any) -> None:
        """Has the base class count bytes, where it does."""
        helper = getattr(self, "_notify_keys_" + what, None)
        if helper and arguments[0]:
            helper(*arguments)


ValkeyRdmaL2Adapter.config_class_name = "ValkeyRdmaL2AdapterConfig"
