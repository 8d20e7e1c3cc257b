#!/usr/bin/env python3
"""The same bytes to our server and to a genuine one: what comes back must be the same, byte for byte, and so must be
whether the connection stays open. Random streams of good, mutilated and random requests, and random commands on the
connection itself.

    tests/interop/protocol.py [--seed N] [--streams N]
"""
import random
import re
import socket
import sys

from common import Client, Report, Server, newest_server, ours

report = Report()
seed = random.SystemRandom().randrange(1 << 31)
streams = 3000
for option, value in zip(sys.argv[1::2], sys.argv[2::2]):
    if option == "--seed":
        seed = int(value)
    elif option == "--streams":
        streams = int(value)
theirs_binary, reason = newest_server()
if reason:
    report.missing("comparison of the protocol", reason)
    report.finish()
R = random.Random(seed)
print("seed %d" % seed)

TOKENS = [b"*", b"$", b":", b"+", b"-", b"\r", b"\n", b"\r\n", b"\r\n", b"\r\n", b"0", b"1", b"2", b"-1", b"10", b"100",
          b"99999999999999999999",
          b"PING", b"GET", b"SET", b"a", b"ECHO", b" ", b"\"", b"'", b"\\x41", b"*3\r\n", b"$3\r\nGET\r\n",
          b"*1\r\n$4\r\nPING\r\n", b"\t"]


def request():
    k = R.randrange(8)
    if k == 0:
        return Client.encode("GET", R.choice(["a", "b", "none"]))
    if k == 1:
        return Client.encode("SET", R.choice(["a", "b"]), bytes(R.randrange(256) for _ in range(R.randrange(30))))
    if k == 2:
        return Client.encode("ECHO", bytes(R.randrange(256) for _ in range(R.randrange(200))))
    if k == 3:
        return b"PING\r\n"
    if k == 4:
        return Client.encode("".join(R.choice("abcXYZ") for _ in range(R.randrange(1, 20))), "x" * R.randrange(150),
                             "y")
    if k == 5:
        return Client.encode("MGET", "a", "b", "none")
    if k == 6:
        return b"ECHO " + R.choice([b"plain", b"\"a b\"", b"'a b'", b"\"\\x41\\n\"",
                                    b"\"\""]) + R.choice([b"\r\n", b"\n"])
    return Client.encode("STRLEN", "a")


def stream():
    k = R.randrange(5)
    if k == 0:
        return b"".join(R.choice(TOKENS) for _ in range(R.randrange(1, 30)))
    if k == 1:
        return b"".join(request() for _ in range(R.randrange(1, 6)))
    data = bytearray(b"".join(request() for _ in range(R.randrange(1, 5))))
    for _ in range(R.randrange(1, 4)):
        at = R.randrange(len(data))
        what = R.randrange(3)
        if what == 0:
            data[at] = R.randrange(256)
        elif what == 1:
            del data[at]
            if not data:
                return b"\r\n"
        else:
            data.insert(at, R.choice([R.randrange(256), 13, 10, 36, 42]))
    return bytes(data)


def exchange(port, data):
    """What comes back for these bytes until the server has had its say: (bytes, open?)."""
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    # Our half is closed, so that a server which is done with the request answers and closes too.
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    out = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            out += piece
    except ConnectionResetError:
        pass
    s.close()
    return out


def regular(data):
    """Three defects of genuine servers are not compared: a zero byte hides the rest of an inline request, bytes 255 are
    left out of its arguments, and after a line that has only blanks a multibulk request is parsed as inline requests.
    Streams that would show them are changed."""
    data = data.replace(b"\x00", b"0").replace(b"\xff", b"\xfe")
    return re.sub(rb"(?:^|(?<=\n))(?!\r\n)[ \t\r\v\f]+\n", b"x\n", data)


