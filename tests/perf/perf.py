"""What the programs of tests/perf share: servers that are pinned and always stopped, and what must stand beside a figure."""
import atexit
import os
import platform
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAUNCHER = os.path.join(ROOT, "utils", "softrdma", "softrdma")
ours = lambda name: os.path.join(ROOT, "src", name)
median = statistics.median


def pinned(core, command):
    return command if core is None else ["taskset", "-c", str(core)] + command


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def version(program):
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode(errors="replace")
    return text.strip().split("\n")[0]


def describe_machine(out=sys.stdout):
    model = "unknown CPU"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    print("machine: %s, %d CPUs, %s %s, load before %.2f" % (model, os.cpu_count(), platform.system(), platform.release(), os.getloadavg()[0]), file=out)


class Server:
    """A server in a directory of its own, stopped when the program ends, however it ends."""
    running = []

    def __init__(self, name, command, core=None, arguments=()):
        self.name, self.port = name, free_port()
        self.directory = tempfile.mkdtemp(prefix="perf.")
        self.command = pinned(core, command + ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.directory]
                              + [argument.format(port=self.port) for argument in arguments])
        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        Server.running.append(self)
        end = time.time() + 10
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                self.file = self.socket.makefile("rb")
                self.call("PING")
                return
            except (OSError, EOFError):
                if time.time() > end or self.process.poll() is not None:
                    raise SystemExit("%s did not start: %s\n%s" % (name, shlex.join(self.command), open(self.log.name).read()[-2000:]))
                time.sleep(0.05)

    def read(self):
        line = self.file.readline()
        if not line:
            raise EOFError("%s closed the connection" % self.name)
        if line[:1] == b"-":
            raise RuntimeError("%s: %s" % (self.name, line.decode().strip()))
        if line[:1] in b"$=" and int(line[1:]) >= 0:
            return self.file.read(int(line[1:]) + 2)[:-2]
        return line[1:-2]

    def call(self, *words):
        self.socket.sendall(request(*words))
        return self.read()

    def info(self, section):
        lines = self.call("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_seconds(self):
        """User and system time of the server process until now (taskset and the launcher have become it)."""
        fields = open("/proc/%d/stat" % self.process.pid).read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self not in Server.running:
            return
        Server.running.remove(self)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def request(*words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)


@atexit.register
def stop_all():
    for server in list(Server.running):
        server.stop()


def interrupted(number, frame):
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, interrupted)
signal.signal(signal.SIGINT, interrupted)
