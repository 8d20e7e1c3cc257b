"""agree_load.py: the clients of tests/crash/agree.

Random writers send the commands of tests/interop/differential-commands, alone and in transactions, to databases 0 to
3, with scripts, functions, values that expire immediately, large values and clients that wait for keys. One writer
sends them to any server of the group: commands that a replica executes must not change its data, and writes of a
replica that is a primary for a moment must disappear when it synchronizes. The commands are generated before the
round from its seed; their interleaving depends on the machine.

The ledger is another client, with its own database. It numbers its writes and knows which of them must exist after
any fault."""
import os
import random
import sys
import threading
import time

from resp import Client, Closed, Error, request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import replication_replica  # noqa: E402

DATABASES, LEDGER_DATABASE = 4, 9
BATCHES, BATCH = 60, 30

SCRIPTS = [
    b"for i=1,10 do redis.call('SET', KEYS[1]..i, ARGV[1]..math.random(1000)) end return 1",
    b"redis.call('SELECT', ARGV[2]); redis.call('INCR', 'script:n'); redis.call('SELECT', ARGV[3]);"
    b" redis.call('INCR', 'script:n') return 1",
    b"redis.call('RPUSH', KEYS[1], ARGV[1]); redis.pcall('INCR', KEYS[1]); return redis.call('INCR', KEYS[1])",
    b"local t = redis.call('TIME'); redis.call('SET', KEYS[1], t[1]..t[2], 'PX', 50) return t",
    b"redis.call('SADD', 'script:set', unpack(ARGV)) return redis.call('SPOP', 'script:set', 1)",
    b"redis.call('DEL', KEYS[1]) for i=1,200 do redis.call('RPUSH', KEYS[1], i) end"
    b" redis.call('LTRIM', KEYS[1], 50, 150) error('stop')",
    b"redis.call('PEXPIRE', KEYS[1], 1) return redis.call('EXISTS', KEYS[1])",
    b"if math.random() < 0.03 then redis.call('FLUSHDB') end redis.call('SET', KEYS[1], 1) return 1",
    b"redis.call('PUBLISH', 'channel', ARGV[1]) redis.call('ZADD', 'script:z', math.random(), ARGV[1]) return 1",
]
LIBRARY = (b"#!lua name=lib%d\n"
           b"redis.register_function('put%d', function(k, a) redis.call('SET', k[1], a[1]..'%d')"
           b" return redis.call('INCRBY', 'function:n', %d) end)\n"
           b"redis.register_function{function_name='get%d', callback=function(k, a) return redis.call('GET', k[1]) end,"
           b" flags={'no-writes'}}\n")


