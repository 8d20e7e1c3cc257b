#!/usr/bin/env python3
"""Genuine Sentinels watch a group of our servers and fail it over: when the primary is killed and comes back, and when
it is frozen for a while. Each Sentinel version has a group of its own; all run at the same time. Where the software
RDMA device is built, the servers listen for RDMA, too."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from common import ROOT, Client, Error, Report, free_port, genuine, installed, ours

report = Report()
PATIENCE = 90


def wait_for(what, condition):
    end = time.time() + PATIENCE
    while time.time() < end:
        try:
            found = condition()
        except (OSError, RuntimeError):
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise RuntimeError("did not happen: " + what)


class Process:
    """A server or Sentinel with a configuration file, which it may rewrite; it can be started again."""

    def __init__(self, directory, name, command, lines, arguments=()):
        self.port = free_port()
        self.dir = os.path.join(directory, name)
        os.mkdir(self.dir)
        self.config = os.path.join(self.dir, "conf")
        self.command, self.arguments = command, arguments
        with open(self.config, "w") as f:
            f.write("\n".join(["port %d" % self.port, "bind 127.0.0.1", "dir " + self.dir, *lines]) + "\n")
        self.start()

    def start(self):
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen([*self.command, self.config, *self.arguments], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=self.dir)
        wait_for("a server answers on port %d" % self.port, lambda: not isinstance(self.call("PING"), Error))

    def call(self, *words):
        client = Client(self.port, timeout=5)
        try:
            return client.call(*words)
        finally:
            client.close()

    def info(self, section):
        text = self.call("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def kill(self, sig):
        self.process.send_signal(sig)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Group:
    def __init__(self, directory, sentinel, arguments):
        self.servers, self.sentinels = [], []
        try:
            self.begin(directory, sentinel, arguments)
        except BaseException:
            self.end()
            raise

    def begin(self, directory, sentinel, arguments):
        device = os.path.join(ROOT, "utils/softrdma/softrdma")
        library = os.path.join(ROOT, "utils/softrdma/libsoftrdma.so")
        with_rdma = os.access(device, os.X_OK) and os.access(library, os.R_OK)
        for i in range(3):
            lines = ['save ""', "repl-diskless-sync-delay 0", "enable-debug-command yes"]
            if with_rdma:
                lines += ["rdma-bind 127.0.0.1", "rdma-port %d" % free_port()]
            if i:
                lines.append("replicaof 127.0.0.1 %d" % self.servers[0].port)
            command = [device, ours()] if with_rdma else [ours()]
            self.servers.append(Process(directory, "server%d" % i, command, lines))
        primary = self.servers[0]
        wait_for("both replicas follow", lambda: primary.call("WAIT", 2, 100) == 2)
        lines = ["sentinel monitor group 127.0.0.1 %d 2" % primary.port, "sentinel down-after-milliseconds group 1000",
                 "sentinel failover-timeout group 6000", "sentinel parallel-syncs group 2"]
        for i in range(3):
            self.sentinels.append(Process(directory, "sentinel%d" % i, [sentinel], lines, arguments))
        wait_for("the Sentinels know the group and each other", lambda: all(
            len(s.call("SENTINEL", "replicas", "group")) == 2 and len(s.call("SENTINEL", "sentinels", "group")) == 2
            for s in self.sentinels))

    def primary(self):
        """The server that all Sentinels name and that says so itself."""
        ports = {int(s.call("SENTINEL", "get-master-addr-by-name", "group")[1]) for s in self.sentinels}
        server = next(s for s in self.servers if s.port in ports)
        return server if len(ports) == 1 and server.call("ROLE")[0] == b"master" else None

    def follow(self, primary):
        """All others follow the primary."""
        return all(s is primary or (s.info("replication").get("master_port") == str(primary.port)
                                    and s.info("replication").get("master_link_status") == "up") for s in self.servers)

    def end(self):
        for process in self.sentinels + self.servers:
            process.end()


def fails_over(group, name, stop, resume):
    old = group.primary()
    client = Client(old.port)
    client.call("SET", name, "acknowledged")
    acknowledged = client.call("WAIT", 2, 10000)
    client.close()
    stop(old)
    new = wait_for("another primary", lambda: (lambda p: p if p and p is not old else None)(group.primary()))
    value = new.call("GET", name)
    written = new.call("SET", name + " behind", 1)
    resume(old)
    wait_for("all follow the new primary", lambda: group.follow(new))
    wait_for("all have its data", lambda: len({s.call("DEBUG", "DIGEST") for s in group.servers}) == 1)
    return acknowledged == 2 and value == b"acknowledged" and written == "OK", (acknowledged, value, written)


def kill(server):
    server.kill(signal.SIGKILL)
    server.process.wait()


def watch(name, sentinel, arguments, results):
    directory = tempfile.mkdtemp(prefix="interop.")
    group = None
    try:
        group = Group(directory, sentinel, arguments)
        for test, stop, resume in (("killed", kill, lambda s: s.start()),
                                   ("frozen", lambda s: s.kill(signal.SIGSTOP), lambda s: s.kill(signal.SIGCONT))):
            title = "%s fails a group over whose primary is %s" % (name, test)
            results.append((title, *fails_over(group, test, stop, resume)))
    except Exception as error:  # a thread's exception would go unnoticed
        results.append(("%s watches a group" % name, False, repr(error)))
    finally:
        if group:
            group.end()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    peers = []
    for name, program, arguments in (("Sentinel of Valkey 9.1", genuine("valkey-sentinel"), []),
                                     ("Sentinel of Redis 7.0", installed("redis-server"), ["--sentinel"])):
        if program:
            peers.append((name, program, arguments))
        else:
            report.missing(name, "no such program")
    results = []
    threads = [threading.Thread(target=watch, args=(*peer, results)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ok, detail in results:
        report.check(name, ok, detail)
    report.finish()


main()
