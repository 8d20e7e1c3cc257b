"""acknowledged.py: no acknowledged write is lost and no server shows stale or uncommitted data, whatever fails.

    tests/crash/acknowledged [ROUNDS] [--seed N [--round K]] [--jobs N] [--limit SECONDS] [--faults NAME,… [--in-turn]]
                             [--server PATH] [--no-rdma] [--genuine DIRECTORY] [--cluster] [--keep DIR] [--verbose]
    tests/crash/acknowledged --check FILE        a history that a failure has left, history.json
    python3 tests/crash/linearizable.py FILE     the same for objects.json

Three servers with `sync-replication yes` and `min-sync-replicas 1` (acknowledged_group.py). Clients, on TCP and over
RDMA where the software device is built, write unique values and read them, on the primary and on any server: with SET,
transactions, scripts and pipelines; others use lists, counters, registers, queues and blocking commands, and stay with
servers that are frozen, cut off or replaced (acknowledged_objects.py). Subscribers on all servers get messages about
writes. A server outside gets copies by MIGRATE. Each round executes one fault of FAULTS (acknowledged_faults.py). Then
everything is repaired, and the round ends with these conditions:

    the group acknowledges writes again, and no server has ended by itself
    the history of each key is linearizable, and that of a counter (acknowledged_check.py): no acknowledged write is
    lost, no read of a primary is stale, and nothing that a replica or a message has shown is lost
    the same for the objects of this round (linearizable.py); nil at the timeout of BLPOP is the observation of an empty
    queue; a replica does not forget what it has shown; the messages of a connection arrive in their order
    after the clients have paused, the three servers have the same DEBUG DIGEST

A group lasts for 10 rounds. A seed determines options, faults and their order, not the interleaving of the processes;
--seed N --round K repeats the group of that round up to it. A failure leaves the files, the logs and the history of
its group.

--genuine runs genuine servers, where clients send WAIT 1 with each write and take 1 as its acknowledgement. The replica
with the most of the stream is promoted. The run reports what is lost and succeeds.

--cluster does the same with three shards of three servers each (acknowledged_cluster.py). Clients follow redirections.
Slots move, at once and key by key, too. The servers of each shard have the same digest in the end.

The last line is "N passed, N failed" (rounds)."""
import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import acknowledged_cluster  # noqa: E402
from acknowledged_cluster import Cluster  # noqa: E402
import linearizable  # noqa: E402
from acknowledged_check import INFINITE, READ, SEEN, WRITE, History, self_test  # noqa: E402
from acknowledged_faults import FAULTS, FOR_GENUINE  # noqa: E402
from acknowledged_group import SERVERS, Group  # noqa: E402
from acknowledged_objects import Actor, Blocker, Exporter, Subscriber, Witness, Worker  # noqa: E402
from acknowledged_objects import OBJECTS, object_names, read_name, read_request, value_of  # noqa: E402
from resp import Client, Error  # noqa: E402
from jobs import start_jobs  # noqa: E402
from servers import Server, ours, rdma_device, until  # noqa: E402

ERA, KEYS, CLIENTS, WORKERS, CLIENT_TIMEOUT, MENDED_WITHIN = 10, 6, 4, 4, 8, 60
SCRIPT = "server.call('set', KEYS[1], ARGV[1]) return server.call('get', KEYS[1])"
BAD_LINES = ("BUG REPORT", "ERROR: AddressSanitizer", "runtime error:", "ASSERTION FAILED", "Protocol error from")


