"""acknowledged_objects.py: the clients of tests/crash/acknowledged whose histories linearizable.py checks.

    Worker       one request at a time: appends, counters, registers with exchange and comparison, queues, transactions
                 with messages. Follows redirections in a cluster
    Witness      stays with one server, also while it is frozen, cut off or replaced, and sends requests without waiting
                 for replies, on several connections. So there are requests that begin after another server has
                 acknowledged newer writes, and that the old one finds when it continues
    Blocker      the same with blocking commands, on several connections
    Subscriber   gets the messages of one server
    Exporter     copies keys to a server outside by MIGRATE, and looks there

In calm rounds, witnesses only read and blockers rest: a write at a server that was replaced waits for ever, and so does
each reply behind it.

One queue of a round is empty for LATE seconds: a server that is cut off before has nothing to give, and must not say
that there is nothing.

Each round has objects of its own. A name is KIND:ROUND:NUMBER, in a cluster {TAG}KIND:ROUND."""
import collections
import random
import select
import threading
import time
import traceback

from acknowledged_check import SEEN
from acknowledged_cluster import TAGS
from resp import Client, Error

OBJECTS = {"list": 3, "count": 2, "cell": 3, "queue": 3}
CLIENT_TIMEOUT, PIPES, RESERVED, PIPELINE, BLOCKED = 8, 5, 3, 50, 8
LATE = 1.5


def object_names(kind, number, cluster):
    """The objects of a round. In a cluster they have half of the tags, in turn."""
    return [f"{{{tag}}}{kind}:{number}" for tag in TAGS[number % 2::2]] if cluster else \
        [f"{kind}:{number}:{index}" for index in range(OBJECTS[kind])]


def shard_channel(tag):
    return f"{{{tag}}}objects"


def read_request(kind, name):
    return ("LRANGE", name, 0, -1) if kind in ("list", "queue") else ("GET", name)


def read_name(kind):
    return "range" if kind in ("list", "queue") else "get"


def value_of(kind, reply):
    """The value of an object that a read has returned."""
    if kind in ("list", "queue"):
        return tuple(item.decode() for item in reply)
    if kind == "count":
        return int(reply or 0)
    return reply and reply.decode()


