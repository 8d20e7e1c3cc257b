#!/usr/bin/env python3
"""Scenarios with our Sentinel and with a genuine one, over peers that answer as the scenario says: what a PING or INFO
may reply, roles that change, votes, elections and each step of a failover, options that change meanwhile. What both did
must be the same: the events in their order, the commands that the peers received, SENTINEL's views, and the file.

    sentinel_scenarios.py [NAME...]      VERBOSE=yes shows the times between steps, which are not compared

Every scenario has a Sentinel of its own; all run at the same time."""
import difflib
import os
import re
import sys
import threading
import time

from common import Client, Error, Report, Server, genuine, newest_server, ours, until
from scripted_server import CHANNEL, ScriptedServer, bulk

report = Report()
NAME = "group"
# Not compared: times, and what depends on the moment.
TIMES = {"last-ping-sent", "last-ok-ping-reply", "last-ping-reply", "info-refresh", "role-reported-time",
         "s-down-time", "o-down-time", "link-pending-commands", "last-hello-message"}
FAST = ("ping-period", 200, "info-period", 400, "ask-period", 200, "publish-period", 300)
OTHERS = ["%040x" % (i + 0xb0) for i in range(1, 9)]  # ids of scripted Sentinels


# Events about several instances, whose order is that of a hash table.
ANY_ORDER = ("+slave", "+reboot", "-role-change", "+role-change", "-sdown", "+sdown", "+slave-reconf-sent",
             "+slave-reconf-inprog", "+slave-reconf-done", "+slave-reconf-sent-be", "-slave-reconf-sent-timeout")


def in_order(events):
    """The events; those of one kind in a row, and changes of roles in a row, are sorted."""
    rows = []
    for line in events:
        kind = line.split()[0]
        if rows and kind == rows[-1][0] == "-script-timeout":
            continue  # said again while the killed script is still there
        if rows and kind in ANY_ORDER and (kind == rows[-1][0] or {kind, rows[-1][0]} <= {"-role-change",
                                                                                          "+role-change"}):
            rows[-1][1].append(line)
        else:
            rows.append((kind, [line]))
    return [line for _, row in rows for line in sorted(row)]


def without_left(words):
    """A command of a coordinated failover without the time that is left for it."""
    return ["<left>" if i and words[i - 1] in ("PAUSE", "TIMEOUT") else word for i, word in enumerate(words)]


class Stage:
    """One Sentinel, its scripted peers, and what is seen of them."""

    def __init__(self, kind, quorum=1, replicas=0, sentinels=0, options=(), timers=FAST, down_after=800,
                 failover_timeout=4000, monitor=True, answers=()):
        self.kind, self.peers, self.seen = kind, {}, []
        self.start_time = time.monotonic()
        self.times = []
        self.primary = self.add("primary", ScriptedServer("a" * 40))
        self.primary.info.update(answers)
        self.replicas = []
        for i in range(replicas):
            replica = ScriptedServer("%040x" % (0xc0 + i), ("127.0.0.1", self.primary.port))
            replica.info["slave_priority"] = 10 + i
            self.replicas.append(self.add("replica%d" % i, replica))
        self.primary.replicas = list(self.replicas)
        lines = ["sentinel monitor %s 127.0.0.1 %d %d" % (NAME, self.primary.port, quorum),
                 "sentinel down-after-milliseconds %s %d" % (NAME, down_after),
                 "sentinel failover-timeout %s %d" % (NAME, failover_timeout)] if monitor else []
        lines += [line.format(group=NAME) for line in options]
        program = [ours(), "--sentinel"] if kind == "ours" else [genuine("valkey-sentinel")]
        self.sentinel = Server(program[0], *program[1:], configuration=lines)
        self.client, self.subscription = Client(self.sentinel.port), Client(self.sentinel.port)
        self.subscription.call("PSUBSCRIBE", "*")
        self.id = self.client.call("SENTINEL", "myid").decode()
        if timers:
            self.client.call("SENTINEL", "debug", *timers)
        self.sentinels = []
        for i in range(sentinels):
            self.sentinels.append(self.add("sentinel%d" % i, ScriptedServer(OTHERS[i])))
            self.sentinels[i].answers["sentinel"] = b"*3\r\n:0\r\n$1\r\n*\r\n:0\r\n"
        if monitor:
            self.wait("the servers answered INFO", lambda: all(p.named("info") for p in [self.primary] + self.replicas))
            self.wait("the primary's INFO is known", lambda: self.field("num-slaves") == str(replicas))
            self.wait("the replicas' INFO is known", lambda: all(
                r["slave-priority"] != "100" for r in self.maps("replicas")))
        for i in range(sentinels):
            self.hello(i)
        if monitor:
            self.wait("its links are open", lambda: not any(
                "disconnected" in one["flags"] for view in ("masters", "replicas", "sentinels")
                for one in self.maps(view)))
        self.taken()

    def add(self, name, peer):
        self.peers[name] = peer
        return peer

    def hello(self, i, current=0, config=0, primary=None, group=NAME, name=None, port=None):
        """The message of a scripted Sentinel."""
        text = ",".join(map(str, ("127.0.0.1", port or self.sentinels[i].port, name or OTHERS[i], current, group,
                                  "127.0.0.1", primary or self.primary.port, config)))
        return self.client.call("PUBLISH", CHANNEL, text)

    def votes(self, i, down=1, leader="*", epoch=0):
        """What a scripted Sentinel answers when it is asked about the primary. `leader`: "asker" votes for the one who
        asks, in the epoch that it asks for."""
        def answer(words):
            who, when = leader, epoch
            if leader == "asker":
                who, when = words[5], int(words[4]) if words[5] != "*" else 0
            return b"*3\r\n:%d\r\n" % down + bulk(who) + b":%d\r\n" % when
        self.sentinels[i].answers["sentinel"] = answer

    # --- What is seen ---

    def maps(self, view):
        with Client(self.sentinel.port) as client:
            reply = client.call("SENTINEL", view, *([] if view == "masters" else [NAME]))
        if isinstance(reply, Error):
            return []
        return [dict((k.decode(), v.decode()) for k, v in zip(one[::2], one[1::2])) for one in reply]

    def field(self, name):
        return self.maps("masters")[0].get(name)

    def flags(self):
        return self.field("flags").split(",")

    def call(self, *words):
        reply = self.client.call(*words)
        self.note("reply to %s" % self.plain(" ".join(map(str, words[:4]))), reply)
        return reply

    def plain(self, value):
        """`value` with names for what differs between the Sentinels."""
        if isinstance(value, Error):
            return "error " + self.plain(str(value))
        if isinstance(value, bytes):
            return self.plain(value.decode("latin-1"))
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        if isinstance(value, dict):
            return {self.plain(k): self.plain(v) for k, v in value.items()}
        if isinstance(value, int):
            value = str(value)
        if not isinstance(value, str):
            return value
        value = value.replace(self.id, "<this>").replace(self.id[:8], "<this8>").replace(self.sentinel.dir, "<dir>")
        ports = {self.sentinel.port: "<port>", **{peer.port: "<%s>" % name for name, peer in self.peers.items()}}
        return re.sub(r"(?<![0-9a-f])\d{4,5}(?![0-9a-f])", lambda m: ports.get(int(m.group()), m.group()), value)

    def note(self, what, value=None):
        self.seen.append((what, self.plain(value)))
        self.times.append((time.monotonic() - self.start_time, what))

    def wait(self, what, condition, seconds=20):
        """Waits; if it does not happen, that is noted, and may be the same for both."""
        start = time.monotonic()
        if not until(condition, seconds):
            self.note("DID NOT HAPPEN: " + what)
        self.times.append((time.monotonic() - start, what))

    def event(self, kind, seconds=20, about=None, without=()):
        """Waits for an event; notes those up to it but those of the kinds `without`."""
        self.subscription.socket.settimeout(seconds)
        start, got = time.monotonic(), []
        while True:
            try:
                message = self.subscription.read()
            except OSError:
                self.note("NO EVENT %s, but" % kind, got)
                self.subscription = Client(self.sentinel.port)
                self.subscription.call("PSUBSCRIBE", "*")
                return
            if message[0] != b"pmessage":
                continue
            line = "%s %s" % (message[2].decode(), self.plain(message[3]))
            if message[2].decode() not in without:
                got.append(line)
            if message[2].decode() == kind and (about is None or about in line):
                self.note("events", in_order(got))
                self.times.append((time.monotonic() - start, "until " + kind))
                return

    def taken(self):
        """The events up to now."""
        got = []
        self.subscription.send(("PING",))
        while (message := self.subscription.read())[0] != b"pong":
            got.append("%s %s" % (message[2].decode(), self.plain(message[3])))
        return got

    def events(self, seconds=0.0):
        """Notes the events of the next seconds."""
        time.sleep(seconds)
        self.note("events", in_order(self.taken()))

    def views(self, *names, without=()):
        for view in names or ("masters", "replicas", "sentinels"):
            rows = [{k: "<time>" if k in TIMES else self.plain(v) for k, v in one.items() if k not in without}
                    for one in self.maps(view)]
            self.note(view, sorted(rows, key=lambda row: row["name"]))

    def commands(self, who, *names):
        """Notes the calls of these commands that a peer received."""
        self.note("%s received" % who, [without_left(words) for words in self.peers[who].named(*names)])

    def file(self):
        self.client.call("SENTINEL", "flushconfig")
        with open(os.path.join(self.sentinel.dir, "server.conf")) as file:
            self.note("file", sorted(self.plain(line.strip()) for line in file if line.startswith("sentinel ")))

    def end(self):
        self.sentinel.stop()
        for peer in self.peers.values():
            peer.close()


