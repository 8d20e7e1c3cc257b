#!/usr/bin/env python3
"""The distribution's command line tools against our server, and our tools against genuine servers."""
import os
import re

from common import Client, Report, Server, genuine, newest_server, ours, run, until

report = Report()


def cli_works(name, cli, port, text):
    """What everybody does with the command line client."""
    def call(*args, **kw):
        return run(cli, "-p", port, *args, **kw)

    code, out, err = call("ping")
    report.equal("%s: PING" % name, (0, "PONG"), (code, out.strip()))
    report.equal("%s: SET" % name, "OK", call("set", "k", "some value")[1].strip())
    report.equal("%s: GET" % name, "some value", call("get", "k")[1].strip())
    report.equal("%s: GET of nothing" % name, "", call("get", "none")[1].strip())
    report.equal("%s: INCR" % name, "1", call("incr", "counter:" + text)[1].strip())
    code, out, err = call("incr", "k")
    report.check("%s: an error reply" % name, "not an integer" in out + err, out + err)
    code, out, err = call("-e", "incr", "k")
    report.check("%s: -e gives exit code 1" % name, code == 1, code)
    report.equal("%s: --no-raw" % name, '"some value"', call("--no-raw", "get", "k")[1].strip())
    report.equal("%s: RESP3" % name, "(nil)", call("-3", "--no-raw", "get", "none")[1].strip())
    report.check("%s: HELLO 3" % name, "valkey" in call("-3", "hello", "3")[1]
                 or "redis" in call("-3", "hello", "3")[1])
    call("set", "db9", "x", "ex", "100")
    report.equal("%s: -n" % name, "", call("-n", "9", "get", "db9")[1].strip())
    code, out, err = call(data="set a 1\nincr a\nget a\nset b \"two words\"\nget b\n")
    report.equal("%s: commands from standard input" % name, ["OK", "2", "2", "OK", "two words"], out.split("\n")[:5])
    code, out, err = call("-x", "set", "fromstdin", data="line one\nline two")
    report.equal("%s: -x" % name, "line one\nline two", call("get", "fromstdin")[1].rstrip("\n"))
    report.equal("%s: -r" % name, ["PONG"] * 5, call("-r", "5", "-i", "0", "ping")[1].split())
    code, out, err = call("info", "server")
    report.check("%s: INFO" % name, "process_id:" in out, out)
    code, out, err = call("config", "get", "maxclients")
    report.equal("%s: CONFIG GET" % name, ["maxclients", "10000"], out.split())
    pipe = b"".join(Client.encode("SET", "mass:%d" % i, "v%d" % i) for i in range(5000))
    code, out, err = run(cli, "-p", port, "--pipe", data=pipe)
    report.check("%s: --pipe" % name, code == 0 and "errors: 0, replies: 5000" in out, out + err)
    report.equal("%s: what --pipe wrote" % name, "v4999", call("get", "mass:4999")[1].strip())
    code, out, err = call("--scan", "--pattern", "mass:49*")
    report.check("%s: --scan" % name, len(set(out.split())) == 111, len(out.split()))
    code, out, err = call("--bigkeys", timeout=60)
    report.check("%s: --bigkeys" % name, code == 0 and "Biggest string" in out, out + err)
    code, out, err = run("timeout", "3", cli, "-p", str(port), "--latency", "--raw", "-i", "1")
    report.check("%s: --latency" % name, re.search(r"\d", out), out + err)
    code, out, err = call("-u", "redis://127.0.0.1:%d/3" % port, "client", "info")
    report.check("%s: -u with a database" % name, " db=3 " in out, out + err)


def benchmark_works(name, benchmark, port):
    code, out, err = run(benchmark, "-p", port, "-n", 5000, "-c", 10, "-q", "-t", "ping,set,get,incr,mset", timeout=120)
    text = out + err
    report.check("%s: runs" % name, code == 0, text)
    for test in ("PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"):
        report.check("%s: %s" % (name, test), re.search(re.escape(test) + r": [0-9.]+ requests per second", text),
                     text[-500:])
    report.check("%s: no errors" % name, "rror" not in text.replace("Could not fetch server CONFIG", ""), text[-500:])
    code, out, err = run(benchmark, "-p", port, "-n", 20000, "-c", 20, "-P", 16, "-d", 512, "-r", 10000, "-q", "-t",
                         "set,get", timeout=120)
    report.check("%s: pipelines and random keys" % name, code == 0 and "GET: " in out, out + err)
    code, out, err = run(benchmark, "-p", port, "-n", 2000, "-c", 5, "--csv", "-t", "get", timeout=120)
    report.check("%s: --csv" % name, code == 0 and re.search(r'"GET","[0-9.]+"', out), out + err)
    code, out, err = run(benchmark, "-p", port, "-n", 2000, "-c", 5, "-q", "set", "key:__rand_int__", "value",
                         timeout=120)
    report.check("%s: a command of one's own" % name, code == 0 and "requests per second" in out, out + err)
    code, out, err = run(benchmark, "-p", port, "-n", 4000, "-c", 10, "--threads", 2, "-q", "-t", "get", timeout=120)
    report.check("%s: --threads" % name, code == 0 and "GET: " in out, out + err)


