#!/usr/bin/env python3
"""Records what genuine nodes of a cluster write: messages of the bus of all types and with all extensions, and files
nodes.conf. The unit tests of the cluster's formats read them.

    GENUINE_VALKEY=DIR tests/interop/cluster_packets.py [DIRECTORY]     the default is tests/unit/data

It starts five nodes, three primaries, a replica and a node that is forgotten. Each announces a bus port of this
program, which passes the bytes on to the node's own and reads them. Then slots, names, failovers and published messages
change until every kind has been seen.

A recording is text: for each message a line with its name, and one with its bytes in hexadecimal, where "00*20" stands
for 20 bytes of zeros."""
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack

from common import ROOT, Server, free_port, newest_server, wait_for

HEADER, LIGHT = 2256, 0x8000
TYPES = ("ping pong meet fail publish auth-req auth-ack update mfstart module publishshard").split()
NODE_FLAGS_AT, LIGHT_FLAGS = 2250, 2048 | 4096
EXTENSIONS = ("hostname nodename forgotten shard client-ipv4 client-ipv6 client-port client-tls-port zone").split()


def describe(packet):
    """What kind of message it is: two of one kind need not both be kept."""
    kind = struct.unpack_from(">H", packet, 12)[0]
    words = [TYPES[kind & ~LIGHT]]
    if kind & LIGHT:
        return words[0] + " light"
    flags = struct.unpack_from(">H", packet, NODE_FLAGS_AT)[0]
    words.append("replica" if flags & 2 else "primary")
    words += [name for bit, name in ((8192, "primary-failed"), (512, "nofailover")) if flags & bit]
    words += ["slots"] if any(packet[80:2128]) else []
    words += ["down"] if packet[2252] else []
    words += [name for bit, name in ((1, "paused"), (2, "force-ack")) if packet[2253] & bit]
    if kind > 2:
        return " ".join(words)
    count, extensions = struct.unpack_from(">H", packet, 14)[0], struct.unpack_from(">H", packet, 2214)[0]
    at = HEADER + 104 * count
    for entry in range(count):
        flags = struct.unpack_from(">H", packet, HEADER + 104 * entry + 98)[0]
        words += [name for bit, name in ((4, "pfail-entry"), (8, "fail-entry")) if flags & bit and name not in words]
    words += ["gossip"] if count else []
    for _ in range(extensions):
        length, extension = struct.unpack_from(">IH", packet, at)
        if EXTENSIONS[extension] not in words:
            words.append(EXTENSIONS[extension])
        at += length
    return " ".join(words)


class Recorder:
    """Passes on the bytes of all bus connections, and keeps the first message of each kind."""

    def __init__(self):
        self.packets, self.lock, self.plain = {}, threading.Lock(), None
        self.closed = False

    def listen(self, port, target):
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, args=(listener, target), daemon=True).start()

    def accept(self, listener, target):
        while not self.closed:
            client = listener.accept()[0]
            try:
                node = socket.create_connection(("127.0.0.1", target), timeout=2)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self.relay, args=(client, node), daemon=True).start()

    def relay(self, client, node):
        ends = {client: [node, b""], node: [client, b""]}
        try:
            while not self.closed:
                for end in select.select(list(ends), [], [], 1)[0]:
                    got = end.recv(65536)
                    if not got:
                        return
                    other, data = ends[end]
                    data += got
                    while len(data) >= 8 and len(data) >= struct.unpack_from(">I", data, 4)[0]:
                        length = struct.unpack_from(">I", data, 4)[0]
                        other.sendall(self.record(data[:length]))
                        data = data[length:]
                    ends[end][1] = data
        except OSError:
            pass
        finally:
            client.close()
            node.close()

    def record(self, packet):
        with self.lock:
            self.packets.setdefault(describe(packet), packet)
        # Nodes believe that this one does not understand light headers.
        if self.plain and not packet[12] & 0x80 and packet[40:80] == self.plain:
            flags = struct.unpack_from(">H", packet, NODE_FLAGS_AT)[0] & ~LIGHT_FLAGS
            packet = packet[:NODE_FLAGS_AT] + struct.pack(">H", flags) + packet[NODE_FLAGS_AT + 2:]
        return packet

    def kinds(self):
        with self.lock:
            return set(self.packets)

    def until(self, *words):
        """Waits for a message of whose name these are words."""
        wait_for("a message " + " ".join(words),
                 lambda: any(set(words) <= set(kind.split()) for kind in self.kinds()))


