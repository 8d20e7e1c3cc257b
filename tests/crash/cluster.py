"""cluster.py: injects faults into a cluster and compares its nodes.

    tests/crash/cluster [ROUNDS] [--seconds S] [--limit S] [--seed N] [--faults NAME,…] [--replicas N] [--mixed]
                        [--rdma] [--keep DIR] [--verbose]
    tests/crash/cluster --replace [--seed N] [--keep DIR] [--verbose]

Clients that follow redirections write to 3 primaries with replicas and remember what was acknowledged. Meanwhile faults
occur. At the end of each round the faults are repaired, and these conditions must hold:

    all nodes have the same view of roles, slots and epochs, and every slot has one owner
    no node has keys in a slot that its shard does not own
    the DEBUG DIGEST of each primary is that of its replicas
    acknowledged writes are found, and no increment was executed twice; a round in which a primary was killed or deposed
    may lose writes of that round, because replication is asynchronous, and of slots that moved in it, but no others
    two counters that a transaction or a script increments together are equal
    keys that nobody changes are as they were; those of slots that moved in a round with losses are made anew
    a primary has the same digest after DEBUG RELOAD
    no server has ended by itself

In rounds with an even number only faults occur that may not lose anything. The choices follow from the seed, but the
interleaving of the processes does not: a failure may need several runs to occur again. With --mixed each node beyond
the primaries is a genuine server of 9.1 or newer (GENUINE_VALKEY) by a chance of one half. With --rdma our nodes have
the software RDMA device, and replicas and migrations use it; then the fault "device" lets it fail. The last line is "N
passed, N failed".

With --replace a cluster of genuine servers is restarted node by node under load, as an upgrade does it: the replicas
first, then a failover to a replica and its old primary. It begins with the same program, then ours takes over, then the
genuine server again. The steps with ours may lose no more acknowledged writes than the genuine server alone."""
import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from resp import Client, Error  # noqa: E402
from servers import Server, free_port, newest_server, ours, until, wait_for  # noqa: E402

SLOTS, PRIMARIES, NODE_TIMEOUT = 16384, 3, 2000
HISTORY_SHOWN = 80
LETTERS = 60  # hash tags
STILL = 12  # keys of each tag that nobody changes
SCRIPT = "return redis.call('INCR', KEYS[1])"
SCRIPT_OF_TWO = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])"


def tag_of(number):
    return f"{{t{number}}}"


def still_keys(tag):
    return [f"{tag}still{i}" for i in range(STILL)]


def still_commands(tag):
    """Commands that create the keys which nobody changes. The last one is too large for a chunk of a migration."""
    commands = []
    for i, key in enumerate(still_keys(tag)):
        kind, items = i % 5, range(1 + i * 3)
        if i == STILL - 1:
            commands.append(("SET", key, "large" * 20000))
        elif kind == 0:
            commands.append(("SET", key, f"value {i} " * i, "EX", 1000000))
        elif kind == 1:
            commands.append(("RPUSH", key, *(f"element {j}" for j in items)))
        elif kind == 2:
            commands.append(("HSETEX", key, "EX", 1000000, "FIELDS", len(items), *(j for j in items for _ in "fv")))
        elif kind == 3:
            commands.append(("ZADD", key, *(word for j in items for word in (j, f"m{j}"))))
        else:
            commands.append(("XADD", key, "1-1", "field", f"{i}"))
    return commands


class Wrong(AssertionError):
    pass


class View:
    """The reply of CLUSTER NODES: id -> (port, flags, primary, epoch, slots, connected)."""

    def __init__(self, text):
        self.nodes, self.myself, self.open = {}, None, set()
        for line in text.decode().splitlines():
            words = line.split()
            flags = words[2].split(",")
            slots = set()
            for word in words[8:]:
                if word.startswith("["):
                    self.open.add(int(word[1:].split("-")[0]))
                    continue
                first, _, last = word.partition("-")
                slots.update(range(int(first), int(last or first) + 1))
            port = int(words[1].split("@")[0].rpartition(":")[2])
            self.nodes[words[0]] = (port, flags, words[3], int(words[6]), slots, words[7] == "connected")
            if "myself" in flags:
                self.myself = words[0]

    def common(self):
        """What all nodes must agree on."""
        return {name: (port, "master" in flags, primary, epoch, frozenset(slots))
                for name, (port, flags, primary, epoch, slots, _) in self.nodes.items()}

    def healthy(self):
        return all(connected and not set(flags) & {"fail", "fail?", "handshake", "noaddr"}
                   for _, flags, _, _, _, connected in self.nodes.values())


