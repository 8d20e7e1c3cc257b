"""acknowledged_cluster.py: a cluster with synchronous replication for tests/crash/acknowledged --cluster: three shards
of three servers, and its faults.

Clients connect to the servers themselves. The servers reach each other through two proxies before each of them, one for
replication and commands and one for the bus, which are what it announces. With links over RDMA only the bus is cut."""
import os
import time

from acknowledged_group import FILES, Links, open_gate
from resp import Client, Error
from servers import Server, info_fields, ours, until

SHARDS, COPIES, SLOTS, NODE_TIMEOUT = 3, 3, 16384, 1500
NODES = SHARDS * COPIES


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return crc


def slot_of(tag):
    return crc16(tag.encode()) % SLOTS


class Cluster:
    genuine = False

    def __init__(self, options, rng, directory, note):
        self.note, self.rdma = note, options.rdma
        self.rdma_links = self.rdma and rng.random() < 0.4
        self.files = rng.choice(sorted(FILES))
        note(f"files {self.files}, links over {'RDMA' if self.rdma_links else 'TCP'}")
        self.servers, self.gates, self.links, self.bus, self.ids = [], [], [], [], []
        for number in range(NODES):
            place = os.path.join(directory, f"server{number}")
            os.mkdir(place)
            self.bus.append(Links(lambda number=number: self.servers[number].port + 10000))
            own = ["--bind-source-addr", f"127.0.0.{number + 2}", "--cluster-announce-bus-port", self.bus[-1].port,
                   "--cluster-announce-ip", "127.0.0.1"]
            if not self.rdma_links:
                self.links.append(Links(lambda number=number: self.servers[number].port))
                own += ["--cluster-announce-port", self.links[-1].port, "--replica-announce-port", self.links[-1].port]
            self.servers.append(Server(
                options.server or ours(), "--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT,
                "--sync-replication", "yes", "--min-sync-replicas", "1", "--repl-diskless-sync-delay", "0",
                "--repl-timeout", "4", "--repl-ping-replica-period", "1", "--enable-debug-command", "yes",
                "--cluster-require-full-coverage", "no", *FILES[self.files], *own,
                *(["--rdma-replication", "yes"] if self.rdma_links else []), rdma=self.rdma, directory=place))
            if self.rdma:
                self.gates.append(open_gate(self.servers[-1].port))

    def stop(self):
        for server in self.servers:
            if server.alive():
                server.signal(18)
                server.kill()
            server.stop()
        for gate, _ in self.gates:
            gate.kill()
            gate.wait()
        for links in self.links + self.bus:
            links.close()

    # --- Asking

    def client_port(self, number, rdma):
        return self.gates[number][1] if rdma and self.gates else self.servers[number].port

    def number_of(self, port):
        """The server that announces this port."""
        for number in range(NODES):
            if port in (self.servers[number].port, self.links[number].port if self.links else 0):
                return number
        raise AssertionError(f"a server redirects to port {port}")

    def try_call(self, number, *words, timeout=2):
        try:
            return self.servers[number].call(*words, timeout=timeout)
        except OSError:
            return None

    def fields(self, number):
        reply = self.try_call(number, "INFO", "replication")
        return {} if reply is None or isinstance(reply, Error) else info_fields(reply)

    def view(self, number):
        """Of CLUSTER NODES: id to (flags, primary, slots)."""
        reply, view = self.try_call(number, "CLUSTER", "NODES"), {}
        if reply is None or isinstance(reply, Error):
            return view
        for line in reply.decode().splitlines():
            words = line.split()
            view[words[0]] = (set(words[2].split(",")) - {"myself"}, words[3],
                              tuple(word for word in words[8:] if not word.startswith("[")))
        return view

    def primaries(self):
        """Of the shards, as the first server that answers sees them."""
        for number in range(NODES):
            view = self.view(number)
            found = [self.ids.index(name) for name, (flags, _, slots) in view.items() if "master" in flags and slots]
            if found:
                return found
        return []

    def replicas(self, primary):
        for number in range(NODES):
            found = [self.ids.index(name) for name, (_, of, _) in self.view(number).items() if of == self.ids[primary]]
            if found:
                return found
        return []

    def describe(self):
        views = {}
        for number in range(NODES):
            views.setdefault(str(sorted(self.view(number).items())), []).append(number)
        for view, numbers in views.items():
            self.note(f"servers {numbers} see {view}")
        names = ["role", "sync_replication", "sync_obstacle", "master_link_status", "sync_term", "sync_promised_term",
                 "sync_data_is_current", "sync_in_sync_replicas", "sync_members", "sync_set_changes",
                 "sync_prepared_offset", "sync_committed_offset"]
        for number in range(NODES):
            fields = self.fields(number)
            self.note(f"server {number} ({self.ids[number][:8] if self.ids else ''}): " +
                      " ".join(f"{name}={fields[name]}" for name in names if name in fields))

    # --- Repairing

    def form(self):
        def done(*words):
            if isinstance(reply := self.servers[words[0]].call(*words[1:]), Error):
                raise AssertionError(f"{words}: {reply}")
        self.ids = [server.call("CLUSTER", "MYID").decode() for server in self.servers]
        for number in range(SHARDS):
            done(number, "CLUSTER", "ADDSLOTSRANGE", SLOTS * number // SHARDS, SLOTS * (number + 1) // SHARDS - 1)
            done(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number in range(1, NODES):
            done(0, "CLUSTER", "MEET", "127.0.0.1", self.links[number].port if self.links else
                 self.servers[number].port, self.bus[number].port)
        if not until(lambda: all(len(self.view(number)) == NODES and
                                 not any("handshake" in flags for flags, _, _ in self.view(number).values())
                                 for number in range(NODES)), 60):
            return False
        for number in range(SHARDS, NODES):
            done(number, "CLUSTER", "REPLICATE", self.ids[number % SHARDS])
        return until(self.works, 60)

    def works(self):
        """All servers agree, and each shard acknowledges writes and can lose a server."""
        views = [self.view(number) for number in range(NODES)]
        first = views[0]
        if len(first) != NODES or any(view != first for view in views):
            return False
        if any(flags & {"fail", "fail?"} for flags, _, _ in first.values()):
            return False
        for name, (flags, primary, slots) in first.items():
            fields = self.fields(self.ids.index(name))
            if "master" in flags:
                copies = sum(of == name for _, of, _ in first.values())
                if copies != COPIES - 1 or fields.get("sync_in_sync_replicas") != str(COPIES - 1) or \
                        fields.get("sync_writable") != "1" or fields.get("sync_members") != str(COPIES) or \
                        fields.get("sync_set_changes") != "0":
                    return False
            elif fields.get("master_link_status") != "up" or fields.get("sync_data_is_current") != "1":
                return False
        return all(not self.moving(number) for number in range(NODES))

    def moving(self, number):
        reply = self.try_call(number, "CLUSTER", "GETSLOTMIGRATIONS") or []
        return any(job[job.index(b"state") + 1] not in (b"success", b"failed", b"cancelled") for job in reply)

    def mend(self):
        for links in self.links + self.bus:
            links.restore()
        for number, server in enumerate(self.servers):
            if not server.alive():
                self.start(number)
            else:
                server.signal(18)

    def copies(self):
        """Whether the data of each shard are equal: the digests of its servers."""
        digests = []
        for primary in self.primaries():
            shard = [self.try_call(number, "DEBUG", "DIGEST", timeout=10)
                     for number in [primary, *self.replicas(primary)]]
            digests.append(len(set(shard)) == 1 and shard[0] is not None and not isinstance(shard[0], Error))
        return ["equal"] if digests and all(digests) else [None]

    # --- What may fail

    def kill(self, number):
        self.note(f"server {number} is killed")
        self.servers[number].kill()

    def start(self, number):
        self.note(f"server {number} starts")
        self.servers[number].start()

    def freeze(self, number):
        self.note(f"server {number} is frozen")
        self.servers[number].signal(19)

    def thaw(self, number):
        self.note(f"server {number} continues")
        self.servers[number].signal(18)

    def separate(self, number, how):
        """Cuts the links between this server and all others."""
        self.note(f"server {number} is cut off: {how}")
        others = [other for other in range(NODES) if other != number]
        for proxies in filter(None, (self.links, self.bus)):
            if how == "refused":
                proxies[number].refuse(others)
            if how in ("stalled", "deaf"):
                proxies[number].stall(others, False)
            if how in ("stalled", "mute"):
                proxies[number].stall(others, True)
            for other in others:
                if how == "refused":
                    proxies[other].refuse([number])
                if how in ("stalled", "deaf"):
                    proxies[other].stall([number], True)
                if how in ("stalled", "mute"):
                    proxies[other].stall([number], False)

    def join_again(self, lossy):
        for links in self.links + self.bus:
            if lossy:
                links.break_off(range(-2, NODES))
            links.restore()
        self.note("all links work" + (", what waited is lost" if lossy else ""))


# --- Faults. Each gets the cluster and random numbers.

def hold(rng):
    time.sleep(rng.choice([0, 0.1, 0.4, 1.2, 2.5, 4]))


def some_primary(cluster, rng):
    return rng.choice(cluster.primaries())


def some_replica(cluster, rng):
    return rng.choice(cluster.replicas(some_primary(cluster, rng)))


def kill_primary(cluster, rng):
    victim = some_primary(cluster, rng)
    cluster.kill(victim)
    hold(rng)
    cluster.start(victim)


def kill_replica(cluster, rng):
    victim = some_replica(cluster, rng)
    cluster.kill(victim)
    hold(rng)
    cluster.start(victim)


def freeze_primary(cluster, rng):
    victim = some_primary(cluster, rng)
    cluster.freeze(victim)
    hold(rng)
    hold(rng)
    cluster.thaw(victim)


def freeze_replica(cluster, rng):
    victim = some_replica(cluster, rng)
    cluster.freeze(victim)
    hold(rng)
    cluster.thaw(victim)


def cut_primary(cluster, rng):
    cluster.separate(some_primary(cluster, rng), rng.choice(["stalled", "refused", "deaf", "mute"]))
    hold(rng)
    hold(rng)
    cluster.join_again(rng.random() < 0.5)


def cut_replica(cluster, rng):
    cluster.separate(some_replica(cluster, rng), rng.choice(["stalled", "refused", "deaf", "mute"]))
    hold(rng)
    cluster.join_again(rng.random() < 0.5)


def ask_failover(cluster, rng, number):
    words = ["CLUSTER", "FAILOVER", *rng.choice([[], [], ["FORCE"], ["TAKEOVER"]])]
    cluster.note(f"{words} at server {number}")
    cluster.try_call(number, *words)


def failover(cluster, rng):
    ask_failover(cluster, rng, some_replica(cluster, rng))
    hold(rng)


def failover_both(cluster, rng):
    for number in cluster.replicas(some_primary(cluster, rng)):
        ask_failover(cluster, rng, number)
    hold(rng)


def failover_killed(cluster, rng):
    primary = some_primary(cluster, rng)
    chosen = rng.choice(cluster.replicas(primary))
    ask_failover(cluster, rng, chosen)
    time.sleep(rng.uniform(0, 1))
    victim = rng.choice([primary, chosen])
    cluster.kill(victim)
    hold(rng)
    cluster.start(victim)


def begin_move(cluster, rng, tags):
    """Moves the slot of a key. Returns source and target."""
    tag = rng.choice(tags)
    slot = slot_of(tag)
    for number in cluster.primaries():
        client_view = cluster.view(number).get(cluster.ids[number])
        ranges = [tuple(map(int, (text.partition("-")[0], text.partition("-")[2] or text))) for text in client_view[2]]
        if any(first <= slot <= last for first, last in ranges):
            target = rng.choice([other for other in cluster.primaries() if other != number])
            reply = cluster.try_call(number, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE",
                                     cluster.ids[target])
            cluster.note(f"slot {slot} moves from server {number} to {target}: {reply}")
            return number, target
    return None


def move(cluster, rng):
    pair = begin_move(cluster, rng, TAGS)
    if pair:
        until(lambda: not cluster.moving(pair[0]), 5)


def move_killed(cluster, rng):
    pair = begin_move(cluster, rng, TAGS)
    if pair:
        time.sleep(rng.choice([rng.uniform(0, 0.03), rng.uniform(0, 0.2)]))
        victim = rng.choice(pair)
        cluster.kill(victim)
        hold(rng)
        cluster.start(victim)


def move_frozen(cluster, rng):
    pair = begin_move(cluster, rng, TAGS)
    if pair:
        time.sleep(rng.choice([rng.uniform(0, 0.03), rng.uniform(0, 0.2)]))
        victim = rng.choice(pair)
        cluster.freeze(victim)
        hold(rng)
        hold(rng)
        cluster.thaw(victim)


def granted(cluster, number):
    jobs = cluster.try_call(number, "CLUSTER", "GETSLOTMIGRATIONS") or []
    return bool(jobs) and jobs[0][jobs[0].index(b"state") + 1] == b"failover-granted"


def move_granted(cluster, rng):
    """Source, target or both fail when the slot is granted, and the target has not taken it."""
    pair = begin_move(cluster, rng, TAGS)
    if not pair:
        return
    source, target = pair
    cluster.try_call(target, "DEBUG", "SLOTMIGRATION", "PREVENT-FAILOVER", "1")
    cluster.note(f"granted: {until(lambda: granted(cluster, source), 1)}")
    killed, frozen = rng.choice([([source], []), ([target], []), ([source, target], []), ([source], [target]),
                                 ([target], [source]), ([], [source]), ([], [target])])
    for victim in frozen:
        cluster.freeze(victim)
    for victim in killed:
        cluster.kill(victim)
    if target not in killed + frozen:
        time.sleep(rng.choice([0, 0.02, 0.5, 2.5]))
        cluster.try_call(target, "DEBUG", "SLOTMIGRATION", "PREVENT-FAILOVER", "0")
    hold(rng)
    for victim in killed:
        cluster.start(victim)
    hold(rng)
    for victim in frozen:
        cluster.thaw(victim)
    cluster.try_call(target, "DEBUG", "SLOTMIGRATION", "PREVENT-FAILOVER", "0")


TAGS = ["a", "b", "c", "d", "e", "f"]
FAULTS = {  # with their weights
    "kill-primary": (4, kill_primary), "kill-replica": (1, kill_replica), "freeze-primary": (4, freeze_primary),
    "freeze-replica": (1, freeze_replica), "cut-primary": (4, cut_primary), "cut-replica": (1, cut_replica),
    "failover": (4, failover), "failover-both": (2, failover_both), "failover-killed": (2, failover_killed),
    "move": (2, move), "move-killed": (3, move_killed), "move-frozen": (3, move_frozen),
    "move-granted": (4, move_granted),
}