class Load(Actor):
    """A client. The odd ones follow the primary, the others stay for a while with any server that accepts them."""

    def __init__(self, era, number):
        super().__init__(era, number)
        self.history, self.number = era.history, number

    def step(self):
        target = self.group.primary if self.number % 2 else self.rng.randrange(SERVERS)
        try:
            with Client(self.group.client_port(target, self.number % 3 == 0), timeout=CLIENT_TIMEOUT) as client:
                for _ in range(200):
                    if self.ending or self.pause.is_set() or (self.number % 2 and target != self.group.primary):
                        return
                    if not self.operation(client):
                        time.sleep(0.05)
                        return
                    time.sleep(0.002)
        except OSError:
            time.sleep(0.02)

    def operation(self, client):
        """False: refused."""
        key = f"key{self.rng.randrange(KEYS)}"
        if self.rng.random() < 0.5:
            return self.read(client, key)
        if self.group.genuine:
            return self.write_and_wait(client, key)
        choice = self.rng.random()
        if choice < 0.1:
            begin = time.monotonic()
            reply = client.call("INCR", "counter")
            if not isinstance(reply, Error):
                self.history.counted(reply, begin, time.monotonic())
            return not isinstance(reply, Error)
        if choice < 0.2:
            keys = [f"key{number}" for number in self.rng.sample(range(KEYS), 3)]
            return self.write(client, keys, lambda values: [("SET", k, v) for k, v in zip(keys, values)])
        if choice < 0.4:
            return self.write(client, [key], lambda values: [
                ("MULTI",), ("SET", key, values[0]), ("PUBLISH", "written", f"{key} {values[0]}"), ("EXEC",)])
        if choice < 0.5:
            return self.write(client, [key], lambda values: [("EVAL", SCRIPT, 1, key, values[0])])
        if choice < 0.6:
            return self.write(client, [key], lambda values: [("SET", key, values[0], "GET")], previous=True)
        return self.write(client, [key], lambda values: [("SET", key, values[0])])

    def read(self, client, key):
        begin = time.monotonic()
        client.send(("MULTI",), ("ROLE",), ("GET", key), ("EXEC",))
        reply = [client.read() for _ in range(4)][3]
        end = time.monotonic()
        if not isinstance(reply, list) or isinstance(reply[1], Error):
            return False
        value = reply[1] and reply[1].decode()
        if reply[0][0] == b"master":
            self.history.add(READ, key, value, begin, end)
        elif value is not None and not self.group.genuine:
            self.history.add(SEEN, key, value, begin, end)
        return True

    def write(self, client, keys, requests, previous=False):
        """Values for these keys. Either one request for each key, or several requests for one, with one reply at the
        end that counts."""
        values = [self.value() for _ in keys]
        begins = [self.history.begin(key, value) for key, value in zip(keys, values)]
        requests, done = requests(values), 0
        try:
            client.send(*requests)
            for _ in range(len(requests) - len(keys)):
                client.read()
            fine = True
            for key, value, begin in zip(keys, values, begins):
                reply = client.read()
                end = time.monotonic()
                done += 1
                if isinstance(reply, Error) or (isinstance(reply, list) and isinstance(reply[0], Error)):
                    self.history.refused(value)
                    fine = False
                    continue
                self.history.add(WRITE, key, value, begin, end)
                if previous:
                    self.history.add(READ, key, reply and reply.decode(), begin, end)
            return fine
        except OSError:
            for key, value, begin in list(zip(keys, values, begins))[done:]:
                self.history.add(WRITE, key, value, begin, INFINITE)
            raise

    def write_and_wait(self, client, key):
        value = self.value()
        begin = self.history.begin(key, value)
        try:
            client.send(("SET", key, value), ("WAIT", 1, 3000))
            reply, copies = client.read(), client.read()
        except OSError:
            self.history.add(WRITE, key, value, begin, INFINITE)
            raise
        if isinstance(reply, Error):
            self.history.refused(value)
            return False
        acknowledged = not isinstance(copies, Error) and copies >= 1
        self.history.add(WRITE, key, value, begin, time.monotonic() if acknowledged else INFINITE)
        return True


