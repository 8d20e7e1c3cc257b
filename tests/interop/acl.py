#!/usr/bin/env python3
"""acl.py [--seed N] [--steps N]: rules of users, compared with a genuine server of 9.1 or newer.

Both servers get the same random ACL SETUSER; the replies must be equal, and so must ACL GETUSER and ACL LIST. Then ACL
DRYRUN of random commands, in a random database, must give the same verdict for each user. At times the commands are run
by clients of the users, so that replies, ACL LOG and the counters of INFO are compared, too. A difference prints the
steps that led to it; the seed repeats a run."""
import argparse
import random
import re
import sys

from common import Client, Error, Report, Server, newest_server, ours

USERS = ["u1", "u2", "u3"]
WORDS = ["x", "x1", "x2", "y", "y1", "z", "a", "b", "0", "1", "2", "3", "5", "-1", "99", "foo", "x*", "db", "DB",
         "store", "by", "get", "streams", "keys", "withscores", "left", "nosort", "replace", "limit", "#", "COUNT",
         "group", "ifeq", "nx", "set", "u8", "x y"]
PATTERNS = ["*", "x*", "x", "y", "y?", "[xy]*", "x\\*", "", "**", "a*b", "foo*", "1", "0", "?", "z*", "(", "x)", "a\"b",
            "'", "é"]
CATEGORIES = ["keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
              "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction",
              "scripting", "all", "ALL", "nosuch", ""]
PLAIN = ["on", "off", "nopass", "resetpass", "reset", "allkeys", "resetkeys", "allchannels", "resetchannels", "alldbs",
         "resetdbs", "allcommands", "nocommands", "clearselectors", "sanitize-payload", "skip-sanitize-payload", "ON",
         "ResetKeys", "AllDbs", "on ", "nosuch", "", "(", ")", "()", "db"]
# What runs a server down, waits, or replies with what differs by nature.
NOT_RUN = {"shutdown", "failover", "debug", "monitor", "psync", "sync", "replicaof", "slaveof", "migrate", "client",
           "config", "acl", "auth", "hello", "quit", "reset", "bgsave", "save", "bgrewriteaof", "module", "cluster",
           "latency", "memory", "info", "command", "script", "function", "lolwut", "wait", "waitaof", "slowlog",
           "commandlog", "lastsave", "time", "role", "replconf", "pfselftest", "multi", "exec", "discard", "subscribe",
           "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "blpop", "brpop", "blmove",
           "blmpop", "bzpopmin", "bzpopmax", "bzmpop", "brpoplpush", "xread", "xreadgroup", "randomkey", "srandmember",
           "hrandfield", "zrandmember", "spop", "select", "swapdb", "scan", "clusterscan", "asking", "readonly",
           "readwrite", "object", "dump", "pubsub"}


class Commands:
    """The commands that both servers have, with their arities."""

    def __init__(self, replies):
        def names(reply):
            found = {}
            for info in reply:
                found[(info[0].decode(),)] = info[1]
                for sub in info[9] or []:
                    found[tuple(sub[0].decode().split("|"))] = sub[1]
            return found
        first, second = (names(reply) for reply in replies)
        self.arity = {name: arity for name, arity in first.items() if second.get(name) == arity}
        self.names = sorted(self.arity)
        self.containers = {name[0] for name in self.names if len(name) == 2}