class Generator(replication_replica.Writer):
    """Generates commands, without sending them."""

    def __init__(self, rng):
        self.module = replication_replica.load_generator()
        self.rng, self.newest, self.generator = rng, True, self.module
        self.families = [self.module.FAMILIES[name] for name in self.module.SENSIBLE if name != "passing"]
        self.module.clock.ms = int(time.time() * 1000)

    def seed(self, rng):
        self.rng = rng
        self.module.R.seed(rng.random())

    def step(self):
        words = super().step()
        if words[0].upper() == "FLUSHALL":  # the ledger's to send
            return ["FLUSHDB"] if self.rng.random() < 0.3 else ["DBSIZE"]
        return words

    def alone(self, words):
        """The requests for one command. As in genuine Valkey, PFCOUNT on a replica changes its copy, because it
        caches the result in the value. So it is sent in a transaction after a write, which a replica rejects."""
        return [["MULTI"], ["INCR", "counted"], words, ["EXEC"]] if words[0].upper() == "PFCOUNT" else [words]

    def transaction(self):
        queued = [self.any() for _ in range(self.rng.randrange(1, 6))]
        if any(words[0].upper() == "PFCOUNT" for words in queued):
            queued.append(["INCR", "counted"])
        return [["MULTI"], *queued, ["EXEC"]]

    def key(self):
        return self.rng.choice(["k%d", "e%d", "s%d"]) % self.rng.randrange(12)

    def script(self):
        rng = self.rng
        number = rng.randrange(3)
        return rng.choice([
            lambda: ["EVAL", rng.choice(SCRIPTS), 1, self.key(), rng.randrange(99), rng.randrange(4), rng.randrange(4)],
            lambda: ["EVAL", rng.choice(SCRIPTS), 1, self.key(), rng.randrange(99), rng.randrange(4), rng.randrange(4)],
            lambda: ["FUNCTION", "LOAD", "REPLACE", LIBRARY % (number, number, rng.randrange(9), rng.randrange(9),
                                                               number)],
            lambda: ["FCALL", "put%d" % number, 1, self.key(), "v"],
            lambda: ["FCALL", "put%d" % number, 1, self.key(), "v"],
            lambda: ["FUNCTION", "DELETE", "lib%d" % number] if rng.random() < 0.3 else ["FUNCTION", "LIST"],
            lambda: ["FUNCTION", "FLUSH"] if rng.random() < 0.1 else ["FCALL_RO", "get%d" % number, 1, self.key()],
            lambda: ["SCRIPT", "FLUSH"] if rng.random() < 0.1 else ["PING"],
        ])()

    def passing(self):
        """Keys and fields that expire soon; volatile keys for eviction."""
        rng = self.rng
        ms = rng.choice([1, 1, 2, 5, 20, 100, 400])
        return rng.choice([
            lambda: ["SET", "e%d" % rng.randrange(60), rng.randrange(99), "PX", ms],
            lambda: ["PEXPIRE", self.key(), ms],
            lambda: ["HSETEX", "eh%d" % rng.randrange(6), "PX", ms, "FIELDS", 2, "f%d" % rng.randrange(9), "v",
                     "f%d" % rng.randrange(9), "w"],
            lambda: ["HSET", "eh%d" % rng.randrange(6), "f%d" % rng.randrange(9), "stays"],
            lambda: ["HPEXPIRE", "eh%d" % rng.randrange(6), ms, "FIELDS", 1, "f%d" % rng.randrange(9)],
            lambda: ["HDEL", "eh%d" % rng.randrange(6), *["f%d" % rng.randrange(9) for _ in range(6)]],
            lambda: [rng.choice(["HGETDEL", "HPERSIST"]), "eh%d" % rng.randrange(6), "FIELDS", 3,
                     *["f%d" % rng.randrange(9) for _ in range(3)]],
            lambda: ["GETEX", self.key(), "PX", ms],
            lambda: ["INCR", "e%d" % rng.randrange(60)],
            lambda: ["APPEND", "e%d" % rng.randrange(60), "x"],
            lambda: ["SET", "volatile%d" % rng.randrange(500), "x" * rng.randrange(5000), "EX", 100000],
            lambda: ["SPOP", "k%d" % rng.randrange(12), rng.randrange(1, 4)],
        ])()

    def large(self):
        rng = self.rng
        data = rng.randbytes(64) * (rng.choice([1000, 20000, 200000, 2000000]) // 64)
        return rng.choice([["SET", "large%d" % rng.randrange(6), data], ["APPEND", "large%d" % rng.randrange(6),
                                                                        data[:50000]],
                           ["SETRANGE", "large%d" % rng.randrange(6), rng.randrange(1000000), data[:50000]],
                           ["RPUSH", "largelist", data[:100000], "x", data[:3000]], ["LTRIM", "largelist", -8, -1],
                           ["HSET", "largehash", rng.randrange(30), data[:100000]], ["DEL", "largehash"]])

    def any(self):
        chance = self.rng.random()
        if chance < 0.08:
            return self.script()
        if chance < 0.25:
            return self.passing()
        if chance < 0.26:
            return self.large()
        if chance < 0.27:
            return ["PUBLISH", "channel", "message"]
        return self.step()

    def batch(self):
        rng = self.rng
        made = [["SELECT", rng.randrange(DATABASES)]]
        while len(made) < BATCH:
            made += self.transaction() if rng.random() < 0.1 else self.alone(self.any())
        return b"".join(request(*words) for words in made), len(made)

    def waiting(self):
        rng = self.rng
        key = lambda: "k%d" % rng.randrange(12)
        seconds = rng.choice([0.01, 0.1, 0.4])
        return [["SELECT", rng.randrange(DATABASES)], rng.choice([
            ["BLPOP", key(), key(), seconds], ["BRPOP", key(), seconds], ["BLMOVE", key(), key(), "LEFT", "RIGHT",
                                                                         seconds],
            ["BLMPOP", seconds, 2, key(), key(), "RIGHT", "COUNT", 3], ["BZPOPMIN", key(), key(), seconds],
            ["BZMPOP", seconds, 1, key(), "MAX"],
            ["XREADGROUP", "GROUP", "g1", "c1", "BLOCK", 50, "STREAMS", "x%d" % rng.randrange(4), ">"]])]


class Client60(Client):
    """The longest freeze is shorter than this timeout."""

    def __init__(self, port):
        super().__init__(port, timeout=60)


class Load:
    """The clients of one round."""

    def __init__(self, group, generator, rng, ledger, writers=2):
        self.group, self.stopping, self.sent = group, threading.Event(), 0
        generator.seed(rng)
        jobs = [[generator.batch() for _ in range(BATCHES)] for _ in range(writers)]
        jobs.append([(b"".join(request(*words) for words in generator.waiting()), 2) for _ in range(BATCHES)])
        self.threads = [threading.Thread(target=self.write, args=(job, rng.uniform(0, 0.01)), daemon=True)
                        for job in jobs]
        roaming = [generator.batch() for _ in range(BATCHES // 2)]
        self.threads.append(threading.Thread(target=self.roam, args=(roaming, random.Random(rng.random())),
                                             daemon=True))
        self.ledger = ledger
        ledger.begin(random.Random(rng.random()))
        self.threads.append(threading.Thread(target=ledger.work, args=(self.stopping,), daemon=True))
        for thread in self.threads:
            thread.start()

    def write(self, batches, pause):
        at = 0
        while not self.stopping.is_set():
            try:
                with Client60(self.group.primary.port) as client:
                    while not self.stopping.is_set():
                        data, count = batches[at % len(batches)]
                        at += 1
                        client.send_raw(data)
                        for _ in range(count):
                            reply = client.read()
                        self.sent += count
                        if isinstance(reply, Error) and reply.startswith(("READONLY", "MASTERDOWN", "LOADING")):
                            break
                        time.sleep(pause)
            except (OSError, ValueError):
                pass
            time.sleep(0.02)

    def roam(self, batches, rng):
        """Sends the same requests to one server after the other, primary or replica."""
        for data, count in batches:
            node = rng.choice(self.group.nodes)
            if self.stopping.is_set():
                return
            try:
                with Client(node.port, timeout=1) as client:
                    client.send_raw(data)
                    for _ in range(count):
                        client.read()
            except (OSError, ValueError):
                pass
            self.stopping.wait(rng.uniform(0, 0.05))

    def stop(self):
        self.stopping.set()

    def join(self):
        for thread in self.threads:
            thread.join()


class Ledger:
    """Numbered writes: MULTI, RPUSH log NUMBER, INCR count, EXEC, then WAIT; sometimes after FLUSHALL or a SELECT of
    another database in the same transaction.

    replied     the highest number that was answered: there unless the primary is lost
    held        the highest number that all direct replicas have acknowledged
    sent        the highest number that may be there
    first       the number with which the log of this round begins"""

    def __init__(self, group, note):
        self.group, self.note, self.trouble = group, note, None
        self.replied = self.held = self.sent = self.first = 0
        self.firsts = {1}  # the possible first numbers
        self.refused = set()  # the numbers of writes that were rejected
        self.parked, self.is_parked, self.floor = threading.Event(), threading.Event(), None
        self.evicted = False  # its keys may have been evicted in this round

    def begin(self, rng):
        self.rng, self.evicted = rng, False
        self.parked.clear()
        self.is_parked.clear()

    def park(self):
        """Stops sending until unpark(). Returns after the last request."""
        self.parked.set()
        return self.is_parked.wait(90)

    def unpark(self, floor):
        """Another server became the primary, or it lost data: only writes up to `floor` must exist."""
        if self.evicted:
            return
        self.floor = floor
        self.replied = self.held = floor
        self.firsts.add(None)  # may have lost a FLUSHALL
        self.is_parked.clear()
        self.parked.clear()

    def work(self, stopping):
        try:
            while not stopping.is_set():
                if self.parked.is_set():
                    self.is_parked.set()
                    time.sleep(0.01)
                    continue
                try:
                    with Client60(self.group.primary.port) as client:
                        if self.resume(client):
                            while not stopping.is_set() and not self.parked.is_set() and self.write(client):
                                pass
                except (OSError, ValueError):
                    pass
                time.sleep(0.02)
        except AssertionError as error:
            self.trouble = str(error)
        finally:
            self.is_parked.set()

    @staticmethod
    def tail(client):
        """(first, last) of the log on the primary, or None."""
        client.send(("SELECT", LEDGER_DATABASE), ("MULTI",), ("ROLE",), ("LRANGE", "log", 0, 0),
                    ("LRANGE", "log", -1, -1), ("EXEC",))
        reply = [client.read() for _ in range(6)][-1]
        if not isinstance(reply, list) or reply[0][0] != b"master":
            return None
        return [int(x[0]) if x else 0 for x in reply[1:]]

    def resume(self, client):
        found = self.tail(client)
        if not found or self.parked.is_set():
            return False
        last = found[1]
        if not self.replied <= last <= self.sent:
            raise AssertionError(f"the log on {self.group.primary.name} ends at {last}: at least {self.replied} were "
                                 f"acknowledged, {self.sent} sent")
        self.replied, self.sent = last, last
        self.refused = {n for n in self.refused if n < last}
        return last >= self.first or self.restart(client)

    def restart(self, client):
        """Begins the log of a round. A primary that restarts from a file of an earlier round has that round's log,
        whose keys may have been evicted: it begins again, too."""
        number = max(self.sent + 1, self.first)
        client.send(("SELECT", LEDGER_DATABASE), ("MULTI",), ("DEL", "log", "count"), ("RPUSH", "log", number),
                    ("INCR", "count"), ("EXEC",))
        if not isinstance([client.read() for _ in range(6)][-1], list):
            return False
        self.replied = self.sent = self.first = number
        self.held = 0
        self.refused, self.firsts = set(), {number}
        return True

    def write(self, client):
        count = self.rng.choice([1, 1, 2, 5, 20])
        commands = []
        for _ in range(count):
            number = self.sent + 1
            commands.append(("MULTI",))
            if self.rng.random() < 0.0003:
                commands += [("FLUSHALL", self.rng.choice(["SYNC", "ASYNC"]))]
                self.firsts.add(number)
            commands += [("RPUSH", "log", number), ("INCR", "count")]
            if self.rng.random() < 0.1:
                commands += [("SELECT", 3), ("INCR", "of ledger"), ("SELECT", LEDGER_DATABASE)]
            commands.append(("EXEC",))
            self.sent = number
        needed = len(self.group.primary.clients())
        commands.append(("WAIT", needed, 300))
        client.send(*commands)
        refused = False
        for words in commands:
            reply = client.read()
            if words[0] == "RPUSH":
                number = words[2]
            if words[0] == "EXEC":
                if isinstance(reply, list) and not any(isinstance(part, Error) for part in reply):
                    self.replied = number
                else:
                    refused = True
                    self.refused.add(number)
        if refused:
            return False
        if isinstance(reply, int) and reply >= needed and needed == len(self.group.primary.clients()):
            self.held = self.replied
        return True

    def check(self, client):
        """Checks after a round that the log has no gaps and no duplicates."""
        client.call("SELECT", LEDGER_DATABASE)
        log = [int(n) for n in client.call("LRANGE", "log", 0, -1)]
        last = log[-1] if log else 0
        assert not self.trouble, self.trouble
        if self.evicted:
            return
        assert self.replied <= last <= self.sent, (f"the log ends at {last}: at least {self.replied} were acknowledged,"
                                                   f" {self.sent} sent")
        missing = set(range(log[0], last + 1)) - set(log) - self.refused if log else set()
        assert log == sorted(set(log)) and not missing, (
            f"the log has gaps or repetitions: {sorted(missing)[:9]}, {[n for n in log if log.count(n) > 1][:9]}")
        assert not log or log[0] in self.firsts or None in self.firsts, f"the log begins with {log[0]}"
        count = int(client.call("GET", "count") or 0)
        assert count == len(log), f"the log has {len(log)} entries, its counter says {count}"