# --- The distribution's tools, our server
with Server(ours(), "--enable-debug-command", "yes") as server:
    for tool in ("valkey-cli", "redis-cli"):
        path = genuine(tool)
        if path:
            cli_works("genuine %s, our server" % tool, path, server.port, tool)
        else:
            report.missing("genuine %s against our server" % tool, "it is not installed")
    for tool in ("valkey-benchmark", "redis-benchmark"):
        path = genuine(tool)
        if path:
            benchmark_works("genuine %s, our server" % tool, path, server.port)
        else:
            report.missing("genuine %s against our server" % tool, "it is not installed")
    report.check("our server is alive", server.alive(), server.output())

with Server(ours(), "--requirepass", "pass word") as server:
    for tool in ("valkey-cli", "redis-cli"):
        path = genuine(tool)
        if path:
            report.equal("genuine %s: -a" % tool, "PONG", run(path, "--no-auth-warning", "-a", "pass word", "-p",
                                                              server.port, "ping")[1].strip())
            code, out, err = run(path, "-p", server.port, "ping")
            report.check("genuine %s: without a password" % tool, "NOAUTH" in out + err, out + err)

# --- Our tools, genuine servers (and ours)
for name in ("valkey-server", "redis-server", "ours"):
    path = ours() if name == "ours" else genuine(name)
    what = "our server" if name == "ours" else "genuine " + name
    if not path:
        report.missing("our tools against %s" % what, "it is not installed")
        continue
    with Server(path) as server:
        if ours("valkey-cli"):
            cli_works("our valkey-cli, %s" % what, ours("valkey-cli"), server.port, name)
        else:
            report.missing("our valkey-cli against %s" % what, "src/valkey-cli is not built")
        if ours("valkey-benchmark"):
            benchmark_works("our valkey-benchmark, %s" % what, ours("valkey-benchmark"), server.port)
        else:
            report.missing("our valkey-benchmark against %s" % what, "src/valkey-benchmark is not built")

# --- The same output as the genuine tools where people parse it
if ours("valkey-cli") and genuine("valkey-cli"):
    with Server(ours()) as server:
        Client(server.port).call("MSET", "a", "1", "b", "two words", "c", b"\x00\xff\n")
        for args in (("get", "a"), ("--no-raw", "get", "c"), ("mget", "a", "b", "none"),
                     ("--no-raw", "mget", "a", "b", "none"), ("--csv", "mget", "a", "b"),
                     ("incr", "b"), ("nosuch",), ("--json", "-3", "mget", "a", "none"),
                     ("-3", "--no-raw", "config", "get", "maxclients"),
                     ("--no-raw", "exists", "a"), ("-d", "|", "mget", "a", "b"), ("--quoted-input", "get", '"\\x61"'),
                     ("--no-raw", "config", "get", "nosuch"),
                     ("--json", "config", "get", "maxclients")):
            mine = run(ours("valkey-cli"), "-p", server.port, *args)
            theirs = run(genuine("valkey-cli"), "-p", server.port, *args)
            report.equal("our valkey-cli prints as the genuine one: " + " ".join(args), theirs, mine)

# --- Reading from replicas: a genuine cluster of a primary and a replica
def commands(server, name):
    found = re.search(r"cmdstat_%s:calls=(\d+)" % name, Client(server.port).call("INFO", "commandstats").decode())
    return int(found[1]) if found else 0


