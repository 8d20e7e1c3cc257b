#!/usr/bin/env python3
"""The adapter of the Python package (python/valkeyrdma/lmcache.py) in LMCache itself, on the software device.

    LMCACHE_PYTHON=/path/to/python tests/interop/lmcache_adapter.py

LMCACHE_PYTHON: a Python that has LMCache, for example of a virtual environment (default: the one that runs this). The
program runs itself there, under the software device (--within HOST PORT). The adapter must be a subclass of LMCache's
interface, implement all of its abstract methods with their parameters, and store, find and load blocks with LMCache's
own keys and bitmaps. Where LMCache has a function that makes an adapter from an entry of --l2-adapter, that makes
it."""
import ctypes
import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import select
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT, BLOCK = 32, 1 << 18
ENTRY = {"type": "plugin", "module_path": "valkeyrdma.lmcache", "class_name": "ValkeyRdmaL2Adapter"}
PACKAGES = ("lmcache.v1.distributed", "lmcache.lmcache_native", "lmcache.native_storage_ops")


def modules():
    """LMCache's modules that may have the interface. Those that lack a dependency are left out."""
    for name in PACKAGES:
        try:
            package = importlib.import_module(name)
        except ImportError:
            continue
        yield package
        for info in pkgutil.walk_packages(getattr(package, "__path__", []), name + ".", onerror=lambda name: None):
            try:
                yield importlib.import_module(info.name)
            except ImportError:
                continue


def find(*names):
    for name in names:
        for module in modules():
            if hasattr(module, name):
                return getattr(module, name)
    return None


class Block:
    """A memory object: the parts of LMCache's MemoryObj that adapters use, without torch."""

    def __init__(self, view):
        self.byte_array = view

    def get_size(self):
        return len(self.byte_array)

    def get_physical_size(self):
        return len(self.byte_array)


def parameters(function):
    return [p for p in inspect.signature(function).parameters.values() if p.name != "self"]


def accepts(ours, theirs):
    """Whether a call that fits `theirs` fits `ours`, by position and by name."""
    mine, wanted = parameters(ours), parameters(theirs)
    if any(p.kind == p.VAR_KEYWORD for p in mine):
        mine = [p for p in mine if p.kind != p.VAR_KEYWORD]
        wanted = [p for p in wanted if p.default is p.empty or p.name in [m.name for m in mine]]
    names = [p.name for p in mine if p.default is p.empty]
    return len(mine) >= len(wanted) and names == [p.name for p in wanted][:len(names)]


def until(fd, poll):
    while True:
        found = poll()
        if found is not None:
            return found
        if not select.select([fd], [], [], 30)[0]:
            raise TimeoutError("no event")
        os.read(fd, 8)


def make(report, desc):
    """The adapter, made by LMCache if it has a function for that which takes an entry of --l2-adapter."""
    import valkeyrdma.lmcache as ours
    entry = {**ENTRY, "adapter_params": {"startup_nodes": "%s:%s" % tuple(sys.argv[2:4]), "ttl_seconds": 1000}}
    loader = find("create_l2_adapter_from_dict", "create_l2_adapter")
    if loader:
        try:
            return loader(entry, l1_memory_desc=desc)
        except (TypeError, AttributeError) as error:  # it wants another kind of configuration
            report.skip("made by LMCache's loader", "%s: %s" % (loader.__name__, error))
    config = ours.ValkeyRdmaL2AdapterConfig.from_dict(entry)
    return ours.ValkeyRdmaL2Adapter(config, l1_memory_desc=desc)


