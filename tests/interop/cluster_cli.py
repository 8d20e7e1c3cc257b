#!/usr/bin/env python3
"""Our valkey-cli --cluster against genuine's.

Commands that change nothing run with both tools against the same cluster of genuine servers, and must print the same.
Commands that change the cluster run with one tool each, against two clusters that are set up in the same way; there the
outputs are compared with ids, ports and the order of nodes left out, and so are the clusters in the end. The last part
is ours alone: failures, several databases, passwords, TLS.

    cluster_cli.py [--servers genuine|ours|mixed]     the nodes of the clusters; mixed: every other one is ours
"""
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from common import ROOT, Client, Error, Report, Server, free_port, newest_server, ours, run, wait_for
from servers import PORTS

report = Report()
GENUINE, REASON = newest_server()
OURS = ours("valkey-cli")
if not GENUINE:
    report.missing("valkey-cli --cluster", REASON)
    report.finish()
THEIRS = os.path.join(os.path.dirname(GENUINE), "valkey-cli")
SLOTS = 16384
# --servers ours, or mixed: the same with our servers as nodes, or every other one.
SERVERS = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--servers" else "genuine"
PROGRAMS = itertools.cycle({"genuine": [GENUINE], "ours": [ours()], "mixed": [GENUINE, ours()]}[SERVERS])
NODE_OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-databases", "4",
                "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0")


