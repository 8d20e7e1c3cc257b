"""acknowledged_cluster.py: a cluster with synchronous replication for tests/crash/acknowledged --cluster: three shards
of three servers, and its faults.

Clients connect to the servers themselves. The servers reach each other through two proxies before each of them, one for
replication and commands and one for the bus, which are what it announces. With links over RDMA only the bus is cut."""
import os
import threading
import time

from acknowledged_group import FILES, Links, Servers, freeze_in_turn, open_gate
from resp import Error
from servers import Server, ours, until

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


class Cluster(Servers):
    genuine = False

    def __init__(self, options, rng, directory, note):
        super().__init__(note)
        self.rdma, self.ids = options.rdma, []
        self.rdma_links = self.rdma and rng.random() < 0.4
        self.files = rng.choice(sorted(FILES))
        note(f"files {self.files}, links over {'RDMA' if self.rdma_links else 'TCP'}")
        self.tags = TAGS  # their slots move
        self.open_move = None  # a slot whose keys move one by one, with the numbers of the primaries
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

    # --- Asking

    def leads(self, number):
        return self.fields(number).get("sync_replication") == "leading"

    def number_of(self, port):
        """The server that announces this port."""
        for number in range(NODES):
            if port in (self.servers[number].port, self.links[number].port if self.links else 0):
                return number
        raise AssertionError(f"a server redirects to port {port}")

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
        if not until(self.met, 60):
            return False
        for number in range(SHARDS, NODES):
            done(number, "CLUSTER", "REPLICATE", self.ids[number % SHARDS])
        return until(self.works, 60)

    def met(self):
        """All servers know each other. On a busy machine a handshake may be too late: it is repeated."""
        known = self.view(0)
        for number in range(1, NODES):
            if self.ids[number] not in known:
                self.try_call(0, "CLUSTER", "MEET", "127.0.0.1", self.link_port(number), self.bus[number].port)
        return until(lambda: all(len(self.view(number)) == NODES and
                                 not any("handshake" in flags for flags, _, _ in self.view(number).values())
                                 for number in range(NODES)), 5)

    def works(self):
        """All servers agree, and each shard acknowledges writes and can lose a server."""
        if self.open_move and not self.finish_move():
            return False
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

    def primary_of(self, number):
        """The primary of this server's shard."""
        return next((one for one in self.primaries() if one % SHARDS == number % SHARDS), None)

    def move_keys(self, source, target, slot):
        """Moves some keys, as a tool for resharding does. Returns how many there were."""
        keys = self.try_call(source, "CLUSTER", "GETKEYSINSLOT", slot, 10)
        if not isinstance(keys, list):
            return None
        for key in keys:
            self.try_call(source, "MIGRATE", "127.0.0.1", self.link_port(target), key, 0, 1000, "REPLACE")
        return len(keys)

    def finish_move(self):
        """Ends a move key by key. True: the slot is at its target."""
        slot, source, target = self.open_move
        source, target = self.primary_of(source), self.primary_of(target)
        if source is None or target is None:
            return False
        self.try_call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        self.try_call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        if self.move_keys(source, target, slot) != 0:
            return False
        for number in [target, source, *(one for one in self.primaries() if one not in (source, target))]:
            if isinstance(reply := self.try_call(number, "CLUSTER", "SETSLOT", slot, "NODE", self.ids[target]), Error) \
                    or reply is None:
                return False
        self.note(f"slot {slot} is at server {target}")
        self.tags = TAGS  # their slots move
        self.open_move = None
        return True

    def copies(self):
        """Whether the data of each shard are equal: the digests of its servers."""
        digests = []
        for primary in self.primaries():
            shard = [self.try_call(number, "DEBUG", "DIGEST", timeout=10)
                     for number in [primary, *self.replicas(primary)]]
            digests.append(len(set(shard)) == 1 and shard[0] is not None and not isinstance(shard[0], Error))
        return ["equal"] if digests and all(digests) else [None]

    # --- What may fail


