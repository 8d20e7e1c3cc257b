#!/usr/bin/env python3
"""Atomic migration of slots between genuine nodes and ours: each kind as the source, the target, and the replica of the
target; with changes on the way, a replica that is copied in the middle, and a failover of the source. The copies of a
shard must be equal at each step, and what was moved must be what the source had.

    tests/interop/cluster_migration.py
"""
import contextlib

from common import Report, Server, newest_server, ours, until

report = Report()
SLOTS = (0, 1)
TAGS = ("k596", "k37999")  # keys of these slots
LAYOUTS = (("ours", "genuine", "genuine", "ours"), ("genuine", "ours", "ours", "genuine"),
           ("ours", "ours", "genuine", "genuine"), ("genuine", "genuine", "ours", "ours"))


class Node:
    def __init__(self, stack, kind, programs):
        self.kind = kind
        self.server = stack.enter_context(Server(
            programs[kind], "--cluster-enabled", "yes", "--cluster-node-timeout", "10000",
            "--cluster-ping-interval", "100", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes",
            "--appendonly", "yes"))
        self.id = self.call("CLUSTER", "MYID").decode()

    def call(self, *words):
        return self.server.call(*words)

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def offset(self):
        info = self.info("replication")
        return int(info.get("slave_repl_offset", info["master_repl_offset"]))

    def job(self):
        jobs = self.call("CLUSTER", "GETSLOTMIGRATIONS")
        if not jobs:
            return {}
        job = jobs[0]
        if isinstance(job, dict):
            return {name.decode(): value for name, value in job.items()}
        return {job[i].decode(): job[i + 1] for i in range(0, len(job), 2)}

    def state(self):
        return self.job().get("state", b"").decode()

    def keys(self):
        return sum(self.call("CLUSTER", "COUNTKEYSINSLOT", str(slot)) for slot in SLOTS)


