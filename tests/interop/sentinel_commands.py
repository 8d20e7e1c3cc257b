#!/usr/bin/env python3
"""SENTINEL and the other commands of a Sentinel, answered by ours and by a genuine one: every subcommand, the fields of
its replies and their order, the texts of errors and events, the directives that reach the file.

Both watch three genuine servers of their own. Ports, ids and times are replaced by names before replies are
compared."""
import os
import re
import sys
import time

from common import Client, Error, Map, Report, Server, genuine, newest_server, ours, until, wait_for

report = Report()
ID = "f" * 40
OTHER = "e" * 40
SERVERS = 3
# Fields whose values differ between two runs of the same program.
TIMES = {b"last-ping-sent", b"last-ok-ping-reply", b"last-ping-reply", b"info-refresh", b"role-reported-time",
         b"s-down-time", b"o-down-time", b"link-pending-commands", b"last-hello-message", b"slave-repl-offset",
         b"master-link-down-time"}
OURS_ONLY = {"explain", "rdma"}  # docs/sentinel.md


class Side:
    """A Sentinel of one kind and its servers."""

    def __init__(self, program, *arguments):
        self.servers, self.sentinel = [], None
        for i in range(SERVERS):
            lines = ['save ""', "repl-diskless-sync-delay 0", "replica-priority %d" % (10 + i)]
            if i:
                lines.append("replicaof 127.0.0.1 %d" % self.servers[0].port)
            self.servers.append(Server(genuine("valkey-server"), configuration=lines))
        wait_for("the replicas follow", lambda: all(
            s.info("replication").get("master_link_status") == "up" for s in self.servers[1:]))
        lines = ["# kept", "sentinel monitor group 127.0.0.1 %d 1" % self.servers[0].port,
                 "sentinel down-after-milliseconds group 60000"]
        self.sentinel = Server(program, *arguments, configuration=lines)
        self.script = os.path.join(self.sentinel.dir, "script")
        with open(self.script, "w") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(self.script, 0o755)
        wait_for("the Sentinel knows the replicas", lambda: len(
            self.sentinel.call("SENTINEL", "replicas", "group")) == SERVERS - 1)
        self.client = Client(self.sentinel.port)
        self.events = Client(self.sentinel.port)
        self.events.call("PSUBSCRIBE", "*")

    def plain(self, text):
        """`text` with names for what differs between the sides."""
        text = text if isinstance(text, bytes) else str(text).encode()
        text = text.replace(self.sentinel.dir.encode(), b"<dir>")
        myid = self.client_id
        text = text.replace(myid, b"<myid>")
        for i, server in enumerate(self.servers):
            text = re.sub(rb"(?<!\d)%d(?!\d)" % server.port, b"<server%d>" % i, text)
        text = re.sub(rb"(?<!\d)%d(?!\d)" % self.sentinel.port, b"<sentinel>", text)
        return re.sub(rb"(?<![0-9a-f])(?!f{40}|e{40})[0-9a-f]{40}(?![0-9a-f])", b"<id>", text)

    def value(self, reply):
        """A reply in a form that can be compared."""
        if isinstance(reply, Error):
            return ("error", self.plain(reply))
        if isinstance(reply, Map):
            return ("map", tuple((self.value(k), b"<time>" if k in TIMES else self.value(v)) for k, v in reply))
        if isinstance(reply, list):
            values, items = [], list(reply)
            for i, item in enumerate(items):
                values.append(b"<time>" if i and isinstance(items[i - 1], bytes) and items[i - 1] in TIMES
                              else self.value(item))
            if items and all(isinstance(item, list) for item in items):
                values.sort(key=repr)  # the order of groups and instances is that of a hash table
            return (type(reply).__name__, tuple(values))
        if isinstance(reply, (bytes, str)):
            return (type(reply).__name__, self.plain(reply))
        return reply

    def call(self, *words):
        words = [w.format(*[s.port for s in self.servers], script=self.script, myport=self.sentinel.port)
                 if isinstance(w, str) and "{" in w else w for w in words]
        return self.value(self.client.call(*words))

    def take_events(self, quiet=0.0):
        """The events up to now, or up to `quiet` seconds later."""
        got = []
        time.sleep(quiet)
        self.events.send(("PING",))
        while (message := self.events.read())[0] != b"pong":
            got.append((message[2].decode(), self.plain(message[3]).decode()))
        return got

    def replicas_known(self):
        """All replicas are known, and have answered INFO."""
        with Client(self.sentinel.port) as client:
            replicas = client.call("SENTINEL", "replicas", "group")
        return len(replicas) == SERVERS - 1 and all(r[r.index(b"runid") + 1] for r in replicas)

    def end(self):
        for process in [self.sentinel] + self.servers:
            if process:
                process.stop()