SCENARIOS = {}


def scenario(**options):
    def add(function):
        SCENARIOS[function.__name__] = (function, options)
        return function
    return add


# --- What a peer may answer ---

@scenario(replicas=1, options=("sentinel auth-user {group} u", "sentinel auth-pass {group} p"))
def connecting(stage):
    """What is sent first on each connection, and in which order."""
    stage.wait("messages came", lambda: all(stage.peers[n].named("publish") and stage.peers[n].named("subscribe")
                                            for n in ("primary", "replica0")))
    for name in ("primary", "replica0"):
        firsts = []
        for calls in list(stage.peers[name].calls):
            unique = []
            for words in calls:
                words = words[:2] if words[0].lower() == "publish" else words
                if words not in unique:
                    unique.append(words)
            # The order of PING, INFO and PUBLISH is that of timers.
            if unique[:1] != [["AUTH", "u", "p"]] or len(unique) > 2:
                firsts.append(unique[:2] + sorted(unique[2:]))
        stage.note("first words to " + name, sorted(firsts))
    stage.views()
    stage.file()


def answer_of_ping(title, answer):
    def run(stage):
        stage.events()
        stage.primary.ping = answer
        stage.wait("it looks down", lambda: "s_down" in stage.flags(), 3)
        stage.events(1.5)
        stage.note("flags later", stage.flags())
        stage.commands("primary", "script")
        stage.primary.ping = b"+PONG\r\n"
        stage.primary.cut()
        stage.wait("it looks up", lambda: not {"s_down", "disconnected"} & set(stage.flags()), 8)
        stage.note("flags at last", stage.flags())
    run.__name__ = "ping_" + title
    # One that is down may fail over to nobody.
    scenario(quorum=2)(run)


for title_, answer_ in {"nothing": None, "loading": b"-LOADING data\r\n", "masterdown": b"-MASTERDOWN link\r\n",
                        "busy": b"-BUSY script\r\n", "noauth": b"-NOAUTH Authentication required.\r\n",
                        "error": b"-ERR unknown command\r\n", "ok": b"+OK\r\n", "bulk": b"$4\r\nPONG\r\n",
                        "pongs": b"+PONGS\r\n", "pong": b"+pong\r\n", "integer": b":1\r\n", "null": b"$-1\r\n",
                        "array": b"*1\r\n$4\r\nPONG\r\n", "loading_status": b"+LOADING\r\n",
                        "wrongpass": b"-WRONGPASS no\r\n", "noperm": b"-NOPERM no\r\n",
                        "bad": b"!bad\r\n"}.items():
    answer_of_ping(title_, answer_)


