"""What the interoperability tests share: servers to start, a RESP client, and the counting of results.

Every test program prints one line a result and ends with "N passed, N failed[, N skipped]"; what cannot run says why.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, ok, detail=""):
        if ok:
            self.passed += 1
            if os.environ.get("VERBOSE"):
                print("[ok] " + name)
        else:
            self.failed += 1
            print("[failed] %s%s" % (name, ": " + str(detail)[:2000] if detail else ""))
        sys.stdout.flush()
        return ok

    def equal(self, name, want, got):
        return self.check(name, want == got, "expected %r, got %r" % (want, got))

    def skip(self, name, reason):
        self.skipped += 1
        print("[skipped] %s: %s" % (name, reason))
        sys.stdout.flush()

    def missing(self, name, reason):
        """A peer is not there. That is a failure where all of them must be: CI sets CI_REQUIRE_PEERS=yes."""
        if os.environ.get("CI_REQUIRE_PEERS") == "yes":
            self.check(name, False, reason)
        else:
            self.skip(name, reason)

    def finish(self):
        line = "%d passed, %d failed" % (self.passed, self.failed)
        if self.skipped:
            line += ", %d skipped" % self.skipped
        print(line)
        sys.exit(1 if self.failed or not (self.passed or self.skipped) else 0)


def ours(name="valkey-server"):
    """A program of this project, or None when it is not built."""
    path = os.environ.get("VALKEY_OURS") if name == "valkey-server" else None
    path = path or os.path.join(ROOT, "src", name)
    return path if os.access(path, os.X_OK) else None


def genuine(name):
    """A genuine program, or None. Those in the directory GENUINE_VALKEY (deps/genuine-valkey builds them) come before the distribution's."""
    for directory in (os.environ.get("GENUINE_VALKEY", ""), "/usr/bin", "/usr/local/bin", "/bin"):
        path = os.path.join(directory, name)
        if directory and os.access(path, os.X_OK) and not os.path.realpath(path).startswith(ROOT + "/"):
            return path
    return None


def genuine_server():
    """The newest genuine server: of GENUINE_VALKEY, then the distribution's Valkey, then its Redis. None: there is none."""
    return genuine("valkey-server") or genuine("redis-server")


NEWEST = (9, 1)  # what the comparisons of commands hold our server against


def newest_server():
    """(path, None) of a genuine valkey-server of 9.1 or newer, or (None, why there is none)."""
    path = genuine("valkey-server")
    if not path:
        return None, "no genuine valkey-server: build one with deps/genuine-valkey and set GENUINE_VALKEY"
    version = run(path, "--version")[1]
    found = [int(n) for n in version.partition("v=")[2].split(" ")[0].split(".")[:2] if n.isdigit()]
    if tuple(found) < NEWEST:
        return None, "%s is %s, and 9.1 is needed: set GENUINE_VALKEY" % (path, ".".join(map(str, found)))
    return path, None


def installed(name):
    """A program of the distribution, whatever GENUINE_VALKEY has, or None."""
    path = os.path.join("/usr/bin", name)
    return path if os.access(path, os.X_OK) else None


def free_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    return port


class Server:
    """A running server in a directory of its own. Use it as a context, or call stop()."""

    def __init__(self, binary, *args, launcher=None):
        """With a launcher of a software RDMA device, rdma-port is that of TCP."""
        self.binary = binary
        self.dir = tempfile.mkdtemp(prefix="interop.")
        for attempt in range(5):
            self.port = free_port()
            self.log = open(os.path.join(self.dir, "log"), "wb")
            command = [launcher, binary, "--rdma-port", str(self.port)] if launcher else [binary]
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir, *args],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.dir)
            if self._up():
                return
            self.process.kill()
            self.process.wait()
        text = self.output()
        self.stop()
        raise RuntimeError("%s did not start: %s" % (binary, text))

    def _up(self):
        end = time.time() + 20
        while time.time() < end and self.process.poll() is None:
            try:
                c = Client(self.port, timeout=5)
                c.call("PING")
                c.close()
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def output(self, last=3000):
        with open(os.path.join(self.dir, "log"), "rb") as f:
            return f.read().decode("latin-1")[-last:]

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


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


class Closed(OSError):
    pass


class Client:
    """A RESP2/RESP3 client. Replies keep their types: bytes, int, float, None, bool, list and the classes above."""

    def __init__(self, port, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def send_raw(self, data):
        self.socket.sendall(data)

    @staticmethod
    def encode(*words):
        out = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            out.append(b"$%d\r\n%s\r\n" % (len(word), word))
        return b"".join(out)

    def call(self, *words):
        self.send_raw(self.encode(*words))
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
            n = int(rest)
            if n < 0:
                return None
            data = self.file.read(n + 2)[:-2]
            return Error(data.decode("latin-1")) if kind == b"!" else data
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

    def close(self):
        self.file.close()
        self.socket.close()


def run(*argv, data=None, timeout=60, cwd=None):
    """Runs a program to its end: (exit code, standard output, standard error), as text."""
    stdin = {"input": data.encode() if isinstance(data, str) else data} if data is not None else {"stdin": subprocess.DEVNULL}
    try:
        p = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, cwd=cwd, **stdin)
    except subprocess.TimeoutExpired as e:
        return "timeout", (e.stdout or b"").decode("latin-1"), (e.stderr or b"").decode("latin-1")
    return p.returncode, p.stdout.decode("latin-1"), p.stderr.decode("latin-1")
