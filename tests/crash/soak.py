"""soak.py: shows whether the memory, the descriptors and the registered memory of servers stay the same.

    tests/crash/soak [SECONDS] [--interval S] [--no-sync] [--no-rdma] [--seed N]

Three shards of three servers on the software RDMA device, with replication and migrations over RDMA and, unless
--no-sync is given, with synchronous replication. Benchmarks send SET and GET of small and SET of large values to
fixed keys, over RDMA. Each of their runs is short, so that connections come and go. When nearly all keys exist, slots
begin to move to another shard and back, one job after the other, and a replica takes over every few seconds.

Every --interval seconds a line shows for each server: resident memory in MiB, descriptors, registered memory in MiB.
The first third of the time is warm-up, in which each server takes over once; after that they do so in turns. Of the
rest, a straight line is fitted to each series; its growth over the measured time must be at most a tenth of the mean
(and of resident memory 8 MiB, of descriptors 10, of registered memory 4 MiB more, which is what one sample may
differ from the next). When the load has ended, they must not be more than the mean. The last line is "N passed, N
failed": one for each server and value, and one for the load, the migrations and the failovers, of which there must
have been some."""
import argparse
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from resp import Error  # noqa: E402
from servers import Server, ours, rdma_device, until, wait_for  # noqa: E402

SHARDS, COPIES, SLOTS, MOVED = 3, 3, 16384, 200
NODES = SHARDS * COPIES
# The number of keys is that of -r times the hash tags, of which each slot has one.
LOADS = [["-t", "set,get", "-c", "20", "-d", "100", "-r", "4"],
         ["-c", "4", "-d", "16384", "-r", "1", "set", "large:{tag}", "__data__"]]
RUN_SECONDS, FAILOVER_SECONDS = 4, 10  # of a test of the benchmark; between failovers
MOVE_SECONDS = 0.5  # between migrations: after each, the benchmarks read the slot map and connect again
COMMANDS_A_SECOND = 1000  # at least, by all servers: else there was no load
SERIES = {"resident": 8, "descriptors": 10, "registered": 4}  # what one sample may differ from the next
MIB = 1 << 20


