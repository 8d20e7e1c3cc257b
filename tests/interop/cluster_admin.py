#!/usr/bin/env python3
"""Random commands of administrators to two equal clusters, one of ours and one of genuine servers: slots assigned,
opened, closed and removed in any order, nodes met, forgotten, reset and attached to each other, failovers, epochs,
migrations, options; alone, in transactions, in scripts, and by a restricted user, in RESP2 and RESP3. Both clusters
start from the same nodes.conf, so node ids are equal. Each reply must be equal, and, when both clusters have settled,
what every node tells of its cluster and what it writes into nodes.conf.

    tests/interop/cluster_admin.py [--seed N] [--steps 60] [--rounds 1] [--verbose]
"""
import contextlib
import os
import random
import re
import time

from common import Client, Error, Map, Report, Server, ours, required_newest, seeded_options, until, wait_for

OPTIONS = ("--cluster-enabled", "yes", "--cluster-databases", "2", "--cluster-node-timeout", "120000",
           "--cluster-ping-interval", "100", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes",
           "--cluster-blacklist-ttl", "3600")
TAGS = ("06S", "Qi", "5L5", "4Iu", "4gY", "460")  # of the slots 0 to 5
SLOTS = 16384
QUIET = 0.5     # seconds without a change after which a cluster has settled
PATIENCE = 15   # seconds until both clusters have settled with the same view
UNKNOWN = "f" * 40


class Wrong(Exception):
    pass


class Known(Exception):
    """The clusters are not comparable any longer, for a reason that is known."""


class Ended(Exception):
    """A server has crashed."""


def id_of(node):
    return "%c" % (ord("a") + node) * 8 + "0123456789abcdef" * 2


def shard_of(node):
    return "%c" % (ord("a") + node) * 8 + "fedcba9876543210" * 2


class Layout:
    """The cluster at the start: for each node its slots, or the node that it replicates."""

    def __init__(self, rng):
        self.size = rng.randrange(3, 6)
        primaries = max(2, self.size - rng.randrange(0, 3))
        self.primary_of = [None] * primaries + [rng.randrange(primaries) for _ in range(self.size - primaries)]
        self.ranges = [[] for _ in range(self.size)]
        owners = [node for node in range(primaries) if node < 2 or rng.random() < 0.5]
        for slot in range(len(TAGS)):
            if rng.random() < 0.9:
                self.ranges[rng.choice(owners)].append((slot, slot))
        step = (SLOTS - len(TAGS)) // len(owners)
        for i, owner in enumerate(owners):
            first = len(TAGS) + i * step
            self.ranges[owner].append((first, SLOTS - 1 if owner == owners[-1] else first + step - 1))
        self.options = ("--cluster-require-full-coverage", rng.choice(("yes", "no")),
                        "--cluster-allow-replica-migration", rng.choice(("yes", "no")))

    def file(self, myself, ports):
        lines = []
        for node in range(self.size):
            primary = self.primary_of[node]
            root = node if primary is None else primary
            lines.append("%s 127.0.0.1:%d@%d,,tls-port=0,shard-id=%s %s%s %s 0 0 %d connected %s" % (
                id_of(node), ports[node], ports[node] + 10000, shard_of(root), "myself," if node == myself else "",
                "master" if primary is None else "slave", "-" if primary is None else id_of(primary), root + 1,
                " ".join("%d-%d" % pair if pair[0] != pair[1] else str(pair[0]) for pair in self.ranges[node])))
        return "\n".join(line.rstrip() for line in lines) + "\nvars currentEpoch 9 lastVoteEpoch 0\n"


