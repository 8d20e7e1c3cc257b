"""replication.py: injects faults into a primary with two replicas while clients write, and checks the data.

    tests/crash/replication [ROUNDS] [--seed N] [--no-rdma] [--verbose]

Each round chooses how the replicas synchronize (RDMA or TCP, with a file, diskless, on a second channel, into memory
or over the old data, with little or much memory for the snapshot) and a fault at a random moment: a replica, the
primary, or the child that writes a snapshot is killed; a replica or the primary is frozen for some time; a replica
loses its data, or is a primary for a moment; links are cut; a full synchronization starts again; the RDMA device
loses, delays or refuses messages, fails READs, registrations or connections, or is removed.

Writer i executes, numbering its writes from 1 on, MULTI / RPUSH log:i NUMBER / INCR count:i / EXEC, then WAIT 1;
sometimes with a random write of another kind. At the end of each round all faults are repaired. Then these
conditions must hold:

    the replicas follow, and all three servers have the same DEBUG DIGEST
    log:i is 1, 2, 3 … N without a gap and without a number that comes twice, and count:i is N
    N >= the last number for which WAIT said that a replica has it; N <= the last number that was sent
    no server has ended by itself, left a child behind, or keeps more and more descriptors

If the primary is killed, the replica that has executed most of its stream takes over, and the old primary follows
it. No full synchronization is started in such a round, because a replica that has deleted its data for one cannot
take over. In every second run the servers have an append-only file (appendfsync always); then a killed primary may
be restarted as the primary.

At the end all snapshot memory and all windows for RDMA READ must have been released. The last line is "N passed, N
failed" (rounds)."""
import argparse, os, random, signal, sys, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import servers  # noqa: E402
from resp import Client, Error  # noqa: E402
from servers import ours, rdma_device, wait_for  # noqa: E402

WRITERS = 3
DESCRIPTORS_MORE = 40
MEMORIES = [("64mb", "1gb"), ("64mb", "1gb"), ("4mb", "1gb"), ("64mb", "16mb")]  # of a snapshot; registered
# Rules of the software RDMA device; each is inactive until its file exists.
DEVICE_FAULTS = {
    "lost": "send:drop,p=1",
    "late": "send:delay=100-5000,p=10",
    "failed": "send:error=RETRY_EXC_ERR,p=1",
    "scattered": "write:scatter=5-200,p=50",
    "reads": "send:error=REM_ACCESS_ERR,op=read,p=5",
    "unreached": "send:drop,op=read,p=2",
    "rejected": "request:reject,p=50",
    "unanswered": "accept:drop,p=50",
    "unregistered": "reg_mr:fail=ENOMEM,p=50",
    "removed": "event:remove,nth=1",
}


class Server(servers.Server):
    def __init__(self, run, name):
        self.run, self.name, self.descriptors = run, name, None
        arguments = ["--repl-diskless-sync-delay", 0, "--repl-timeout", 5, "--repl-backlog-size", "64mb",
                     "--repl-ping-replica-period", 1, "--enable-debug-command", "yes"]
        if run.keeps_file:
            arguments += ["--appendonly", "yes", "--appendfsync", "always"]
        super().__init__(ours(), *arguments, rdma=run.options.rdma, start=False)
        os.mkdir(os.path.join(self.dir, "faults"))
        rules = [f"{rule},while={self.dir}/faults/{fault}" for fault, rule in DEVICE_FAULTS.items()]
        self.environment["SOFTRDMA_FAULTS"] = "; ".join(rules)
        self.frozen = False

    def start(self):
        super().start()
        self.descriptors = None

    def follow(self, primary):
        # A server that loads a copy rejects it.
        wait_for("REPLICAOF is accepted", lambda: not isinstance(self.call("REPLICAOF", "127.0.0.1", primary.port),
                                                                 Error))

    def is_up(self):
        return self.info("replication").get("master_link_status") == "up"

    def signal(self, number):
        super().signal(number)
        self.frozen = number == signal.SIGSTOP

    def fault(self, name, on):
        path = os.path.join(self.dir, "faults", name)
        if on:
            open(path, "w").close()
        elif os.path.exists(path):
            os.unlink(path)

    def mend(self):
        if self.process.poll() is None and self.frozen:
            self.signal(signal.SIGCONT)
        for name in DEVICE_FAULTS:
            self.fault(name, False)

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]