HELLO = "PUBLISH", "__sentinel__:hello"
COMMANDS = [
    # arguments and texts of errors
    *[("SENTINEL", *rest) for rest in [
        (), ("nothing",), ("myid", "x"), ("masters", "x"), ("primaries", "x"), ("master",), ("primary",),
        ("master", "none"), ("primary", "none"), ("master", "a", "b"), ("replicas",), ("replicas", "none"),
        ("slaves", "none"), ("slaves",), ("sentinels",), ("sentinels", "none"), ("get-master-addr-by-name",),
        ("get-master-addr-by-name", "none"), ("get-primary-addr-by-name", "none"),
        ("get-primary-addr-by-name", "group"), ("get-master-addr-by-name", "group"), ("ckquorum",),
        ("ckquorum", "none"), ("ckquorum", "group"), ("failover",), ("failover", "none"),
        ("failover", "none", "coordinated"), ("failover", "none", "x"), ("failover", "group", "x"),
        ("failover", "group", "coordinated", "x"), ("reset",), ("reset", "none*"), ("reset", "a", "b"), ("monitor",),
        ("monitor", "m", "127.0.0.1", "1"), ("monitor", "m", "127.0.0.1", "x", "1"),
        ("monitor", "m", "127.0.0.1", "1", "x"), ("monitor", "m", "127.0.0.1", "1", "0"),
        ("monitor", "m", "127.0.0.1", "1", "-1"), ("monitor", "m", "127.0.0.1", "0", "1"),
        ("monitor", "m", "127.0.0.1", "-1", "1"), ("monitor", "m", "127.0.0.1", "65536", "1"),
        ("monitor", "m", "127.0.0.1", "99999999999", "1"), ("remove", "m"),
        ("monitor", "m", "nowhere.invalid", "1", "1"), ("monitor", "m", "localhost", "1", "1"),
        ("monitor", "m", "", "1", "1"), ("monitor", "m", "256.1.1.1", "1", "1"), ("monitor", "m", "x", "x", "x"),
        ("monitor", "m", "x", "0", "0"), ("monitor", "m", "x", "0", "1"),
        ("monitor", "group", "127.0.0.1", "1", "1"), ("monitor", "group", "x", "0", "0"),
        ("monitor", "", "127.0.0.1", "1", "1"), ("remove", ""), ("remove",), ("remove", "none"),
        ("monitor", "with space", "127.0.0.1", "1", "1"), ("master", "with space"), ("remove", "with space"),
        ("flushconfig", "x"), ("flushconfig",), ("pending-scripts",), ("pending-scripts", "x"),
        ("simulate-failure",), ("simulate-failure", "x"), ("simulate-failure", "help"),
        ("simulate-failure", "crash-after-election", "x"), ("simulate-failure", "crash-after-promotion", "help"),
        ("simulate-failure", "crash-after-promotion", "crash-after-election"), ("simulate-failure", "help"),
        ("info-cache",), ("info-cache", "none"), ("info-cache", "none", "other"),
        ("is-master-down-by-addr",), ("is-master-down-by-addr", "a", "b", "c"),
        ("is-master-down-by-addr", "127.0.0.1", "x", "0", "*"), ("is-master-down-by-addr", "127.0.0.1", "1", "x", "*"),
        ("is-master-down-by-addr", "127.0.0.1", "1", "0", "*"), ("is-master-down-by-addr", "127.0.0.1", "1", "-1", "*"),
        ("is-master-down-by-addr", "127.0.0.1", "1", "0", ID), ("is-master-down-by-addr", "bad", "1", "0", ID),
        ("is-primary-down-by-addr", "127.0.0.1", "99999999999", "0", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "70000", "0", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "0", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "-5", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "3", ID),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "3", OTHER),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "2", OTHER),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "5", OTHER),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "4", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "9", "*"),
        ("is-primary-down-by-addr", "127.0.0.1", "{0}", "10", "short"),
        ("is-primary-down-by-addr", "127.0.0.1", "{1}", "12", ID),
        ("master", "group"), ("primary", "group"), ("masters",), ("primaries",), ("replicas", "group"),
        ("slaves", "group"), ("sentinels", "group"),
        # SET
        ("set",), ("set", "group"), ("set", "group", "quorum"), ("set", "none", "quorum", "1"),
        ("set", "group", "x", "y"), ("set", "group", "quorum", "0"), ("set", "group", "quorum", "-1"),
        ("set", "group", "quorum", "x"), ("set", "group", "quorum", "1"),
        ("set", "group", "quorum", ""), ("set", "group", "quorum", " 1"), ("set", "group", "quorum", "1.5"),
        ("set", "group", "QUORUM", "2"), ("set", "group", "quorum", "1", "x", "y"), ("set", "group", "quorum", "1",
        "x"),
        ("set", "group", "down-after-milliseconds", "0"), ("set", "group", "down-after-milliseconds", "-1"),
        ("set", "group", "down-after-milliseconds", "x"), ("set", "group", "down-after-milliseconds", "50000"),
        ("set", "group", "down-after-milliseconds", "60000", "quorum", "1"),
        ("set", "group", "failover-timeout", "0"), ("set", "group", "failover-timeout", "x"),
        ("set", "group", "failover-timeout", "20000"), ("set", "group", "parallel-syncs", "0"),
        ("set", "group", "parallel-syncs", "-2"), ("set", "group", "parallel-syncs", "x"),
        ("set", "group", "parallel-syncs", "3"), ("set", "group", "parallel-syncs", "1"),
        ("set", "group", "notification-script", "/none"), ("set", "group", "notification-script", "{script}"),
        ("set", "group", "client-reconfig-script", "/none"), ("set", "group", "client-reconfig-script", ""),
        ("set", "group", "auth-pass", "secret"), ("set", "group", "auth-pass", ""),
        ("set", "group", "auth-user", "default"), ("set", "group", "auth-user", ""),
        ("set", "group", "rename-command", "x"), ("set", "group", "rename-command", "config", "conf-ig"),
        ("set", "group", "rename-command", "config", ""), ("set", "group", "rename-command", "", "x"),
        ("set", "group", "rename-command", "config", "config"), ("set", "group", "rename-command", "nothing", "other"),
        ("set", "group", "rename-command", "nothing", "nothing"),
        ("set", "group", "rename-command", "a", "b", "quorum", "1"), ("set", "group", "rename-command", "a", "a"),
        ("set", "group", "primary-reboot-down-after-period", "x"),
        ("set", "group", "primary-reboot-down-after-period", "-1"),
        ("set", "group", "primary-reboot-down-after-period", "5000"),
        ("set", "group", "master-reboot-down-after-period", "x"),
        ("set", "group", "master-reboot-down-after-period", "0"),
        ("set", "group", "known-replica", "127.0.0.1", "1"), ("set", "group", "monitor", "x"),
        # CONFIG
        ("config",), ("config", "get"), ("config", "x", "y"), ("config", "set"), ("config", "set", "x"),
        ("config", "set", "x", "y"), ("config", "set", "announce-ip"), ("config", "set", "announce-ip", "a",
        "announce-ip", "b"),
        ("config", "set", "announce-ip", "a", "announce-port"), ("config", "set", "announce-ip", "a", "x"),
        ("config", "set", "x", "y", "z"), ("config", "set", "announce-ip", "a", "x", "y"),
        ("config", "set", "announce-port", "x"), ("config", "set", "announce-port", "-1"),
        ("config", "set", "announce-port", "65536"), ("config", "set", "announce-port", "0"),
        ("config", "set", "resolve-hostnames", "x"), ("config", "set", "resolve-hostnames", "YES"),
        ("config", "set", "announce-hostnames", "maybe"), ("config", "set", "resolve-hostnames", "no"),
        ("config", "set", "announce-hostnames", "no", "resolve-hostnames", "no"),
        ("config", "set", "loglevel", "x"), ("config", "set", "loglevel", "verbose"), ("config", "get", "loglevel"),
        ("config", "set", "loglevel", "notice"), ("config", "set", "sentinel-user", "u"),
        ("config", "set", "sentinel-user", ""), ("config", "set", "sentinel-pass", ""),
        ("config", "set", "announce-ip", ""), ("config", "get", "announce-*"), ("config", "get", "*host*"),
        ("config", "get", "sentinel-user", "sentinel-pass"), ("config", "get", "none"),
        ("config", "get", "announce-ip", "announce-ip"), ("config", "get", "ANNOUNCE-IP"),
        ("config", "get", "announce-port", "a*"), ("config", "GET", "[a-z]*names"),
        # DEBUG
        ("debug",), ("debug", "x"), ("debug", "ping-period"), ("debug", "x", "1"), ("debug", "ping-period", "0"),
        ("debug", "ping-period", "x"), ("debug", "ping-period", "-1"), ("debug", "ping-period", "900"),
        ("debug", "PING-PERIOD", "1000"), ("debug", "ping-period", "1000", "x"),
        ("debug", "ping-period", "1000", "ask-period", "1000"), ("debug", "info-period", "10000", "x", "y"),
        ("debug", "default-down-after", "30000"), ("debug", "tilt-trigger", "2000"),
    ]],
    ("ROLE",), ("ROLE", "x"), ("PING",), ("PING", "x"), ("PUBLISH", "x", "y"), ("PUBLISH", "x"), ("GET", "x"),
    ("CONFIG", "GET", "port"), ("MULTI",), ("SPUBLISH", "a", "b"), ("SSUBSCRIBE", "a"), ("SELECT", "0"), ("TIME",),
    ("PUBSUB", "channels"), ("QUIT", "x"), ("RESET",), ("DEBUG", "sleep", "0"), ("MONITOR",), ("SLAVEOF", "no", "one"),
    ("REPLICAOF", "no", "one"), ("WAIT", "0", "0"), ("LATENCY", "help"), ("SLOWLOG", "get"), ("CLUSTER", "info"),
    ("ECHO", "x"), ("LOLWUT",), ("MODULE", "list"), ("SCRIPT", "kill"), ("EVAL", "return 1", "0"), ("SAVE",),
    ("BGSAVE",), ("DBSIZE",), ("MEMORY", "stats"), ("COMMANDLOG", "get", "1", "slow"), ("READONLY",), ("ASKING",),
    ("FAILOVER",), ("SYNC",), ("PSYNC", "?", "-1"), ("OBJECT", "help"), ("SHUTDOWN", "x"), ("ACL", "whoami"),
    ("ACL", "users"), ("ACL", "list"), ("ACL", "cat", "x"), ("CLIENT", "getname"), ("CLIENT", "setname", "n"),
    ("CLIENT", "getname"), ("CLIENT", "x"), ("CLIENT", "no-touch", "on"), ("CLIENT", "import-source", "on"),
    ("CLIENT", "getredir"), ("CLIENT", "trackinginfo"), ("CLIENT", "no-evict", "on"), ("CLIENT", "unpause"),
    ("CLIENT", "capa", "redirect"), ("AUTH", "x"), ("AUTH", "default", "x"), ("HELLO", "5"), ("COMMAND", "count", "x"),
    # other Sentinels
    (*HELLO, "x"), (*HELLO, "1,2,3,4,5,6,7,8"), (*HELLO, "127.0.0.1,1,%s,1,none,127.0.0.1,1,0" % ID),
    (*HELLO, "127.0.0.1,9,%s,20,group,127.0.0.1,{0},0" % ID), ("SENTINEL", "sentinels", "group"),
    ("SENTINEL", "ckquorum", "group"), (*HELLO, "127.0.0.1,10,%s,21,group,127.0.0.1,{0},0" % ID),
    (*HELLO, "127.0.0.1,10,%s,21,group,127.0.0.1,{0},0" % OTHER),
    ("SENTINEL", "set", "group", "quorum", "3"), ("SENTINEL", "ckquorum", "group"),
    ("SENTINEL", "set", "group", "quorum", "4"), ("SENTINEL", "ckquorum", "group"),
    ("SENTINEL", "set", "group", "quorum", "1"),
    (*HELLO, "127.0.0.1,10,%s,22,group,127.0.0.1,{0},0,more,fields" % OTHER),
    (*HELLO, "127.0.0.1,10,%s,22,group,127.0.0.1,{0}" % OTHER),
    ("SENTINEL", "sentinels", "group"), ("SENTINEL", "master", "group"), ("SENTINEL", "reset", "*"),
    ("SENTINEL", "sentinels", "group"),
]


