#!/usr/bin/env python3
"""CLUSTER SLOT-STATS compared with a genuine server: what commands, transactions, scripts, waits and refused requests
count for two slots, at a primary with a replica and at the replica. The time counts as some or none."""
import contextlib

from common import Client, Report, Server, newest_server, ours, until, wait_for

report = Report()
genuine, why = newest_server()
if not genuine:
    report.missing("comparison of CLUSTER SLOT-STATS", why)
    report.finish()

A, B = "{06S}", "{Qi}"  # of slots 0 and 1
SHEBANG, ANY_SLOT = "#!lua\n", "#!lua flags=allow-cross-slot-keys\n"
GET, SET, SET_BOTH = ("return redis.call('get', KEYS[1])", "return redis.call('set', KEYS[1], 1)",
                      "redis.call('set', ARGV[1], 1) return redis.call('set', ARGV[2], 1)")
LIBRARY = SHEBANG[:-1] + " name=l\nserver.register_function('f', function(k, a) return server.call('set', k[1], 1) end)"
CASES = {
    "a write and a read": [("SET", A, "v"), ("GET", A), ("GET", A + "none")],
    "several keys": [("MSET", A, 1, A + "b", 2), ("DEL", A, A + "b"), ("SET", A, 1)],
    "an error of the command": [("LPUSH", A, 1), ("SET", A, "v", "FOO")],
    "no keys": [("PING",), ("DBSIZE",), ("CLUSTER", "KEYSLOT", A)],
    "a transaction": [("MULTI",), ("SET", A, 1), ("GET", A), ("EXEC",)],
    "a transaction of reads": [("MULTI",), ("GET", A), ("GET", A), ("GET", A), ("EXEC",)],
    "a transaction with a command without keys": [("MULTI",), ("PING",), ("GET", A), ("PING",), ("EXEC",)],
    "a watched transaction": [("WATCH", A), ("MULTI",), ("SET", A, 1), ("EXEC",)],
    "a discarded transaction": [("MULTI",), ("SET", A, 1), ("DISCARD",)],
    "a transaction that fails": [("MULTI",), ("SET", A, 1), ("NOSUCH",), ("EXEC",)],
    "a transaction of two slots": [("MULTI",), ("SET", A, 1), ("SET", B, 1), ("EXEC",)],
    "an empty transaction": [("MULTI",), ("EXEC",)],
    "a script without commands": [("EVAL", "return 1", 1, A)],
    "a script": [("EVAL", GET, 1, A), ("EVAL", SET, 1, A)],
    "a script that declares": [("EVAL", SHEBANG + GET, 1, A), ("EVAL", SHEBANG + SET, 1, A)],
    "an undeclared key": [("EVAL", SHEBANG + "return redis.call('get', ARGV[1])", 0, A)],
    "a key of another slot": [("EVAL", SHEBANG + "return redis.pcall('get', ARGV[1])", 1, A, B)],
    "a script of two slots": [("EVAL", ANY_SLOT + SET_BOTH, 0, A, B), ("EVAL", SET_BOTH, 0, A, B)],
    "a script that ends without keys": [("EVAL", SHEBANG + "redis.call('get', KEYS[1]) redis.call('ping')", 1, A)],
    "a script in a transaction": [("MULTI",), ("EVAL", SHEBANG + GET, 1, A), ("EXEC",)],
    "a script of any slot in a transaction": [("MULTI",), ("EVAL", GET, 1, A), ("GET", A), ("EXEC",)],
    "a function": [("FUNCTION", "LOAD", "REPLACE", LIBRARY), ("FCALL", "f", 1, A)],
    "shard channels": [("SPUBLISH", A, "x"), ("SSUBSCRIBE", A), ("SUNSUBSCRIBE", A)],
    "two slots": [("MGET", A, B)],
    "a wrong number of arguments": [("SET", A)],
    "a user without the right": [("AUTH", "u", "x"), ("GET", A), ("SET", A, 1)],
    "a wait in a transaction": [("MULTI",), ("BLPOP", A + "list", 0), ("EXEC",)],
}


class Shard:
    def __init__(self, stack, program):
        options = ("--cluster-enabled", "yes", "--cluster-slot-stats-enabled", "yes", "--repl-diskless-sync-delay", "0",
                   "--cluster-ping-interval", "100")
        self.primary, self.replica = (stack.enter_context(Server(program, *options)) for _ in range(2))
        self.primary.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        self.primary.call("CLUSTER", "MEET", "127.0.0.1", self.replica.port)
        name = self.primary.call("CLUSTER", "MYID")
        wait_for("the replica knows its primary", lambda: self.replica.call("CLUSTER", "REPLICATE", name) == "OK")
        wait_for("the cluster is up", lambda: self.primary.call("SET", A, "v") == "OK")
        wait_for("the replica has the data", lambda: self.replica.info("replication").get("master_link_status") == "up"
                 and self.replica.call("DBSIZE") == 1)
        self.primary.call("ACL", "SETUSER", "u", "on", "nopass", "+@all", "-get", "~*", "&*")

    def reset(self):
        """The primary's stream is idle when the statistics begin again."""
        self.caught_up()
        for server in (self.primary, self.replica):
            server.call("CONFIG", "RESETSTAT")

    def caught_up(self):
        offset = self.primary.info("replication")["master_repl_offset"]
        return until(lambda: int(self.replica.info("replication")["slave_repl_offset"]) >= int(offset), 20)

    def stats(self):
        self.caught_up()
        found = []
        for server in (self.primary, self.replica):
            for _, values in server.call("CLUSTER", "SLOT-STATS", "SLOTSRANGE", 0, 1):
                values = dict(zip(values[::2], values[1::2]))
                values[b"cpu-usec"] = None  # a fast call takes less than a microsecond
                found.append(values)
        return found


def run_case(shard, commands):
    shard.reset()
    with Client(shard.primary.port) as client:
        for command in commands:
            client.call(*command)
    return shard.stats()


def run_waits(shard):
    """A client that waits, is served, and waits in vain; subscribers; a request that the replica refuses."""
    found = []
    shard.reset()
    with Client(shard.primary.port) as client, Client(shard.primary.port) as other:
        client.send(("BLPOP", A + "list", 0))
        wait_for("it waits", lambda: shard.primary.info("clients")["blocked_clients"] == "1")
        found.append(shard.stats())
        other.call("LPUSH", A + "list", "v")
        client.read()
        found.append(shard.stats())
        client.call("BLPOP", A + "list", 0.01)
        client.call("SSUBSCRIBE", A)
        other.call("SPUBLISH", A, "hello")
        found.append(shard.stats())
    shard.replica.call("GET", A)
    with Client(shard.replica.port) as client:
        client.call("READONLY")
        client.call("GET", A)
    found.append(shard.stats())
    shard.primary.call("CONFIG", "SET", "maxmemory", 1)
    shard.primary.call("SET", A, "v")
    shard.primary.call("CONFIG", "SET", "maxmemory", 0)
    found.append(shard.stats())
    return found


with contextlib.ExitStack() as open_shards:
    shards = [Shard(open_shards, program) for program in (genuine, ours())]
    for title, requests in CASES.items():
        report.equal(title, *[run_case(shard, requests) for shard in shards])
    report.equal("waits, subscribers and refused requests", *[run_waits(shard) for shard in shards])
report.finish()