def chosen(packets):
    """Those that show something that no other one does, with its type. The longest names come first."""
    seen, names = set(), []
    for name in sorted(packets, key=lambda name: (-len(name), name)):
        kind, *words = name.split(" ")
        shown = {(kind, word) for word in words or [""]}
        shown.add((kind, " ".join(word for word in words if word in EXTENSIONS)))
        if not shown <= seen:
            names.append(name)
        seen |= shown
    return sorted(names)


def hexadecimal(packet):
    """The bytes, where runs of more than eight equal ones are counted."""
    text, at = "", 0
    while at < len(packet):
        end = at
        while end < len(packet) and packet[end] == packet[at]:
            end += 1
        if end - at > 8:
            text += " %02x*%d " % (packet[at], end - at)
            at = end
        else:
            text += "%02x" % packet[at]
            at += 1
    return " ".join(text.split())


class Cluster:
    def __init__(self, stack, recorder, module, names):
        self.nodes = []
        for name in names:
            bus, announced = free_port(), free_port()
            recorder.listen(announced, bus)
            options = ["--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-announce-bus-port", announced,
                       "--cluster-node-timeout", 1500, "--loglevel", "debug", "--cluster-config-file", "nodes.conf",
                       "--repl-diskless-sync-delay", 0, "--cluster-allow-replica-migration", "no",
                       "--enable-module-command", "yes"]
            node = stack.enter_context(Server(newest_server()[0], *options))
            node.name, node.bus = name, announced
            node.id = node.call("CLUSTER", "MYID").decode()
            if module:
                node.call("MODULE", "LOAD", module)
            self.nodes.append(node)

    def meet(self):
        first = self.nodes[0]
        for node in self.nodes[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus)
        self.until("all nodes know each other", lambda node: node.call("CLUSTER", "INFO").count(
            b"cluster_known_nodes:%d\r\n" % len(self.nodes)))
        self.until("all nodes know the shards", lambda node: len(node.call("CLUSTER", "SHARDS")) == len(self.nodes))

    def until(self, what, condition, nodes=None):
        for node in nodes or self.nodes:
            wait_for(what, lambda node=node: condition(node))


def ok(node):
    return b"cluster_state:ok" in node.call("CLUSTER", "INFO")