VIEWS = {"master", "primary", "masters", "primaries", "replicas", "slaves"}


def call_all(sides, protocol):
    for words in COMMANDS:
        if words[:2] == ("SENTINEL", "simulate-failure"):
            compare("flags before %s" % " ".join(words), *[side.sentinel.info("sentinel")[
                "sentinel_simulate_failure_flags"] for side in sides])
        if words[0] in ("RESET", "QUIT") and protocol == 3:
            continue
        names = " ".join(words)
        got = [side.call(*words) for side in sides]
        if words[0] == "SENTINEL" and set(words[1:2]) & VIEWS:
            # A link that is set up again is "disconnected" for a moment, which is another one on each side.
            def same():
                got[:] = [side.call(*words) for side in sides]
                return got[0] == got[1]
            until(same, 20)
        compare("%s (RESP%d)" % (names, protocol), *got)
        if words[0] in ("SENTINEL", "PUBLISH"):
            # A Sentinel that connects or finds replicas at another moment publishes this, too.
            late = ("+slave", "+reboot", "-sdown", "+sdown", "+sentinel-invalid-addr")
            events = [[e for e in side.take_events() if e[0] not in late] for side in sides]
            compare("events of %s" % names, *events)


def difference(want, got):
    """The first part in which two replies differ."""
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)) and len(want) == len(got):
        for i, (a, b) in enumerate(zip(want, got)):
            if a != b:
                return "after %.60r: %s" % (want[i - 1] if i else "", difference(a, b))
    return "\n  genuine %r\n  ours    %r" % (want, got)


