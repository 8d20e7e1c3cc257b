#!/usr/bin/env python3
"""What COMMANDLOG and SLOWLOG show after the same commands on our server and on a genuine one: which calls are logged,
in which order, with which arguments (shortened, counted, redacted), and which sizes. Times and addresses are left out,
and transactions: README.md says how they differ.

    tests/interop/commandlog.py [--seed N]
"""
import random
import sys

from common import Client, Error, Report, Server, newest_server, ours

report = Report()
seed = int(sys.argv[2]) if sys.argv[1:2] == ["--seed"] else random.SystemRandom().randrange(1 << 31)
theirs_binary, reason = newest_server()
if reason:
    report.missing("comparison of COMMANDLOG", reason)
    report.finish()
R = random.Random(seed)
print("seed %d" % seed)
KINDS = "slow", "large-request", "large-reply"


def text():
    return R.choice(["a", "b", "", "x" * R.choice([126, 127, 128, 129, 200, 3000]),
                     bytes(R.randrange(256) for _ in range(R.randrange(40)))])


def command():
    k = R.randrange(26)
    if k < 3:
        return ["SET", R.choice("abc"), text()]
    if k < 6:
        return ["GET", R.choice("abcd")]
    if k == 6:  # more arguments than are shown
        return ["SADD", "s"] + ["%d" % i for i in range(R.choice([1, 28, 29, 30, 31, 32, 33, 100]))]
    if k == 7:
        return ["MGET"] + [R.choice("abcd") for _ in range(R.randrange(1, 40))]
    if k == 8:
        return ["LPUSH", "a", "wrong type perhaps"]
    if k == 9:
        return ["CONFIG", "SET", R.choice(["requirepass", "primaryauth", "masterauth"]), ""]
    if k == 10:
        return ["CONFIG", "SET", "maxmemory-samples", "5", "requirepass", "", "maxclients", "1000"]
    if k == 11:
        return R.choice([["AUTH", "secret"], ["AUTH", "user", "secret"], ["HELLO", "2", "AUTH", "default", "secret"],
                         ["HELLO", "4"]])
    if k == 12:
        return R.choice([["EXEC"], ["DISCARD"], ["WATCH", "a"], ["UNWATCH"]])
    if k == 13:
        return ["NOSUCH", text()]
    if k == 14:
        return ["GET"]
    if k == 15:
        return ["CLIENT", "SETNAME", R.choice(["one", "two", "three"])]
    if k == 16:
        return ["DEL", R.choice("abcs")]
    if k == 17:
        return R.choice([["PING"], ["ECHO", text()], ["SELECT", R.choice("01")], ["DBSIZE"], ["INFO", "nosuch"],
                         ["COMMAND", "COUNT"], ["TIME"]])
    if k == 18:
        return ["RPUSH", "l"] + [text() for _ in range(R.randrange(1, 5))]
    if k == 19:
        return ["LRANGE", "l", "0", "-1"]
    if k == 20:
        return R.choice([["BLPOP", "l", "0.01"], ["BLPOP", "none", "0.01"], ["BLMOVE", "l", "m", "LEFT", "RIGHT",
                                                                             "0.01"]])
    if k == 21:
        return ["DEBUG", "SLEEP", "0"]
    if k == 22:
        return R.choice([["SLOWLOG", "LEN"], ["SLOWLOG", "GET", "0"], ["COMMANDLOG", "LEN", R.choice(KINDS)],
                         ["SLOWLOG", "GET", "-2"], ["COMMANDLOG", "GET", "1", "x"]])
    if k == 23:
        return ["PUBLISH", "ch", text()]
    if k == 24:
        return ["OBJECT", "ENCODING", "a"]
    return R.choice([["GETDEL", "b"], ["APPEND", "c", text()], ["STRLEN", "c"], ["SORT", "l", "ALPHA"], ["SCAN", "x"]])


def entries(client, kind):
    """[(id, size, arguments, name)] of one log. The size of a slow call is its time, which is left out, as is that of a
    reply to HELLO: it names modules."""
    return [(e[0], None if kind == "slow" or e[3][0] == b"HELLO" and kind == "large-reply" else e[2], e[3],
             e[5]) for e in client.call("COMMANDLOG", "GET", "-1", kind)]


def compare(round_, mine, theirs, settings):
    differ = 0
    for kind in KINDS:
        a, b = entries(mine, kind), entries(theirs, kind)
        if a == b:
            continue
        differ += 1
        by_id = {e[0]: e for e in a}
        first = next((e for e in reversed(b) if by_id.get(e[0]) != e), None)
        print("[different] round %d %r, %s: %d entries, genuine %d\n    ours    %r\n    genuine %r" %
              (round_, settings, kind, len(a), len(b), by_id.get(first[0]) if first else a[0], first))
    slow = [[e[0], e[3], e[5]] for e in mine.call("SLOWLOG", "GET", "7")], [[e[0], e[3],
                                                                             e[5]]
                                                                            for e in theirs.call("SLOWLOG", "GET", "7")]
    if slow[0] != slow[1]:
        differ += 1
        print("[different] SLOWLOG GET 7\n    ours    %r\n    genuine %r" % slow)
    for kind in KINDS:
        if mine.call("COMMANDLOG", "LEN", kind) != theirs.call("COMMANDLOG", "LEN", kind):
            differ += 1
            print("[different] COMMANDLOG LEN %s" % kind)
    return differ


flags = ["--enable-debug-command", "yes", "--enable-protected-configs", "yes"]
with Server(ours(), *flags) as a, Server(theirs_binary, *flags) as b:
    differ = replies = 0
    watchers = [Client(a.port), Client(b.port)]
    for round_ in range(40):
        settings = {"commandlog-execution-slower-than": R.choice(["0", "0", "-1", "1000000"]),
                    "commandlog-slow-execution-max-len": R.choice(["128", "10", "0", "1000"]),
                    "commandlog-request-larger-than": R.choice(["0", "1", "100", "2000", "-1"]),
                    "commandlog-large-request-max-len": R.choice(["128", "5"]),
                    "commandlog-reply-larger-than": R.choice(["0", "1", "5", "100", "-1"]),
                    "commandlog-large-reply-max-len": R.choice(["128", "5"])}
        for watcher in watchers:
            watcher.call("FLUSHALL")
            for kind in KINDS:
                watcher.call("COMMANDLOG", "RESET", kind)
            watcher.call("CONFIG", "SET", *[word for pair in settings.items() for word in pair])
        clients = [(Client(a.port), Client(b.port)) for _ in range(3)]
        for _ in range(60):
            mine, theirs = R.choice(clients)
            words = command()
            x, y = mine.call(*words), theirs.call(*words)
            if isinstance(x, Error) != isinstance(y, Error):
                replies += 1
                print("[different] %r: ours %r, genuine %r" % (words, x, y))
        for watcher in watchers:
            watcher.call("CONFIG", "SET", "commandlog-execution-slower-than", "-1", "commandlog-request-larger-than",
                         "-1", "commandlog-reply-larger-than", "-1")
        differ += compare(round_, *watchers, settings)
        for pair in clients:
            for client in pair:
                client.close()
    report.check("the logs show the same calls", not differ and not replies,
                 "%d differ; seed %d" % (differ + replies, seed))
report.finish()
