#!/usr/bin/env python3
"""DUMP payloads between our server and a genuine one, both ways: every type in every encoding, small ones and such as
have just become large. Those of an older Redis (version 10) are read, too."""
from contextlib import ExitStack

from common import Client, Report, Server, genuine, ours
from payload import stream_content
from values import GROUPED, STREAMS, VALUES

report = Report()
theirs_binary = genuine("valkey-server")
if not theirs_binary:
    report.missing("payloads of a genuine server", "no genuine valkey-server is installed")
    report.finish()

VALUES.update(STREAMS)
VALUES.update(GROUPED)


def content(client, key):
    """A value as it is seen by commands, in an order of its own where it has none."""
    kind = client.call("TYPE", key)
    read = {b"string": ("GET", key), b"list": ("LRANGE", key, 0, -1), b"set": ("SMEMBERS", key),
            b"hash": ("HGETALL", key),
            b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES"), b"stream": ("XINFO", "STREAM", key, "FULL", "COUNT",
                                                                       0)}[bytes(kind) if isinstance(kind, bytes)
                                                                           else str(kind).encode()]
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


def same_stream(label, expected, got):
    """Two payloads hold the same: the same bytes, once their texts are expanded. Both servers compress, and may choose
    other matches. The version at the end may be another one, too: ours writes the oldest that has all of the value."""
    expected, got = stream_content(expected), stream_content(got)
    report.check(label, expected == got, next(("%r instead of %r" % (b, a) for a, b in zip(expected, got) if a != b),
                                              "a part more or less"))


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
            report.equal(label + ", digest", a.call("DEBUG", "DIGEST-VALUE", "again"),
                         b.call("DEBUG", "DIGEST-VALUE", "r"))
            if name in STREAMS or name in GROUPED:
                same_stream(label + ", payload", payload, there)
    except Exception as error:
        report.check(label, False, repr(error))


def older(name, commands, old, us, them):
    payload = make(old, commands)
    us.call("RESTORE", "r", 0, payload, "REPLACE")
    label = "%s from an older server" % name
    if name in STREAMS or name in GROUPED:  # XINFO told less then
        them.call("RESTORE", "r", 0, payload, "REPLACE")
        same_stream(label, them.call("DUMP", "r"), us.call("DUMP", "r"))
        return
    want, got = content(old, "k"), content(us, "r")
    if commands[0][0] == "ZADD":  # it showed scores with more digits
        want, got = ([(member, float(score)) for member, score in zip(items[::2], items[1::2])]
                     for items in (want, got))
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
        same_stream("%s made by the same commands" % name, make(them, commands), make(us, commands))
    old = genuine("redis-server")
    if old:
        old = start(old)
        for name, commands in VALUES.items():
            older(name, commands, old, us, them)
    else:
        report.missing("payloads of an older server", "no redis-server is installed")
report.finish()