class Cluster:
    def __init__(self, stack, program, layout):
        self.layout, self.names, self.started = layout, {}, time.monotonic()
        self.ids = [""] * layout.size
        self.servers = [Server(program, *OPTIONS, *layout.options, start=False) for _ in range(layout.size)]
        for server in self.servers:
            stack.callback(server.stop)
        ports = [server.port for server in self.servers]
        for node, server in enumerate(self.servers):
            with open(os.path.join(server.dir, "nodes.conf"), "w") as file:
                file.write(layout.file(node, ports))
            server.launch()
            self.names[str(server.port + 10000)], self.names[str(server.port)] = "bus-%d" % node, "port-%d" % node
        for server in self.servers:
            wait_for("the server answers", lambda: server.alive() and server.answers())
        self.controls = [Client(server.port) for server in self.servers]
        self.clients = [[self.connect(node, protocol) for protocol in range(2)] for node in range(layout.size)]
        self.learn()

    def connect(self, node, protocol):
        client = Client(self.servers[node].port, timeout=8)
        if protocol:
            client.call("HELLO", 3)
        return client

    def ask(self, node, protocol, words):
        try:
            return self.clients[node][protocol].call(*words)
        except OSError as error:
            self.clients[node][protocol].socket.close()
            if not wait_for("the server is alive or ends", lambda: self.servers[node].alive() and
                            self.servers[node].answers() or not self.servers[node].alive()) or (
                                not self.servers[node].alive()):
                raise Ended("%s ends at %r" % (self.servers[node].program[0], words))
            self.clients[node][protocol] = self.connect(node, protocol)
            return Error("closed" if isinstance(error, ConnectionError) else "no reply")

    def learn(self):
        """Gives names to ids that nodes have chosen themselves."""
        for node, control in enumerate(self.controls):
            for kind in ("id", "shard"):
                found = control.call("CLUSTER", "MYID" if kind == "id" else "MYSHARDID").decode()
                if found not in self.names:
                    # A node may be asked before or after the one that its shard is named by.
                    self.names[found] = "%s-%d" % (kind, len(self.names))
                if kind == "id":
                    self.ids[node] = found

    def words(self, words):
        values = {"id%d" % i: node for i, node in enumerate(self.ids)}
        values.update({"port%d" % i: server.port for i, server in enumerate(self.servers)})
        values.update({"bus%d" % i: server.port + 10000 for i, server in enumerate(self.servers)})
        return [re.sub(r"\{(\w+\d)\}", lambda match: str(values.get(match[1], match[0])), str(word)) for word in words]

    def name(self, text):
        return re.sub(r"(?<![0-9a-z])(?:[0-9a-z]{40}|\d{5}(?![0-9a-z]))",
                      lambda match: self.names.get(match[0], match[0]), text)

    def plain(self, value):
        """Ports and identities as names, kind and content of the reply."""
        return self.name("%s%r" % (type(value).__name__ if isinstance(value, (Error, str)) else "", value))

    def nodes(self, text):
        lines = []
        for line in self.name(text).splitlines():
            words = line.split(" ")
            if len(words) >= 8:
                words[4] = words[5] = "TIME"
                # A node that this one has not met yet has an id of its own.
                words[0] = re.sub("^[0-9a-f]{40}$", "ID", words[0])
            lines.append(" ".join(words))
        return sorted(lines)

    def view(self, node):
        control = self.controls[node]
        control.send(("CLUSTER", "NODES"), ("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"), ("CLUSTER", "SHARDS"),
                     ("CLUSTER", "LINKS"), ("INFO", "replication"), ("CLUSTER", "MYSHARDID"))
        nodes, info, slots, shards, links, replication, shard = [control.read() for _ in range(7)]
        view = {"nodes": self.nodes(nodes.decode())}
        view["info"] = [line for line in info.decode().split("\r\n")
                        if not re.match("cluster_stats|total_cluster", line)]
        view["slots"] = self.plain(slots)
        for item in shards:
            for member in item[3]:
                member[member.index(b"replication-offset") + 1] = 0
            if sum(b"master" in member for member in item[3]) > 1:
                item[1] = ["several primaries"]  # there the slots of the first
            item[3].sort()  # the primary is the first here; genuine servers have them in the order of their joining
        view["shards"] = sorted(self.plain(item) for item in shards)
        view["links"] = sorted(self.name("%s %s" % (link[1].decode(), link[3].decode())) for link in links)
        view["role"] = sorted(self.name(line) for line in replication.decode().split("\r\n")
                              if re.match("role|master_host|master_port|master_link_status|connected_slaves", line))
        view["shard"] = self.name(shard.decode())
        return view

    def views(self):
        self.learn()
        return [self.view(node) for node in range(self.layout.size)]

    def complete(self):
        """True: all nodes are connected, and primaries have told their state since the delay after their start."""
        views = self.views()
        count = sum(len(view["links"]) for view in views)
        return count == 2 * self.layout.size * (self.layout.size - 1) and all(
            "master_link_status:up" in view["role"] for view in views if "role:slave" in view["role"]) and (
                "cluster_state:ok" in views[0]["info"] or time.monotonic() - self.started > 4)

    def details(self, node):
        """What is asked once, when the cluster has settled."""
        control, details = self.controls[node], {}
        for slot in range(len(TAGS)):
            details["keys %d" % slot] = (control.call("CLUSTER", "COUNTKEYSINSLOT", slot),
                                         sorted(control.call("CLUSTER", "GETKEYSINSLOT", slot, 100)))
        for command in (("SLOT-STATS", "SLOTSRANGE", 0, 8), ("SLOT-STATS", "ORDERBY", "key-count", "LIMIT", 8)):
            details[" ".join(map(str, command))] = re.sub(r"(b'(cpu-usec|network-bytes-in|network-bytes-out)', )\d+",
                                                          r"\1N", self.plain(control.call("CLUSTER", *command)))
        for other, text in enumerate(self.ids):
            details["replicas of %d" % other] = [self.nodes(line.decode()) for line in replies] if isinstance(
                replies := control.call("CLUSTER", "REPLICAS", text), list) else self.plain(replies)
            details["failure reports of %d" % other] = self.plain(
                control.call("CLUSTER", "COUNT-FAILURE-REPORTS", text))
        migrations = control.call("CLUSTER", "GETSLOTMIGRATIONS")
        for job in migrations:  # the reason that a target gives ends with a line break there: docs/upgrading.md
            job[:] = [value.rstrip(b"\r\n") if isinstance(value, bytes) else value for value in job]
        details["migrations"] = re.sub(r"(b'(name|create_time|last_update_time|last_ack_time)', )(b'\w+'|\d+)", r"\1X",
                                       self.plain(migrations))
        details["saved"] = self.plain(control.call("CLUSTER", "SAVECONFIG"))
        with open(os.path.join(self.servers[node].dir, "nodes.conf")) as file:
            details["file"] = self.nodes(file.read())
        details["state"] = self.plain([control.call("DBSIZE"), control.call("GET", "{%s}" % TAGS[0])])
        return details


