"""What the programs of tests/perf share: servers that are pinned and always stopped, loads on them of a given time, and
what must stand beside a figure."""
import collections
import csv
import io
import os
import platform
import shlex
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import servers  # noqa: E402
from resp import request  # noqa: E402
from servers import LAUNCHER, ROOT, free_port, info_fields, ours, rdma_device  # noqa: E402,F401

median = statistics.median
CPUCLOCK_SCHED = 2  # the kernel's clock numbers of processes: linux/posix-timers.h
NAMES = {"ping": "ping_mbulk"}  # of the benchmark
CALIBRATION_SECONDS, RUN_SECONDS_MAX, SAMPLE_SECONDS = 0.05, 120, 0.01
STEADY = 0.75  # the part of a run that CPU time is taken over: not the connecting, not the end


def pinned(core, command):
    return command if core is None else ["taskset", "-c", str(core)] + command


def version(program):
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout.decode(errors="replace")
    return text.strip().split("\n")[0]


def machine():
    model = "unknown CPU"
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return "%s, %d CPUs, %s %s" % (model, os.cpu_count(), platform.system(), platform.release())


def describe_machine(out=sys.stdout):
    print("machine: %s, load before %.2f" % (machine(), os.getloadavg()[0]), file=out)


def cpu_seconds(process):
    """CPU time of all threads of a process until now, to the nanosecond (taskset and the launcher have become the
    server)."""
    return time.clock_gettime((~process.pid << 3) | CPUCLOCK_SCHED)


class Server(servers.Server):
    """A server that is pinned to a core, with a connection that stays open: call() raises errors and returns bytes."""

    def __init__(self, name, command, core=None, arguments=()):
        self.name = name
        super().__init__(pinned(core, command), "--appendonly", "no", *arguments)
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.file = self.socket.makefile("rb")

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

    def call_list(self, *words):
        """The elements of a reply that is a flat array."""
        self.socket.sendall(request(*words))
        return [self.read() for _ in range(int(self.read()))]

    def info(self, section):
        return info_fields(self.call("INFO", section))

    def cpu_seconds(self):
        return cpu_seconds(self.process)


class Work(collections.namedtuple("Work", "test clients pipeline size")):
    """What is asked of a server."""

    def __str__(self):
        size = "" if self.test == "ping" else " %s" % bytes_text(self.size)
        return "%s%s, %d client%s%s" % (self.test.upper(), size, self.clients, "" if self.clients == 1 else "s",
                                        ", -P %d" % self.pipeline if self.pipeline > 1 else "")

    def prepare(self, server):
        """GET finds something, whichever key the tool asks for."""
        for key in ("key:__rand_int__", "key:000000000000"):
            server.call("SET", key, "x" * self.size)


# requests a second, milliseconds, server CPU in microseconds a request
Result = collections.namedtuple("Result", "rate p50 p99 cpu")


def busiest(samples, seconds):
    """CPU seconds a second over that part of the samples (time, CPU seconds) which lasts at least so long and has most
    of it. Whatever a client does before and after its run, connecting or being slow to end, is not in it."""
    most, last = 0, 0
    for first, (began, before) in enumerate(samples):
        while last < len(samples) - 1 and samples[last][0] - began < seconds:
            last += 1
        if last > first:
            most = max(most, (samples[last][1] - before) / (samples[last][0] - began))
    return most


class Tool:
    """valkey-benchmark, ours or the genuine one, that drives one server over one transport from a core of its own.

    A run is given a time, not a number of requests: the number follows from the rate of the run before it. So
    transports of very different speed are measured for equally long, and connecting does not count more for one of
    them."""

    def __init__(self, name, command, server, core, arguments=(), rates=None, rounds=1):
        """`rates` may be shared by tools that are about equally fast: then only the first of them has to find out how
        fast. `rounds`: the minimum number of requests of a run for each that is on its way at once."""
        self.name, self.command, self.server, self.core, self.arguments = name, command, server, core, list(arguments)
        self.rates, self.rounds = {} if rates is None else rates, rounds

    def command_line(self, work, requests):
        return pinned(self.core, self.command + ["-h", "127.0.0.1", "-p", str(self.server.port), "-t",
                                                 NAMES.get(work.test, work.test), "-n", str(requests),
                                                 "-c", str(work.clients), "-P", str(work.pipeline), "-d",
                                                 str(work.size), "--csv"] + self.arguments)

    def run(self, work, requests):
        command, samples = self.command_line(work, requests), []
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        began = time.monotonic()
        while process.poll() is None:
            samples.append((time.monotonic(), self.server.cpu_seconds()))
            if samples[-1][0] - began > RUN_SECONDS_MAX:
                process.kill()
            time.sleep(SAMPLE_SECONDS)
        ended = time.monotonic()
        out, errors = (text.decode(errors="replace") for text in process.communicate())
        rows = list(csv.DictReader(io.StringIO(out[out.find('"test"'):] if '"test"' in out else "")))
        if process.returncode or len(rows) != 1:
            raise SystemExit("%s\nfailed (%d):\n%s%s" % (shlex.join(command), process.returncode, out[-1000:],
                                                         errors[-1000:]))
        rate = float(rows[0]["rps"])
        samples.append((ended, self.server.cpu_seconds()))
        cpu = busiest(samples, requests / rate * STEADY)
        return Result(rate, float(rows[0]["p50_latency_ms"]), float(rows[0]["p99_latency_ms"]), cpu / rate * 1e6)

    def measure(self, work, seconds):
        least = work.clients * work.pipeline * self.rounds
        requests = least if self.rounds > 1 else least * 2
        while work not in self.rates:
            rate = self.run(work, requests).rate  # infinite where the tool finds that no time has passed
            if requests / rate >= min(CALIBRATION_SECONDS, seconds / 2):
                self.rates[work] = rate
            requests = max(requests * 4, int(min(rate, requests * 100) * CALIBRATION_SECONDS))
        result = self.run(work, max(least, int(self.rates[work] * seconds)))
        self.rates[work] = result.rate
        return result


def interleaved(tools, work, seconds, repeat):
    """{tool: median result}: every repetition measures each tool once, one right after the other, so that whatever else
    the machine does hits all."""
    for server in {tool.server for tool in tools}:
        work.prepare(server)
    results = {tool: [] for tool in tools}
    for turn in range(repeat):
        for tool in tools if turn % 2 == 0 else list(reversed(tools)):
            results[tool].append(tool.measure(work, seconds))
    return {tool: Result(*(median(column) for column in zip(*results[tool]))) for tool in tools}


def bytes_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return "%d %s" % (size // factor, unit)
    return "%d B" % size


# How long to spin for completions. SPIN_US: longer than anything takes while a run lasts, so that nobody sleeps, and
# short enough to leave the core to the next server afterwards. Else the server's default, and the tool's where it has a
# CPU for itself.
SPIN_US, SERVER_SPIN_US, TOOL_SPIN_US = 2000, 20, 10
RDMA_ARGUMENTS = ["--rdma-bind", "127.0.0.1", "--rdma-port", "{port}"]
