"""A group of servers watched by Sentinels, each of either kind, for sentinel_mixed.py and tests/crash/sentinel.

With `network` each server and each Sentinel is reached through a proxy of its own and connects from an address of its
own, so that any of them can be cut off from any other: Group.network.part()."""
import signal
import time

from common import Client, Error, Server, genuine, ours, rdma_device, wait_for
from proxy import Proxy

PATIENCE = 90
NAME = "group"


def sentinel_program(kind):
    """[program, argument ...] of a Sentinel: "ours" or "genuine"."""
    return [genuine("valkey-sentinel")] if kind == "genuine" else [ours(), "--sentinel"]


def server_program(kind):
    return genuine("valkey-server") if kind == "genuine" else ours()


class Network:
    """Proxies by which the members of a group reach each other. A member is a Server with a `proxy`, and connects from
    the address `source`."""

    def __init__(self):
        self.members, self.walls = [], set()

    def join(self, member):
        """Before the member starts: the lines of its configuration."""
        self.members.append(member)
        member.source = "127.0.9.%d" % len(self.members)
        member.proxy = Proxy(lambda: member.port, passes=lambda source: not self.is_parted(source, member))
        return ["bind-source-addr " + member.source]

    def is_parted(self, source, member):
        return (source, member.source) in self.walls

    def part(self, some, others):
        """Nothing passes between one of `some` and one of `others` any more, in both directions."""
        for a in some:
            for b in others:
                if a is not b:
                    self.walls |= {(a.source, b.source), (b.source, a.source)}

    def heal(self, loses):
        """`loses`: what was sent meanwhile is lost with its connections; else it arrives now."""
        parted = {target for _, target in self.walls}
        self.walls.clear()
        for member in self.members:
            if loses and member.source in parted:
                member.proxy.cut()

    def close(self):
        self.walls.clear()
        for member in self.members:
            member.proxy.close()


def seen_port(member):
    """The port at which the others reach a server or Sentinel."""
    return member.proxy.port if hasattr(member, "proxy") else member.port


class Group:
    """servers, sentinels: lists of "ours" and "genuine"; the first server begins as the primary. `options` and
    `server_options` are lines of their files; `host`: an address by which they know each other."""

    def __init__(self, servers, sentinels, rdma=False, options=(), server_options=(), host="127.0.0.1",
                 down_after=1000, failover_timeout=10000, network=False):
        self.servers, self.sentinels, self.rdma = [], [], rdma
        self.server_options, self.host = server_options, host
        self.arguments = [] if host == "127.0.0.1" else ["--bind", "127.0.0.1", host]
        self.has_genuine_sentinel = "genuine" in sentinels
        self.network = Network() if network else None
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
            lines = ['save ""', "repl-diskless-sync-delay 0", "enable-debug-command yes", *self.server_options]
            if self.rdma and kind == "ours":
                lines.append("rdma-replication yes")
            if i:
                lines.append("replicaof %s %d" % (self.host, seen_port(self.servers[0])))
            server = Server(server_program(kind), *self.arguments, configuration=lines, rdma=self.rdma, start=False)
            self.servers.append(server)
            if self.network:
                lines += self.network.join(server)
                lines += ["replica-announce-ip 127.0.0.1", "replica-announce-port %d" % server.proxy.port]
            server.start()
        primary = self.servers[0]
        wait_for("the replicas follow", lambda: primary.call("WAIT", len(servers) - 1, 100) == len(servers) - 1,
                 PATIENCE)
        lines = ["sentinel monitor %s %s %d %d" % (
            NAME, self.host, seen_port(primary), len(sentinels) // 2 + 1), *self.options]
        for kind in sentinels:
            program, *arguments = sentinel_program(kind)
            sentinel = Server(program, *arguments, *self.arguments, configuration=list(lines),
                              rdma=self.rdma and kind == "ours", start=False)
            self.sentinels.append(sentinel)
            if self.network:
                sentinel.configuration += self.network.join(sentinel)
                sentinel.configuration += ["sentinel announce-ip 127.0.0.1",
                                           "sentinel announce-port %d" % sentinel.proxy.port]
            sentinel.start()
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
            # Valkey's Sentinel that last saw it as a primary takes a later promotion of it for the same role, and
            # undoes it.
            if self.has_genuine_sentinel and any(fields_of(i)[b"role-reported"] != b"slave" for i in replicas):
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
        server = next((s for s in self.servers if seen_port(s) in ports), None)
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
            if info.get("master_port") != str(seen_port(primary)) or info.get("master_link_status") != "up":
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
        resume = words = None
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
            def named():
                if int(client.call("SENTINEL", "get-master-addr-by-name", NAME)[1]) != seen_port(old):
                    return True
                # On a busy machine it may be given up.
                if words and b"failover_in_progress" not in flags_of(client.call("SENTINEL", "master", NAME)):
                    client.call(*words)
                return False
            wait_for("another primary is named", named, PATIENCE)
        return time.monotonic() - start, resume or (lambda: None)

    def end(self):
        for process in self.sentinels + self.servers:
            process.stop()
        if self.network:
            self.network.close()


def flags_of(instance):
    fields = dict(zip(instance[::2], instance[1::2])) if isinstance(instance, list) else instance
    return fields[b"flags"]


def fields_of(instance):
    return dict(zip(instance[::2], instance[1::2])) if isinstance(instance, list) else dict(instance)


def device():
    return bool(rdma_device())