class Rules:
    def __init__(self, choose, commands):
        self.choose = choose
        self.commands = commands

    def command(self):
        name = self.choose.choice(self.commands.names)
        roll = self.choose.random()
        text = "|".join(name)
        if roll < 0.04:
            text = "nosuch"
        elif roll < 0.25:
            text += "|" + self.choose.choice(["x", "X", "1", "get", "", "list", "x|y"])
        return text.upper() if self.choose.random() < 0.1 else text

    def selector_rule(self):
        c = self.choose
        kind = c.randrange(9)
        if kind <= 2:
            return c.choice("++++-") + self.command()
        if kind == 3:
            return c.choice("+-") + "@" + c.choice(CATEGORIES)
        if kind == 4:
            return c.choice(["~", "~", "%R~", "%W~", "%RW~", "%wr~", "%", "%R", "%RR~", "%X~",
                             "%~"]) + c.choice(PATTERNS)
        if kind == 5:
            return "&" + c.choice(PATTERNS)
        if kind == 6:
            return c.choice(["db=", "DB="]) + ",".join(c.choice(["0", "1", "2", "15", "99", "x", "", "-1", "+1",
                                                                 "2147483648"][:c.choice([4, 5, 10])])
                                                       for _ in range(c.randrange(1, 4)))
        if kind == 7:
            return c.choice([p for p in PLAIN if p.lower() not in ("on", "off", "nopass", "resetpass", "reset",
                                                                   "clearselectors")] + ["on", "reset"])
        return c.choice(["+@all", "allkeys", "+@read", "+@write", "allchannels", "alldbs"])

    def rule(self):
        c = self.choose
        kind = c.randrange(10)
        if kind < 6:
            return [self.selector_rule()]
        if kind == 6:
            return [c.choice([">", "<", "#", "!"]) + c.choice(["p", "q", "", "p" * 64, "0" * 64, "a1" * 32, "A1" * 32,
                                                               "x" * 300])]
        if kind == 7:
            return [c.choice(PLAIN)]
        inner = " ".join(self.selector_rule() for _ in range(c.randrange(4)))
        text = "(" + c.choice(["", "", " "]) + inner + c.choice([")", ")", ")", ")", "", ") "])
        return text.split(" ") if c.random() < 0.4 else [text]


def different(first, second):
    """The parts of two replies that differ."""
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        parts = [different(a, b) for a, b in zip(first, second) if a != b]
        return "; ".join(parts)
    if isinstance(first, list) and isinstance(second, list):
        return "only ours %r, only genuine %r" % ([a for a in first if a not in second],
                                                  [b for b in second if b not in first])
    return "ours %r, genuine %r" % (first, second)


def shown_rules(reply):
    """Rules of GETUSER and LIST. A genuine server shows the pattern %RW~* as ~*, though it would read other patterns
    only before it, not after it."""
    if isinstance(reply, list):
        return [shown_rules(item) for item in reply]
    return re.sub(rb"%RW~\*(?=[ )]|$)", b"~*", reply) if isinstance(reply, bytes) else reply


