"""crash.py: kills a server repeatedly while clients write, and checks what remains.

    tests/crash/run [ROUNDS] [--seed N] [--no-rdma] [--sync-thread auto|main|background] [--verbose]

Each round starts the server on the files of the previous round. Clients write over TCP and RDMA (the software
device) at the same time, while rewrites, BGSAVEs and SAVEs run and the disk is slow, full, failing or makes short
writes. Then the server is killed with SIGKILL at a random moment. With appendfsync always, the main thread, a
background thread or the one that the server chooses syncs the file; --sync-thread selects one of them. In more than
half of the rounds the machine crashes as well: data that was not synced with fsync() or fdatasync() since the last
crash of the machine is lost (machine.py). Files lose their ends, and changes of directories are lost: files are
missing, have their old content or exist again.

Client i executes, numbering its writes from 1 on, MULTI / INCR count:i / SET mirror:i NUMBER / EXEC, in pipelines of
up to 16, sometimes with a value of 100 kB; readers GET count:i. After the next start these conditions must hold for
every client:

    count:i >= the last number that was acknowledged; after a crash of the machine with appendfsync everysec, the last
               number that was there at the start or that WAITAOF has reported as synced
    count:i >= every number that a reader has seen; but not where the disk has refused a write with everysec, since
               reads are answered then although the writes that they see wait
    count:i <= the last number that was sent
    mirror:i == count:i                  a transaction is there whole or not at all
    valkey-check-aof finds the files sound, or the server says that it cut off the end of the last one
    valkey-check-rdb finds dump.rdb sound, and a server that loads it has all that was acknowledged when the last
               successful SAVE began, and whole transactions

The last line is "N passed, N failed" (rounds)."""
import argparse, glob, os, random, shutil, signal, subprocess, sys, tempfile, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from machine import Machine  # noqa: E402
from resp import Client, Error  # noqa: E402
from servers import ROOT, Server, ours, rdma_device  # noqa: E402

TCP_CLIENTS, RDMA_CLIENTS = 4, 3
FAULTS = [  # weight, rules
    (6, ""),
    (2, "sync */appendonlydir/* slow 5"),
    (1, "sync */appendonlydir/* slow 40"),
    (2, "write */appendonlydir/* short 7"),
    (1, "write */appendonlydir/*.incr.aof slow 3"),
    (2, "write */appendonlydir/*.incr.aof fail ENOSPC after={bytes}"),
    (1, "write */appendonlydir/*.incr.aof fail EIO after={bytes}"),
    (1, "sync */appendonlydir/*.incr.aof fail EIO after={calls}"),
    (2, "write */appendonlydir/*.incr.aof kill after={bytes}"),
    (2, "write *temp-rewriteaof* kill after={bytes}"),
    (1, "write *temp-rewriteaof* fail ENOSPC"),
    (1, "write *manifest kill"),
    (1, "rename *manifest kill"),
    (1, "rename *base.* kill"),
    (1, "sync *manifest kill"),
    (4, "sync */appendonlydir kill after={few}"),
    (2, "sync */appendonlydir slow 30"),
    (1, "sync */appendonlydir fail EIO after={few}"),
    (1, "unlink */appendonlydir/* kill"),
    (1, "write *temp-*.rdb kill after={bytes}"),
    (1, "sync *temp-*.rdb fail EIO"),
    (1, "rename dump.rdb kill"),
    (1, "rename dump.rdb fail EIO"),
]


class Writer:
    """The highest numbers of one client: `sent`; `acknowledged`; `seen` by readers; `synced` to the disk, for any
    policy; `saved` in dump.rdb."""

    def __init__(self, index):
        self.index, self.sent, self.acknowledged, self.seen, self.writes = index, 0, 0, 0, 0
        self.synced, self.saved = 0, 0

    def work(self, port, rng, everysec):
        try:
            c = Client(port)
            while True:
                depth = rng.choice([1, 1, 2, 4, 16])
                commands = []
                for _ in range(depth):
                    self.sent += 1
                    commands += [("MULTI",), ("INCR", f"count:{self.index}")]
                    commands += [("SET", f"mirror:{self.index}", self.sent)]
                    if rng.random() < 0.02:
                        commands.append(("SET", f"large:{self.index}", b"x" * rng.randrange(16000, 100000)))
                    commands.append(("EXEC",))
                c.send(*commands)
                for command in commands:
                    reply = c.read()
                    if isinstance(reply, Error):
                        return  # rejected: the numbers would not match any more
                    if command[0] == "EXEC":
                        self.acknowledged = max(self.acknowledged, int(reply[0]))
                        self.writes += 1
                if everysec and rng.random() < 0.02:
                    synced = self.acknowledged
                    reply = c.call("WAITAOF", 1, 0, 0)
                    if isinstance(reply, list) and int(reply[0]):
                        self.synced = synced
        except (ConnectionError, OSError, ValueError):
            pass

    def read(self, port, rng, writers):
        try:
            c = Client(port)
            while True:
                other = rng.choice(writers)
                value = c.call("GET", f"count:{other.index}")
                if isinstance(value, Error):
                    return
                other.seen = max(other.seen, int(value or 0))
        except (ConnectionError, OSError):
            pass