def compare(name, want, got):
    return report.check(name, want == got, difference(want, got))


def info(sides):
    for section in ("", "default", "all", "everything", "sentinel", "server", "clients", "stats", "cpu", "memory",
                    "replication", "keyspace", "nothing"):
        texts = [side.client.call("INFO", section) if section else side.client.call("INFO") for side in sides]
        texts = [t[1] if isinstance(t, tuple) else t for t in texts]
        headings = [[line for line in t.decode().splitlines() if line.startswith("#")] for t in texts]
        headings[1] = [h for h in headings[1] if h not in ("# RDMA", "# Listeners")]
        compare("sections of INFO %s" % section, *headings)
    for protocol in (2, 3):
        replies = []
        for side in sides:
            with Client(side.sentinel.port) as client:
                client.call("HELLO", protocol)
                reply = client.call("SENTINEL", "info-cache", "group", "none")
                replies.append([type(reply).__name__, len(reply), reply[0], sorted(
                    (len(i), type(i[0]).__name__, i[1][:8] if i[1] else i[1]) for i in reply[1])])
        compare("INFO-CACHE, RESP%d" % protocol, *replies)
    for section in ("sentinel", "server"):
        fields = [list(side.sentinel.info(section)) for side in sides]
        compare("fields of INFO %s" % section, fields[0], [f for f in fields[1] if f in fields[0]])
    compare("INFO sentinel", *[side.plain(side.client.call("INFO", "sentinel")) for side in sides])