def readable(sockets, seconds):
    """The descriptors of those that can be read."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(seconds * 1000)}


def fails(reply):
    return isinstance(reply, Error) or (isinstance(reply, list) and any(isinstance(one, Error) for one in reply))


class Actor(threading.Thread):
    """A client that pauses between two rounds."""

    def __init__(self, era, name):
        super().__init__(daemon=True)
        self.era, self.group, self.label, self.values, self.connections = era, era.group, name, 0, 0
        self.ending, self.pause, self.idle, self.trouble = False, threading.Event(), threading.Event(), None
        self.rng = random.Random(f"{era.options.seed}/{era.number}/{name}")

    def run(self):
        try:
            while not self.ending:
                if self.pause.is_set():
                    self.rest()
                    self.idle.set()
                    time.sleep(0.02)
                    continue
                self.idle.clear()
                self.step()
        except Exception:
            self.trouble = traceback.format_exc()
        self.idle.set()

    def rest(self):
        """The round ends."""

    def step(self):
        raise NotImplementedError

    def value(self):
        self.values += 1
        return f"{self.label}.{self.values}"

    def object(self, *weighted):
        """A kind and a name."""
        kind = self.rng.choice(weighted)
        return kind, self.rng.choice(object_names(kind, self.era.round_number, self.era.options.cluster))

    def connect(self, server, timeout=CLIENT_TIMEOUT):
        self.connections += 1
        return Client(self.group.client_port(server, self.rng.random() < 0.3), timeout=timeout)


class Worker(Actor):
    def __init__(self, era, number):
        super().__init__(era, f"worker{number}")
        self.patience = 0.4 if number else CLIENT_TIMEOUT  # so that most find the successor of a frozen server soon
        self.clients, self.owners, self.target, self.left, self.publisher = {}, {}, 0, 0, {}

    def client(self, server, readonly=False):
        if (server, readonly) not in self.clients:
            client = self.connect(server, self.patience)
            self.clients[server, readonly] = client
            self.publisher[server] = [f"{self.label}/{self.connections}", 0]
            if readonly:
                client.call("READONLY")
        return self.clients[server, readonly]

    def drop(self, server):
        for readonly in (False, True):
            if (server, readonly) in self.clients:
                self.clients.pop((server, readonly)).close()
        self.owners = {tag: owner for tag, owner in self.owners.items() if owner != server}

    def server_for(self, name):
        if self.era.options.cluster:
            return self.owners.get(name[1], self.rng.randrange(len(self.group.servers)))
        if self.left <= 0:
            self.left = self.rng.choice([30, 100, 300])
            self.target = self.group.primary if self.rng.random() < 0.7 else self.rng.randrange(len(self.group.servers))
        self.left -= 1
        return self.target

    def step(self):
        kind, name = self.object("list", "list", "count", "cell", "queue", "queue")
        server = self.server_for(name)
        try:
            if self.operation(server, kind, name):
                if self.era.options.cluster:
                    self.owners.setdefault(name[1], server)
            else:
                self.left = 0
                time.sleep(0.03)
        except OSError:
            self.drop(server)
            self.left = 0
            time.sleep(0.03)
        time.sleep(0.004)

    def call(self, server, name, *requests, replies=1):
        """Sends requests, and returns the last replies: a list if there are several. A redirection by -ASK is followed
        if there is one request."""
        client = self.client(server)
        try:
            client.send(*requests)
            got = [client.read() for _ in requests][-replies:]
        except OSError:
            self.drop(server)
            raise
        if isinstance(got[0], Error) and self.era.options.cluster:
            words = got[0].split()
            if words[0] == "MOVED":
                self.owners[name[1]] = self.group.number_of(int(words[2].rpartition(":")[2]))
            elif words[0] == "ASK" and len(requests) == 1:
                server = self.group.number_of(int(words[2].rpartition(":")[2]))
                client = self.client(server)
                try:
                    client.send(("ASKING",), requests[0])
                    got = [client.read(), client.read()][1:]
                except OSError:
                    self.drop(server)
                    raise
            elif words[0] in ("CLUSTERDOWN", "MASTERDOWN", "LOADING"):
                self.owners.pop(name[1], None)
        return got if replies > 1 else got[0]

    def record(self, server, name, operation, argument, result, *requests):
        """An operation whose last reply is for `result`."""
        histories = self.era.objects
        token = histories.begin(server, name, operation, argument)
        try:
            reply = self.call(server, name, *requests)
        except OSError:
            histories.lost(token)
            raise
        if fails(reply) or (reply is None and requests[-1][0] == "EXEC"):
            histories.refused(token)
            return False
        histories.end(token, result(reply))
        return True

    def operation(self, server, kind, name):
        """False: refused."""
        choice, value = self.rng.random(), self.value()
        if choice < 0.4:
            return self.read(server, kind, name)
        if kind == "count":
            return self.record(server, name, "incr", None, int, ("INCR", name))
        if kind == "cell" and choice < 0.55:
            return self.compare(server, name, value)
        if kind == "cell" and choice < 0.7:
            return self.record(server, name, "getset", value, lambda reply: reply and reply.decode(),
                               ("SET", name, value, "GET"))
        if kind == "cell":
            return self.record(server, name, "set", value, str, ("SET", name, value))
        if kind == "queue" and choice < 0.5:
            return self.record(server, name, "pop", None, lambda reply: reply and reply.decode(), ("LPOP", name))
        if kind == "list" and choice < 0.7:
            return self.announce(server, name, value, choice < 0.55)
        if name == self.era.late_queue and time.monotonic() < self.era.round_began + LATE:
            return self.read(server, kind, name)
        return self.record(server, name, "push", value, int, ("RPUSH", name, value))

    def announce(self, server, name, value, transaction):
        """Appends and sends a message that says so."""
        self.client(server)
        publisher = self.publisher[server]
        publisher[1] += 1
        push = ("RPUSH", name, value)
        publish = ("PUBLISH", "objects", f"{name} {value} {publisher[0]} {publisher[1]}")
        if self.era.options.cluster and self.rng.random() < 0.3:
            publish = ("SPUBLISH", shard_channel(name[1]), *publish[2:])
        if transaction:
            return self.record(server, name, "push", value, lambda reply: reply[0],
                               ("MULTI",), push, publish, ("EXEC",))
        histories = self.era.objects
        token = histories.begin(server, name, "push", value)
        try:
            replies = self.call(server, name, push, publish, replies=2)
        except OSError:
            histories.lost(token)
            histories.untrue.add(value)
            raise
        if isinstance(replies[0], Error):
            histories.refused(token)
            histories.untrue.add(value)
            return False
        histories.end(token, replies[0])
        return True

    def compare(self, server, name, value):
        """A transaction that replaces the value which was read."""
        client = self.client(server)
        if isinstance(client.call("WATCH", name), Error) or isinstance(before := client.call("GET", name), Error):
            return self.read(server, "cell", name)
        self.record(server, name, "cas", (before and before.decode(), value), lambda reply: str(reply[0]),
                    ("MULTI",), ("SET", name, value), ("EXEC",))
        return True

    def read(self, server, kind, name):
        histories = self.era.objects
        if self.era.options.cluster and self.rng.random() < 0.8:
            return self.record(server, name, read_name(kind), None, lambda reply: value_of(kind, reply),
                               read_request(kind, name))
        readonly = self.era.options.cluster
        if readonly and self.rng.random() < 0.7:
            server = self.rng.randrange(len(self.group.servers))
        client = self.client(server, readonly)
        token = histories.begin(server, name, read_name(kind))
        form = READ_FORMS[not readonly and self.rng.random() < 0.7]
        try:
            client.send(*form[0](read_request(kind, name)))
            role, reply = form[1]([client.read() for _ in range(form[2])])
        except OSError:
            histories.lost(token)
            self.drop(server)
            raise
        return record_read(histories, token, kind, role, reply)


def record_read(histories, token, kind, role, reply):
    if fails(reply) or role is None:
        histories.refused(token)
        return False
    if role == b"master":
        histories.end(token, value_of(kind, reply))
    else:
        histories.shown(token, value_of(kind, reply))
    return True


def role_around(replies):
    """The role before and after a read; None if it has changed."""
    before, reply, after = replies
    return (before[0], reply) if not fails(before) and not fails(after) and before[0] == after[0] else (None, reply)


def role_within(replies):
    got = replies[3]
    return (got[0][0], got[1]) if isinstance(got, list) and not fails(got) else (None, None)


READ_FORMS = [  # requests, (role, reply) from replies, and their number
    (lambda words: [("MULTI",), ("ROLE",), words, ("EXEC",)], role_within, 4),
    (lambda words: [("ROLE",), words, ("ROLE",)], role_around, 3),
]


class Pipe:
    """A connection of a Witness, and a thread that reads its replies."""

    def __init__(self, client, histories, readonly=False):
        self.client, self.histories, self.outstanding, self.broken = client, histories, collections.deque(), False
        self.readonly = readonly and not isinstance(client.call("READONLY"), Error)
        client.socket.settimeout(None)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def send(self, requests, token, done):
        """done(replies) ends the operation."""
        self.outstanding.append((token, len(requests), done))
        try:
            self.client.send(*requests)
        except OSError:
            self.broken = True

    def read(self):
        try:
            while not self.broken:
                replies = [self.client.read()]
                _, number, done = self.outstanding[0]
                while len(replies) < number:
                    replies.append(self.client.read())
                self.outstanding.popleft()
                done(replies)
        except (OSError, ValueError):
            self.broken = True

    def close(self):
        self.broken = True
        try:
            self.client.socket.shutdown(2)
        except OSError:
            pass
        self.thread.join(CLIENT_TIMEOUT)
        self.client.close()
        for token, _, _ in self.outstanding:
            self.histories.lost(token)


class Witness(Actor):
    """Several connections: a server that holds the reply to a request reads no further ones of this connection.

    Some more are kept for a freeze of the server. What they send when it is frozen is executed first when it continues,
    and together with what they send at the end of the freeze."""

    def __init__(self, era, server):
        super().__init__(era, f"witness{server}")
        self.server, self.pipes, self.reserved = server, [], []

    def rest(self):
        end = time.monotonic() + 3
        pipes, self.pipes, self.reserved = self.pipes + self.reserved, [], []
        while any(pipe.outstanding and not pipe.broken for pipe in pipes) and time.monotonic() < end:
            time.sleep(0.01)
        for pipe in pipes:
            pipe.close()

    def before_freeze(self):
        if len(self.reserved) > 4 * RESERVED:
            return
        try:
            for _ in range(RESERVED):
                client = self.connect(self.server, 1)
                client.call("PING")
                self.reserved.append(Pipe(client, self.era.objects))
        except OSError:
            pass

    def begin_freeze(self):
        for pipe in self.reserved:
            pipe.send([("PING",)], None, lambda replies: None)

    def end_freeze(self):
        for pipe in self.reserved:
            for _ in range(4):
                self.request(pipe, False)

    def step(self):
        for pipe in [pipe for pipe in self.pipes if pipe.broken]:
            pipe.close()
            self.pipes.remove(pipe)
        if len(self.pipes) < PIPES:
            try:
                self.pipes.append(Pipe(self.connect(self.server), self.era.objects,
                                       self.era.options.cluster and self.rng.random() < 0.5))
            except OSError:
                time.sleep(0.1)
        if self.pipes:
            pipe = self.rng.choice(self.pipes)
            if len(pipe.outstanding) < PIPELINE:
                self.request(pipe)
        time.sleep(self.rng.choice([0.005, 0.03, 0.05]) * (2 if self.era.options.cluster else 1))

    def request(self, pipe, writes=True):
        histories, choice = self.era.objects, self.rng.random()
        kind, name = self.object("list", "list", "list", "count", "cell", "queue")
        if choice < 0.1 and writes and not self.era.calm and not pipe.readonly and kind in ("list", "count"):
            value = self.value()
            words, operation, argument = (("RPUSH", name, value), "push", value) if kind == "list" else \
                (("INCR", name), "incr", None)
            token = histories.begin(self.server, name, operation, argument)
            pipe.send([words], token, lambda replies: histories.refused(token) if fails(replies[0]) else
                      histories.end(token, replies[0]))
            return
        token = histories.begin(self.server, name, read_name(kind))
        if self.era.options.cluster and not pipe.readonly:  # only the owner of the slot answers
            pipe.send([read_request(kind, name)], token,
                      lambda replies: record_read(histories, token, kind, b"master", replies[0]))
            return
        requests, result, _ = READ_FORMS[choice < 0.7 and not pipe.readonly]
        pipe.send(requests(read_request(kind, name)), token,
                  lambda replies: record_read(histories, token, kind, *result(replies)))


class Blocker(Actor):
    """BLPOP and BLMPOP with short timeouts. A connection whose reply is late is left waiting, and another one is
    used."""

    def __init__(self, era, server):
        super().__init__(era, f"blocker{server}")
        self.server, self.waiting, self.free, self.next = server, [], [], 0

    def rest(self):
        end = time.monotonic() + 3
        while self.waiting and time.monotonic() < end:
            self.collect(0.05)
        for client, token, _, _ in self.waiting:
            self.era.objects.lost(token)
            client.close()
        self.waiting = []

    def step(self):
        now = time.monotonic()
        if now >= self.next and not self.era.calm and len(self.waiting) < BLOCKED:
            self.next = now + self.rng.uniform(0.05, 0.4)
            try:
                client = self.free.pop() if self.free else self.connect(self.server)
                _, name = self.object("queue")
                name = self.era.late_queue if self.rng.random() < 0.3 else name
                timeout = self.rng.choice([0.1, 0.1, 0.3, 0.8])
                token = self.era.objects.begin(self.server, name, "pop")
                self.waiting.append((client, token, timeout, now))
                client.send(self.rng.choice([("BLPOP", name, timeout), ("BLMPOP", timeout, 1, name, "LEFT")]))
            except OSError:
                self.next = now + 0.2
        self.collect(0.02)

    def collect(self, seconds):
        if not self.waiting:
            time.sleep(seconds)
            return
        ready = readable([client.socket for client, _, _, _ in self.waiting], seconds)
        for entry in [entry for entry in self.waiting if entry[0].socket.fileno() in ready]:
            client, token, timeout, _ = entry
            self.waiting.remove(entry)
            try:
                reply = client.read()
            except OSError:
                self.era.objects.lost(token)
                client.close()
                continue
            self.free.append(client)
            if isinstance(reply, Error):
                self.era.objects.refused(token)
                self.next = time.monotonic() + 0.2
            elif reply is None:
                self.era.objects.end(token, None, not_before=timeout)
            else:
                value = reply[1][0] if isinstance(reply[1], list) else reply[1]
                self.era.objects.end(token, value.decode())


class Subscriber(threading.Thread):
    """Gets the messages of one server."""

    def __init__(self, era, number):
        super().__init__(daemon=True)
        self.era, self.number, self.ending, self.connections = era, number, False, 0

    def run(self):
        while not self.ending:
            try:
                with Client(self.era.group.client_port(self.number, self.number == 0), timeout=2) as client:
                    self.connections += 1
                    client.call("SUBSCRIBE", "written")
                    client.call("SUBSCRIBE", "objects")
                    for tag in TAGS if self.era.options.cluster else []:
                        client.call("SSUBSCRIBE", shard_channel(tag))  # refused where the tag is not
                    while not self.ending:
                        message = client.read()
                        if message[0] in (b"message", b"smessage"):
                            self.message(message[1], message[2].decode().split())
            except (OSError, TypeError):
                time.sleep(0.05)

    def message(self, channel, words):
        now, histories = time.monotonic(), self.era.objects
        if channel == b"written":
            self.era.history.add(SEEN, words[0], words[1], now, now)
        elif words[0].split(":")[1] == str(self.era.round_number):
            self.era.seen_messages += 1
            histories.seen(words[0], words[1], f"a message at server {self.number}")
            # The bus has an order of its own for messages to a shard.
            histories.message(f"subscriber {self.number}/{self.connections} to {channel.decode()}", words[2],
                              int(words[3]))


class Exporter(Actor):
    def __init__(self, era, outside):
        super().__init__(era, "exporter")
        self.outside, self.source, self.left = outside, None, 0

    def rest(self):
        if self.source:
            self.source.close()
            self.source = None

    def step(self):
        kind, name = self.object("list", "list", "cell")
        try:
            if not self.source or self.left <= 0:
                self.rest()
                self.source, self.left = self.connect(self.rng.choice([self.group.primary, self.rng.randrange(3)])), 50
            self.left -= 1
            self.source.send(("MIGRATE", "127.0.0.1", self.outside.port, name, 0, 1000, "COPY", "REPLACE"))
            for _ in range(20):
                ready = readable([self.source.socket], 0.1)
                self.look(kind, name)
                if ready:
                    if isinstance(self.source.read(), Error):
                        self.left = 0
                    break
            else:
                self.rest()
        except OSError:
            self.rest()
        time.sleep(0.05)

    def look(self, kind, name):
        reply = self.outside.call(*read_request(kind, name))
        if not isinstance(reply, Error) and reply:
            for value in (value_of(kind, reply) if kind == "list" else [value_of(kind, reply)]):
                self.era.objects.seen(name, value, "the server outside")
