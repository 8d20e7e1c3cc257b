#!/usr/bin/env python3
"""DUMP payloads between our server and a genuine one, both ways: every type in every encoding, small ones and such as have just become large. Those of an older
Redis (version 10) are read, too."""
from common import Client, Report, Server, genuine, ours

report = Report()
theirs_binary = genuine("valkey-server")
if not theirs_binary:
    report.skip("payloads of a genuine server", "no genuine valkey-server is installed")
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


def content(client, key):
    """A value as it is seen by commands, in an order of its own where it has none."""
    kind = client.call("TYPE", key)
    read = {b"string": ("GET", key), b"list": ("LRANGE", key, 0, -1), b"set": ("SMEMBERS", key), b"hash": ("HGETALL", key),
            b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}[bytes(kind) if isinstance(kind, bytes) else str(kind).encode()]
    value = client.call(*read)
    if read[0] == "SMEMBERS":
        return sorted(value)
    if read[0] == "HGETALL":
        return sorted(zip(value[::2], value[1::2]))
    return value


with Server(ours()) as our_server, Server(theirs_binary) as their_server:
    ends = {"ours": Client(our_server.port), "genuine": Client(their_server.port)}
    for name, commands in VALUES.items():
        for source, target in (("ours", "genuine"), ("genuine", "ours")):
            label = "%s from %s to %s" % (name, source, target)
            a, b = ends[source], ends[target]
            try:
                a.call("DEL", "k")
                for command in commands:
                    a.call(*command)
                payload = a.call("DUMP", "k")
                b.call("RESTORE", "r", 0, payload, "REPLACE")
                if report.equal(label, content(a, "k"), content(b, "r")):
                    # And back again, from where it has been restored.
                    a.call("RESTORE", "again", 0, b.call("DUMP", "r"), "REPLACE")
                    report.equal(label + " and back", content(a, "k"), content(a, "again"))
                    report.equal(label + ", encoding", a.call("OBJECT", "ENCODING", "again"), b.call("OBJECT", "ENCODING", "r"))
            except Exception as error:
                report.check(label, False, repr(error))

older_binary = genuine("redis-server")
if not older_binary:
    report.skip("payloads of an older server", "no redis-server is installed")
    report.finish()
with Server(ours()) as our_server, Server(older_binary) as older_server:
    a, b = Client(older_server.port), Client(our_server.port)
    for name, commands in VALUES.items():
        for command in [("DEL", "k")] + commands:
            a.call(*command)
        b.call("RESTORE", "r", 0, a.call("DUMP", "k"), "REPLACE")
        want, got = content(a, "k"), content(b, "r")
        if commands[0][0] == "ZADD":  # it showed scores with more digits
            want, got = ([(member, float(score)) for member, score in zip(items[::2], items[1::2])] for items in (want, got))
        report.equal("%s from an older server" % name, want, got)
report.finish()
