#!/usr/bin/env python3
"""Damaged and odd nodes.conf files: our server and a genuine one must both refuse a file, or both start with it; then
they must show the same nodes, slots and epochs, and write the same file again. A file that only ours refuses, or that
it reads differently, is listed in DECISIONS with the reason.

    tests/interop/cluster_files.py [--seed N] [--random 0] [--only NAME] [--verbose]

--random N adds N files with random damage of single characters, words and lines."""
import contextlib
import os
import random
import re

from common import Client, Report, Server, ours, required_newest, seeded_options, until

OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "600000", "--enable-debug-command", "yes")
JOBS = 4  # pairs of servers at a time


def node(i):
    return "%c" % (ord("a") + i) * 8 + "0123456789abcdef" * 2


def shard(i):
    return "%c" % (ord("a") + i) * 8 + "fedcba9876543210" * 2


# Nobody listens at these addresses. The own port is that of the server.
FILE = [
    "{0} 127.0.0.1:1@2,,tls-port=0,shard-id={s0} myself,master - 0 0 1 connected 0-10 12 14-16",
    "{1} 127.1.0.2:7002@17002,host,tls-port=0,nodename=name,shard-id={s1} master - 0 1700000000000 2 connected 100-200",
    "{2} 127.1.0.3:7003@17003,,tls-port=0,shard-id={s1} slave {1} 0 1700000000000 2 connected",
    "{3} 127.1.0.4:7004@17004,,tls-port=0,shard-id={s3} master,fail - 0 1700000000000 3 disconnected 300",
    "vars currentEpoch 9 lastVoteEpoch 0",
]
OWN, OTHER, REPLICA, FAILED, VARS = range(5)


def changed(line, old, new):
    """The file with one replacement in one line."""
    assert old in FILE[line], (line, old)
    lines = list(FILE)
    lines[line] = lines[line].replace(old, new, 1)
    return lines


def without(*lines):
    return [line for i, line in enumerate(FILE) if i not in lines]


def ending(line, text):
    lines = list(FILE)
    lines[line] += text
    return lines


