"""The two clients: Client blocks, AsyncClient is for asyncio."""

from __future__ import annotations

import asyncio
from typing import Any, Iterable, Optional, Sequence

from . import _library
from ._core import (
    Context, Key, Nodes, Operation, Options, Place, Region, Result, as_key, as_places, set_flags,
)
from ._library import lib


class _Base:
    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 6379,
        *,
        nodes: Optional[Sequence[tuple[str, int]]] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        database: int = 0,
        cluster: bool = False,
        reconnect: bool = False,
        timeout: Optional[float] = None,
        connect_timeout: float = 5.0,
        in_flight: int = 0,
        source_host: Optional[str] = None,
    ) -> None:
        self.timeout = timeout
        options = Options(
            source_host=source_host, username=username, password=password, database=database, in_flight=in_flight,
            connect_timeout=connect_timeout, cluster=cluster, reconnect=reconnect,
        )
        self._context = Context()
        try:
            self._nodes = Nodes(self._context, list(nodes) if nodes else [(host, port)], options)
        except BaseException:
            self._context.free()
            raise
        self._closed = False

    def register(self, memory: object, *, get: bool = True, set: bool = True) -> Region:
        """Registers a buffer: bytearray, mmap, numpy array, torch tensor on the CPU, … For set alone it may be
        read-only. Takes up to some tenths of a second a GiB: register an arena once and name parts of it."""
        return self._context.register(memory, get, set)

    def register_address(self, address: int, length: int) -> Region:
        """Registers memory by its address. It must stay mapped until the region is freed."""
        return self._context.register_address(address, length)

    def register_dmabuf(self, fd: int, offset: int, length: int) -> Region:
        """Registers a DMA buffer, as memory of a GPU, which the device reaches directly."""
        return self._context.register_dmabuf(fd, offset, length)

    def _get(self, items: Iterable[Place], check: bool, timeout: Optional[float], **more: Any) -> Operation:
        keys, places = as_places(items)
        flags = _library.CHECK if check else 0
        return Operation(self._nodes, "get", keys, places, flags, None, self._limit(timeout), **more)

    def _set(
        self, items: Iterable[Place], expire: Optional[float], flags: int, timeout: Optional[float], **more: Any
    ) -> Operation:
        keys, places = as_places(items)
        return Operation(self._nodes, "set", keys, places, flags, expire, self._limit(timeout), **more)

    def _keys(self, kind: str, keys: Iterable[Key], timeout: Optional[float], **more: Any) -> Operation:
        return Operation(self._nodes, kind, [as_key(k) for k in keys], None, 0, None, self._limit(timeout), **more)

    def _limit(self, timeout: Optional[float]) -> Optional[float]:
        if self._closed:
            raise ValueError("the client is closed")
        return self.timeout if timeout is None else timeout

    def _free(self) -> None:
        if not self._closed:
            self._closed = True
            self._nodes.free()
            self._context.dispatch()  # what was under way ends with -ECANCELED
            self._context.free()


