#!/usr/bin/env python3
"""Damaged payloads of RESTORE: our server and a genuine one must accept the same ones and make the same values of them.
Payloads of every type and encoding, with bytes changed, removed, inserted and exchanged; checksums are not checked, and
damage is looked for (sanitize-dump-payload).

    tests/interop/restore.py [--seed N] [--count N]
"""
import random
import sys

from common import Client, Error, Report, Server, newest_server, ours
from payload import stream_content
from values import GROUPED, STREAMS, VALUES

report = Report()
seed, count = random.SystemRandom().randrange(1 << 31), 5000
for option, value in zip(sys.argv[1::2], sys.argv[2::2]):
    if option == "--seed":
        seed = int(value)
    elif option == "--count":
        count = int(value)
theirs_binary, reason = newest_server()
if reason:
    report.missing("comparison of damaged payloads", reason)
    report.finish()
R = random.Random(seed)
print("seed %d" % seed)
LARGEST = 3000  # of a payload that is damaged: a change must have a chance to meet something else than a text

# More values than dump.py needs: small ones, because every byte of them means something.
SMALL = {
    "list": [("RPUSH", "k", "a", 1, "bb")], "quicklist": [("RPUSH", "k", "a", "x" * 9000)],
    "pair": [("HSET", "k", "f", "v")], "set": [("SADD", "k", "a")], "scores": [("ZADD", "k", 1, "a", 2, "b")],
    "table of fields": [("HSET", "k", "f", "v" * 100, "g", 1)], "table of members": [("SADD", "k", "m" * 100, "b")],
    "table of scores": [("ZADD", "k", 1.5, "m" * 100, -3, "b")], "ints": [("SADD", "k", 1, 2, 300)],
    "fields with expiration": [("HSET", "k", "f", "v", "g", "w"), ("HPEXPIREAT", "k", 32503680000000, "FIELDS", 1,
                                                                   "f")],
}


def damaged(data):
    data, footer = bytearray(data[:-10]), data[-10:]
    for _ in range(R.choice([1, 1, 1, 2, 3])):
        if len(data) < 2:
            break
        at = R.randrange(len(data))
        what = R.randrange(8)
        if what < 3:
            data[at] = R.randrange(256)
        elif what == 3:
            data[at] = (data[at] + R.choice([-1, 1])) & 255
        elif what == 4:
            data[at] ^= 1 << R.randrange(8)
        elif what == 5:
            del data[at:at + R.choice([1, 1, 2, 8])]
        elif what == 6:
            data[at:at] = bytes(R.choice([0, 1, 127, 128, 192, 255, R.randrange(256)])
                                for _ in range(R.choice([1, 1, 2, 8])))
        else:
            other = R.randrange(len(data))
            data[at], data[other] = data[other], data[at]
    return bytes(data) + footer


class Peer:
    def __init__(self, binary):
        self.binary, self.crashes = binary, 0
        self.start()

    def start(self):
        self.server = Server(self.binary, "--enable-debug-command", "yes", "--sanitize-dump-payload", "yes",
                             "--enable-protected-configs", "yes")
        self.client = Client(self.server.port)
        self.client.call("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", 1)

    def restore(self, payload):
        """(reply, type, encoding, digest)"""
        try:
            reply = self.client.call("RESTORE", "k", 0, payload, "REPLACE")
            if isinstance(reply, Error):
                return str(reply), None, None
            return str(reply), str(self.client.call("TYPE", "k")), self.client.call("DEBUG", "DIGEST-VALUE", "k")
        except (OSError, EOFError):
            self.crashes += 1
            self.server.stop()
            self.start()
            return "crash", None, None

    def stop(self):
        self.server.stop()


def same_content(a, b):
    if a[:-10] == b[:-10]:
        return True
    try:
        return a[0] == b[0] == 21 and stream_content(a) == stream_content(b)
    except (ValueError, IndexError):
        return False


# Damage that a genuine server keeps, by the type in the payload.
KEPT = {
    17: "sorted sets with scores that are no numbers",
    21: "streams with entries above their last id, nodes out of order, numbers of entries added or read that are "
        "impossible",
}


def is_well_formed(payload):
    """Whether a genuine server that has restored the payload writes the same one. Ours may refuse any other that the
    genuine one accepts: a value that reads on into the checksum, a length that is none, a text that does not expand to
    the length it claims, and so on."""
    return payload[0] not in KEPT and same_content(payload, theirs.client.call("DUMP", "k"))


mine, theirs = Peer(ours()), Peer(theirs_binary)
try:
    payloads = []
    for commands in list({**VALUES, **STREAMS, **GROUPED}.values()) + list(SMALL.values()):
        for peer in mine, theirs:
            peer.client.call("DEL", "k")
            for command in commands:
                peer.client.call(*command)
            payload = peer.client.call("DUMP", "k")
            if len(payload) <= LARGEST:
                payloads.append(payload)
    differ, accepted, why = 0, 0, {}
    for _ in range(count):
        payload = damaged(R.choice(payloads))
        a, b = mine.restore(payload), theirs.restore(payload)
        if b[0] == "crash":
            continue
        accepted += a[0] == "OK"
        if a == b or a[0] == "ERR Bad data format" and b[0] == "OK" and not is_well_formed(payload):
            continue
        differ += 1
        kind = (payload[0] if payload else None, a[0], b[0], a[1], b[1])
        why.setdefault(kind, []).append((payload, a, b))
    for kind, cases in sorted(why.items(), key=lambda item: -len(item[1]))[:20]:
        payload, a, b = min(cases, key=lambda case: len(case[0]))
        print("[different] %d times: %r\n    ours    %r\n    genuine %r" % (len(cases), payload[:400] if a[0] != "OK"
                                                                            else payload, a, b))
    report.check("%d damaged payloads, %d of them accepted, are restored alike" % (count, accepted), not differ,
                 "%d differ; seed %d" % (differ, seed))
    report.equal("our server survives damaged payloads", 0, mine.crashes)
    if theirs.crashes:
        print("the genuine server ended %d times" % theirs.crashes)
finally:
    mine.stop()
    theirs.stop()
report.finish()
