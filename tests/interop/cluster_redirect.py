#!/usr/bin/env python3
"""Random requests to two clusters of the same shape, one of ours and one of genuine servers: two primaries and a
replica. Slots are opened, closed, moved and dropped meanwhile. All replies, pushes and error statistics must be equal:
MOVED, ASK, TRYAGAIN, CROSSSLOT, CLUSTERDOWN, transactions, scripts, waits that end because their slot leaves, ASKING,
READONLY, shard channels, tracking.

    tests/interop/cluster_redirect.py [--seed N] [--steps 1500] [--rounds 1] [--verbose]
"""
import contextlib
import random
import re
import select
import socket
import time

from common import (Client, Error, Map, Push, Report, Server, Set, Status, ours, request, required_newest,
                    seeded_options, until, wait_for)

OPTIONS = ("--cluster-enabled", "yes", "--cluster-databases", "3", "--cluster-node-timeout", "30000",
           "--cluster-ping-interval", "100", "--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration",
           "no", "--enable-debug-command", "yes")
TAGS = {"06S": 0, "Qi": 1, "5L5": 2, "4Iu": 3, "4gY": 4, "460": 5}  # and their slots
SLOTS = 16384
PATIENCE = 3  # seconds until both have what one of them has
LIBRARY = """#!lua name=lib
server.register_function('write', function(k, a) return server.call('set', k[1], a[1]) end)
server.register_function{function_name='read', callback=function(k, a) return server.call('get', k[1]) end,
                         flags={'no-writes'}}
server.register_function{function_name='any', callback=function(k, a) return server.call('get', a[1]) end,
                         flags={'allow-cross-slot-keys'}}"""
SCRIPTS = ["return redis.call('get', KEYS[1])", "return redis.call('set', KEYS[1], 1)",
           "return redis.pcall('get', ARGV[1])", "return redis.call('get', ARGV[1])", "return 1",
           "redis.call('get', KEYS[1]) return redis.call('get', KEYS[2])",
           "#!lua\nreturn redis.call('get', KEYS[1])", "#!lua\nreturn redis.call('get', ARGV[1])",
           "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])",
           "#!lua flags=allow-cross-slot-keys\nreturn redis.call('get', ARGV[1])",
           "#!lua flags=allow-cross-slot-keys\nredis.call('get', KEYS[1]) return redis.pcall('set', ARGV[1], 1)",
           "#!lua flags=no-cluster\nreturn redis.call('get', KEYS[1])", "#!lua flags=allow-stale\nreturn 1"]


class Incomplete(Exception):
    pass


class Connection:
    """Replies and pushes as they arrive."""

    def __init__(self, port):
        self.socket, self.buffer = socket.create_connection(("127.0.0.1", port)), b""

    def send(self, words):
        self.socket.sendall(request(*words))

    def fill(self, seconds):
        if not select.select([self.socket], [], [], seconds)[0]:
            return False
        data = self.socket.recv(1 << 16)
        self.buffer += data
        return bool(data)

    def parse(self, at):
        end = self.buffer.find(b"\r\n", at)
        if end < 0:
            raise Incomplete
        kind, rest, at = self.buffer[at:at + 1], self.buffer[at + 1:end].decode("latin-1"), end + 2
        if kind in b"+-":
            return (Status if kind == b"+" else Error)(rest), at
        if kind in b":,#(_":
            return kind.decode() + rest, at
        size = int(rest)
        if kind in b"$=!":
            if size < 0:
                return None, at
            if len(self.buffer) < at + size + 2:
                raise Incomplete
            return self.buffer[at:at + size], at + size + 2
        if size < 0:
            return "null array", at
        values = []
        for _ in range(size * (2 if kind == b"%" else 1)):
            value, at = self.parse(at)
            values.append(value)
        return {b"*": list, b"~": Set, b">": Push, b"%": Map}[kind](values), at

    def take(self):
        """The next reply or push that is here whole; raises Incomplete."""
        value, at = self.parse(0)
        self.buffer = self.buffer[at:]
        return value