def cycle(report, adapter, arena):
    key_class = find("ObjectKey")
    if not report.check("LMCache has ObjectKey", key_class):
        return
    keys = [key_class(chunk_hash=b"interop:%d:" % i + bytes(20), model_name="meta/model-8B", kv_rank=0x02010201,
                      object_group_id=0, cache_salt="") for i in range(COUNT)]
    view = memoryview(arena)
    blocks = [Block(view[i * BLOCK:(i + 1) * BLOCK]) for i in range(2 * COUNT)]
    view[:COUNT * BLOCK] = os.urandom(COUNT * BLOCK)
    stored = {}

    def pop(task):
        stored.update(adapter.pop_completed_store_tasks())
        return stored.get(task)

    def lookup(what):
        task = adapter.submit_lookup_and_lock_task(what)
        return until(adapter.get_lookup_and_lock_event_fd(), lambda: adapter.query_lookup_and_lock_result(task))

    found = lookup(keys)
    report.equal("found at first", [False] * COUNT, [bool(found.test(i)) for i in range(COUNT)])
    task = adapter.submit_store_task(keys, blocks[:COUNT])
    report.equal("bytes stored", COUNT * BLOCK, until(adapter.get_store_event_fd(), lambda: pop(task)))
    found = lookup(keys[:3] + [key_class(chunk_hash=b"absent", model_name="m", kv_rank=1, object_group_id=0,
                                         cache_salt="")])
    report.equal("found", [True, True, True, False], [bool(found.test(i)) for i in range(4)])
    task = adapter.submit_load_task(keys, blocks[COUNT:])
    loaded = until(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
    report.equal("loaded", [True] * COUNT, [bool(loaded.test(i)) for i in range(COUNT)])
    report.check("the loaded bytes are those stored", view[:COUNT * BLOCK] == view[COUNT * BLOCK:])
    report.check("healthy", adapter.report_status()["is_healthy"])
    adapter.submit_unlock(keys[:3])
    adapter.delete(keys)
    found = lookup(keys)
    report.equal("found after delete", [False] * COUNT, [bool(found.test(i)) for i in range(COUNT)])


def within():
    from common import Report
    sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
    report = Report()
    import valkeyrdma
    from valkeyrdma.lmcache import ValkeyRdmaL2Adapter
    print("LMCache %s" % importlib.metadata.version("lmcache"))
    interface, desc_class = find("L2AdapterInterface"), find("L1MemoryDesc")
    if not report.check("LMCache has L2AdapterInterface and L1MemoryDesc", interface and desc_class):
        report.finish()
    report.check("the adapter is a subclass of LMCache's interface", issubclass(ValkeyRdmaL2Adapter, interface))
    report.equal("abstract methods that it lacks", [],
                 sorted(getattr(ValkeyRdmaL2Adapter, "__abstractmethods__", [])))
    for name in sorted(getattr(interface, "__abstractmethods__", [])):
        theirs, ours = getattr(interface, name), getattr(ValkeyRdmaL2Adapter, name)
        if callable(theirs):
            report.check("%s%s" % (name, inspect.signature(theirs)), accepts(ours, theirs),
                         "ours is %s" % inspect.signature(ours))
    arena = valkeyrdma.arena(2 * COUNT * BLOCK)
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    adapter = make(report, desc_class(ptr=address, size=len(arena), align_bytes=4096))
    try:
        cycle(report, adapter, arena)
    finally:
        adapter.close()
    report.finish()


def main():
    from common import Report, Server, ours, rdma_device, run
    report = Report()
    python, device = os.environ.get("LMCACHE_PYTHON", sys.executable), rdma_device()
    if not device or not os.path.exists(os.path.join(HERE, "..", "..", "build", "lib", "libvalkeyrdma.so.1")):
        report.skip("the adapter in LMCache", "built without RDMA")
    elif run(python, "-c", "import lmcache")[0] != 0:
        report.skip("the adapter in LMCache", "%s has no LMCache: set LMCACHE_PYTHON" % python)
    else:
        with Server(ours(), rdma=True) as server:
            code, out, err = run(*device, python, __file__, "--within", "127.0.0.1", server.port, timeout=120)
            print(out + err[-3000:], end="")
            report.check("the adapter in LMCache", code == 0, code)
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--within"]:
        within()
    else:
        main()