def files():
    yield "the whole file", FILE
    yield "an empty file", []
    yield "one empty line", [""]
    yield "a line of blanks", ["  "]
    yield "empty lines between", [line for pair in zip(FILE, [""] * 5) for line in pair]
    yield "a comment", ["# comment"] + FILE
    yield "vars only", [FILE[VARS]]
    yield "no vars", without(VARS)
    yield "vars first", [FILE[VARS]] + FILE[:VARS]
    yield "vars twice", FILE + ["vars currentEpoch 12 lastVoteEpoch 3"]
    yield "myself only", [FILE[OWN], FILE[VARS]]
    yield "no myself", without(OWN)
    yield "myself last", FILE[1:4] + [FILE[OWN], FILE[VARS]]
    yield "two myself", changed(OTHER, " master", " myself,master")
    yield "line twice", FILE[:VARS] + [FILE[OTHER], FILE[VARS]]
    yield "own line twice", [FILE[OWN]] + FILE
    yield "blank before", [" " + FILE[OWN]] + FILE[1:]
    yield "blank after", ending(OWN, " ")
    yield "two blanks", changed(OWN, " - 0", "  - 0")
    yield "tabs", changed(OTHER, " ", "\t")
    yield "carriage returns", [line + "\r" for line in FILE]
    yield "no newline at the end", FILE[:VARS] + [FILE[VARS] + "\0\0END"]
    yield "half a last line", FILE[:VARS] + ["vars currentEp"]
    yield "half a line", FILE[:3] + [FILE[FAILED][:70]]
    yield "a NUL", changed(OTHER, "host", "ho\0st")
    yield "quotes", changed(OTHER, "host", '"host"')
    yield "an open quote", changed(OTHER, "host", '"host')
    yield "a long line", ending(OWN, " 20" * 20000)
    for text in ("x", "vars", "vars x", "vars currentEpoch", "vars x 1", "vars currentEpoch a lastVoteEpoch 0",
                 "vars currentEpoch -1 lastVoteEpoch 0", "vars currentEpoch 9 lastVoteEpoch a",
                 "vars currentEpoch 9 lastVoteEpoch -1", "vars currentEpoch 1 lastVoteEpoch 0",
                 "vars currentEpoch 9 lastVoteEpoch 99", "vars currentEpoch 9223372036854775807 lastVoteEpoch 0",
                 "vars currentEpoch 9223372036854775808 lastVoteEpoch 0",
                 "vars currentEpoch 18446744073709551615 lastVoteEpoch 18446744073709551615",
                 "vars currentEpoch 99999999999999999999 lastVoteEpoch 0", "vars lastVoteEpoch 3 currentEpoch 9",
                 "vars currentEpoch 9 lastVoteEpoch 0 other 5", "vars currentEpoch 9 lastVoteEpoch",
                 "vars currentEpoch 9x lastVoteEpoch 0", "vars currentEpoch +9 lastVoteEpoch 0", "Vars currentEpoch 9",
                 "vars CurrentEpoch 10 lastvoteepoch 4", "vars currentEpoch 9 currentEpoch 12"):
        yield "last line '%s'" % text, FILE[:VARS] + [text]
    for id_ in ("{1}x", "{1}"[:2], "x" * 39, "A" * 40, "-" * 40, "\xe4" * 20, "z" * 40):
        yield "id %s" % id_, changed(OTHER, "{1}", id_)
    yield "own id in capitals", changed(OWN, "{0}", "A" * 40)
    for address in ("127.1.0.2:7002", "127.1.0.2:7002@17002", "127.1.0.2:7002@17002,", "127.1.0.2:7002@17002,host",
                    "127.1.0.2", "127.1.0.2:", ":7002@17002,", ":0@0,", "127.1.0.2:0@0,", "127.1.0.2:a@17002,",
                    "127.1.0.2:7002@a,", "127.1.0.2:7002@,", "127.1.0.2:70000@17002,", "127.1.0.2:-1@17002,",
                    "127.1.0.2:7002@-1,", "127.1.0.2:7002@70000,", "127.1.0.2:60000", "::1:7002@17002,",
                    "[::1]:7002@17002,", "host.example:7002@17002,", "a b:7002@17002,", "x" * 50 + ":7002@17002,",
                    "127.1.0.2:7002@17002,host,", "127.1.0.2:7002@17002,ho_st", "127.1.0.2:7002@17002," + "h" * 300,
                    "127.1.0.2:7002@17002,host,x", "127.1.0.2:7002@17002,host,x=y", "127.1.0.2:7002@17002,host,=",
                    "127.1.0.2:7002@17002,host,nodename=", "127.1.0.2:7002@17002,host,nodename=a=b",
                    "127.1.0.2:7002@17002,host,nodename=a{}b", "127.1.0.2:7002@17002,host,,nodename=a",
                    "127.1.0.2:7002@17002,host,nodename=a,nodename=b", "127.1.0.2:7002@17002,host,shard-id=x",
                    "127.1.0.2:7002@17002,host,shard-id=" + "A" * 40, "127.1.0.2:7002@17002,host,shard-id={s0}",
                    "127.1.0.2:7002@17002,host,shard-id=", "127.1.0.2:7002@17002,host,tls-port=a",
                    "127.1.0.2:7002@17002,host,tls-port=70000", "127.1.0.2:7002@17002,host,tls-port=-1",
                    "127.1.0.2:7002@17002,host,tcp-port=7", "127.1.0.2:7002@17002,host,availability-zone=z",
                    "127.1.0.2:7002@17002,host,client-ipv4=x", "127.1.0.2:7002@17002,host,client-ipv4=1.2.3.4",
                    "127.1.0.2:7002@17002,host,client-ipv6=1.2.3.4", "127.1.0.2:7002@17002,host,client-tcp-port=a",
                    "127.1.0.2:7002@17002,host,client-tcp-port=70000", "127.1.0.2:7002@17002,host,client-tls-port=5",
                    "127.1.0.2:7002@17002,host,Nodename=a", "127.1.0.2:7002@17002,host,nodename=" + "n" * 300):
        yield "address %s" % address[:60], changed(
            OTHER, "127.1.0.2:7002@17002,host,tls-port=0,nodename=name,shard-id={s1}", address)
    yield "own address with a wrong shard", changed(OWN, "shard-id={s0}", "shard-id=x")
    yield "own line without a shard", changed(OWN, ",shard-id={s0}", "")
    yield "replica in another shard", changed(REPLICA, "shard-id={s1}", "shard-id={s3}")
    yield "replica without a shard", changed(REPLICA, ",shard-id={s1}", "")
    yield "two primaries of one shard", changed(FAILED, "shard-id={s3}", "shard-id={s1}")
    for flags in ("x", "", "master,x", "noflags", "slave", "master,slave", "handshake", "master,handshake", "noaddr",
                  "master,noaddr", "master,fail?", "master,fail,fail?", "master,nofailover", "Master", ",master",
                  "master,", "master,,fail", "primary", "master,master", "fail"):
        yield "flags '%s'" % flags, changed(OTHER, " master ", " %s " % flags)
    for flags in ("myself", "myself,slave", "myself,noflags", "myself,master,fail", "myself,master,fail?",
                  "myself,master,noaddr", "myself,master,handshake", "myself,master,nofailover", "master,myself",
                  "myself,master,slave", "myself,x"):
        yield "own flags '%s'" % flags, changed(OWN, "myself,master", flags)
    for primary in ("{0}", "{2}", "{3}", "-", "x", "f" * 40, "{1}x", "F" * 40):
        yield "replica of %s" % primary, changed(REPLICA, "slave {1}", "slave " + primary)
    for primary in ("{1}", "{3}", "{0}", "x", "f" * 40):
        yield "primary with primary %s" % primary, changed(OTHER, "master -", "master " + primary)
    for primary in ("{1}", "{2}", "{0}", "f" * 40, "-"):
        yield "own replica of %s" % primary, [changed(OWN, "myself,master -", "myself,slave " + primary)[0].rsplit(
            " ", 3)[0]] + FILE[1:]
    yield "own replica with slots", changed(OWN, "myself,master -", "myself,slave {1}")
    yield "replica with slots", ending(REPLICA, " 400-410")
    for word in ("a", "-1", "99999999999999999999", "", "1.5", "0x1"):
        yield "ping time '%s'" % word, changed(OTHER, "- 0 17", "- %s 17" % word)
        yield "pong time '%s'" % word, changed(OTHER, "0 1700000000000 2", "0 %s 2" % word)
        yield "epoch '%s'" % word, changed(OTHER, "1700000000000 2", "1700000000000 %s" % word)
        yield "own epoch '%s'" % word, changed(OWN, "0 0 1 ", "0 0 %s " % word)
        yield "link '%s'" % word, changed(OTHER, "connected", word)
    for epoch in ("9223372036854775807", "9223372036854775808", "18446744073709551615", "50", "0"):
        yield "epoch %s" % epoch, changed(OTHER, "1700000000000 2", "1700000000000 " + epoch)
        yield "own epoch %s" % epoch, changed(OWN, "0 0 1 ", "0 0 %s " % epoch)
    yield "equal epochs", changed(OTHER, "1700000000000 2", "1700000000000 1")
    yield "no link word", changed(OTHER, "2 connected 100-200", "2")
    for slots in ("16383", "16384", "-1", "a", "5-", "-5", "20-18", "20-16384", "20-a", "20--22", "5", "0-10", "100",
                  "20 20", "20-22 22-24", "99999999999999999999", "1.5", "+20", "0x14", "20,21", "020", "20-20", "",
                  "20-30x", "20x"):
        yield "own slots '%s'" % slots, ending(OWN, " " + slots)
    for slots in ("5", "0-10", "14-18", "16384", "201", "100", "a", "16383-16384"):
        yield "other's slots '%s'" % slots, ending(OTHER, " " + slots)
    for slots in ("[5->-{1}]", "[100-<-{1}]", "[5-<-{1}]", "[100->-{1}]", "[50->-{1}]", "[50-<-{1}]", "[5->-{2}]",
                  "[5->-{0}]", "[5->-" + "f" * 40 + "]", "[5->-x]", "[5->-{1}", "5->-{1}]", "[5->{1}]", "[5-{1}]",
                  "[5]", "[]", "[", "[16384->-{1}]", "[a->-{1}]", "[5->-{1}] [5->-{3}]", "[5->-{1}] [100-<-{1}]",
                  "[5->-{1}] [5-<-{1}]", "[5-x-{1}]", "[5->-{1}x]", "[5->-{1}]x", "[-1->-{1}]",
                   "[5->-" + "F" * 40 + "]"):
        yield "own open slots '%s'" % slots, ending(OWN, " " + slots)
        if slots.count("[") == 1:
            yield "other's open slots '%s'" % slots, ending(OTHER, " " + slots)