class Cluster:
    def __init__(self, stack, program):
        self.servers = [stack.enter_context(Server(program, *OPTIONS)) for _ in "ABR"]
        self.controls = [Client(server.port) for server in self.servers]
        self.ids = [control.call("CLUSTER", "MYID").decode() for control in self.controls]
        a, b, replica = self.controls
        for i in range(TAGS_COUNT):
            (a if i < TAGS_COUNT // 2 else b).call("CLUSTER", "ADDSLOTS", i)
        a.call("CLUSTER", "ADDSLOTSRANGE", TAGS_COUNT, 8000)
        b.call("CLUSTER", "ADDSLOTSRANGE", 8001, SLOTS - 1)
        for i, control in enumerate((a, b)):
            control.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i:
                control.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        replica.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        wait_for("the replica knows its primary",
                 lambda: replica.call("CLUSTER", "REPLICATE", self.ids[0]) == "OK")
        wait_for("the replica has the data", lambda: self.servers[2].info("replication")["master_link_status"] == "up")
        wait_for("the clusters are up", lambda: all(
            self.info(i)["cluster_state"] == "ok" and self.info(i)["cluster_known_nodes"] == "3" and
            self.info(i)["cluster_slots_assigned"] == str(SLOTS) for i in range(3)))
        wait_for("all know the replica", lambda: all(
            b"slave " + self.ids[0].encode() in control.call("CLUSTER", "NODES") for control in self.controls))
        a.call("FUNCTION", "LOAD", LIBRARY)
        b.call("FUNCTION", "LOAD", LIBRARY)
        self.caught_up()
        for control in self.controls:
            control.call("CONFIG", "RESETSTAT")
        self.names = {str(server.port): "port-" + name for server, name in zip(self.servers, "ABR")}
        self.names.update({node: "node-" + name for node, name in zip(self.ids, "ABR")})

    def info(self, node):
        return dict(line.split(":") for line in self.controls[node].call("CLUSTER", "INFO").decode().split("\r\n")
                    if line)

    def caught_up(self):
        def offset(node, field):
            text = self.controls[node].call("INFO", "replication").decode()
            return re.search(field + r":(\d+)", text)[1]
        wait_for("the replica has all", lambda: offset(0, "master_repl_offset") == offset(2, "slave_repl_offset"))

    def plain(self, value):
        """Ports and identities as names."""
        text = re.sub(r"(b'version', b'|b'id', ':)[\d.]+", r"\1", repr(value))
        for found, name in self.names.items():
            text = text.replace(found, name)
        return text

    def words(self, words):
        return [self.ids["ABR".index(word[-1])] if str(word).startswith("node-") else
                self.servers["ABR".index(word[-1])].port if str(word).startswith("port-") else word
                for word in words]

    def statistics(self, node):
        text = self.controls[node].call("INFO", "errorstats").decode()
        text += re.sub(r"usec.*?,(?=rejected)", "", self.controls[node].call("INFO", "commandstats").decode())
        # Decided by this test or by the time; keys of a slot that has left are deleted at replicas by UNLINK of each
        # key, or by CLUSTER FLUSHSLOT (docs/cluster.md).
        uneven = r"#|$|cmdstat_(info|cluster\|(info|setslot|flushslot)|unlink|ping|replconf)"
        lines = [line for line in text.splitlines() if not re.match(uneven, line)]
        return sorted(re.sub(r"usec=\d+,usec_per_call=[\d.]+,", "", line) for line in lines)


TAGS_COUNT = len(TAGS)


class Pair:
    """The same client of both clusters."""

    def __init__(self, clusters, node, name):
        self.node, self.name, self.clusters = node, name, clusters
        self.ends = [Connection(cluster.servers[node].port) for cluster in clusters]
        self.seen, self.waits = [[], []], False

    def send(self, words):
        for end, cluster in zip(self.ends, self.clusters):
            end.send(cluster.words(words))
        self.waits = True

    def receive(self, seconds):
        """Takes what has arrived. True: both have the same."""
        for i, end in enumerate(self.ends):
            while end.fill(seconds):
                seconds = 0
            with contextlib.suppress(Incomplete):
                while end.buffer:
                    self.seen[i].append(self.clusters[i].plain(end.take()))
        return self.seen[0] == self.seen[1]

    def replies(self):
        return [text for text in self.seen[0] if not text.startswith("push ")]


class Wrong(Exception):
    pass


def key(rng, tag=None):
    return "{%s}%s" % (tag or rng.choice(list(TAGS)), rng.choice("abcl"))


def commands(rng):
    """A random request; True: it may wait."""
    tag = rng.choice(list(TAGS))
    other = tag if rng.random() < 0.8 else rng.choice(list(TAGS))
    one, two, listed = key(rng, tag), key(rng, other), "{%s}l" % tag
    script, function = rng.choice(SCRIPTS), rng.choice(["write", "read", "any"])
    database = rng.randrange(4)
    plain = [
        ("GET", one), ("GET", one), ("SET", one, 1), ("SET", one, 1), ("DEL", one), ("DEL", one, two),
        ("MGET", one, two), ("MSET", one, 1, two, 2), ("EXISTS", one, two), ("RENAME", one, two), ("COPY", one, two),
        ("COPY", one, two, "DB", database), ("MOVE", one, database), ("SELECT", database), ("LPUSH", listed, 1, 2),
        ("MULTI",), ("EXEC",), ("EXEC",), ("DISCARD",), ("WATCH", one), ("WATCH", one, two), ("UNWATCH",),
        ("ASKING",), ("ASKING",), ("READONLY",), ("READWRITE",), ("EVAL", script, 1, one, two),
        ("EVAL", script, 0, one), ("EVAL", script, 2, one, two, one), ("FCALL", function, 1, one, two),
        ("FCALL", function, 0, one), ("SPUBLISH", one, "m"), ("PUBLISH", one, "m"), ("SORT", listed, "STORE", two),
        ("SORT_RO", listed), ("PFCOUNT", one, two), ("BITOP", "AND", one, two, one), ("ZUNIONSTORE", one, 1, two),
        ("LMPOP", 2, listed, two, "LEFT"), ("TOUCH", one), ("OBJECT", "ENCODING", one), ("XREAD", "STREAMS", one, 0),
        ("RESTORE", one, 0, b"bad"), ("RESTORE-ASKING", one, 0, b"bad"),
        ("MIGRATE", "127.0.0.1", "port-B", one, 0, 1000),
        ("MIGRATE", "127.0.0.1", "port-B", "", 0, 1000, "KEYS", one, two), ("CLUSTER", "COUNTKEYSINSLOT", TAGS[tag]),
        ("CLUSTER", "KEYSLOT", one), ("DBSIZE",), ("PING",), ("COMMAND", "INFO", "get"), ("GET",), ("NOSUCH", one),
        ("MSETNX", one, 1, two, 2), ("SINTERCARD", 2, one, two), ("UNLINK", one), ("EXPIRE", one, 10000),
        ("INCR", one), ("APPEND", one, "x"), ("SET", one, 1, "GET"), ("GETDEL", one), ("SSUBSCRIBE", one),
        ("SUNSUBSCRIBE", one), ("SUNSUBSCRIBE",), ("SPUBLISH", one, "m"), ("HELLO", rng.choice([2, 3])),
        ("CLIENT", "TRACKING", "ON"), ("CLIENT", "TRACKING", "OFF"), ("RESET",), ("SCAN", 0, "MATCH", one),
        ("SDIFFSTORE", one, two), ("LINSERT", listed, "BEFORE", 1, 2), ("EVALSHA", "0" * 40, 1, one), ("KEYS", one),
        ("RANDOMKEY", "x"), ("SUBSCRIBE", "c"), ("UNSUBSCRIBE", "c"), ("GEORADIUS", one, 1, 1, 1, "km", "STORE", two),
        ("FLUSHDB",) if rng.random() < 0.05 else ("GET", two), ("DUMP", two + "none"),
        ("XREADGROUP", "GROUP", "g", "c", "STREAMS", one, ">"), ("HSET", one, "f", 1),
        ("DEBUG", "OBJECT", one + "none"),
    ]
    waiting = [("BLPOP", listed, 0), ("BLPOP", listed, two, 0), ("BLMOVE", listed, two, "LEFT", "RIGHT", 0),
               ("BZPOPMIN", one, 0), ("XREAD", "BLOCK", 0, "STREAMS", one, 0), ("BRPOP", listed, 0)]
    return (rng.choice(waiting), True) if rng.random() < 0.06 else (rng.choice(plain), False)


def change(rng):
    """A random change of the cluster: (node, request)."""
    slot, node, whose = rng.randrange(TAGS_COUNT), rng.choice([0, 0, 1]), rng.choice(["node-A", "node-B", "node-B"])
    if rng.random() < 0.1:
        whose = rng.choice(["node-R", "0" * 40])
    switch = rng.choice(["yes", "no"])
    return rng.choice([
        (node, ("CLUSTER", "SETSLOT", slot, "MIGRATING", whose)),
        (node, ("CLUSTER", "SETSLOT", slot, "IMPORTING", whose)),
        (node, ("CLUSTER", "SETSLOT", slot, "MIGRATING", whose)),
        (node, ("CLUSTER", "SETSLOT", slot, "IMPORTING", whose)),
        (node, ("CLUSTER", "SETSLOT", slot, "STABLE")), (2, ("CLUSTER", "SETSLOT", slot, "STABLE")),
        (rng.randrange(3), ("CONFIG", "SET", "cluster-require-full-coverage", switch)),
        (rng.randrange(3), ("CONFIG", "SET", "cluster-allow-reads-when-down", switch)),
        (rng.randrange(3), ("CONFIG", "SET", "cluster-allow-pubsubshard-when-down", switch)),
    ])


class Round:
    def __init__(self, stack, programs, seed, verbose):
        self.rng, self.verbose, self.history = random.Random(seed), verbose, []
        self.clusters = [Cluster(stack, program) for program in programs]
        self.pairs = [self.new(node, number) for node in range(3) for number in range(3)]

    def new(self, node, number):
        return Pair(self.clusters, node, "%s%d" % ("ABR"[node], number))

    def note(self, text):
        self.history.append(text)
        if self.verbose:
            print(text, flush=True)

    def wrong(self, what, ours_has, genuine_has):
        raise Wrong("%s\n    ours:    %s\n    genuine: %s\n%s" % (what, ours_has, genuine_has,
                                                               "\n".join("  " + line for line in self.history[-60:])))

    def settle(self, pair, what):
        """Both ends of a client have the same, or will."""
        until(lambda: pair.receive(0.01), PATIENCE)
        if pair.seen[0] != pair.seen[1]:
            self.wrong("%s, client %s" % (what, pair.name), pair.seen[0], pair.seen[1])

    def command(self):
        pair = self.rng.choice([pair for pair in self.pairs if not pair.waits])
        words, may_wait = commands(self.rng)
        if pair.node == 2:
            for cluster in self.clusters:
                cluster.caught_up()
        self.note("%s %s" % (pair.name, " ".join(map(str, words)).replace("\n", "; ")))
        pair.send(words)
        if may_wait:
            pair.receive(0.02)
        else:
            until(lambda: pair.receive(0.005) and pair.seen[0], PATIENCE)
        self.settle(pair, "the reply")
        if pair.seen[0]:
            self.note("   " + " ".join(pair.seen[0]))
        elif not may_wait:
            self.wrong("no reply", None, None)
        pair.waits = not pair.seen[0]
        pair.seen = [[], []]

    def others(self):
        for pair in self.pairs:
            if not pair.receive(0):
                self.settle(pair, "a push, or the end of a wait")
            if pair.seen[0]:
                self.note("%s gets %s" % (pair.name, " ".join(pair.seen[0])))
                pair.waits = False
            pair.seen = [[], []]

    def move(self):
        """Gives a slot to the other primary, with the keys that it has here and there."""
        slot, target = self.rng.randrange(TAGS_COUNT), self.rng.randrange(2)
        name, other = "node-" + "AB"[target], "node-" + "AB"[1 - target]
        if self.ask(target, ("CLUSTER", "SETSLOT", slot, "IMPORTING", other)) != "'OK'":
            return
        self.ask(1 - target, ("CLUSTER", "SETSLOT", slot, "MIGRATING", name))
        emptied = self.rng.random() < 0.7
        if emptied:
            self.ask(1 - target, ("CLUSTER", "FLUSHSLOT", slot))
        self.ask(target, ("CLUSTER", "SETSLOT", slot, "NODE", name))
        if emptied:  # if not, it depends on the time whether the source still has keys
            self.ask(1 - target, ("CLUSTER", "SETSLOT", slot, "NODE", name))

    def change(self):
        if self.rng.random() < 0.15:
            self.move()
        else:
            self.ask(*change(self.rng))
        self.views()

    def ask(self, node, words):
        replies = [cluster.plain(cluster.controls[node].call(*cluster.words(words))) for cluster in self.clusters]
        self.note("--- at %s: %s: %s" % ("ABR"[node], " ".join(map(str, words)), replies[0]))
        if replies[0] != replies[1]:
            self.wrong("reply to the change", *replies)
        return replies[0]

    def views(self):
        def views():
            found = [[cluster.plain(sorted(line.split(" ", 8)[8:] for line in control.call(
                "CLUSTER", "NODES").decode().splitlines())) + cluster.info(i)["cluster_state"]
                      for i, control in enumerate(cluster.controls)] for cluster in self.clusters]
            return found if found[0] == found[1] else None
        if not until(views, 2 * PATIENCE):
            self.wrong("views differ", *[[cluster.plain(control.call("CLUSTER", "NODES")) for control in
                                          cluster.controls] for cluster in self.clusters])
        if any(pair.waits for pair in self.pairs):
            time.sleep(0.3)

    def run(self, steps):
        for _ in range(steps):
            if self.rng.random() < 0.08:
                self.change()
            else:
                self.command()
            self.others()
            if sum(pair.waits for pair in self.pairs) > 5:
                pair = self.rng.choice([pair for pair in self.pairs if pair.waits])
                index = self.pairs.index(pair)
                for end in pair.ends:
                    end.socket.close()
                self.note("%s leaves" % pair.name)
                self.pairs[index] = self.new(pair.node, index % 3)
        for node in range(3):
            mine, theirs = (cluster.statistics(node) for cluster in self.clusters)
            if mine != theirs:
                self.wrong("statistics of %s" % "ABR"[node], [line for line in mine if line not in theirs],
                           [line for line in theirs if line not in mine])


def main():
    options = seeded_options(__doc__, steps=1500, rounds=1)
    report = Report()
    genuine = required_newest(report, "redirections beside a genuine cluster")
    for number in range(options.rounds):
        seed = options.seed + number
        with contextlib.ExitStack() as stack:
            try:
                Round(stack, (ours(), genuine), seed, options.verbose).run(options.steps)
                report.check("seed %d" % seed, True)
            except Wrong as wrong:
                report.check("seed %d" % seed, False, wrong)
    report.finish()


if __name__ == "__main__":
    main()
