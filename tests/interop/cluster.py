#!/usr/bin/env python3
"""A cluster of three genuine nodes and three of ours: joining, gossip, every kind of failover from each kind to the
other, restarts, and a node whose program is exchanged while it keeps its nodes.conf. All nodes must have the same
opinion of the cluster at each step, the copies of a shard must be equal, and the genuine nodes must not warn.

    tests/interop/cluster.py
"""
import contextlib
import re
import signal
import socket
import time

from common import Client, Error, Report, Server, newest_server, ours, until

report = Report()
TIMEOUT_MS = 2000
KINDS = ("ours", "genuine", "ours", "genuine", "ours", "genuine")  # three primaries, then the replica of each
# Warnings of a genuine node that say nothing about ours: its machine, its end, the nodes that the test kills.
EXPECTED = ("overcommit", "bye bye", "Cluster is currently down", "Cluster state changed",
            "Error condition on socket for SYNC", "Failed to read response from the server", "handshake timeout")


class Node:
    def __init__(self, stack, kind, programs):
        self.kind, self.programs = kind, programs
        self.server = stack.enter_context(Server(
            programs[kind], "--cluster-enabled", "yes", "--cluster-node-timeout", str(TIMEOUT_MS),
            "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--cluster-announce-human-nodename",
            "node-{port}", "--cluster-announce-hostname", "host-{port}"))
        self.id = self.call("CLUSTER", "MYID").decode()

    def call(self, *words):
        return self.server.call(*words)

    def view(self):
        """{id: (address, flags, primary, epoch, slots)}"""
        found = {}
        for line in self.call("CLUSTER", "NODES").decode().splitlines():
            fields = line.split(" ")
            flags = tuple(flag for flag in fields[2].split(",") if flag != "myself")
            found[fields[0]] = (fields[1], flags, fields[3], fields[6], tuple(fields[8:]))
        return found

    def is_primary(self):
        return self.call("ROLE")[0] == b"master"

    def cluster_info(self):
        return dict(line.split(":") for line in self.call("CLUSTER", "INFO").decode().splitlines() if line)

    def exchange(self):
        """Stops the node and starts the other program in its directory, with its data."""
        self.call("SAVE")
        self.server.process.terminate()
        self.server.process.wait(20)
        self.kind = "genuine" if self.kind == "ours" else "ours"
        self.server.program = [self.programs[self.kind]]
        self.server.start()


def hash_slot(key):
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc & 16383


