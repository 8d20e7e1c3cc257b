#!/usr/bin/env python3
"""Our server as the primary of genuine replicas: random writes of every command that they know, while links are cut
again and again, in every mode of the full synchronization; then all have the same data, and each link that was cut has
resumed with a partial synchronization.

    tests/interop/replication_primary.py [--seed N] [--seconds S] [--mode NAME]
"""
import argparse
import contextlib
import random
import sys
import time

from common import Client, Report, Server, installed, newest_server, ours, until
from proxy import Proxy
from replication_replica import Writer, compare_keys, info, link_up, load_generator, same_data

report = Report()

MODES = {
    "through a pipe": ([], []),
    "from a file": (["--repl-diskless-sync", "no"], []),
    "swapdb": ([], ["--repl-diskless-load", "swapdb"]),
    "on two channels": (["--dual-channel-replication-enabled", "yes"], ["--dual-channel-replication-enabled", "yes"]),
    "I/O threads": (["--io-threads", "3"], []),
}


class Replica:
    """A genuine server behind a proxy whose connections can be cut."""

    def __init__(self, stack, name, binary, primary, args):
        self.name = name
        self.proxy = Proxy(lambda: primary.port)
        stack.callback(self.proxy.close)
        self.server = stack.enter_context(
            Server(binary, "--enable-debug-command", "yes", "--replicaof", "127.0.0.1 %d" % self.proxy.port, *args))
        self.client = Client(self.server.port)
        stack.callback(self.client.close)
        self.cuts = 0

    def commands(self):
        return {name.decode().upper() for name in self.client.call("COMMAND", "LIST")}

    def is_up(self):
        return link_up(self.client)

    def log(self):
        return self.server.output()[-1500:]


class KnownWriter(Writer):
    """Sends only what every replica knows: a primary of Valkey sends its newer commands to older replicas, too."""

    # Commands that are propagated under another, newer name.
    NEWER = {"HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", "HPERSIST", "HSETEX", "HGETEX", "HGETDEL", "MSETEX",
             "DELIFEQ"}

    def __init__(self, port, generator, rng, followers):
        super().__init__(port, generator, rng, all("9.1" in replica.name for replica in followers))
        self.known = set.intersection(*(replica.commands() for replica in followers))

    def step(self):
        while True:
            words = super().step()
            if words[0].upper() not in self.known:
                continue
            if self.NEWER <= self.known or not any(str(word).upper() in ("IFEQ", "FNX", "FXX", "BYPOLYGON")
                                                   for word in words):
                return words


def follow(mode, replicas, generator, seed, seconds):
    primary_args, replica_args = MODES[mode]
    rng = random.Random(seed)
    generator.R.seed(seed)
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(
            Server(ours(), "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--repl-backlog-size",
                   "256mb", *primary_args))
        control = Client(primary.port)
        stack.callback(control.close)
        for i in range(2000):
            control.call("SET", "filler:%d" % i, "x" * 1000)
        followers = [Replica(stack, name, binary, primary, replica_args) for name, binary in replicas]
        writer = KnownWriter(primary.port, generator, rng, followers)
        # The copy begins while the data change.
        end = time.time() + 60
        while not all(replica.is_up() for replica in followers) and time.time() < end:
            writer.burst(20)
        for replica in followers:
            if not report.check("%s, %s: the link comes up" % (mode, replica.name), replica.is_up(), replica.log()):
                return
        fulls = info(control, "stats")["sync_full"]
        change_and_cut(mode, control, writer, followers, rng, seconds)
        compare(mode, primary, control, writer, followers, fulls)


def change_and_cut(mode, control, writer, followers, rng, seconds):
    end = time.time() + seconds
    while time.time() < end:
        for _ in range(rng.randrange(1, 10)):
            writer.burst(rng.randrange(5, 120))
        replica = rng.choice(followers)
        if replica.is_up() and replica.proxy.cut():
            replica.cuts += 1
            writer.burst(50)
        for replica in followers:
            if not until(replica.is_up):
                report.check("%s, %s: the link comes back" % (mode, replica.name), False, replica.log())
                return


def compare(mode, primary, control, writer, followers, fulls):
    for replica in followers:
        ok, digests = same_data(control, replica.client)
        title = "%s, %s" % (mode, replica.name)
        if not report.check("%s: the data are equal after %d commands and %d cuts" % (title, writer.sent, replica.cuts),
                            ok, digests):
            for db in range(4):
                compare_keys(control, replica.client, db)
        report.check(title + ": no command of the stream failed", "CRITICAL" not in replica.server.output(),
                     replica.log())
    stats, cuts = info(control, "stats"), sum(replica.cuts for replica in followers)
    report.check(mode + ": no full synchronization after the first ones", fulls == stats["sync_full"],
                 "%s at first, %s now: %s" % (fulls, stats["sync_full"],
                                              [line for line in primary.output(10**6).splitlines() if "esync" in line]))
    report.check(mode + ": partial synchronizations", int(stats["sync_partial_ok"]) >= cuts,
                 "%d cuts, %s" % (cuts, stats["sync_partial_ok"]))
    report.check(mode + ": the primary runs", primary.alive(), primary.output()[-1500:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--mode", default="")
    options = parser.parse_args()
    if not ours():
        sys.exit("src/valkey-server is missing: run make")
    generator = load_generator()
    newest, why = newest_server()
    peers = [("Valkey 9.1", newest, why), ("Valkey of the distribution", installed("valkey-server"), "not installed"),
             ("Redis of the distribution", installed("redis-server"), "not installed")]
    for name, binary, reason in peers:
        if not binary:
            report.missing(name, reason)
    there = [(name, binary) for name, binary, _ in peers if binary]
    for at, mode in enumerate(MODES):
        if options.mode not in mode:
            continue
        # Redis 7.0 has neither the option nor the newer commands, so the newest replica is also alone once.
        takers = [peer for peer in there if "Redis" not in peer[0]] if mode == "on two channels" else there
        if takers:
            follow(mode, takers, generator, options.seed * 100 + at, options.seconds)
    if newest and options.mode in "through a pipe":
        follow("through a pipe", [("Valkey 9.1 alone", newest)], generator, options.seed * 100 + 90, options.seconds)
    report.finish()


if __name__ == "__main__":
    main()
