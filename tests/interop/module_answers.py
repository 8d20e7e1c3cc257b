#!/usr/bin/env python3
"""The functions of the interface of modules, called by one and the same module (tests/modules/answers.c) in our server
and in a genuine one: the answers must be the same, line by line."""
import os

from common import ROOT, Client, Report, Server, ours, required_newest

MODULE = os.path.join(ROOT, "build", "modules", "answers.so")
COMMANDS = ("strings", "dicts", "lists", "hashes", "zsets", "streams", "scans", "rights")


def lines(reply):
    return (reply if isinstance(reply, str) else str(reply, "latin-1")).split("\n")


def main():
    report = Report()
    program = required_newest(report, "module_answers")
    with Server(ours(), "--loadmodule", MODULE) as mine, Server(program, "--loadmodule", MODULE) as theirs:
        with Client(mine.port, timeout=60) as our_client, Client(theirs.port, timeout=60) as their_client:
            for name in COMMANDS:
                got, want = (lines(client.call("answers." + name)) for client in (our_client, their_client))
                differing = [pair for pair in zip(want, got) if pair[0] != pair[1]]
                report.check("%s: %d answers" % (name, len(want)), want == got and len(want) > 50,
                             "%d and %d lines; expected %r" % (len(want), len(got), differing[:3]))
    report.finish()


main()
