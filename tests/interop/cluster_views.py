#!/usr/bin/env python3
"""CLUSTER compared with a genuine server: both load the same nodes.conf, get the same commands, and must give the same
replies, in RESP2 and RESP3, over IPv4 and IPv6: the views with all kinds of announced addresses, and the errors of all
subcommands. Ids that a server chose itself, times, and the order of nodes are not compared."""
import os
import re
import socket
import tempfile

from common import Client, Error, Map, Report, Server, newest_server, ours, until

report = Report()
genuine, why = newest_server()
if not genuine:
    report.missing("comparison of CLUSTER", why)
    report.finish()


def node(i):
    return "%02dabcdef0123456789abcdef0123456789abcdef" % i


def shard(i):
    return "%02dffffff0123456789abcdef0123456789abcdef" % i


# Nobody listens at these addresses. The own port is that of the server.
NODES = [
    "{1} 127.0.0.1:1@2,,tls-port=0,shard-id={s1} myself,master - 0 0 1 connected 0-10 12 14-16 [0->-{2}] [100-<-{2}]",
    "{2} 127.1.0.2:7002@17002,host2.example,availability-zone=az2,client-tls-port=7778,client-tcp-port=7777,"
    "client-ipv6=fe80::2,client-ipv4=192.0.2.2,tls-port=0,nodename=nod2,shard-id={s2} master - 0 1700000000000 2 "
    "connected 100-200 300",
    "{3} 127.1.0.3:7003@17003,,tls-port=8003,shard-id={s2} slave {2} 0 1700000000000 2 connected",
    "{4} 127.1.0.4:7004@17004,host4.example,tls-port=0,shard-id={s1} slave {1} 0 1700000000000 1 connected",
    "{5} 127.1.0.5:7005@17005,,tls-port=0,shard-id={s5} master,fail - 0 1700000000000 5 connected 400",
    "{6} ::1:7006@17006,,tls-port=0,shard-id={s6} master,nofailover - 0 1700000000000 6 connected",
    "{7} :0@0,,tls-port=0,shard-id={s7} master,noaddr - 0 1700000000000 7 connected 500",
    "{8} 127.1.0.8:7008@17008,,tls-port=0,shard-id={s5} slave,fail {5} 0 1700000000000 5 connected",
]
IDS = {str(i): node(i) for i in range(1, 10)}
IDS.update({"s%d" % i: shard(i) for i in range(1, 10)})


def expand(text):
    return re.sub(r"\{(s?\d)\}", lambda match: IDS[match[1]], text)


def start(program, lines):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "nodes.conf")
        with open(path, "w") as file:
            file.write("\n".join(map(expand, lines)) + "\nvars currentEpoch 9 lastVoteEpoch 0\n")
        return Server(program, "--cluster-enabled", "yes", "--cluster-node-timeout", "600000",
                      "--enable-debug-command", "yes", "--bind", "127.0.0.1", "-::1", files=[path] if lines else [])


def connect(server, protocol, host="127.0.0.1"):
    client = Client(server.port)
    if host != "127.0.0.1":
        client.socket.close()
        client.socket = socket.create_connection((host, server.port), timeout=20)
        client.file = client.socket.makefile("rb")
    if protocol == 3:
        client.call("HELLO", 3)
    return client


def plain(value, server, known):
    """A reply without what differs from server to server."""
    if isinstance(value, (Map, list)):
        return type(value).__name__, [plain(item, server, known) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item, server, known) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return {server.port: "PORT", server.port + 10000: "BUS"}.get(value, value)
    if isinstance(value, bytes):
        text = value.decode()
        if re.fullmatch("[0-9a-f]{40}", text) and text not in known:
            return "ID"
        kind, text = ("txt:", text[4:]) if text.startswith("txt:") else ("", text)
        text = re.sub(r"\b%d\b" % server.port, "PORT", text)
        text = re.sub(r"\b%d\b" % (server.port + 10000), "BUS", text)
        lines = []
        for line in text.split("\n"):
            words = line.split(" ")
            if len(words) >= 8 and len(words[0]) == 40:
                if words[0] not in known:
                    words[0] = "ID"
                words[4] = words[5] = "TIME"
            lines.append(" ".join(words))
        return kind, sorted(lines)
    return value


def ordered(command, value):
    """The views without the order of nodes and shards."""
    if command[1:2] == ("SHARDS",) and isinstance(value, tuple):
        return sorted(repr(shard_of) for shard_of in value[1])
    return value


def compare(name, servers, command, protocols=(2, 3), host="127.0.0.1"):
    for protocol in protocols:
        replies = []
        for server in servers:
            client = connect(server, protocol, host)
            replies.append(ordered(command, plain(client.call(*command), server, set(IDS.values()))))
            client.socket.close()
        same("%s: %s, RESP%d%s" % (name, " ".join(map(str, command)), protocol,
                                   "" if host == "127.0.0.1" else ", IPv6"), *replies)


