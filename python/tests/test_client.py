"""valkeyrdma.Client and AsyncClient against a server."""

import asyncio
import array
import ctypes
import errno
import os
import pydoc
import signal
import threading
import unittest

import common
import valkeyrdma
from valkeyrdma import AsyncClient, Client

SIZE = 1 << 16


def open_client(**options):
    return Client(common.host, common.port, **options)


class Blocking(unittest.TestCase):
    def test_values_come_back(self):
        with open_client() as client:
            memory = valkeyrdma.arena(64 * SIZE)
            region = client.register(memory)
            memory[: 32 * SIZE] = os.urandom(32 * SIZE)
            keys = [f"python:{i}" for i in range(32)]
            client.delete(keys)
            self.assertEqual(client.exists(keys), [False] * 32)
            results = client.set([(key, region, i * SIZE, SIZE) for i, key in enumerate(keys)], expire=1000)
            self.assertTrue(all(r.ok for r in results), results)
            self.assertEqual(client.exists(keys + ["python:none"]), [True] * 32 + [False])
            results = client.get([(key, region, (32 + i) * SIZE, SIZE) for i, key in enumerate(keys)], check=True)
            self.assertEqual([r.size for r in results], [SIZE] * 32)
            self.assertEqual(memory[: 32 * SIZE], memory[32 * SIZE :])
            self.assertEqual(results[5].checksum, valkeyrdma.checksum(memory[5 * SIZE : 6 * SIZE]))
            self.assertEqual(client.delete(["python:3", "python:none"]), [True, False])
            missing, = client.get([("python:3", region, 0, SIZE)])
            self.assertTrue(missing.missing and not missing.ok and missing.check() is missing)
            region.free()

    def test_buffers_of_every_kind(self):
        class Tensor:  # as torch
            def __init__(self, size):
                self.memory = (ctypes.c_char * size)()

            def data_ptr(self):
                return ctypes.addressof(self.memory)

            def is_contiguous(self):
                return True

            def numel(self):
                return len(self.memory)

            def element_size(self):
                return 1

        with open_client() as client:
            source = client.register(bytes(range(256)) * 16, get=False)
            self.assertTrue(client.set([(b"python:\0bytes", source)])[0].ok)
            for buffer in (bytearray(4096), array.array("d", [0] * 512), memoryview(bytearray(4096)), Tensor(4096)):
                region = client.register(buffer)
                self.assertEqual(len(region), 4096)
                result, = client.get([(b"python:\0bytes", region)], check=True)
                self.assertEqual((result.code, result.size), (0, 4096))
                held = bytes(buffer.memory) if isinstance(buffer, Tensor) else bytes(buffer)
                self.assertEqual(held, bytes(range(256)) * 16)
                if isinstance(buffer, bytearray):
                    with self.assertRaises(BufferError):
                        buffer.append(0)  # it stays where it is
                    region.free()
                    buffer.append(0)

    def test_arguments_are_checked(self):
        with open_client() as client:
            region = client.register(bytearray(100))
            for place in ((region, 0, 101), (region, 100, 1), (region, -1, 1), (region, 0, 0)):
                with self.assertRaises(ValueError):
                    client.get([("k", *place)])
            with self.assertRaises(BufferError):
                client.register(b"constant")
            readable = client.register(b"constant", get=False)
            with self.assertRaises(ValueError):
                client.get([("k", readable)])
            with self.assertRaises(ValueError):
                client.set([("k", readable)], nx=True, xx=True)
            readable.free()
            with self.assertRaises(ValueError):
                client.set([("k", readable)])
            self.assertEqual(client.get([]), [])
        with self.assertRaises(ValueError):
            client.exists(["k"])

    def test_conditions(self):
        with open_client() as client:
            region = client.register(bytearray(b"x" * 50))
            client.delete(["python:c"])
            self.assertEqual(client.set([("python:c", region)], xx=True)[0].code, -errno.ENOENT)
            self.assertEqual(client.set([("python:c", region)], nx=True)[0].code, 0)
            self.assertEqual(client.set([("python:c", region)], nx=True)[0].code, -errno.EEXIST)
            self.assertEqual(client.set([("python:c", region)], xx=True, keepttl=True)[0].code, 0)
            small, = client.get([("python:c", region, 0, 49)])
            self.assertEqual(small.code, -errno.EMSGSIZE)
            with self.assertRaises(ValueError):
                small.check()

    def test_threads_share_a_client(self):
        with open_client() as client:
            memory = valkeyrdma.arena(16 * SIZE)
            region = client.register(memory)
            wrong = []

            def work(number):
                here = number * 2 * SIZE
                for turn in range(20):
                    memory[here : here + SIZE] = bytes([number * 16 + turn % 16]) * SIZE
                    client.set([(f"python:t{number}", region, here, SIZE)])[0].check()
                    client.get([(f"python:t{number}", region, here + SIZE, SIZE)], check=True)[0].check()
                    if memory[here : here + SIZE] != memory[here + SIZE : here + 2 * SIZE]:
                        wrong.append(number)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_an_unreachable_server_is_named(self):
        with self.assertRaises(OSError) as raised:
            Client(common.host, 1, connect_timeout=2)
        self.assertIn(f"{common.host}:1", str(raised.exception))

    def test_help_is_a_manual(self):
        text = pydoc.render_doc(valkeyrdma.Client)
        for word in ("reconnect", "check: compares", "expire: seconds", "connect_timeout"):
            self.assertIn(word, text)

    @common.standin_only
    def test_a_timeout_gives_the_memory_back(self):
        with open_client() as client:
            memory = bytearray(SIZE)
            region = client.register(memory)
            client.set([("flood:p", region)])
            late, = client.get([("flood:p", region)], timeout=0.05)
            memory[:] = b"U" * SIZE
            with self.assertRaises(TimeoutError):
                late.check()
            with self.assertRaises(valkeyrdma.ConnectionLost):
                client.exists(["x"])  # it does not connect by itself
            client.connect()
            for _ in range(20):
                client.exists(["x"])
            self.assertEqual(memory, b"U" * SIZE)
        with open_client(reconnect=True) as client:
            region = client.register(memory)
            client.get([("never:p", region)], timeout=0.05)
            self.assertEqual(client.exists(["x"]), [False])

    @common.standin_only
    def test_an_interrupt_gives_the_memory_back(self):
        class Interrupted(Exception):
            pass

        def interrupt(*_):
            raise Interrupted

        with open_client() as client:
            memory = bytearray(SIZE)
            region = client.register(memory)
            client.set([("flood:i", region)])
            before = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                with self.assertRaises(Interrupted):
                    client.get([("flood:i", region)])
            finally:
                signal.signal(signal.SIGALRM, before)
            memory[:] = b"U" * SIZE
            client.connect()
            for _ in range(20):
                client.exists(["x"])
            self.assertEqual(memory, b"U" * SIZE)

    @common.standin_only
    def test_wrong_checksums_and_errors(self):
        with open_client(password="secret") as client:
            region = client.register(bytearray(SIZE))
            client.set([("wrong:p", region), ("moved:p", region)])
            good, = client.get([("wrong:p", region)])
            self.assertTrue(good.ok)
            bad, moved = client.get([("wrong:p", region), ("moved:p", region)], check=True)
            with self.assertRaises(valkeyrdma.ChecksumError):
                bad.check()
            with self.assertRaisesRegex(valkeyrdma.ServerError, "MOVED 7 "):
                moved.check()
        with self.assertRaisesRegex(valkeyrdma.ServerError, "WRONGPASS"):
            open_client(password="other")

    @common.standin_only
    def test_redirections_are_followed(self):
        with open_client(cluster=True) as client:
            region = client.register(bytearray(SIZE))
            client.set([("ask:p", region), ("moved:p", region), ("plain:p", region)])
            asked, moved, plain = client.get([("ask:p", region), ("moved:p", region), ("plain:p", region)])
            self.assertTrue(asked.ok and plain.ok)
            self.assertEqual(moved.code, -errno.EREMOTE)  # it moves for ever: given up


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def open(self, **options):
        return await AsyncClient.open(common.host, common.port, **options)

    async def test_calls_side_by_side(self):
        async with await self.open() as client:
            memory = valkeyrdma.arena(64 * SIZE)
            memory[: 32 * SIZE] = os.urandom(32 * SIZE)
            region = client.register(memory)

            async def one(number):
                name = f"python:a{number}"
                (await client.set([(name, region, number * SIZE, SIZE)]))[0].check()
                self.assertEqual(await client.exists([name, "python:none"]), [True, False])
                result, = await client.get([(name, region, (32 + number) * SIZE, SIZE)], check=True)
                self.assertEqual((result.code, result.size), (0, SIZE))
                self.assertEqual(await client.delete([name]), [True])

            await asyncio.gather(*(one(n) for n in range(32)))
            self.assertEqual(memory[: 32 * SIZE], memory[32 * SIZE :])
            self.assertEqual(await client.get([]), [])

    async def test_an_unreachable_server_is_named(self):
        with self.assertRaises(OSError):
            await AsyncClient.open(common.host, 1, connect_timeout=2)

    @common.standin_only
    async def test_a_cancelled_call_gives_the_memory_back(self):
        async with await self.open() as client:
            memory = bytearray(SIZE)
            region = client.register(memory)
            await client.set([("flood:a", region)])
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(client.get([("flood:a", region)]), 0.1)
            memory[:] = b"U" * SIZE
            await client.connect()
            for _ in range(20):
                await client.exists(["x"])
            self.assertEqual(memory, b"U" * SIZE)

    @common.standin_only
    async def test_closing_ends_what_is_under_way(self):
        client = await self.open()
        region = client.register(bytearray(SIZE))
        await client.set([("never:a", region)])
        call = asyncio.ensure_future(client.get([("never:a", region)]))
        await asyncio.sleep(0)
        await client.close()
        self.assertEqual((await call)[0].code, -errno.ECANCELED)


if __name__ == "__main__":
    common.main()
