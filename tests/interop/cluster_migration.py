#!/usr/bin/env python3
"""Atomic migration of slots between genuine nodes and ours: each kind as the source, the target, and the replica of the
target; with changes on the way, a replica that is copied in the middle, and a failover of the source. The copies of a
shard must be equal at each step, and what was moved must be what the source had. A genuine cluster and ours must also
answer the same to commands with wrong arguments, by hand, and during a migration.

    tests/interop/cluster_migration.py
"""
import contextlib
import re

from common import Client, Report, Server, newest_server, ours, until

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
    keys, before = pair.source.keys(), pair.source.call("DEBUG", "DIGEST")
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


class Transcript:
    """What a cluster answers, without the ids and ports of its nodes."""

    def __init__(self, pair):
        self.pair, self.lines = pair, []

    def note(self, what, answer):
        line = "%s: %s" % (what, answer.decode() if isinstance(answer, bytes) else answer)
        for i, node in enumerate(self.pair.nodes):
            line = line.replace(node.id, "<node %d>" % i).replace(str(node.server.port), "<port %d>" % i)
        self.lines.append(line)

    def call(self, node, *words):
        self.note(" ".join(map(str, words)), node.call(*words))

    def jobs(self, node):
        names, texts = (b"operation", b"slot_ranges", b"source_node", b"target_node", b"state", b"message"), []
        for job in node.call("CLUSTER", "GETSLOTMIGRATIONS"):
            fields = dict(zip(job[::2], job[1::2]))
            texts.append(" ".join(fields.get(name, b"-").decode().strip() for name in names))
        if any("IMPORT" in text for text in texts):
            texts.sort()  # which of two connections is accepted first is left to chance
        for text in texts:
            self.note("job", text)