def primaries_with_slots(view, count):
    """True: a shard has two primaries or more, and at least `count` of them have slots."""
    for shard in view["shards"]:
        primaries = re.findall(r"b'id', b'([\w-]+)', [^]]*?b'role', b'master'", shard)
        slots = sum(len(line.split(" ")) > 8 for line in view["nodes"] if line.split(" ")[0] in primaries)
        if len(primaries) > 1 and slots >= count:
            return True
    return False


SUBCOMMANDS = ("ADDSLOTS ADDSLOTSRANGE BUMPEPOCH CANCELSLOTMIGRATIONS COUNT-FAILURE-REPORTS COUNTKEYSINSLOT DELSLOTS "
               "DELSLOTSRANGE FAILOVER FLUSHSLOT FLUSHSLOTS FORGET GETKEYSINSLOT GETSLOTMIGRATIONS INFO KEYSLOT LINKS "
               "MEET MIGRATESLOTS MYID MYSHARDID NODES REPLICAS REPLICATE RESET SAVECONFIG SET-CONFIG-EPOCH SETSLOT "
               "SHARDS SLAVES SLOT-STATS SLOTS SYNCSLOTS HELP NOSUCH").split()
# What tells times, counts of messages, or is compared as a view: only errors are compared.
VIEWS = {"INFO", "LINKS", "NODES", "SHARDS", "SLOTS", "REPLICAS", "SLAVES", "GETSLOTMIGRATIONS", "SLOT-STATS",
         "GETKEYSINSLOT"}


