#!/usr/bin/env python3
"""Our server as a replica of genuine primaries: random writes of every command while the link is cut again and again,
in every mode of the full synchronization; then both have the same data, and each link that was cut has resumed with a
partial synchronization.

    tests/interop/replication_replica.py [--seed N] [--seconds S] [--primary NAME]
"""
import argparse
import importlib.machinery
import importlib.util
import os
import random
import re
import sys
import time
from contextlib import ExitStack

from common import ROOT, Client, Report, Server, info_fields, installed, newest_server, ours, until
from proxy import Proxy

report = Report()


def load_generator():
    """differential-commands as a module: its families make the commands."""
    path = os.path.join(ROOT, "tests", "interop", "differential-commands")
    loader = importlib.machinery.SourceFileLoader("differential_commands", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def info(client, section):
    return info_fields(client.call("INFO", section))


def link_up(client):
    return info(client, "replication").get("master_link_status") == "up"


def content(client, key):
    kind = str(client.call("TYPE", key))
    if kind == "zset":
        flat = client.call("ZRANGE", key, 0, -1, "WITHSCORES")
        value = sorted((member, float(score)) for member, score in zip(flat[::2], flat[1::2]))
    elif kind == "set":
        value = sorted(client.call("SMEMBERS", key))
    elif kind == "hash":
        flat = client.call("HGETALL", key)
        value = sorted(zip(flat[::2], flat[1::2]))
    elif kind == "list":
        value = client.call("LRANGE", key, 0, -1)
    elif kind == "stream":
        value = client.call("XRANGE", key, "-", "+")
    else:
        value = client.call("GET", key)
    return kind, value, client.call("PEXPIRETIME", key)


def contents(client):
    found = {}
    for db in range(4):
        client.call("SELECT", db)
        found.update({(db, key): content(client, key) for key in client.call("KEYS", "*")})
    return found


def same_data(primary, replica):
    """The digests of both, once the replica has what the primary has sent."""
    digests = None

    def equal():
        """Scores are compared as numbers, since versions write them differently: by the content of the keys where the
        digests differ."""
        nonlocal digests
        offset = info(primary, "replication")["master_repl_offset"]
        if info(replica, "replication").get("slave_repl_offset") != offset:
            return False
        digests = primary.call("DEBUG", "DIGEST"), replica.call("DEBUG", "DIGEST")
        same = digests[0] == digests[1] or contents(primary) == contents(replica)
        return same and offset == info(primary, "replication")["master_repl_offset"]
    return until(equal, 30), digests


# What older servers accept or compute in another way, so that a newer replica differs from them by design.
CHANGED_FAMILIES = ("sorting", "hyperloglogs")
CHANGED_WORDS = re.compile(r"[-+]?(0x.*|nan.*|inf.*|\.\d*|\d+\.|.*e[-+]?\d+|.*\.\d{6,})$", re.I)


class Writer:
    """Sends random commands of all families to some databases, alone and in transactions."""

    def __init__(self, port, generator, rng, newest):
        self.generator, self.rng, self.newest = generator, rng, newest
        left_out = ("passing",) if newest else ("passing", *CHANGED_FAMILIES)
        self.families = [generator.FAMILIES[name] for name in generator.SENSIBLE if name not in left_out]
        self.client = Client(port)
        self.sent = 0

    def step(self):
        while True:
            words = self.rng.choice(self.families)()
            if not isinstance(words, list) or not words or not isinstance(words[0],
                                                                          str) or any(str(word)[:1] == "@"
                                                                                      for word in words):
                continue
            if not self.newest and any(CHANGED_WORDS.match(str(word)) for word in words):
                continue
            name = words[0].upper()
            # A genuine server makes the string longer for a BITFIELD that fails, and does not tell its replicas.
            if name not in ("CONFIG", "#CLOCK") and not (name == "BITFIELD"
                                                         and any(str(word).upper() == "FAIL" for word in words)):
                return words

    def burst(self, count):
        batch = [["SELECT", self.rng.randrange(4)]]
        while len(batch) < count:
            if self.rng.random() < 0.1:
                batch += [["MULTI"]] + [self.step() for _ in range(self.rng.randrange(1, 5))] + [["EXEC"]]
            elif self.rng.random() < 0.01:
                batch.append(["SET", "large%d" % self.rng.randrange(5),
                              bytes(self.rng.getrandbits(8) for _ in range(64)) * self.rng.randrange(100, 8000)])
            elif self.rng.random() < 0.02:
                batch.append(["PUBLISH", "channel", "message"])
            else:
                batch.append(self.step())
        self.client.send_raw(b"".join(Client.encode(*words) for words in batch))
        for _ in batch:
            self.client.read()
        self.sent += len(batch)


def follow(name, primary_binary, primary_args, replica_args, generator, seed, seconds, chained=False):
    """chained: a genuine replica of the same version follows ours."""
    title = "%s, %s%s" % (name, " ".join(replica_args) or "defaults", ", chained" if chained else "")
    rng = random.Random(seed)
    generator.R.seed(seed)
    with Server(primary_binary, "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes",
                "--repl-backlog-size", "256mb", *primary_args) as primary:
        proxy = Proxy(lambda: primary.port)
        try:
            writer = Writer(primary.port, generator, rng, "9.1" in name)
            for _ in range(5):
                writer.burst(100)
            with Server(ours(), "--enable-debug-command", "yes", "--replicaof", "127.0.0.1 %d" % proxy.port,
                        *replica_args) as replica:
                with ExitStack() as stack:
                    last = None
                    if chained:
                        last = stack.enter_context(Server(primary_binary, "--enable-debug-command", "yes",
                                                          "--replicaof", "127.0.0.1 %d" % replica.port))
                    follow_and_compare(title, primary, replica, last, proxy, writer, rng, seconds)
        finally:
            proxy.close()


def follow_and_compare(title, primary, replica, last, proxy, writer, rng, seconds):
    theirs, mine = Client(primary.port), Client(replica.port)
    if not report.check(title + ": the link comes up", until(lambda: link_up(mine)), replica.output()):
        return
    before = info(theirs, "stats")
    end, cuts = time.time() + seconds, 0
    while time.time() < end:
        for _ in range(rng.randrange(1, 12)):
            writer.burst(rng.randrange(5, 120))
        if rng.random() < 0.5:
            cuts += 1 if proxy.cut() else 0
            if rng.random() < 0.7:
                writer.burst(50)
            if not report.check(title + ": the link comes back", until(lambda: link_up(mine)), replica.output()):
                return
    ok, digests = same_data(theirs, mine)
    if not report.check(title + ": the data are equal after %d commands and %d cuts" % (writer.sent, cuts), ok,
                        digests):
        for db in range(4):
            compare_keys(theirs, mine, db)
    if last:
        ok, digests = same_data(mine, Client(last.port))
        report.check(title + ": the data of the last of the chain are equal", ok, digests)
        report.equal(title + ": one full synchronization of the last of the chain", "1",
                     info(mine, "stats")["sync_full"])
    after = info(theirs, "stats")
    report.equal(title + ": no full synchronization after the first", before["sync_full"], after["sync_full"])
    resumed = int(after["sync_partial_ok"]) - int(before["sync_partial_ok"])
    report.check(title + ": partial synchronizations", resumed >= cuts, "%d cuts, %d partial" % (cuts, resumed))
    report.equal(title + ": no command of the stream failed", "0", info(mine, "stats")["unexpected_error_replies"])
    report.check(title + ": the server runs", replica.alive() and "CRITICAL" not in replica.output(), replica.output())


def compare_keys(theirs, mine, db):
    for client in (theirs, mine):
        client.call("SELECT", db)
    keys = set(theirs.call("KEYS", "*")) | set(mine.call("KEYS", "*"))
    shown = 0
    for key in sorted(keys):
        values = [client.call("DEBUG", "DIGEST-VALUE", key) for client in (theirs, mine)]
        if values[0] != values[1] and shown < 5:
            shown += 1
            print("  database %d, key %r: %s" % (db, key, [(c.call("TYPE", key), c.call("PTTL", key),
                                                            (c.call("DUMP", key) or b"")[:200])
                                                           for c in (theirs, mine)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--primary", default="")
    options = parser.parse_args()
    if not ours():
        sys.exit("src/valkey-server is missing: run make")
    generator = load_generator()
    newest, why = newest_server()
    primaries = [("Valkey 9.1", newest, why), ("Valkey of the distribution", installed("valkey-server"),
                                               "not installed"),
                 ("Redis of the distribution", installed("redis-server"), "not installed")]
    modes = [[], ["--repl-diskless-load", "swapdb", "--appendonly", "yes"], ["--repl-diskless-load", "on-empty-db"],
             ["--repl-diskless-load", "flush-before-load", "--replica-lazy-flush", "no"]]
    for name, binary, reason in primaries:
        if options.primary not in name:
            continue
        if not binary:
            report.missing(name, reason)
            continue
        for at, mode in enumerate(modes):
            primary_args = ["--repl-diskless-sync", "no"] if at == 0 else []
            follow(name, binary, primary_args, mode, generator, options.seed * 100 + at, options.seconds,
                   chained=at == 2)
        if "9.1" in name:
            dual = ["--dual-channel-replication-enabled", "yes"]
            follow(name, binary, dual, dual + ["--repl-diskless-load", "swapdb"], generator, options.seed * 100 + 50,
                   options.seconds)
            follow(name, binary, dual, dual, generator, options.seed * 100 + 51, options.seconds)
    report.finish()


if __name__ == "__main__":
    main()
