#!/usr/bin/env python3
"""RDB files between our server and genuine ones, both ways: every type in every encoding, with expiries of keys and
fields; files of old versions, built byte by byte from their description in src/formats/rdb.h and rdb_legacy.h; and what
valkey-check-rdb and valkey-check-aof say about good and bad files."""
import os
import re
import shutil
import struct
import tempfile
import time
from contextlib import ExitStack

from common import Client, Report, Server, genuine, info_fields, installed, ours, run, wait_for
from values import GROUPED, STREAMS, VALUES

report = Report()
newest = genuine("valkey-server")
EXPIRES_AT = 4102444800000  # the year 2100
FIELDS_EXPIRE = "hash whose fields expire"


def make_all(client, fields_expire):
    """All values in database 0, some with an expiry, and one key in database 5."""
    names = []
    for name, commands in list(VALUES.items()) + list(STREAMS.items()) + list(GROUPED.items()):
        for command in commands:
            client.call(*[name if word == "k" and at > 0 else word for at, word in enumerate(command)])
        if len(names) % 3 == 0:
            client.call("PEXPIREAT", name, EXPIRES_AT + len(names))
        names.append(name)
    if fields_expire:
        for i in range(100):
            client.call("HSET", FIELDS_EXPIRE, "field %d" % i, "value %d" % i)
        client.call("HPEXPIREAT", FIELDS_EXPIRE, EXPIRES_AT, "FIELDS", 3, "field 1", "field 2", "field 99")
        names.append(FIELDS_EXPIRE)
    client.call("SELECT", 5)
    client.call("SET", "k", "elsewhere")
    client.call("SELECT", 0)
    return names


def saved(server, client):
    """The file of BGSAVE."""
    path = os.path.join(server.dir, "dump.rdb")
    client.call("BGSAVE")
    wait_for("BGSAVE ends", lambda: info_fields(client.call("INFO", "persistence")).get(
        "rdb_bgsave_in_progress") == "0")
    assert os.path.exists(path) and "rdb_last_bgsave_status:ok" in client.call("INFO", "persistence").decode()
    return path


def loaded(binary, path, *args):
    """A server that begins with a copy of a file."""
    return Server(binary, "--dbfilename", os.path.basename(path), *args, files=[path])


DEBUG = ("--enable-debug-command", "yes")


def describe(client, name, digest=True):
    lines = [client.call("TYPE", name), client.call("PEXPIRETIME", name), client.call("OBJECT", "ENCODING", name)]
    if name == FIELDS_EXPIRE:
        lines.append(sorted(zip(*[iter(client.call("HGETALL", name))] * 2)))
        lines.append(client.call("HPEXPIRETIME", name, "FIELDS", 4, "field 1", "field 2", "field 99", "field 3"))
    elif digest:
        lines.append(client.call("DEBUG", "DIGEST-VALUE", name))
    else:
        lines.append(sorted(client.call("ZRANGE", name, 0, -1)))
    return lines


def compare(label, names, a, b, encodings=True):
    for name in names:
        # An older Redis writes scores with more digits, in digests, too.
        digest = encodings or "sorted set" not in name
        want, got = describe(a, name, digest), describe(b, name, digest)
        if not encodings or want[2] in (b"raw", b"embstr"):  # what is called embstr differs
            want[2] = got[2] = None
        report.equal("%s: %s" % (label, name), want, got)
    report.equal(label + ": number of keys", a.call("DBSIZE"), b.call("DBSIZE"))
    for client in (a, b):
        client.call("SELECT", 5)
    report.equal(label + ": the other database", a.call("GET", "k"), b.call("GET", "k"))
    for client in (a, b):
        client.call("SELECT", 0)


def exchange(label, source, target, fields_expire, encodings=True):
    with ExitStack() as stack:
        first = stack.enter_context(Server(source, *DEBUG))
        a = Client(first.port)
        names = make_all(a, fields_expire)
        try:
            second = stack.enter_context(loaded(target, saved(first, a), *DEBUG))
        except RuntimeError as error:
            report.check(label, False, error)
            return
        b = Client(second.port)
        compare(label, names, a, b, encodings)
        if not fields_expire and encodings:
            report.equal(label + ": digest of all", a.call("DEBUG", "DIGEST"), b.call("DEBUG", "DIGEST"))