class Words:
    """Random commands."""

    def __init__(self, rng, size):
        self.rng, self.size = rng, size
        # What others then tell of the node, and it of them, depends on who pings whom first.
        self.resets = rng.random() < 0.15

    def number(self):
        return self.rng.choice(("a", -1, SLOTS, SLOTS - 1, "1.0", "", "99999999999999999999", "+1", "01", " 1", 0))

    def slot(self):
        pick = self.rng.random()
        return self.number() if pick < 0.06 else self.rng.randrange(8) if pick < 0.9 else self.rng.choice(
            (5000, 6000, 12000, SLOTS - 1))

    def node(self):
        pick = self.rng.random()
        if pick < 0.9:
            return "{id%d}" % self.rng.randrange(self.size)
        return self.rng.choice((UNKNOWN, "x", "", "{id0}x", UNKNOWN.upper(), "{id1}".upper(), "\0" * 40))

    def case(self, word):
        return self.rng.choice((word, word, word, word.lower(), word.title()))

    def ranges(self):
        words = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            first = self.slot()
            words += [first, first if self.rng.random() < 0.4 else self.slot()]
        return words[:-1] if self.rng.random() < 0.05 else words

    def timeout(self):
        if self.rng.random() < 0.75:
            return []
        return [self.case("TIMEOUT"), *self.rng.choice(((), (0,), (-1,), (1000,), ("a",), (2000, "x"), (1 << 62,),
                                                        ("99999999999999999999",)))]

    def setslot(self):
        slot, action = self.slot(), self.rng.choice(("MIGRATING", "IMPORTING", "STABLE", "NODE", "NODE", "NOSUCH"))
        words = [slot, self.case(action)]
        if (action != "STABLE") != (self.rng.random() < 0.05):
            words.append(self.node())
        return words + self.timeout()

    def meet(self):
        node = self.rng.randrange(self.size)
        words = ["127.0.0.1", "{port%d}" % node]
        pick = self.rng.random()
        if pick < 0.2:
            words.append("{bus%d}" % node)
        elif pick < 0.4:
            words[self.rng.randrange(2)] = self.rng.choice(("localhost", "", 0, -1, 65536, 55536, "a", "::g", "1.2.3",
                                                           "127.0.0.1.1", "0x7f.0.0.1"))
        elif pick < 0.5:
            words += [self.rng.choice((0, -1, 65536, "a", "")), *self.rng.choice(((), ("x",)))]
        return words

    def migrate(self):
        words = []
        for _ in range(self.rng.choice((1, 1, 1, 2))):
            words += [self.case("SLOTSRANGE"), *self.ranges(), self.case("NODE"), self.node()]
        if self.rng.random() < 0.15:
            del words[self.rng.randrange(len(words))]
        return words

    def syncslots(self):
        rng = self.rng
        kind = rng.choice(("ESTABLISH", "SNAPSHOT-EOF", "REQUEST-PAUSE", "PAUSED", "REQUEST-FAILOVER", "ACK", "CAPA",
                           "FAILOVER-GRANTED", "FINISH", "NOSUCH"))
        words = [kind]
        if kind == "ESTABLISH":
            parts = [["SOURCE", self.node()], ["NAME", rng.choice((UNKNOWN, "x"))], ["SLOTSRANGE", *self.ranges()]]
            rng.shuffle(parts)
            for part in parts[:rng.choice((3, 3, 2, 1))]:
                words += part
        elif kind == "FINISH":
            words += ["STATE", rng.choice(("success", "failed", "x")), "NAME", UNKNOWN][:rng.randrange(5)]
        elif rng.random() < 0.3:
            words += ["x"] * rng.randrange(1, 3)
        return words

    def stats(self):
        rng = self.rng
        if rng.random() < 0.5:
            return ["SLOTSRANGE", *self.ranges()]
        words = ["ORDERBY", rng.choice(("key-count", "cpu-usec", "network-bytes-in", "memory-bytes", "KEY-COUNT", "x"))]
        for _ in range(rng.randrange(3)):
            words += rng.choice((["LIMIT", rng.choice((1, 0, 5, -1, 16384, 16385, "a"))], ["ASC"], ["DESC"], ["x"],
                                 ["LIMIT"]))
        return words

    def cluster(self, name):
        rng = self.rng
        words = {
            "ADDSLOTS": lambda: [self.slot() for _ in range(rng.choice((1, 1, 2, 3)))],
            "ADDSLOTSRANGE": self.ranges, "DELSLOTSRANGE": self.ranges,
            "DELSLOTS": lambda: [self.slot() for _ in range(rng.choice((1, 1, 2, 3)))],
            "COUNT-FAILURE-REPORTS": lambda: [self.node()], "FORGET": lambda: [self.node()],
            "REPLICAS": lambda: [self.node()], "SLAVES": lambda: [self.node()],
            "COUNTKEYSINSLOT": lambda: [self.slot()], "GETKEYSINSLOT": lambda: [self.slot(), rng.choice((10, 1, -1,
                                                                                                        "a", 0))],
            "FAILOVER": lambda: rng.choice(([], [], ["FORCE"], ["TAKEOVER"], ["x"], ["FORCE", "TAKEOVER"],
                                            ["FORCE", "REPLICAID", self.node()])),
            "FLUSHSLOT": lambda: [self.slot(), *rng.choice(([], [], ["SYNC"], ["ASYNC"], ["x"], ["SYNC", "x"]))],
            "KEYSLOT": lambda: [rng.choice(TAGS)], "MEET": self.meet, "MIGRATESLOTS": self.migrate,
            "REPLICATE": lambda: rng.choice(([self.node()],) * 6 + (["NO", "ONE"], ["NO"], ["no", "one"], ["NO", "x"],
                                                                    ["NO", "ONE", "x"], [self.node(), "x"])),
            "RESET": lambda: rng.choice(([], ["SOFT"], ["HARD"], ["hard"], ["x"], ["HARD", "x"])
                                        if self.resets else (["x"], ["HARD", "x"])),
            "SET-CONFIG-EPOCH": lambda: [rng.choice((0, 1, 5, 50, -1, "a", 1 << 40, 1 << 63, 9, ""))],
            "SETSLOT": self.setslot, "SLOT-STATS": self.stats, "SYNCSLOTS": self.syncslots,
            "CANCELSLOTMIGRATIONS": lambda: rng.choice(([], ["ALL"])),
        }.get(name, list)()
        if rng.random() < 0.03 and name != "RESET":
            words = words[:-1] if words and rng.random() < 0.5 else words + ["extra"]
        return ["CLUSTER", self.case(name), *words]

    CHANGES = ("ADDSLOTS DELSLOTS ADDSLOTSRANGE DELSLOTSRANGE SETSLOT SETSLOT SETSLOT SETSLOT FORGET MEET MEET "
               "REPLICATE REPLICATE FAILOVER FAILOVER BUMPEPOCH MIGRATESLOTS MIGRATESLOTS SET-CONFIG-EPOCH "
               "FLUSHSLOT").split()

    def command(self):
        rng = self.rng
        pick = rng.random()
        if pick < 0.5:
            return self.cluster(rng.choice(self.CHANGES))
        if pick < 0.53:
            return self.cluster(rng.choice(("RESET", "FLUSHSLOTS")))
        if pick < 0.8:
            return self.cluster(rng.choice(SUBCOMMANDS))
        if pick < 0.92:
            key = "{%s}%s" % (rng.choice(TAGS), rng.choice("ab"))
            return rng.choice((["SET", key, "v"], ["GET", key], ["DEL", key], ["SET", key, "v"], ["EXISTS", key]))
        if pick < 0.97:
            option = rng.choice(sorted(CONFIGS))
            return rng.choice((["CONFIG", "SET", option, rng.choice(CONFIGS[option])], ["CONFIG", "GET", option]))
        return rng.choice((["READONLY"], ["READWRITE"], ["ASKING"], ["READONLY", "x"], ["ASKING", "x"], ["FLUSHALL"],
                           ["REPLICAOF", "NO", "ONE"], ["REPLICAOF", "127.0.0.1", "{port0}"], ["FAILOVER"],
                           ["SWAPDB", "0", "1"], ["MOVE", "{06S}a", "1"], ["SELECT", "1"], ["SELECT", "0"],
                           ["SELECT", "2"], ["CLUSTER"], ["ROLE", "x"], ["CLUSTERSCAN", "0"], ["DBSIZE"],
                           ["WAIT", "0", "0"], ["SHUTDOWN", "x"], ["RESTORE-ASKING", "{Qi}a", "0", "x"]))