DEVICE_FAULTS = {"read": "send:error=REM_ACCESS_ERR,op=read", "slow": "send:delay=1000-30000,op=read,p=30",
                 "lost": "send:drop,p=20", "memory": "reg_mr:fail=ENOMEM", "refused": "connect:reject"}


class Node(Server):
    def __init__(self, program, directory, append_only, rdma=False):
        os.makedirs(directory)
        environment = {"SOFTRDMA_FAULTS": ";".join(f"{rule},while={os.path.join(directory, 'device-' + name)}"
                                                   for name, rule in DEVICE_FAULTS.items())} if rdma else None
        self.name, self.stopped = os.path.basename(directory), False
        super().__init__(program, "--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT,
                         "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
                         "--enable-debug-command", "yes", "--appendonly", append_only, "--appendfsync", "always",
                         "--cluster-port", free_port(), "--repl-timeout", "10", "--busy-reply-threshold", "50",
                         *(["--rdma-replication", "yes"] if rdma else []), rdma=rdma, environment=environment,
                         directory=directory)

    def keep_append_only(self, value):
        """For the next start, like an operator who also writes it to the configuration file. A file of an earlier time
        would replace newer data; a first file is complete when its child has ended."""
        if value == "yes" and not until(self.has_append_only_file, 10):
            return
        arguments = list(self.arguments)
        arguments[arguments.index("--appendonly") + 1] = value
        self.arguments = arguments

    def view(self):
        return View(self.call("CLUSTER", "NODES", timeout=3))

    def thaw(self):
        if self.stopped and self.alive():
            self.signal(signal.SIGCONT)
        self.stopped = False


class Writer(threading.Thread):
    """Increments counters of its own, over its own connections, and follows redirections."""

    def __init__(self, group, number):
        super().__init__(daemon=True)
        self.group, self.number, self.rng = group, number, random.Random(number)
        self.clients, self.owners, self.ends = {}, {}, False
        self.acknowledged, self.attempts = {}, {}

    def client(self, port):
        if port not in self.clients:
            self.clients[port] = Client(port, timeout=3)
        return self.clients[port]

    def drop(self, port):
        client = self.clients.pop(port, None)
        if client:
            client.close()

    def execute(self, tag, commands):
        """The replies of the commands, sent together; None: they failed, or it is unknown whether they did."""
        port, asking = self.owners.get(tag) or self.rng.choice(self.group.nodes).port, False
        for _ in range(16):
            try:
                client = self.client(port)
                client.send(*([("ASKING",)] if asking else []), *commands)
                replies = [client.read() for _ in range(len(commands) + asking)][asking:]
            except OSError:
                self.drop(port)
                self.owners.pop(tag, None)
                return None
            error = next((reply for reply in replies if isinstance(reply, Error)), None)
            if not error:
                if not asking:
                    self.owners[tag] = port
                return replies
            word = error.split()
            if word[0] not in ("MOVED", "ASK"):
                self.owners.pop(tag, None)
                return None
            port, asking = int(word[2].rpartition(":")[2]), word[0] == "ASK"
        return None

    def run(self):
        while not self.ends:
            tag = tag_of(self.rng.randrange(LETTERS))
            key = f"{tag}w{self.number}"
            time.sleep(0.002)  # the servers need the processor, too
            kind = self.rng.randrange(13)
            if kind == 10:
                self.execute(tag, [("HSETEX", f"{key}e", "PX", self.rng.randrange(1, 2000), "FIELDS", 1,
                                    self.rng.randrange(20), "v")])
                continue
            if kind >= 11:
                both = f"{key}p", f"{key}q"
                self.execute(tag, [("MULTI",), *(("INCR", name) for name in both), ("EXEC",)] if kind == 11 else
                             [("EVAL", SCRIPT_OF_TWO, 2, *both)])
                continue
            if kind == 0:
                self.execute(tag, [("SET", f"{key}x", "v" * self.rng.randrange(300), "PX",
                                    self.rng.randrange(1, 3000))])
                continue
            if kind == 1:
                self.execute(tag, [("RPUSH", f"{key}l", "a"), ("LTRIM", f"{key}l", "-9", "-1"),
                                   ("HSET", f"{key}h", self.rng.randrange(20), "v"), ("SADD", f"{key}s", kind)])
                continue
            if kind == 2:
                self.execute(tag, [("SPUBLISH", key, "message")])
                continue
            counter = key + ("n" if kind < 8 else "m")
            self.attempts[counter] = self.attempts.get(counter, 0) + 1
            if kind == 3:
                replies = self.execute(tag, [("EVAL", SCRIPT, 1, counter)])
            else:
                replies = self.execute(tag, [("INCR", counter)])
            if replies:
                self.acknowledged[counter] = replies[-1]
            else:
                time.sleep(0.02)