if ours("valkey-benchmark") and genuine("valkey-server") and genuine("valkey-benchmark"):
    options = "--cluster-enabled", "yes", "--cluster-replica-no-failover", "yes"
    with Server(genuine("valkey-server"), *options) as primary, Server(genuine("valkey-server"), *options) as replica:
        one, two = Client(primary.port), Client(replica.port)
        one.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        two.call("CLUSTER", "MEET", "127.0.0.1", primary.port)
        name = one.call("CLUSTER", "MYID")
        joined = until(lambda: two.call("CLUSTER", "REPLICATE", name) == "OK")
        joined = joined and until(lambda: all(len(range_) > 3 for range_ in one.call("CLUSTER", "SLOTS"))
                                  and b"master_link_status:up" in two.call("INFO", "replication"))
        report.check("a cluster for --rfr", joined, one.call("CLUSTER", "NODES"))
        for mode, expected in ((), (True, False)), (("--rfr", "no"),
                                                    (True, False)), (("--rfr", "yes"),
                                                                     (False, True)), (("--rfr", "all"), (True, True)):
            before = commands(primary, "get"), commands(replica, "get")
            code, out, err = run(ours("valkey-benchmark"), "-p", primary.port, "--cluster", *mode, "-n", 2000, "-c", 4,
                                 "-q", "-t", "get", timeout=60)
            served = commands(primary, "get") > before[0], commands(replica, "get") > before[1]
            report.check("our valkey-benchmark reads with %s" % (" ".join(mode) or "--cluster"),
                         code == 0 and served == expected, (served, out, err))
            theirs = run(genuine("valkey-benchmark"), "-p", primary.port, "--cluster", *mode, "-n", 100, "-c", 4, "-q",
                         "-t", "get", timeout=60)[1]
            report.equal("the nodes that valkey-benchmark shows with %s" % (" ".join(mode) or "--cluster"),
                         *[re.findall(r"(?m)^(?:Cluster has|Node) .*", text) for text in (theirs, out)])

# --- The debugger of scripts: either tool against either server shows the same
def debugging_output(cli, server):
    script = os.path.join(server.dir, "debugged.lua")
    with open(script, "w") as file:
        file.write("local a = {KEYS[1], 1.5, {x = true}}\nlocal function f(x)\n  return x * 2 end\nredis.call('set', "
                   "a[1], f(3))\n"
                   "redis.debug(a)\nfor i = 1, 2 do\n  redis.pcall('incr', KEYS[1], i) "
                   "end\nredis.breakpoint()\nreturn {a[1], ARGV[1]}\n")
    lines = ("s", "s", "print", "break 3", "c", "trace", "print x", "print nosuch", "list", "list 1 2", "whole", "s",
             "s", "s", "s", "s", "s", "s", "p",
             "break", "break -3", "b 99", "b x", "maxlen", "maxlen 60", "e KEYS[1]:rep(100)", "r set text " + "y" * 80,
             "r get text", "v lrange none 0 1", "foo", "eval 'a' .. 1", "eval x y", "c", "c", "ping", "restart",
             "abort", "get key", "quit")
    code, out, err = run(cli, "-p", server.port, "--ldb", "--eval", script, "key", ",", "argument",
                         data="\n".join(lines) + "\n")
    # Addresses, and the replies of refused commands, whose texts differ.
    return code, re.sub(r"0x[0-9a-f]+", "ADDRESS", re.sub(r"<reply> \"-ERR [^\n]*", "<reply> ERROR", out)), err


if ours("valkey-cli") and not newest_server()[1]:
    with Server(ours("valkey-server")) as mine, Server(newest_server()[0]) as theirs:
        expected = debugging_output(genuine("valkey-cli"), theirs)
        report.check("debugging a script with genuine programs", expected[0] == 0 and "session ended" in expected[1],
                     expected)
        for name, cli, server in (("our valkey-cli and genuine server", ours("valkey-cli"), theirs),
                                  ("genuine valkey-cli and our server", genuine("valkey-cli"), mine),
                                  ("our valkey-cli and server", ours("valkey-cli"), mine)):
            report.equal("debugging a script: %s" % name, expected, debugging_output(cli, server))
else:
    report.missing("debugging a script", "valkey-cli is not built, or there is no genuine Valkey 9.1")

# --- Every option of the genuine tools is in ours


def options_of(path):
    text = "".join(run(path, "--help")[1:])
    # Options begin a line, or are named after a comma.
    return set(re.findall(r"(?:^ *|, )(--?[a-zA-Z0-9][a-zA-Z0-9-]*)", text, re.M))


for tool in ("valkey-cli", "valkey-benchmark"):
    if not ours(tool) or newest_server()[1]:
        report.missing("options of %s" % tool, "it is not built, or there is no genuine Valkey 9.1")
        continue
    mine, theirs = options_of(ours(tool)), options_of(genuine(tool))
    # The options of the cluster manager are listed behind its commands.
    theirs = {option for option in theirs if not option.startswith("--cluster-")}
    report.equal("our %s has the options of the genuine one" % tool, [], sorted(theirs - mine))

report.finish()
