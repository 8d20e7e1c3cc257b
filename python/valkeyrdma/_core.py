"""What the blocking and the asynchronous client share: contexts, regions, nodes, and operations with redirections.

An operation is a set of items of one kind. It sends one batch to each node and looks at the results when a batch is
complete; items that a node redirects are sent again. It never waits: whoever drives it hands it complete batches.
"""

from __future__ import annotations

import binascii
import ctypes
import errno
import mmap
import os
import threading
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence, Union

from . import _library
from ._library import BatchOptions, Item, Memory, PlacementOptions, lib, milliseconds

Key = Union[bytes, str]
REDIRECTIONS_MAX = 8
_EMPTY_ERROR = b"\0" * _library.ERROR_MAX


class Error(Exception):
    """A failure of the library or the server."""


class ConnectionLost(Error, ConnectionError):
    """There is no connection; connect() makes one."""


class ChecksumError(Error):
    """The bytes that arrived do not have the checksum of the server."""


class ServerError(Error):
    """The server answered with an error; its text is the message."""


class Result(NamedTuple):
    """The outcome of one item.

    code      0, or a negative errno: -ENOENT (no such key; set with xx: not set), -EEXIST (set with nx: not set),
              -EMSGSIZE (the value is larger than the memory, which is untouched), -EBADMSG (checksum), -ETIMEDOUT,
              -ECANCELED, -ENOTCONN (not sent), and others: valkeyrdma.h lists them
    size      get: the bytes of the value
    checksum  get: the CRC-32C of the value as the server says
    text      the server's error, or why the connection was lost
    """

    code: int
    size: int = 0
    checksum: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def missing(self) -> bool:
        return self.code == -errno.ENOENT

    def check(self) -> "Result":
        """Raises the exception for an outcome that is neither done nor a matter of the key's existence."""
        if self.code in (0, -errno.ENOENT, -errno.EEXIST):
            return self
        text = self.text or os.strerror(-self.code)
        if self.code == -errno.ETIMEDOUT:
            raise TimeoutError(text)
        if self.code == -errno.EBADMSG:
            raise ChecksumError("the bytes that arrived do not have the server's checksum")
        if self.code == -errno.EMSGSIZE:
            raise ValueError("the value is larger than the memory")
        if self.code in (-errno.EREMOTEIO, -errno.EACCES, -errno.ENOSPC, -errno.EOPNOTSUPP, -errno.EREMOTE):
            raise ServerError(text)
        raise ConnectionLost(text)


def slot_of(key: bytes) -> int:
    """The cluster slot of a key, of its {tag} if it has one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) & 16383


def checksum(memory: object) -> int:
    """CRC-32C of the bytes of a buffer, as servers compute it: 0xe3069283 for b"123456789"."""
    held = Memory(memory, writable=False)
    try:
        return lib.checksum(held.address, held.length)
    finally:
        held.release()


def arena(size: int) -> mmap.mmap:
    """`size` bytes of zeroed memory on pages of their own: the best memory to register."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _raise_errno(text: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, text or os.strerror(code))


class Region:
    """Registered memory, which servers write (get) and read (set). Made by a client's register(); `with` frees it.

    It keeps its buffer alive and in place. free() returns when no device can reach the memory any more; items that are
    under way in it end with -ECANCELED, and cost their connection.
    """

    def __init__(self, context: "Context", handle: int, memory: Optional[Memory], length: int) -> None:
        self._context, self._handle, self._memory = context, handle, memory
        self.length = length
        self.address = memory.address if memory else 0

    def __len__(self) -> int:
        return self.length

    def free(self) -> None:
        handle, self._handle = self._handle, 0
        if handle and self._context.handle:
            lib.region_free(handle)
        if self._memory:
            self._memory.release()
            self._memory = None

    def __enter__(self) -> "Region":
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def __del__(self) -> None:
        try:
            self.free()
        except Exception:  # the interpreter is shutting down
            pass