# --- Hash slots ---

PER_SLOT = ("--keyspace-per-slot", "yes")


def slot_infos(path):
    """What a file says of the sizes of slots, in its order."""
    with open(path, "rb") as f:
        return re.findall(rb"\xfa\x09slot-info.([0-9]+,[0-9]+,[0-9]+,[0-9]+)", f.read(), re.S)


def cluster_node(stack):
    """A genuine server that is a whole cluster."""
    node = stack.enter_context(Server(newest, "--cluster-enabled", "yes", "--cluster-databases", "16", *DEBUG))
    client = Client(node.port)
    client.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    end = time.time() + 20
    while b"cluster_state:ok" not in client.call("CLUSTER", "INFO") and time.time() < end:
        time.sleep(0.05)
    return node, client


def slots():
    """Files of a cluster, and of a server of ours that keeps each slot in a table, read by either kind; both say the
    same of their slots."""
    with ExitStack() as stack:
        node, a = cluster_node(stack)
        names = make_all(a, True)
        path = saved(node, a)
        infos = slot_infos(path)
        report.check("a file of a cluster has the sizes of slots", len(infos) > 10, infos)
        for label, arguments in (("a table for each slot", PER_SLOT), ("one table", ())):
            us = stack.enter_context(loaded(ours(), path, *arguments, *DEBUG))
            b = Client(us.port)
            compare("from a cluster to " + label, names, a, b)
            os.unlink(os.path.join(us.dir, "dump.rdb"))
            us_path = saved(us, b)
            report.equal("the slots in a file of ours, " + label, infos if arguments else [], slot_infos(us_path))
            them = stack.enter_context(loaded(newest, us_path, *DEBUG))
            compare("from ours with %s to the newest" % label, names, b, Client(them.port))


def magic(path):
    with open(path, "rb") as f:
        return f.read(9)


def versions():
    """Files are of the version that older servers read, unless a hash needs the newer one."""
    with Server(ours()) as server:
        client = Client(server.port)
        client.call("HSET", "h", "f", "v")
        report.equal("magic without fields that expire", b"REDIS0011", magic(saved(server, client)))
        client.call("HEXPIRE", "h", 1000, "FIELDS", 1, "f")
        report.equal("magic with fields that expire", b"VALKEY080", magic(saved(server, client)))


# --- Files of old versions ---

def string(data):
    assert len(data) < 64
    return bytes([len(data)]) + data


def ziplist(*elements):
    body, before, tail = b"", 0, 10
    for element in elements:
        tail = 10 + len(body)
        if isinstance(element, int):
            data = b"\xfe" + struct.pack("<b", element) if -128 <= element < 128 else b"\xd0" + struct.pack("<i",
                                                                                                            element)
        else:
            data = bytes([len(element)]) + element
        data = bytes([before]) + data
        body, before = body + data, len(data)
    return struct.pack("<IIH", 11 + len(body), tail, len(elements)) + body + b"\xff"


def zipmap(*pairs):
    out = bytes([len(pairs)])
    for field, value in pairs:
        out += bytes([len(field)]) + field + bytes([len(value), 0]) + value
    return out + b"\xff"


def score(text):
    return {b"inf": b"\xfe", b"-inf": b"\xff"}.get(text) or bytes([len(text)]) + text