@scenario(quorum=2)
def busy_then_idle(stage):
    """SCRIPT KILL is sent once for each time that it is down."""
    for _ in range(2):
        stage.primary.ping = b"-BUSY script\r\n"
        stage.event("+sdown")
        stage.wait("the script is killed", lambda: "script_kill_sent" in stage.flags())
        stage.primary.ping = b"+PONG\r\n"
        stage.event("-sdown")
        stage.note("flags", stage.flags())
    stage.commands("primary", "script")


def answer_of_info(title, change, replicas=1, quorum=2, seconds=1.3, **options):
    def run(stage):
        stage.events()
        change(stage)
        stage.events(seconds)
        # The address of a replica is a port that is not ours.
        stage.views(without=())
        for name in stage.peers:
            stage.commands(name, "slaveof", "multi", "failover")
    run.__name__ = "info_" + title
    scenario(replicas=replicas, quorum=quorum, **options)(run)


def info_reply(answer):
    return lambda stage: setattr(stage.primary, "info_answer", answer)


def info_fields(who="primary", **fields):
    return lambda stage: stage.peers[who].info.update(fields)


def slave_line(text, key="slave1"):
    return lambda stage: stage.primary.info.update({key: text})


for title_, change_ in {
        "error": info_reply(b"-ERR no\r\n"), "status": info_reply(b"+role:slave\r\n"),
        "empty": info_reply(b"$0\r\n\r\n"),
        "null": info_reply(b"$-1\r\n"), "array": info_reply(b"*0\r\n"), "no_role": info_fields(role=None),
        "odd_role": info_fields(role="sentinel"), "role_slave": info_fields(role="slave", master_host="127.0.0.1",
                                                                           master_port=1),
        "run_id": info_fields(run_id="d" * 40), "short_run_id": info_fields(run_id="dd"),
        "long_run_id": info_fields(run_id="e" * 41), "odd_run_id": info_fields(run_id="-" * 40),
        "run_id_of_replica": info_fields("replica0", run_id="d" * 40),
        "old_line": slave_line("127.0.0.1,1,online"), "no_port": slave_line("ip=127.0.0.1,state=online"),
        "no_ip": slave_line("port=1,state=online"),
        "port_too_big": slave_line("ip=127.0.0.1,port=70000"),
        "negative_port": slave_line("ip=127.0.0.1,port=-1"),
        "other_order": slave_line("port=1,state=online,ip=127.0.0.1"), "host_name": slave_line("ip=localhost,port=1"),
        "slave99": slave_line("ip=127.0.0.1,port=1", "slave99"),
        "slave_word": slave_line("ip=127.0.0.1,port=1", "slavex"),
        "same_twice": lambda stage: stage.primary.info.update(
            slave1="ip=127.0.0.1,port=1,state=online", slave2="ip=127.0.0.1,port=1,state=online"),
        "replica_gone": lambda stage: stage.primary.replicas.clear(),
        "replica_is_primary_itself": lambda stage: stage.primary.info.update(
            slave1="ip=127.0.0.1,port=%d" % stage.primary.port),
        "priority": info_fields("replica0", slave_priority=0),
        "odd_priority": info_fields("replica0", slave_priority="x"),
        "negative_priority": info_fields("replica0", slave_priority=-5),
        "offset": info_fields("replica0", slave_repl_offset=-7), "odd_offset": info_fields("replica0",
                                                                                          slave_repl_offset="12x"),
        "link_down": info_fields("replica0", master_link_status="down", master_link_down_since_seconds=7),
        "link_down_never": info_fields("replica0", master_link_status="down", master_link_down_since_seconds=-1),
        "link_odd": info_fields("replica0", master_link_status="x"),
        "unannounced": info_fields("replica0", replica_announced=0),
        "odd_announced": info_fields("replica0", replica_announced=7),
        "failover_state": info_fields(master_failover_state="waiting-for-sync"),
        "primary_host_name": info_fields("replica0", master_host="localhost"),
        "no_primary_host": info_fields("replica0", master_host=None, master_port=None),
        "no_priority": info_fields("replica0", slave_priority=None, slave_repl_offset=None, replica_announced=None,
                                   master_link_status=None),
}.items():
    answer_of_info(title_, change_)


@scenario(replicas=1, quorum=2, failover_timeout=1500)
def replica_of_another(stage):
    """A replica that follows another server is corrected after failover-timeout."""
    stage.replicas[0].primary = ("127.0.0.1", 1)
    stage.event("+fix-slave-config")
    stage.wait("it is told", lambda: stage.replicas[0].named("exec"))
    stage.commands("replica0", "multi", "slaveof", "config", "client", "exec", "replicaof")
    stage.events(1)
    stage.views("replicas")


@scenario(replicas=1, quorum=2)
def replica_says_primary(stage):
    stage.replicas[0].primary = None
    stage.event("+convert-to-slave")
    stage.wait("it is told", lambda: stage.replicas[0].named("exec"))
    stage.commands("replica0", "multi", "slaveof", "config", "exec", "replicaof")
    stage.events(1.5)
    stage.views("replicas")


@scenario(replicas=1, quorum=2)
def replica_says_primary_and_does_not_obey(stage):
    """It is told again and again, not more often than it was at first."""
    stage.replicas[0].obeys = False
    stage.replicas[0].primary = None
    stage.event("+convert-to-slave")
    stage.events(1.0)
    stage.views("replicas")


@scenario(quorum=1)
def primary_says_replica(stage):
    """A primary that says it is a replica looks down after down-after and two periods of INFO."""
    stage.primary.primary = ("127.0.0.1", 1)
    stage.event("+sdown")
    stage.event("+odown")
    stage.events(0.3)
    stage.primary.primary = None
    stage.event("-sdown")
    stage.views("masters", without=("flags", "failover-state"))


@scenario(quorum=2)
def primary_reboots(stage):
    stage.call("SENTINEL", "set", NAME, "primary-reboot-down-after-period", 600)
    stage.events()
    stage.primary.ping = b"-LOADING data\r\n"
    stage.primary.run_id = "d" * 40
    stage.event("+reboot")
    stage.note("flags", stage.flags())
    stage.event("+sdown")
    stage.note("flags", stage.flags())
    stage.primary.ping = b"+PONG\r\n"
    stage.event("-sdown")
    stage.note("flags", stage.flags())
    stage.file()