class ClusterLoad(Load):
    """A client that follows redirections. Some reads go to any server, with READONLY."""

    def __init__(self, era, number):
        super().__init__(era, number)
        self.clients, self.owners = {}, {}

    def client(self, number, readonly=False):
        if (number, readonly) not in self.clients:
            client = Client(self.group.client_port(number, self.number % 3 == 0), timeout=CLIENT_TIMEOUT)
            self.clients[number, readonly] = client
            if readonly:
                client.call("READONLY")
        return self.clients[number, readonly]

    def step(self):
        number = None
        try:
            for _ in range(200):
                if self.ending or self.pause.is_set():
                    return
                tag = self.rng.choice(acknowledged_cluster.TAGS)
                number = self.owners.get(tag, self.rng.randrange(acknowledged_cluster.NODES))
                if self.rng.random() < 0.1:
                    number = self.rng.randrange(acknowledged_cluster.NODES)
                    self.read(self.client(number, True), f"{{{tag}}}0")
                elif not self.operation(self.client(number), tag):
                    self.locate(tag, number)
                time.sleep(0.002)
        except OSError:
            self.drop(number)
            time.sleep(0.02)

    def drop(self, number):
        for readonly in (False, True):
            if (number, readonly) in self.clients:
                self.clients.pop((number, readonly)).close()
        self.owners = {tag: owner for tag, owner in self.owners.items() if owner != number}

    def locate(self, tag, number):
        """Who serves the tag, as this server says."""
        reply = self.client(number).call("EXISTS", f"{{{tag}}}0")
        if isinstance(reply, Error) and str(reply).startswith("MOVED"):
            self.owners[tag] = self.group.number_of(int(str(reply).rpartition(":")[2]))
        elif isinstance(reply, Error):
            self.owners.pop(tag, None)
            time.sleep(0.03)
        else:
            self.owners[tag] = number

    def operation(self, client, tag):
        keys = [f"{{{tag}}}{number}" for number in range(3)]
        key, choice = self.rng.choice(keys), self.rng.random()
        if choice < 0.5:
            return self.read(client, key)
        if choice < 0.55:
            begin = time.monotonic()
            reply = client.call("INCR", "{a}counter")
            if not isinstance(reply, Error):
                self.history.counted(reply, begin, time.monotonic())
            return True
        if choice < 0.65:
            return self.write(client, keys, lambda values: [("SET", k, v) for k, v in zip(keys, values)])
        if choice < 0.75:
            return self.write(client, [key], lambda values: [("MULTI",), ("SET", key, values[0]), ("EXEC",)])
        if choice < 0.8:
            return self.write(client, [key], lambda values: [("EVAL", SCRIPT, 1, key, values[0])])
        return self.write(client, [key], lambda values: [("SET", key, values[0], "GET")], previous=True)


