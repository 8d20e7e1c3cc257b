"""rewrites.py: a replica that executes what the primary propagates has the same data.

    tests/crash/rewrites [--seconds N] [--seed N] [--eviction] [--import] [--failover] [--server PATH]

A primary often propagates another command than it has executed: DEL for a time in the past, SREM for SPOP, a time of
day for a time to live. Each round starts a primary and a replica. It sends batches of random commands to the primary,
alone, in transactions and in scripts, on so few keys that they meet values of every type. Options and keys occur
twice, in any order, and with times that are past or pass soon. After each batch both servers must have the same data
at the same offset, including expired keys and fields that are not deleted yet: the replica never deletes them itself,
so a command that is missing in the stream leaves a difference.

--eviction also changes maxmemory and its policy, --import import-mode, and --failover exchanges the roles in the
middle of a batch. Round N uses the seed --seed + N, which determines the commands except for the times in them; the
moment at which a key expires depends on the machine. The last line is "N passed, N failed" (rounds)."""
import argparse
import os
import random
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from agree_check import BAD_LINES  # noqa: E402
from agree_load import DATABASES, Generator  # noqa: E402
from agree_options import VALUES  # noqa: E402
from resp import Client, Closed, Error  # noqa: E402
from servers import Server, info_fields, ours, until, wait_for  # noqa: E402

BATCHES, SAME_WITHIN = 300, 10
FIELDS = [*"abcd", *(f"f{number}" for number in range(9))]
POLICIES = ["noeviction", *(f"allkeys-{how}" for how in ("lru", "lfu", "random")),
            *(f"volatile-{how}" for how in ("lru", "lfu", "random", "ttl"))]
OFTEN = ("SET", "MSETEX", "HSETEX")
# Executes commands that are preceded by the number of their words. An error does not end it.
SCRIPT = ("local at = 1 while at <= #ARGV do local last = at + ARGV[at]"
          " redis.pcall(unpack(ARGV, at + 1, last)) at = last + 1 end")