class Cluster:
    def __init__(self, stack, programs):
        self.nodes = [Node(stack, kind, programs) for kind in KINDS]
        self.primaries, self.replicas = self.nodes[:3], self.nodes[3:]
        self.written = {}

    def running(self):
        return [node for node in self.nodes if node.server.alive()]

    def agreement(self):
        """All nodes that run have the same view, without failures among them."""
        views = [node.view() for node in self.running()]
        alive = {node.id for node in self.running()}
        return all(view == views[0] for view in views) and all(
            not any("fail" in flag or flag == "handshake" for flag in views[0][name][1]) for name in alive)

    def settled(self):
        if not self.agreement():
            return False
        for node in self.running():
            if node.cluster_info()["cluster_state"] != "ok":
                return False
            if not node.is_primary() and node.server.info("replication")["master_link_status"] != "up":
                return False
        return True

    def check_settled(self, title):
        if not report.check(title, until(self.settled, 40), self.describe()):
            return
        self.check_copies(title)
        self.check_data(title)

    def describe(self):
        return "\n".join("%s %s:\n%s" % (node.kind, node.server.port, node.call("CLUSTER", "NODES").decode())
                         for node in self.running())

    def primary_of(self, node):
        wanted = node.view()[node.id][2]
        return next(other for other in self.nodes if other.id == wanted)

    def check_copies(self, title):
        for node in self.running():
            if node.is_primary():
                continue
            primary = self.primary_of(node)
            same = until(lambda: node.call("DEBUG", "DIGEST") == primary.call("DEBUG", "DIGEST"), 10)
            report.check("%s: copy of %s at %s" % (title, primary.kind, node.kind), same)

    def owner(self, slot):
        for range_ in self.running()[0].call("CLUSTER", "SLOTS"):
            if range_[0] <= slot <= range_[1]:
                return next(node for node in self.nodes if node.id == range_[2][2].decode())

    def write(self):
        for number in range(200):
            key, value = "key:%d" % number, "value:%d:%d" % (number, len(self.written))
            self.written[key] = value
            reply = self.owner(hash_slot(key)).call("SET", key, value)
            if isinstance(reply, Error):
                report.check("SET", False, reply)

    def check_data(self, title):
        lost = [key for key, value in self.written.items()
                if self.owner(hash_slot(key)).call("GET", key) != value.encode()]
        report.check(title + ": no key is lost", not lost, lost[:5])

    def form(self):
        for index, node in enumerate(self.primaries):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
            node.call("CLUSTER", "ADDSLOTSRANGE", str(16384 * index // 3), str(16384 * (index + 1) // 3 - 1))
        for node in self.nodes[1:]:
            # From each kind to each kind.
            self.nodes[0 if node.kind == "genuine" else 1].call("CLUSTER", "MEET", "127.0.0.1", str(node.server.port))
        self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", str(self.nodes[1].server.port))
        met = until(lambda: all(len(node.view()) == 6 for node in self.nodes) and self.agreement(), 30)
        report.check("six nodes meet", met, self.describe())
        for node, primary in zip(self.replicas, self.primaries):
            report.equal("%s follows %s" % (node.kind, primary.kind), "OK", str(node.call("CLUSTER", "REPLICATE",
                                                                                         primary.id)))


def shards(node):
    """CLUSTER SHARDS without what differs between nodes by nature."""
    found = set()
    for shard in node.call("CLUSTER", "SHARDS"):
        fields = dict(zip(shard[::2], shard[1::2]))
        members = []
        for member in fields[b"nodes"]:
            member = dict(zip(member[::2], member[1::2]))
            member.pop(b"replication-offset")
            members.append(tuple(sorted((name, str(value)) for name, value in member.items())))
        found.add((fields.get(b"id"), tuple(fields[b"slots"]), tuple(sorted(members))))
    return found


def check_views(cluster):
    seen = until(lambda: all(shards(node) == shards(cluster.nodes[0]) for node in cluster.nodes), 20)
    report.check("CLUSTER SHARDS is the same everywhere", seen,
                 [shards(node) ^ shards(cluster.nodes[0]) for node in cluster.nodes])
    names = {node.id: "host-%d" % node.server.port for node in cluster.nodes}
    for node in cluster.nodes:
        told = {name: address[0].split(",")[1] for name, address in node.view().items()}
        report.equal("host names at " + node.kind, names, told)
    keys = {kind: list(next(node for node in cluster.nodes if node.kind == kind).cluster_info()) for kind in KINDS}
    stable = {kind: [name for name in names if "messages" not in name] for kind, names in keys.items()}
    report.equal("fields of CLUSTER INFO", stable["genuine"], stable["ours"])


def fail_over(cluster, primary):
    """The primary is killed; its replica takes over; the primary comes back."""
    replica = next(node for node in cluster.running() if not node.is_primary() and cluster.primary_of(node) is primary)
    title = "%s is killed, %s takes over" % (primary.kind, replica.kind)
    primary.server.kill()
    report.check(title, until(replica.is_primary, 30), replica.server.output())
    primary.server.start()
    report.check(title + ", and is followed", until(lambda: not primary.is_primary(), 30), primary.server.output())
    cluster.check_settled(title)


def manual(cluster, replica, *words):
    """CLUSTER FAILOVER at the replica."""
    primary = cluster.primary_of(replica)
    title = " ".join(("CLUSTER FAILOVER",) + words) + " from %s to %s" % (primary.kind, replica.kind)
    report.equal(title + " is accepted", "OK", str(replica.call("CLUSTER", "FAILOVER", *words)))
    report.check(title, until(replica.is_primary, 15), replica.server.output())
    cluster.check_settled(title)


def shut_down(cluster, primary):
    replica = next(node for node in cluster.running() if not node.is_primary() and cluster.primary_of(node) is primary)
    title = "SHUTDOWN FAILOVER from %s to %s" % (primary.kind, replica.kind)
    before = len(replica.server.output())
    with contextlib.suppress(OSError):
        primary.call("SHUTDOWN", "NOSAVE", "FAILOVER")
    primary.server.process.wait(20)
    report.check(title, until(replica.is_primary, 10), replica.server.output())
    log = replica.server.output()[before:]
    log = log[:log.find("Failover election won")]
    report.check(title + ": at once", "about " + primary.id not in log and "Marking node " + primary.id not in log, log)
    primary.server.start()
    cluster.check_settled(title)


def check_messages(cluster):
    """PUBLISH at each node reaches the subscribers of each other one."""
    for sender in (cluster.nodes[0], cluster.nodes[1]):
        for receiver in (cluster.nodes[2], cluster.nodes[3]):
            with Client(receiver.server.port) as client:
                client.call("SUBSCRIBE", "channel")
                sender.call("PUBLISH", "channel", "x" * 100000)
                try:
                    got = client.read()
                except (OSError, socket.timeout):
                    got = None
                report.check("PUBLISH from %s to %s" % (sender.kind, receiver.kind),
                             got == [b"message", b"channel", b"x" * 100000], str(got)[:100])


def check_forget(cluster, stack, programs):
    """Another node joins and is forgotten: genuine and our nodes tell each other to forget it."""
    for kind in ("ours", "genuine"):
        node = Node(stack, kind, programs)
        node.call("CLUSTER", "MEET", "127.0.0.1", str(cluster.nodes[0].server.port))
        joined = until(lambda: all(node.id in other.view() for other in cluster.nodes), 20)
        report.check(kind + " joins", joined, cluster.describe())
        node.server.kill()
        teller = next(other for other in cluster.nodes if other.kind != kind)
        report.equal("FORGET at " + teller.kind, "OK", str(teller.call("CLUSTER", "FORGET", node.id)))
        gone = until(lambda: all(node.id not in other.view() for other in cluster.nodes), 20)
        report.check("a node of %s is forgotten by all" % kind, gone, cluster.describe())
        node.server.stop()


def check_exchange(cluster):
    for node in (cluster.nodes[3], cluster.nodes[4]):
        before = node.kind
        title = "%s continues with the nodes.conf of %s" % ("genuine" if before == "ours" else "ours", before)
        node.exchange()
        report.equal(title, node.id, node.call("CLUSTER", "MYID").decode())
        cluster.check_settled(title)
        node.exchange()
        cluster.check_settled(title + ", and back")


def check_warnings(cluster):
    for node in cluster.nodes:
        if node.kind != "genuine":
            continue
        with open(node.server.log, "rb") as file:
            lines = [line for line in file.read().decode("latin-1").splitlines() if re.search(r"^\S+ .{24} # ", line)]
        odd = [line for line in lines if not any(text in line for text in EXPECTED)]
        report.check("a genuine node does not warn", not odd, "\n".join(odd[:10]))
        unknown = [line for line in node.server.output(None).splitlines() if "unknown" in line.lower()]
        report.check("a genuine node knows all that it receives", not unknown, "\n".join(unknown[:5]))


def main():
    genuine, reason = newest_server()
    if not genuine:
        report.missing("clusters with genuine nodes", reason)
        report.finish()
    programs = {"ours": ours(), "genuine": genuine}
    with contextlib.ExitStack() as stack:
        cluster = Cluster(stack, programs)
        cluster.form()
        cluster.check_settled("a cluster of both forms")
        cluster.write()
        cluster.check_settled("data of a new cluster")
        check_views(cluster)
        check_messages(cluster)
        fail_over(cluster, cluster.nodes[0])
        fail_over(cluster, cluster.nodes[1])
        cluster.write()
        manual(cluster, cluster.nodes[0])
        manual(cluster, cluster.nodes[1])
        manual(cluster, cluster.nodes[3], "FORCE")
        manual(cluster, cluster.nodes[4], "FORCE")
        manual(cluster, cluster.nodes[0], "TAKEOVER")
        manual(cluster, cluster.nodes[1], "TAKEOVER")
        shut_down(cluster, cluster.nodes[0])
        shut_down(cluster, cluster.nodes[1])
        cluster.write()
        check_forget(cluster, stack, programs)
        check_exchange(cluster)
        for node in cluster.nodes:
            node.server.signal(signal.SIGTERM)
        for node in cluster.nodes:
            node.server.process.wait(20)
        for node in cluster.nodes:
            node.server.launch()
        until(lambda: all(node.server.answers() for node in cluster.nodes), 20)
        report.check("all nodes start again", until(cluster.settled, 40), cluster.describe())
        check_warnings(cluster)
    report.finish()


if __name__ == "__main__":
    main()
