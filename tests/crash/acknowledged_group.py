"""acknowledged_group.py: three servers with synchronous replication for tests/crash/acknowledged, and the links between
them.

Clients connect to the servers themselves, over TCP or over RDMA (build/programs/rdma-proxy). In groups whose links use
TCP, the servers connect to each other through proxies: one before each server, which knows the other end by its address
(bind-source-addr 127.0.0.2 for the first server, and so on), so each pair can be separated in each direction. In other
groups the links use RDMA and cannot be cut, only frozen with their servers."""
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

from servers import ROOT, Server, info_fields, ours, rdma_device, until

SERVERS = 3
FILES = {
    "none": [],
    "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
    "always": ["--appendonly", "yes", "--appendfsync", "always"],
    "fsync": ["--appendonly", "yes", "--appendfsync", "always", "--sync-replication-fsync", "yes"],
}


def open_gate(port):
    """A process that takes clients over TCP to this port over RDMA, and its own port."""
    gate = subprocess.Popen([*rdma_device(), os.path.join(ROOT, "build/programs/rdma-proxy"), "--listen-port", "0",
                             "--rdma-host", "127.0.0.1", "--rdma-port", str(port)],
                            stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return gate, int(gate.stdout.readline().split()[1])


def freeze_in_turn(servers, numbers, rng):
    """Freezes them one after the other, and thaws them in another order; twice."""
    for _ in range(2):
        for change in servers.freeze, servers.thaw:
            rng.shuffle(numbers)
            for number in numbers:
                change(number)
                time.sleep(rng.choice([0, 0.02, 0.3, 1.1]))


class Links:
    """A proxy before one server. `stalled` and `refused` have the numbers of the servers whose bytes wait, or whose
    connections are closed. `stalled_back`: bytes to these servers wait. `delays`: from and to a server, in seconds."""

    def __init__(self, target):
        self.target, self.lock = target, threading.Condition()
        self.stalled, self.stalled_back, self.refused, self.pairs, self.closing = set(), set(), set(), [], False
        self.delays = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, address = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(near, int(address[0].split(".")[3]) - 2), daemon=True).start()

    def connect(self, near, number):
        far = None
        try:
            if number not in self.refused:
                far = socket.create_connection(("127.0.0.1", self.target()), timeout=5)
        except OSError:
            pass
        if not far:
            near.close()
            return
        far.settimeout(None)
        with self.lock:
            self.pairs.append((near, far, number))
        for source, sink, waits, way in ((near, far, self.stalled, 0), (far, near, self.stalled_back, 1)):
            threading.Thread(target=self.pump, args=(source, sink, number, waits, way), daemon=True).start()

    def pump(self, source, sink, number, waits, way):
        try:
            while data := source.recv(65536):
                if self.delays:
                    time.sleep(self.delays.get(number, (0, 0))[way])
                with self.lock:
                    self.lock.wait_for(lambda: number not in waits or self.closing)
                sink.sendall(data)
        except OSError:
            pass
        self.shut(source, sink)
        with self.lock:  # the descriptors are closed when both directions have ended
            self.pairs = [pair for pair in self.pairs if source not in pair[:2]]

    @staticmethod
    def shut(*sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stall(self, numbers, back):
        with self.lock:
            (self.stalled_back if back else self.stalled).update(numbers)

    def delay(self, numbers, seconds, seconds_back):
        self.delays.update((number, (seconds, seconds_back)) for number in numbers)

    def refuse(self, numbers):
        self.refused.update(numbers)
        self.break_off(numbers)

    def break_off(self, numbers):
        """Ends the connections of these servers. What waits in them is lost."""
        with self.lock:
            ended = [pair for pair in self.pairs if pair[2] in numbers]
            self.pairs = [pair for pair in self.pairs if pair[2] not in numbers]
        for near, far, _ in ended:
            self.shut(near, far)

    def restore(self):
        with self.lock:
            self.stalled.clear()
            self.delays.clear()
            self.stalled_back.clear()
            self.refused.clear()
            self.lock.notify_all()

    def close(self):
        self.closing = True
        self.shut(self.listener)
        self.listener.close()
        self.restore()
        self.break_off({pair[2] for pair in self.pairs})


class Servers:
    """The servers of a test, and what stops, ends and separates them. `links` and `bus` have a proxy before each
    server, or nothing; `gates` take clients to them over RDMA."""

    def __init__(self, note):
        self.note = note
        self.servers, self.links, self.bus, self.gates, self.witnesses = [], [], [], [], []

    def stop(self):
        for server in self.servers:
            if server.alive():
                server.signal(signal.SIGCONT)
                server.kill()
            server.stop()
        for gate, _ in self.gates:
            gate.kill()
            gate.wait()
        for links in self.links + self.bus:
            links.close()

    def client_port(self, number, rdma):
        return self.gates[number][1] if rdma and self.gates else self.servers[number].port

    def link_port(self, number):
        return self.links[number].port if self.links else self.servers[number].port

    def try_call(self, number, *words, timeout=2):
        try:
            return self.servers[number].call(*words, timeout=timeout)
        except OSError:
            return None

    def fields(self, number):
        return info_fields(self.try_call(number, "INFO", "replication"))

    def mend(self):
        for links in self.links + self.bus:
            links.restore()
        for number, server in enumerate(self.servers):
            if not server.alive():
                self.start(number)
            else:
                server.signal(signal.SIGCONT)

    def kill(self, number):
        self.note(f"server {number} is killed")
        self.servers[number].kill()

    def start(self, number):
        self.note(f"server {number} starts")
        self.servers[number].start()

    def freeze(self, number):
        self.note(f"server {number} is frozen")
        if self.witnesses:
            self.witnesses[number].before_freeze()
        self.servers[number].signal(signal.SIGSTOP)
        if self.witnesses:
            self.witnesses[number].begin_freeze()

    def thaw(self, number):
        if self.witnesses:
            self.witnesses[number].end_freeze()
        self.note(f"server {number} continues")
        self.servers[number].signal(signal.SIGCONT)

    def separate(self, number, how):
        """Cuts the links between this server and all others; its clients still reach it."""
        self.note(f"server {number} is cut off: {how}")
        others = [other for other in range(len(self.servers)) if other != number]
        for proxies in filter(None, (self.links, self.bus)):
            if how == "refused":
                proxies[number].refuse(others)
            if how in ("stalled", "deaf"):  # what comes from the others waits
                proxies[number].stall(others, False)
            if how in ("stalled", "mute"):  # what goes to the others waits
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
                links.break_off(range(-2, len(self.servers)))
            links.restore()
        self.note("all links work" + (", what waited is lost" if lossy else ""))


class Group(Servers):
    """Three servers and the number of the one that leads, or led last."""

    def __init__(self, options, rng, directory, note):
        super().__init__(note)
        self.genuine, self.primary, self.identity = options.genuine, 0, None
        self.rdma = options.rdma and not self.genuine
        self.rdma_links = self.rdma and rng.random() < 0.4
        self.files = rng.choice(sorted(FILES if not self.genuine else ["none", "everysec", "always"]))
        arguments = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "4", "--repl-ping-replica-period", "1",
                     "--enable-debug-command", "yes", "--enable-protected-configs", "yes", *FILES[self.files]]
        if not self.genuine:
            arguments += ["--sync-replication", "yes", "--min-sync-replicas", "1"]
        if self.rdma_links:
            arguments += ["--rdma-replication", "yes"]
        note(f"files {self.files}, links over {'RDMA' if self.rdma_links else 'TCP'}")
        for number in range(SERVERS):
            own = list(arguments)
            if not self.rdma_links:
                self.links.append(Links(lambda number=number: self.servers[number].port))
                own += ["--replica-announce-port", self.links[-1].port, "--bind-source-addr", f"127.0.0.{number + 2}"]
            place = os.path.join(directory, f"server{number}")
            os.mkdir(place)
            self.servers.append(Server(self.genuine or options.server or ours(), *own, rdma=self.rdma,
                                       directory=place))
            if self.rdma:
                self.gates.append(open_gate(self.servers[number].port))

    # --- Asking

    def leads(self, number):
        fields = self.fields(number)
        if self.genuine:
            return fields.get("role") == "master"
        return fields.get("sync_replication") == "leading" and fields.get("sync_group") == self.identity

    def others(self):
        return [number for number in range(SERVERS) if number != self.primary]

    def describe(self):
        names = ["role", "master_link_status", "master_port", "master_repl_offset"] if self.genuine else \
            ["role", "sync_replication", "sync_obstacle", "master_link_status", "master_port", "sync_term",
             "sync_promised_term", "sync_data_is_current", "sync_in_sync_replicas", "sync_set_version", "sync_members",
             "sync_prepared_offset", "sync_committed_offset"]
        for number in range(SERVERS):
            fields = self.fields(number)
            self.note(f"server {number}: " + " ".join(f"{name}={fields[name]}" for name in names if name in fields))

    # --- Repairing

    def follow(self):
        for number in self.others():
            fields, port = self.fields(number), self.link_port(self.primary)
            if fields.get("role") == "slave" and fields.get("master_port") == str(port) and \
                    fields.get("sync_replication", "following") == "following":
                continue
            self.try_call(number, "REPLICAOF", "127.0.0.1", port)

    def works(self):
        """All servers are there, and the group acknowledges writes."""
        leaders = [number for number in range(SERVERS) if self.leads(number)]
        if self.primary not in leaders:
            if not leaders:
                self.try_call(self.primary, "REPLICAOF", "NO", "ONE")
                return False
            self.primary = leaders[-1]
        self.follow()
        if any(self.fields(number).get("master_link_status") != "up" for number in self.others()):
            return False
        if self.genuine:
            return True
        fields = self.fields(self.primary)
        # A replaced server counts as failed until it has left the set: another fault before that is the second one.
        return fields.get("sync_in_sync_replicas") == "2" and fields.get("sync_writable") == "1" and \
            fields.get("sync_members") == str(SERVERS) and fields.get("sync_set_changes") == "0" and \
            all(self.fields(number).get("sync_data_is_current") == "1" for number in self.others())

    def form(self):
        if not self.genuine:
            self.identity = self.fields(0)["sync_group"]
        return until(self.works, 60)

    def copies(self):
        """The digests of the data of all servers."""
        return [self.try_call(number, "DEBUG", "DIGEST", timeout=10) for number in range(SERVERS)]

    # --- What may fail

    def wipe(self, number):
        """Removes all files of a server that does not run. It is a new server then."""
        place = self.servers[number].dir
        for name in os.listdir(place):
            path = os.path.join(place, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif name != "log":
                os.remove(path)

    def lose_data(self, number):
        """Removes the data, not the promises, of a server that does not run."""
        place = self.servers[number].dir
        for name in ("appendonlydir", "dump.rdb"):
            path = os.path.join(place, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.remove(path)

    def promote(self, number, seconds=8):
        self.note(f"server {number} is promoted")
        self.try_call(number, "REPLICAOF", "NO", "ONE")
        if until(lambda: self.leads(number), seconds):
            self.note(f"server {number} leads")
            self.primary = number
            return True
        return False

    def replace(self, number, old):
        """Promotes a server, and lets the third one follow it. The old primary is not told."""
        if self.promote(number):
            third = ({0, 1, 2} - {number, old}).pop()
            self.try_call(third, "REPLICAOF", "127.0.0.1", self.link_port(number))

    def best_replica(self):
        """The replica with the most of the stream, as Sentinel chooses."""
        alive = [number for number in self.others() if self.servers[number].alive()]
        return max(alive, key=lambda number: int(self.fields(number).get("slave_repl_offset", 0) or 0))