# What our server refuses, or reads differently, on purpose: a pattern for the name, and the reason.
DECISIONS = [
    (r"(ping time|pong time|epoch|own epoch|link) '.*'|last line 'vars (currentEpoch|lastVoteEpoch|currentEpoch 9 "
     r"lastVoteEpoch) \S*[a+x-].*'|last line 'vars currentEpoch 9{20} .*'|own slots '(-1|a|5-|-5|20-a|1.5|\+20|0x14|"
     r"20,21|020|20-30x|20x)'|other's slots 'a'|(own|other's) open slots '(\[a->-\S+|5->\S+)'|address 127.1.0.2:\S*("
     r"tls-port=a|tcp-port=a)|address 127.1.0.2:([a-]|70000|7002@([a,-]|70000)|$).*|address 127.1.0.2:60000",
     "ours refuses what is no number, or no port: the file is damaged"),
    (r"own slots '20-18'|(own|other's) open slots '(\[5-x-\S+|\S+\]x)'|own flags 'myself,noflags'",
     "ours refuses slots and flags that no server writes"),
    (r"no newline at the end", "ours refuses bytes behind the last line"),
    (r"replica of (\{2\}|f+)|own replica of (\{0\}|f+)|own open slots '\[5->-(\{0\}|f+)\]'|id z+",
     "ours refuses a primary or the peer of an open slot that is not there: genuine makes up a node"),
    (r"quotes|an open quote", "ours has no quotes in this file"),
    (r"address \S+,(x=y|Nodename=a)", "ours keeps names of later versions"),
    (r"address x{40,}.*", "ours refuses an address that is too long"),
    (r"address .*h{30,}.*", "ours cuts a hostname at its greatest length"),
    (r"address (\S*7002@17002(,(host|ho_st)?(,(nodename|tcp-port|availability-zone|client-\S+)=\S*)?)?|127.1.0.2:7002|"
     r":0@0,|127.1.0.2:0@0,|.*shard-id=\{s0\}|own line.*)|own line without a shard",
     "a replica has the shard of its primary, also if the primary's line names none: genuine keeps another one, "
     "and shows the slots of neither"),
    (r"flags '(noflags|handshake|master,handshake|noaddr|master,fail\?|master,fail,fail\?|fail|slave|master,slave)'|"
     r"own flags '(myself|myself,(slave|master,(fail|fail\?|noaddr|handshake|slave)))'|replica of -|own replica of -",
     "a node has one role; an opinion of a process that has ended is none; a replica has its primary's epoch"),
    (r"primary with primary .*|own replica of \{2\}", "ours follows primaries only, and a primary has none"),
    (r"two primaries of one shard|own replica with slots", "ours shows the slots of all primaries of a shard"),
    (r"other's open slots '.*'", "ours opens slots by its own line only"),
    (r"own open slots '\[5->-\{1\}\] \[5-<-\{1\}\]'", "ours shows both"),
]


