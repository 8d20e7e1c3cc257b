"""The two servers of a comparison: they have the same options and one stopped clock (steady_clock.c). One connection to
each receives what it propagates to replicas, another its keyspace events."""
import mmap
import os
import select
import socket
import struct
import subprocess
import time

import common
from common import request

HERE = os.path.dirname(os.path.abspath(__file__))
EPOCH_MS = 1800000000000
PATIENCE = 20  # seconds for an answer, on a slow machine


class Clock:
    """The wall clock of all servers of this process, in milliseconds."""

    def __init__(self, directory):
        self.path, self.library = os.path.join(directory, "clock"), os.path.join(directory, "steady_clock.so")
        with open(self.path, "wb") as file:
            file.write(bytes(8))
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 8)
        self.set(EPOCH_MS)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, os.path.join(HERE, "steady_clock.c"),
                        "-ldl"], check=True)

    def set(self, ms):
        self.ms = ms
        self.page[:] = struct.pack("<q", ms * 1000)

    def environment(self):
        asan = os.environ.get("ASAN_OPTIONS", "")
        return {"LD_PRELOAD": self.library, "STEADY_CLOCK": self.path,
                "ASAN_OPTIONS": (asan + ":" if asan else "") + "verify_asan_link_order=0"}


class Connection:
    """What came is in self.buffer from self.at on."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.at = b"", 0

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            raise TimeoutError("port %d sends nothing more behind %r" % (self.socket.getpeername()[1],
                                                                         self.buffer[self.at:][-200:]))
        if not data:
            raise EOFError("the server closed the connection")
        self.buffer = self.buffer[self.at:] + data
        self.at = 0

    def take(self):
        """All that has come and is not read."""
        data, self.buffer, self.at = self.buffer[self.at:], b"", 0
        return data

    def drain(self):
        """What has arrived by now."""
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(1 << 20)
            if not data:
                return self.take() + b"<closed>"
            self.buffer += data
        return self.take()

    def reply_end(self, at):
        """Where the reply that starts at `at` ends, -1: it is not all there."""
        buffer, left = self.buffer, 1
        while left:
            end = buffer.find(b"\r\n", at)
            if end < 0:
                return -1
            kind = buffer[at]
            left -= 1
            if kind in b"$=!":
                size = int(buffer[at + 1:end])
                at = end + 2 + (size + 2 if size >= 0 else 0)
                if at > len(buffer):
                    return -1
            else:
                if kind in b"*~>":
                    left += max(int(buffer[at + 1:end]), 0)
                elif kind in b"%|":
                    left += 2 * int(buffer[at + 1:end]) + (kind == 0x7c)
                elif kind not in b"+-:,#_(":
                    raise ValueError("not RESP: %r" % buffer[at:at + 60])
                at = end + 2
        return at

    def reply(self):
        """The bytes of the next reply."""
        while True:
            end = self.reply_end(self.at)
            if end >= 0:
                break
            self.receive()
        data = self.buffer[self.at:end]
        self.at = end
        return data

    def call(self, *words):
        self.send(request(*words))
        return parse(self.reply())


def parse_at(data, at):
    end = data.index(b"\r\n", at)
    kind, rest = chr(data[at]), data[at + 1:end]
    at = end + 2
    if kind in "$=!":
        size = int(rest)
        return ((kind, None), at) if size < 0 else ((kind, data[at:at + size]), at + size + 2)
    if kind in "*~>%|":
        count = int(rest)
        if count < 0:
            return (kind, None), at
        items = []
        for _ in range(count * (2 if kind in "%|" else 1)):
            item, at = parse_at(data, at)
            items.append(item)
        return (kind, items), at
    return (kind, rest), at


def parse(data):
    """A reply as (kind, value), so that different kinds never compare equal."""
    return parse_at(data, 0)[0]


def parse_all(data):
    at, replies = 0, []
    while at < len(data):
        reply, at = parse_at(data, at)
        replies.append(reply)
    return replies


class Server(common.Server):
    """A server and its clients: `stream` receives what is propagated to replicas, `events` the keyspace events."""

    CLIENTS = 4

    def __init__(self, name, program, clock, arguments=(), as_replica=False):
        """as_replica: `stream` is a replica, also of our own server."""
        self.name, self.clock, self.as_replica = name, clock, as_replica
        self.clients, self.defaults, self.control = [], {}, None
        super().__init__(program, "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--repl-timeout",
                         "1000000000", "--repl-ping-replica-period", "100000000", *arguments,
                         environment=clock.environment())

    def start(self):
        super().start()
        self.marker = 0
        self.control = Connection(self.port)
        self.control.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        self.stream = self.attach_stream()
        self.events = Connection(self.port)
        self.events.call("SUBSCRIBE", "__mark")
        self.events.call("PSUBSCRIBE", "__key*__:*")
        self.own = self.control.call("CLIENT", "LIST")[1].count(b"\n")

    def attach_stream(self):
        connection = Connection(self.port)
        if not self.as_replica and connection.call("DEBUG", "FOLLOW")[0] == "+":
            return connection
        connection.close()
        connection = Connection(self.port)
        connection.send(b"PSYNC ? -1\r\n")
        file = connection.socket.makefile("rb")  # the primary sends nothing behind the snapshot unasked
        line = file.readline()
        while line == b"\n":
            line = file.readline()
        if not line.startswith(b"+FULLRESYNC"):
            raise RuntimeError("%s refuses replicas: %r" % (self.name, line))
        while not line.startswith(b"$"):
            line = file.readline()
        size = line[1:].strip()
        if size.startswith(b"EOF:"):
            data = b""
            while not data.endswith(size[4:]):
                data += file.read(1)
        else:
            file.read(int(size))
        connection.send(request("REPLCONF", "ACK", "0"))
        return connection

    def restart(self):
        self.close_clients()
        self.process.terminate()
        self.process.wait()
        self.start()

    def reset(self, options):
        """As after a start, with clients of no history. `options` may have been changed."""
        for client in self.clients:
            client.close()
        while self.control.call("CLIENT", "LIST")[1].count(b"\n") > self.own:
            time.sleep(0.0005)
        for name in options:
            if name not in self.defaults:
                found = self.control.call("CONFIG", "GET", name)[1]
                self.defaults[name] = found[1][1] if len(found) == 2 else None
        words = [word for name in options if self.defaults[name] is not None for word in (name, self.defaults[name])]
        if words:
            self.control.call("CONFIG", "SET", *words)
        self.control.call("FLUSHALL")
        self.clock.set(EPOCH_MS)
        self.see_clock()
        self.control.call("CONFIG", "SET", "notify-keyspace-events", "EAmn")
        self.clients = [Connection(self.port) for _ in range(self.CLIENTS)]
        self.ids = [client.call("CLIENT", "ID")[1] for client in self.clients]
        self.listen()
        self.control.call("CONFIG", "RESETSTAT")

    def clients_state(self, fields):
        """{client's number: {field: value}}"""
        state = {}
        for line in self.control.call("CLIENT", "LIST", "ID", *self.ids)[1].split(b"\n"):
            words = dict(word.split(b"=", 1) for word in line.split(b" ") if word)
            if words:
                if words[b"multi"] == b"0" and b"x" not in words[b"flags"]:
                    words[b"multi"] = b"-1"  # a genuine server tells 0 once a client has had a transaction
                state[self.ids.index(words[b"id"])] = {name: words.get(name) for name in fields}
        return state

    def see_clock(self):
        """The server reads the clock. A genuine one does so at most once in a millisecond of its real, monotonic
        clock."""
        time.sleep(0.002)
        self.control.call("PING")

    def listen(self):
        """What was repeated and told since the last time: raw bytes."""
        self.marker += 1
        mark = b"m%d" % self.marker
        self.control.call("PUBLISH", "__mark", mark)
        ends = (request("PUBLISH", "__mark", mark), b"*3\r\n$7\r\nmessage\r\n$6\r\n__mark\r\n$%d\r\n%s\r\n"
                % (len(mark), mark))
        heard = []
        for ear, end in zip((self.stream, self.events), ends):
            while not ear.buffer.endswith(end):
                ear.receive()
            heard.append(ear.take()[:-len(end)])
        if self.as_replica:  # a primary pings its replicas when it likes
            heard[0] = heard[0].replace(b"*1\r\n$4\r\nping\r\n", b"").replace(b"*1\r\n$4\r\nPING\r\n", b"")
        return heard

    def close_clients(self):
        for connection in self.clients + ([self.control] if self.control else []):
            connection.close()
        self.clients, self.control = [], None

    def stop(self):
        self.close_clients()
        super().stop()