def commands(sides):
    """The commands and subcommands that exist."""
    lists = [{name.decode().lower() for name in side.client.call("COMMAND", "LIST")} for side in sides]
    compare("COMMAND LIST", sorted(lists[0]), sorted(n for n in lists[1] if n.split("|")[-1] not in OURS_ONLY))
    for name in sorted(lists[0]):
        infos = [side.client.call("COMMAND", "INFO", name)[0] for side in sides]
        rows = [i and (i[1], sorted(map(str, i[2])), i[3:6], sorted(map(str, i[6]))) for i in infos]
        compare("COMMAND INFO %s" % name, *rows)


def help_texts(sides):
    texts = [side.client.call("SENTINEL", "help") for side in sides]
    compare("SENTINEL HELP", [t for t in texts[0]],
            [t for i, t in enumerate(texts[1]) if not t.startswith("EXPLAIN") and not t.startswith(
                ("    Explain why the primary", "    promoted."))])


def file_lines(sides):
    """What reaches the file, in its order."""
    for side in sides:
        for words in (("set", "group", "parallel-syncs", "4"), ("set", "group", "failover-timeout", "70000"),
                      ("set", "group", "auth-user", "a user"), ("set", "group", "auth-pass", 'a "pass'),
                      ("set", "group", "rename-command", "config", "c o"),
                      ("set", "group", "primary-reboot-down-after-period", "7000"),
                      ("config", "set", "announce-ip", "127.0.0.1"), ("config", "set", "announce-port", "7"),
                      ("config", "set", "sentinel-user", "me"), ("config", "set", "sentinel-pass", "pw"),
                      ("config", "set", "resolve-hostnames", "yes"), ("config", "set", "announce-hostnames", "yes"),
                      ("monitor", "second", "127.0.0.1", "1", "2")):
            side.client.call("SENTINEL", *words)
    # It is on disk when the reply comes: there is no FLUSHCONFIG here.
    lines = []
    for side in sides:
        with open(os.path.join(side.sentinel.dir, "server.conf"), "rb") as file:
            lines.append([line for line in side.plain(file.read()).decode().splitlines()
                          if line.startswith(("sentinel", "#", "dir ", "latency-tracking"))])
    replicas = [[line for line in one if "known-replica" in line] for one in lines]
    compare("known replicas in the file", sorted(replicas[0]), sorted(replicas[1]))
    # Each program appends new lines when it first writes them.
    compare("lines of the file", *[sorted(line for line in one if "known-replica" not in line) for one in lines])
    for side in sides:
        side.client.call("SENTINEL", "remove", "second")
        for words in (("set", "group", "parallel-syncs", "1"), ("set", "group", "auth-user", ""),
                      ("set", "group", "auth-pass", ""), ("set", "group", "rename-command", "config", "config"),
                      ("set", "group", "primary-reboot-down-after-period", "0"),
                      ("config", "set", "announce-ip", "", "announce-port", "0", "sentinel-user", "", "sentinel-pass",
                       "", "resolve-hostnames", "no", "announce-hostnames", "no")):
            side.client.call("SENTINEL", *words)