def wrong_arguments(script, source, target, source_copy):
    for words in ("", "slotsrange", "slotsrange 0", "slotsrange 0 1", "slotsrange 0 1 node", "slotsrange 0 1 node x",
                  "slotsrange 0 1 node " + "f" * 40, "slotsrange 0 1 node " + "F" * 40,
                  "slotsrange 0 1 node " + "x" * 300, "slotsrange 0 1 node " + source.id,
                  "slotsrange node " + target.id, "slotsrange 0 1 2 node " + target.id,
                  "slotsrange 5 1 node " + target.id, "slotsrange -1 1 node " + target.id,
                  "slotsrange 0 16384 node " + target.id, "slotsrange 01 02 node " + target.id,
                  "slotsrange 0 5 2 3 node " + target.id, "slotsrange 0 16383 node " + target.id,
                  "slotsrange 16000 16001 node " + source.id, "slotsrange 16000 16001 node " + "f" * 40,
                  "slotsrange 16000 16001 node x", "slotsrange 16000 16001", "slotsrange 16000 16001 foo",
                  "slotsrange 0 1 node %s foo" % target.id,
                  "slotsrange 0 1 node %s slotsrange 1 2 node %s" % (target.id, target.id)):
        script.call(source, "CLUSTER", "MIGRATESLOTS", *words.split())
    script.call(source_copy, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", target.id)
    script.call(source, "CLUSTER", "CANCELSLOTMIGRATIONS")
    script.call(source, "CLUSTER", "CANCELSLOTMIGRATIONS", "ALL")
    name, named = "n" * 40, "source %s name %s" % (source.id, "n" * 40)
    for words in ("ack", "snapshot-eof", "request-pause", "paused", "request-failover", "failover-granted", "finish",
                  "foo", "finish state success name " + name, "establish", "establish " + named,
                  "establish source %s slotsrange 0 1" % source.id, "establish name %s slotsrange 0 1" % name,
                  "establish source %s name short slotsrange 0 1" % source.id, "establish %s slotsrange 0" % named,
                  "establish source %s name %s slotsrange 0 1" % ("F" * 40, name),
                  "establish source %s name %s slotsrange 0 1" % (target.id, name),
                  "establish %s slotsrange 16000 16001" % named, "establish %s slotsrange 0 1 slotsrange 2 3" % named,
                  "establish %s slotsrange 0 1 name %s" % (named, name)):
        script.call(target, "CLUSTER", "SYNCSLOTS", *words.split())


def by_hand(script, source, target):
    """A client in place of the source."""
    ack, eof = ("CLUSTER", "SYNCSLOTS", "ACK"), ("CLUSTER", "SYNCSLOTS", "SNAPSHOT-EOF")
    own = "{%s}" % TAGS[0]
    for number, commands in enumerate((
            (eof,), (ack, ack), (ack, ("CLUSTER", "SYNCSLOTS", "PAUSED")), (ack, ("CLUSTER", "SYNCSLOTS", "FOO")),
            (ack, ("CLUSTER", "SYNCSLOTS", "FAILOVER-GRANTED")), (ack, ("CLUSTER", "SYNCSLOTS", "REQUEST-PAUSE")),
            (ack, ("CLUSTER", "SYNCSLOTS", "REQUEST-FAILOVER")), (ack, eof, eof), (ack, ("NOSUCH", own)),
            (ack, ("SET", own, "1"), ("LPUSH", own, "1"), ("SET", own + "2", "1")), (ack, ("SELECT", "99")))):
        with Client(target.server.port) as client:
            client.call("CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE", source.id, "NAME", "%040d" % number,
                        "SLOTSRANGE", "0", "1")
            client.send(*commands)
            until(lambda: target.state() != "waiting-for-ack" and (commands == (ack, ack) or
                                                                   target.state() == "failed"), 10)
            script.note("by hand %d" % number, "%s, %s" % (target.state(), target.job().get("message")))
        until(lambda: target.state() == "failed", 10)
    sent = re.findall(r"== CRITICAL ==.*|Received .*CLUSTER SYNCSLOTS .*", target.server.output(None))
    for line in sent:
        script.note("log", re.sub("[0-9a-f]{40}", "<job>", line))
    script.note("keys", target.keys())


def during(script, source, target):
    source.call("DEBUG", "SLOTMIGRATION", "PREVENT-PAUSE", "1")
    script.call(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "1", "NODE", target.id, "SLOTSRANGE", "5", "5",
                "NODE", target.id)
    until(lambda: all(b"waiting-to-pause" in job for job in source.call("CLUSTER", "GETSLOTMIGRATIONS")), 20)
    until(lambda: [job for job in target.call("CLUSTER", "GETSLOTMIGRATIONS") if b"waiting-for-paused" in job][1:], 20)
    script.jobs(source)
    script.jobs(target)
    for node in source, target:
        for kind in ("replica", "normal"):
            shown = re.findall("flags=[Ei] ", node.call("CLIENT", "LIST", "TYPE", kind).decode())
            script.note("flags of type " + kind, shown)
        for slot in ("0", "7"):
            script.call(node, "CLUSTER", "SETSLOT", slot, "STABLE")
    script.call(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "1", "1", "NODE", target.id)
    script.call(target, "CLUSTER", "CANCELSLOTMIGRATIONS")
    script.call(source, "CLUSTER", "CANCELSLOTMIGRATIONS")
    until(lambda: target.state() == "failed", 20)
    script.jobs(source)


def transcript(kind, programs):
    with contextlib.ExitStack() as stack:
        pair = Pair(stack, (kind,) * 4, programs)
        script = Transcript(pair)
        wrong_arguments(script, pair.source, pair.target, pair.source_copy)
        by_hand(script, pair.source, pair.target)
        pair.fill()
        during(script, pair.source, pair.target)
        return script.lines


def same_answers(programs):
    wanted, found = transcript("genuine", programs), transcript("ours", programs)
    for want, got in zip(wanted, found):
        report.equal("answers: " + want.split(":")[0][:60], want, got)
    report.equal("answers: their number", len(wanted), len(found))


def main():
    genuine, reason = newest_server()
    if not genuine:
        report.missing("migration of slots between genuine nodes and ours", reason)
        report.finish()
    programs = {"ours": ours(), "genuine": genuine}
    same_answers(programs)
    for kinds in LAYOUTS:
        scenario(kinds, programs)
    for kinds in (("ours",) * 4, LAYOUTS[1]):
        target_without_memory(kinds, programs)
    report.finish()


if __name__ == "__main__":
    main()
