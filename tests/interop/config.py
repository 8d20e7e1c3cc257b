#!/usr/bin/env python3
"""Options compared with a genuine server: the names and defaults of CONFIG GET, which options CONFIG SET may change,
and what CONFIG SET answers to values of every kind: border values of the types and of each option, units, percentages,
names, empty and malformed texts. After each value that is accepted both servers must show the same one.

    tests/interop/config.py [--only PATTERN]
"""
import fnmatch
import os
import re
import subprocess
import sys
import tempfile

from common import Client, Closed, Error, Report, Server, genuine, ours

report = Report()
only = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--only" else "*"
theirs_binary = genuine("valkey-server")
if not theirs_binary:
    report.missing("comparison of the options", "no genuine valkey-server is there")
    report.finish()
version = subprocess.run([theirs_binary, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
version = tuple(int(n) for n in re.search(r"v=(\d+)\.(\d+)", version).groups())
if version < (9, 1):
    report.missing("comparison of the options",
                   "the options are those of Valkey 9.1, the genuine valkey-server is %d.%d" % version)
    report.finish()

# Ours only: RDMA beyond the options of the genuine server, and what earlier versions had.
OWN = {"blob-max-client-transfers", "blob-max-object-size", "blob-max-transfer-memory", "blob-max-transfers",
       "blob-transfer-timeout", "immediate-reply", "rdma-ack-timeout-ms",
       "rdma-authentication-timeout-ms", "rdma-busy-poll-us",
       "rdma-traffic-class", "rdma-connect-timeout-ms", "rdma-features", "rdma-keepalive-ms", "rdma-max-clients",
       "rdma-max-registered-memory", "rdma-max-unauthenticated-memory", "rdma-rx-initial-size", "rdma-send-memory",
       "rdma-zero-copy-min", "rdma-replication", "rdma-replication-max-wait", "rdma-replication-snapshot-memory",
       "replica-announce-rdma-port", "tls-rdma", "tls-handshake-timeout-ms",
       "cluster-announce-rdma-port", "cluster-announce-client-rdma-port", "cluster-fast-failover",
       "sync-replication", "min-sync-replicas", "sync-eligible", "sync-replication-fsync", "sync-replication-file"}
# How the servers were started here.
STARTED = {"port", "dir", "bind", "pidfile", "logfile", "save", "unixsocket"}
# CONFIG GET shows these by their exact names only.
HIDDEN = {"watchdog-period", "import-mode", "key-load-delay", "rdb-key-save-delay", "lua-enable-insecure-api",
          "cluster-ping-interval", "aof-disable-auto-gc"}

VALUES = ["", "0", "1", "2", "-1", "yes", "no", "YES", "maybe", "abc", "1.5", "+1", " 1", "1 ", "01", "0x10", "5%",
          "101%", "-5%", "1b", "1k", "1kb", "1KB", "1Mb", "1g", "1gb", "1t", "-1k", "kb", "127", "128", "255", "256",
          "1000", "1024", "10000", "65535", "65536", "2147483647", "2147483648", "-2147483648", "-2147483649",
          "4294967295", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
          "18446744073709551514", "18446744073709551516", "18446744073709551614", "18446744073709551615",
          "18446744073709551616", "17179869183gb", "1kb ", "-1b", "-0", "05%", "5% ", "%", "+5%", "1 1 ",
          " 1 1", "1  1",
          "9007199254740992kb", "a b", "1 2", "1 2 3", "yes no", "a/b", "a.b", "a_b", "a-b", "::1", "127.0.0.1",
          "1.2.3.4.5", "*", "\"", "a\nb", "x" * 300]
# Values with a meaning for some options.
SPECIAL = {
    "save": ["1 ", "1  ", "1 1 1 ", "+1 01", "1\t1", "2147483648 1", "4294967297 1", "1 4294967297",
             "1 1", "1 1 2", "0 1", "1 0", "1 -1", "60 1 60 2", "900 1 300 10", "a 1", "1 a"],
    "client-output-buffer-limit": ["normal 0 0 ", "normal   ", "normal 0 0 01", "normal 0 0  0",
                                   "normal 0 0", "normal 0 0 0", "normal 0 0 0 pubsub 1gb 1gb 60", "none 0 0 0",
                                   "normal -1 0 0", "normal 1 1 -1", "normal a 0 0", "replica 256mb 64mb 60",
                                   "slave 256mb 64mb 60", "master 0 0 0", "normal 0 0 0 normal 1gb 1gb 1",
                                   "pubsub 1k 1q 1"],
    "notify-keyspace-events": ["KEA", "AKE", "Kg$lshzxetdmn", "q", "K", "E", "Ktn", "gKE", "m", "n"],
    "oom-score-adj-values": ["0 200 ", "0  5", "+1 02 3",
                             "0 200 800", "0 0 0", "800 200 0", "1 2", "-1 0 1", "0 2001 3", "a b c", "-2001 0 0"],
    "oom-score-adj": ["no", "relative", "absolute"],
    "latency-tracking-info-percentiles": ["50", "50 99 100", "0", "100.0", "100.1", "-1", "50.123", "1e1", "50 a",
                                          "0x10", "nan", "inf"],
    "proc-title-template": ["{title} {listen-addr} {server-mode}", "{title}", "{bad}", "{", "}", "a b",
                            "{port} {tls-port} {unixsocket} {config-file}", "{title"],
    "enable-debug-command": ["local"], "log-timestamp-format": ["legacy", "iso8601", "milliseconds"],
    "log-format": ["legacy", "logfmt", "json"],
    "shutdown-on-sigint": ["default", "save", "nosave", "now", "force", "now force", "save nosave", "default save",
                           "safe", "failover", "safe failover", "now now"],
    "maxmemory-policy": ["volatile-lru", "allkeys-lfu", "noeviction", "NOEVICTION"],
    "dbfilename": ["dump.rdb", "/tmp/x", "a/b", "..", "."],
    "cluster-announce-ip": ["localhost", "10.0.0.1", "fe80::1", "a,b", "a b", "host:1"],
    "cluster-announce-client-ipv4": ["10.0.0.1", "10.0.0", "fe80::1"],
    "cluster-announce-client-ipv6": ["10.0.0.1", "fe80::1", "fe80::zz"],
    "cluster-announce-hostname": ["host", "host_name", "-host", "h" * 255, "h" * 256, "host."],
    "cluster-announce-human-nodename": ["node", "node 1", "node,1", "node;", "n" * 256],
    "tls-auth-clients": ["optional"], "tls-auth-clients-user": ["off", "CN", "cn", "URI", "uri"],
    "tls-protocols": ["TLSv1.2", "TLSv1.2 TLSv1.3", "TLSv9"],
    "loglevel": ["debug", "verbose", "notice", "warning", "nothing"],
    "syslog-facility": ["local0", "user"], "appendfsync": ["always", "everysec"],
    "slot-migration-max-failover-repl-bytes": ["-1", "-2"],
    "unixsocketperm": ["700", "777", "0", "778", "8", "07777", "1000"],
    "repl-diskless-load": ["disabled", "on-empty-db", "swapdb", "flush-before-load"],
    "propagation-error-behavior": ["ignore", "panic", "panic-on-replicas"],
    "sanitize-dump-payload": ["clients"], "acl-pubsub-default": ["allchannels", "resetchannels"],
    "cluster-preferred-endpoint-type": ["ip", "hostname", "unknown-endpoint"],
    "rdb-version-check": ["strict", "relaxed"],
    "replica-announce-ip": ["10.0.0.1"], "locale-collate": ["C", "POSIX", "xx_YY"], "hash-seed": ["abc"],
    "cluster-config-save-behavior": ["sync", "best-effort"],
}
SPECIAL["shutdown-on-sigterm"] = SPECIAL["shutdown-on-sigint"]
for name in ("appenddirname", "appendfilename"):
    SPECIAL[name] = SPECIAL["dbfilename"]
# Setting these cuts the test off, or changes the machine: only values that are refused anyway.
REFUSED_ONLY = {"port": ["-1", "65536", "abc", "1 2"], "bind": ["999.1.1.1"], "dir": ["", "/nonexistent", "a b"],
                "rdma-port": ["-1", "65536", "abc"],
                "tls-port": ["-1", "65536", "abc"], "maxclients": ["0", "-1", "abc", "4294967296"], "rdma-bind": [],
                "maxmemory-clients": ["-1", "101%", "abc", "-5%", "1.5", "9223372036854775807", "9223372036854775808",
                                      "18446744073709551514", "18446744073709551516", "18446744073709551615",
                                      "18446744073709551616", "17179869183gb", "", "0"],
                "watchdog-period": ["-1", "abc", "2147483648"], "appendonly": ["maybe", "1", ""],
                "jemalloc-bg-thread": ["maybe", "1"],
                "client-output-buffer-limit": SPECIAL["client-output-buffer-limit"], "unixsocket": [],
                "client-query-buffer-limit": ["0", "1048575", "-1", "abc", "5%"],
                "save": SPECIAL["save"] + ["", "a", "1"], "oom-score-adj": ["maybe", ""],
                "oom-score-adj-values": ["1 2", "-1 0 1", "0 2001 3", "a b c", "-2001 0 0", "0 2001 ", "0  5000"],
                "replicaof": [], "user": [], "daemonize": ["yes"], "logfile": ["a"], "import-mode": ["maybe", "1"],
                "io-threads": ["0", "257", "-1", "abc", "1", "2", "1"]}


def text_of(reply):
    return str(reply) if isinstance(reply, Error) else repr(reply)


class Peer:
    def __init__(self, server):
        self.server, self.client = server, Client(server.port)

    def call(self, *words):
        try:
            return self.client.call(*words)
        except (Closed, OSError):
            self.client = Client(self.server.port)
            return Error("the connection was closed")

    def options(self, pattern):
        reply = self.call("CONFIG", "GET", pattern)
        return {k.decode(): v for k, v in zip(reply[::2], reply[1::2])}


def values_of(name):
    if name in REFUSED_ONLY:
        return REFUSED_ONLY[name]
    return VALUES + SPECIAL.get(name, [])


# Where ours answers otherwise, and why. {option: (values, reason)}; values None: all.
KNOWN = {
    "save": ({"1 4294967297"}, "2^31 changes and more are out of range"),
    "rdma-rx-size": (None, "can be changed at run time"),
    "rdma-completion-vector": (None, "can be changed at run time"),
}

flags = ["--enable-protected-configs", "yes", "--enable-debug-command", "yes"]
with Server(ours(), *flags) as a, Server(theirs_binary, *flags) as b:
    mine, theirs = Peer(a), Peer(b)
    all_mine, all_theirs = mine.options("*"), theirs.options("*")
    report.equal("CONFIG GET * names the options of the genuine server", [], sorted(set(all_theirs) - set(all_mine)))
    report.equal("CONFIG GET * names no other options than those of our own", [],
                 sorted(set(all_mine) - set(all_theirs) - OWN))
    for name in sorted(HIDDEN):
        report.equal("CONFIG GET " + name, theirs.options(name), mine.options(name))
    for name in sorted(set(all_mine) & set(all_theirs) - STARTED):
        report.equal("default of " + name, all_theirs[name], all_mine[name])
    compared = 0
    for name in sorted((set(all_mine) & set(all_theirs)) | HIDDEN):
        if not fnmatch.fnmatch(name, only):
            continue
        wrong = []
        before = mine.options(name).get(name), theirs.options(name).get(name)
        known = KNOWN.get(name)
        for value in values_of(name):
            if known and (known[0] is None or value in known[0]):
                continue
            compared += 1
            x, y = (peer.call("CONFIG", "SET", name, value) for peer in (mine, theirs))
            if text_of(x) != text_of(y):
                wrong.append("%r: %s, not %s" % (value[:60], text_of(x)[:160], text_of(y)[:160]))
            elif not isinstance(x, Error):  # accepted: it must be shown alike
                x, y = (peer.options(name).get(name) for peer in (mine, theirs))
                if x != y:
                    wrong.append("%r is shown as %r, not %r" % (value[:60], x, y))
            if not a.alive() or not b.alive():
                break
        report.check("CONFIG SET %s answers as the genuine server" % name, not wrong, "\n    " + "\n    ".join(wrong))
        if not report.check("both servers live after CONFIG SET " + name, a.alive() and b.alive(),
                            (a.alive(), b.alive())):
            break
        for peer, value in zip((mine, theirs), before):
            if value is not None and name not in ("port", "bind"):
                peer.call("CONFIG", "SET", name, value)
    for words in (["nosuch", "1"], ["maxmemory"], ["maxmemory", "1", "maxmemory", "2"],
                  ["maxmemory", "1", "nosuch", "2"], ["maxmemory", "abc", "hz", "1"],
                  ["hz", "10", "daemonize", "yes"], ["slave-priority", "1", "replica-priority", "2"], []):
        x, y = (text_of(peer.call("CONFIG", "SET", *words)) for peer in (mine, theirs))
        report.equal("CONFIG SET " + " ".join(words), y, x)
    for words in (["GET"], ["GET", "nosuch"], ["GET", "MAXMEMORY"], ["GET", "maxmemory", "maxmem*"], ["GET", "slave*"],
                  ["REWRITE"], ["RESETSTAT", "1"], ["nosuch"], []):
        x, y = (text_of(peer.call("CONFIG", *words)) for peer in (mine, theirs))
        if words[:1] == ["GET"] and not isinstance(x, Error):
            x, y = (sorted(eval(text)) if text.startswith("[") else text for text in (x, y))
        report.equal("CONFIG " + " ".join(words), y, x)
    print("%d values compared" % compared)

# Lines of the file, in which several arguments may stand in one pair of quotes.
LINES = ['save "1 1 "', 'save "1 "', 'save " 1 1"', 'save "1  1"', 'save "1\t1"', 'save "1 1" "2 2"', 'save 1 1 "2 2"',
         'save 1 "1"', 'save "" 1 1', 'save "1 1 \'2\' 2"', 'save 1 ""', 'save 1 " "', 'save 1 " 1"', 'save 1 "1 "',
         'save " "', 'save ""', 'client-output-buffer-limit "normal  0 0 1"',
         'client-output-buffer-limit "normal\t0 0 1"', 'client-output-buffer-limit "normal 0 0 \'1\'"',
         'client-output-buffer-limit normal 0 0 ""', 'notify-keyspace-events " KEA"', 'notify-keyspace-events "K E"',
         'oom-score-adj-values " 0 200 801"', 'oom-score-adj-values "0  200 801"', 'oom-score-adj-values 0 200 ""',
         'oom-score-adj-values 0 "" 5', 'latency-tracking-info-percentiles "50  99"',
         'latency-tracking-info-percentiles "50\t99"', 'latency-tracking-info-percentiles 50 ""',
         'shutdown-on-sigint "now  force"', 'shutdown-on-sigint "now\tforce"', 'shutdown-on-sigint now ""',
         'maxmemory-clients 18446744073709551615', 'maxmemory-clients "1 "', 'maxmemory 18446744073709551615',
         'slot-migration-max-failover-repl-bytes 18446744073709551615',
         'slot-migration-max-failover-repl-bytes 18446744073709551614', 'maxmemory-clients 9223372036854775808']


def read_line(binary, line):
    """Why a server refuses to start with this line of its file; or else what the option is then, and the line after
    CONFIG REWRITE."""
    name = line.split()[0]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(line + "\n")
        file.flush()
        got = subprocess.run([binary, file.name, "--port", "70000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = got.stdout.decode().split(">>> ")[1].splitlines()
    if not text[0].startswith("'port"):
        return text[:2]
    with Server(binary, configuration=[line]) as server:
        client = Client(server.port)
        shown = client.call("CONFIG", "GET", name)[1]
        if name == "client-output-buffer-limit":  # ours writes a line for each class
            return shown
        client.call("CONFIG", "REWRITE")
        with open(os.path.join(server.dir, "server.conf")) as file:
            return shown, [row for row in file.read().splitlines() if row.startswith(name + " ")]


for line in LINES:
    if fnmatch.fnmatch(line.split()[0], only):
        report.equal("the line %r of a file" % line, read_line(theirs_binary, line), read_line(ours(), line))
report.finish()
