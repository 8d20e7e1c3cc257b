#!/usr/bin/env python3
"""Client libraries that ask our Sentinels for the primary: redis-py (redis.sentinel), ioredis and iovalkey go on with
the new primary after it was killed, after SENTINEL FAILOVER and after a coordinated failover, and find a replica.

    sentinel_clients.py --client SENTINEL-PORT...    the part of redis-py: prints a server's port and a counter"""
import os
import queue
import subprocess
import sys
import threading
import time

from common import Report, until, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
STEPS = ("killed", "failover", "coordinated")


def client(ports):
    """Increments a counter for ever, and prints who answered: "replica PORT" once, then "PORT VALUE"."""
    import redis.sentinel
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2)
    primary, replica = sentinel.master_for("group"), sentinel.slave_for("group")
    replica.ping()
    print("replica", replica.connection_pool.get_connection("x").port, flush=True)
    while True:
        try:
            port = primary.config_get("port")["port"]
            print(port, primary.incr("counter:redis-py"), flush=True)
        except redis.RedisError:
            pass
        time.sleep(0.05)


class Library:
    """A client program, and what it has printed."""

    def __init__(self, name, command, environment=None):
        self.name, self.lines = name, queue.Queue()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE,
                                        env=dict(os.environ, **(environment or {})))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())

    def uses(self, port, seconds=60):
        """True: it has written to the server with this port, from now on."""
        while not self.lines.empty():
            self.lines.get()

        def found():
            try:
                words = self.lines.get(timeout=1)
            except queue.Empty:
                return False
            return len(words) == 2 and words[0] == str(port) and words[1].isdigit()
        return bool(until(found, seconds))

    def end(self):
        self.process.kill()
        self.process.wait()


def libraries(report, ports):
    words, found = [str(port) for port in ports], []
    if subprocess.run([PYTHON, "-c", "import redis.sentinel"], stderr=subprocess.DEVNULL).returncode == 0:
        found.append(Library("redis-py", [PYTHON, os.path.abspath(__file__), "--client", *words]))
    else:
        report.missing("redis-py with our Sentinels", "it is not installed (Debian: python3-redis)")
    done = subprocess.run([os.path.join(HERE, "node_clients"), "install"], stdout=subprocess.PIPE, text=True)
    cache = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    for name in ("ioredis", "iovalkey"):
        if not os.path.isdir(os.path.join(cache, "node_modules", name)):
            report.skip("%s with our Sentinels" % name, "it is not installed")
            continue
        found.append(Library(name, ["node", "sentinel_clients.js", name, *words],
                             {"NODE_PATH": os.path.join(cache, "node_modules")}))
    return found


def main():
    from sentinel_group import NAME, PATIENCE, Group, flags_of
    report = Report()
    group, clients = Group(["ours"] * 3, ["ours"] * 3), []
    try:
        clients = libraries(report, [s.port for s in group.sentinels])
        primary = group.wait_whole()
        for one in clients:
            first = until(lambda: not one.lines.empty() and one.lines.get(), 30) or ["nothing"]
            ports = [str(s.port) for s in group.servers if s is not primary]
            report.check("%s finds a replica" % one.name, first[0] == "replica" and first[1] in ports, first)
            report.check("%s finds the primary" % one.name, one.uses(primary.port))
        for step in STEPS:
            wait_for("no failover runs", lambda: all(b"failover" not in flags_of(s.call("SENTINEL", "master", NAME))
                                                     for s in group.sentinels), PATIENCE)
            primary = group.wait_whole()
            _, resume = group.fail(step)
            new = group.wait_primary(primary)
            for one in clients:
                report.check("%s goes on: %s" % (one.name, step), one.uses(new.port),
                             "it printed %r" % [one.lines.get() for _ in range(one.lines.qsize())][-5:])
            resume()
        primary = group.wait_whole()
        for one in clients:
            report.check("%s uses the primary at last" % one.name, one.uses(primary.port))
    finally:
        for one in clients:
            one.end()
        group.end()
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        client([int(port) for port in sys.argv[2:]])
    main()