class Run:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.dir = tempfile.mkdtemp(prefix="valkey-crash-")
        self.writers = [Writer(i) for i in range(TCP_CLIENTS + (RDMA_CLIENTS if options.rdma else 0))]
        self.server = None
        self.reads_count = True  # writes that readers have seen must exist
        self.figures = {"acknowledged": 0, "machine crashes": 0, "ended by itself": 0, "tails cut": 0, "rewrites": 0,
                        "saves": 0, "snapshots loaded": 0, "directory changes undone": 0}
        self.machine = Machine(self.dir, self.rng)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def start(self, policy, rules):
        with open(self.path("rules"), "w") as f:
            f.write(rules + "\n")
        environment = {"DISK_FAULTS": self.path("rules"), "DISK_SYNCED": self.machine.records,
                       "LD_PRELOAD": os.path.join(ROOT, "tests/programs/preload/disk-faults.so")}
        options = ["--appendonly", "yes", "--appendfsync", policy, "--io-threads", self.rng.choice(["1", "1", "3"]),
                   "--aof-use-rdb-preamble", self.rng.choice(["yes", "no"]),
                   "--rdb-key-save-delay", self.rng.choice(["0", "0", "3000"]),  # microseconds: rewrites take longer
                   "--enable-debug-command", "yes"]
        self.server = Server(ours(), *options, rdma=self.options.rdma, directory=self.dir, environment=environment)
        c = Client(self.server.port)
        thread = self.options.sync_thread or self.rng.choice(["auto", "main", "background"])
        reply = c.call("DEBUG", "AOF-SYNC-THREAD", thread)
        if reply != "OK":
            raise AssertionError(f"DEBUG AOF-SYNC-THREAD {thread}: {reply}")
        return c

    def check_tool(self):
        """True: valid; False: the end of the last file would be truncated."""
        manifest = self.path("appendonlydir/appendonly.aof.manifest")
        if not os.path.exists(manifest):
            return True
        got = subprocess.run([ours("valkey-check-aof"), manifest], capture_output=True, text=True)
        if got.returncode not in (0, 1):
            raise AssertionError(f"valkey-check-aof ended with {got.returncode}: {got.stdout}{got.stderr}")
        return got.returncode == 0

    def verify(self, c, sound):
        cut = "!!! Truncating the AOF" in self.server.output(None)
        if sound == cut:
            raise AssertionError(f"valkey-check-aof says {'sound' if sound else 'not sound'}, the server has "
                                 f"{'cut' if cut else 'not cut'} the file")
        self.figures["tails cut"] += cut
        for w in self.writers:
            count, mirror = (int(c.call("GET", f"{name}:{w.index}") or 0) for name in ("count", "mirror"))
            got = (f"client {w.index}: count {count}, mirror {mirror}; acknowledged {w.acknowledged}, seen {w.seen}, "
                   f"sent {w.sent}")
            if count != mirror:
                raise AssertionError("half a transaction: " + got)
            if count < w.acknowledged:
                raise AssertionError("an acknowledged write is lost: " + got)
            if count < w.seen and self.reads_count:
                raise AssertionError("a value that was read is lost: " + got)
            if count > w.sent:
                raise AssertionError("a write came from nowhere: " + got)
            w.sent = w.acknowledged = w.seen = w.synced = count
            w.saved = min(w.saved, count)  # later saves contain this data

    def check_snapshot(self):
        dump = self.path("dump.rdb")
        if not os.path.exists(dump):
            if any(w.saved for w in self.writers):
                raise AssertionError("dump.rdb is gone")
            return
        got = subprocess.run([ours("valkey-check-rdb"), dump], capture_output=True, text=True)
        if got.returncode:
            raise AssertionError(f"valkey-check-rdb: {got.stdout}{got.stderr}")
        if self.rng.random() < 0.75:
            return
        self.figures["snapshots loaded"] += 1
        self.server = Server(ours(), directory=self.dir)
        c = Client(self.server.port)
        for w in self.writers:
            count, mirror = (int(c.call("GET", f"{name}:{w.index}") or 0) for name in ("count", "mirror"))
            if count < w.saved or count != mirror:
                raise AssertionError(f"dump.rdb, client {w.index}: count {count}, mirror {mirror}, saved {w.saved}")
        c.close()
        self.server.kill()

    def save(self, c):
        """SAVE: after it has succeeded, dump.rdb contains all writes that were acknowledged before it."""
        before = [w.acknowledged for w in self.writers]
        if c.call("SAVE") == "OK":
            self.figures["saves"] += 1
            for w, acknowledged in zip(self.writers, before):
                w.saved = max(w.saved, acknowledged)

    def round(self):
        rng = self.rng
        policy = rng.choice(["always", "everysec"])
        rules = rng.choices([f[1] for f in FAULTS], [f[0] for f in FAULTS])[0]
        rules = rules.format(bytes=rng.randrange(1, 60000), calls=rng.randrange(50), few=rng.randrange(6))
        if self.options.verbose:
            print(f"{policy}, {rules or 'no faults'}", flush=True)
        sound = self.check_tool()
        self.check_snapshot()
        c = self.start(policy, "")
        self.verify(c, sound)
        for w in self.writers:
            w.writes = 0
        with open(self.path("rules"), "w") as f:
            f.write(rules + "\n")
        proxy, ports = None, [self.server.port]
        if self.options.rdma:
            proxy = subprocess.Popen([*rdma_device(), os.path.join(ROOT, "tests/programs/rdma-proxy"), "--listen-port",
                                      "0",
                                      "--rdma-host", "127.0.0.1", "--rdma-port", str(self.server.port)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            ports.append(int(proxy.stdout.readline().split()[1]))
        threads = []
        for w in self.writers:
            port = ports[w.index >= TCP_CLIENTS]
            threads.append(threading.Thread(target=w.work, args=(port, random.Random(rng.random()),
                                                                 policy == "everysec")))
        for port in ports:
            threads.append(threading.Thread(target=self.writers[0].read,
                                            args=(port, random.Random(rng.random()), self.writers)))
        for t in threads:
            t.start()
        long = policy == "everysec" and rng.random() < 0.2  # so that a sync happens meanwhile
        end = time.monotonic() + rng.uniform(0.02, 1.5 if long else 0.3)
        freed = time.monotonic() + rng.uniform(0.05, 0.3)
        try:
            while time.monotonic() < end and self.server.alive():
                time.sleep(rng.uniform(0, 0.05))
                if rng.random() < 0.1:
                    self.save(c)
                elif rng.random() < 0.5:
                    c.call(rng.choice(["BGREWRITEAOF", "BGREWRITEAOF", "BGSAVE"]))
                    self.figures["rewrites"] += 1
                if time.monotonic() > freed:
                    with open(self.path("rules"), "w") as f:
                        f.write("\n")
            if rng.random() < 0.3:  # the server is killed during a rewrite
                c.call("BGREWRITEAOF")
                time.sleep(rng.uniform(0, 0.03))
        except OSError:
            pass
        self.figures["ended by itself"] += not self.server.alive()
        self.server.kill()
        for t in threads:
            t.join()
        c.close()
        if proxy:
            proxy.stdin.close()
            proxy.stdout.close()
            proxy.wait()
        self.kill_children()
        refused = any(text in self.server.output(None) for text in ("Error writing to the AOF", "Short write",
                                                                    "Fail to fsync"))
        self.reads_count = policy == "always" or not refused
        self.figures["acknowledged"] += sum(w.writes for w in self.writers)
        if rng.random() < (0.8 if "kill" in rules else 0.5):
            self.figures["directory changes undone"] += self.machine.crash()
            self.figures["machine crashes"] += 1
            if policy == "everysec":
                self.reads_count = False
                for w in self.writers:
                    w.acknowledged = w.synced
        for path in glob.glob(self.path("temp-*")):
            os.unlink(path)

    def kill_children(self):
        """A child that saves or rewrites outlives the server that was killed: it has the same working directory."""
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid():
                continue
            try:
                if os.readlink(f"/proc/{entry}/cwd") == os.path.realpath(self.dir):
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:
                pass

    def last(self):
        sound = self.check_tool()
        self.check_snapshot()
        c = self.start("everysec", "")
        self.verify(c, sound)
        c.close()
        if self.server.stop(30):
            raise AssertionError("the server ends with an error")

    def all(self):
        passed = 0
        try:
            for number in range(self.options.rounds):
                try:
                    self.round()
                    passed += 1
                except (AssertionError, RuntimeError) as error:
                    print(f"round {number} of seed {self.options.seed}: "
                          f"{error}\n{self.server and self.server.output()}", flush=True)
                    break
            else:
                try:
                    self.last()
                except (AssertionError, RuntimeError) as error:
                    print(f"after the last round of seed {self.options.seed}: "
                          f"{error}\n{self.server and self.server.output()}")
                    passed -= 1
        finally:
            if self.server:
                self.server.stop()
            self.kill_children()
            if self.options.keep:
                print(f"files: {self.dir}")
            else:
                shutil.rmtree(self.dir)
        print(f"seed {self.options.seed}: " + ", ".join(f"{v} {k}" for k, v in self.figures.items()))
        failed = int(passed < self.options.rounds)
        print(f"{passed} passed, {failed} failed")
        return failed


def main():
    parser = argparse.ArgumentParser(description="Kills a server that writes, and looks at what is left.")
    parser.add_argument("rounds", nargs="?", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--no-rdma", dest="rdma", action="store_false", help="clients over TCP only")
    parser.add_argument("--sync-thread", choices=["auto", "main", "background"], help="in all rounds")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.rdma = options.rdma and bool(rdma_device())
    sys.exit(Run(options).all())


main()