# --- Faults. Each gets the cluster and random numbers.

def hold(rng):
    time.sleep(rng.choice([0, 0.1, 0.4, 1.2, 2.5, 4]))


def some_primary(cluster, rng):
    return rng.choice(cluster.primaries())


def some_replica(cluster, rng):
    return rng.choice(cluster.replicas(some_primary(cluster, rng)))


def restart(cluster, rng, number):
    cluster.kill(number)
    hold(rng)
    cluster.start(number)


def suspend(cluster, rng, number, times=1):
    cluster.freeze(number)
    for _ in range(times):
        hold(rng)
    cluster.thaw(number)


def kill_primary(cluster, rng):
    restart(cluster, rng, some_primary(cluster, rng))


def kill_replica(cluster, rng):
    restart(cluster, rng, some_replica(cluster, rng))


def freeze_primary(cluster, rng):
    suspend(cluster, rng, some_primary(cluster, rng), 2)


def freeze_replica(cluster, rng):
    suspend(cluster, rng, some_replica(cluster, rng))


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
    restart(cluster, rng, rng.choice([primary, chosen]))


def choose_move(cluster, rng):
    """The slot of a key, the primary that serves it, and another primary; None if no server serves the slot."""
    slot = slot_of(rng.choice(cluster.tags))
    for source in cluster.primaries():
        own = cluster.view(source).get(cluster.ids[source], (0, 0, ()))[2]
        ranges = [tuple(map(int, (text.partition("-")[0], text.partition("-")[2] or text))) for text in own]
        if any(first <= slot <= last for first, last in ranges):
            return slot, source, rng.choice([other for other in cluster.primaries() if other != source])
    return None