class Group:
    def __init__(self, options, directory, note):
        self.options, self.note, self.directory, self.nodes = options, note, directory, []
        self.rng = random.Random(f"{options.seed}/group")
        self.lossy, self.started = False, time.monotonic()
        self.still, self.torn = {}, set()  # tag -> digests; slots of which a part of the keys may have been lost

    def add(self, program):
        append_only = self.rng.choice(["yes", "no"])
        node = Node(program, os.path.join(self.directory, f"n{len(self.nodes)}"), append_only,
                    self.options.rdma and program == self.options.server)
        self.nodes.append(node)
        self.note(f"{node.name}: port {node.port}, appendonly {append_only}, {program}")
        return node

    def start(self):
        replicas = self.options.replicas or self.rng.choice([1, 2])
        for i in range(PRIMARIES * (1 + replicas)):
            mixed = self.options.mixed and i >= PRIMARIES and self.rng.random() < 0.5
            self.add(self.options.genuine if mixed or self.options.replace else self.options.server)
        for i, node in enumerate(self.nodes[:PRIMARIES]):
            node.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // PRIMARIES, SLOTS * (i + 1) // PRIMARIES - 1)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.nodes[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.bus(self.nodes[0]))
        wait_for("all nodes meet", lambda: all(len(node.view().nodes) == len(self.nodes) and node.view().healthy()
                                               for node in self.nodes))
        for i, node in enumerate(self.nodes[PRIMARIES:]):
            primary = self.nodes[i % PRIMARIES].call("CLUSTER", "MYID")
            wait_for("REPLICATE", lambda node=node, primary=primary: node.call("CLUSTER", "REPLICATE", primary) == "OK")
        wait_for("one view", lambda: not self.disagreement())

    def make_still(self, tag):
        writer = Writer(self, 0)
        keys = still_keys(tag)
        replies = writer.execute(tag, [("DEL", *keys), *still_commands(tag), ("DEBUG", "DIGEST-VALUE", *keys)])
        if not replies:
            raise Wrong(f"the keys of {tag} cannot be written")
        self.still[tag] = replies[-1]

    @staticmethod
    def bus(node):
        return node.arguments[node.arguments.index("--cluster-port") + 1]

    def disagreement(self):
        """Why the nodes are not one cluster yet; None: they are."""
        first = None
        for node in self.nodes:
            try:
                view, info = node.view(), node.call("CLUSTER", "INFO", timeout=3)
            except (OSError, AttributeError) as error:
                return f"{node.name}: {error!r}"
            if b"cluster_state:ok" not in info or not view.healthy():
                return f"{node.name} is not ok: {info[:40]}, {[x[:2] for x in view.nodes.values()]}"
            first = first or view.common()
            if view.common() != first:
                return f"{node.name} has another view than {self.nodes[0].name}"
            if view.open:
                return f"{node.name} has open slots {view.open}"
        owned = [slot for *_, slots in first.values() for slot in slots]
        return None if sorted(owned) == list(range(SLOTS)) else "a slot has no owner or several"

    def by_role(self):
        """Node -> its primary (a Node), or None for a primary."""
        view = next(node for node in self.nodes if node.alive() and not node.stopped).view()
        ports = {node.port: node for node in self.nodes}
        roles = {}
        for port, flags, primary, *_ in view.nodes.values():
            if port in ports:
                of = view.nodes.get(primary)
                roles[ports[port]] = ports.get(of[0]) if of and "slave" in flags else None
        return roles

    def up(self, node):
        return node.alive() and not node.stopped


# Faults: each takes the round. Those of LOSSY may lose acknowledged writes.

def primaries(r):
    return [node for node, of in r.group.by_role().items() if of is None and r.group.up(node)]


def replicas(r):
    return [node for node, of in r.group.by_role().items() if of is not None and r.group.up(node)]


def kill_replica(r):
    node = r.rng.choice(replicas(r))
    r.note(f"kill replica {node.name}")
    node.kill()
    if r.rng.random() < 0.3:
        for name in os.listdir(node.dir):
            path = os.path.join(node.dir, name)
            if name not in ("nodes.conf", "log"):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        r.note("  and its data")
    node.start()


def kill_primary(r):
    node = r.rng.choice(primaries(r))
    wait = r.rng.choice([0, 0.5, NODE_TIMEOUT * 2 / 1000])
    r.note(f"kill primary {node.name} for {wait} s")
    node.kill()
    time.sleep(wait)
    node.start()


def stop_briefly(r):
    node = r.rng.choice([node for node in r.group.nodes if r.group.up(node)])
    pause(r, node, r.rng.uniform(0.05, NODE_TIMEOUT / 5000))