CONFIGS = {
    "cluster-enabled": ("no", "yes"), "cluster-config-file": ("x",), "cluster-announce-ip": ("", "a b"),
    "cluster-node-timeout": ("0", "-1", "a"), "cluster-port": ("1", "0"),
    "cluster-migration-barrier": ("0", "1", "-1"), "cluster-replica-validity-factor": ("0", "10", "-1"),
    "cluster-require-full-coverage": ("yes", "no", "x"), "cluster-allow-replica-migration": ("yes", "no"),
    "cluster-allow-reads-when-down": ("yes", "no"), "cluster-allow-pubsubshard-when-down": ("yes", "no"),
    "cluster-replica-no-failover": ("yes", "no"), "cluster-slave-no-failover": ("yes", "no"),
    "cluster-link-sendbuf-limit": ("0", "1mb", "-1"), "cluster-announce-hostname": ("", "host", "a b", "a" * 256),
    "cluster-announce-human-nodename": ("", "name", "a b", "a=b"), "cluster-announce-port": ("0", "65536"),
    "cluster-announce-bus-port": ("0", "65536"), "cluster-announce-tls-port": ("0", "65536"),
    "cluster-preferred-endpoint-type": ("ip", "hostname", "unknown-endpoint", "x"),
    "cluster-slot-stats-enabled": ("yes", "no"), "cluster-databases": ("3",), "availability-zone": ("", "az1"),
    "cluster-announce-client-ipv4": ("", "192.0.2.1", "x", "::1"),
    "cluster-announce-client-ipv6": ("", "::5", "1.2.3.4"),
    "cluster-announce-client-port": ("0", "7777", "65536"), "cluster-announce-client-tls-port": ("0", "7778"),
    "cluster-blacklist-ttl": ("-1", "a"), "cluster-manual-failover-timeout": ("5000", "0", "-1"),
    "cluster-config-save-behavior": ("sync", "best-effort", "x"), "cluster-slot-migration-log-max-len": ("1000", "0"),
    "slot-migration-max-failover-repl-bytes": ("0", "-1", "-2", "1mb"), "cluster-ping-interval": ("100", "0"),
    "cluster*": ("x",), "cluster-message-gossip-perc": ("10", "100", "-1", "0", "101"),
}