class Writer:
    """Writes numbers until it is stopped or its connection breaks."""

    def __init__(self, index):
        self.index, self.sent, self.acknowledged, self.total = index, 0, 0, 0

    @staticmethod
    def other(rng):
        # No key expires during a run: the digests of the servers are taken one after the other.
        key, size = f"key:{rng.randrange(2000)}", rng.choice([10, 100, 1000, 20000, 100000])
        return rng.choice([("SET", key, "x" * size), ("DEL", key), ("APPEND", key, "tail"),
                           ("SADD", "set", rng.randrange(1000)),
                           ("LPUSH", "list", "x" * (size % 3000)), ("LTRIM", "list", 0, 200), ("EXPIRE", key, 1000000)])

    def work(self, port, stop, seed):
        rng = random.Random(seed)
        try:
            connection = Client(port, timeout=30)
            while not stop.is_set():
                number = self.sent + 1
                self.sent = number
                extra = [self.other(rng)] if rng.random() < 0.2 else []
                connection.send(("MULTI",), ("RPUSH", f"log:{self.index}", number), ("INCR", f"count:{self.index}"),
                                *extra,
                                ("EXEC",), ("WAIT", 1, 1000))
                replies = [connection.read() for _ in range(5 + len(extra))]
                if isinstance(replies[-2], Error):  # rejected: this number was not written
                    self.sent -= 1
                    time.sleep(0.01)
                elif not isinstance(replies[-1], Error) and int(replies[-1]) >= 1:
                    self.acknowledged = number
                    self.total += 1
            connection.close()
        except (OSError, ConnectionError):
            pass