class Era:
    """A group, its clients and its history."""

    def __init__(self, options, number):
        self.options, self.number, self.notes, self.known = options, number, [], set()
        self.started, self.history, self.loads, self.lost = time.monotonic(), History(), [], 0
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
        self.outside = self.group = None
        self.begin_objects(0)
        self.directory = tempfile.mkdtemp(prefix=f"valkey-acknowledged-{options.seed}-{number}.", dir=options.keep)
        self.faults, self.operations, self.undecided, self.seen_messages = {}, 0, 0, 0

    def note(self, text):
        self.notes.append(f"{time.monotonic() - self.started:8.3f} {time.strftime('%H:%M:%S')} "
                          f"{time.monotonic():.3f} {text}")
        if self.options.verbose:
            print(self.notes[-1], flush=True)

    def run(self, numbers):
        """Returns the number of rounds that passed, and whether all passed."""
        passed, failure, number = 0, None, numbers[0]
        rng = random.Random(f"{self.options.seed}/era {self.number}")
        try:
            self.group = (Cluster if self.options.cluster else Group)(
                self.options, rng, self.directory, self.note)
            if not self.group.form():
                raise AssertionError("the group does not form")
            self.subscribers = []
            kind = ClusterLoad if self.options.cluster else Load
            self.begin_objects(numbers[0])
            self.loads = [kind(self, client) for client in range(CLIENTS)]
            if not self.group.genuine:
                self.start_clients_of_objects()
            self.loads = [load for load in self.loads if type(load).__name__.lower() not in self.options.without]
            for thread in self.loads + self.subscribers:
                thread.start()
            for number in numbers:
                self.round(number)
                passed += 1
        except AssertionError as error:
            failure = str(error)
        except Exception:  # whatever it is, the state of the servers is what matters
            failure = traceback.format_exc()
        if failure:
            self.report(number, failure)
        for thread in self.loads + (self.subscribers if self.loads else []):
            thread.ending = True
        for thread in self.loads:
            thread.join(CLIENT_TIMEOUT)
        if self.group:
            self.group.stop()
        if self.outside:
            self.outside.stop()
        if not failure and not self.options.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        return passed, failure is None

    def begin_objects(self, number):
        self.objects, self.round_number, self.round_began = linearizable.Histories(), number, time.monotonic()
        if self.options.cluster and self.group:
            self.group.tags = acknowledged_cluster.TAGS[number % 2::2]  # those of its objects
        self.late_queue = object_names("queue", number, self.options.cluster)[2]
        self.calm = random.Random(f"{self.options.seed}/calm {number}").random() < 0.4

    def start_clients_of_objects(self):
        servers = range(len(self.group.servers))
        self.subscribers = [Subscriber(self, server) for server in servers]
        self.loads += [Worker(self, number) for number in range(WORKERS)]
        self.group.witnesses = [Witness(self, server) for server in servers]
        self.loads += self.group.witnesses + [Blocker(self, server) for server in servers]
        if not self.options.cluster:
            self.outside = Server(self.options.server or ours())
            self.loads.append(Exporter(self, self.outside))

    def round(self, number):
        rng = random.Random(f"{self.options.seed}/round {number}")
        names = sorted(self.options.faults)
        name = rng.choices(names, [self.options.known[name][0] for name in names])[0]
        if self.options.in_turn:
            name = self.options.faults[number % len(self.options.faults)]
        self.faults[name] = self.faults.get(name, 0) + 1
        self.note(f"--- round {number}: {name}, {self.primary()}")
        time.sleep(rng.uniform(0, 0.5))
        before = self.history.total.get(WRITE, 0)
        self.options.known[name][1](self.group, rng)
        self.group.mend()
        if not until(self.group.works, MENDED_WITHIN):
            raise AssertionError(f"{name}: the group does not acknowledge writes again")
        self.note(f"repaired, {self.primary()}")
        if not until(lambda: self.history.total.get(WRITE, 0) > before + 20, 20):
            raise AssertionError(f"{name}: clients get no acknowledgements")
        time.sleep(rng.uniform(0, 0.4))
        self.settle(name)

    def primary(self):
        return f"the primaries are {self.group.primaries()}" if self.options.cluster else \
            f"the primary is server {self.group.primary}"

    def settle(self, name):
        for load in self.loads:
            load.pause.set()
        for load in self.loads:
            if not load.idle.wait(CLIENT_TIMEOUT + 10):
                raise AssertionError(f"{name}: a client waits for a reply")
            if load.trouble:
                raise AssertionError(load.trouble)
        found = [text for text in self.history.violations() if text not in self.known]
        found += [] if self.group.genuine else self.check_objects(name)
        if found and self.group.genuine:
            self.lost += len(found)
            self.known.update(found)
            self.note(f"{len(found)} violations: {found[:3]}")
        elif found:
            raise AssertionError(f"{name}: " + ";\n    ".join(text[:900] for text in found[:5]))
        copies = []

        def equal():
            self.group.works()  # a failover may end only now
            copies[:] = self.group.copies()
            return len(set(copies)) == 1 and copies[0] is not None and not isinstance(copies[0], Error)
        if not until(equal, 20):
            raise AssertionError(f"{name}: the copies differ: {copies}")
        for number, server in enumerate(self.group.servers):
            for line in server.output(None).splitlines():
                if any(bad in line for bad in BAD_LINES):
                    raise AssertionError(f"{name}: server {number} logs: {line[:300]}")
        self.begin_objects(self.round_number + 1)
        for load in self.loads:
            load.pause.clear()

    def check_objects(self, name):
        """The last reads, and the verdict."""
        for kind in OBJECTS:
            for key in object_names(kind, self.round_number, self.options.cluster):
                token = self.objects.begin("primary", key, read_name(kind))
                reply = until(lambda words=read_request(kind, key): self.at_primary(*words), 20)
                if not reply:
                    raise AssertionError(f"{name}: no primary answers for {key}")
                self.objects.end(token, value_of(kind, reply[0]))
        found = self.objects.violations()
        undecided = [text for text in found if "UNDECIDED" in text]
        self.operations, self.undecided = self.operations + self.objects.total, self.undecided + len(undecided)
        for text in undecided:
            self.note(text)
        return [text for text in found if text not in undecided]

    def at_primary(self, *words):
        """[reply] of the primary that serves this key."""
        for number in self.group.primaries() if self.options.cluster else [self.group.primary]:
            with Client(self.group.servers[number].port, timeout=2) as client:
                client.send(("MULTI",), ("ROLE",), words, ("EXEC",))
                reply = [client.read() for _ in range(4)][3]
            if isinstance(reply, list) and not isinstance(reply[1], Error) and reply[0][0] == b"master":
                return [reply[1]]
        if not self.options.cluster:
            self.group.works()  # finds who leads
        return None

    def report(self, number, failure):
        if self.group:
            self.group.describe()
        self.note("FAILED: " + failure)
        self.history.save(os.path.join(self.directory, "history.json"))
        self.objects.save(os.path.join(self.directory, "objects.json"))
        with open(os.path.join(self.directory, "notes"), "w", encoding="utf-8") as file:
            file.write("\n".join(self.notes) + "\n")
        again = f"  repeat with --seed {self.options.seed} --round {number}" if number is not None else ""
        print(f"[failed] round {number} of seed {self.options.seed}: {failure}\n" +
              "\n".join("  " + line for line in self.notes[-40:]) + f"\n{again}; files: {self.directory}", flush=True)