def play(stack, recorder, module, keep):
    cluster = Cluster(stack, recorder, module, ["one", "two", "three", "replica", "gone"])
    one, two, three, replica, gone = cluster.nodes
    keep("new", one)
    cluster.meet()
    for node, (first, last) in ((one, (0, 5000)), (two, (5001, 9999)), (three, (10000, 16383))):
        node.call("CLUSTER", "ADDSLOTSRANGE", first, last)
        node.call("CONFIG", "SET", "cluster-announce-human-nodename", node.name)
    one.call("CONFIG", "SET", "cluster-announce-hostname", "one.example.com")
    for option, value in (("announce-client-ipv4", "192.0.2.7"), ("announce-client-ipv6", "2001:db8::7"),
                          ("announce-client-port", 7000), ("announce-client-tls-port", 7001)):
        two.call("CONFIG", "SET", "cluster-" + option, value)
    two.call("CONFIG", "SET", "availability-zone", "zone-2")
    three.call("CONFIG", "SET", "cluster-announce-hostname", "three-0123.example.com")
    three.call("CONFIG", "SET", "availability-zone", "zone-3")
    replica.call("CLUSTER", "REPLICATE", one.id)
    cluster.until("the cluster works", ok)
    wait_for("the replica is in sync", lambda: replica.info("replication")["master_link_status"] == "up")
    one.call("CLUSTER", "FORGET", gone.id)
    recorder.until("forgotten")
    for wanted in ("hostname", "zone", "client-ipv6", "client-tls-port"):
        recorder.until(wanted)

    for node in (one, two, three, replica):
        node.call("PUBLISH", "news", "to all nodes")
        node.call("SPUBLISH", "{one}", "to the shard")  # a channel of another shard is an error
        node.call("SPUBLISH", "{news}", "to the shard")
        node.call("SPUBLISH", "{b}", "to the shard")
        if module:
            node.call("CLUSTERMESSAGE", 7, "of a module")
    recorder.until("publish", "light")
    recorder.until("publishshard", "light")
    recorder.plain = three.id.encode()
    wait_for("a node without light headers", lambda: one.call("PUBLISH", "news", "in full") is not None and any(
        kind.startswith("publish ") and kind != "publish light" for kind in recorder.kinds()))
    recorder.plain = replica.id.encode()
    wait_for("a replica without light headers", lambda: [one.call(
        "SPUBLISH", channel, "in full") for channel in ("{one}", "{news}", "{b}")] and any(
            kind.startswith("publishshard ") and kind != "publishshard light" for kind in recorder.kinds()))
    if module:
        wait_for("a module's message in full", lambda: one.call("CLUSTERMESSAGE", 7, "in full") is not None and any(
            kind.startswith("module ") and kind != "module light" for kind in recorder.kinds()))
    recorder.plain = None

    two.call("CLUSTER", "SETSLOT", 5001, "MIGRATING", three.id)
    three.call("CLUSTER", "SETSLOT", 5001, "IMPORTING", two.id)
    two.call("CLUSTER", "DELSLOTS", 6000)
    keep("migrating", two)
    keep("importing", three)
    keep("replica", replica)
    two.call("CLUSTER", "ADDSLOTS", 6000)
    two.call("CLUSTER", "SETSLOT", 5001, "STABLE")
    cluster.until("the cluster works", ok, [one, two, three, replica])

    # Two failovers: asked for, and because the primary is gone.
    replica.call("CLUSTER", "FAILOVER")
    wait_for("the replica leads", lambda: replica.call("ROLE")[0] == b"master")
    recorder.until("mfstart")
    recorder.until("paused")
    wait_for("its old primary follows", lambda: one.info("replication").get("master_link_status") == "up")
    replica.process.kill()
    replica.process.wait()
    wait_for("the other one leads", lambda: one.call("ROLE")[0] == b"master")
    for wanted in ("fail", "auth-req", "auth-ack", "pfail-entry", "fail-entry"):
        recorder.until(wanted)
    cluster.until("the cluster works", ok, [one, two, three])
    keep("failed", two)
    replica.start()
    recorder.until("update")
    wait_for("it follows again", lambda: replica.info("replication").get("master_link_status") == "up")
    replica.call("CONFIG", "SET", "cluster-replica-no-failover", "yes")
    recorder.until("nofailover")
    wait_for("its primary knows", lambda: b"slave,nofailover" in one.call("CLUSTER", "NODES"))
    keep("nofailover", one)
    for node in (two, three):
        node.process.kill()
        node.process.wait()
    wait_for("one may have failed", lambda: b"fail? " in one.call("CLUSTER", "NODES"))
    keep("minority", one)


def main():
    why = newest_server()[1]
    if why:
        sys.exit(why)
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "unit", "data")
    files = {}

    def keep(name, node):
        node.call("CLUSTER", "SAVECONFIG")
        with open(os.path.join(node.dir, "nodes.conf"), encoding="latin-1") as file:
            files["cluster-nodes-" + name] = file.read()

    recorder = Recorder()
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        module = os.path.join(scratch, "module.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cluster_message_module.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", module, source], check=True)
        try:
            play(stack, recorder, module, keep)
        except BaseException:
            print("\n".join(sorted(recorder.kinds())), file=sys.stderr)
            raise
        recorder.closed = True
    with open(os.path.join(directory, "cluster-packets"), "w", encoding="ascii") as file:
        kinds = chosen(recorder.packets)
        for kind in kinds:
            file.write("%s\n%s\n" % (kind, hexadecimal(recorder.packets[kind])))
    for name, text in files.items():
        with open(os.path.join(directory, name), "w", encoding="latin-1") as file:
            file.write(text)
    print("%d messages, %d files" % (len(kinds), len(files)))


if __name__ == "__main__":
    main()