def damaged(rng):
    """Random damage of the file: characters, words and lines."""
    lines = list(FILE)
    for _ in range(rng.choice((1, 1, 1, 2))):
        i = rng.randrange(len(lines))
        pick = rng.random()
        if pick < 0.4:
            words = lines[i].split(" ")
            j = rng.randrange(len(words))
            words[j:j + 1] = rng.choice(([], [words[j], words[j]], [rng.choice(rng.choice(FILE).split(" "))],
                                         [rng.choice("0 -1 x - , 99999 [ @ :".split())], [words[j][:-1]]))
            lines[i] = " ".join(words)
        elif pick < 0.7 and lines[i]:
            j = rng.randrange(len(lines[i]))
            lines[i] = lines[i][:j] + rng.choice(("", rng.choice("0a9-,:@=[]<> \txZ"))) + lines[i][j + 1:]
        elif pick < 0.8:
            lines[i:i + 1] = []
        elif pick < 0.9:
            lines.insert(i, rng.choice(lines))
        else:
            lines[i] = lines[i][:rng.randrange(len(lines[i]) + 1)]
        lines = lines or [""]
    return lines


class Attempt:
    """One server that starts with the file."""

    def __init__(self, program, lines, ending_newline):
        self.server = Server(program, *OPTIONS, start=False)
        text = "\n".join(lines) + ("\n" if lines and ending_newline else "")
        text = re.sub(r"\{(s?)(\d)\}", lambda match: (shard if match[1] else node)(int(match[2])), text)
        self.path = os.path.join(self.server.dir, "nodes.conf")
        self.content = text.encode("latin-1")
        with open(self.path, "wb") as file:
            file.write(self.content)
        self.server.launch()

    def plain(self, text):
        text = re.sub(r"\b%d\b" % self.server.port, "PORT", re.sub(r"\b%d\b" % (self.server.port + 10000), "BUS", text))
        known = {node(i) for i in range(10)} | {shard(i) for i in range(10)}
        text = re.sub(r"(?<![0-9a-z])[0-9a-f]{40}(?![0-9a-z])", lambda match: match[0] if match[0] in known or len(set(
            match[0])) < 3 else "RANDOM", text)
        lines = []
        for line in text.splitlines():
            words = line.split(" ")
            if len(words) >= 8:
                words[4] = words[5] = "TIME"
                words[7] = "LINK"
            lines.append(" ".join(words))
        return sorted(lines)

    def result(self):
        server = self.server
        until(lambda: not server.alive() or server.answers())
        if not server.alive():
            untouched = open(self.path, "rb").read() == self.content
            return {"started": False, "untouched": untouched,
                    "why": [line for line in server.output().splitlines() if re.search("onfig|rror|ssert", line)][:6]}
        with contextlib.closing(Client(server.port).socket):
            found = {"started": True, "later": "unknown field" in server.output(None)}
        for view in ("NODES", "SLOTS", "SHARDS", "INFO"):
            reply = server.call("CLUSTER", view)
            if view == "INFO":
                found[view] = [line for line in reply.decode().split("\r\n") if re.match(
                    "cluster_(slots_assigned|known|current|my)", line)]
            elif view == "NODES":
                found[view] = self.plain(reply.decode())
            elif view == "SLOTS":
                found[view] = self.plain(repr(reply))
            else:
                for item in reply:
                    item[3].sort()
                found[view] = self.plain("\n".join(repr(item) for item in reply))
        server.call("CLUSTER", "SAVECONFIG")
        with open(self.path, errors="replace") as file:
            found["file"] = self.plain(file.read())
        return found