def failovers(sides):
    """The events of failovers, in their order. Those of links and of the second replica's return may vary."""
    for side in sides:
        wait_for("links are up", lambda: all(b"disconnected" not in dict(zip(r[::2], r[1::2]))[b"flags"] for r in
                                             Client(side.sentinel.port).call("SENTINEL", "replicas", "group")), 40)
        side.take_events()
    for how in ([], ["coordinated"], ["killed"]):
        lists = []
        for side in sides:
            old = side.client_address()
            server = next(s for s in side.servers if s.port == old)
            if how == ["killed"]:
                side.client.call("SENTINEL", "set", "group", "down-after-milliseconds", "3000")
                side.client.call("SENTINEL", "set", "group", "failover-timeout", "5000")
                server.kill()
            else:
                reply = until(lambda: (r := side.value(side.client.call("SENTINEL", "failover", "group", *how))) and
                              not isinstance(r, tuple) or r[0] != "error" and r, 40)
                compare("FAILOVER %s" % how, ("Status", b"OK"), reply)
                side.second = side.value(side.client.call("SENTINEL", "failover", "group", *how))
            until(lambda: side.client_address() != old, 40)
            until(lambda: b"failover" not in Client(side.sentinel.port).call("SENTINEL", "master", "group")[9], 60)
            lists.append(side.take_events(1.5))
        skip = ("-sdown", "+set", "+slave", "-role-change", "+role-change")
        # A busy machine may make a Sentinel fail over once more: what follows the first change is left out.
        lists = [one[:1 + next((i for i, e in enumerate(one) if e[0] == "+switch-master"), len(one))] for one in lists]
        lists = [[e for e in one if e[0] not in skip] for one in lists]
        new = [side.client_address() for side in sides]
        compare("the same replica is promoted: %s" % (how or "failover"), *[
            [s.port for s in side.servers].index(port) for side, port in zip(sides, new)])
        compare("events of %s" % (how or "failover"), *lists)
        if how != ["killed"]:
            compare("a second FAILOVER %s" % how, *[side.second for side in sides])
        for side in sides:
            for server in side.servers:
                if not server.alive():
                    server.start()
        for side in sides:
            port = side.client_address()
            wait_for("the others follow", lambda: all(
                s.info("replication").get("master_port") == str(port) and
                s.info("replication").get("master_link_status") == "up"
                for s in side.servers if s.port != port), 90)
            side.take_events()
        for side in sides:
            until(lambda: all(b"s_down" not in r[9] and b"disconnected" not in r[9] for r in
                              Client(side.sentinel.port).call("SENTINEL", "replicas", "group")), 40)


def client_address(side):
    with Client(side.sentinel.port) as client:
        return int(client.call("SENTINEL", "get-primary-addr-by-name", "group")[1])


Side.client_address = client_address


GROUP = "sentinel monitor g 127.0.0.1 1 2"
# What follows GROUP in a configuration file, with which a Sentinel starts or does not.
FILES = [[], *[[line] for line in (
    GROUP, "sentinel monitor", "sentinel monitor h 127.0.0.1 1", "sentinel monitor h 127.0.0.1 1 0",
    "sentinel monitor h 127.0.0.1 1 x", "sentinel monitor h 127.0.0.1 70000 1", "sentinel monitor h 127.0.0.1 0 1",
    "sentinel monitor h nowhere.invalid 1 1", "sentinel monitor h 127.0.0.1 1 2 3",
    "sentinel down-after-milliseconds g 0", "sentinel down-after-milliseconds g x",
    "sentinel down-after-milliseconds h 1", "sentinel down-after-milliseconds g",
    "sentinel down-after-milliseconds g 1234", "sentinel failover-timeout g 0", "sentinel failover-timeout h 1",
    "sentinel parallel-syncs h 1", "sentinel parallel-syncs g 0", "sentinel notification-script g /nothing",
    "sentinel notification-script h /bin/true", "sentinel notification-script g /bin/true",
    "sentinel client-reconfig-script g /nothing", "sentinel client-reconfig-script g /bin/true",
    "sentinel auth-pass g", "sentinel auth-pass h x", 'sentinel auth-pass g "x y"', "sentinel auth-user h x",
    "sentinel current-epoch", "sentinel current-epoch 5", "sentinel myid x", "sentinel myid " + ID,
    "sentinel config-epoch h 7", "sentinel config-epoch g 7", "sentinel leader-epoch h 9",
    "sentinel known-replica g 127.0.0.1 2", "sentinel known-slave g 127.0.0.1 2",
    "sentinel known-replica h 127.0.0.1 2", "sentinel known-replica g 127.0.0.1",
    "sentinel known-replica g nowhere.invalid 2", "sentinel known-replica g 127.0.0.1 65536",
    "sentinel known-sentinel g 127.0.0.1 2 " + ID, "sentinel known-sentinel g 127.0.0.1 2",
    "sentinel known-sentinel h 127.0.0.1 2 " + ID, "sentinel known-sentinel g nowhere.invalid 2 " + ID,
    "sentinel rename-command h CONFIG x", "sentinel rename-command g CONFIG", "sentinel rename-command g CONFIG x",
    "sentinel announce-ip", "sentinel announce-ip 1.2.3.4", "sentinel announce-ip 1.2.3.4 x",
    "sentinel announce-port 77", "sentinel deny-scripts-reconfig x", "sentinel deny-scripts-reconfig no",
    "sentinel sentinel-user", "sentinel sentinel-user u", "sentinel sentinel-pass p", "sentinel resolve-hostnames x",
    "sentinel resolve-hostnames yes", "sentinel announce-hostnames x", "sentinel announce-hostnames yes",
    "sentinel primary-reboot-down-after-period g 5", "sentinel master-reboot-down-after-period g -5",
    "sentinel master-reboot-down-after-period h 5", "sentinel nothing", "sentinel nothing g x", "nothing x",
    "sentinel debug x", "protected-mode yes", "requirepass x")],
    ["sentinel known-sentinel g 127.0.0.1 2 " + ID, "sentinel known-sentinel g 127.0.0.1 3 " + ID],
    ["sentinel known-sentinel g 127.0.0.1 2 " + ID, "sentinel known-sentinel g 127.0.0.1 2 " + OTHER],
    ["sentinel rename-command g CONFIG x", "sentinel rename-command g config y"]]