def begin_move(cluster, rng):
    """Moves the slot of a key. Returns source and target."""
    chosen = choose_move(cluster, rng)
    if not chosen:
        return None
    slot, source, target = chosen
    reply = cluster.try_call(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", cluster.ids[target])
    cluster.note(f"slot {slot} moves from server {source} to {target}: {reply}")
    return source, target


def move(cluster, rng):
    pair = begin_move(cluster, rng)
    if pair:
        until(lambda: not cluster.moving(pair[0]), 5)


def move_killed(cluster, rng):
    pair = begin_move(cluster, rng)
    if pair:
        time.sleep(rng.choice([rng.uniform(0, 0.03), rng.uniform(0, 0.2)]))
        restart(cluster, rng, rng.choice(pair))


def move_frozen(cluster, rng):
    pair = begin_move(cluster, rng)
    if pair:
        time.sleep(rng.choice([rng.uniform(0, 0.03), rng.uniform(0, 0.2)]))
        suspend(cluster, rng, rng.choice(pair), 2)


def granted(cluster, number):
    jobs = cluster.try_call(number, "CLUSTER", "GETSLOTMIGRATIONS") or []
    return bool(jobs) and jobs[0][jobs[0].index(b"state") + 1] == b"failover-granted"


def move_granted(cluster, rng):
    """Source, target or both fail when the slot is granted, and the target has not taken it."""
    pair = begin_move(cluster, rng)
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


# --- Scenarios: faults in an order that random ones rarely have.

def late_acknowledgement(cluster, rng):
    """The replicas execute writes of a primary that is frozen. It finds their acknowledgements when it is replaced."""
    primary = some_primary(cluster, rng)
    replicas = cluster.replicas(primary)
    for number in replicas:
        cluster.freeze(number)
    time.sleep(rng.uniform(0.05, 0.3))
    cluster.freeze(primary)
    time.sleep(rng.choice([0, 0.1, 0.2]))  # clients' requests may come before the acknowledgements
    for number in replicas:
        cluster.thaw(number)
    if rng.random() < 0.5:
        ask_failover(cluster, rng, rng.choice(replicas))
    until(lambda: any(cluster.leads(number) for number in replicas), 10)
    time.sleep(rng.uniform(0.3, 2))
    cluster.thaw(primary)


def lost_stream(cluster, rng):
    """What a primary sends to its replicas is lost with it. The bus works."""
    if not cluster.links:
        return kill_primary(cluster, rng)
    primary = some_primary(cluster, rng)
    replicas = cluster.replicas(primary)
    cluster.note(f"what server {primary} sends to its replicas waits")
    cluster.links[primary].stall(replicas, True)
    time.sleep(rng.choice([0.1, 0.4, 0.8]))
    stays = rng.random() < 0.3
    if stays:
        cluster.freeze(primary)
    else:
        cluster.kill(primary)
    cluster.links[primary].break_off(replicas)
    cluster.links[primary].restore()
    until(lambda: any(cluster.leads(number) for number in replicas), 10)
    hold(rng)
    if stays:
        return cluster.thaw(primary)
    return cluster.start(primary)


def failover_late(cluster, rng):
    """CLUSTER FAILOVER, while what the replicas send to the old primary is late, and the bus does not reach it."""
    if not cluster.links:
        return failover(cluster, rng)
    primary = some_primary(cluster, rng)
    replicas, others = cluster.replicas(primary), [number for number in range(NODES) if number != primary]
    for number in range(NODES):  # so that a primary that is cut off stays in service
        cluster.try_call(number, "CONFIG", "SET", "cluster-node-timeout", 15000)
    cluster.note(f"what servers {replicas} send to server {primary} waits")
    cluster.links[primary].stall(replicas, False)
    cluster.links[primary].refused.update(replicas)
    time.sleep(rng.uniform(0.05, 0.3))
    cluster.note(f"CLUSTER FAILOVER at server {replicas[0]}: {cluster.try_call(replicas[0], 'CLUSTER', 'FAILOVER')}")
    time.sleep(rng.uniform(0.1, 0.2))
    for back in (False, True):
        cluster.bus[primary].stall(others, back)
        for number in others:
            cluster.bus[number].stall([primary], back)
    until(lambda: any(cluster.leads(number) for number in replicas), 6)
    time.sleep(rng.uniform(0.3, 1.5))
    cluster.note(f"what was sent to server {primary} arrives")
    cluster.links[primary].restore()
    time.sleep(rng.uniform(0.2, 1))
    for number in range(NODES):
        cluster.try_call(number, "CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT)
    return cluster.join_again(rng.random() < 0.3)


def begin_keys_move(cluster, rng):
    """A slot that is open, for a move key by key. Returns slot, source and target."""
    chosen = choose_move(cluster, rng)
    if chosen:
        slot, source, target = cluster.open_move = chosen
        replies = [cluster.try_call(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[source]),
                   cluster.try_call(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[target])]
        cluster.note(f"the keys of slot {slot} move from server {source} to {target}: {replies}")
    return chosen


def keys_move(cluster, rng):
    move = begin_keys_move(cluster, rng)
    if move:
        slot, source, target = move
        for _ in range(rng.choice([1, 3])):
            cluster.move_keys(source, target, slot)
            time.sleep(rng.uniform(0, 0.5))
        if rng.random() < 0.5:
            rng.choice([ask_failover, freeze_or_kill])(cluster, rng, rng.choice(
                [source, target] + cluster.replicas(source) + cluster.replicas(target)))


def freeze_or_kill(cluster, rng, number):
    (suspend if rng.random() < 0.5 else restart)(cluster, rng, number)


def keys_move_killed(cluster, rng):
    """The source is lost, and with it that it has given keys away."""
    move = begin_keys_move(cluster, rng)
    if not move or not cluster.links:
        return
    slot, source, target = move
    replicas = cluster.replicas(source)
    time.sleep(rng.uniform(0.1, 0.5))
    cluster.note(f"what server {source} sends to its replicas waits")
    cluster.links[source].stall(replicas, True)
    keys = cluster.try_call(source, "CLUSTER", "GETKEYSINSLOT", slot, 10) or []
    threads = [threading.Thread(target=cluster.try_call, args=(
        source, "MIGRATE", "127.0.0.1", cluster.link_port(target), key, 0, 1000, "REPLACE")) for key in keys]
    for thread in threads:
        thread.start()
    cluster.note(f"{len(keys)} keys are sent")
    time.sleep(rng.choice([0.4, 1, 2]))
    cluster.kill(source)
    cluster.links[source].break_off(replicas)
    cluster.links[source].restore()
    for thread in threads:
        thread.join()
    until(lambda: any(cluster.leads(number) for number in replicas), 10)
    hold(rng)
    cluster.start(source)


def keys_move_cut(cluster, rng):
    """The source, or the target, is cut off in the middle."""
    move = begin_keys_move(cluster, rng)
    if not move:
        return
    slot, source, target = move
    time.sleep(rng.uniform(0.1, 0.5))
    cluster.separate(rng.choice([source, target]), rng.choice(["stalled", "deaf", "mute", "refused"]))
    cluster.move_keys(source, target, slot)
    hold(rng)
    hold(rng)
    cluster.join_again(rng.random() < 0.5)


def move_back(cluster, rng):
    """A slot goes and comes back, and a replica is late."""
    pair = begin_move(cluster, rng)
    if not pair:
        return
    source, target = pair
    until(lambda: not cluster.moving(source), 5)
    time.sleep(rng.choice([0.1, 0.5]))
    jobs = cluster.try_call(source, "CLUSTER", "GETSLOTMIGRATIONS") or []
    if not jobs or not cluster.links:
        return
    slot = int(jobs[0][jobs[0].index(b"slot_ranges") + 1].partition(b"-")[0])
    late = rng.choice(cluster.replicas(source))
    cluster.note(f"what server {source} sends to server {late} waits")
    cluster.links[source].stall([late], True)
    time.sleep(0.1)
    reply = cluster.try_call(target, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", cluster.ids[source])
    cluster.note(f"slot {slot} moves back: {reply}")
    until(lambda: not cluster.moving(target), 5)
    time.sleep(rng.choice([0.3, 1, 2]))
    cluster.join_again(False)


def freeze_shard(cluster, rng):
    primary = some_primary(cluster, rng)
    freeze_in_turn(cluster, [primary, *cluster.replicas(primary)], rng)


def slow_links(cluster, rng):
    """Each direction between two servers has a delay of its own."""
    for links in cluster.links:
        for number in range(NODES):
            links.delay([number], rng.choice([0, 0, 0.02, 0.2, 0.6]), rng.choice([0, 0, 0.02, 0.2, 0.6]))
    cluster.note("all links are slow")
    hold(rng)
    rng.choice([failover, move, keys_move, freeze_primary])(cluster, rng)
    hold(rng)
    cluster.join_again(rng.random() < 0.3)


TAGS = ["a", "b", "c", "d", "e", "f"]
FAULTS = {  # with their weights
    "kill-primary": (4, kill_primary), "kill-replica": (1, kill_replica), "freeze-primary": (4, freeze_primary),
    "freeze-replica": (1, freeze_replica), "cut-primary": (4, cut_primary), "cut-replica": (1, cut_replica),
    "failover": (4, failover), "failover-both": (2, failover_both), "failover-killed": (2, failover_killed),
    "move": (2, move), "move-killed": (3, move_killed), "move-frozen": (3, move_frozen),
    "move-granted": (4, move_granted),
    "late-acknowledgement": (4, late_acknowledgement), "lost-stream": (4, lost_stream),
    "failover-late": (4, failover_late), "keys-move": (2, keys_move), "keys-move-killed": (4, keys_move_killed),
    "keys-move-cut": (3, keys_move_cut), "move-back": (3, move_back), "freeze-shard": (2, freeze_shard),
    "slow-links": (2, slow_links),
}