class Pair:
    """Two shards of a primary and a replica each."""

    def __init__(self, stack, kinds, programs):
        self.nodes = [Node(stack, kind, programs) for kind in kinds]
        self.source, self.target, self.source_copy, self.target_copy = self.nodes
        self.source.call("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
        self.target.call("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
        self.target.call("CLUSTER", "BUMPEPOCH")
        for node in self.nodes[1:]:
            self.source.call("CLUSTER", "MEET", "127.0.0.1", str(node.server.port), str(node.server.port + 10000))
        until(lambda: all(b"cluster_known_nodes:4" in node.call("CLUSTER", "INFO") and
                          b"cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes), 30)
        for primary, copy in ((self.source, self.source_copy), (self.target, self.target_copy)):
            until(lambda: copy.call("CLUSTER", "REPLICATE", primary.id) == "OK", 20)
        until(lambda: all(copy.info("replication").get("master_link_status") == "up"
                          for copy in (self.source_copy, self.target_copy)), 30)

    def fill(self):
        for tag in TAGS:
            for i in range(40):
                key = "{%s}%d" % (tag, i)
                self.source.call("SET", key, "value %d" % i)
                self.source.call("RPUSH", key + "list", *[str(j) for j in range(200)])
                self.source.call("ZADD", key + "zset", "1.5", "a", "2", "b")
                self.source.call("HSETEX", key + "hash", "EX", "1000", "FIELDS", "1", "f", "v")
                self.source.call("XADD", key + "stream", "1-1", "f", "v")
                if i % 3 == 0:
                    self.source.call("PEXPIRE", key, "1000000")

    def copies_equal(self):
        for primary, copy in ((self.source, self.source_copy), (self.target, self.target_copy)):
            if not until(lambda: primary.offset() == copy.offset(), 20):
                return False
            if primary.call("DEBUG", "DIGEST") != copy.call("DEBUG", "DIGEST"):
                return False
        return True

    def swap(self):
        self.source, self.target = self.target, self.source
        self.source_copy, self.target_copy = self.target_copy, self.source_copy


def move(pair, what, prevent):
    """Moves the slots; changes keys in the middle if `prevent`."""
    keys = pair.source.keys()
    if prevent:
        pair.source.call("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", "1")
    answer = pair.source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", pair.target.id)
    report.check(what + ": it begins", str(answer) in ("OK", "b'OK'"), str(answer))
    if prevent:
        until(lambda: pair.target.state() == "waiting-for-paused", 20)
        hidden = (pair.target.call("DBSIZE"), pair.target_copy.call("DBSIZE"), pair.target.keys())
        report.check(what + ": the keys are hidden at the target", hidden == (0, 0, keys), str(hidden))
        pair.source.call("APPEND", "{%s}1" % TAGS[0], "changed")
        pair.source.call("DEL", "{%s}2" % TAGS[0])
        keys -= 1
    before = pair.source.call("DEBUG", "DIGEST")
    if prevent:
        pair.source.call("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", "0")
    until(lambda: pair.source.state() == "success" and pair.target.state() == "success", 20)
    states = (pair.source.state(), pair.target.state(), pair.source.job().get("message"))
    report.check(what + ": it succeeds", states[:2] == ("success", "success"), str(states))
    report.check(what + ": the target has what the source had", pair.target.call("DEBUG", "DIGEST") == before and
                 pair.target.keys() == keys and pair.source.keys() == 0, str((pair.target.keys(), pair.source.keys())))
    report.check(what + ": the copies are equal", pair.copies_equal(), "")


def scenario(kinds, programs):
    name = "%s to %s" % kinds[:2]
    with contextlib.ExitStack() as stack:
        pair = Pair(stack, kinds, programs)
        pair.fill()
        move(pair, name, True)
        pair.swap()
        move(pair, name + ", the way back", False)
        pair.swap()
        pair.source.call("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", "1")
        pair.source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", pair.target.id)
        until(lambda: pair.target.state() == "waiting-for-paused", 20)
        keys = pair.source.keys()
        pair.source.call("CLUSTER", "CANCELSLOTMIGRATIONS")
        until(lambda: pair.target.state() == "failed", 20)
        report.check(name + ": a cancelled migration leaves nothing", pair.target.keys() == 0 and
                     pair.source.keys() == keys and pair.copies_equal() and pair.target_copy.keys() == 0,
                     str((pair.target.keys(), pair.source.keys())))
        pair.source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", pair.target.id)
        until(lambda: pair.target.state() == "waiting-for-paused", 20)
        pair.target_copy.server.process.kill()
        pair.target_copy.server.process.wait()
        pair.target_copy.server.start()
        until(lambda: pair.target_copy.info("replication").get("master_link_status") == "up", 30)
        pair.source.call("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", "0")
        until(lambda: pair.source.state() == "success", 20)
        report.check(name + ": a replica of the target that restarts in the middle", pair.copies_equal() and
                     pair.target_copy.call("DBSIZE") == keys, str(pair.target_copy.call("DBSIZE")))


def target_without_memory(kinds, programs):
    """The migration fails, the target evicts its own keys only, and the source keeps all."""
    for policy in ("noeviction", "allkeys-lru"):
        name = "%s to %s, no memory at the target, %s" % (*kinds[:2], policy)
        with contextlib.ExitStack() as stack:
            pair = Pair(stack, kinds, programs)
            for node, tag, keys in ((pair.source, TAGS[0], 60), (pair.target, "own", 5)):
                for i in range(keys):
                    node.call("MSET", *[word for j in range(100) for word in ("{%s}%d.%d" % (tag, i, j), "x" * 1000)])
            before = pair.source.call("DEBUG", "DIGEST")
            memory = pair.target.info("memory")
            limit = int(memory["used_memory"]) - int(memory["mem_not_counted_for_evict"]) + 2000000
            pair.target.call("CONFIG", "SET", "maxmemory", str(limit), "maxmemory-policy", policy,
                             "maxmemory-eviction-tenacity", "100")
            pair.source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", pair.target.id)
            until(lambda: pair.source.state() == "failed" and pair.target.state() == "failed", 20)
            pair.target.call("CONFIG", "SET", "maxmemory", "0")
            found = (pair.source.state(), pair.target.state(), pair.target.job().get("message"))
            report.equal(name, ("failed", "failed", b"Ran out of memory (OOM) during slot import"), found)
            found = (pair.target.keys(), pair.target.call("DBSIZE"))
            report.equal(name + ": its keys", (0, 500 if policy == "noeviction" else 0), found)
            report.check(name + ": the source keeps all", pair.source.call("DEBUG", "DIGEST") == before, "")
            report.check(name + ": the copies are equal", pair.copies_equal(), "")


def main():
    genuine, reason = newest_server()
    if not genuine:
        report.missing("migration of slots between genuine nodes and ours", reason)
        report.finish()
    programs = {"ours": ours(), "genuine": genuine}
    for kinds in LAYOUTS:
        scenario(kinds, programs)
    for kinds in (("ours",) * 4, LAYOUTS[1]):
        target_without_memory(kinds, programs)
    report.finish()


if __name__ == "__main__":
    main()