def same(name, want, got):
    """Of two lists only the elements that differ are shown."""
    if isinstance(want, list) and isinstance(got, list) and want != got:
        want, got = ([item for item in these if item not in those] for these, those in ((want, got), (got, want)))
        report.check(name, False, "only genuine: %r\n    only ours: %r" % (want, got))
    else:
        report.equal(name, want, got)


def both(servers, *command):
    return [server.call(*command) for server in servers]


def compare_views():
    servers = [start(genuine, NODES), start(ours(), NODES)]
    for server in servers:
        server.call("DEBUG", "DISABLE-CLUSTER-RECONNECTION", 1)
        until(lambda: b"disconnected" in server.call("CLUSTER", "NODES"))
    views = [("CLUSTER", view) for view in ("NODES", "SLOTS", "SHARDS", "LINKS", "MYID", "MYSHARDID", "HELP")]
    views += [("CLUSTER", "REPLICAS", node(i)) for i in (1, 2, 5, 6)] + [("CLUSTER", "SLAVES", node(2))]
    views += [("CLUSTER", "COUNT-FAILURE-REPORTS", node(5)), ("CLUSTER", "GETSLOTMIGRATIONS")]
    for command in views:
        compare("the same file", servers, command)
    for endpoint in ("hostname", "unknown-endpoint", "ip"):
        both(servers, "CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint)
        for command in views[:3]:
            compare("endpoint " + endpoint, servers, command)
    for option, value in (("cluster-announce-client-port", 9999), ("cluster-announce-client-ipv6", "fe80::77"),
                          ("cluster-announce-ip", "192.0.2.1"), ("cluster-announce-hostname", "ho.st"),
                          ("availability-zone", "zone1"), ("cluster-announce-client-tls-port", 9998),
                          ("cluster-replica-no-failover", "yes"), ("cluster-announce-port", 9997)):
        both(servers, "CONFIG", "SET", option, value)
        # Our node reads the zone, an option that others use as well, at its next tick.
        if option == "availability-zone":
            for server in servers:
                until(lambda: value in repr(server.call("CLUSTER", "SHARDS")))
        for command in views[:3]:
            compare("%s %s" % (option, value), servers, command)
            compare("%s %s" % (option, value), servers, command, (3,), "::1")
    both(servers, "CLUSTER", "MEET", "127.1.0.9", 7999)
    for command in views[:3]:
        compare("a handshake", servers, command)
    both(servers, "CLUSTER", "FORGET", node(2))
    for command in views[:3] + [("CLUSTER", "FORGET", node(2))]:
        compare("a forgotten primary", servers, command)
    for server in servers:
        server.stop()


# In this order: some of them change the node. What stands after them does not depend on times.
STEPS = """
NOSUCH
MYID x
ADDSLOTS
ADDSLOTS a
ADDSLOTS -1
ADDSLOTS 16384
ADDSLOTS 5 5
ADDSLOTS 5 6
ADDSLOTS 6
ADDSLOTS 6 6
ADDSLOTS 7 6 7
ADDSLOTS 7 7 6
ADDSLOTS 6 a
DELSLOTS 9
DELSLOTS 5 5
DELSLOTS 5
DELSLOTS 9 9
DELSLOTS 5 a
ADDSLOTSRANGE 1
ADDSLOTSRANGE 1 2 3
ADDSLOTSRANGE 1 2 3 4 5
ADDSLOTSRANGE 3 1
ADDSLOTSRANGE 1 a
ADDSLOTSRANGE 1 3 3 4
ADDSLOTSRANGE 1 16384
ADDSLOTSRANGE 6 8
ADDSLOTSRANGE 6 8 3 1
ADDSLOTSRANGE 3 1 6 8
ADDSLOTSRANGE 6 8 1 a
DELSLOTSRANGE 1 3
DELSLOTSRANGE 1 2 3
DELSLOTSRANGE 3 1
DELSLOTSRANGE 6 6 6 6
DELSLOTSRANGE 6 6
ADDSLOTSRANGE 1 3 7 9
NODES
SLOTS
SHARDS
COUNT-FAILURE-REPORTS a
COUNT-FAILURE-REPORTS {9}
COUNTKEYSINSLOT a
COUNTKEYSINSLOT -1
COUNTKEYSINSLOT 16384
COUNTKEYSINSLOT 1
COUNTKEYSINSLOT 1.0
COUNTKEYSINSLOT 99999999999999999999999
FAILOVER
FAILOVER FORCE
FAILOVER TAKEOVER
FAILOVER NOSUCH
FAILOVER FORCE TAKEOVER
FAILOVER FORCE x y
FAILOVER FORCE REPLICAID {1}
FAILOVER REPLICAID
FLUSHSLOT
FLUSHSLOT a
FLUSHSLOT 16384
FLUSHSLOT 1
FLUSHSLOT 1 NOSUCH
FLUSHSLOT 1 SYNC
FLUSHSLOT 1 ASYNC
FLUSHSLOT a b c
FORGET x
FORGET {9}
FORGET {9}{9}
GETKEYSINSLOT 1
GETKEYSINSLOT 1 a
GETKEYSINSLOT 1 -1
GETKEYSINSLOT a 1
GETKEYSINSLOT 16384 1
GETKEYSINSLOT 16384 a
GETKEYSINSLOT -1 1
GETKEYSINSLOT 1 0
GETKEYSINSLOT 1 10
GETKEYSINSLOT 1 99999999999999999999999
GETKEYSINSLOT 1 9999999999999999
KEYSLOT
KEYSLOT a
KEYSLOT {9}x{8}
MEET a
MEET a b
MEET 127.0.0.1 b
MEET 127.0.0.1 7002 b
MEET 127.0.0.1 70000
MEET 127.0.0.1 70000 x
MEET 127.0.0.1 0
MEET 127.0.0.1 -5
MEET 127.0.0.1 60000
MEET 127.0.0.1 7002 70000
MEET 127.0.0.1 7002 0
MEET 127.0.0.1 7002 -5
MEET localhost 7002
MEET 127.0.0.1 7002 1 2
MEET 127.0.0.1.1 7002
MEET ::g 7002 1
MEET x.y 70000
REPLICAS
REPLICAS x
SLAVES {9}
REPLICATE x
REPLICATE {9}
REPLICATE NO x
REPLICATE x y
REPLICATE NO ONE
REPLICATE NO ONE x
RESET NOSUCH
RESET HARD SOFT
SET-CONFIG-EPOCH a
SET-CONFIG-EPOCH -1
SET-CONFIG-EPOCH 99999999999999999999
SET-CONFIG-EPOCH 5
SET-CONFIG-EPOCH 6
BUMPEPOCH
SAVECONFIG
SAVECONFIG x
CANCELSLOTMIGRATIONS
CANCELSLOTMIGRATIONS ALL
GETSLOTMIGRATIONS
GETSLOTMIGRATIONS x
SYNCSLOTS
SYNCSLOTS NOSUCH
SYNCSLOTS ACK
SYNCSLOTS SNAPSHOT-EOF
SYNCSLOTS REQUEST-PAUSE
SYNCSLOTS PAUSED
SYNCSLOTS REQUEST-FAILOVER
SYNCSLOTS FAILOVER-GRANTED
SYNCSLOTS FINISH
HELP x
LINKS x
INFO x
FLUSHSLOTS x
FLUSHSLOTS
NODES
RESET
RESET SOFT
SET-CONFIG-EPOCH 7
RESET HARD
BUMPEPOCH
BUMPEPOCH
NODES
SHARDS
"""


def compare_steps():
    """One new node each."""
    servers = [start(genuine, []), start(ours(), [])]
    for number, line in enumerate(STEPS.strip().split("\n")):
        command = ("CLUSTER", *expand(line).split(" "))
        replies = [ordered(command, plain(server.call(*command), server, set())) for server in servers]
        same("step %d: CLUSTER %s" % (number, line), *replies)
    both(servers, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    for server in servers:
        until(lambda: server.call("SET", "{a}1", "value") == "OK")
    both(servers, "SET", "{a}2", "value")
    for command in (("CLUSTER", "COUNTKEYSINSLOT", 15495), ("CLUSTER", "GETKEYSINSLOT", 15495, 1000),
                    ("CLUSTER", "FLUSHSLOTS"), ("CLUSTER", "RESET"), ("CLUSTER", "FLUSHSLOT", 15494),
                    ("DBSIZE",), ("CLUSTER", "FLUSHSLOT", 15495), ("DBSIZE",), ("CLUSTER", "COUNTKEYSINSLOT", 15495),
                    ("CLUSTER", "GETKEYSINSLOT", 15495, 10)):
        compare("keys", servers, command, (2,))
    for server in servers:
        server.stop()


def compare_standalone():
    """Without cluster mode."""
    servers = [Server(genuine), Server(ours())]
    for name, arguments in (("KEYSLOT", "a"), ("KEYSLOT", ""), ("INFO", ""), ("NODES", ""), ("SLOTS", ""), ("HELP", ""),
                            ("SHARDS", ""), ("MYID", ""), ("RESET", ""), ("ADDSLOTS", "1"), ("NOSUCH", ""),
                            ("GETKEYSINSLOT", "1 1"), ("MIGRATESLOTS", "SLOTSRANGE 1 2 NODE x"), ("FLUSHSLOT", "1"),
                            ("SYNCSLOTS", "ACK"), ("GETSLOTMIGRATIONS", ""), ("CANCELSLOTMIGRATIONS", "")):
        compare("standalone", servers, ("CLUSTER", name, *arguments.split()), (2,))
    for server in servers:
        server.stop()


compare_views()
compare_steps()
compare_standalone()
report.finish()