class Client(_Base):
    """A blocking client for values that the server writes into, and reads from, registered memory.

        with valkeyrdma.Client("192.0.2.1") as client:
            arena = valkeyrdma.arena(1 << 30)
            region = client.register(arena)
            client.set([("block:1", region, 0, 3 << 20)], expire=3600)
            result, = client.get([("block:1", region, 3 << 20, 3 << 20)])
            if result.ok: use(arena[3 << 20 : (3 << 20) + result.size])

    host, port        of the server's RDMA listener
    nodes             instead of these: [(host, port), …], tried in this order
    username, password, database
    cluster           follow MOVED and ASK; each node has a connection of its own
    reconnect         connect again when an operation finds no connection; otherwise only connect() does
    timeout           of each call, seconds; None: none. An item that is late ends its connection
    connect_timeout   seconds
    in_flight         requests without a reply on a connection, at most; 0: 256
    source_host       address to connect from

    The results are in the order of the items, one Result each; no exception is raised for a single item: see
    Result.check(). When a call returns or raises, no server writes or reads the memory of its items any more.

    Several threads may use one client. The constructor connects.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 6379, **options: Any) -> None:
        super().__init__(host, port, **options)
        try:
            self.connect()
        except BaseException:
            self._free()
            raise

    def connect(self) -> None:
        """Connects again after the connection was lost; does nothing if it is there. Raises ConnectionLost,
        TimeoutError, or ServerError (user or password)."""
        self._nodes.connect()

    def get(self, items: Iterable[Place], *, check: bool = False, timeout: Optional[float] = None) -> list[Result]:
        """Has values written into memory. An item is (key, region) or (key, region, offset, length). check: compares
        what arrived with the server's checksum."""
        return self._run(self._get(items, check, timeout))

    def set(
        self, items: Iterable[Place], *, expire: Optional[float] = None, nx: bool = False, xx: bool = False,
        keepttl: bool = False, timeout: Optional[float] = None,
    ) -> list[Result]:
        """Has values read from memory. expire: seconds until the keys go. nx, xx: only keys that do not, that do
        exist."""
        return self._run(self._set(items, expire, set_flags(nx, xx, keepttl), timeout))

    def exists(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """Which keys exist. Raises if one cannot be known."""
        return [result.check().ok for result in self._run(self._keys("exists", keys, timeout))]

    def delete(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """Deletes keys; True: it existed. Raises if one cannot be deleted."""
        return [result.check().ok for result in self._run(self._keys("delete", keys, timeout))]

    @staticmethod
    def _run(operation: Operation) -> list[Result]:
        if not operation.keys:
            return []
        try:
            operation.start()
        except BaseException:
            operation.cancel()
            raise
        return operation.wait()

    def close(self) -> None:
        """Closes the connections and frees the regions. No other thread may use the client."""
        self._free()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncClient(_Base):
    """The same for asyncio. Its methods are coroutines of the loop that it was made in.

        client = await valkeyrdma.AsyncClient.open("192.0.2.1")
        region = client.register(arena)
        results = await client.get([("block:1", region, 0, 3 << 20)])
        await client.close()

    The arguments are those of Client. A call that is cancelled ends its connection before it raises CancelledError, so
    that its memory may be used again.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 6379, **options: Any) -> None:
        super().__init__(host, port, **options)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(lib.context_fd(self._context.handle), self._process)

    @classmethod
    async def open(cls, host: str = "127.0.0.1", port: int = 6379, **options: Any) -> "AsyncClient":
        """Makes a client and connects it."""
        client = cls(host, port, **options)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        return client

    async def connect(self) -> None:
        """As Client.connect()."""
        await self._loop.run_in_executor(None, self._nodes.connect)
        self._process()

    async def get(self, items: Iterable[Place], *, check: bool = False,
                  timeout: Optional[float] = None) -> list[Result]:
        """As Client.get()."""
        return await self._run(self._get(items, check, timeout, done=self._done))

    async def set(
        self, items: Iterable[Place], *, expire: Optional[float] = None, nx: bool = False, xx: bool = False,
        keepttl: bool = False, timeout: Optional[float] = None,
    ) -> list[Result]:
        """As Client.set()."""
        return await self._run(self._set(items, expire, set_flags(nx, xx, keepttl), timeout, done=self._done))

    async def exists(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """As Client.exists()."""
        results = await self._run(self._keys("exists", keys, timeout, done=self._done))
        return [result.check().ok for result in results]

    async def delete(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """As Client.delete()."""
        results = await self._run(self._keys("delete", keys, timeout, done=self._done))
        return [result.check().ok for result in results]

    @staticmethod
    def _done(operation: Operation) -> None:
        future: Optional[asyncio.Future[None]] = getattr(operation, "future", None)
        if future and not future.done():
            future.set_result(None)

    async def _run(self, operation: Operation) -> list[Result]:
        if not operation.keys:
            return []
        operation.future = self._loop.create_future()  # type: ignore[attr-defined]
        try:
            operation.start()
            self._process()
            await operation.future  # type: ignore[attr-defined]
        except BaseException:
            operation.cancel()
            self._process()
            raise
        return operation.results

    def _process(self) -> None:
        """Serves the library, until the descriptor tells of everything that follows."""
        if self._closed:
            return
        while lib.context_process(self._context.handle) == 1:
            self._context.dispatch()

    async def close(self) -> None:
        """Closes the connections and frees the regions."""
        if not self._closed:
            self._loop.remove_reader(lib.context_fd(self._context.handle))
            self._free()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