def compare(report, name, results, verbose):
    mine, theirs = results
    if verbose:
        print(name, "starts" if mine["started"] else mine["why"], "starts" if theirs["started"] else theirs["why"])
    for pattern, reason in DECISIONS:
        if re.fullmatch(pattern, name):
            report.check("%s (%s)" % (name, reason), mine != theirs, "no difference any longer")
            return
    if not mine["started"]:
        report.check(name + ": the refused file stays as it is", mine["untouched"])
    # Ours checks each word, which the list above covers, and keeps names that it does not know.
    if name.startswith("seed") and (not mine["started"] or mine["later"]):
        return
    mine.pop("later", None)
    theirs.pop("later", None)
    if mine["started"] != theirs["started"]:
        report.check(name, False, "ours %s\n    genuine %s" % (mine, theirs))
        return
    fields = [field for field in mine if mine["started"] and mine[field] != theirs[field]]
    report.check(name, not fields, "".join("\n  %s\n    ours    %s\n    genuine %s" % (
        field, *[[item for item in these[field] if item not in those[field]] for these, those in (
            (mine, theirs), (theirs, mine))]) for field in fields))


def main():
    options = seeded_options(__doc__, random=0, only="")
    report = Report()
    genuine = required_newest(report, "nodes.conf beside a genuine server")
    cases = [case for case in files() if options.only in case[0]]
    rng = random.Random(options.seed)
    cases += [("seed %d, damage %d" % (options.seed, i), damaged(rng)) for i in range(options.random)]
    while cases:
        batch, cases = cases[:JOBS], cases[JOBS:]
        attempts = [[Attempt(program, lines, not lines[-1:] or "END" not in lines[-1]) for program in (ours(), genuine)]
                    for _, lines in batch]
        for (name, lines), pair in zip(batch, attempts):
            try:
                results = [attempt.result() for attempt in pair]
                if "seed" in name and results[0] != results[1]:
                    print("\n".join(lines))
                compare(report, name, results, options.verbose)
            finally:
                for attempt in pair:
                    attempt.server.kill()
                    attempt.server.stop()
    report.finish()


if __name__ == "__main__":
    main()