def port_is_free(port):
    for number in (port, port + 10000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return False
    return True


def cluster_port():
    """A free port, whose bus port is free, too."""
    while True:
        port = free_port()
        if port + 10000 <= PORTS[1] and port_is_free(port):
            return port


def node(*options, program=None):
    """A node, not started; of `--servers`."""
    server = Server(program or next(PROGRAMS), *NODE_OPTIONS, *options, start=False)
    server.port = cluster_port()
    return server


class Nodes:
    """Servers that start at the same time; joined into a cluster by the test itself where `primaries` is given."""

    def __init__(self, count, primaries=0, replicas=0, options=(), program=None):
        self.servers = []
        for _ in range(count):
            self.servers.append(node(*options, program=program))
        threads = [threading.Thread(target=server.start) for server in self.servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.ids = [server.call("CLUSTER", "MYID").decode() for server in self.servers]
        self.size = primaries * (replicas + 1)
        if primaries:
            self.join(primaries, replicas)

    def join(self, primaries, replicas):
        for i, server in enumerate(self.servers[:self.size]):
            server.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < primaries:
                server.call("CLUSTER", "ADDSLOTSRANGE", round(i * SLOTS / primaries),
                            round((i + 1) * SLOTS / primaries) - 1)
            if i:
                server.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
        wait_for("the nodes know each other", lambda: all(
            s.call("CLUSTER", "NODES").count(b"\n") == self.size and b"handshake" not in s.call("CLUSTER", "NODES")
            for s in self.servers[:self.size]))
        for i in range(primaries, self.size):
            self.servers[i].call("CLUSTER", "REPLICATE", self.ids[(i - primaries) // replicas])
        self.settle()

    def members(self):
        return [s for s in self.servers if s.alive() and s.call("CLUSTER", "NODES").count(b"\n") > 1]

    def views(self):
        """What each member says about the slots and the replicas."""
        found = []
        for server in self.members():
            lines = [line.split() for line in server.call("CLUSTER", "NODES").decode().splitlines()]
            found.append(sorted((w[0], w[3], " ".join(x for x in w[8:] if x[0] != "[")) for w in lines))
        return found

    def settle(self):
        """The members agree, serve all slots and all replicas follow."""
        wait_for("the cluster is in order", lambda: all(view == self.views()[0] for view in self.views()) and all(
            b"cluster_state:ok" in s.call("CLUSTER", "INFO") for s in self.members()) and all(
                s.info("replication").get("master_link_status", "up") == "up" for s in self.members()))

    def address(self, i):
        return "127.0.0.1:%d" % self.servers[i].port

    def write(self, keys, tags=("06S", "Qi", "3560", "0ad"), databases=1):
        """Keys with hash tags of some slots: 06S is slot 0, Qi is slot 1."""
        for i in range(keys):
            self.owner_call("SET", "{%s}k%d" % (tags[i % len(tags)], i), "v%d" % i, db=i % databases)

    def owner_call(self, *words, db=0):
        server = self.servers[0]
        for _ in range(5):
            with Client(server.port) as client:
                if db:
                    client.call("SELECT", db)
                reply = client.call(*words)
            if not isinstance(reply, Error) or not reply.startswith("MOVED"):
                return reply
            server = next(s for s in self.servers if s.port == int(reply.rsplit(":", 1)[1]))
        return reply

    def keys(self):
        """The number of keys of all primaries and databases."""
        total = 0
        for server in self.members():
            if server.info("replication")["role"] == "master":
                keyspace = server.info("keyspace")
                total += sum(int(v.split("=")[1].split(",")[0]) for k, v in keyspace.items() if k.startswith("db"))
        return total

    def slots(self):
        """[ranges of node 0, of node 1 …], as each says itself; None: not a member."""
        found = []
        for server in self.servers:
            line = next(line for line in server.call("CLUSTER", "NODES").decode().splitlines() if "myself" in line)
            found.append(line.split()[8:])
        return found

    def normal(self, text):
        """The text with the numbers of the nodes for ids and addresses."""
        for i, server in enumerate(self.servers):
            text = text.replace(self.ids[i], "<id %d>" % i).replace("(%s..." % self.ids[i][:8], "(id %d..." % i)
            text = re.sub(r"127\.0\.0\.1[:-]%d\b" % server.port, "<node %d>" % i, text)
        return text

    def stop(self):
        for server in self.servers:
            server.stop()


def cli(tool, *words, data=None, timeout=60):
    environment = dict(os.environ, TERM="dumb")
    p = subprocess.run([tool, *map(str, words)], input=data, stdin=None if data is not None else subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=environment, text=True)
    return p.returncode, p.stdout, p.stderr


# --- The same cluster

shared = Nodes(8, primaries=3, replicas=1)
shared.write(40)
A = shared.address
standalone = Server(GENUINE)
directory = tempfile.mkdtemp(prefix="valkey-test.")


def same(name, *words, data=None):
    """Both tools print the same, and end with the same exit code."""
    theirs, our = cli(THEIRS, *words, data=data), cli(OURS, *words, data=data)
    report.equal("the same as genuine: " + name, theirs, our)


def same_all():
    same("check", "--cluster", "check", A(0))
    same("check with host and port, from a replica", "--cluster", "check", "127.0.0.1", shared.servers[4].port)
    same("check for several owners", "--cluster", "check", A(1), "--cluster-search-multiple-owners")
    same("check of a node alone", "--cluster", "check", A(6))
    same("check of a standalone server", "--cluster", "check", "127.0.0.1:%d" % standalone.port)
    same("check of nothing", "--cluster", "check", "127.0.0.1:1")
    same("info", "--cluster", "info", A(2))
    same("fix of a cluster in order", "--cluster", "fix", A(0))
    same("fix of a node alone, not confirmed", "--cluster", "fix", A(6), data="no\n")
    for call in (("ping",), ("echo", 'a"b'), ("foo",), ("get", "foo"), ("config", "get", "maxmemory*")):
        same("call " + " ".join(call), "--cluster", "call", A(0), *call)
    same("call, only primaries", "--cluster", "call", A(0), "ping", "--cluster-only-primaries")
    same("call, only replicas", "--cluster", "call", A(0), "ping", "--cluster-only-replicas")
    same("call, old option", "--cluster", "call", A(0), "ping", "--cluster-only-masters")
    same("help", "--cluster", "help")
    same("create of nodes that are not empty", "--cluster", "create", A(0), A(1), A(2), "--cluster-yes")
    same("create with a standalone server", "--cluster", "create", "127.0.0.1:%d" % standalone.port, A(6), A(7))
    same("create of two, not confirmed", "--cluster", "create", A(6), A(7), data="no\n")
    same("create with an invalid address", "--cluster", "create", "127.0.0.1", A(6), A(7))
    same("set-timeout below the limit", "--cluster", "set-timeout", A(0), 50)
    same("set-timeout without a configuration file", "--cluster", "set-timeout", A(0), 2000)
    same("add-node with an unknown primary", "--cluster", "add-node", A(6), A(0), "--cluster-replica",
         "--cluster-primary-id", "foo")
    same("add-node of a member", "--cluster", "add-node", A(4), A(0), "--cluster-replica")
    same("del-node of an unknown node", "--cluster", "del-node", A(0), "0" * 40)
    same("del-node of a node with slots", "--cluster", "del-node", A(0), shared.ids[1])
    same("rebalance of a balanced cluster", "--cluster", "rebalance", A(0))
    same("rebalance, simulated", "--cluster", "rebalance", A(0), "--cluster-weight", shared.ids[0] + "=2",
         shared.ids[1][:8] + "=0.5", "--cluster-simulate")
    same("rebalance with the weight of a replica", "--cluster", "rebalance", A(0), "--cluster-weight",
         shared.ids[3] + "=2")
    same("rebalance with an unknown node", "--cluster", "rebalance", A(0), "--cluster-weight", "zzz=2")
    same("reshard, not confirmed", "--cluster", "reshard", A(0), "--cluster-from", shared.ids[1] + "," + shared.ids[2],
         "--cluster-to", shared.ids[0], "--cluster-slots", 7, data="no\n")
    same("reshard from all, not confirmed", "--cluster", "reshard", A(0), "--cluster-from", "all", "--cluster-to",
         shared.ids[0], "--cluster-slots", 101, data="no\n")
    same("reshard from the target", "--cluster", "reshard", A(0), "--cluster-from", shared.ids[0], "--cluster-to",
         shared.ids[0], "--cluster-slots", 7)
    same("reshard from an unknown node", "--cluster", "reshard", A(0), "--cluster-from", "foo", "--cluster-to",
         shared.ids[0], "--cluster-slots", 7)
    same("reshard to a replica", "--cluster", "reshard", A(0), "--cluster-from", "all", "--cluster-to", shared.ids[3],
         "--cluster-slots", 7)
    same("import without a source", "--cluster", "import", A(0))
    same("import with an invalid source", "--cluster", "import", A(0), "--cluster-from", "foo")
    same("import from nothing", "--cluster", "import", A(0), "--cluster-from", "127.0.0.1:1")
    standalone.call("CONFIG", "SET", "requirepass", "secret")
    source = "127.0.0.1:%d" % standalone.port
    same("import without the password", "--cluster", "import", A(0), "--cluster-from", source)
    same("import with a wrong password", "--cluster", "import", A(0), "--cluster-from", source, "--cluster-from-pass",
         "wrong")
    with Client(standalone.port) as client:
        client.call("AUTH", "secret")
        client.call("CONFIG", "SET", "requirepass", "")
    same("import from a cluster", "--cluster", "import", A(0), "--cluster-from", A(1))
    same("backup into nothing", "--cluster", "backup", A(0), os.path.join(directory, "missing"))
    for words in (("foo",), ("check",), ("check", "foo"), ("check", A(0), "foo", "bar"), ("add-node", A(0)),
                  ("call", A(0)), ("set-timeout", A(0)), ("del-node", A(0)), ("backup", A(0)),
                  ("import", A(0), "x", "y", "--cluster-from", A(1)), ("check", A(0), "--cluster-replicas"),
                  ("check", A(0), "--cluster-foo")):
        same("arguments " + " ".join(words).replace(A(0), "node").replace(A(1), "node"), "--cluster", *words)


def backup_is_the_same():
    layouts = []
    for tool, name in ((THEIRS, "theirs"), (OURS, "ours")):
        target = os.path.join(directory, name)
        os.mkdir(target)
        code, out, _ = cli(tool, "--cluster", "backup", A(0), target)
        with open(os.path.join(target, "nodes.json")) as file:
            layouts.append((code, out.replace(target, "DIR"), sorted(os.listdir(target)), file.read()))
    for i, what in enumerate(("ends alike", "prints the same", "writes the same files", "writes the same nodes.json")):
        report.equal("backup " + what, layouts[0][i], layouts[1][i])
    restored = 0
    for name in layouts[1][2]:
        if not name.endswith(".rdb"):
            continue
        code, out, err = run(os.path.join(os.path.dirname(GENUINE), "valkey-check-rdb"),
                             os.path.join(directory, "ours", name))
        report.check("a file of the backup is complete", code == 0 and "RDB looks OK" in out, out + err)
        with Server(GENUINE, "--dbfilename", name, files=[os.path.join(directory, "ours", name)]) as server:
            restored += server.call("DBSIZE")
    report.equal("servers outside of a cluster load all keys of the backup", shared.keys(), restored)


def open_slots_are_shown_alike():
    shared.servers[0].call("CLUSTER", "SETSLOT", 5, "MIGRATING", shared.ids[1])
    shared.servers[1].call("CLUSTER", "SETSLOT", 5, "IMPORTING", shared.ids[0])
    same("check with an open slot", "--cluster", "check", A(0))
    same("reshard with an open slot", "--cluster", "reshard", A(0), "--cluster-from", "all", "--cluster-to",
         shared.ids[0], "--cluster-slots", 7)
    same("rebalance with an open slot", "--cluster", "rebalance", A(0))
    same("add-node with an open slot", "--cluster", "add-node", A(6), A(0))
    for i in (0, 1):
        shared.servers[i].call("CLUSTER", "SETSLOT", 5, "STABLE")


def passwords_are_asked_for_alike():
    for server in shared.servers[:6]:
        server.call("CONFIG", "SET", "masterauth", "a b", "requirepass", "a b")
    same("without a password", "--cluster", "check", A(0))
    same("with a wrong password", "-a", "bad", "--cluster", "check", A(0))
    same("with the password", "-a", "a b", "--no-auth-warning", "--cluster", "info", A(0))
    same("create with a password that a node does not have", "-a", "a b", "--no-auth-warning", "--cluster", "create",
         A(6), A(0), A(1))


# --- Two clusters

def normal_lines(nodes, text):
    """Lines in an order that does not depend on that of the nodes, which each cluster lists in its own."""
    text = re.sub(r"valkey-test\.\w+", "DIR", nodes.normal(text))
    text = re.sub(r"(?m)^(Set as \w+ in: )(.*)$", lambda m: m.group(1) + ",".join(sorted(m.group(2).split(","))), text)
    text = re.sub(r"(?m)^\.+$", "", text)  # a dot for each second that a cluster took to join
    return sorted(re.sub(r"#+", "#", line) for line in text.splitlines())


def steps(text):
    return [line.split(" (using")[0] for line in text.splitlines() if line.startswith((">>> ", "[OK] All", "[ERR"))]


class Pair:
    """Two clusters: one that genuine's tool manages, and one for ours."""

    def __init__(self, count, **how):
        self.nodes = [Nodes(count, **how), Nodes(count, **how)]

    def each(self, do):
        return [do(nodes) for nodes in self.nodes]

    def same(self, name, words, data=None, ordered=True, filtered=None, finish=None, by_key=False):
        """`words` is a function of the cluster. `finish` runs before the clusters are compared. `by_key`: our tool is
        to move slots as the genuine one does without an option."""
        results = []
        for tool, nodes in zip((THEIRS, OURS), self.nodes):
            old_way = ["--cluster-no-atomic-slot-migration"] if by_key and tool == OURS else []
            code, out, err = cli(tool, "--cluster", *words(nodes), *old_way, data=data)
            if filtered:
                out = filtered(out)
            results.append((code, normal_lines(nodes, out), normal_lines(nodes, err),
                            [nodes.normal(step) for step in steps(out)] if ordered else []))
        report.equal("two clusters, the same as genuine: " + name, results[0], results[1])
        if finish:
            finish()
        self.each(lambda nodes: nodes.settle() if nodes.members() else None)
        report.equal("two clusters, the same slots after: " + name, *self.each(lambda nodes: nodes.slots()))
        report.equal("two clusters, the same keys after: " + name, *self.each(lambda nodes: nodes.keys()))

    def stop(self):
        self.each(lambda nodes: nodes.stop())


def clusters_are_managed_alike():
    pair = Pair(6)
    source = Server(GENUINE)
    try:
        pair.same("create", lambda n: ("create", *map(n.address, range(3)), "--cluster-yes"))
        pair.each(lambda n: n.write(40))
        pair.same("reshard", lambda n: ("reshard", n.address(0), "--cluster-from", n.ids[0], "--cluster-to", n.ids[1],
                                        "--cluster-slots", 3, "--cluster-yes", "--cluster-pipeline", 4), by_key=True)
        pair.same("reshard from all", lambda n: ("reshard", n.address(0), "--cluster-from", "all", "--cluster-to",
                                                 n.ids[2], "--cluster-slots", 9, "--cluster-yes"), ordered=False,
                  by_key=True)
        pair.same("reshard by an atomic slot migration",
                  lambda n: ("reshard", n.address(1), "--cluster-from", n.ids[1], "--cluster-to", n.ids[0],
                             "--cluster-slots", 30, "--cluster-yes", "--cluster-use-atomic-slot-migration"),
                  filtered=lambda out: re.sub(r"migration\.+#", "migration#", out))
        pair.same("add-node", lambda n: ("add-node", n.address(3), n.address(0)))
        pair.each(lambda n: wait_for("the node is a member", lambda: len(n.members()) == 4))
        pair.each(lambda n: n.settle())
        pair.same("add-node as a replica", lambda n: ("add-node", n.address(4), n.address(0), "--cluster-replica"))
        pair.each(lambda n: wait_for("the node is a member", lambda: len(n.members()) == 5))
        pair.each(lambda n: n.settle())
        pair.same("add-node as a replica of a node", lambda n: ("add-node", n.address(5), n.address(0),
                                                                "--cluster-replica", "--cluster-primary-id", n.ids[1]))
        pair.each(lambda n: wait_for("the node is a member", lambda: len(n.members()) == 6))
        pair.each(lambda n: n.settle())
        pair.same("info", lambda n: ("info", n.address(0)))
        pair.same("rebalance with weights, by atomic slot migrations", lambda n: (
            "rebalance", n.address(0), "--cluster-weight", n.ids[0] + "=2", n.ids[3] + "=0",
            "--cluster-use-atomic-slot-migration", "--cluster-use-empty-primaries"), ordered=False)
        pair.same("del-node of a primary with a replica", lambda n: ("del-node", n.address(0), n.ids[3]), ordered=False)
        pair.same("del-node of a replica", lambda n: ("del-node", n.address(0), n.ids[5]))
        with Client(source.port) as client:
            client.send(*[("SET", "imported%d" % i, i) for i in range(30)])
            for _ in range(30):
                client.read()
        for name, option, left in (("with copies", "--cluster-copy", 30), ("of keys that exist", "--cluster-copy", 30),
                                   ("with replacing", "--cluster-replace", 0)):
            results = []
            for tool, nodes in zip((OURS, THEIRS), reversed(pair.nodes)):
                code, out, err = cli(tool, "--cluster", "import", nodes.address(0), "--cluster-from",
                                     "127.0.0.1:%d" % source.port, option)
                out = re.sub(r"Migrating \S+ to \S+: (Source.*)", r"Migrating X: \1", nodes.normal(out))
                results.append((code, sorted(out.splitlines()), err))
                if option == "--cluster-replace":  # the keys are gone: the other tool gets them again
                    report.equal("import %s leaves the source" % name, left, source.call("DBSIZE"))
                    for i in range(30):
                        source.call("SET", "imported%d" % i, i)
            report.equal("two clusters, the same as genuine: import " + name, results[0], results[1])
        report.equal("two clusters, the same keys after: import", *pair.each(lambda n: n.keys()))
    finally:
        pair.stop()
        source.stop()


def slots_are_fixed_alike():
    pair = Pair(3, primaries=3)

    def open_slot(slot, source, target, *more):
        for nodes in pair.nodes:
            nodes.servers[target].call("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.ids[source])
            for other in more:
                nodes.servers[other].call("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.ids[source])
            nodes.servers[source].call("CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.ids[target])

    def fix(n):
        return "fix", n.address(0)

    def everywhere(*words):
        for nodes in pair.nodes:
            for server in nodes.servers:
                server.call(*words)

    def unassign(slot, others=0):
        """A message on its way may bring the owner back. `others`: slots that nobody owns before."""
        def gone():
            everywhere("CLUSTER", "DELSLOTS", slot)
            return all(b"cluster_slots_assigned:%d\r" % (SLOTS - 1 - others) in s.call("CLUSTER", "INFO")
                       for nodes in pair.nodes for s in nodes.servers)
        wait_for("nobody owns slot %d" % slot, gone)
        for nodes in pair.nodes:
            wait_for("the nodes agree", lambda nodes=nodes: all(view == nodes.views()[0] for view in nodes.views()))

    try:
        pair.each(lambda n: n.write(40))
        open_slot(0, 0, 1)
        pair.same("fix of an interrupted migration", fix)
        open_slot(1, 0, 1)
        for nodes in pair.nodes:
            nodes.servers[0].call("MIGRATE", "127.0.0.1", nodes.servers[1].port, "", 0, 5000, "KEYS", "{Qi}k1",
                                  "{Qi}k5", "{Qi}k9")
        pair.same("fix of a migration that was interrupted between keys", fix)
        for nodes in pair.nodes:
            nodes.servers[0].call("CLUSTER", "SETSLOT", 7, "MIGRATING", nodes.ids[1])
        pair.same("fix of a slot that only migrates", fix)
        for nodes in pair.nodes:
            nodes.servers[1].call("CLUSTER", "SETSLOT", 7, "IMPORTING", nodes.ids[0])
        pair.same("fix of a slot that is only imported", fix)
        open_slot(7, 0, 1, 2)
        pair.same("fix of a slot that two import", fix)
        everywhere("CONFIG", "SET", "cluster-require-full-coverage", "no")
        unassign(0)
        pair.same("fix of a slot with keys that nobody owns", fix, data="yes\n")
        unassign(2000)
        pair.same("fix of a slot that nobody owns, not confirmed", fix, data="no\n")
        pair.same("fix of a slot that nobody owns, confirmed in advance", lambda n: (*fix(n), "--cluster-yes"))
        unassign(0, others=1)
        pair.same("fix of slots that nobody owns, with and without keys, not confirmed", fix)
        for nodes in pair.nodes:
            nodes.servers[1].call("CLUSTER", "ADDSLOTS", 2000)
            next(s for s in nodes.servers if s.call("CLUSTER", "COUNTKEYSINSLOT", 0)).call("CLUSTER", "ADDSLOTS", 0)
        pair.each(lambda n: n.settle())
        everywhere("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -2)  # else the nodes come to terms themselves
        for nodes in pair.nodes:
            for words in (("DELSLOTS", 20), ("ADDSLOTS", 20)):
                for server in nodes.servers[:2]:
                    server.call("CLUSTER", *words)
        pair.same("fix of a slot with two owners",
                  lambda n: ("fix", n.address(0), "--cluster-search-multiple-owners"),
                  finish=lambda: everywhere("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -1))
    finally:
        pair.stop()


# --- Ours alone

def moves_are_atomic_where_nodes_can():
    nodes = Nodes(3, primaries=3)
    try:
        nodes.write(60)
        before = nodes.keys()
        words = ["--cluster", "reshard", nodes.address(0), "--cluster-from", nodes.ids[0], "--cluster-to", nodes.ids[1],
                 "--cluster-slots", "2", "--cluster-yes"]
        code, out, err = cli(OURS, *words)
        report.check("reshard prefers atomic slot migrations", code == 0 and "via atomic slot migration" in out and
                     nodes.keys() == before, out + err)
        nodes.settle()
        code, out, err = cli(OURS, *words, "--cluster-replace")
        report.check("but not where keys are to be replaced", code == 0 and "via atomic" not in out and
                     "Moving slot 2 " in out, out + err)
        nodes.settle()
        code, out, err = cli(OURS, *words, "--cluster-no-atomic-slot-migration", "--cluster-use-atomic-slot-migration")
        report.check("one way or the other", code == 1 and "exclude each other" in err, out + err)
        master, slave = os.openpty()
        shown, program = b"", subprocess.Popen([str(word) for word in [OURS, *words]], stdout=slave, stderr=slave)
        os.close(slave)
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:
            pass  # the program has ended
        os.close(master)
        report.check("a terminal shows the progress", program.wait() == 0 and
                     re.search(rb"\d+ keys in \d+\.\d s", shown), shown.decode())
        report.equal("and no key is lost", before, nodes.keys())
    finally:
        nodes.stop()


def failures_are_told():
    nodes = Nodes(4, primaries=3)
    try:
        nodes.write(60, databases=3)
        before = nodes.keys()
        code, out, err = cli(OURS, "--cluster", "reshard", nodes.address(0), "--cluster-from", nodes.ids[0],
                             "--cluster-to", nodes.ids[1], "--cluster-slots", 2, "--cluster-yes",
                             "--cluster-no-atomic-slot-migration")
        report.check("reshard moves the keys of all databases", code == 0 and nodes.servers[0].call(
            "CLUSTER", "COUNTKEYSINSLOT", 0) == 0 and nodes.keys() == before, out + err)
        # A key that exists on both sides with another value.
        nodes.servers[0].call("CLUSTER", "SETSLOT", 0, "IMPORTING", nodes.ids[1])
        nodes.servers[1].call("CLUSTER", "SETSLOT", 0, "MIGRATING", nodes.ids[0])
        with Client(nodes.servers[0].port) as client:
            client.call("ASKING")
            client.call("SET", "{06S}k0", "different")
        code, out, err = cli(OURS, "--cluster", "fix", nodes.address(0))
        report.check("fix refuses to choose between two values",
                     code == 1 and "- {06S}k0\n" in out and "--cluster-replace" in out, out + err)
        code, out, err = cli(OURS, "--cluster", "fix", nodes.address(0), "--cluster-replace")
        report.check("fix --cluster-replace chooses", code == 0, out + err)
        report.equal("and the cluster is in order", 0, cli(OURS, "--cluster", "check", nodes.address(0))[0])
        # A target that refuses keys.
        nodes.servers[2].call("CONFIG", "SET", "maxmemory", "1")
        nodes.owner_call("SET", "{06S}k0", "v")
        owner = next(i for i in range(3) if nodes.servers[i].call("CLUSTER", "COUNTKEYSINSLOT", 0) > 0)
        slots = nodes.slots()[owner]
        first = int(slots[0].split("-")[0])
        code, out, err = cli(OURS, "--cluster", "reshard", nodes.address(0), "--cluster-from", nodes.ids[owner],
                             "--cluster-to", nodes.ids[2], "--cluster-slots", 1, "--cluster-yes",
                             "--cluster-no-atomic-slot-migration")
        report.check("a move that fails says what it left open",
                     code == 1 and "OOM" in out and "Slot %d is left open" % first in out and "0 of 1 slots" in out,
                     out + err)
        report.equal("and check finds it", 1, cli(OURS, "--cluster", "check", nodes.address(0))[0])
        nodes.servers[2].call("CONFIG", "SET", "maxmemory", "0")
        code, out, err = cli(OURS, "--cluster", "fix", nodes.address(0))
        report.check("and fix finishes it", code == 0 and nodes.keys() >= before, out + err)
        nodes.settle()
        # The same with rebalance, where genuine goes on and ends with 0.
        nodes.servers[2].call("CONFIG", "SET", "maxmemory", "1")
        code, out, err = cli(OURS, "--cluster", "rebalance", nodes.address(0), "--cluster-weight",
                             nodes.ids[2] + "=50", "--cluster-use-atomic-slot-migration")
        report.check("an atomic slot migration that fails is told with its reason",
                     code == 1 and "Atomic slot migration failed: " in out, out + err)
        nodes.servers[2].call("CONFIG", "SET", "maxmemory", "0")
        # The same node twice.
        code, out, err = cli(OURS, "--cluster", "create", nodes.address(3), nodes.address(3), nodes.address(3))
        report.check("create refuses the same node twice", code == 1 and "are the same node" in out, out + err)
        code, out, err = cli(OURS, "--cluster", "create", nodes.address(3), "--cluster-replicas", 3)
        report.check("create refuses fewer nodes than a primary and its replicas need", code == 1, out + err)
        for data in ("", "0\nx\n"):
            code, out, err = cli(OURS, "--cluster", "reshard", nodes.address(0), data=data)
            report.check("a prompt at the end of input ends the program", code == 1, out[-200:] + err)
        code, out, err = cli(OURS, "--cluster", "reshard", nodes.address(0),
                             data="30000\n2\nfoo\n%s\n%s\n%s\ndone\nno\n" % (nodes.ids[0], nodes.ids[0], nodes.ids[1]))
        report.check("answers come one a line", code == 1 and "(foo) is not known" in out and "Source node #2: " in out
                     and "Ready to move 2 slots." in out and "not possible to use the target" in out, out + err)
        # A node that dies.
        nodes.servers[2].kill()
        code, out, err = cli(OURS, "--cluster", "check", nodes.address(0))
        report.check("check names a node that is not there",
                     code == 1 and "Could not connect to Valkey at %s" % nodes.address(2) in err, out + err)
        code, out, err = cli(OURS, "--cluster", "fix", nodes.address(0))
        report.check("fix does not take the slots of an unreachable primary", code == 1
                     and "--cluster-fix-with-unreachable-primaries" in out, out + err)
    finally:
        nodes.stop()


def a_lost_replica_is_removed():
    nodes = Nodes(4, primaries=2, replicas=1)
    try:
        nodes.servers[3].kill()
        code, out, err = cli(OURS, "--cluster", "del-node", nodes.address(0), nodes.ids[3])
        report.check("del-node removes a node that cannot be reached",
                     code == 0 and "unable to send CLUSTER RESET" in out, out + err)
        report.check("and the others forget it", not any(
            nodes.ids[3].encode() in s.call("CLUSTER", "NODES") for s in nodes.servers[:3]))
    finally:
        nodes.stop()


def all_connections_are_encrypted():
    certificates = tempfile.mkdtemp(prefix="valkey-test.")
    nodes = None
    try:
        code, out, err = run(os.path.join(ROOT, "tests", "harness", "make-certificates"), certificates)
        assert code == 0, out + err

        def file(name):
            return os.path.join(certificates, name)
        options = ("--tls-cluster", "yes", "--tls-replication", "yes", "--tls-cert-file", file("server.crt"),
                   "--tls-key-file", file("server.key"), "--tls-ca-cert-file", file("ca.crt"), "--port", "0",
                   "--tls-port", "{port}", "--tls-auth-clients", "optional")
        tls = ("--tls", "--cacert", file("ca.crt"))
        servers = [node(*options) for _ in range(3)]
        nodes = Nodes(0)
        nodes.servers = servers
        for server in servers:
            server.launch()
        wait_for("the nodes listen", lambda: all("Ready to accept" in s.output() for s in servers))
        addresses = ["127.0.0.1:%d" % s.port for s in servers]
        code, out, err = cli(OURS, *tls, "--cluster", "create", *addresses, "--cluster-yes")
        report.check("create over TLS", code == 0 and "[OK] All 16384 slots covered." in out, out + err)
        wait_for("the cluster is up", lambda: "cluster_state:ok" in cli(
            OURS, *tls, "-p", servers[0].port, "cluster", "info")[1])
        code, out, err = cli(OURS, *tls, "-c", "-p", servers[0].port, "set", "{Qi}a", "1")
        ids = [cli(OURS, *tls, "-p", s.port, "cluster", "myid")[1].strip() for s in servers]
        code, out, err = cli(OURS, *tls, "--cluster", "reshard", addresses[0], "--cluster-from", ids[0], "--cluster-to",
                             ids[1], "--cluster-slots", 3, "--cluster-yes")
        report.check("reshard over TLS", code == 0, out + err)
        report.equal("-c follows redirections over TLS", "1",
                     cli(OURS, *tls, "-c", "-p", servers[2].port, "get", "{Qi}a")[1].strip())
    finally:
        if nodes:
            nodes.stop()
        shutil.rmtree(certificates)


def clients_follow_redirections():
    benchmark = ours("valkey-benchmark")
    for endpoint in ("ip", "unknown-endpoint", "hostname"):
        nodes = Nodes(3, primaries=3, options=("--cluster-preferred-endpoint-type", endpoint))
        try:
            def ask(i, *words, **how):
                return cli(OURS, "-c", "-p", nodes.servers[i].port, *words, **how)

            name = "cluster-preferred-endpoint-type %s: " % endpoint
            report.equal(name + "-c follows MOVED", (0, "OK\n", ""), ask(2, "set", "{Qi}a", "1"))
            report.equal(name + "-c stays where it was redirected to",
                         (0, "-> Redirected to slot [1] located at %s\n1\n1\n" % nodes.address(0), ""),
                         ask(2, data="get {Qi}a\nget {Qi}a\n"))
            nodes.servers[1].call("CLUSTER", "SETSLOT", 1, "IMPORTING", nodes.ids[0])
            nodes.servers[0].call("CLUSTER", "SETSLOT", 1, "MIGRATING", nodes.ids[1])
            report.equal(name + "-c follows ASK", (0, "OK\n", ""), ask(0, "set", "{Qi}new", "5"))
            report.equal(name + "a key that is asked for is at the target", "5", ask(2, "get", "{Qi}new")[1].strip())
            report.check(name + "keys on both sides are refused for now",
                         ask(0, "mget", "{Qi}a", "{Qi}new")[1].startswith("TRYAGAIN"))
            report.equal(name + "fix ends the migration", 0, cli(OURS, "--cluster", "fix", nodes.address(0))[0])
            nodes.settle()
            for words in (("-t", "set,get", "-r", 1000), ("-t", "set", "--threads", 2), ("set", "{tag}:k", "v")):
                code, out, err = run(benchmark, "-p", nodes.servers[0].port, "--cluster", "-n", 5000, "-c", 10, "-q",
                                     *words)
                report.check(name + "valkey-benchmark --cluster " + " ".join(map(str, words)),
                             code == 0 and "requests per second" in out and "MOVED" not in out + err, out + err)
        finally:
            nodes.stop()


def ipv6_addresses_work():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        report.skip("IPv6", error)
        return
    servers = [node("--bind", "127.0.0.1", "::1") for _ in range(3)]
    for server in servers:
        server.start()
    try:
        code, out, err = cli(OURS, "--cluster", "create", *["[::1]:%d" % s.port for s in servers], "--cluster-yes")
        report.check("create with IPv6 addresses", code == 0 and "[OK] All 16384 slots covered." in out, out + err)
        first = servers[0].port
        for words in (("[::1]:%d" % first,), ("::1:%d" % first,), ("::1", first)):
            code, out, err = cli(OURS, "--cluster", "info", *words)
            report.check("info of " + ("two words" if len(words) > 1 else re.sub(r"\d+$", "PORT", words[0])),
                         code == 0 and "in 3 primaries" in out, out + err)
        wait_for("the cluster is up", lambda: all(b"cluster_state:ok" in s.call("CLUSTER", "INFO") for s in servers))
        report.equal("-c follows a redirection to an IPv6 address", (0, "OK\n", ""),
                     cli(OURS, "-c", "-h", "::1", "-p", servers[2].port, "set", "{Qi}a", 1))
        code, out, err = run(ours("valkey-benchmark"), "-h", "::1", "-p", first, "--cluster", "-n", 2000, "-c", 5, "-q",
                             "-t", "set", "-r", 1000)
        report.check("valkey-benchmark --cluster over IPv6", code == 0 and "requests per second" in out, out + err)
    finally:
        for server in servers:
            server.stop()


def the_script_runs_a_cluster():
    script = os.path.join(ROOT, "utils", "cluster")
    parent = tempfile.mkdtemp(prefix="valkey-test.")
    place = os.path.join(parent, "c")

    def call(*words):
        return run(script, "--dir", place, *words, timeout=120)

    def runs(pid):
        try:
            return os.readlink("/proc/%s/cwd" % pid)
        except OSError:
            return None

    def rows(text):
        return [line.split() for line in text.splitlines()[1:]]

    try:
        code, out, err = call("status")
        report.check("utils/cluster: there is none yet", code == 1 and "there is no cluster" in err, out + err)
        code, out, err = call("start", "--bind", "192.0.2.1")
        report.check("utils/cluster: an address of the network needs a password", code == 1 and "--password" in err,
                     out + err)
        # SystemRandom and not the first free ports: other tests take those, too.
        port = cluster_port()
        while not all(port_is_free(p) for p in range(port, port + 4)):
            port = cluster_port()
        code, out, err = call("start", "--primaries", 2, "--replicas", 1, "--port", port, "--server", next(PROGRAMS),
                              "--option", "cluster-node-timeout 1000", "--password", 'a "b')
        report.check("utils/cluster: start", code == 0 and "4 servers run, 4 of them since now" in out, out + err)
        code, out, err = call("status")
        found = rows(out)
        report.equal("utils/cluster: status", (0, [str(port + i) for i in range(4)], ["primary"] * 2 + ["replica"] * 2),
                     (code, [row[0] for row in found], [row[3] for row in found]))
        for row in found:
            with open("/proc/%s/status" % row[1]) as file:
                allowed = re.search(r"Cpus_allowed_list:\s*(\S+)", file.read()).group(1)
            report.equal("utils/cluster: a server is on its CPU", row[2], allowed)
        report.equal("utils/cluster: start of what runs", 0, call("start")[0])
        code, out, err = call("call", "PING")
        report.equal("utils/cluster: call", (0, 4), (code, out.count(": PONG")))
        report.equal("utils/cluster: cli", "OK", call("cli", "set", "key", "value")[1].strip())
        code, out, err = call("kill", port)
        report.equal("utils/cluster: kill", (0, 1), (code, call("status")[0]))
        code, out, err = call("start")
        report.check("utils/cluster: start of a killed server", code == 0, out + err)
        report.equal("utils/cluster: it has its data", "value", call("cli", "get", "key")[1].strip())
        code, out, err = call("restart")
        report.check("utils/cluster: restart", code == 0, out + err)
        report.equal("utils/cluster: the data outlives a restart", "value", call("cli", "get", "key")[1].strip())
        pids = [row[1] for row in rows(call("status")[1])]
        code, out, err = call("stop", "--delete")
        report.check("utils/cluster: stop --delete", code == 0 and "4 servers stopped" in out
                     and not os.path.exists(place) and not any(runs(pid) for pid in pids), out + err)
    finally:
        if os.path.exists(place):
            call("stop", "--delete")
        shutil.rmtree(parent)


try:
    same_all()
    backup_is_the_same()
    open_slots_are_shown_alike()
    passwords_are_asked_for_alike()
finally:
    shared.stop()
    standalone.stop()
    shutil.rmtree(directory)
clusters_are_managed_alike()
slots_are_fixed_alike()
moves_are_atomic_where_nodes_can()
failures_are_told()
a_lost_replica_is_removed()
all_connections_are_encrypted()
clients_follow_redirections()
ipv6_addresses_work()
the_script_runs_a_cluster()
report.finish()
