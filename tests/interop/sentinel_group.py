"""A group of servers watched by Sentinels, each of either kind, for sentinel_mixed.py and tests/crash/sentinel."""
import signal
import time

from common import Client, Error, Server, genuine, ours, rdma_device, wait_for

PATIENCE = 90
NAME = "group"


def sentinel_program(kind):
    """[program, argument ...] of a Sentinel: "ours" or "genuine"."""
    return [genuine("valkey-sentinel")] if kind == "genuine" else [ours(), "--sentinel"]


def server_program(kind):
    return genuine("valkey-server") if kind == "genuine" else ours()


class Group:
    """servers, sentinels: lists of "ours" and "genuine"; the first server begins as the primary."""

    def __init__(self, servers, sentinels, rdma=False, options=(), down_after=1000, failover_timeout=10000):
        self.servers, self.sentinels, self.rdma = [], [], rdma
        self.options = ["sentinel down-after-milliseconds %s %d" % (NAME, down_after),
                        "sentinel failover-timeout %s %d" % (NAME, failover_timeout),
                        "sentinel parallel-syncs %s 2" % NAME, *options]
        try:
            self.begin(servers, sentinels)
        except BaseException:
            self.end()
            raise

    def begin(self, servers, sentinels):
        for i, kind in enumerate(servers):
            lines = ['save ""', "repl-diskless-sync-delay 0", "enable-debug-command yes"]
            if self.rdma and kind == "ours":
                lines.append("rdma-replication yes")
            if i:
                lines.append("replicaof 127.0.0.1 %d" % self.servers[0].port)
            self.servers.append(Server(server_program(kind), configuration=lines, rdma=self.rdma))
        primary = self.servers[0]
        wait_for("the replicas follow", lambda: primary.call("WAIT", len(servers) - 1, 100) == len(servers) - 1,
                 PATIENCE)
        lines = ["sentinel monitor %s 127.0.0.1 %d %d" % (NAME, primary.port, len(sentinels) // 2 + 1), *self.options]
        for kind in sentinels:
            program, *arguments = sentinel_program(kind)
            self.sentinels.append(Server(program, *arguments, configuration=lines, rdma=self.rdma and kind == "ours"))
        self.wait_known()

    def wait_known(self):
        wait_for("the Sentinels know the group and each other", self.is_known, PATIENCE)

    def running(self):
        return [s for s in self.sentinels if s.alive()]

    def is_known(self):
        for s in self.running():
            replicas, others = s.call("SENTINEL", "replicas", NAME), s.call("SENTINEL", "sentinels", NAME)
            if len(replicas) < len(self.servers) - 1 or len(others) < len(self.sentinels) - 1:
                return False
            if any(b"down" in flags_of(i) or b"disconnected" in flags_of(i) for i in replicas):
                return False
        return True

    def primary(self):
        """The server that all running Sentinels name and that says so itself; None: they do not agree."""
        ports = set()
        for s in self.running():
            address = s.call("SENTINEL", "get-master-addr-by-name", NAME)
            ports.add(int(address[1]))
        if len(ports) != 1:
            return None
        server = next((s for s in self.servers if s.port in ports), None)
        if server is None or not server.alive() or server.call("ROLE", timeout=2)[0] != b"master":
            return None
        return server

    def wait_primary(self, other_than=None):
        def found():
            server = self.primary()
            return server if server is not other_than else None
        return wait_for("the Sentinels agree on a primary", found, PATIENCE)

    def follow(self, primary):
        for s in self.servers:
            if s is primary or not s.alive():
                continue
            info = s.info("replication")
            if info.get("master_port") != str(primary.port) or info.get("master_link_status") != "up":
                return False
        return True

    def wait_whole(self):
        """All servers and Sentinels run and agree; returns the primary."""
        # A busy machine may make the Sentinels fail over once more meanwhile.
        def whole():
            server = self.primary()
            return server if server and self.follow(server) else None
        primary = wait_for("all follow the primary", whole, PATIENCE)
        self.wait_known()
        return primary

    def fail(self, how):
        """The primary fails; returns the seconds until a Sentinel names another, and a function that ends the fault."""
        old = self.primary()
        watcher = self.running()[0]
        start = time.monotonic()
        resume = None
        if how == "killed":
            old.kill()
            resume = old.start
        elif how == "frozen":
            old.signal(signal.SIGSTOP)

            def resume():
                old.signal(signal.SIGCONT)
        elif how in ("failover", "coordinated"):
            words = ["SENTINEL", "failover", NAME] + (["COORDINATED"] if how == "coordinated" else [])
            reply = watcher.call(*words)
            if isinstance(reply, Error):
                raise AssertionError("SENTINEL FAILOVER: %s" % reply)
        with Client(watcher.port, timeout=PATIENCE) as client:
            wait_for("another primary is named", lambda: int(
                client.call("SENTINEL", "get-master-addr-by-name", NAME)[1]) != old.port, PATIENCE)
        return time.monotonic() - start, resume or (lambda: None)

    def end(self):
        for process in self.sentinels + self.servers:
            process.stop()


def flags_of(instance):
    fields = dict(zip(instance[::2], instance[1::2])) if isinstance(instance, list) else instance
    return fields[b"flags"]


def fields_of(instance):
    return dict(zip(instance[::2], instance[1::2])) if isinstance(instance, list) else dict(instance)


def device():
    return bool(rdma_device())