class Run:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.writers = [Writer(i) for i in range(WRITERS)]
        self.keeps_file = self.rng.random() < 0.5
        self.kinds = {}
        self.servers = [Server(self, name) for name in "abc"]

    def say(self, text):
        if self.options.verbose:
            print(text, flush=True)

    # --- A round ---

    def begin(self):
        for server in self.servers:
            server.start()
        self.primary = self.servers[0]
        self.primary.call("DEBUG", "POPULATE", 3000, "key", 3000)
        for replica in self.replicas():
            replica.follow(self.primary)
        wait_for("the replicas follow", lambda: all(r.is_up() for r in self.replicas()))

    def replicas(self):
        return [s for s in self.servers if s is not self.primary]

    def settings(self):
        rng = self.rng
        rdma = self.options.rdma and rng.random() < 0.7
        chosen = {
            "repl-diskless-sync": rng.choice(["yes", "yes", "no"]),
            "repl-diskless-load": rng.choice(["disabled", "on-empty-db", "swapdb", "flush-before-load"]),
            "dual-channel-replication-enabled": rng.choice(["yes", "no", "no"]),
            "rdb-key-save-delay": rng.choice(["0", "0", "30"]),
        }
        if self.options.rdma:
            chosen["rdma-replication"] = "yes" if rdma else "no"
            chosen["rdma-replication-snapshot-memory"], chosen["rdma-max-registered-memory"] = rng.choice(MEMORIES)
        for server in self.servers:
            for name, value in chosen.items():
                reply = server.call("CONFIG", "SET", name, value)
                assert not isinstance(reply, Error), f"CONFIG SET {name} {value}: {reply}"
        self.rdma = rdma
        return chosen

    def full_sync(self):
        """Makes the replicas synchronize again, while clients write."""
        self.primary.call("DEBUG", "CHANGE-REPL-ID")
        self.primary.call("CLIENT", "KILL", "TYPE", "replica")

    def fault(self):
        """Chooses and starts a fault. Returns its name."""
        rng, primary = self.rng, self.primary
        victim = rng.choice(self.replicas())
        kinds = ["kill replica", "freeze replica", "freeze primary", "cut links", "kill primary", "kill primary",
                 "kill child", "full sync", "two full syncs", "sync and kill replica", "sync and freeze replica",
                 "no one", "forget"]
        if self.keeps_file:
            kinds += ["restart primary", "sync and restart primary"]
        if self.rdma:
            kinds += ["device " + name for name in DEVICE_FAULTS] + ["sync with device " + name
                                                                     for name in DEVICE_FAULTS]
        kind = rng.choice(kinds)
        if "sync" in kind or kind == "kill child":
            self.full_sync()
            time.sleep(rng.uniform(0, 0.3))
        if kind == "two full syncs":
            self.full_sync()
        elif kind == "kill child":
            for child in primary.children():
                os.kill(child, signal.SIGKILL)
        elif kind.endswith("kill replica"):
            victim.kill()
        elif kind.endswith("freeze replica"):
            victim.signal(signal.SIGSTOP)
        elif kind == "freeze primary":
            primary.signal(signal.SIGSTOP)
        elif kind == "cut links":
            for _ in range(rng.randint(1, 4)):
                primary.call("CLIENT", "KILL", "TYPE", "replica")
                time.sleep(rng.uniform(0, 0.2))
        elif kind.endswith("primary"):  # killed
            primary.kill()
        elif kind == "no one":  # and becomes a replica again, with another history
            victim.call("REPLICAOF", "NO", "ONE")
        elif kind == "forget":
            for words in (("REPLICAOF", "NO", "ONE"), ("FLUSHALL",), ("DEBUG", "CHANGE-REPL-ID")):
                victim.call(*words)
        elif "device" in kind:
            name = kind.split()[-1]
            for server in rng.choice([[primary], [victim], self.servers]):
                server.fault(name, True)
            if "sync" not in kind:
                primary.call("CLIENT", "KILL", "TYPE", "replica")
        return kind

    def take_over(self):
        def offset(server):
            info = server.info("replication")
            return -1 if info.get("master_sync_in_progress") == "1" else int(info["slave_repl_offset"])
        best = max(self.replicas(), key=offset)
        best.call("REPLICAOF", "NO", "ONE")
        old, self.primary = self.primary, best
        old.start()

    def round(self, number):
        chosen = self.settings()
        stop = threading.Event()
        threads = [threading.Thread(target=w.work, args=(self.primary.port, stop, self.rng.random()))
                   for w in self.writers]
        for thread in threads:
            thread.start()
        time.sleep(self.rng.uniform(0.02, 0.3))
        self.kind = self.fault()
        self.kinds[self.kind] = self.kinds.get(self.kind, 0) + 1
        self.say(f"round {number}: {self.kind} {chosen}")
        time.sleep(self.rng.uniform(0.05, 0.8))
        stop.set()
        for server in self.servers:
            server.mend()
        for thread in threads:
            thread.join()
        if self.kind == "kill primary":
            self.take_over()
        for server in self.servers:
            if server.process.poll() is not None:
                killed = self.kind.endswith(("kill replica",
                                             "restart primary")) and server.process.returncode == -signal.SIGKILL
                assert killed, f"{server.name} ended by itself: {server.process.returncode}"
                server.start()
        for replica in self.replicas():
            replica.follow(self.primary)
        self.verify()

    def differences(self):
        """The keys whose values differ, with their descriptions."""
        found = []
        for key in sorted({key for server in self.servers for key in server.call("KEYS", "*")}):
            values = [server.call("DEBUG", "DIGEST-VALUE", key)[0] for server in self.servers]
            if len(set(values)) > 1:
                kind = str(self.primary.call("TYPE", key))
                command = {"list": "LLEN", "string": "STRLEN"}.get(kind, "EXISTS")
                found.append((key, [server.call(command, key) for server in self.servers],
                              [server.call("LRANGE", key, -3, -1) for server in self.servers] if kind == "list" else
                              [(server.call("GET", key) or b"")[:30] for server in self.servers]))
        return found[:10], [server.info("replication") for server in self.servers]

    def verify(self):
        wait_for("the replicas follow", lambda: all(r.is_up() for r in self.replicas()))
        # WAIT considers only writes of its own connection, so this connection executes the last write.
        connection = Client(self.primary.port)
        connection.call("INCR", "rounds")
        wait_for("both replicas have all", lambda: int(connection.call("WAIT", 2, 1000)) == 2)
        connection.close()
        digests = [server.call("DEBUG", "DIGEST") for server in self.servers]
        assert len(set(digests)) == 1, f"the data differ: {self.differences()}"
        for writer in self.writers:
            log = [int(n) for n in self.primary.call("LRANGE", f"log:{writer.index}", 0, -1)]
            assert log == list(range(1, len(log) + 1)), f"log:{writer.index} has gaps or repetitions: {log[-20:]}"
            count = int(self.primary.call("GET", f"count:{writer.index}") or 0)
            assert count == len(log), f"count:{writer.index} is {count}, its log has {len(log)}"
            assert len(log) >= writer.acknowledged, f"lost: {len(log)} of {writer.acknowledged} acknowledged"
            assert len(log) <= writer.sent, f"{len(log)} of {writer.sent} sent"
            writer.sent = writer.acknowledged = len(log)
        for server in self.servers:
            wait_for(f"{server.name} has no child", lambda: not server.children())
            descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            if server.descriptors is None:
                server.descriptors = descriptors
            allowed = server.descriptors + DESCRIPTORS_MORE
            assert descriptors <= allowed, f"{server.name} has {descriptors} descriptors open"

    def verify_end(self):
        """All resources were released."""
        for server in self.servers:
            wait_for(f"{server.name} holds no snapshot", lambda: server.info("replication").get("rdma_sync_memory",
                                                                                                "0") == "0")
            wait_for(f"{server.name} holds no windows", lambda: server.info("rdma").get("rdma_read_windows",
                                                                                        "0") == "0")

    def all(self):
        passed = 0
        try:
            self.begin()
            for number in range(self.options.rounds):
                self.kind = "settings"
                self.round(number)
                passed += 1
            self.kind = "the end"
            self.verify_end()
        except (AssertionError, OSError, RuntimeError) as error:
            logs = "\n".join(f"--- {s.name} (port {s.port})\n{s.output(2500)}" for s in self.servers)
            print(f"round {passed} of seed {self.options.seed}, {self.kind}: {error!r}\n{logs}", flush=True)
            passed = min(passed, self.options.rounds - 1)
        finally:
            for server in self.servers:
                server.temporary = not self.options.keep
                server.stop()
                if self.options.keep:
                    print(f"files: {server.dir}")
        print(f"seed {self.options.seed}: {sum(w.total for w in self.writers)} writes that a replica had acknowledged; "
              +
              ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items())))
        failed = int(passed < self.options.rounds)
        print(f"{passed} passed, {failed} failed")
        return failed


def main():
    parser = argparse.ArgumentParser(description="Breaks a group of servers that replicate, and looks at what is left.")
    parser.add_argument("rounds", nargs="?", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--no-rdma", dest="rdma", action="store_false", help="over TCP only")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.rdma = options.rdma and bool(rdma_device())
    sys.exit(Run(options).all())


main()