# Words in Commands.value() are replaced by a value, a|b is one of these (or nothing), {…} is repeated, #{…} too, after
# the number of repetitions. Of adjacent […] any are taken, in any order, also twice.
EXPIRY = "[EX s] [PX ms] [EXAT at] [PXAT at-ms]"
WHEN = "[NX] [XX] [GT] [LT]"
TRIM = "[MAXLEN ~|=| N] [MINID ~|=| ID] [LIMIT N]"
COMMANDS = f"""
    SET K V [NX] [XX] [GET] [IFEQ V] [KEEPTTL] {EXPIRY}
    MSETEX #{{K V}} [NX] [XX] [KEEPTTL] {EXPIRY}
    HSETEX K [NX] [XX] [FNX] [FXX] [KEEPTTL] {EXPIRY} FIELDS #{{F V}}
    SETEX K s V         PSETEX K ms V       GETEX K [PERSIST] {EXPIRY}
    SETNX K V           GETSET K V          GETDEL K            DELIFEQ K V
    MSET {{K V}}        MSETNX {{K V}}      APPEND K V          SETRANGE K N V
    INCR K              INCRBYFLOAT K 0.5   SETBIT K N 1        BITOP AND|OR|XOR|NOT K {{K}}
    BITFIELD K OVERFLOW FAIL INCRBY u2 0 3 SET u8 N 7
    EXPIRE K -1|0|s {WHEN}                  PEXPIRE K -1|0|ms {WHEN}
    EXPIREAT K at {WHEN}                    PEXPIREAT K at-ms {WHEN}
    PERSIST K           DEL {{K}}           UNLINK {{K}}        RENAME|RENAMENX K K
    MOVE K DB           SWAPDB DB DB        COPY K K [REPLACE] [DB DB]
    RESTORE K 0|ms|at-ms DUMP [REPLACE] [ABSTTL] [IDLETIME 5] [FREQ 5]
    HSET K {{F V}}      HSETNX K F V        HDEL K {{F}}        HINCRBY K F 1
    HINCRBYFLOAT K F 0.5                    HGETEX K [PERSIST] {EXPIRY} FIELDS #{{F}}
    HGETDEL K FIELDS #{{F}}                 HPERSIST K FIELDS #{{F}}
    HEXPIRE K 0|s {WHEN} FIELDS #{{F}}      HPEXPIRE K 0|ms {WHEN} FIELDS #{{F}}
    HEXPIREAT K at {WHEN} FIELDS #{{F}}     HPEXPIREAT K at-ms {WHEN} FIELDS #{{F}}
    SADD K {{F}}        SREM K {{F}}        SPOP K 1|2|9|       SMOVE K K F
    SUNIONSTORE|SINTERSTORE|SDIFFSTORE K {{K}}
    ZADD K [NX] [XX] [GT] [LT] [CH] [INCR] {{N F}}              ZINCRBY K 1 F
    ZPOPMIN K N         ZREM K {{F}}        ZMPOP 2 K K MIN|MAX [COUNT N]
    ZUNIONSTORE|ZINTERSTORE K 2 K K [WEIGHTS 1 2] [AGGREGATE SUM|MIN|MAX]
    ZRANGESTORE K K 0 -1 [REV] [LIMIT 0 2] [BYSCORE] [BYLEX]
    LPUSH|RPUSH|LPUSHX K {{F}}              LMOVE K K LEFT RIGHT    LREM K N F
    LTRIM K N N         LINSERT K BEFORE F F                        LMPOP 2 K K LEFT|RIGHT [COUNT N]
    BLPOP K K 0.001     BLMOVE K K LEFT RIGHT 0.001                 BLMPOP 0.001 2 K K LEFT|RIGHT [COUNT N]
    BZPOPMIN K K 0.001  BZMPOP 0.001 2 K K MIN|MAX [COUNT N]
    SORT K [BY nosort|k*|k*->a|#] [LIMIT 0 3] [GET #|k*|k*->a] [ASC] [DESC] [ALPHA] [STORE K] [STORE K]
    GEOADD K [NX] [XX] [CH] 1.5 2.5 F
    GEOSEARCHSTORE K K FROMLONLAT 1 2 BYRADIUS 500 km [ASC] [DESC] [COUNT 1 ANY|] [STOREDIST]
    GEORADIUS K 1 2 500 km [STORE K] [STOREDIST K] [COUNT 1 ANY|] [ASC] [WITHDIST]
    XADD K [NOMKSTREAM] {TRIM} *|ID f v     XTRIM K {TRIM}
    XGROUP CREATE K g $|0|ID [MKSTREAM] [ENTRIESREAD N]             XGROUP SETID K g $|0 [ENTRIESREAD N]
    XREADGROUP GROUP g F [COUNT N] [NOACK] STREAMS K >|0            XREADGROUP GROUP g F STREAMS K K > >|0
    XCLAIM K g F 0 {{ID}} [FORCE] [JUSTID] [IDLE 0|5|1000000] [TIME at-ms] [RETRYCOUNT N] [LASTID ID]
    XAUTOCLAIM K g F 0 0 [COUNT N] [JUSTID]                         XDEL K {{ID}}       XACK K g {{ID}}
    XSETID K ID [ENTRIESADDED N] [MAXDELETEDID ID]                  PFADD K {{F}}       PFMERGE K {{K}}
    GET K               HGETALL K           EXISTS {{K}}        RANDOMKEY               SCAN 0
"""


def parse(tokens, closing=None):
    """A pattern of COMMANDS as a list of (kind, parts)."""
    parts = []
    for token in tokens:
        if token == closing:
            break
        if token == "[":
            if not parts or parts[-1][0] != "options":
                parts.append(("options", []))
            parts[-1][1].append(parse(tokens, "]"))
        elif token in ("{", "#{"):
            parts.append((token, parse(tokens, "}")))
        else:
            parts.append(("word", token.split("|")))
    return parts


# Patterns on the same line have two or more spaces between them.
PATTERNS = [parse(iter(re.findall(r"#?\{|[][}]|[^][{}\s]+", text)))
            for text in re.split(r"\s{2,}", COMMANDS.strip()) for _ in range(3 if text.startswith(OFTEN) else 1)]
# Options alone, to be inserted anywhere.
OPTIONS = sorted(set(re.findall(r"\[([A-Z]+)", COMMANDS)))