@scenario(quorum=2)
def primary_reboots_quickly(stage):
    stage.call("SENTINEL", "set", NAME, "master-reboot-down-after-period", 1000)
    stage.primary.run_id = "d" * 40
    stage.event("+reboot")
    stage.events(2)
    stage.note("flags", stage.flags())
    stage.file()


@scenario(quorum=2, down_after=1000)
def connection_lost(stage):
    stage.primary.refuse()
    stage.event("+sdown")
    stage.views("masters", without=("flags",))
    stage.primary.restore()
    stage.event("-sdown")
    stage.views("masters")


@scenario(quorum=2, down_after=1000, replicas=2)
def replica_lost(stage):
    stage.replicas[0].refuse()
    stage.event("+sdown")
    stage.views("replicas")
    stage.replicas[0].restore()
    stage.event("-sdown")
    stage.views("replicas")


# --- Failovers ---

def all_commands(stage):
    for name in stage.peers:
        stage.commands(name, "multi", "slaveof", "replicaof", "failover", "config", "exec")
        stage.note("CLIENT to " + name, [without_left(words) for words in stage.peers[name].named("client")
                                         if words[1].lower() != "setname"])


@scenario(replicas=2)
def killed(stage):
    stage.primary.refuse()
    stage.event("+switch-master")
    all_commands(stage)
    stage.events(0.3)
    stage.views("masters", "replicas", without=("flags", "s-down-time"))
    stage.file()


@scenario(replicas=2)
def manual(stage):
    stage.call("SENTINEL", "failover", NAME)
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")
    all_commands(stage)
    stage.events(1)
    stage.file()


@scenario(replicas=2, quorum=3)
def manual_alone_with_quorum_3(stage):
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")
    stage.file()


@scenario(replicas=2, quorum=3, sentinels=2)
def manual_without_votes(stage):
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")
    stage.commands("sentinel0", "sentinel")
    stage.file()


@scenario(replicas=2, quorum=3)
def coordinated_alone_with_quorum_3(stage):
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.event("-failover-abort-not-elected")
    all_commands(stage)
    stage.file()


@scenario(replicas=2, quorum=2, sentinels=2)
def coordinated(stage):
    for i in range(2):
        stage.votes(i, down=0, leader="asker")
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.note("flags", stage.flags())
    # When the INFO of the primary comes is a matter of chance; so is whether it looks down while it hands over.
    stage.event("+switch-master", without=("-role-change", "+sdown", "-sdown"))
    stage.note("asked", sorted(set(map(tuple, stage.sentinels[0].named("sentinel")))))
    all_commands(stage)
    stage.file()


@scenario(replicas=2, quorum=3, sentinels=2)
def coordinated_without_votes(stage):
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.event("-failover-abort-not-elected")
    stage.note("asked", sorted(set(map(tuple, stage.sentinels[0].named("sentinel")))))
    all_commands(stage)
    stage.file()


@scenario(replicas=2, quorum=3, sentinels=2)
def coordinated_with_votes_for_another(stage):
    for i in range(2):
        stage.votes(i, leader="f" * 40, epoch=1)
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.event("-failover-abort-not-elected")
    stage.note("asked", sorted(set(map(tuple, stage.sentinels[0].named("sentinel")))))
    stage.file()


@scenario(replicas=1, quorum=1, failover_timeout=2000)
def coordinated_and_the_primary_does_not_obey(stage):
    stage.primary.obeys = False
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.event("+failover-state-wait-promotion")
    stage.note("flags", stage.flags())
    stage.call("SENTINEL", "failover", NAME)
    stage.events(4)
    all_commands(stage)
    stage.views("masters", "replicas")
    stage.file()


@scenario(replicas=1, quorum=1, failover_timeout=2000)
def coordinated_and_failover_is_refused(stage):
    stage.primary.answers["exec"] = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.events(5)
    all_commands(stage)
    stage.views("masters", "replicas")


@scenario(replicas=1, quorum=1, answers={"master_failover_state": None})
def coordinated_by_an_old_primary(stage):
    stage.call("SENTINEL", "failover", NAME, "coordinated")


@scenario(replicas=1, quorum=1)
def coordinated_while_the_primary_fails_over(stage):
    stage.primary.info["master_failover_state"] = "waiting-for-sync"
    stage.events(1)
    stage.call("SENTINEL", "failover", NAME, "coordinated")
    stage.event("+switch-master", without=("-role-change", "+sdown", "-sdown"))
    stage.wait("clients are killed", lambda: all("UNPAUSE" in str(p.named("client"))
                                                 for p in (stage.primary, stage.replicas[0])))
    all_commands(stage)


@scenario(replicas=2)
def priority_0(stage):
    for replica in stage.replicas:
        replica.info["slave_priority"] = 0
    stage.wait("that is known", lambda: all(r["slave-priority"] == "0" for r in stage.maps("replicas")))
    stage.call("SENTINEL", "failover", NAME)
    stage.primary.refuse()
    stage.event("-failover-abort-no-good-slave")
    stage.views("masters", without=("failover-state", "flags"))


@scenario(replicas=3)
def choice_by_priority(stage):
    for i, priority in enumerate((50, 20, 20)):
        stage.replicas[i].info["slave_priority"] = priority
    stage.replicas[2].info["slave_repl_offset"] = 200
    stage.wait("that is known", lambda: {r["slave-priority"] for r in stage.maps("replicas")} == {"20", "50"} and
               "200" in [r["slave-repl-offset"] for r in stage.maps("replicas")])
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+selected-slave")


@scenario(replicas=3)
def choice_by_run_id(stage):
    for i in range(3):
        stage.replicas[i].info["slave_priority"] = 1
        stage.replicas[i].info["run_id"] = "%040x" % (0x30 - i)
    stage.wait("that is known", lambda: {r["runid"] for r in stage.maps("replicas")} == {
        "%040x" % (0x30 - i) for i in range(3)})
    stage.events()
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+selected-slave")


