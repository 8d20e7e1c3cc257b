"""The engine of differential-commands: runs episodes of steps on two servers, compares all that can be seen, and
reduces an episode that differs.

An episode begins with empty servers and clients of no history, so it can be repeated, and reduced, by itself. A step is
(client, words); words may be raw bytes to be sent as they are. Client 0 is answered once for each step: it neither
subscribes nor waits. Words "#clock", ms make the time go on.
"""
import re
import time

import differential_rules as rules
from differential_servers import parse, parse_all, request

BATCH = 100
CLIENT_FIELDS = [b"flags", b"db", b"sub", b"psub", b"ssub", b"multi", b"watch", b"resp", b"cmd"]
STATS = re.compile(rb"^(cmdstat_[^:]*:calls=\d+|errorstat_.*|keyspace_hits:.*|keyspace_misses:.*|expired_keys:.*|"
                   rb"pubsub_channels:.*|pubsub_patterns:.*"
                   rb"|pubsubshard_channels:.*|rdb_changes_since_last_save:.*|blocked_clients:.*|"
                   rb"total_blocking_keys.*|watching_clients:.*|total_watched_keys:.*"
                   rb"|tracking_.*|db\d:keys=\d+,expires=\d+|total_error_replies:.*)", re.M)
# What differs between two servers: the version, the connection's number, the modules.
HELLO = re.compile(rb"(server\r\n\$6\r\nvalkey\r\n\$7\r\nversion\r\n\$5\r\n).{5}(.*?\r\nid\r\n:)\d+"
                   rb"(.*?modules\r\n)(?:\*0\r\n|\*1\r\n.*?args\r\n\*0\r\n)", re.S)
# The number of a client that gets invalidation messages.
RECEIVER = re.compile(rb"(\$8\r\nredirect\r\n:|\$21\r\ntracking-redir-broken\r\n:)[1-9]\d*")
FAILURES = re.compile(rb"^cmdstat_([^:]*):.*(rejected_calls=\d+,failed_calls=\d+)", re.M)
NOT_COMPARED = (b"psync", b"replconf", b"debug", b"ping", b"client|list", b"replicaof")