class Commands(Generator):
    """The commands of a round: those of COMMANDS and, less often, those of tests/crash/agree."""

    def begin(self, seed, eviction):
        self.seed(random.Random(seed))
        self.module.clock.ms = int(time.time() * 1000)
        self.eviction, self.dumps = eviction, [b""]

    def key(self):
        return f"m{self.rng.randrange(60)}" if self.eviction and self.rng.random() < 0.4 else self.rng.choice(
            ["k1", "k2", "k3"])

    def value(self, word):
        """What replaces this word of a pattern."""
        rng, now = self.rng, int(time.time() * 1000)
        values = {
            "K": self.key,
            "V": lambda: "z" * rng.choice([100, 1000, 20000]) if self.eviction and rng.random() < 0.3 else rng.choice(
                ["1", "5", "x", "abc", "y" * 70, ""]),
            "F": lambda: rng.choice("abcd") if rng.random() < 0.9 else f"member{rng.randrange(40)}",
            "N": lambda: rng.choice([0, 1, 2, 3, 5, -1, 10]),
            "ID": lambda: f"{rng.randrange(4)}-{rng.choice('0123*')}",
            "DB": lambda: rng.randrange(DATABASES),
            "DUMP": lambda: rng.choice(self.dumps),
            "s": lambda: rng.choice([1, 2, 100]),
            "ms": lambda: rng.choice([1, 1, 2, 50000]),
            "at": lambda: rng.choice([1, now // 1000 - 1, now // 1000, now // 1000 + 100]),
            "at-ms": lambda: rng.choice([1, now - 1000, now - 1, now, now + 1, now + 2, now + 50000]),
        }
        return values[word]() if word in values else word

    def fill(self, parts):
        rng, words = self.rng, []
        for kind, inner in parts:
            if kind == "word":
                word = rng.choice(inner)
                words += [self.value(word)] if word else []
            elif kind == "options":
                for _ in range(rng.choices(range(5), [6, 6, 4, 2, 2])[0]):
                    option = rng.choice(inner)
                    words += [word for _ in range(rng.choice([1, 1, 1, 2])) for word in self.fill(option)]
            else:
                count = rng.randrange(1, 4)
                words += [count] if kind == "#{" else []
                words += [word for _ in range(count) for word in self.fill(inner)]
        return words

    def change(self, words):
        """Changes arguments in any way, mostly to what the server rejects."""
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(1, len(words) + 1)
            what = rng.choice(["repeat", "option", "expiry", "replace", "remove"])
            if what == "repeat":
                words[at:at] = words[at:at + rng.choice([1, 2])]
            elif what == "option":
                words.insert(at, rng.choice(OPTIONS))
            elif what == "expiry":
                words[at:at] = [rng.choice(["EX", "PX", "EXAT", "PXAT"]), self.value(rng.choice(["s", "at-ms"]))]
            else:
                words[at:at + 1] = [rng.choice(words)] if what == "replace" else []
        return words

    def any(self):
        rng, chance = self.rng, self.rng.random()
        if chance < 0.1:
            return super().any()
        if chance < 0.15:
            made = [self.fill(rng.choice(PATTERNS)) for _ in range(rng.randrange(1, 4))]
            return ["EVAL", SCRIPT, 0, *(word for words in made for word in (len(words), *words))]
        words = self.fill(rng.choice(PATTERNS))
        # A changed blocking command could wait long.
        return self.change(words) if chance < 0.2 and not words[0].startswith("B") else words

    def commands(self, most):
        made = [["SELECT", self.rng.randrange(DATABASES)]]
        for _ in range(self.rng.randrange(1, most)):
            made += self.transaction() if self.rng.random() < 0.15 else self.alone(self.any())
        return made


def stream_state(reply):
    """What an XINFO STREAM FULL reply says about the stream, without what a server does not propagate: how the entries
    are stored and when consumers were seen."""
    if isinstance(reply, Error):
        return None
    state = dict(zip(reply[::2], reply[1::2]))
    groups = [dict(zip(group[::2], group[1::2])) for group in state[b"groups"]]
    for group in groups:
        group[b"consumers"] = [(consumer[1], consumer[7]) for consumer in group[b"consumers"]]
    return [state[name] for name in (b"last-generated-id", b"max-deleted-entry-id", b"entries-added")] + groups


class Round:
    def __init__(self, options, seed, commands):
        self.options, self.rng, self.commands, self.sent, self.failovers = options, random.Random(seed), commands, 0, 0
        self.batch, self.replies = [], []
        commands.begin(seed, options.eviction)
        arguments = ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0",
                     *(["--appendonly", "yes"] if options.reload else [])]
        self.servers = []
        try:
            self.servers += [Server(options.server, *arguments), Server(options.server, *arguments, *self.others())]
            self.servers[1].call("REPLICAOF", "127.0.0.1", self.servers[0].port)
            self.connect()
        except BaseException:
            self.stop()
            raise

    def others(self):
        """Options of the replica: how it stores values must not matter."""
        names = [name for name in VALUES if "listpack" in name or "intset" in name or name.startswith("stream-node")]
        return [word for name in sorted(names) if self.rng.random() < 0.5
                for word in (f"--{name}", self.rng.choice(VALUES[name]))]

    def stop(self):
        for server in self.servers:
            server.stop()

    def connect(self):
        """The first server is the primary now. Readers see expired data, as the link from the primary does."""
        wait_for("the link is up", lambda: self.servers[1].info("replication").get("master_link_status") == "up")
        self.primary, *self.readers = [Client(server.port) for server in (self.servers[0], *self.servers)]
        for reader in self.readers:
            reader.call("DEBUG", "ROLE", "AS-PRIMARY")

    def send(self, client, commands):
        self.batch += commands
        client.send(*commands)

    def disturb(self):
        rng, config = self.rng, lambda *words: self.primary.call("CONFIG", "SET", *words)
        if rng.random() < 0.1:
            self.primary.call("DEBUG", "SET-ACTIVE-EXPIRE", rng.choice([0, 0, 1]))
        if self.options.eviction and rng.random() < 0.05:
            used = int(info_fields(self.primary.call("INFO", "memory"))["used_memory"])
            config("maxmemory-policy", rng.choice(POLICIES), "lazyfree-lazy-eviction", rng.choice(["yes", "no"]),
                   "maxmemory", rng.choice([0, used - 2000, used + 500, used + 3000, used + 20000]))
        if self.options.import_mode and rng.random() < 0.05:
            config("import-mode", rng.choice(["yes", "no"]))

    def reload(self):
        """A server loads its data from a file that it has written."""
        client = Client(self.rng.choice(self.servers).port)
        client.call("CONFIG", "SET", "aof-use-rdb-preamble", self.rng.choice(["yes", "no"]))
        if self.rng.random() < 0.5:
            client.call("BGREWRITEAOF")
            wait_for("the append-only file is rewritten", lambda: not re.search(
                rb"aof_rewrite_(in_progress|scheduled):1", client.call("INFO", "persistence")))
        words = self.rng.choice([["LOADAOF"], ["RELOAD"]])
        reply = client.call("DEBUG", *words)
        self.batch.append(["DEBUG", *words])
        self.replies.append(reply)

    def failover(self):
        """Half of a batch arrives before the failover, the other half meanwhile, at the server that leaves."""
        writer, commands = Client(self.servers[0].port), self.commands.commands(30)
        half = self.rng.randrange(1, len(commands))
        self.send(writer, commands[:half])
        self.primary.call("FAILOVER", "TO", "127.0.0.1", self.servers[1].port, "TIMEOUT", 5000)
        self.send(writer, commands[half:])
        try:
            for _ in commands:
                self.replies.append(writer.read())
        except Closed:  # it waited for a key when the role changed
            pass
        wait_for("the failover ends", lambda: self.servers[0].info("replication")["master_failover_state"] ==
                 "no-failover")
        if self.servers[0].info("replication")["role"] == "slave":
            self.failovers += 1
            self.servers.reverse()
            self.connect()

    def data(self, reader):
        """{(database, key): its digest and times}, of all keys."""
        found = {}
        for database in range(DATABASES):
            reader.call("SELECT", database)
            for key in reader.call("KEYS", "*"):
                reader.send(("TYPE", key), ("DEBUG", "DIGEST-VALUE", key), ("PEXPIRETIME", key),
                            ("HPEXPIRETIME", key, "FIELDS", len(FIELDS), *FIELDS), ("XINFO", "STREAM", key, "FULL"))
                *values, stream = [reader.read() for _ in range(5)]
                found[database, key] = [*values, stream_state(stream)]
        return found

    def equal(self, thorough):
        """The digest has the values. Only a thorough comparison has the times, too."""
        def offset(server):
            return server.info("replication")["master_repl_offset"]

        def look(reader):
            # avg_ttl is an estimate that each server makes itself.
            keyspace = re.sub(rb",avg_ttl=\d+", b"", reader.call("INFO", "keyspace"))
            return reader.call("DEBUG", "DIGEST"), keyspace, self.data(reader) if thorough else None
        before = offset(self.servers[0])
        return before == offset(self.servers[1]) and look(self.readers[0]) == look(self.readers[1]) and \
            before == offset(self.servers[0])

    def run(self):
        """Returns a description of the first difference, or None."""
        for number in range(BATCHES):
            self.batch, self.replies = [], []
            self.disturb()
            if self.options.failover and self.rng.random() < 0.04:
                self.failover()
            commands = self.commands.commands(8)
            self.send(self.primary, commands)
            self.replies += [self.primary.read() for _ in commands]
            self.sent += len(self.batch)
            if self.rng.random() < 0.3:
                dump = self.primary.call("DUMP", self.commands.key())
                self.commands.dumps = [*self.commands.dumps, dump or b""][-8:]
                time.sleep(self.rng.choice([0.001, 0.003, 0.02]))  # keys expire before the next batch
            self.primary.call("WAIT", 1, 1000)
            if self.options.reload and number % 20 == 18:
                self.primary.call("WAIT", 1, 1000)
                self.reload()
            if not until(lambda: self.equal(number % 5 == 4), SAME_WITHIN):
                return f"primary and replica differ after batch {number}:\n{self.describe()}"
        lines = [line for server in self.servers for line in server.output(None).splitlines()
                 if any(bad in line for bad in BAD_LINES)]
        if lines:
            return "\n".join(lines[:5])
        # A replica that copies all data again loses its differences.
        syncs = int(self.servers[0].info("stats")["sync_full"])
        return f"{syncs} full synchronizations" if syncs != 1 and not self.failovers else None

    def describe(self):
        lines = [f"  {shorten(words)} -> {shorten(reply)}" for words, reply in zip(self.batch, self.replies)]
        ours_, theirs = [self.data(reader) for reader in self.readers]
        for database, key in sorted({*ours_, *theirs}):
            values = [found.get((database, key)) for found in (ours_, theirs)]
            if values[0] != values[1]:
                lines.append(f"  database {database}, key {key}: primary {values[0]}, replica {values[1]}")
        offsets = [server.info("replication")["master_repl_offset"] for server in self.servers]
        return "\n".join([*lines, f"  offsets {' and '.join(offsets)}; digests and INFO keyspace:",
                          *(f"  {reader.call('DEBUG', 'DIGEST')} {reader.call('INFO', 'keyspace')}"
                            for reader in self.readers)])


def shorten(value):
    """The text of a request or reply, without long arguments."""
    if isinstance(value, list):
        return "[" + ", ".join(map(shorten, value)) + "]"
    return repr(value) if len(repr(value)) < 100 else f"{repr(value)[:60]}… ({len(value)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="start no round after so many seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--eviction", action="store_true", help="change maxmemory")
    parser.add_argument("--import", dest="import_mode", action="store_true", help="change import-mode")
    parser.add_argument("--failover", action="store_true", help="exchange the roles")
    parser.add_argument("--reload", action="store_true", help="load the data from files")
    parser.add_argument("--server", default=ours(), help="the program of both servers")
    options = parser.parse_args()
    modes = [f" --{name}" for name, on in (("eviction", options.eviction), ("import", options.import_mode),
                                           ("failover", options.failover), ("reload", options.reload)) if on]
    commands, began, passed, failed, sent, failovers = Commands(random.Random(0)), time.monotonic(), 0, 0, 0, 0
    print(f"seed {options.seed}", flush=True)
    while not passed + failed or time.monotonic() - began < options.seconds:
        seed = options.seed + passed + failed
        test = Round(options, seed, commands)
        try:
            problem = test.run()
        except (OSError, AssertionError, ValueError, TypeError, KeyError) as error:
            problem = f"{error!r}\n{test.batch}\n" + test.servers[0].output() + test.servers[1].output()
        test.stop()
        passed, failed, sent, failovers = (passed + (not problem), failed + bool(problem), sent + test.sent,
                                           failovers + test.failovers)
        if problem:
            print(f"FAILED: {problem}\n  repeat with --seed {seed} --seconds 0{''.join(modes)}", flush=True)
    print(f"{sent} commands, {failovers} failovers, {time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