# Valkey's Sentinel keeps these. Nobody can speak with them.
UNUSABLE = ["sentinel known-replica g 127.0.0.1 0", "sentinel known-sentinel g 127.0.0.1 0 " + ID,
            "sentinel known-sentinel g 127.0.0.1 2 short"]


ARGUMENTS = [["--sentinel", "resolve-hostnames", "yes"], ["--sentinel", "nothing"],
             ["--sentinel", "monitor", "h", "127.0.0.1", 1, 2, "--sentinel", "failover-timeout", "h", 7],
             ["--sentinel", "announce-port", 7, "--loglevel", "verbose"], ["--loglevel", "verbose", "--sentinel"]]


def started(program, lines, *arguments):
    """What a Sentinel with such a file says that does not start, or the lines of its file when it ends."""
    sentinel = Server(*program, *arguments, configuration=[GROUP] + lines, start=False)
    try:
        sentinel.start()
    except RuntimeError:
        said = re.sub(r"Version [\d.]+", "Version", sentinel.output(20000))
        start = said.find("*** FATAL")
        return [line for line in said[start:].splitlines() if line and not re.match(r"\d+:X ", line)]
    else:
        with Client(sentinel.port) as client:
            client.call("AUTH", "x")
            client.call("SENTINEL", "flushconfig")
        with open(os.path.join(sentinel.dir, "server.conf")) as file:
            return sorted(re.sub("myid (?!%s).*" % ID, "myid", line.strip()) for line in file if
                          line.startswith("sentinel ") and "reboot" not in line)
    finally:
        sentinel.stop()


# A file, and commands of SENTINEL after which its text is compared.
TEXTS = [
    ("", []),
    ("{group}", []),
    ("{group}\nsentinel monitor h 127.0.0.1 2 1\n", []),
    ("", [("monitor", "a", "127.0.0.1", "1", "1"), ("monitor", "b", "127.0.0.1", "2", "1"),
          ("set", "a", "parallel-syncs", "3", "auth-pass", "a b")]),
    ("", [("config", "set", "announce-ip", "1.2.3.4", "resolve-hostnames", "yes"),
          ("config", "set", "sentinel-user", "u", "sentinel-pass", "p q"), ("config", "set", "loglevel", "debug")]),
    ("  # one \n\n\n# two\n{group}\n\n# three\nsentinel down-after-milliseconds g 5000\n\n\n\t# four\r\n"
     "sentinel known-replica g 127.0.0.1 3\nsave 10 1\n", [("monitor", "b", "127.0.0.1", "2", "1"), ("remove", "g")]),
    ('save ""\nsave 10 1\n', []),
    ("{group}\nsentinel down-after-milliseconds g 30000\nsentinel parallel-syncs g 1\nsentinel failover-timeout g "
     "180000\nsentinel deny-scripts-reconfig yes\nsentinel resolve-hostnames no\n", []),
    ("sentinel current-epoch 9\nsentinel announce-ip 1.2.3.4\nsentinel announce-port 4\nsentinel sentinel-user x\n"
     "sentinel sentinel-pass y\nsentinel announce-hostnames yes\n",
     [("config", "set", "announce-ip", "", "announce-port", "0", "sentinel-user", "", "sentinel-pass", "",
       "announce-hostnames", "no")]),
]


