"""resp.py: a RESP2 and RESP3 client for the tests in Python."""
import socket


class Error(str):
    """An error reply."""


class Status(str):
    """A simple string."""


class Map(list):
    """A RESP3 map, as its pairs in order."""


class Set(list):
    """A RESP3 set."""


class Push(list):
    """A RESP3 push message."""


class Closed(ConnectionError):
    """The server has closed the connection."""


def request(*words):
    """The bytes of a request. An argument that is not of type bytes is sent as its text."""
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)


class Client:
    """Replies have Python types: bytes, int, float, None, bool, list and the classes above. Error replies are
    returned,
    not raised. A timeout, in seconds, raises socket.timeout."""

    encode = staticmethod(request)

    def __init__(self, port, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def send_raw(self, data):
        self.socket.sendall(data)

    def send(self, *commands):
        """Sends several requests together; the caller reads each reply with read()."""
        self.send_raw(b"".join(request(*words) for words in commands))

    def call(self, *words):
        self.send_raw(request(*words))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Closed("connection closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Status(rest.decode("latin-1"))
        if kind == b"-":
            return Error(rest.decode("latin-1"))
        if kind in (b":", b"("):
            return int(rest)
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"_":
            return None
        if kind in (b"$", b"=", b"!"):
            return self.read_bulk(kind, int(rest))
        n = int(rest)
        if n < 0:
            return None
        if kind == b"*":
            return [self.read() for _ in range(n)]
        if kind == b"~":
            return Set(self.read() for _ in range(n))
        if kind == b">":
            return Push(self.read() for _ in range(n))
        if kind == b"%":
            return Map((self.read(), self.read()) for _ in range(n))
        raise ValueError("not RESP: %r" % line)

    def read_bulk(self, kind, size):
        if size < 0:
            return None
        data = self.file.read(size + 2)
        if len(data) < size + 2:
            raise Closed("connection closed in a reply")
        return Error(data[:-2].decode("latin-1")) if kind == b"!" else data[:-2]

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
