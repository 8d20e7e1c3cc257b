#!/usr/bin/env python3
"""A module of others, unchanged: RediSearch 1.2 of Debian (redis-redisearch), in our server and in a genuine one. Both
get the same documents and must answer the same queries alike: at first, after DEBUG RELOAD, on replicas, also on ours
of the genuine server, and after a restart with a rewritten append-only file.

The module is that of REDISEARCH, that of the installed package, or it is fetched with apt-get download."""
import os
import random
import subprocess
import sys
import tempfile

from common import Client, Error, Report, Server, ours, required_newest, wait_for

DOCUMENTS, QUERIES, SEED = 3000, 200, 7
INSTALLED = "/usr/lib/redis/modules/redisearch.so"
WORDS = ("amber basalt cedar delta ember fjord garnet harbor island jasper kelp lagoon meadow nectar ocean prairie "
         "quartz river saffron timber umber valley willow yarrow zephyr running walked studies better children").split()
TAGS = ("red", "green", "blue", "dark blue", "white")


def find_module(directory):
    """(path, None), or (None, why there is none)."""
    for path in (os.environ.get("REDISEARCH", ""), INSTALLED):
        if path and os.access(path, os.R_OK):
            return path, None
    try:
        done = subprocess.run(["apt-get", "-q", "download", "redis-redisearch"], cwd=directory, timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        packages = [name for name in os.listdir(directory) if name.endswith(".deb")]
        if packages:
            subprocess.run(["dpkg", "-x", packages[0], "."], cwd=directory, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return None, "redis-redisearch cannot be fetched: %s" % error
    path = directory + INSTALLED
    if os.access(path, os.R_OK):
        os.chmod(path, 0o755)
        return path, None
    return None, "redis-redisearch cannot be fetched: " + (done.stderr.strip().splitlines() or ["no package"])[-1]


def documents(rng):
    for number in range(DOCUMENTS):
        yield ["FT.ADD", "idx", "doc:%d" % number, "%.4f" % (number / DOCUMENTS), "FIELDS",
               "title", " ".join(rng.choices(WORDS, k=4)), "body", " ".join(rng.choices(WORDS, k=30)),
               "price", rng.randrange(1000), "tag", ",".join(rng.sample(TAGS, 2)),
               "place", "%.4f,%.4f" % (rng.uniform(-10, 10), rng.uniform(40, 50))]


def queries(rng):
    """Different ones, each with an order that is complete: equal scores would leave it to the module's tables."""
    found, ordered = [], ["SORTBY", "price", "ASC", "LIMIT", "0", "5"]
    while len(found) < QUERIES:
        one, two, three = rng.sample(WORDS, 3)
        low = rng.randrange(900)
        query = rng.choice([one, "%s %s" % (one, two), "%s|%s" % (one, two), "%s -%s" % (one, two), one[:3] + "*",
                            "@title:%s" % one, "@title:(%s|%s) @body:%s" % (one, two, three),
                            '"%s %s"' % (one, two), "@price:[%d %d]" % (low, low + 60),
                            "@tag:{%s} %s" % (rng.choice(TAGS), one), "%s ~%s" % (one, two),
                            "@place:[%d %d 100 km]" % (rng.randrange(-9, 9), rng.randrange(41, 49))])
        command = rng.choice([
            ["FT.SEARCH", "idx", query, "NOCONTENT", *ordered],
            ["FT.SEARCH", "idx", query, "WITHSCORES", "NOCONTENT", *ordered],
            ["FT.SEARCH", "idx", query, "VERBATIM", "RETURN", "2", "price", "tag", *ordered],
            ["FT.SEARCH", "idx", query, "HIGHLIGHT", "FIELDS", "1", "title", *ordered],
            ["FT.SEARCH", "idx", query, "INKEYS", "3", "doc:1", "doc:2", "doc:4", "NOCONTENT"],
            ["FT.AGGREGATE", "idx", query, "GROUPBY", "1", "@tag", "REDUCE", "COUNT", "0", "AS", "n", "SORTBY", "2",
             "@tag", "ASC"],
            ["FT.AGGREGATE", "idx", query, "GROUPBY", "1", "@tag", "REDUCE", "SUM", "1", "@price", "AS", "sum",
             "SORTBY", "4", "@sum", "DESC", "@tag", "ASC"],
            ["FT.EXPLAIN", "idx", query]])
        if command not in found:
            found.append(command)
    return found


def plain(reply):
    """Errors are compared by their text."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return "error " + str(reply) if isinstance(reply, Error) else reply


def answers(server, asked):
    with Client(server.port) as client:
        while isinstance(client.call("PING"), Error):
            pass
        return [plain(client.call(*command)) for command in asked]


def fill(server):
    rng = random.Random(SEED)
    with Client(server.port) as client:
        made = client.call("FT.CREATE", "idx", "SCHEMA", "title", "TEXT", "WEIGHT", "5", "body", "TEXT", "price",
                           "NUMERIC", "SORTABLE", "tag", "TAG", "place", "GEO")
        replies = [made] + [client.call(*command) for command in documents(rng)]
        return replies + [client.call("FT.DEL", "idx", "doc:%d" % number, "DD") for number in range(0, DOCUMENTS, 7)]


def follow(replica, primary):
    with Client(replica.port) as client:
        client.call("REPLICAOF", "127.0.0.1", primary.port)
        wait_for("the replica is connected", lambda: b"master_link_status:up" in client.call("INFO", "replication"))


def rewrite(server):
    with Client(server.port) as client:
        client.call("BGREWRITEAOF")
        wait_for("the file is rewritten", lambda: b"aof_rewrite_in_progress:0" in client.call("INFO", "persistence") and
                 b"aof_rewrite_scheduled:0" in client.call("INFO", "persistence"))
        client.call("FT.ADD", "idx", "late", "1", "FIELDS", "title", "amber late", "price", 5)
    server.kill()
    server.start()


def main():
    report = Report()
    program = required_newest(report, "redisearch")
    with tempfile.TemporaryDirectory() as directory:
        module, why = find_module(directory)
        if not module:
            report.missing("redisearch", why)
            report.finish()
        options = ("--loadmodule", module, "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0",
                   "--appendonly", "yes")
        asked = queries(random.Random(SEED + 1))
        # The module copies overlapping memory with memcpy(), which is no fault of a server that is built to notice.
        lenient = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":replace_intrin=0"}
        with Server(ours(), *options, environment=lenient) as mine, Server(program, *options) as theirs:
            report.equal("documents", fill(theirs), fill(mine))
            first = answers(theirs, asked)
            errors = [answer for answer in first if isinstance(answer, str) and answer.startswith("error")]
            report.equal("the queries are valid", [], errors)
            report.check("most of them find documents", sum(answer not in ([], [0]) for answer in first) > QUERIES // 2)

            def compare(name, server):
                for command, want, got in zip(asked, first, answers(server, asked)):
                    if want != got:
                        report.check("%s: %s" % (name, " ".join(command)), False, "expected %r, got %r" % (want, got))
                        return
                report.check(name, True)

            compare("at first", mine)
            for name, server in (("ours", mine), ("genuine", theirs)):
                with Client(server.port, timeout=120) as client:
                    report.equal("DEBUG RELOAD, " + name, "OK", client.call("DEBUG", "RELOAD"))
                compare("after DEBUG RELOAD, " + name, server)
            for name, follower, primary in (("ours", ours(), mine), ("ours of the genuine server", ours(), theirs),
                                            ("genuine", program, theirs)):
                with Server(follower, *options, environment=lenient) as replica:
                    follow(replica, primary)
                    compare("on a replica, " + name, replica)
            late = [["FT.SEARCH", "idx", "late"], *asked]
            for server in (mine, theirs):
                rewrite(server)
            report.equal("after a restart with a rewritten file", answers(theirs, late), answers(mine, late))
            report.check("the document behind the rewrite is there", answers(mine, late)[0][0] == 1)
    report.finish()


sys.exit(main())
