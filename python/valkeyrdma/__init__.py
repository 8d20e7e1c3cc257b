"""valkeyrdma: values of a Valkey server in the program's own memory, by RDMA.

A program registers memory once (a region), and the server writes values into it (get) and reads them from it (set)
with one RDMA operation each. The bytes pass through no socket and no copy of this process. It needs a server with an
RDMA listener and the BLOB commands, and the C library libvalkeyrdma 1.1; it has no other dependencies.

    import valkeyrdma

    with valkeyrdma.Client("192.0.2.1", 6379) as client:
        memory = valkeyrdma.arena(64 << 20)                       # or a bytearray, a numpy array, a torch tensor
        region = client.register(memory)
        memory[0:5] = b"hello"
        client.set([("greeting", region, 0, 5)], expire=60)
        result, = client.get([("greeting", region, 1 << 20, 1 << 20)], check=True)
        print(memory[1 << 20 : (1 << 20) + result.size])

Client blocks; AsyncClient is for asyncio. Both take a batch of items in each call, send them all before they wait, and
give one Result for each. With cluster=True they follow redirections. The environment variable VALKEYRDMA_LIBRARY names
another libvalkeyrdma.so.1.

When a call has ended, by a result, an exception, a timeout or a cancellation, no server reaches the memory of its items
any more. To be sure of that, an item that ends without the server's reply costs its connection; connect() or
reconnect=True makes another.

valkeyrdma.lmcache is a connector for LMCache.
"""

from ._clients import AsyncClient, Client
from ._core import (
    ChecksumError, ConnectionLost, Error, Region, Result, ServerError, arena, checksum, slot_of,
)
from ._library import lib as _lib

__all__ = [
    "AsyncClient", "ChecksumError", "Client", "ConnectionLost", "Error", "Region", "Result", "ServerError", "arena",
    "checksum", "library_version", "set_option", "slot_of",
]
__version__ = "1.1"


def library_version() -> str:
    """The version of libvalkeyrdma, as "9.1.0"."""
    return _lib.version().decode()


def set_option(name: str, value: int) -> None:
    """A setting of the process, as valkeyrdma_set() in valkeyrdma.h: "busy-poll-us", "keepalive-ms", …"""
    result = _lib.set(name.encode(), value)
    if result < 0:
        raise ValueError(f"{name} {value}: no such setting, or out of range")