class Difference(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def shown(data, limit=600):
    return repr(data) if len(repr(data)) <= limit else repr(data)[:limit] + "… (%d)" % len(repr(data))


class Pair:
    """Both servers, and how an episode is run on them."""

    def __init__(self, ours, genuine):
        self.servers = ours, genuine
        self.alive = True
        self.options = set()  # that were ever changed

    def both(self, *words):
        for server in self.servers:
            server.control.send(request(*words))
        return [server.control.reply() for server in self.servers]

    def run(self, steps):
        """Raises Difference."""
        try:
            if not self.alive:
                for server in self.servers:
                    server.restart()
                self.alive = True
            self.options.update(words[2] for _, words in steps if words[0] == "CONFIG" and len(words) > 3
                                and words[1].upper() == "SET")
            for server in self.servers:
                server.reset(self.options)
            self.queued = None  # what client 0 has queued
            self.seen = {}  # calls of each command
            self.blocked = set()
            changes = self.changes()
            for at in range(0, len(steps), BATCH):
                self.batch(steps[at:at + BATCH])
            self.finish(changes)
        except rules.Undefined:
            pass
        except (EOFError, OSError) as error:
            self.alive = False
            for server in self.servers:
                try:
                    server.control.call("PING")
                except (EOFError, OSError):
                    server.process.wait(20)
                    raise Difference("death", "%s went away: %s\n%s" % (server.name, error, server.output()))
            raise Difference("closed", "A connection is gone (ours: port %d, genuine: %d): %s"
                             % (*[server.port for server in self.servers], error))

    # A batch: runs of steps of one client each

    def batch(self, steps):
        alone = all(client == 0 for client, _ in steps)
        at = 0
        while at < len(steps):
            client, words = steps[at]
            if words[0] == "#clock":
                self.clock(words[1])
                at += 1
                continue
            end = at + 1
            while end < len(steps) and steps[end][0] == client and steps[end][1][0] != "#clock":
                end += 1
            if client == 0:
                self.answered([words for _, words in steps[at:end]])
            elif client not in self.blocked:
                self.send(client, [words for _, words in steps[at:end]])
            at = end
            if not alone:
                self.settle(client, steps[at - 1])
        self.ears(steps)

    def clock(self, ms):
        self.servers[0].clock.set(self.servers[0].clock.ms + ms)
        for server in self.servers:
            server.see_clock()

    def send(self, client, commands):
        commands = self.dumped(commands)
        sent = [b"".join(words if isinstance(words, bytes) else request(*words)
                         for words in self.named(server, commands)) for server in self.servers]
        for server, data in zip(self.servers, sent):
            server.clients[client].send(data)

    def dumped(self, commands):
        """@dump0:key is what our server dumps of a key before the run, @dump1:key the genuine one."""
        def meant(word):
            if not isinstance(word, str) or not word.startswith("@dump"):
                return word
            name, _, key = word.partition(":")
            return [parse(reply)[1] or b"" for reply in self.both("DUMP", key)][int(name[5:])]
        return [[meant(word) for word in words] if isinstance(words, list) else words for words in commands]

    @staticmethod
    def named(server, commands):
        """Clients are named by @0, @1 …"""
        for words in commands:
            yield [server.ids[int(word[1:])] if isinstance(word, str) and re.fullmatch("@[0-3]", word) else word
                   for word in words] if isinstance(words, list) else words

    def answered(self, commands):
        self.send(0, commands)
        ours, genuine = (server.clients[0] for server in self.servers)
        for words in commands:
            replies = ours.reply(), genuine.reply()
            if words != ["MULTI"] and self.queued is None and replies[0] == replies[1]:
                continue
            self.compare(words, *replies)

    def compare(self, words, ours, genuine):
        a, b = parse(ours), parse(genuine)
        name = words[0].upper() if isinstance(words, list) else ""
        if b == ("+", b"QUEUED"):
            self.queued.append(words)
            same = a == b
        elif self.queued is not None and name == "EXEC":
            same = rules.same_transaction(self.queued, a, b)
        else:
            same = rules.same_reply(words, a, b)
        if b[0] != "-":
            if name == "MULTI":
                self.queued = []
            elif name in ("EXEC", "DISCARD", "RESET"):
                self.queued = None
        elif name == "EXEC" and not b[1].startswith(b"ERR wrong"):
            self.queued = None
        if not same:
            raise Difference("reply " + str(name), "The reply to %s differs:\n  ours:    %s\n  genuine: %s"
                             % (shown(words, 300), shown(ours), shown(genuine)))

    def settle(self, client, step):
        """All that follows from what was sent has happened, and has arrived."""
        self.both("PING")
        self.both("PING")  # a client that was served goes on with what it had sent
        states = [server.clients_state(CLIENT_FIELDS) for server in self.servers]
        if states[0] != states[1]:
            odd = [{(number, name): value for number, state in side.items() for name,
                    value in state.items() if states[1 - i].get(number, {}).get(name) != value}
                   for i, side in enumerate(states)]
            raise Difference("clients", "After %s of client %d CLIENT LIST differs:\n  ours:    %s\n  genuine: %s"
                             % (shown(step[1]), client, *odd))
        self.blocked = {client for client, state in states[1].items() if b"b" in state[b"flags"]}
        for number in range(1, len(self.servers[0].clients)):
            said = [RECEIVER.sub(rb"\1?", HELLO.sub(rb"\1x.x.x\g<2>0\3", server.clients[number].drain()))
                    for server in self.servers]
            if said[0] != said[1] and not rules.same_said(*said):
                raise Difference("said",
                                 "After %s of client %d client %d hears something else:\n  ours:    %s\n  genuine: %s" %
                                 (shown(step[1]), client, number, shown(said[0]), shown(said[1])))

    # What the ears hear, and what is left in the end

    def ears(self, steps):
        (stream, events), (their_stream, their_events) = (server.listen() for server in self.servers)
        if stream != their_stream:
            a, b = parse_all(stream), parse_all(their_stream)
            if not rules.same_stream(steps, a, b):
                self.unequal("stream", "What is repeated differs",
                             *([" ".join(shown(word, 100) for _, word in words) for _, words in x] for x in (a, b)))
        if events != their_events:
            a, b = parse_all(events), parse_all(their_events)
            if not rules.same_events(steps, a, b):
                self.unequal("events", "Events differ", *([" ".join(shown(word, 100) for _, word in words[-2:]) for _,
                                                           words in x] for x in (a, b)))

    @staticmethod
    def unequal(kind, title, ours, genuine):
        at = 0
        while at < min(len(ours), len(genuine)) and ours[at].upper() == genuine[at].upper():
            at += 1
        raise Difference(kind, "%s:\n  ours:    %s\n  genuine: %s" % (title, ours[at:at + 5], genuine[at:at + 5]))

    def changes(self):
        return [int(re.search(rb"rdb_changes_since_last_save:(\d+)", reply)[1])
                for reply in self.both("INFO", "persistence")]

    def finish(self, before):
        changes = [after - then for after, then in zip(self.changes(), before)]
        if changes[0] != changes[1]:
            raise Difference("changes", "The count of changes differs: %d, genuine %d" % tuple(changes))
        self.statistics()
        digests = self.both("DEBUG", "DIGEST")
        data = [self.data_set(server) for server in self.servers]
        for name in sorted(set(data[0]) | set(data[1])):
            a, b = data[0].get(name), data[1].get(name)
            if a != b:
                raise Difference("data", "The data set differs at %r:\n  ours:    %s\n  genuine: %s"
                                 % (name, shown(a), shown(b)))
        if digests[0] != digests[1]:
            raise Difference("digest", "DEBUG DIGEST differs: %r, genuine %r" % tuple(digests))

    def statistics(self):
        replies = self.both("INFO", "everything")
        found = []
        for reply in replies:
            lines = dict(line.split(b":", 1) if b"cmdstat" not in line else line.split(b":calls=")
                         for line in STATS.findall(reply))
            lines.update((b"failures of " + name, count) for name, count in FAILURES.findall(reply))
            lines.pop(b"rdb_changes_since_last_save", None)
            # a genuine server calls it when it makes an interpreter
            for name in (b"cmdstat_config|get", b"failures of config|get"):
                lines.pop(name, None)
            found.append({name: value for name, value in lines.items()
                          if name.split(b"_")[-1].split(b" ")[-1] not in NOT_COMPARED})
        for name in sorted(set(found[0]) | set(found[1])):
            a, b = (side.get(name) for side in found)
            if a != b:
                raise Difference("statistics " + name.decode(), "INFO differs at %s: %r, genuine %r"
                                 % (name.decode(), a, b))
        self.seen = {name: int(value) for name, value in found[1].items() if name.startswith(b"cmdstat_")}

    @staticmethod
    def data_set(server):
        """{(database, key): (type, encoding, expiry, digest)}"""
        client, data = server.control, {}
        for db in range(3):
            client.call("SELECT", db)
            names = sorted(name for _, name in client.call("KEYS", "*")[1])
            if not names:
                continue
            asked = [words for name in names for words in (("TYPE", name), ("OBJECT", "ENCODING", name),
                                                           ("PEXPIRETIME", name), ("DEBUG", "DIGEST-VALUE", name))]
            client.send(b"".join(request(*words) for words in asked))
            for name in names:
                kind, encoding, expiry, digest = (parse(client.reply())[1] for _ in range(4))
                # Of a list the encoding depends on how it was cut into nodes; of what was sorted, and of texts, see
                # README.md.
                data[db, name] = (kind, encoding if kind != b"list" and encoding not in (b"raw", b"embstr")
                                  and not name.startswith(b"s") else None, expiry, digest)
        client.call("SELECT", 0)
        return data

    # Reducing

    def difference(self, steps):
        try:
            self.run(steps)
        except Difference as difference:
            return difference
        return None

    def reduce(self, steps, difference, seconds):
        """The fewest steps, and words, that show a difference of the same kind."""
        until = time.time() + seconds

        def still(fewer):
            nonlocal difference
            if time.time() > until:
                return False
            found = self.difference(fewer)
            if found and found.kind == difference.kind:
                difference = found
                return True
            return False

        def thin(items, rebuild):
            size = max(len(items) // 2, 1)
            while items:
                at = 0
                while at < len(items):
                    fewer = items[:at] + items[at + size:]
                    if still(rebuild(fewer)):
                        items = fewer
                    else:
                        at += size
                if size == 1:
                    return items
                size = max(size // 2, 1)
            return items

        steps = thin(steps, lambda fewer: fewer)
        for i, (client, words) in enumerate(steps):
            if isinstance(words, list) and len(words) > 2 and words[0] != "#clock":
                rest = thin(words[1:], lambda fewer: steps[:i] + [(client, words[:1] + fewer)] + steps[i + 1:])
                steps[i] = (client, words[:1] + rest)
        return steps, difference