class Node(Server):
    def __init__(self, options):
        super().__init__(ours(), "--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
                         "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "4mb",
                         "--cluster-require-full-coverage", "no", "--cluster-slot-migration-log-max-len", "20",
                         *(["--sync-replication", "yes", "--min-sync-replicas", "1"] if options.sync else []),
                         *(["--rdma-replication", "yes"] if options.rdma else []), rdma=options.rdma)

    def sample(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
        registered = int(self.info("rdma").get("rdma_registered_bytes", 0)) / MIB
        return resident, len(os.listdir(f"/proc/{self.process.pid}/fd")), registered

    def lines(self):
        """Of CLUSTER NODES, as lists of words."""
        return [line.split() for line in self.call("CLUSTER", "NODES").decode().splitlines()]


class Cluster:
    def __init__(self, options):
        self.nodes = [Node(options) for _ in range(NODES)]
        self.ids = [node.call("CLUSTER", "MYID").decode() for node in self.nodes]
        for number in range(SHARDS):
            self.nodes[number].call("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // SHARDS,
                                    SLOTS * (number + 1) // SHARDS - 1)
            self.nodes[number].call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port)
        wait_for("the nodes know each other", lambda: all(
            len(node.lines()) == NODES and not any("handshake" in line[2] for line in node.lines())
            for node in self.nodes))
        for number in range(SHARDS, NODES):
            self.nodes[number].call("CLUSTER", "REPLICATE", self.ids[number % SHARDS])
        wait_for("replicas are connected", self.healthy, 120)

    def shards(self):
        """Lists of servers; the first one is the primary."""
        shards = {}
        for line in sorted(self.nodes[0].lines(), key=lambda words: "slave" in words[2]):
            primary = line[3] if "slave" in line[2] else line[0]
            shards.setdefault(primary, []).append(self.nodes[self.ids.index(line[0])])
        return list(shards.values())

    def healthy(self):
        shards = self.shards()
        return [len(shard) for shard in shards] == [COPIES] * SHARDS and all(
            b"cluster_state:ok" in node.call("CLUSTER", "INFO") for node in self.nodes) and all(
            server.info("replication").get("connected_slaves") == str(COPIES - 1) and
            server.info("replication").get("sync_writable", "1") == "1" for server, *_ in shards)

    def is_filled(self):
        """The benchmarks add few keys to those that there are."""
        before = sum(node.call("DBSIZE") for node in self.nodes[:SHARDS])
        time.sleep(5)
        return before and sum(node.call("DBSIZE") for node in self.nodes[:SHARDS]) < before * 1.005

    def commands(self):
        return sum(int(node.info("stats")["total_commands_processed"]) for node in self.nodes)


class Load(threading.Thread):
    """Runs a benchmark again and again."""

    def __init__(self, cluster, options, words):
        super().__init__(daemon=True)
        self.cluster, self.options, self.words = cluster, options, words
        self.ends, self.runs, self.process = False, 0, None

    def run(self):
        benchmark = [ours("valkey-benchmark"), "--cluster", "-p", str(self.cluster.nodes[0].port), "-q",
                     "--duration", str(RUN_SECONDS)]
        if self.options.rdma:
            benchmark = rdma_device() + benchmark + ["-h", "127.0.0.1", "--rdma"]
        benchmark += self.words  # a command ends the options
        while not self.ends:
            self.process = subprocess.Popen(benchmark, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            began = time.monotonic()
            self.process.wait()  # a failover or many migrations end it with an error
            self.runs += 1
            time.sleep(max(0, 0.5 - (time.monotonic() - began)))  # one that ends at once, in a failover

    def stop(self):
        self.ends = True
        if self.process:
            self.process.terminate()
        self.join(30)


class Moves(threading.Thread):
    """Moves slots to the next shard and back, and lets replicas take over."""

    def __init__(self, cluster, rng):
        super().__init__(daemon=True)
        self.cluster, self.rng, self.ends = cluster, rng, False
        self.moved, self.unmoved, self.failovers = 0, 0, 0
        self.led = {}  # when a server took over last: a primary needs more memory and descriptors, which is no growth

    def move(self, first, shard):
        """Slots `first` and more to the primary of a shard. True: they moved."""
        owner = next((servers[0] for servers in self.cluster.shards() if any(
            int(word.split("-")[0]) <= first <= int(word.split("-")[-1])
            for line in servers[0].lines() if "myself" in line[2] for word in line[8:])), None)
        target = next(servers[0] for servers in self.cluster.shards() if self.cluster.nodes[shard] in servers)
        if not owner or owner is target:
            return False
        reply = owner.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, first + MOVED - 1, "NODE",
                           self.cluster.ids[self.cluster.nodes.index(target)])
        if isinstance(reply, Error):
            return False

        def state():
            jobs = owner.call("CLUSTER", "GETSLOTMIGRATIONS")
            return jobs and jobs[0][jobs[0].index(b"state") + 1]
        until(lambda: state() in (b"success", b"failed", b"cancelled"), 30)
        return state() == b"success"

    def turn(self):
        home = self.rng.randrange(SHARDS)
        first = SLOTS * home // SHARDS + self.rng.randrange(SLOTS // SHARDS - MOVED)
        away = self.rng.choice([shard for shard in range(SHARDS) if shard != home])
        for shard in away, home:
            good = until(lambda shard=shard: self.ends or self.move(first, shard), 60)
            self.moved += bool(good) and not self.ends
            self.unmoved += not good
            time.sleep(MOVE_SECONDS)

    def run(self):
        failover = time.monotonic() + FAILOVER_SECONDS
        while not self.ends:
            try:
                self.turn()
                if time.monotonic() < failover:
                    continue
                replicas = [server for servers in self.cluster.shards() for server in servers[1:]]
                replica = min(replicas, key=lambda server: (self.led.get(server, 0), self.rng.random()))
                if not isinstance(replica.call("CLUSTER", "FAILOVER"), Error):
                    if until(lambda: replica.info("replication")["role"] == "master", 20):
                        self.failovers += 1
                        self.led[replica] = time.monotonic()
                until(lambda: self.ends or self.cluster.healthy(), 60)
            except OSError as error:
                print("moves:", error, flush=True)
            failover = time.monotonic() + FAILOVER_SECONDS


def slope(points):
    """Of the straight line through (x, y)."""
    x_mean, y_mean = (sum(values) / len(points) for values in zip(*points))
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread if spread else 0


def report(samples, before, after):
    """Prints the growth of each series. Returns the numbers of those that are flat, and not."""
    passed = failed = 0
    began, ended = samples[0][0], samples[-1][0]
    measured = [sample for sample in samples if sample[0] >= began + (ended - began) / 3]
    for column, (name, noise) in enumerate(SERIES.items()):
        for number in range(NODES):
            points = [(when, row[number][column]) for when, row in measured]
            mean = sum(value for _, value in points) / len(points)
            rise = slope(points)
            growth = rise * (measured[-1][0] - measured[0][0])
            wrong = [f"grows by {growth:.1f}"] if growth > mean / 10 + noise else []
            rests = before[number][column], after[number][column]
            if rests[1] > mean * 1.1 + noise:
                wrong.append("stays")
            passed, failed = passed + (not wrong), failed + bool(wrong)
            print(f"server {number}: {name:11} mean {mean:7.1f}  {rise * 60:+7.2f} a minute, at rest before "
                  f"{rests[0]:.1f}, after {rests[1]:.1f}: {' and '.join(wrong) or 'flat'}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description="Watches the memory of a cluster under load.")
    parser.add_argument("seconds", type=int, nargs="?", default=600)
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("--no-sync", dest="sync", action="store_false")
    parser.add_argument("--no-rdma", dest="rdma", action="store_false")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    if options.rdma and not rdma_device():
        sys.exit("the software RDMA device is not built: run make softrdma, or use --no-rdma")
    print(f"seed {options.seed}", flush=True)
    cluster = Cluster(options)
    before = [node.sample() for node in cluster.nodes]
    loads = [Load(cluster, options, words) for words in LOADS]
    moves = Moves(cluster, random.Random(options.seed))
    for load in loads:
        load.start()
    wait_for("nearly all keys exist", cluster.is_filled, 120)
    commands = cluster.commands()
    moves.start()
    samples, began = [], time.monotonic()
    while time.monotonic() < began + options.seconds:
        time.sleep(options.interval)
        row = [node.sample() for node in cluster.nodes]
        samples.append((time.monotonic() - began, row))
        print(f"{samples[-1][0]:5.0f} s  " + "  ".join(f"{a:.0f}/{b}/{c:.1f}" for a, b, c in row), flush=True)
    moves.ends = True
    moves.join(120)
    for load in loads:
        load.stop()
    commands = (cluster.commands() - commands) / (time.monotonic() - began)
    wait_for("all shards are complete", cluster.healthy, 120)
    # Connections of clients and migrations end, and each server has the links of the role it has now.
    until(lambda: all(node.sample()[1] <= rest[1] + SERIES["descriptors"]
                      for node, rest in zip(cluster.nodes, before)), 30)
    after = [node.sample() for node in cluster.nodes]
    passed, failed = report(samples, before, after)
    print(f"{commands:.0f} commands a second, {sum(load.runs for load in loads)} runs of the benchmark; "
          f"{moves.moved} migrations, {moves.unmoved} gave up; {moves.failovers} failovers")
    worked = moves.moved and moves.failovers and commands >= COMMANDS_A_SECOND
    passed, failed = passed + bool(worked), failed + (not worked)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