def text_after(program, text, commands):
    """The text of a Sentinel's file after commands: all lines, and the directives between blank lines. Both are sorted,
    because each program has an order of its own for what it appends, and for groups."""
    sentinel = Server(*program, configuration=[], start=False)
    try:
        with open(os.path.join(sentinel.dir, "server.conf"), "w") as file:
            file.write(text.replace("{group}", GROUP))
        sentinel.start()
        with Client(sentinel.port) as client:
            myid = client.call("SENTINEL", "myid").decode()
            for words in [*commands, ("flushconfig",)]:
                client.call("SENTINEL", *words)
        with open(os.path.join(sentinel.dir, "server.conf")) as file:
            got = file.read()
        for name, value in (("<id>", myid), ("<dir>", sentinel.dir), ("<port>", str(sentinel.port))):
            got = got.replace(value, name)
        return [sorted(got.split("\n"))] + [sorted(" ".join(line.split()[:2 if "sentinel" in line else 1])
                                                  for line in part.split("\n")) for part in got.split("\n\n")]
    finally:
        sentinel.stop()


def not_saved(program):
    """Replies where the file cannot be written: there is a directory in its place."""
    sentinel = Server(*program, configuration=[GROUP])
    path = os.path.join(sentinel.dir, "server.conf")
    try:
        os.unlink(path)
        os.mkdir(path)
        with Client(sentinel.port) as client:
            replies = [client.call("SENTINEL", *words) for words in [
                ("flushconfig",), ("set", "g", "quorum", "5"), ("set", "g", "quorum", "6", "x", "y"),
                ("set", "g", "auth-pass", "x"), ("set", "g", "rename-command", "a", "b"),
                ("config", "set", "announce-port", "5"), ("config", "set", "resolve-hostnames", "yes"),
                ("config", "set", "loglevel", "notice"), ("monitor", "h", "127.0.0.1", "2", "1"),
                ("set", "h", "quorum", "0"), ("reset", "*"), ("remove", "h"), ("remove", "h"), ("failover", "g")]]
            replies.append(dict(zip(*[iter(client.call("SENTINEL", "master", "g"))] * 2))[b"quorum"])
        os.rmdir(path)
        return list(map(repr, replies))
    finally:
        sentinel.stop()


def files():
    programs = [genuine("valkey-sentinel")], [ours(), "--sentinel"]
    for lines in FILES:
        compare("a file with %s" % (lines or "one group"), *[started(program, lines) for program in programs])
    for words in ARGUMENTS:
        compare("the arguments %s" % words, *[started([program[0]], [], *words) for program in (
            programs[0], [os.path.join(os.path.dirname(ours()), "valkey-sentinel")])])
    for text, commands_then in TEXTS:
        compare("the text of a file with %r" % text, *[text_after(program, text, commands_then)
                                                       for program in programs])
    compare("replies where the file cannot be written", *[not_saved(program) for program in programs])
    known = started(programs[1], UNUSABLE)
    report.check("it starts with servers that have no port or id, and removes them",
                 "sentinel current-epoch 0" in known and not any("known" in line for line in known), known)


def main():
    path, reason = newest_server()
    if not path or not genuine("valkey-sentinel"):
        report.missing("commands of a Sentinel", reason or "there is no genuine valkey-sentinel")
        report.finish()
    if sys.argv[1:] in ([], ["files"]):
        files()
    if sys.argv[1:] == ["files"]:
        report.finish()
    sides = []
    try:
        sides = [Side(genuine("valkey-sentinel")), Side(ours(), "--sentinel")]
        for side in sides:
            side.client_id = side.client.call("SENTINEL", "myid")
        for side in sides:
            wait_for("INFO has come", lambda: all(i and i[1] for i in side.client.call(
                "SENTINEL", "info-cache", "group")[1]), 40)
        commands(sides)
        help_texts(sides)
        info(sides)
        call_all(sides, 2)
        for side in sides:
            side.client = Client(side.sentinel.port)
            side.client.call("HELLO", "3")
            wait_for("the replicas are known again", side.replicas_known, 40)
        call_all(sides, 3)
        for side in sides:
            side.client = Client(side.sentinel.port)
            wait_for("the replicas are known again", side.replicas_known, 40)
        file_lines(sides)
        failovers(sides)
    finally:
        for side in sides:
            side.end()
    report.finish()


main()