def stop_long(r):
    node = r.rng.choice([node for node in r.group.nodes if r.group.up(node)])
    pause(r, node, r.rng.uniform(1, 5))


def pause(r, node, seconds):
    r.note(f"stop {node.name} for {seconds:.2f} s")
    node.stopped = True
    node.signal(signal.SIGSTOP)
    time.sleep(seconds)
    node.thaw()


def failover(r, *how):
    node = r.rng.choice(replicas(r))
    # Without a copy of its primary's data it would be an empty primary, as Valkey is: all rounds would be lost.
    if how and node.info("replication").get("master_link_status") != "up":
        return
    r.note(f"failover {how} to {node.name}: {node.call('CLUSTER', 'FAILOVER', *how)}")
    if r.rng.random() < 0.7:
        time.sleep(r.rng.uniform(0, 1))


def failover_force(r):
    failover(r, "FORCE")


def failover_takeover(r):
    failover(r, "TAKEOVER")


def cut_link(r):
    a, b = r.rng.sample(r.group.nodes, 2)
    name = b.call("CLUSTER", "MYID")
    reply = a.call("DEBUG", "CLUSTERLINK", "KILL", r.rng.choice(["to", "from", "all"]), name)
    r.note(f"cut {a.name}-{b.name}: {reply}")


def drop_packets(r):
    node, kind = r.rng.choice(r.group.nodes), r.rng.randrange(10)
    r.note(f"drop packets {kind} of {node.name}: {node.call('DEBUG', 'DROP-CLUSTER-PACKET-FILTER', kind)}")
    time.sleep(r.rng.uniform(0, 0.5))
    node.call("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -1)


def move_slot(r, complete=True):
    source, target = r.rng.sample(primaries(r), 2)
    tag = f"{{t{r.rng.randrange(LETTERS)}}}"
    slot = source.call("CLUSTER", "KEYSLOT", tag)
    if slot not in source.view().nodes[source.view().myself][4]:
        return
    if r.lossy:
        r.group.torn.add(slot)
    ids = [node.call("CLUSTER", "MYID") for node in (source, target)]
    r.note(f"move slot {slot} {source.name}->{target.name}")
    r.moved.add(slot)
    done = [target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])]
    if done[-1] == "OK":
        done.append(source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1]))
    if done[-1] == "OK":
        move_keys(r, source, target, slot, None if complete else 1)
    if complete and done[-1] == "OK" and not source.call("CLUSTER", "COUNTKEYSINSLOT", slot):
        done += [target.call("CLUSTER", "SETSLOT", slot, "NODE", ids[1]),
                 source.call("CLUSTER", "SETSLOT", slot, "NODE", ids[1])]
    r.note(f"  {done}")


def move_keys(r, source, target, slot, batches=None):
    while batches is None or batches > 0:
        keys = source.call("CLUSTER", "GETKEYSINSLOT", slot, 5)
        if not keys or isinstance(keys, Error):
            return
        reply = source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        if isinstance(reply, Error):
            r.note(f"  MIGRATE: {reply}")
            return
        batches = batches - 1 if batches else None


def migrate_slots(r):
    """Atomically, several slots and perhaps several jobs; other faults may hit it at any moment. The snapshot may be
    slow, so that they hit it in the middle, and the target may have no memory for it."""
    source, target = r.rng.sample(primaries(r), 2)
    view, own = source.view(), None
    source.call("CONFIG", "SET", "rdb-key-save-delay", r.rng.choice([0, 500, 3000]))
    own = sorted(view.nodes[view.myself][4])
    slots = sorted({slot for slot in (source.call("CLUSTER", "KEYSLOT", f"{{t{r.rng.randrange(LETTERS)}}}")
                                      for _ in range(12)) if slot in own})
    if not slots:
        return
    r.moved.update(slots)
    words = [word for slot in slots for word in (slot, slot)]
    reply = source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *words, "NODE", target.call("CLUSTER", "MYID"))
    r.note(f"migrate slots {slots} {source.name}->{target.name}: {reply}")
    if r.rng.random() < 0.1:
        r.note(f"cancel migrations of {source.name}: {source.call('CLUSTER', 'CANCELSLOTMIGRATIONS')}")


def kill_child(r):
    """The child that writes a snapshot of slots."""
    node = r.rng.choice(primaries(r))
    for pid in pids_of(node):
        r.note(f"kill child {pid} of {node.name}")
        try:
            os.kill(pid, r.rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP]))
            time.sleep(r.rng.uniform(0, 0.2))
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def pids_of(node):
    """Children of the node's process."""
    with open(f"/proc/{node.process.pid}/task/{node.process.pid}/children") as file:
        return [int(word) for word in file.read().split()]