@scenario(replicas=2)
def choice_with_a_link_long_down(stage):
    stage.replicas[0].info.update(master_link_status="down", master_link_down_since_seconds=100)
    stage.wait("that is known", lambda: "100000" in [r["master-link-down-time"] for r in stage.maps("replicas")])
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+selected-slave")


@scenario(replicas=2)
def choice_of_an_unannounced(stage):
    stage.replicas[0].info["replica_announced"] = 0
    stage.wait("that is known", lambda: "0" in [r["replica-announced"] for r in stage.maps("replicas")])
    with_replicas = len(stage.client.call("SENTINEL", "replicas", NAME))
    stage.note("replicas listed", with_replicas)
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")


def reconfiguration(parallel):
    def run(stage):
        stage.call("SENTINEL", "set", NAME, "parallel-syncs", parallel)
        for replica in stage.replicas[1:]:
            replica.info["master_link_status"] = "down"
        stage.call("SENTINEL", "failover", NAME)
        told = lambda: {r.port for r in stage.replicas[1:] if r.named("exec")}
        for round_ in range(4 // parallel):
            stage.wait("replicas are told", lambda: len(told()) == parallel * (round_ + 1), 5)
            time.sleep(1)
            stage.note("told", len(told()))
            for replica in stage.replicas[1:]:
                if replica.port in told():
                    replica.info["master_link_status"] = "up"
        stage.wait("it is over", lambda: stage.field("port") != str(stage.primary.port))
    run.__name__ = "parallel_syncs_%d" % parallel
    return run


for parallel_ in (1, 2, 4):
    scenario(replicas=5, failover_timeout=20000)(reconfiguration(parallel_))


@scenario(replicas=3, failover_timeout=3000, options=("sentinel parallel-syncs {group} 2",))
def reconfiguration_times_out(stage):
    """Replicas that do not come to follow the promoted one."""
    for replica in stage.replicas[1:]:
        replica.obeys = False
    stage.call("SENTINEL", "debug", "slave-reconf-timeout", 60000)
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+failover-end-for-timeout")
    stage.event("+switch-master")
    stage.events(0.5)


@scenario(replicas=2, failover_timeout=6000, options=("sentinel parallel-syncs {group} 2",))
def reconfiguration_of_one_times_out(stage):
    """Valkey's Sentinel sees it only while fewer than parallel-syncs are told."""
    stage.replicas[1].obeys = False
    stage.call("SENTINEL", "debug", "slave-reconf-timeout", 1000)
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")


@scenario(replicas=1, failover_timeout=2000)
def promotion_does_not_happen(stage):
    stage.replicas[0].obeys = False
    stage.call("SENTINEL", "failover", NAME)
    stage.event("-failover-abort-slave-timeout")
    stage.views("masters", "replicas")
    all_commands(stage)
    stage.file()


@scenario(replicas=1, failover_timeout=2000)
def promotion_of_a_lost_replica(stage):
    def lost(words):
        stage.replicas[0].refuse()
        return b"-ERR lost\r\n"
    stage.replicas[0].answers["multi"] = lost
    stage.call("SENTINEL", "failover", NAME)
    stage.events(5)
    stage.views("masters", without=())


@scenario(replicas=2)
def renamed_commands(stage):
    for command, name in (("SLAVEOF", "new-slaveof"), ("CONFIG", "new-config"), ("MULTI", "new-multi"),
                          ("CLIENT", "new-client"), ("EXEC", "new-exec"), ("PING", "new-ping"), ("INFO", "new-info"),
                          ("PUBLISH", "new-publish"), ("SUBSCRIBE", "new-subscribe"), ("SCRIPT", "new-script")):
        stage.call("SENTINEL", "set", NAME, "rename-command", command, name)
    for peer in stage.replicas + [stage.primary]:
        peer.answers["new-ping"] = lambda words, peer=peer: b"+PONG\r\n"
        peer.answers["new-info"] = lambda words, peer=peer: bulk(peer.info_text())
        peer.answers["new-slaveof"] = lambda words, peer=peer: peer.execute(["slaveof"] + words[1:], {})
        peer.cut()
    stage.events(1.5)
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+promoted-slave")
    stage.wait("all are told", lambda: all(r.named("new-exec") for r in stage.replicas))
    for name in stage.peers:
        unique = []
        for calls in stage.peers[name].calls:
            for words in calls:
                words = words[:1] + (words[1:] if not words[0].lower().endswith(("publish", "subscribe")) else [])
                if words not in unique:
                    unique.append(words)
        stage.note("to " + name, sorted(unique))
    stage.file()


# --- Elections ---

@scenario(replicas=1, quorum=2, sentinels=4)
def elected(stage):
    for i in range(4):
        stage.votes(i, leader="asker")
    stage.primary.refuse()
    stage.event("+switch-master")
    asked = []
    for words in stage.sentinels[0].named("sentinel"):
        if words not in asked:
            asked.append(words)
    stage.note("asked", asked)
    stage.views("sentinels", without=("flags", "voted-leader", "voted-leader-epoch"))
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=4)
def not_elected_without_a_majority(stage):
    stage.call("SENTINEL", "debug", "election-timeout", 1500)
    stage.votes(0, leader="asker")
    for i in (1, 2, 3):
        stage.votes(i, leader="*")
    stage.primary.refuse()
    stage.event("-failover-abort-not-elected")
    stage.views("masters", "sentinels", without=("failover-state", "flags"))
    stage.file()


@scenario(replicas=1, quorum=4, sentinels=4)
def elected_by_the_quorum(stage):
    """Its own vote counts."""
    for i in range(3):
        stage.votes(i, leader="asker")
    stage.votes(3, down=1, leader="*")
    stage.primary.refuse()
    stage.event("+switch-master")
    stage.views("masters", without=("failover-state", "flags"))


@scenario(replicas=1, quorum=5, sentinels=4)
def not_elected_below_the_quorum(stage):
    """A majority votes, but fewer than the quorum."""
    stage.call("SENTINEL", "debug", "election-timeout", 1500)
    for i in range(4):
        stage.votes(i, leader="asker" if i < 3 else "*")
    stage.primary.refuse()
    stage.event("-failover-abort-not-elected")