class Round:
    def __init__(self, stack, programs, seed, verbose):
        self.rng, self.verbose, self.log, self.differences = random.Random(seed), verbose, [], []
        self.forgotten = False
        layout = Layout(self.rng)
        self.random, self.size = Words(self.rng, layout.size), layout.size
        self.clusters = [Cluster(stack, program, layout) for program in programs]
        self.note("layout: %s %s %s" % (layout.primary_of, layout.ranges, layout.options))
        wait_for("the clusters are up", lambda: all(cluster.complete() for cluster in self.clusters))
        self.settle("the start")

    def note(self, line):
        self.log.append(line)
        if self.verbose:
            print("%.2f %s" % (time.monotonic() % 1000, line), flush=True)

    def differ(self, what, mine, theirs):
        text = "%s\n    ours    %s\n    genuine %s" % (what, mine, theirs)
        self.note("!!! " + text)
        self.differences.append(text)

    def settle(self, what):
        deadline, last, since = time.monotonic() + PATIENCE, None, 0
        while True:
            now = time.monotonic()
            views = [cluster.views() for cluster in self.clusters]
            if views != last:
                last, since = views, now
            if views[0] == views[1] and now - since >= QUIET:
                return
            if now >= deadline:
                break
            time.sleep(0.03)
        if any(" slave" in line.replace("myself,", " ") and len(line.split(" ")) > 8 for view in views[1]
               for line in view["nodes"]):
            self.note("a genuine replica owns slots, which ours gives to its primary")
            raise Known
        if any(primaries_with_slots(view, 2) for view in views[0]) or any(primaries_with_slots(view, 0) for view in
                                                                          views[1]):
            self.note("there are two primaries in a shard: ours stays one while it has slots that the replica which "
                      "took over does not claim, and theirs if it has no slots to lose")
            raise Known
        for node in range(self.size):
            for field in views[0][node]:
                mine, theirs = (view[node][field] for view in views)
                if mine != theirs:
                    if isinstance(mine, list):
                        mine, theirs = ([item for item in these if item not in those] for these, those in
                                        ((mine, theirs), (theirs, mine)))
                    self.differ("%s of node %d after %s" % (field, node, what), mine, theirs)
        raise Wrong

    def details(self):
        for node in range(self.size):
            def details(node=node):
                found.extend([[cluster.details(node) for cluster in self.clusters]])
                return found[-1][0] == found[-1][1]
            found = []
            until(details, PATIENCE / 2)
            mine, theirs = found[-1]
            for field in mine:
                if mine[field] != theirs[field]:
                    self.differ("%s of node %d" % (field, node), mine[field], theirs[field])

    def allowed(self, command, way, node):
        """False: cases in which genuine servers are known to do something else. README.md has the reasons."""
        words = [str(word).upper() for word in command]
        nested = way not in ("", "user")
        if "SETSLOT" in words and nested:
            return False  # an assertion of theirs fails where it cannot wait for replicas
        if way in ("call", "pcall") and words[1:] == ["REPLICATE", "NO", "ONE"]:
            return False  # no reply
        if nested and "CLUSTER*" in words:
            return False  # shows options of ours
        if "MEET" in words and self.forgotten:
            return False  # refused while the node is forgotten
        if words[1:2] == ["SETSLOT"] and words[3:4] == ["IMPORTING"] and words[4:]:
            # A source that does not own the slot: when it gives slots up, the node takes the slot from its owner.
            slot, source = words[2], words[4].lower()
            owned = [[str(first) for first, last, *_ in cluster.controls[node].call("CLUSTER", "SLOTS")
                      if first <= int(slot) <= last and _[0][2].decode() == cluster.words([source])[0]]
                     for cluster in self.clusters if slot.isdigit() and int(slot) < SLOTS]
            return not source.startswith("{id") or all(owned)
        return True

    def command(self, way, node):
        while True:
            command = self.random.command()
            if self.allowed(command, way, node):
                return command

    def step(self):
        rng = self.rng
        node, protocol = rng.randrange(self.size), rng.randrange(2)
        way = rng.choice(("",) * 12 + ("multi", "multi", "call", "pcall", "user"))
        commands = [self.command(way, node)]
        if way == "multi":
            commands = [["MULTI"], *commands, *[self.command(way, node) for _ in range(rng.randrange(2))], ["EXEC"]]
        elif way in ("call", "pcall"):
            commands = [["EVAL", "return server.%s(unpack(ARGV))" % way, 0, *commands[0]]]
        elif way == "user":
            rules = rng.choice(("+@all -cluster", "-@all +cluster|%s" % rng.choice(SUBCOMMANDS[:-1]).lower(),
                                "+@all -@dangerous", "+@all -@admin", "+@all -cluster|%s" %
                                rng.choice(SUBCOMMANDS[:-1]).lower(), "-@all +@slow")).split()
            commands = [["ACL", "SETUSER", "u", "reset", "on", "nopass", "~*", *rules], ["AUTH", "u", "x"], *commands,
                        ["AUTH", "default", "x"]]
        changes = False
        for command in commands:
            view = any(str(word).upper() in VIEWS for word in command) or (
                command == ["EXEC"] and any(str(word).upper() in VIEWS for words in commands for word in words))
            replies = [cluster.ask(node, protocol, cluster.words(command)) for cluster in self.clusters]
            if command[0] == "CONFIG":  # options of ours
                pairs = [reply if isinstance(reply, Map) else list(zip(reply[::2], reply[1::2])) if isinstance(
                    reply, list) else None for reply in replies]
                replies = [reply if pair is None else [item for item in pair if b"rdma" not in item[0]]
                           for pair, reply in zip(pairs, replies)]
            plain = [cluster.plain(reply) for cluster, reply in zip(self.clusters, replies)]
            if view and not any(isinstance(reply, Error) for reply in replies):
                plain = ["%s, errors %s" % (type(reply).__name__, [item for item in reply if isinstance(
                    item, Error)] if command == ["EXEC"] else "") for reply in replies]
            self.note("%d resp%d: %r: %s" % (node, protocol + 2, command, plain[0][:300]))
            if plain[0] != plain[1]:
                self.differ("reply to %r at node %d" % (command, node), *plain)
            changes = changes or not (view or isinstance(replies[0], Error))
            self.forgotten = self.forgotten or "FORGET" in [str(word).upper() for word in command] and not isinstance(
                replies[0], Error)
        if changes:
            self.settle("step %r" % commands)
            if rng.random() < 0.3:
                self.details()

    def run(self, steps):
        try:
            for _ in range(steps):
                self.step()
            self.details()
        except (Wrong, Known, Ended, OSError) as error:
            if not isinstance(error, (Wrong, Known)):
                self.differ("a server ended or a connection broke: %r" % error, *[
                    [server.alive() or server.output(6000) for server in cluster.servers] for cluster in self.clusters])
        return self.differences


def main():
    options = seeded_options(__doc__, steps=60, rounds=1)
    report = Report()
    genuine = required_newest(report, "commands of administrators beside a genuine cluster")
    for seed in range(options.seed, options.seed + options.rounds):
        with contextlib.ExitStack() as stack:
            game = Round(stack, (ours(), genuine), seed, options.verbose)
            found = game.run(options.steps)
            if found and not options.verbose:
                print("\n".join(game.log))
            report.check("seed %d" % seed, not found, "\n".join(found))
    report.finish()


if __name__ == "__main__":
    main()
