"""servers.py: finds programs and the RDMA device, starts servers and waits, for the tests in Python.

    with Server(ours()) as server, Client(server.port) as client:
        client.call("SET", "key", "value")

    if rdma_device():
        with Server(ours(), rdma=True) as server: …

A server that a test has started is stopped when the test ends, also by SIGTERM or an exception."""
import atexit
import collections
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from random import SystemRandom

from resp import Client, Error

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCHER = os.path.join(ROOT, "utils", "softrdma", "softrdma")  # runs a command with the software RDMA device
PATIENCE = 60  # seconds; long enough for a loaded machine and sanitizers
STEP = 5  # seconds that one look at a condition takes at most
PORTS, PORTS_TRIED = (11000, 22000), 5


def executable(path):
    return path if os.access(path, os.X_OK) else None


def ours(name="valkey-server"):
    """A program of this project, or None if it is not built. VALKEY_OURS selects another server."""
    return executable((name == "valkey-server" and os.environ.get("VALKEY_OURS")) or os.path.join(ROOT, "src", name))


def genuine(name):
    """A genuine program, or None. The directory GENUINE_VALKEY (deps/genuine-valkey builds it) is searched first."""
    for directory in (os.environ.get("GENUINE_VALKEY", ""), "/usr/bin", "/usr/local/bin", "/bin"):
        path = os.path.join(directory, name)
        if directory and executable(path) and not os.path.realpath(path).startswith(ROOT + "/"):
            return path
    return None


NEWEST = (9, 1)  # what the comparisons of commands hold our server against