@scenario(replicas=1, quorum=2, sentinels=4)
def not_elected_with_stale_votes(stage):
    """Votes of another epoch do not count."""
    stage.call("SENTINEL", "debug", "election-timeout", 1500)

    def stale(words):
        return b"*3\r\n:1\r\n" + bulk(words[5]) + b":%d\r\n" % max(int(words[4]) - 1, 0)
    for i in range(4):
        stage.sentinels[i].answers["sentinel"] = stale
    stage.primary.refuse()
    stage.event("-failover-abort-not-elected")
    stage.views("sentinels")
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=4)
def not_elected_another_is(stage):
    """All vote for another, which then fails over."""
    stage.call("SENTINEL", "debug", "election-timeout", 1500)

    def other(words):
        return b"*3\r\n:1\r\n" + bulk(OTHERS[0]) + b":%d\r\n" % int(words[4])
    for i in range(4):
        stage.sentinels[i].answers["sentinel"] = other
    stage.primary.refuse()
    stage.event("-failover-abort-not-elected")
    stage.hello(0, current=1, config=1, primary=stage.replicas[0].port)
    stage.event("+switch-master")
    stage.views("masters", "sentinels", without=("flags", "num-slaves"))
    stage.file()


@scenario(replicas=1, quorum=3, sentinels=4)
def down_only_for_few(stage):
    stage.votes(0, down=1)
    for i in (1, 2, 3):
        stage.votes(i, down=0)
    stage.primary.refuse()
    stage.event("+sdown")
    stage.events(1.5)
    stage.views("masters", "sentinels")
    stage.votes(1, down=1)
    stage.event("+odown")
    stage.primary.restore()
    stage.event("-odown")


def odd_votes(title, answer):
    def run(stage):
        stage.call("SENTINEL", "debug", "election-timeout", 1000)
        for i in range(2):
            stage.sentinels[i].answers["sentinel"] = answer
        stage.primary.refuse()
        stage.event("+sdown")
        stage.events(4)
        stage.views("sentinels")
    run.__name__ = "votes_" + title
    scenario(replicas=1, quorum=2, sentinels=2)(run)


for title_, answer_ in {"error": b"-ERR no\r\n", "short": b"*2\r\n:1\r\n$1\r\n*\r\n", "null": b"*-1\r\n",
                        "strings": b"*3\r\n$1\r\n1\r\n$1\r\n*\r\n$1\r\n0\r\n",
                        "long": b"*4\r\n:1\r\n$1\r\n*\r\n:0\r\n:0\r\n",
                        "down_2": b"*3\r\n:2\r\n$1\r\n*\r\n:0\r\n", "negative": b"*3\r\n:1\r\n$1\r\nx\r\n:-1\r\n",
                        "status_leader": b"*3\r\n:1\r\n+x\r\n:0\r\n",
                        "short_leader": b"*3\r\n:1\r\n$1\r\nx\r\n:1\r\n"}.items():
    odd_votes(title_, answer_)


@scenario(replicas=1, quorum=2, sentinels=2)
def asked_for_votes(stage):
    """It votes once for each epoch, whether or not the primary looks down to it."""
    port = stage.primary.port
    for epoch, who in ((0, "*"), (0, "f" * 40), (1, "f" * 40), (1, "e" * 40), (3, "e" * 40), (2, "d" * 40), (3, "*"),
                       (9, "*")):
        stage.call("SENTINEL", "is-master-down-by-addr", "127.0.0.1", port, epoch, who)
    stage.primary.refuse()
    stage.event("+sdown")
    stage.call("SENTINEL", "is-master-down-by-addr", "127.0.0.1", port, 9, "*")
    stage.call("SENTINEL", "is-master-down-by-addr", "127.0.0.1", port, 8, "c" * 40)
    stage.call("SENTINEL", "is-master-down-by-addr", "127.0.0.1", port, 9, "c" * 40)
    stage.events(0.5)
    stage.views("masters")
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=2)
def voted_for_another_waits(stage):
    """After a vote for another it does not start a failover of its own."""
    for i in range(2):
        stage.votes(i, down=1)
    stage.call("SENTINEL", "is-master-down-by-addr", "127.0.0.1", stage.primary.port, 5, OTHERS[0])
    stage.primary.refuse()
    stage.event("+odown")
    stage.events(2)
    stage.file()


# --- Hello messages ---

@scenario(replicas=2, quorum=2, sentinels=1)
def hello_with_a_newer_configuration(stage):
    stage.hello(0, current=7, config=5, primary=stage.replicas[1].port)
    stage.event("+switch-master")
    stage.events(0.5)
    stage.views("masters", "replicas", without=("flags", "role-reported", "master-port", "num-slaves"))
    stage.hello(0, current=7, config=5, primary=stage.primary.port)
    stage.hello(0, current=8, config=4, primary=stage.primary.port)
    stage.events(0.5)
    stage.hello(0, current=8, config=6, primary=stage.replicas[1].port)
    stage.events(0.5)
    stage.views("masters", without=("flags", "role-reported", "num-slaves"))
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=2)
def hello_of_odd_kinds(stage):
    for text in ("", "x", "," * 7, "127.0.0.1,1," + OTHERS[5] + ",0,none,127.0.0.1,1,0",
                 "127.0.0.1,1," + OTHERS[5] + ",0,group,127.0.0.1,1",
                 "127.0.0.1,1," + OTHERS[5] + ",0,group,127.0.0.1,1,0,x"):
        stage.call("PUBLISH", CHANNEL, text)
    stage.events(0.3)
    stage.views("masters", "sentinels")