OLD_VALUES = {  # type, value
    b"string": (0, string(b"text")),
    b"integer": (0, b"\xc0\xf0"),
    b"integer of 32 bits": (0, b"\xc2" + struct.pack("<i", -100000)),
    b"compressed": (0, b"\xc3\x05\x28" + b"\x00a\xe0\x1e\x00"),
    b"list": (1, b"\x03" + string(b"a") + b"\xc0\x05" + string(b"c")),
    b"set": (2, b"\x02" + string(b"a") + string(b"b")),
    b"zset": (3, b"\x03" + string(b"a") + score(b"1.5") + string(b"b") + score(b"inf") + string(b"c") + score(b"-inf")),
    b"hash": (4, b"\x02" + string(b"f") + string(b"v") + string(b"g") + b"\xc0\x07"),
    b"zset of doubles": (5, b"\x02" + string(b"a") + struct.pack("<d", 2.5) + string(b"b") + struct.pack("<d", -1e100)),
    b"zipmap": (9, string(zipmap((b"f", b"v"), (b"g", b"12")))),
    b"ziplist": (10, string(ziplist(b"a", 5, b"c", 70000))),
    b"intset": (11, string(struct.pack("<II3h", 2, 3, -5, 0, 9))),
    b"zset ziplist": (12, string(ziplist(b"a", 1, b"b", 2))),
    b"hash ziplist": (13, string(ziplist(b"f", b"v", b"g", 12))),
    b"quicklist": (14, b"\x02" + string(ziplist(b"a", 1)) + string(ziplist(b"b", 300))),
}
SINCE = {5: 8, 9: 2, 10: 2, 11: 2, 12: 2, 13: 4, 14: 7}


def old_file(version):
    out = b"REDIS%04d" % version
    if version >= 7:
        out += b"\xfa" + string(b"redis-ver") + string(b"3.2.0")
    out += b"\xfe\x00"
    if version >= 7:
        out += b"\xfb\x10\x01"
    for at, (key, (kind, value)) in enumerate(OLD_VALUES.items()):
        if SINCE.get(kind, 1) > version:
            continue
        if at == 0:
            out += b"\xfd" + struct.pack("<i", 2000000000)
        elif at == 1 and version >= 3:
            out += b"\xfc" + struct.pack("<q", EXPIRES_AT)
        elif at == 2 and version >= 9:
            out += b"\xf8\x14"
        out += bytes([kind]) + string(key) + value
    return out + b"\xff" + (b"\0" * 8 if version >= 5 else b"")


def old_versions(binary, directory):
    for version in range(1, 12):
        path = os.path.join(directory, "old.rdb")
        with open(path, "wb") as f:
            f.write(old_file(version))
        label = "a file of version %d" % version
        try:
            with loaded(ours(), path, *DEBUG) as us, loaded(binary, path, *DEBUG) as them:
                a, b = Client(them.port), Client(us.port)
                names = sorted(a.call("KEYS", "*"))
                report.equal(label + ": keys", names, sorted(b.call("KEYS", "*")))
                for name in names:
                    report.equal("%s: %s" % (label, name.decode()), describe(a, name)[:2] + describe(a, name)[3:],
                                 describe(b, name)[:2] + describe(b, name)[3:])
        except RuntimeError as error:
            report.check(label, False, error)


# --- The tools ---

def cleaned(text):
    """Without lines of the log, which only the genuine tools write, and without the place in their source."""
    return [line for line in text.split("\n") if not re.match(r"\d+:[MC] ", line)]