def newest_server():
    """(path, None) of a genuine valkey-server of 9.1 or newer, or (None, why there is none)."""
    path = genuine("valkey-server")
    if not path:
        return None, "no genuine valkey-server: build one with deps/genuine-valkey and set GENUINE_VALKEY"
    version = subprocess.run([path, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = [int(n) for n in version.partition("v=")[2].split(" ")[0].split(".")[:2] if n.isdigit()]
    if tuple(found) < NEWEST:
        return None, "%s is %s, and 9.1 is needed: set GENUINE_VALKEY" % (path, ".".join(map(str, found)))
    return path, None


def installed(name):
    """A program of the distribution, or None. GENUINE_VALKEY is not searched."""
    return executable(os.path.join("/usr/bin", name))


def rdma_device():
    """The command that runs a program with the software RDMA device: [launcher], or None if it is not built.

    Tests in Python use no other device: the genuine programs and the fault rules need this one."""
    library = os.path.join(os.path.dirname(LAUNCHER), "libsoftrdma.so")
    return [LAUNCHER] if executable(LAUNCHER) and os.access(library, os.R_OK) else None


last_ports = collections.deque(maxlen=500)


def free_port():
    """A free port below the range of outgoing connections, one of which could take it before the server does. A
    cluster node adds 10,000 to it for the port of its bus. It is none of the last ports: their servers may start
    later."""
    while True:
        port = SystemRandom().randrange(*PORTS)
        if port in last_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                last_ports.append(port)
                return port
            except OSError:
                pass


def until(condition, seconds=PATIENCE):
    """Calls `condition` until it returns a true value and returns that, or None after the timeout. A broken
    connection counts as false. While the machine or this process is stopped, the timeout stops, too; it is multiplied
    by the number of processes that want a CPU, for each CPU."""
    last = time.monotonic()
    seconds *= min(8, max(1, os.getloadavg()[0] / os.cpu_count()))
    while seconds > 0:
        try:
            found = condition()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.01)
        now = time.monotonic()
        seconds -= min(now - last, STEP)
        last = now
    return None


def wait_for(what, condition, seconds=PATIENCE):
    """Like until(), but raises AssertionError with the text `what` after the timeout."""
    found = until(condition, seconds)
    if not found:
        raise AssertionError("did not happen within %d s: %s" % (seconds, what))
    return found


def info_fields(text):
    """The fields of an INFO reply; none if the server replied with an error, for example while it loads."""
    return dict(line.split(":", 1) for line in text.decode().splitlines()
                if ":" in line) if isinstance(text, bytes) else {}


class Server:
    """A server process, its port and its directory. The constructor returns when the server executes commands.

    program         a path, or a list: a command that runs the server (["taskset", "-c", "0", path])
    arguments       options; "{port}" in them is replaced by the port
    rdma            the server has the software RDMA device and also listens for RDMA on the same port
    directory       where it works; None: a temporary one that stop() removes
    files           paths of files or directories that are copied there before the start
    configuration   lines of a configuration file, which the server may rewrite. None: no file and `save ""`
    environment     variables in addition to those of the test
    start           False: the caller calls launch() or start()

    `process` is the Popen object, `command` the command line, `dir` the directory. The output of all starts is
    appended
    to `log`, a path."""

    running = set()

    def __init__(self, program, *arguments, rdma=False, directory=None, files=(), configuration=None, environment=None,
                 start=True):
        self.program = [program] if isinstance(program, str) else list(program)
        if None in self.program:
            raise RuntimeError("the server is not built: run make")
        self.arguments, self.rdma, self.configuration = arguments, rdma, configuration
        self.environment = dict(os.environ, **(environment or {}))
        self.dir, self.temporary = directory or tempfile.mkdtemp(prefix="valkey-test."), not directory
        self.log, self.log_start = os.path.join(self.dir, "log"), 0
        self.process, self.command, self.port = None, [], free_port()
        Server.running.add(self)
        try:
            for path in files:
                target = os.path.join(self.dir, os.path.basename(path))
                (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, target)
            if start:
                self.start()
        except BaseException:
            self.stop()
            raise

    def command_line(self):
        options = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.dir]
        if self.configuration is not None:
            options = [os.path.join(self.dir, "server.conf"), *options]
            if not os.path.exists(options[0]):
                with open(options[0], "w") as file:
                    file.write("\n".join(self.configuration) + "\n")
        else:
            options += ["--save", ""]
        if self.rdma:
            options += ["--rdma-bind", "127.0.0.1", "--rdma-port", self.port]
        options += [argument.replace("{port}", str(self.port)) if isinstance(argument, str) else argument
                    for argument in self.arguments]
        return [str(word) for word in (rdma_device() if self.rdma else []) + self.program + options]

    def launch(self):
        """Starts the process without waiting for it."""
        self.log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.command = self.command_line()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.dir,
                                            env=self.environment)

    def start(self, seconds=PATIENCE):
        """Starts the process, with the same port and directory as before, and waits until it executes commands."""
        first = self.process is None
        for _ in range(PORTS_TRIED):
            self.launch()
            if until(lambda: not self.alive() or self.answers(), seconds) and self.alive():
                return
            # Another process may have taken the port meanwhile.
            if self.alive() or not first or "in use" not in self.output():
                break
            self.port = free_port()
        raise RuntimeError("%s did not start: %s" % (self.program[-1], self.output()))

    def answers(self):
        """True: the server executes commands. It does not while it loads its data. A password error counts as true."""
        with Client(self.port) as client:
            reply = client.call("PING")
        return not isinstance(reply, Error) or not reply.startswith(("LOADING", "MASTERDOWN"))

    def call(self, *words, timeout=20):
        """Executes one command on a new connection."""
        with Client(self.port, timeout=timeout) as client:
            return client.call(*words)

    def has_append_only_file(self):
        """True: the append-only file is complete. The first file is written by a child."""
        info = self.info("persistence")
        return info.get("aof_enabled") == "1" and info.get("aof_rewrite_in_progress") == "0" == info.get(
            "aof_rewrite_scheduled") and info.get("aof_last_bgrewrite_status") == "ok"

    def info(self, section="default"):
        return info_fields(self.call("INFO", section))

    def output(self, last=3000):
        """The last output since the last start; None: all of it."""
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            text = log.read().decode("latin-1")
        return text[-last:] if last else text

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Kills the server with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=15):
        """Stops the server with SIGTERM, or with SIGKILL if that takes too long. Returns its exit status."""
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.temporary:
            shutil.rmtree(self.dir, ignore_errors=True)
        Server.running.discard(self)
        return self.process.returncode if self.process else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Proxy:
    """valkey-rdma-proxy on the software device, in front of the RDMA listener of a port, and its own `port`."""

    def __init__(self, server_port, environment=None):
        self.output = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [*(rdma_device() or [None]), ours("valkey-rdma-proxy"), "--server", "127.0.0.1:%d" % server_port,
             "--listen", "0"], stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
            env=dict(os.environ, **(environment or {})))
        Server.running.add(self)
        self.port = int(wait_for("the proxy listens", self.ready).group(1))

    def ready(self):
        return re.search(rb"^ready 127\.0\.0\.1:(\d+)", os.pread(self.output.fileno(), 100000, 0), re.MULTILINE)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.output.close()
        Server.running.discard(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@atexit.register
def stop_all():
    for server in list(Server.running):
        server.stop()


signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