@scenario(replicas=1, quorum=2, sentinels=3)
def hello_from_a_new_address(stage):
    """A Sentinel moves; another takes its place; one comes with a new id."""
    stage.events()
    extra = stage.add("extra", ScriptedServer(OTHERS[6]))
    stage.hello(0, port=extra.port)
    stage.events(0.3)
    stage.views("sentinels", without=("flags", "link-refcount"))
    stage.hello(1, port=stage.sentinels[2].port)
    stage.events(0.3)
    stage.hello(0, name=OTHERS[6], port=extra.port)
    stage.events(0.3)
    stage.views("masters", "sentinels", without=("flags", "link-refcount"))
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=2)
def two_groups_share_links(stage):
    second = stage.add("second", ScriptedServer("9" * 40))
    stage.call("SENTINEL", "monitor", "second", "127.0.0.1", second.port, 2)
    stage.wait("it is known", lambda: second.named("info"))
    for i in range(2):
        stage.hello(i, group="second", primary=second.port)
    stage.events(0.5)
    stage.views("masters", "sentinels")
    extra = stage.add("extra", ScriptedServer(OTHERS[6]))
    stage.hello(0, port=extra.port)
    stage.events(0.3)
    stage.note("names", sorted(one["name"] for one in stage.maps("masters")))
    stage.call("SENTINEL", "remove", "second")
    stage.events(0.3)
    stage.views("masters", "sentinels", without=("flags",))
    stage.file()


@scenario(replicas=1, quorum=2, sentinels=2)
def sentinel_lost(stage):
    stage.sentinels[0].refuse()
    stage.event("+sdown")
    stage.call("SENTINEL", "ckquorum", NAME)
    stage.sentinels[1].refuse()
    stage.event("+sdown")
    stage.call("SENTINEL", "ckquorum", NAME)
    stage.views("sentinels", without=("flags",))
    stage.sentinels[0].restore()
    stage.event("-sdown")
    stage.call("SENTINEL", "ckquorum", NAME)


@scenario(replicas=2, quorum=2, sentinels=2)
def reset(stage):
    stage.events()
    stage.call("SENTINEL", "reset", "gr*")
    stage.event("+slave")
    stage.event("+slave")
    stage.events(0.3)
    stage.views("masters", "sentinels")
    stage.file()


def wait_in_a_failover(stage):
    """A failover whose chosen replica does not become a primary."""
    stage.replicas[0].obeys = False
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+failover-state-wait-promotion")


@scenario(replicas=2)
def reset_in_a_failover(stage):
    wait_in_a_failover(stage)
    stage.call("SENTINEL", "reset", NAME)
    stage.events(1.5)
    stage.views("masters")
    stage.file()


@scenario(replicas=2)
def removed_in_a_failover(stage):
    wait_in_a_failover(stage)
    stage.call("SENTINEL", "remove", NAME)
    stage.call("SENTINEL", "masters")
    stage.call("SENTINEL", "monitor", NAME, "127.0.0.1", stage.primary.port, 1)
    stage.wait("the replicas are known", lambda: stage.field("num-slaves") == "2")
    stage.events(0.5)
    stage.views("masters")
    stage.file()


@scenario(replicas=1)
def restarted_in_a_failover(stage):
    """What it does after it was killed in the middle of a failover."""
    stage.call("SENTINEL", "simulate-failure", "crash-after-promotion")
    stage.call("SENTINEL", "failover", NAME)
    stage.sentinel.process.wait(20)
    stage.note("status", stage.sentinel.process.returncode)
    with open(os.path.join(stage.sentinel.dir, "server.conf")) as file:
        stage.note("file", sorted(stage.plain(line.strip()) for line in file if line.startswith("sentinel ")))


@scenario(replicas=1)
def crashes_after_its_election(stage):
    stage.call("SENTINEL", "simulate-failure", "crash-after-election")
    stage.call("SENTINEL", "failover", NAME)
    stage.sentinel.process.wait(20)
    stage.note("status", stage.sentinel.process.returncode)
    with open(os.path.join(stage.sentinel.dir, "server.conf")) as file:
        stage.note("file", sorted(stage.plain(line.strip()) for line in file if line.startswith("sentinel ")))


# --- Options and scripts ---

@scenario(quorum=2, replicas=1, sentinels=1)
def options_change(stage):
    stage.call("SENTINEL", "set", NAME, "down-after-milliseconds", 5000)
    stage.views()
    stage.call("SENTINEL", "set", NAME, "quorum", 1, "failover-timeout", 90000, "parallel-syncs", 3)
    stage.views("masters")
    stage.call("SENTINEL", "set", NAME, "quorum", 3, "failover-timeout", "bad")
    stage.views("masters")
    stage.call("SENTINEL", "set", NAME, "auth-pass", "p", "auth-user", "u")
    stage.wait("it connects anew", lambda: stage.primary.named("auth"))
    stage.note("AUTH", stage.primary.named("auth")[:1])
    stage.call("SENTINEL", "config", "set", "sentinel-pass", "q")
    stage.wait("it connects anew", lambda: stage.sentinels[0].named("auth"))
    stage.note("AUTH of a Sentinel", stage.sentinels[0].named("auth")[:1])
    stage.call("SENTINEL", "config", "set", "sentinel-user", "v")
    stage.wait("it connects anew", lambda: ["AUTH", "v", "q"] in stage.sentinels[0].named("auth"))
    stage.events()
    stage.file()


@scenario(replicas=1)
def down_after_is_raised(stage):
    """One that looks down is up again when down-after is raised."""
    stage.call("SENTINEL", "set", NAME, "quorum", 2)
    stage.primary.ping = None
    stage.primary.cut()
    stage.event("+sdown")
    stage.call("SENTINEL", "set", NAME, "down-after-milliseconds", 60000)
    stage.event("-sdown")
    stage.views("masters")


@scenario(replicas=1, sentinels=1, quorum=2)
def announced_address(stage):
    stage.call("SENTINEL", "config", "set", "announce-ip", "192.0.2.7", "announce-port", 7)
    texts = lambda: {w[2].split(",")[0] + ":" + w[2].split(",")[1] for p in (stage.primary, stage.sentinels[0])
                     for w in p.named("publish")}
    stage.wait("it is told", lambda: "192.0.2.7:7" in texts())
    stage.note("addresses", sorted(texts()))
    stage.call("SENTINEL", "config", "set", "announce-ip", "a name")
    stage.call("SENTINEL", "config", "get", "announce-ip")
    stage.file()


def script_of(stage, name, status):
    path = os.path.join(stage.sentinel.dir, name)
    with open(path, "w") as file:
        file.write('#!/bin/sh\necho "$@" >>%s.calls\nexit %s\n' % (path, status))
    os.chmod(path, 0o755)
    return path


def calls_of(path):
    try:
        with open(path + ".calls") as file:
            return file.read().splitlines()
    except OSError:
        return []


