"""The connector for LMCache, used by a stand-in that has exactly LMCache's interface."""

import ctypes
import os
import threading
import unittest

import common
import fake_lmcache
from fake_lmcache import L1MemoryDesc, MemoryObj, ObjectKey, load, lookup, store

fake_lmcache.install()
import valkeyrdma  # noqa: E402
from valkeyrdma.lmcache import ValkeyRdmaL2AdapterConfig, wire_key  # noqa: E402

BLOCK = 1 << 16
COUNT = 64


class Connector(unittest.TestCase):
    def setUp(self):
        self.arena = valkeyrdma.arena(2 * COUNT * BLOCK)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.arena))
        self.desc = L1MemoryDesc(ptr=address, size=2 * COUNT * BLOCK)
        self.adapter = None

    def tearDown(self):
        if self.adapter:
            self.adapter.close()

    def open(self, desc="", **params):
        entry = {
            "type": "plugin", "module_path": "valkeyrdma.lmcache", "class_name": "ValkeyRdmaL2Adapter",
            "adapter_params": {"startup_nodes": f"{common.host}:{common.port}", **params},
        }
        self.adapter = fake_lmcache.make(entry, self.desc if desc == "" else desc)
        return self.adapter

    def object(self, number, size=BLOCK):
        return MemoryObj(memoryview(self.arena)[number * BLOCK : (number + 1) * BLOCK], size)

    def keys(self, name, count=COUNT):
        return [ObjectKey(f"{name}:{i}:".encode().ljust(32, b"h"), "model-8B", 0x02010201) for i in range(count)]

    def test_keys_are_those_of_lmcache(self):
        key = ObjectKey(b"\x01\xab", "meta/llama", 0x02010201, 26, "salt")
        self.assertEqual(wire_key(key), b"meta/llama@02010201@1a@01ab@salt")
        self.assertEqual(wire_key(ObjectKey(b"\xff", "m", 1), "p"), b"p@m@00000001@0@ff")

    def test_store_lookup_load(self):
        adapter, keys = self.open(ttl_seconds=1000), self.keys("cycle")
        adapter.delete(keys)
        self.arena[: COUNT * BLOCK] = os.urandom(COUNT * BLOCK)
        self.assertEqual(lookup(adapter, keys, group_layout_descs={0: None}).popcount(), 0)
        self.assertEqual(store(adapter, keys, [self.object(i) for i in range(COUNT)]), COUNT * BLOCK)
        self.assertEqual(adapter.total, COUNT * BLOCK)
        store(adapter, keys, [self.object(i) for i in range(COUNT)])
        self.assertEqual(adapter.total, COUNT * BLOCK)  # a key that is stored again counts once
        found = lookup(adapter, keys + self.keys("absent", 3))
        self.assertEqual(found.bits, [True] * COUNT + [False] * 3)
        loaded = load(adapter, keys, [self.object(COUNT + i) for i in range(COUNT)])
        self.assertEqual(loaded.popcount(), COUNT)
        self.assertEqual(adapter.accessed, COUNT)
        self.assertEqual(self.arena[: COUNT * BLOCK], self.arena[COUNT * BLOCK :])
        self.assertEqual(adapter.report_status()["is_healthy"], True)
        # Locked keys are not deleted.
        adapter.delete(keys)
        self.assertEqual(lookup(adapter, keys).popcount(), COUNT)
        adapter.submit_unlock(keys)
        adapter.submit_unlock(keys)
        adapter.submit_unlock(keys)  # more often than locked: no failure
        adapter.delete(keys)
        self.assertEqual(lookup(adapter, keys).popcount(), 0)
        self.assertEqual(adapter.total, 0)

    def test_a_value_of_another_size_is_a_miss(self):
        adapter, keys = self.open(), self.keys("size", 3)
        self.assertEqual(store(adapter, keys, [self.object(i, 1000) for i in range(3)]), 3000)
        loaded = load(adapter, keys, [self.object(10, 1000), self.object(11, 1001), self.object(12, 999)])
        self.assertEqual(loaded.bits, [True, False, False])
        adapter.submit_unlock(keys)

    def test_objects_outside_the_arena(self):
        adapter, keys = self.open(desc=None), self.keys("outside", 2)
        objects = [MemoryObj(memoryview(bytearray(os.urandom(BLOCK))), BLOCK) for _ in range(2)]
        self.assertEqual(store(adapter, keys, objects), 2 * BLOCK)
        others = [MemoryObj(memoryview(bytearray(BLOCK)), BLOCK) for _ in range(2)]
        self.assertEqual(load(adapter, keys, others).popcount(), 2)
        self.assertEqual([bytes(o.byte_array) for o in objects], [bytes(o.byte_array) for o in others])

    def test_controllers_on_several_threads(self):
        adapter = self.open(num_connections=2)
        wrong = []

        def work(number):
            try:
                keys = self.keys(f"thread{number}", 8)
                base = number * 16
                for turn in range(5):
                    for i in range(8):
                        at = (base + i) * BLOCK
                        self.arena[at : at + BLOCK] = bytes([number * 32 + turn * 4 + i % 4]) * BLOCK
                    task = adapter.submit_store_task(keys, [self.object(base + i) for i in range(8)])
                    with condition:
                        condition.wait_for(lambda: task in stored, 20)
                        assert stored[task] == 8 * BLOCK, stored
                    task = adapter.submit_load_task(keys, [self.object(base + 8 + i) for i in range(8)])
                    while not (loaded := adapter.query_load_result(task)):
                        pass
                    assert loaded.popcount() == 8
                    first = self.arena[base * BLOCK : (base + 8) * BLOCK]
                    assert first == self.arena[(base + 8) * BLOCK : (base + 16) * BLOCK]
            except BaseException as error:
                wrong.append(repr(error))
                raise

        stored, condition, ended = {}, threading.Condition(), []

        def collect():
            while not ended:
                more = adapter.pop_completed_store_tasks()
                with condition:
                    stored.update(more)
                    condition.notify_all()

        collector = threading.Thread(target=collect)
        collector.start()
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended.append(True)
        collector.join()
        self.assertEqual(wrong, [])

    def test_configurations_are_checked(self):
        for params in ({}, {"startup_nodes": "nowhere"}, {"startup_nodes": "a:1", "key_prefix": "a@b"},
                       {"startup_nodes": "a:1", "colour": 1}, {"startup_nodes": "a:1", "ttl_seconds": "soon"}):
            with self.assertRaises(ValueError):
                ValkeyRdmaL2AdapterConfig.from_dict(params)
        self.assertIn("startup_nodes", ValkeyRdmaL2AdapterConfig.help())
        with self.assertRaises(OSError):
            fake_lmcache.make({
                "module_path": "valkeyrdma.lmcache", "class_name": "ValkeyRdmaL2Adapter",
                "adapter_params": {"startup_nodes": f"{common.host}:1", "connection_timeout": 1},
            })

    def test_failures_are_misses_and_it_connects_again(self):
        adapter, keys = self.open(request_timeout=0.2), [ObjectKey(b"k", "never", 1)]
        if not common.real:
            loaded = load(adapter, keys, [self.object(0)])
            self.assertEqual(loaded.bits, [False])
            self.assertFalse(adapter.report_status()["is_healthy"])
        self.assertEqual(store(adapter, self.keys("after", 1), [self.object(0)]), BLOCK)
        self.assertEqual(store(adapter, self.keys("after", 1), [self.object(0, 0)]), -1)
        self.assertTrue(adapter.report_status()["is_healthy"])


if __name__ == "__main__":
    common.main()