def check_tools(directory, good):
    genuine_rdb, genuine_aof = genuine("valkey-check-rdb"), genuine("valkey-check-aof")
    rdb, aof = ours("valkey-check-rdb"), ours("valkey-check-aof")
    with open(good, "rb") as f:
        data = f.read()
    files = {
        "a good file": data,
        "an empty file": b"",
        "another signature": b"MEMCACHE0" + data[9:],
        "a wrong checksum": data[:-1] + bytes([data[-1] ^ 1]),
        "no checksum": data[:-8] + b"\0" * 8,
        "an unknown type": b"VALKEY080\xfe\0\x19\x01a\x01b\xff" + b"\0" * 8,
        "a foreign version": b"REDIS0012\xfe\0\0\x01a\x01b\xff" + b"\0" * 8,
        "a foreign type": b"REDIS0012\xfe\0\x16\x01a\x01b\xff" + b"\0" * 8,
        "a future version": b"VALKEY081\xfe\0\0\x01a\x01b\xff" + b"\0" * 8,
        "a version that never was": b"REDIS0080\xff" + b"\0" * 8,
        "an expired key": b"VALKEY080\xfe\0\xfd\1\0\0\0\0\x01a\x01b\xff" + b"\0" * 8,
        "a high database": b"VALKEY080\xfe\x40\x63\0\x01a\x01b\xff" + b"\0" * 8,
    }
    for name, content in files.items():
        path = os.path.join(directory, "file.rdb")
        with open(path, "wb") as f:
            f.write(content)
        want, got = run(genuine_rdb, path), run(rdb, path)
        report.equal("valkey-check-rdb of %s" % name, (want[0], cleaned(want[1])), (got[0], cleaned(got[1])))
    path = os.path.join(directory, "file.rdb")
    for length in range(0, len(data), max(1, len(data) // 60)):  # cut anywhere: the same verdict, the same counts
        with open(path, "wb") as f:
            f.write(data[:length])
        want, got = run(genuine_rdb, path), run(rdb, path)
        counts = [[line for line in cleaned(out[1]) if line.startswith("[info]")] for out in (want, got)]
        report.equal("valkey-check-rdb of the first %d bytes" % length, (want[0], counts[0]), (got[0], counts[1]))
    commands = b"#TS:1700000000\r\n" + b"".join(Client.encode(*words) for words in (
        ("SELECT", 0), ("SET", "a", "x" * 100), ("MULTI",), ("INCR", "n"),
        ("EXEC",))) + b"#TS:1700000100\r\n" + Client.encode("DEL", "a")
    cases = {"a good file": commands, "an empty file": b"", "a cut argument": commands[:-2],
             "an open transaction": commands[:150] + Client.encode("MULTI"),
             "EXEC alone": commands + Client.encode("EXEC"), "MULTI in MULTI": commands + Client.encode("MULTI") * 2,
             "garbage": commands + b"garbage",
             "a bad length": commands + b"*x\r\n", "a bad prefix": commands + b"*1\r\n:5\r\n",
             "a missing line end": commands + b"*1\r\n$3\r\ngetxx$1\r\n"}
    path = os.path.join(directory, "file.aof")
    for name, content in cases.items():
        for options in ((), ("--fix",), ("--truncate-to-timestamp", "1700000000"),
                        ("--truncate-to-timestamp", "1700000100"), ("--truncate-to-timestamp", "1")):
            results = []
            for tool in (genuine_aof, aof):
                with open(path, "wb") as f:
                    f.write(content)
                code, out, _ = run(tool, *options, path, data="y\n")
                with open(path, "rb") as f:
                    results.append((code, out, f.read()))
            report.equal("valkey-check-aof %s of %s" % (" ".join(options), name), results[0], results[1])


if not newest:
    report.missing("files of a genuine server", "no genuine valkey-server is installed")
    report.finish()
directory = tempfile.mkdtemp(prefix="interop.")
try:
    versions()
    exchange("from ours to ours", ours(), ours(), True)
    if os.environ.get("GENUINE_VALKEY"):
        exchange("from ours to the newest", ours(), newest, True)
        exchange("from the newest to ours", newest, ours(), True)
        exchange("from ours to the newest without fields that expire", ours(), newest, False)
        slots()
        old_versions(newest, directory)
    else:
        report.missing("the newest genuine server", "GENUINE_VALKEY is not set")
    older = installed("valkey-server")
    if older:
        exchange("from ours to the distribution's", ours(), older, False)
        exchange("from the distribution's to ours", older, ours(), False)
    else:
        report.missing("the distribution's server", "no valkey-server is installed")
    oldest = installed("redis-server")
    if oldest:
        exchange("from Redis to ours", oldest, ours(), False, encodings=False)
    else:
        report.missing("an older Redis", "no redis-server is installed")
    if os.environ.get("GENUINE_VALKEY") and genuine("valkey-check-rdb") and genuine("valkey-check-aof"):
        with Server(newest) as server:
            client = Client(server.port)
            client.call("SET", "a", "1")
            client.call("RPUSH", "list", *range(100))
            client.call("HSET", "hash", "f", "v")
            client.call("SET", "expires", "x", "PXAT", EXPIRES_AT)
            check_tools(directory, saved(server, client))
    else:
        report.missing("the genuine tools",
                       "GENUINE_VALKEY is not set, or has no valkey-check-rdb and valkey-check-aof")
finally:
    shutil.rmtree(directory, ignore_errors=True)
report.finish()
