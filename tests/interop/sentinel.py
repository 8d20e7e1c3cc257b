#!/usr/bin/env python3
"""Genuine Sentinels watch a group of our servers and fail it over: when the primary is killed and comes back, and when
it is frozen for a while. Each Sentinel version has a group of its own; all run at the same time. Where the software
RDMA device is built, the servers listen for RDMA and replicate by it, also after a failover: the Sentinels name the TCP
port of the new primary, at which its replicas find it by RDMA."""
import signal
import threading

from common import Client, Report, Server, genuine, installed, ours, rdma_device, wait_for

report = Report()
PATIENCE = 90


class Group:
    def __init__(self, sentinel, arguments):
        self.servers, self.sentinels = [], []
        try:
            self.begin(sentinel, arguments)
        except BaseException:
            self.end()
            raise

    def begin(self, sentinel, arguments):
        for i in range(3):
            lines = ['save ""', "repl-diskless-sync-delay 0", "enable-debug-command yes"]
            if rdma_device():
                lines.append("rdma-replication yes")
            if i:
                lines.append("replicaof 127.0.0.1 %d" % self.servers[0].port)
            self.servers.append(Server(ours(), configuration=lines, rdma=bool(rdma_device())))
        primary = self.servers[0]
        wait_for("both replicas follow", lambda: primary.call("WAIT", 2, 100) == 2, PATIENCE)
        # A Sentinel sends its first PING to a new primary after a second: with a limit of 1000 it may call that primary
        # down at once and fail over again.
        lines = ["sentinel monitor group 127.0.0.1 %d 2" % primary.port, "sentinel down-after-milliseconds group 3000",
                 "sentinel failover-timeout group 6000", "sentinel parallel-syncs group 2"]
        for i in range(3):
            self.sentinels.append(Server(sentinel, *arguments, configuration=lines))
        wait_for("the Sentinels know the group and each other", lambda: all(
            len(s.call("SENTINEL", "replicas", "group")) == 2 and len(s.call("SENTINEL", "sentinels", "group")) == 2
            for s in self.sentinels), PATIENCE)

    def primary(self):
        """The server that all Sentinels name and that says so itself."""
        ports = {int(s.call("SENTINEL", "get-master-addr-by-name", "group")[1]) for s in self.sentinels}
        server = next(s for s in self.servers if s.port in ports)
        return server if len(ports) == 1 and server.call("ROLE")[0] == b"master" else None

    def follow(self, primary):
        """All others follow the primary."""
        return all(s is primary or (s.info("replication").get("master_port") == str(primary.port)
                                    and s.info("replication").get("master_link_status") == "up") for s in self.servers)

    def use_rdma(self, primary):
        """The links of all others are RDMA. One that took too long to connect uses TCP until its next connect."""
        if all(s is primary or s.info("replication").get("master_link_transport") == "rdma" for s in self.servers):
            return True
        if self.follow(primary):
            primary.call("CLIENT", "KILL", "TYPE", "replica")
        return False

    def end(self):
        for process in self.sentinels + self.servers:
            process.stop()


def fails_over(group, name, stop, resume):
    old = group.primary()
    client = Client(old.port, timeout=PATIENCE)
    client.call("SET", name, "acknowledged")
    acknowledged = client.call("WAIT", 2, 60000)
    client.close()
    stop(old)
    new = wait_for("another primary", lambda: (lambda p: p if p and p is not old else None)(group.primary()), PATIENCE)
    value = new.call("GET", name)
    written = new.call("SET", name + " behind", 1)
    resume(old)
    wait_for("all follow the new primary", lambda: group.follow(new), PATIENCE)
    wait_for("all have its data", lambda: len({s.call("DEBUG", "DIGEST") for s in group.servers}) == 1, PATIENCE)
    if rdma_device():
        wait_for("all links use RDMA", lambda: group.use_rdma(new), PATIENCE)
    return acknowledged == 2 and value == b"acknowledged" and written == "OK", (acknowledged, value, written)


def state(server):
    try:
        return "\n".join("%s:%s" % field for field in server.info("replication").items())
    except Exception as error:
        return repr(error)


def watch(name, sentinel, arguments, results):
    group = None
    try:
        group = Group(sentinel, arguments)
        for test, stop, resume in (("killed", Server.kill, Server.start),
                                   ("frozen", lambda s: s.signal(signal.SIGSTOP), lambda s: s.signal(signal.SIGCONT))):
            title = "%s fails a group over whose primary is %s" % (name, test)
            results.append((title, *fails_over(group, test, stop, resume)))
    except Exception as error:  # a thread's exception would go unnoticed
        results.append(["%s watches a group" % name, False, repr(error)])
        for server in group.servers if group else []:
            results[-1][2] += "\n--- port %d\n%s\n%s" % (server.port, state(server), server.output(1500))
    finally:
        if group:
            group.end()


def main():
    peers = []
    for name, program, arguments in (("Sentinel of Valkey 9.1", genuine("valkey-sentinel"), []),
                                     ("Sentinel of Redis 7.0", installed("redis-server"), ["--sentinel"])):
        if program:
            peers.append((name, program, arguments))
        else:
            report.missing(name, "no such program")
    results = []
    threads = [threading.Thread(target=watch, args=(*peer, results), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ok, detail in results:
        report.check(name, ok, detail)
    report.finish()


main()