def fail_device(r):
    """The RDMA device of a node fails in one of several ways for a while."""
    nodes = [node for node in r.group.nodes if node.rdma]
    if not nodes:
        return
    node, name = r.rng.choice(nodes), r.rng.choice(list(DEVICE_FAULTS))
    r.note(f"the device of {node.name} fails: {name}")
    path = os.path.join(node.dir, "device-" + name)
    open(path, "w").close()
    time.sleep(r.rng.uniform(0.1, 0.8))
    os.unlink(path)


def cancel_migrations(r):
    node = r.rng.choice(primaries(r))
    r.note(f"cancel migrations of {node.name}: {node.call('CLUSTER', 'CANCELSLOTMIGRATIONS')}")


def fill_memory(r):
    """A primary refuses writes, and fails what it imports."""
    node = r.rng.choice(primaries(r))
    r.note(f"no memory at {node.name}")
    node.call("CONFIG", "SET", "maxmemory", "1mb")
    time.sleep(r.rng.uniform(0, 0.5))
    node.call("CONFIG", "SET", "maxmemory", 0)


def migrations_end(nodes):
    """Waits until no node takes part in one."""
    over = (b"success", b"failed", b"cancelled")

    def states(node):
        jobs = node.call("CLUSTER", "GETSLOTMIGRATIONS")
        if isinstance(jobs, Error):
            return ["unknown"]
        return [job[job.index(b"state") + 1] for job in jobs]
    wait_for("the end of migrations", lambda: all(state in over for node in nodes for state in states(node)), 60)


def move_and_leave(r):
    move_slot(r, complete=False)


def move_and_kill(r):
    """A slot is open while its source or target fails over."""
    move_slot(r, complete=False)
    kill_primary(r)


def change_option(r):
    node = r.rng.choice(r.group.nodes)
    name, values = r.rng.choice([("cluster-migration-barrier", ["1", "2"]), ("cluster-require-full-coverage", ["no",
                                "yes"]), ("cluster-allow-reads-when-down", ["yes", "no"]),
                                ("cluster-allow-replica-migration", ["yes", "no"]), ("cluster-announce-hostname",
                                ["host.example", ""]), ("io-threads", ["1", "3"]), ("appendonly", ["yes", "no"]),
                                ("dual-channel-replication-enabled", ["yes", "no"])])
    value = r.rng.choice(values)
    reply = node.call("CONFIG", "SET", name, value)
    r.note(f"{node.name}: CONFIG SET {name} {value}: {reply}")
    if name == "appendonly" and reply == "OK":
        node.keep_append_only(value)


def reload_data(r):
    """Of a replica: as in Valkey, DEBUG RELOAD of a primary drops expired keys without telling the replicas."""
    node = r.rng.choice(replicas(r))
    r.note(f"reload {node.name}: {node.call('DEBUG', 'RELOAD')}")


def rewrite_files(r):
    node = r.rng.choice(r.group.nodes)
    node.call(r.rng.choice(["BGREWRITEAOF", "BGSAVE"]))


def full_sync(r):
    node = r.rng.choice(primaries(r))
    r.note(f"new replication id of {node.name}: {node.call('DEBUG', 'CHANGE-REPL-ID')}")
    node.call("CLIENT", "KILL", "TYPE", "replica")


def busy_script(r):
    node = r.rng.choice(r.group.nodes)
    r.note(f"busy script at {node.name}")
    end = 1000000
    node.call("EVAL", f"local x = 0 for i = 1, {end} do x = x + i end return x", 0)


def replicate_other(r):
    """Moves a replica to another primary, or tries to make it the replica of a replica."""
    node, of = r.rng.choice(replicas(r)), r.rng.choice(r.group.nodes)
    r.note(f"{node.name} follows {of.name}: {node.call('CLUSTER', 'REPLICATE', of.call('CLUSTER', 'MYID'))}")


def flush_foreign_slot(r):
    """A slot that holds no counter."""
    node = r.rng.choice(primaries(r))
    node.call("CLUSTER", "FLUSHSLOT", 3, r.rng.choice(["SYNC", "ASYNC"]))


FAULTS = {"kill-replica": kill_replica, "stop-briefly": stop_briefly, "failover": failover, "cut-link": cut_link,
          "drop-packets": drop_packets, "move-slot": move_slot, "option": change_option, "reload": reload_data,
          "rewrite": rewrite_files, "full-sync": full_sync, "busy": busy_script, "replicate": replicate_other,
          "flush-slot": flush_foreign_slot, "move-half": move_and_leave, "migrate": migrate_slots,
          "cancel": cancel_migrations, "memory": fill_memory, "kill-child": kill_child, "device": fail_device}
LOSSY = {"kill-primary": kill_primary, "stop-long": stop_long, "force": failover_force, "takeover": failover_takeover,
         "move-kill": move_and_kill}


