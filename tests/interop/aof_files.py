#!/usr/bin/env python3
"""Append-only files between our server and genuine ones, both ways: a base (RDB file or commands) with every type in
every encoding, and changes behind it: transactions, expiries of keys and fields, deletions, another database. Both
servers must hold the same afterwards, write on, and load that again."""
import os
import time
from contextlib import ExitStack

from common import Client, Report, Server, genuine, installed, ours
from values import GROUPED, STREAMS, VALUES

report = Report()
EXPIRES_AT = 4102444800000  # the year 2100
ARGUMENTS = ("--appendonly", "yes", "--enable-debug-command", "yes")


def successor(binary, first):
    """A server that begins with a copy of the append-only file of another one."""
    return Server(binary, *ARGUMENTS, files=[os.path.join(first.dir, "appendonlydir")])


def make_values(client):
    for at, (name, commands) in enumerate([*VALUES.items(), *STREAMS.items(), *GROUPED.items()]):
        for command in commands:
            client.call(*[name if word == "k" and i > 0 else word for i, word in enumerate(command)])
        if at % 3 == 0:
            client.call("PEXPIREAT", name, EXPIRES_AT + at)


def rewrite(client):
    client.call("BGREWRITEAOF")
    end = time.time() + 30
    while time.time() < end:
        info = client.call("INFO", "persistence").decode()
        if "aof_rewrite_in_progress:0" in info and "aof_rewrite_scheduled:0" in info:
            return
        time.sleep(0.02)
    raise RuntimeError("the rewrite does not end")


def change(client, fields_expire):
    """Changes behind the base, in every form that is written differently."""
    client.call("MULTI")
    client.call("SET", "in transaction", 1)
    client.call("SELECT", 5)
    client.call("SET", "k", "elsewhere")
    client.call("SELECT", 0)
    client.call("RPUSH", "list in transaction", "a", "b", "c")
    client.call("EXEC")
    client.call("SET", "volatile", "v", "PXAT", EXPIRES_AT)
    client.call("SET", "lapsed", "v", "PX", 1)
    client.call("SADD", "popped", *range(20))
    client.call("SPOP", "popped", 5)
    client.call("INCRBYFLOAT", "float", "1.25")
    client.call("XADD", "appended", "1-1", "f", "v")
    client.call("XGROUP", "CREATE", "appended", "g", 0)
    client.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "appended", ">")
    client.call("SET", "large", "x" * 300000)
    client.call("LPOP", "list in transaction")
    if fields_expire:
        client.call("HSET", "timed", "a", 1, "b", 2, "c", 3)
        client.call("HPEXPIREAT", "timed", EXPIRES_AT, "FIELDS", 2, "a", "b")
    end = time.time() + 10
    while client.call("EXISTS", "lapsed") and time.time() < end:
        time.sleep(0.01)


def content(client, fields_expire):
    """Without digests of what has other digests in servers of other versions: fields that expire, and scores in
    Redis."""
    while "loading:1" in client.call("INFO", "persistence").decode():
        time.sleep(0.02)
    keys = sorted(client.call("KEYS", "*"))
    out = [client.call("DBSIZE"), keys, client.call("GET", "float"), [client.call("PEXPIRETIME", key) for key in keys]]
    for key in keys:
        if b"sorted set" in key:
            items = client.call("ZRANGE", key, 0, -1, "WITHSCORES")
            out.append([key, [(member, float(score)) for member, score in zip(items[::2], items[1::2])]])
        elif key != b"timed":
            out.append([key, client.call("DEBUG", "DIGEST-VALUE", key)])
    client.call("SELECT", 5)
    out.append(client.call("GET", "k"))
    client.call("SELECT", 0)
    if fields_expire:
        out.append(client.call("HPEXPIRETIME", "timed", "FIELDS", 3, "a", "b", "c"))
    return out


def exchange(label, source, target, preamble, fields_expire):
    try:
        with ExitStack() as stack:
            first = stack.enter_context(Server(source, *ARGUMENTS, "--aof-use-rdb-preamble", preamble))
            a = Client(first.port)
            make_values(a)
            rewrite(a)
            change(a, fields_expire)
            want = content(a, fields_expire)
            # The source is killed: nothing is brought in order for the other one.
            first.process.kill()
            first.process.wait()
            second = stack.enter_context(successor(target, first))
            b = Client(second.port)
            report.equal(label, want, content(b, fields_expire))
            b.call("SET", "written on", 1)
            b.call("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
            rewrite(b)
            b.call("SET", "and again", 2)
            want = content(b, fields_expire)
            second.process.kill()
            second.process.wait()
            third = stack.enter_context(successor(target, second))
            report.equal(label + ", written on", want, content(Client(third.port), fields_expire))
    except Exception as error:
        report.check(label, False, repr(error))


mine = ours()
peers = {"Valkey": genuine("valkey-server"), "Redis": installed("redis-server")}
if installed("valkey-server") != peers["Valkey"]:
    peers["the distribution's Valkey"] = installed("valkey-server")
for name, binary in peers.items():
    if not binary:
        if not name.startswith("the "):
            report.missing("append-only files of %s" % name, "it is not installed")
        continue
    with Server(binary) as probe:
        fields_expire = bool(Client(probe.port).call("COMMAND", "INFO", "hpexpireat")[0])
    for preamble in ("yes", "no"):
        base = "an RDB file" if preamble == "yes" else "commands"
        exchange("from %s to ours, base of %s" % (name, base), binary, mine, preamble, fields_expire)
        # An RDB file of ours is of a version that older servers refuse, as it is with any newer Valkey.
        if preamble == "no" or name == "Valkey":
            exchange("from ours to %s, base of %s" % (name, base), mine, binary, preamble, fields_expire)
report.finish()