class Comparison:
    def __init__(self, report, seed, servers):
        self.report = report
        self.choose = random.Random(seed)
        self.servers = servers
        self.control = [Client(server.port) for server in servers]
        self.clients = {}
        self.commands = Commands([client.call("COMMAND") for client in self.control])
        self.rules = Rules(self.choose, self.commands)
        self.steps = []
        self.differences = 0

    def both(self, *words, clients=None):
        return [self.call(client, words) for client in clients or self.control]

    @staticmethod
    def call(client, words):
        try:
            return client.call(*words)
        except Error as error:
            return error

    def compare(self, *words, clients=None, what=lambda reply: reply):
        first, second = (what(reply) for reply in self.both(*words, clients=clients))
        if first == second:
            return first
        self.differences += 1
        users = self.control[0].call("ACL", "LIST")
        history = "\n".join("    " + repr(line) for line in users) + "\n" + "\n".join("    " + repr(step)
                                                                                      for step in self.steps[-12:])
        self.report.check(" ".join(map(repr, words)), False, "%s\n  after\n%s" % (different(first, second), history))
        return first

    def words(self):
        """A random command that passes the check of its arity."""
        c = self.choose
        name = c.choice(self.commands.names)
        if len(name) == 1 and name[0] in self.commands.containers:
            return [name[0], c.choice(["nosuch", "help"])]
        arity = self.commands.arity[name]
        count = abs(arity) - len(name) + (c.choice([0, 0, 1, 2, 3]) if arity < 0 else 0)
        if name[0] == "migrate":
            return ["MIGRATE", "h", "1", c.choice(["x", "y", "z"]), "0",
                    "1"] + c.choice([[], ["COPY"], ["AUTH", "keys"]])
        words = list(name) + [c.choice(WORDS[:13] if c.random() < 0.7 else WORDS) for _ in range(count)]
        if name[0] == "xreadgroup":
            words[1] = "group"  # a genuine server finds no keys behind another word, and allows the command
        return [word.upper() for word in words] if c.random() < 0.05 else words

    def set_user(self):
        c = self.choose
        rules = [word for _ in range(c.randrange(1, 6)) for word in self.rules.rule()]
        if any(word.startswith("(") for word in rules):
            # A genuine server takes quotes in a selector for those of a file, and makes nothing of one that is not
            # closed.
            rules = [word.replace("'", "q").replace('"', "q").replace("\\", "w") for word in rules]
        step = ["ACL", "SETUSER", c.choice(USERS), *rules]
        self.steps.append(step)
        self.compare(*step)
        self.compare("ACL", "GETUSER", step[2], what=shown_rules)
        self.compare("ACL", "LIST", what=shown_rules)

    def dry_run(self):
        for _ in range(12):
            self.compare("ACL", "DRYRUN", self.choose.choice(USERS), *self.words())

    def client_of(self, user):
        """Clients of this user on both servers, which may not be able to do anything."""
        if user not in self.clients:
            self.clients[user] = [Client(server.port) for server in self.servers]
        return self.clients[user]

    def run_commands(self):
        user = self.choose.choice(USERS)
        self.steps.append(["ACL", "SETUSER", user, "on", "nopass"])
        self.compare(*self.steps[-1])
        clients = self.client_of(user)
        self.both("RESET", clients=clients)
        self.compare("AUTH", user, "x", clients=clients)
        for _ in range(8):
            words = self.words()
            if words[0].lower() in NOT_RUN or "debug" in words:
                continue
            self.compare(*words, clients=clients, what=lambda reply: reply if isinstance(reply, Error)
                         and reply.startswith("NOPERM") else "allowed")
        script = "return server.pcall(unpack(ARGV))"
        words = [word for word in self.words()]
        if words[0].lower() not in NOT_RUN:
            self.compare("EVAL", script, "0", *words, clients=clients,
                         what=lambda reply: reply if isinstance(reply, Error) and "ACL failure" in reply else "allowed")
            self.compare("EVAL", "return tostring(server.acl_check_cmd(unpack(ARGV)))", "0", *words, clients=clients)

    def log(self):
        def events(reply):
            entries = [dict(zip(entry[::2], entry[1::2])) for entry in reply]
            return [[entry[key] for key in (b"count", b"reason", b"context", b"object", b"username", b"entry-id")]
                    for entry in entries]

        def counters(reply):
            return [line for line in reply.split(b"\r\n") if line.startswith(b"acl_access_denied_")]
        self.compare("ACL", "LOG", "200", what=events)
        self.compare("INFO", "stats", what=counters)

    def run(self, steps):
        for user in USERS:
            self.steps.append(["ACL", "SETUSER", user])
            self.compare(*self.steps[-1])
        for step in range(steps):
            database = self.choose.choice([0, 0, 1, 2])
            self.both("SELECT", str(database))
            self.set_user()
            self.dry_run()
            if step % 10 == 0:
                self.run_commands()
            if self.differences >= 3:
                break
            if step % 100 == 99:
                self.log()
                self.both("ACL", "LOG", "RESET")
                self.both("FLUSHALL")
        return step + 1


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--steps", type=int, default=1500)
    chosen = arguments.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 32)
    report = Report()
    genuine, why = newest_server()
    if not ours() or not genuine:
        report.missing("acl", why or "src/valkey-server is not built")
        report.finish()
    print("seed %d" % seed)
    with Server(ours(), "--databases", "16") as first, Server(genuine, "--databases", "16") as second:
        comparison = Comparison(report, seed, (first, second))
        steps = comparison.run(chosen.steps)
        report.check("%d random changes of users, and what the users may do" % steps, not comparison.differences)
        report.check("both servers live", first.alive() and second.alive(), first.output())
    report.finish()


if __name__ == "__main__":
    sys.exit(main())