def add(totals, more):
    for name, count in more.items():
        totals[name] = totals.get(name, 0) + count


def work(options):
    passed = failed = lost = 0
    objects = undecided = messages = 0
    faults, operations, started = {}, {}, time.monotonic()
    first, last = (options.round // ERA * ERA, options.round + 1) if options.round is not None else (0, options.rounds)
    for number in range(first // ERA, (last + ERA - 1) // ERA):
        if number % options.jobs != options.job and options.round is None:
            continue
        if options.limit and time.monotonic() - started > options.limit:
            break
        era = Era(options, number)
        ok, well = era.run(range(number * ERA, min((number + 1) * ERA, last)))
        passed, failed, lost = passed + ok, failed + (not well), lost + era.lost
        add(faults, era.faults)
        add(operations, era.history.total)
        add(operations, {"count": len(era.history.counts)})
        objects, undecided, messages = objects + era.operations, undecided + era.undecided, messages + era.seen_messages
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    print("%d writes and %d increments acknowledged, %d reads of primaries, %d values seen on replicas and in messages"
          % tuple(operations.get(name, 0) for name in (WRITE, "count", READ, SEEN)))
    print(f"{objects} operations on objects and {messages} messages, {undecided} histories undecided")
    if options.genuine:
        print(f"{lost} acknowledged writes lost, or stale reads of a primary")
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed or not operations.get(WRITE) or not operations.get(READ)


def main():
    parser = argparse.ArgumentParser(description="Breaks a group with synchronous replication, and checks what it "
                                                 "acknowledged.")
    parser.add_argument("rounds", nargs="?", type=int, default=10)
    parser.add_argument("--limit", type=float, help="start no group after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="groups at the same time")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--round", type=int, help="the group of this round, up to it")
    parser.add_argument("--faults", help="only these, separated by commas")
    parser.add_argument("--without", default="", help="no clients of these kinds, for example exporter,blocker")
    parser.add_argument("--in-turn", action="store_true", help="the faults in this order")
    parser.add_argument("--server", help="the program of our servers")
    parser.add_argument("--no-rdma", dest="rdma", action="store_false")
    parser.add_argument("--genuine", metavar="DIRECTORY", help="genuine servers, with WAIT 1")
    parser.add_argument("--cluster", action="store_true", help="three shards of three servers")
    parser.add_argument("--keep", help="keep the files of all groups below this directory")
    parser.add_argument("--check", metavar="FILE", help="check a history")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    self_test()
    linearizable.self_test()
    if options.check:
        found = History.load(options.check).violations()
        print("\n".join(found) or "linearizable")
        return int(bool(found))
    options.genuine = options.genuine and os.path.join(os.path.abspath(options.genuine), "valkey-server")
    options.known = acknowledged_cluster.FAULTS if options.cluster else FAULTS
    options.faults = options.faults.split(",") if options.faults else \
        [name for name in options.known if not options.genuine or name in FOR_GENUINE]
    if not set(options.faults) <= set(options.known):
        parser.error("no fault is named " + ", ".join(sorted(set(options.faults) - set(options.known))))
    options.rdma = options.rdma and bool(rdma_device())
    if options.job is None and options.jobs > 1 and options.round is None:
        print(f"seed {options.seed}", flush=True)
        return int(start_jobs(__file__, options) > 0)
    if options.job is None:
        print(f"seed {options.seed}", flush=True)
    options.job = options.job or 0
    return int(bool(work(options)))


sys.exit(main())