class Round:
    def __init__(self, group, number, note):
        self.group, self.number, self.note = group, number, note
        self.rng = random.Random(f"{group.options.seed}/round {number}")
        self.moved = set()
        self.lossy = number % 2 == 1

    def failures(self):
        """How often a node was taken for failed: such a round may lose writes even if nobody was killed."""
        total = 0
        for node in self.group.nodes:
            with open(node.log, "rb") as log:
                text = log.read()
            total += text.count(b"FAIL message received") + text.count(b"as failing (quorum reached)")
            total += text.count(b"Failover election won") - text.count(b"Manual failover")
        return total

    def run(self, writers):
        options = self.group.options
        faults = dict(FAULTS, **(LOSSY if self.lossy else {}))
        names = sorted(options.faults or faults)  # a name that is given several times occurs more often
        names = [name for name in names if name in faults] or ["stop-briefly"]
        floor = [dict(writer.acknowledged) for writer in writers]
        for tag in map(tag_of, range(LETTERS)):
            if tag not in self.group.still:
                self.group.make_still(tag)
        for writer in writers:
            writer.start()
        before, end = self.failures(), time.monotonic() + options.seconds
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0, 0.3))
            name = self.rng.choice(names)
            try:
                faults[name](self)
            except (OSError, IndexError, KeyError, ValueError, AttributeError, TypeError) as error:
                self.note(f"{name}: {error!r}")
            self.check_alive()
        for writer in writers:
            writer.ends = True
        for writer in writers:
            writer.join()
        self.repair()
        lossy = self.lossy or self.failures() != before
        self.check_data()
        self.check_writes(writers, floor, lossy)
        self.check_pairs(len(writers))
        self.check_still(lossy)

    def check_alive(self):
        for node in self.group.nodes:
            if not node.alive():
                raise Wrong(f"{node.name} has ended: {node.process.returncode}\n{node.output(1500)}")

    def repair(self):
        nodes = self.group.nodes
        for node in nodes:
            node.thaw()
            node.call("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -1)
            node.call("CONFIG", "SET", "rdb-key-save-delay", 0, "maxmemory", 0)
        migrations_end(nodes)
        reason = [None]
        last = [0.0]

        def one_view():
            if time.monotonic() - last[0] > 3:
                last[0] = time.monotonic()
                self.close_slots()
            reason[0] = self.group.disagreement()
            return not reason[0]
        try:
            wait_for("one view", one_view, 60)
        except AssertionError:
            views = "\n".join(f"--- {node.name}\n{node.call('CLUSTER', 'NODES').decode()}" for node in nodes)
            raise Wrong(f"the nodes do not agree: {reason[0]}\n{views}") from None

    def close_slots(self):
        """Moves the keys of open slots to the owner, and closes them."""
        try:
            led = primaries(self)
            # A replica that started with an open slot learns from the stream alone that it is closed.
            views = {node: node.view() for node in self.group.nodes}
            for slot in sorted(set().union(*(view.open for view in views.values()))):
                owner = next((node for node in led if slot in views[node].nodes[views[node].myself][4]), None)
                if not owner:
                    continue
                name = views[owner].myself
                for node in led:
                    if node is owner or not node.call("CLUSTER", "COUNTKEYSINSLOT", slot):
                        continue
                    owner.call("CLUSTER", "SETSLOT", slot, "STABLE")
                    node.call("CLUSTER", "SETSLOT", slot, "IMPORTING", name)
                    move_keys(self, node, owner, slot)
                if any(node is not owner and node.call("CLUSTER", "COUNTKEYSINSLOT", slot) for node in led):
                    continue  # the cluster is not ok yet
                done = [node.call("CLUSTER", "SETSLOT", slot, "STABLE") for node in led]
                self.note(f"closed slot {slot} for {owner.name} {name[:6]}: {done}")
        except (OSError, StopIteration, AttributeError, TypeError, KeyError) as error:
            self.note(f"repair: {error!r}")

    def check_data(self):
        roles, differing = {}, [None]

        def same():
            # A failover that waited for a copy may complete only now.
            roles.clear()
            roles.update(self.group.by_role())
            differing[0] = [f"{node.name} and its primary {of.name}" for node, of in roles.items() if of and (
                node.info("replication").get("master_link_status") != "up" or
                node.call("DEBUG", "DIGEST") != of.call("DEBUG", "DIGEST"))]
            return not differing[0]
        try:
            wait_for("same digests", same, 45)
        except AssertionError:
            raise Wrong(f"the data differs: {differing[0]}") from None
        for node, of in roles.items():
            owned = (of or node).view()
            owned = owned.nodes[owned.myself][4]
            with Client(node.port) as client:
                used = [client.call("CLUSTER", "KEYSLOT", f"{{t{i}}}") for i in range(LETTERS)]
                strangers = [slot for slot in used if slot not in owned]
                client.send(*(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in strangers))
                for slot in strangers:
                    if client.read():
                        if self.group.by_role() != roles:  # a replica has moved to another primary meanwhile
                            return self.check_data()
                        raise Wrong(f"{node.name} has keys in slot {slot}, which it does not own: "
                                    f"{node.call('CLUSTER', 'GETKEYSINSLOT', slot, 100)}")
            if of is None:
                self.check_reload(node)
            else:  # it may be killed as a primary: what it loads then may lose nothing of the rounds before
                node.call("SAVE")
        self.check_alive()

    def check_reload(self, node):
        """Keys that expire would change the digest, so they are waited for."""
        wait_for("keys expire", self.only_still_expire(node), 20)
        before, reply = node.call("DEBUG", "DIGEST"), node.call("DEBUG", "RELOAD")
        after = node.call("DEBUG", "DIGEST")
        if reply != "OK" or before != after:
            raise Wrong(f"{node.name} has other data after DEBUG RELOAD: {reply}, {before} and {after}")

    @staticmethod
    def only_still_expire(node):
        """A function that says whether only those keys of the node expire that nobody changes."""
        view = node.view()
        tags = [tag for tag in map(tag_of, range(LETTERS))
                if node.call("CLUSTER", "KEYSLOT", tag) in view.nodes[view.myself][4]]
        keys = [key for tag in tags for key in still_keys(tag)]
        hashes = [command[1] for tag in tags for command in still_commands(tag) if command[0] == "HSETEX"]

        def expire():
            with Client(node.port) as client:
                client.send(*(("PTTL", key) for key in keys))
                still = sum(client.read() > 0 for _ in keys)
                client.send(*(("EXISTS", key) for key in hashes))
                fields_expire = sum(client.read() for _ in hashes)
            fields = node.info("keyspace").get("db0", "expires=0").split(",")
            number = {name: int(value) for name, _, value in (field.partition("=") for field in fields)}
            return (number.get("expires", 0) == still and
                    number.get("keys_with_volatile_items", fields_expire) == fields_expire)
        return expire

    def least(self, counter, old):
        """A killed primary starts with what it had saved. That may be older than a move of the slot."""
        slot = self.group.nodes[0].call("CLUSTER", "KEYSLOT", counter)
        return 0 if slot in self.moved else old.get(counter, 0)

    def check_writes(self, writers, floor, lossy):
        lost = []
        for writer, old in zip(writers, floor):
            reader = Writer(self.group, 0)
            for counter, acknowledged in writer.acknowledged.items():
                replies = reader.execute(counter.partition("}")[0] + "}", [("GET", counter)])
                if not replies:
                    raise Wrong(f"{counter} cannot be read")
                value = int(replies[0] or 0)
                least = self.least(counter, old) if lossy else acknowledged
                if value < least:
                    lost.append(f"{counter} is {value}, but {least} was acknowledged")
                if value > writer.attempts[counter]:
                    lost.append(f"{counter} is {value} after {writer.attempts[counter]} attempts")
                writer.acknowledged[counter] = value
            for port in list(reader.clients):
                reader.drop(port)
        if lost:
            raise Wrong(f"{len(lost)} counters are wrong, for example {lost[:3]}, {'lossy' if lossy else 'lossless'}")


    def check_pairs(self, writers):
        reader = Writer(self.group, 0)
        for tag in map(tag_of, range(LETTERS)):
            slot = self.group.nodes[0].call("CLUSTER", "KEYSLOT", tag)
            for i in range(writers):
                values = reader.execute(tag, [("MGET", f"{tag}w{i}p", f"{tag}w{i}q")])
                if slot not in self.group.torn and (not values or values[0][0] != values[0][1]):
                    raise Wrong(f"counters that change together differ: {tag}w{i}, {values}")

    def check_still(self, lossy):
        reader = Writer(self.group, 0)
        for tag, known in list(self.group.still.items()):
            replies = reader.execute(tag, [("TOUCH", tag), ("DEBUG", "DIGEST-VALUE", *still_keys(tag))])
            if replies and replies[1] == known:
                continue
            if not lossy or self.group.nodes[0].call("CLUSTER", "KEYSLOT", tag) not in self.moved:
                raise Wrong(f"keys of {tag} that nobody has changed are different, {'lossy' if lossy else 'lossless'}")
            self.note(f"keys of {tag} are lost")
            self.group.make_still(tag)


def restart_with(group, node, program):
    """Stops a replica properly and starts a program in its directory."""
    group.note(f"{node.name} becomes {program}")
    node.signal(signal.SIGTERM)
    node.process.wait(30)
    node.program = [program]
    node.start()
    wait_for("one view", lambda: not group.disagreement())
    wait_for("a copy", lambda: node.info("replication").get("master_link_status") == "up")


def replace(group, program):
    """Restarts all nodes with a program, while clients write. Returns the number of acknowledged writes that are lost,
    and of all."""
    writers = [Writer(group, i) for i in range(3)]
    for writer in writers:
        writer.start()
    time.sleep(1)
    for node in [node for node, of in group.by_role().items() if of]:
        restart_with(group, node, program)
    for node in [node for node, of in group.by_role().items() if of is None]:
        replica = next(other for other, of in group.by_role().items() if of is node)
        group.note(f"failover from {node.name} to {replica.name}: {replica.call('CLUSTER', 'FAILOVER')}")
        wait_for("a failover", lambda node=node: group.by_role()[node] is not None)
        wait_for("one view", lambda: not group.disagreement())
        restart_with(group, node, program)
    for writer in writers:
        writer.ends = True
    for writer in writers:
        writer.join()
    wait_for("one view", lambda: not group.disagreement())
    lost = total = 0
    reader = Writer(group, 0)
    for writer in writers:
        for counter, acknowledged in writer.acknowledged.items():
            replies = reader.execute(counter.partition("}")[0] + "}", [("GET", counter)])
            if not replies:
                raise Wrong(f"{counter} cannot be read")
            total += acknowledged
            lost += max(0, acknowledged - int(replies[0] or 0))
    for node in [node for node, of in group.by_role().items() if of is None]:
        node.call("FLUSHALL")
    return lost, total


def run_replace(options, directory, note):
    group = Group(options, directory, note)
    try:
        group.start()
        results = []
        for program in (options.genuine, options.server, options.genuine):
            lost, total = replace(group, program)
            results.append(lost)
            print(f"{program}: {lost} of {total} acknowledged writes lost", flush=True)
        failed = max(results[1:]) > results[0]
    finally:
        for node in group.nodes:
            node.thaw()
            node.stop()
    print(f"{2 - failed} passed, {int(failed)} failed")
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description="Breaks a cluster, and compares its nodes.")
    parser.add_argument("rounds", nargs="?", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4, help="how long clients write in a round")
    parser.add_argument("--limit", type=float, help="start no round after so many seconds")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--replicas", type=int, help="of each primary; default: 1 or 2, by the seed")
    parser.add_argument("--faults", type=lambda text: text.split(","), help="only these, separated by commas, as often "
                        "as they are named: " + ", ".join(sorted({**FAULTS, **LOSSY})))
    parser.add_argument("--rdma", action="store_true", help="between our nodes, on the software device")
    parser.add_argument("--mixed", action="store_true", help="some nodes are genuine")
    parser.add_argument("--replace", action="store_true", help="restart a genuine cluster with our program, and back")
    parser.add_argument("--server", default=ours())
    parser.add_argument("--keep", help="keep the files below this directory")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.genuine, why = newest_server()
    if why and (options.mixed or options.replace):
        parser.error(why)
    print(f"seed {options.seed}", flush=True)
    directory = tempfile.mkdtemp(prefix=f"valkey-cluster-{options.seed}.", dir=options.keep)
    started, history, passed, failed = time.monotonic(), [], 0, 0

    def note(text):
        history.append(f"{time.monotonic() - started:8.3f} {time.strftime('%H:%M:%S')} {text}")
        if options.verbose:
            print(history[-1], flush=True)
    if options.replace:
        failed = run_replace(options, directory, note)
        if not failed and not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
        return failed
    group, attempts, acknowledged = Group(options, directory, note), [{}, {}, {}], [{}, {}, {}]
    number = 0
    try:
        group.start()
        for number in range(options.rounds):
            if options.limit and time.monotonic() - started > options.limit:
                break
            note(f"--- round {number}")
            writers = [Writer(group, i) for i in range(len(attempts))]
            for writer, tried, known in zip(writers, attempts, acknowledged):
                writer.attempts, writer.acknowledged = tried, known
            Round(group, number, note).run(writers)
            passed += 1
    except (Exception, SystemExit) as error:  # whatever it is, the state of the servers is what matters
        failed = 1
        print(f"[failed] round {number} of seed {options.seed}: {error}\n" +
              "\n".join("  " + line for line in history[-HISTORY_SHOWN:]) +
              f"\n  repeat with --seed {options.seed} {number + 1}; files: {directory}", flush=True)
    for node in group.nodes:
        node.thaw()
        node.kill() if failed and node.alive() else node.stop()
    if not failed and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return failed


sys.exit(main())
