#!/usr/bin/env python3
"""The functions of the interface of modules, called by one and the same module in our server and in a genuine one. The
answers must be the same, line by line: those of tests/modules/answers.c, and what tests/modules/journal.c answers and
notes when operations run in each place in which a module may act, with what is propagated to replicas."""
import os
import tempfile
import time

from common import ROOT, Client, Report, Server, ours, required_newest
import differential_servers as comparison

COMMANDS = ("strings", "dicts", "lists", "hashes", "zsets", "streams", "scans", "rights")
PLACES = ("", "timer 1 ; ", "thread ; ", "oneshot ; ", "job ; ", "wait ; ", "timer 1 ; thread ; ", "timer 1 ; job ; ",
          "thread ; job ; ", "job ; job ; ", "thread ; timer 1 ; ")
OPERATIONS = (
    "flags",
    "call - set x 1",
    "call ! set x 1 ; call !AR incr c ; call !A incr c ; call !R incr c ; call - incr c",
    "select 3 ; call ! set y 1 ; call ! incr y ; select 99 ; flags",
    "call E get ; call - get ; call E nosuch ; call - nosuch",
    "call C get x ; call EC get x",
    "call !W incr c ; call EW incr c ; call EM incr c",
    "call ES shutdown ; call ES set x 1 ; call ES eval x 0",
    "call D set x 1 ; call DE set x ; call DE get nokey ; call DE eval x 0 ; call D nosuch",
    "call E3 hgetall h ; call 3 set x 1 ; call 0 hgetall h ; call 30 config get hz ; call EX hgetall h",
    "call EX lrange nokey 0 -1 ; call X set x 1 ; call X get nokey",
    "call E blpop l 0 ; call E subscribe a ; call E debug sleep 0 ; call E watch x",
    "notify custom k1 ; notify custom k2",
    "user on ; call C set x 1 ; call EC set x 1 ; call EC ping",
    "user ~* ; call EC get x ; call E get x",
    "call E select 5 ; call ! set s 1 ; flags",
    "call !E set x 1 nx ; call !E del nokey ; call !E expire x 0 ; call ! set x v ; call ! spop nokey",
    "call ! flushall ; call ! swapdb 1 2 ; call ! select 2 ; call ! incr c")
# Replicate takes the group of the command, a timer, or the lock: a turn of the loop has none, and Valkey asserts.
GROUPED = ("replicate - incr r ; replicate A incr a ; replicate R incr b ; call ! incr q ; replicate - set w 1",
           "select 3 ; replicate - set z 2")
# A call that waits needs a context that lives as long: Valkey crashes in a thread's.
WAITING = ("call EK blpop l 0", "call !EK blmove l r left right 0", "call EK3 bzpopmin z 0 ; call EK blpop l 0")
EVENTS = (
    "set a 1", "get nokey", "del a", "set a 1", "rename a b", "set a 1", "rename a b", "set k v", "expire k 0",
    "set k v", "pexpireat k 1", "set k v", "unlink k", "set k v", "getdel k", "set k v", "set m w", "copy k m replace",
    "move m 1", "sadd s1 a b", "sunionstore k s1", "sort s1 alpha store k", "set k v", "restore k 0 garbage replace",
    "getset k x", "lpush k x", "flushdb", "flushdb async", "flushall", "flushall sync", "swapdb 1 2",
    "config set hz 11", "config set timeout 4 maxclients 9000", "config set nosuch 1", "config set hz abc", "auth x y",
    "acl setuser u on >p +@all ~* alldbs", "auth u bad", "auth u p", "auth default x", "save", "function flush",
    "client kill id 999")


def module(name):
    return os.path.join(ROOT, "build", "modules", name + ".so")


def lines(reply):
    return (reply if isinstance(reply, str) else str(reply, "latin-1")).split("\n")


def answers(report, program):
    with Server(ours(), "--loadmodule", module("answers")) as mine, \
            Server(program, "--loadmodule", module("answers")) as theirs:
        with Client(mine.port, timeout=60) as our_client, Client(theirs.port, timeout=60) as their_client:
            for name in COMMANDS:
                got, want = (lines(client.call("answers." + name)) for client in (our_client, their_client))
                differing = [pair for pair in zip(want, got) if pair[0] != pair[1]]
                report.check("%s: %d answers" % (name, len(want)), want == got and len(want) > 50,
                             "%d and %d lines; expected %r" % (len(want), len(got), differing[:3]))


class Journal:
    """One of the two servers."""

    def __init__(self, name, program, clock):
        self.server = comparison.Server(name, program, clock, ("--loadmodule", module("journal"),
                                                               "--lazyfree-lazy-user-flush", "no"), as_replica=True)
        self.client = comparison.Connection(self.server.port)

    def read(self):
        return self.client.call("journal.read")[1].decode("latin-1")

    def heard(self, until):
        """The journal, and what is propagated. `until`: what the journal must have; ends the wait."""
        journal, patience = self.read(), time.monotonic() + comparison.PATIENCE
        while until not in journal and time.monotonic() < patience:
            time.sleep(0.001)
            self.server.clock.set(self.server.clock.ms + 10)  # a timer may be waiting
            journal += self.read()
        return journal.strip(), comparison.parse_all(self.server.listen()[0].replace(b"SET", b"set"))


def journals(report, program):
    with tempfile.TemporaryDirectory() as directory:
        clock = comparison.Clock(directory)
        theirs, mine = Journal("genuine", program, clock), Journal("ours", ours(), clock)

        def compare(line, until=""):
            replies = [journal.client.call(*line.split()) for journal in (theirs, mine)]
            clock.set(clock.ms + 10)
            want, got = ((reply, journal.heard(until)) for reply, journal in zip(replies, (theirs, mine)))
            report.check("journal: " + line, want == got, "expected %r, got %r" % (want, got))

        def prepare(*muted):
            for journal in (theirs, mine):
                journal.client.call("journal.mute", "cron-loop", "eventloop", "progress", "success", "failure",
                                    "rejected", "acl", "client", *muted)
                journal.client.call("select", "0")
                journal.client.call("flushall")
                journal.read()
                journal.server.listen()

        try:
            for place in PLACES:
                kinds = OPERATIONS + (GROUPED if "oneshot" not in place else ())
                for operations in kinds + (WAITING if place in ("", "timer 1 ; ", "job ; ") else ()):
                    prepare("keyspace", "key")
                    words = [word for word in place.split() if word.isalpha()]
                    until = words[-1].replace("wait", "thread") + ":" if words else ""
                    compare("journal.write " + place + operations, until)
                    if operations in WAITING:
                        compare("rpush l a b c", "promise:")
                        compare("zadd z 1 a", "promise:" if "bzpopmin" in operations else "")
            prepare()
            for line in EVENTS:
                compare(line)
        finally:
            for journal in (theirs, mine):
                journal.client.close()
                journal.server.stop()


def main():
    report = Report()
    program = required_newest(report, "module_answers")
    answers(report, program)
    journals(report, program)
    report.finish()


main()