CONNECTION = [
    "PING", "PING x", "PING x y", "ECHO a", "ECHO", "SELECT 1", "SELECT 0", "SELECT 99", "SELECT x", "SELECT", "HELLO",
    "HELLO 2", "HELLO 3", "HELLO 4", "HELLO x", "HELLO 3 SETNAME n", "HELLO 3 SETNAME", "HELLO 2 AUTH default x",
    "HELLO 2 AUTH a b", "AUTH x", "AUTH a b", "AUTH a b c", "RESET", "CLIENT GETNAME", "CLIENT SETNAME x",
    "CLIENT SETNAME", "CLIENT SETNAME a b", "CLIENT NOSUCH", "CLIENT", "CLIENT REPLY x", "CLIENT REPLY on",
    "CLIENT NO-EVICT on", "CLIENT NO-EVICT x", "CLIENT NO-TOUCH off", "CLIENT NO-TOUCH", "CLIENT SETINFO lib-name l",
    "CLIENT SETINFO x y", "CLIENT KILL x", "CLIENT KILL ID x", "CLIENT KILL ID 99999999", "CLIENT KILL TYPE x",
    "CLIENT KILL USER nosuch", "CLIENT KILL SKIPME maybe", "CLIENT KILL MAXAGE x", "CLIENT LIST TYPE x",
    "CLIENT LIST TYPE pubsub", "CLIENT LIST ID x", "CLIENT LIST x", "CLIENT PAUSE x", "CLIENT PAUSE -1",
    "CLIENT PAUSE 0", "CLIENT PAUSE 1 x", "CLIENT UNPAUSE", "CLIENT UNPAUSE x", "CLIENT GETREDIR",
    "CLIENT TRACKINGINFO", "CLIENT UNBLOCK 99999999", "CLIENT UNBLOCK x", "GET a", "SET a b", "GET none", "MGET a none",
    "DBSIZE", "TTL a", "OBJECT ENCODING a", "OBJECT HELP x", "CONFIG GET maxclients", "CONFIG GET nosuch",
    "CONFIG SET maxclients x", "CONFIG SET x y", "CONFIG X", "COMMAND COUNT x", "COMMAND INFO nosuch", "COMMAND X",
    "DEBUG X", "SWAPDB 0 x", "FLUSHDB x", "SHUTDOWN x", "INFO nosuch", "TIME x", "COPY a a", "MOVE a x", "SCAN x",
    "SCAN 0 COUNT 0", "EXPIRE a x", "LCS a none", "DEBUG SLEEP 0", "NOSUCH", "NOSUCH a b c",
]


OWN = b"version", b"id", b"modules"  # in replies to HELLO: each server's own (scripts are a module of the genuine one)


def normal(reply):
    """Leaves out of a reply what differs between any two servers."""
    if isinstance(reply, list):
        out = [normal(x) for x in reply]
        for i, x in enumerate(reply[:-1]):
            if x in OWN:
                out[i + 1] = "..."
        return [type(reply).__name__] + out
    if isinstance(reply, tuple):
        return ("pair", reply[0], "..." if reply[0] in OWN else normal(reply[1]))
    return (type(reply).__name__, reply)


with Server(ours(), "--enable-debug-command", "yes") as a, Server(theirs_binary, "--enable-debug-command", "yes") as b:
    different = 0
    for i in range(streams):
        data = regular(stream())
        x, y = exchange(a.port, data), exchange(b.port, data)
        if x != y:
            different += 1
            if different <= 10:
                print("[different] to %r\n    ours    %r\n    genuine %r" % (data[:3000], x[:3000], y[:3000]))
    report.check("%d random streams are answered alike" % streams, not different,
                 "%d differ; seed %d" % (different, seed))

    # The same stream in two pieces gives the same answer as in one.
    different = 0
    for i in range(300):
        data = b"".join(request() for _ in range(4))
        want = exchange(b.port, data)
        at = R.randrange(1, len(data))
        s = socket.create_connection(("127.0.0.1", a.port), timeout=20)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(data[:at])
        Client(a.port).call("PING")
        s.sendall(data[at:])
        s.shutdown(socket.SHUT_WR)
        got = b""
        while True:
            piece = s.recv(65536)
            if not piece:
                break
            got += piece
        s.close()
        if got != want:
            different += 1
            print("[different] in two pieces (%d): %r\n    ours    %r\n    genuine %r"
                  % (at, data[:300], got[:300], want[:300]))
    report.check("requests in two pieces are answered alike", not different, "%d differ; seed %d" % (different, seed))

    different, absent = 0, set()
    for round_ in range(60):
        mine, theirs = Client(a.port), Client(b.port)
        for _ in range(60):
            words = R.choice(CONNECTION).split()
            if R.randrange(4) == 0:
                words = [w.lower() for w in words]
            x, y = normal(mine.call(*words)), normal(theirs.call(*words))
            if x != y and "unknown" in str(x[1]) and "unknown" not in str(y[1]):
                absent.add(" ".join(words[:2]).upper())
            elif x != y:
                different += 1
                if different <= 20:
                    print("[different] %s\n    ours    %r\n    genuine %r" % (" ".join(words), x, y))
        mine.close()
        theirs.close()
    report.check("random commands on connections are answered alike", not different,
                 "%d differ; seed %d" % (different, seed))

    if absent:
        report.skip("commands that are not there yet", ", ".join(sorted(absent)))

    # INFO and CLIENT INFO have the same form.
    x, y = Client(a.port).call("CLIENT", "INFO").decode(), Client(b.port).call("CLIENT", "INFO").decode()
    names_x, names_y = re.findall(r"([\w-]+)=", x), re.findall(r"([\w-]+)=", y)
    report.equal("CLIENT INFO has the fields of the genuine server, in order", names_y,
                 [n for n in names_x if n in names_y])
    report.check("our server is alive", a.alive())

report.finish()