@scenario(replicas=1, options=("sentinel deny-scripts-reconfig no",))
def scripts_run(stage):
    notify, reconfigure = script_of(stage, "notify", 0), script_of(stage, "reconfigure", 0)
    stage.call("SENTINEL", "set", NAME, "notification-script", notify, "client-reconfig-script", reconfigure)
    stage.views("masters")
    stage.call("SENTINEL", "failover", NAME)
    stage.event("+switch-master")
    stage.wait("the scripts ran", lambda: calls_of(reconfigure) and any(
        "+switch-master" in c for c in calls_of(notify)))
    stage.wait("all ran", lambda: not stage.client.call("SENTINEL", "pending-scripts"))
    stage.note("notifications", sorted(calls_of(notify)))
    stage.note("reconfigurations", calls_of(reconfigure))
    stage.file()


@scenario(replicas=2, sentinels=1, quorum=2, options=("sentinel deny-scripts-reconfig no",))
def scripts_of_an_observer(stage):
    reconfigure = script_of(stage, "reconfigure", 0)
    stage.call("SENTINEL", "set", NAME, "client-reconfig-script", reconfigure)
    stage.hello(0, current=7, config=5, primary=stage.replicas[1].port)
    stage.wait("the script ran", lambda: calls_of(reconfigure))
    stage.note("reconfigurations", calls_of(reconfigure))


def failing_script(title, status, seconds):
    def run(stage):
        stage.call("SENTINEL", "debug", "script-retry-delay", 300, "script-max-runtime", 1000)
        notify = script_of(stage, "notify", status)
        stage.call("SENTINEL", "set", NAME, "notification-script", notify)
        stage.events(seconds)
        what, events = stage.seen.pop()
        stage.note(what, [re.sub(r"^(-script-timeout .*) \d+$", r"\1 <pid>", line) for line in events])
        # What it does at this moment is not compared.
        stage.note("pending", [one[1] for one in stage.client.call("SENTINEL", "pending-scripts")])
        # Times decide how often one has run.
        stage.note("calls", sorted(set(calls_of(notify))))
    run.__name__ = "script_" + title
    scenario(quorum=2, options=("sentinel deny-scripts-reconfig no",))(run)


failing_script("status_1", "1", 0.7)
failing_script("status_2", "2", 0.7)
failing_script("too_slow", '$(sleep 20)', 2.5)
failing_script("killed", '$(kill -9 $$)', 0.7)


@scenario(replicas=1, options=("sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"))
def host_names(stage):
    stage.call("SENTINEL", "monitor", "second", "localhost", stage.primary.port, 1)
    stage.wait("the replica is known", lambda: all(m["num-slaves"] == "1" for m in stage.maps("masters")))
    stage.views("masters")
    stage.call("SENTINEL", "get-master-addr-by-name", "second")
    stage.call("SENTINEL", "failover", "second")
    stage.event("+switch-master", about="second")
    stage.views("masters", without=("flags", "role-reported", "num-slaves"))
    stage.file()


# --- The programs are compared ---

def play(kind, name, results):
    function, options = SCENARIOS[name]
    stage = None
    try:
        stage = Stage(kind, **options)
        function(stage)
        results[kind] = (stage.seen, stage.times)
    except Exception as error:  # a thread's exception would go unnoticed
        results[kind] = ([("EXCEPTION", repr(error))], [])
    finally:
        if stage:
            stage.end()


def differences(a, b):
    """The steps that differ, as text."""
    lines = []
    for i in range(max(len(a), len(b))):
        one, two = a[i] if i < len(a) else None, b[i] if i < len(b) else None
        if one == two:
            continue
        if not one or not two or one[0] != two[0]:
            lines.append("step %d\n  genuine %s\n  ours    %s" % (i, one and one[0], two and two[0]))
            for side in (one, two):
                lines.append("  " + "\n    ".join(map(str, side[1] if side and isinstance(side[1], list) else [side])))
            break  # those behind it are others
        lines.append("step %d, %s" % (i, one[0]))
        rows = list(zip(*[[n for n in side[1] if isinstance(n, dict)] if isinstance(side[1], list) else []
                          for side in (one, two)]))
        if rows and len(one[1]) == len(two[1]):
            for x, y in rows:
                lines += ["  %s: %s: genuine %r, ours %r" % (x["name"], key, x.get(key), y.get(key))
                          for key in {**x, **y} if x.get(key) != y.get(key)]
        elif isinstance(one[1], list) and isinstance(two[1], list):
            lines += ["  " + line for line in difflib.unified_diff(
                [str(x) for x in one[1]], [str(x) for x in two[1]], "genuine", "ours", n=1, lineterm="")]
        else:
            lines.append("  genuine %r\n  ours    %r" % (one[1], two[1]))
    return "\n".join(lines)


def main():
    path, reason = newest_server()
    if not path or not genuine("valkey-sentinel"):
        report.missing("scenarios with both Sentinels", reason or "there is no genuine valkey-sentinel")
        report.finish()
    names = [n for n in SCENARIOS if not sys.argv[1:] or any(n.startswith(word) for word in sys.argv[1:])]
    gate = threading.Semaphore(int(os.environ.get("SCENARIOS_AT_ONCE", "12")))
    results = {name: {} for name in names}

    def both(name):
        with gate:
            sides = [threading.Thread(target=play, args=(kind, name, results[name]), daemon=True)
                     for kind in ("genuine", "ours")]
            for side in sides:
                side.start()
            for side in sides:
                side.join()

    threads = [threading.Thread(target=both, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for name, thread in zip(names, threads):
        thread.join()
        genuine_seen, ours_seen = results[name]["genuine"], results[name]["ours"]
        same = genuine_seen[0] == ours_seen[0] and not any(w == "EXCEPTION" for w, _ in ours_seen[0])
        report.check(name.replace("_", " "), same, "\n" + differences(genuine_seen[0], ours_seen[0]))
        if os.environ.get("VERBOSE"):
            for kind in ("genuine", "ours"):
                print("    %-7s %s" % (kind, ", ".join("%s %.2f" % (w, t) for t, w in results[name][kind][1])))
    report.finish()


if __name__ == "__main__":
    main()
