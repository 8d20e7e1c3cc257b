#!/usr/bin/env python3
"""Chains and stars of our servers and genuine ones, over TCP and over RDMA: random writes of every command that all of
them know, while links are cut again and again; then every server has the data of the first one, and each link that was
cut has resumed with a partial synchronization.

    tests/interop/replication_mixed.py [--seed N] [--seconds S] [--group NAME]
"""
import argparse
import contextlib
import random
import sys
import time

from common import Client, Report, Server, installed, newest_server, ours, rdma_device, until
from proxy import Proxy
from replication_primary import KnownWriter
from replication_replica import compare_keys, info, link_up, load_generator, same_data

report = Report()

# {name: [(server, index of the one that it follows, transport)]}; "ours" speaks RDMA only with "ours".
GROUPS = {
    "chain 9.1, ours, 8.0, ours": [("9.1", None, "tcp"), ("ours", 0, "tcp"), ("8.0", 1, "tcp"), ("ours", 2, "tcp")],
    "chain ours, 9.1, ours, 9.1": [("ours", None, "tcp"), ("9.1", 0, "tcp"), ("ours", 1, "tcp"), ("9.1", 2, "tcp")],
    "chain Redis, ours, ours, 9.1": [("Redis", None, "tcp"), ("ours", 0, "tcp"), ("ours", 1, "rdma"),
                                     ("9.1", 2, "tcp")],
    "chain ours, ours by RDMA, ours by RDMA, 9.1": [("ours", None, "tcp"), ("ours", 0, "rdma"), ("ours", 1, "rdma"),
                                                    ("9.1", 2, "tcp")],
    "star around ours": [("ours", None, "tcp"), ("9.1", 0, "tcp"), ("8.0", 0, "tcp"), ("Redis", 0, "tcp"),
                         ("ours", 0, "rdma"), ("ours", 0, "tcp")],
    "star around ours, which follows 9.1": [("9.1", None, "tcp"), ("ours", 0, "tcp"), ("8.0", 1, "tcp"),
                                            ("9.1", 1, "tcp"), ("ours", 1, "rdma")],
}


class Node:
    """A server and its link to the one above. A link over TCP passes a proxy; one over RDMA is cut from above."""

    def __init__(self, stack, kind, binary, above, transport):
        self.name = "Valkey 9.1" if kind in ("ours", "9.1") else kind  # which commands KnownWriter may send
        self.title, self.above, self.transport, self.cuts = kind, above, transport, 0
        args = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--repl-backlog-size", "64mb"]
        rdma = kind == "ours" and bool(rdma_device())
        if rdma:
            args += ["--rdma-replication", "yes" if transport == "rdma" else "no"]
        self.proxy = None
        if above and transport == "tcp":
            self.proxy = Proxy(lambda: above.server.port)
            stack.callback(self.proxy.close)
        if above:
            args += ["--replicaof", "127.0.0.1 %d" % (self.proxy.port if self.proxy else above.server.port)]
        self.server = stack.enter_context(Server(binary, *args, rdma=rdma))
        self.client = Client(self.server.port)
        stack.callback(self.client.close)
        self.fulls = self.partials = 0

    def commands(self):
        return {name.decode().upper() for name in self.client.call("COMMAND", "LIST")}

    def is_up(self):
        return link_up(self.client)

    def cut(self):
        """Cuts this server's link; one over RDMA together with those of all replicas that its primary has. False: there
        was none."""
        if self.proxy:
            return self.proxy.cut() > 0
        return int(self.above.client.call("CLIENT", "KILL", "TYPE", "replica")) > 0

    def synchronizations(self):
        """(full, partial) that it has given to others."""
        stats = info(self.client, "stats")
        return int(stats["sync_full"]), int(stats["sync_partial_ok"])


def run(title, members, binaries, generator, seed, seconds):
    rng = random.Random(seed)
    generator.R.seed(seed)
    with contextlib.ExitStack() as stack:
        nodes = []
        for kind, above, transport in members:
            nodes.append(Node(stack, kind, binaries[kind], None if above is None else nodes[above], transport))
            nodes[-1].title = "%s, %d (%s)" % (title, len(nodes), kind)
        first, followers = nodes[0], nodes[1:]
        for i in range(500):
            first.client.call("SET", "filler:%d" % i, "x" * 1000)
        writer = KnownWriter(first.server.port, generator, rng, nodes)
        writer.burst(200)
        for node in followers:
            if not report.check(node.title + ": the link comes up", until(node.is_up), node.server.output()):
                return
        for node in followers:
            if node.transport == "rdma":
                report.equal(node.title + ": the link uses RDMA", "rdma",
                             info(node.client, "replication").get("master_link_transport"))
        before = [node.synchronizations() for node in nodes]
        end = time.time() + seconds
        while time.time() < end:
            for _ in range(rng.randrange(1, 8)):
                writer.burst(rng.randrange(5, 120))
            node = rng.choice(followers)
            if node.is_up() and node.cut():
                node.cuts += 1
                writer.burst(50)
            for node in followers:
                if not until(node.is_up):
                    report.check(node.title + ": the link comes back", False, node.server.output())
                    return
        compare(title, nodes, writer, before)


def compare(title, nodes, writer, before):
    first = nodes[0]
    for node in nodes[1:]:
        ok, digests = same_data(first.client, node.client)
        if not report.check("%s: the data are equal after %d commands and %d cuts"
                            % (node.title, writer.sent, node.cuts), ok, digests):
            for db in range(4):
                compare_keys(first.client, node.client, db)
        report.check(node.title + ": no command of the stream failed", "CRITICAL" not in node.server.output(10**6),
                     node.server.output())
    for node, (full, partial) in zip(nodes, before):
        cuts = sum(other.cuts for other in nodes if other.above is node)
        full_now, partial_now = node.synchronizations()
        report.equal(node.title + ": no full synchronization after the first ones", full, full_now)
        report.check(node.title + ": partial synchronizations", partial_now - partial >= cuts,
                     "%d cuts, %d" % (cuts, partial_now - partial))
        report.check(node.title + ": the server runs", node.server.alive(), node.server.output())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--group", default="")
    options = parser.parse_args()
    if not ours():
        sys.exit("src/valkey-server is missing: run make")
    generator = load_generator()
    newest, why = newest_server()
    binaries = {"ours": ours(), "9.1": newest, "8.0": installed("valkey-server"), "Redis": installed("redis-server")}
    for at, (title, members) in enumerate(GROUPS.items()):
        if options.group not in title:
            continue
        missing = [kind for kind, _, _ in members if not binaries[kind]]
        if not missing and not rdma_device() and any(transport == "rdma" for _, _, transport in members):
            missing = ["the software RDMA device"]
        if missing:
            report.missing(title, (why if missing[0] == "9.1" else None) or missing[0] + " is not there")
            continue
        run(title, members, binaries, generator, options.seed * 100 + at, options.seconds)
    report.finish()


if __name__ == "__main__":
    main()
