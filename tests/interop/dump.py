#!/usr/bin/env python3
"""DUMP payloads between our server and a genuine one, both ways: every type in every encoding, small ones and such as have just become large. Those of an older
Redis (version 10) are read, too."""
from contextlib import ExitStack

from common import Client, Report, Server, genuine, ours

report = Report()
theirs_binary = genuine("valkey-server")
if not theirs_binary:
    report.missing("payloads of a genuine server", "no genuine valkey-server is installed")
    report.finish()

LONG = "x" * 100
VALUES = {
    "empty string": [("SET", "k", "")],
    "text": [("SET", "k", "hello")],
    "binary": [("SET", "k", bytes(range(256)))],
    "compressible text": [("SET", "k", "abcdefgh" * 1000)],
    "small integer": [("SET", "k", 12)],
    "integers of all widths": [("RPUSH", "k", *[s * (1 << b) + d for b in (0, 6, 7, 12, 15, 23, 31, 62) for s in (1, -1) for d in (-1, 0, 1)])],
    "short list": [("RPUSH", "k", "a", 1, "", "x" * 60)],
    "long list": [("RPUSH", "k", *["element %d" % i for i in range(3000)])],
    "list of large elements": [("RPUSH", "k", "a", "b" * 9000, "c" * 100000, "d")],
    "intset": [("SADD", "k", 1, 2, 3)],
    "intset of 64 bits": [("SADD", "k", -(1 << 63), (1 << 63) - 1, 0)],
    "small set": [("SADD", "k", "a", "b", 7, "")],
    "large set": [("SADD", "k", *["member %d" % i for i in range(1000)])],
    "large set of integers": [("SADD", "k", *range(1000))],
    "set of long members": [("SADD", "k", LONG, "a")],
    "small hash": [("HSET", "k", "f", "v", "g", 12, "", "")],
    "large hash": [("HSET", "k", *[w for i in range(1000) for w in ("field %d" % i, i)])],
    "hash of long values": [("HSET", "k", "f", LONG * 100, "g", LONG * 1000)],
    "small sorted set": [("ZADD", "k", 1, "a", 2.5, "b", "-inf", "c", "inf", "d", 1e100, "e")],
    "large sorted set": [("ZADD", "k", *[w for i in range(1000) for w in (i / 7, "member %d" % i)])],
    "sorted set of long members": [("ZADD", "k", 1, LONG, 2, "a")],
    "bitmap": [("SETBIT", "k", 100000, 1)],
    "sparse HyperLogLog": [("PFADD", "k", "a", "b", "c")],
    "dense HyperLogLog": [("PFADD", "k", *range(20000))],
}
FEW = [("XADD", "k", "1-1", "a", 1, "b", "two"), ("XADD", "k", "1-2", "a", "", "b", -70000), ("XADD", "k", "2-0", "c", "x" * 300), ("XADD", "k", "2-5", "a", 3, "b", 4)]
MANY = [("XADD", "k", "%d-%d" % (i // 3 + 1, i), *[w for f in range(1 + i % 7 // 3) for w in ("field %d" % f, "value %d" % i)]) for i in range(500)]
STREAMS = {
    "stream": FEW,
    "stream of one kind of entries": [("XADD", "k", "%d-0" % i, "n", i) for i in range(1, 300)],
    "stream of many kinds": MANY,
    "stream of large entries": [("XADD", "k", "%d-1" % i, "field", "v" * (i * 700)) for i in range(1, 12)],
    "stream with deleted entries": MANY + [("XDEL", "k", "%d-%d" % (i // 3 + 1, i)) for i in range(0, 500, 7)] + [("XDEL", "k", "167-499")],
    "stream without its first node": MANY + [("XDEL", "k", "%d-%d" % (i // 3 + 1, i)) for i in range(120)],
    "stream trimmed": MANY + [("XTRIM", "k", "MAXLEN", 77)],
    "stream trimmed by id": MANY + [("XTRIM", "k", "MINID", "100-298")],
    "stream trimmed to about": MANY + [("XTRIM", "k", "MAXLEN", "~", 250)],
    "stream that is empty now": FEW + [("XTRIM", "k", "MAXLEN", 0)],
    "stream whose last id was set": FEW + [("XSETID", "k", "70-0", "ENTRIESADDED", 20, "MAXDELETEDID", "60-0")],
}
READ = ("XREADGROUP", "GROUP", "g", "alice", "COUNT", 2, "STREAMS", "k", ">")
GROUPED = {
    "stream with a group": FEW + [("XGROUP", "CREATE", "k", "g", "0")],
    "stream that has only groups": [("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM"), ("XGROUP", "CREATE", "k", "12", 0, "ENTRIESREAD", 3)],
    "stream with consumers": FEW + [("XGROUP", "CREATE", "k", "g", "0"), ("XGROUP", "CREATECONSUMER", "k", "g", "idle"), READ],
    "stream with much pending": MANY + [("XGROUP", "CREATE", "k", "g", "0"), READ[:5] + (300,) + READ[6:], ("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "k", ">"),
                                        ("XACK", "k", "g", *["%d-%d" % (i // 3 + 1, i) for i in range(0, 500, 3)]),
                                        ("XCLAIM", "k", "g", "carol", 0, "1-1", "2-4", "101-301", "TIME", 1700000000000, "RETRYCOUNT", 700)],
    "stream with deleted entries pending": FEW + [("XGROUP", "CREATE", "k", "g", "0"), READ, ("XDEL", "k", "1-2"), ("XGROUP", "CREATE", "k", "h", "2-0"),
                                                  ("XGROUP", "SETID", "k", "g", "1-1", "ENTRIESREAD", 1)],
}
VALUES.update(STREAMS)
VALUES.update(GROUPED)


def content(client, key):
    """A value as it is seen by commands, in an order of its own where it has none."""
    kind = client.call("TYPE", key)
    read = {b"string": ("GET", key), b"list": ("LRANGE", key, 0, -1), b"set": ("SMEMBERS", key), b"hash": ("HGETALL", key),
            b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES"), b"stream": ("XINFO", "STREAM", key, "FULL", "COUNT", 0)}[bytes(kind) if isinstance(kind, bytes) else str(kind).encode()]
    value = client.call(*read)
    if read[0] == "SMEMBERS":
        return sorted(value)
    if read[0] == "HGETALL":
        return sorted(zip(value[::2], value[1::2]))
    return value


def make(client, commands):
    client.call("DEL", "k")
    for command in commands:
        client.call(*command)
    return client.call("DUMP", "k")


def same_bytes(label, expected, got):
    at = next((i for i, (a, b) in enumerate(zip(expected, got or b"")) if a != b), "the end")
    report.check(label, expected == got, "%d bytes instead of %d, different from byte %s on" % (len(got or b""), len(expected), at))


def exchange(name, commands, source, a, target, b):
    """From a to b, and back again from where it has been restored."""
    label = "%s from %s to %s" % (name, source, target)
    try:
        payload = make(a, commands)
        b.call("RESTORE", "r", 0, payload, "REPLACE")
        if report.equal(label, content(a, "k"), content(b, "r")):
            there = b.call("DUMP", "r")
            a.call("RESTORE", "again", 0, there, "REPLACE")
            report.equal(label + " and back", content(a, "k"), content(a, "again"))
            report.equal(label + ", encoding", a.call("OBJECT", "ENCODING", "again"), b.call("OBJECT", "ENCODING", "r"))
            report.equal(label + ", digest", a.call("DEBUG", "DIGEST-VALUE", "again"), b.call("DEBUG", "DIGEST-VALUE", "r"))
            if name in STREAMS or name in GROUPED:
                same_bytes(label + ", bytes", payload, there)
    except Exception as error:
        report.check(label, False, repr(error))


def older(name, commands, old, us, them):
    payload = make(old, commands)
    us.call("RESTORE", "r", 0, payload, "REPLACE")
    label = "%s from an older server" % name
    if name in STREAMS or name in GROUPED:  # XINFO told less then
        them.call("RESTORE", "r", 0, payload, "REPLACE")
        same_bytes(label, them.call("DUMP", "r"), us.call("DUMP", "r"))
        return
    want, got = content(old, "k"), content(us, "r")
    if commands[0][0] == "ZADD":  # it showed scores with more digits
        want, got = ([(member, float(score)) for member, score in zip(items[::2], items[1::2])] for items in (want, got))
    report.equal(label, want, got)


with ExitStack() as stack:
    def start(binary):
        server = stack.enter_context(Server(binary, "--enable-debug-command", "yes"))
        return Client(server.port)

    us, them = start(ours()), start(theirs_binary)
    for name, commands in VALUES.items():
        exchange(name, commands, "ours", us, "genuine", them)
        exchange(name, commands, "genuine", them, "ours", us)
    for name, commands in STREAMS.items():
        same_bytes("%s made by the same commands" % name, make(them, commands), make(us, commands))
    old = genuine("redis-server")
    if old:
        old = start(old)
        for name, commands in VALUES.items():
            older(name, commands, old, us, them)
    else:
        report.missing("payloads of an older server", "no redis-server is installed")
report.finish()