# (key, region), or (key, region, offset, length): the part of the region, by default all of it.
Place = Union["tuple[Key, Region]", "tuple[Key, Region, int, int]"]


class Context:
    """A context of the library, its regions and the batches that are under way in it."""

    def __init__(self) -> None:
        text = ctypes.create_string_buffer(_library.ERROR_MAX)
        self.handle: int = lib.context_new(text, len(text)) or 0
        if not self.handle:
            _raise_errno(text.value.decode(errors="replace"))
        self.lock = threading.Lock()  # of `operations`, so that a complete batch is found there
        self.operations: dict[int, tuple["Operation", "_Group"]] = {}  # by the handle of a batch

    def register(self, memory: object, get: bool, set: bool) -> Region:
        uses = (_library.REGION_GET if get else 0) | (_library.REGION_SET if set else 0)
        if not uses:
            raise ValueError("a region is for get, for set, or for both")
        held = Memory(memory, writable=get)
        try:
            return self._registered(held, held.address, held.length, uses)
        except BaseException:
            held.release()
            raise

    def register_address(self, address: int, length: int) -> Region:
        return self._registered(None, address, length, 0)

    def _registered(self, held: Optional[Memory], address: int, length: int, uses: int) -> Region:
        text = ctypes.create_string_buffer(_library.ERROR_MAX)
        handle = lib.region_register(self.handle, address, length, uses, text, len(text))
        if not handle:
            _raise_errno(text.value.decode(errors="replace"))
        region = Region(self, handle, held, length)
        region.address = address
        return region

    def register_dmabuf(self, fd: int, offset: int, length: int) -> Region:
        text = ctypes.create_string_buffer(_library.ERROR_MAX)
        handle = lib.region_register_dmabuf(self.handle, fd, offset, length, 0, text, len(text))
        if not handle:
            _raise_errno(text.value.decode(errors="replace"))
        return Region(self, handle, None, length)

    def dispatch(self) -> None:
        """Hands complete batches to their operations."""
        while batch := lib.batch_next(self.handle):
            with self.lock:
                operation, group = self.operations.pop(batch)
            operation.complete(batch, group)

    def free(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            lib.context_free(handle)


class Node:
    """The placement client of one server."""

    def __init__(self, context: Context, host: str, port: int, options: "Options") -> None:
        text = ctypes.create_string_buffer(_library.ERROR_MAX)
        self.host, self.port = host, port
        wanted = PlacementOptions(
            size=ctypes.sizeof(PlacementOptions),
            source_host=options.source_host.encode() if options.source_host else None,
            username=options.username.encode() if options.username else None,
            password=options.password.encode() if options.password else None,
            database=options.database,
            in_flight=options.in_flight,
        )
        self.handle = lib.placement_new(context.handle, host.encode(), port, wanted, text, len(text))
        if not self.handle:
            _raise_errno(text.value.decode(errors="replace"))

    def connect(self, timeout: float) -> None:
        result = -errno.EINTR
        while result == -errno.EINTR:  # Python's handlers run between the calls
            result = lib.placement_connect(self.handle, milliseconds(timeout))
        if result < 0:
            self.raise_lost(result)

    def raise_lost(self, result: int) -> None:
        text = lib.placement_error_text(self.handle).decode(errors="replace") or os.strerror(-result)
        text = f"{self.host}:{self.port}: {text}"
        if result == -errno.EACCES:
            raise ServerError(text)
        if result == -errno.ETIMEDOUT:
            raise TimeoutError(text)
        raise ConnectionLost(text)

    def begin_connecting(self) -> None:
        """Batches submitted from now on wait for the connection."""
        if lib.placement_state(self.handle) < 0:
            lib.placement_connect(self.handle, 0)

    @property
    def connected(self) -> bool:
        return lib.placement_state(self.handle) == 1

    def free(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            lib.placement_free(handle)


class Options(NamedTuple):
    """How nodes connect."""

    source_host: Optional[str] = None
    username: Optional[str] = None
    password: Optional[str] = None
    database: int = 0
    in_flight: int = 0
    connect_timeout: float = 5.0
    cluster: bool = False
    reconnect: bool = False


class Nodes:
    """The servers of a client: one, or those of a cluster, found by redirections."""

    def __init__(self, context: Context, seeds: Sequence[tuple[str, int]], options: Options) -> None:
        self.context, self.options = context, options
        self.lock = threading.Lock()
        self.known: dict[tuple[str, int], Node] = {}
        self.slots: dict[int, Node] = {}
        self.seeds = [self.node(host, port) for host, port in seeds]

    def node(self, host: str, port: int) -> Node:
        with self.lock:
            found = self.known.get((host, port))
            if not found:
                found = self.known[host, port] = Node(self.context, host, port, self.options)
            return found

    def connect(self) -> None:
        """Connects to the first seed that can be reached."""
        failure: Optional[Exception] = None
        for seed in self.seeds:
            try:
                seed.connect(self.options.connect_timeout)
                return
            except (OSError, Error) as error:
                failure = error
        assert failure
        raise failure

    def for_key(self, key: bytes) -> Node:
        if not self.options.cluster:
            return self.seeds[0]
        node = self.slots.get(slot_of(key))
        if node:
            return node
        return next((seed for seed in self.seeds if seed.connected), self.seeds[0])

    def follow(self, text: str, asked: Node) -> tuple[Optional[Node], bool]:
        """The node that "MOVED slot host:port" or "ASK …" names, and whether to send ASKING."""
        word, slot, address = (text.split(" ") + ["", ""])[:3]
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or not slot.isdigit():
            return None, False
        node = self.node(host or asked.host, int(port))
        if word == "MOVED":
            self.slots[int(slot)] = node
        return node, word == "ASK"

    def forget(self, lost: Node) -> None:
        """A node that cannot be reached is asked for no slot; a seed knows which node has taken over."""
        for slot in [slot for slot, node in self.slots.items() if node is lost]:
            del self.slots[slot]

    def free(self) -> None:
        for node in self.known.values():
            node.free()
        self.known.clear()


class _Group:
    """The items of one batch: the numbers that they have in the operation, and what must stay alive."""

    def __init__(self, node: Node, numbers: list[int], items: Any) -> None:
        self.node, self.numbers, self.items = node, numbers, items


class Operation:
    """Items on their way to their results."""

    def __init__(
        self,
        nodes: Nodes,
        kind: str,
        keys: Sequence[bytes],
        places: Optional[Sequence[tuple[Region, int, int]]],
        flags: int = 0,
        expire: Optional[float] = None,
        timeout: Optional[float] = None,
        done: Optional[Callable[["Operation"], None]] = None,
    ) -> None:
        self.nodes, self.kind, self.keys, self.places = nodes, kind, keys, places
        self.flags = flags
        self.expire_ms = 0 if expire is None else max(1, int(expire * 1000))
        self.timeout = timeout
        self.done = done
        self.results: list[Result] = [Result(-errno.EINPROGRESS)] * len(keys)
        self.running: list[int] = []  # handles of batches
        self.rounds = 0
        self._again: list[tuple[int, Node, bool]] = []
        self._pending = 0  # batches, and calls of _send()
        self._lock = threading.Lock()

    def start(self) -> None:
        self._send([(i, self.nodes.for_key(key), False) for i, key in enumerate(self.keys)])

    def _send(self, wanted: Iterable[tuple[int, Node, bool]]) -> None:
        groups: dict[tuple[int, bool], tuple[Node, list[int]]] = {}
        for number, node, asking in wanted:
            groups.setdefault((id(node), asking), (node, []))[1].append(number)
        with self._lock:
            self._pending += 1  # batches may complete, on another thread, before all are submitted
        for (_, asking), (node, numbers) in groups.items():
            self._submit(node, numbers, asking)
        self._one_less()

    def _one_less(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending:
                return
        again, self._again = self._again, []
        self.rounds += 1
        if again:
            self._send(again)
        elif self.done:
            self.done(self)

    def _submit(self, node: Node, numbers: list[int], asking: bool) -> None:
        items = (Item * len(numbers))()
        for item, number in zip(items, numbers):
            key = self.keys[number]
            item.key, item.key_length = key, len(key)
            if self.places:
                region, item.offset, item.length = self.places[number]
                item.region = region._handle
        if self.nodes.options.reconnect or node not in self.nodes.seeds:
            node.begin_connecting()
        options = BatchOptions(
            size=ctypes.sizeof(BatchOptions),
            timeout_ms=milliseconds(self.timeout),
            flags=self.flags | (_library.ASKING if asking else 0),
            expire_ms=self.expire_ms,
        )
        group = _Group(node, numbers, items)
        context = self.nodes.context
        with context.lock:
            batch = getattr(lib, "placement_" + self.kind)(node.handle, items, len(numbers), options)
            if batch:
                context.operations[batch] = (self, group)
                self.running.append(batch)
                with self._lock:
                    self._pending += 1
                return
        text = os.strerror(ctypes.get_errno())
        raise ValueError(f"{self.kind}: {text}: an item lies outside its region, or the region is for another use")

    def complete(self, batch: int, group: _Group) -> None:
        """Takes the results of a complete batch and frees it; sends again what was redirected."""
        if batch in self.running:
            self.running.remove(batch)
        for item, number in zip(group.items, group.numbers):
            text = (item.error_text or b"").decode(errors="replace")
            result = Result(item.result, item.value_length, item.checksum, text)
            self.results[number] = result
            if not self.nodes.options.cluster or self.rounds >= REDIRECTIONS_MAX:
                continue
            if result.code == -errno.EREMOTE:
                node, asking = self.nodes.follow(text, group.node)
                if node:
                    self._again.append((number, node, asking))
            elif result.code == -errno.ENOTCONN:  # it was not sent: another node may know where the key is now
                self.nodes.forget(group.node)
                other = next((n for n in self.nodes.known.values() if n.connected), None)
                if other and other is not group.node:
                    self._again.append((number, other, False))
        lib.batch_free(batch)
        self._one_less()

    def wait(self) -> list[Result]:
        """Drives the operation to its end, from the calling thread."""
        try:
            while self.running:
                batch = self.running[0]
                result = lib.batch_wait(batch, -1)
                if result == 0:
                    with self.nodes.context.lock:
                        _, group = self.nodes.context.operations.pop(batch)
                    self.complete(batch, group)
                elif result != -errno.EINTR:  # then Python's signal handlers have run
                    raise OSError(-result, os.strerror(-result))
        except BaseException:
            self.cancel()
            raise
        return self.results

    def cancel(self) -> None:
        """Ends what is under way. Its connections are lost; its memory may be used again."""
        context = self.nodes.context
        while self.running:
            batch = self.running.pop()
            with context.lock:
                ours = context.operations.pop(batch, None)
            if ours:  # else another thread is about to complete it
                lib.batch_cancel(batch)
                lib.batch_free(batch)


def as_key(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


def as_places(items: Iterable[Place]) -> tuple[list[bytes], list[tuple[Region, int, int]]]:
    keys: list[bytes] = []
    places: list[tuple[Region, int, int]] = []
    for item in items:
        region = item[1]
        offset, length = (item[2], item[3]) if len(item) == 4 else (0, region.length)
        if offset < 0 or length <= 0 or offset + length > region.length:
            raise ValueError(f"{length} bytes at {offset} are not within the region of {region.length} bytes")
        keys.append(as_key(item[0]))
        places.append((region, offset, length))
    return keys, places


def set_flags(nx: bool, xx: bool, keepttl: bool) -> int:
    return (_library.NX if nx else 0) | (_library.XX if xx else 0) | (_library.KEEPTTL if keepttl else 0)
