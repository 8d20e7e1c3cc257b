#!/usr/bin/env python3
"""python3-redis of the distribution against our server.

    redis_py.py [PORT PASSWORD-PORT]    the ports of running servers, the second one with the password "secret"; without
                                        them the program starts its own"""
import sys
import threading
import time

from common import Report, Server, ours

report = Report()
try:
    import redis
except ImportError:
    report.missing("python3-redis against our server", "it is not installed (Debian: python3-redis)")
    report.finish()


class Running:
    """A server that runs already."""

    def __init__(self, port):
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        pass

    def alive(self):
        return redis.Redis(port=self.port, password=None if self.port == int(sys.argv[1]) else "secret").ping()


def raises(name, kind, call):
    try:
        got = call()
        report.check(name, False, "no error but %r" % (got,))
    except kind:
        report.check(name, True)
    except Exception as e:  # any other
        report.check(name, False, repr(e))


with Running(int(sys.argv[1])) if sys.argv[1:] else Server(ours()) as server:
    r = redis.Redis(port=server.port, decode_responses=True)
    raw = redis.Redis(port=server.port)
    report.equal("ping", True, r.ping())
    report.equal("set", True, r.set("a", "1"))
    report.equal("set nx", None, r.set("a", "2", nx=True))
    report.equal("set get", "1", r.set("a", "3", get=True))
    report.equal("set ex", True, r.set("e", "v", ex=100))
    report.check("ttl", 90 < r.ttl("e") <= 100)
    report.equal("get", "3", r.get("a"))
    report.equal("get of nothing", None, r.get("none"))
    raw.set(b"\x00\xff", b"\r\n\x00")
    report.equal("binary", b"\r\n\x00", raw.get(b"\x00\xff"))
    report.equal("mset", True, r.mset({"x": 1, "y": 2}))
    report.equal("mget", ["1", "2", None], r.mget("x", "y", "none"))
    report.equal("incr", 2, r.incr("x"))
    report.equal("incrbyfloat", 3.5, r.incrbyfloat("x", 1.5))
    report.equal("append", 4, r.append("x", "7"))
    report.equal("getrange", "3.", r.getrange("x", 0, 1))
    report.equal("getdel", "3.57", r.getdel("x"))
    report.equal("getex", "2", r.getex("y", ex=50))
    report.equal("strlen", 1, r.strlen("y"))
    report.equal("exists", 2, r.exists("a", "y", "none"))
    report.equal("rename", True, r.rename("y", "z"))
    report.equal("expire", True, r.expire("z", 100))
    report.equal("persist", True, r.persist("z"))
    report.equal("type", "string", r.type("z"))
    report.equal("copy", True, r.copy("z", "zz"))
    report.equal("object", "int", r.object("encoding", "zz"))
    raises("an error reply", redis.ResponseError, lambda: r.incr("e"))
    report.equal("keys", {b"a", b"e", b"z", b"zz", b"\x00\xff"}, set(raw.keys("*")))
    for i in range(1000):
        r.set("scan:%d" % i, i)
    report.equal("scan_iter", 1000, len(set(r.scan_iter("scan:*", count=50))))
    report.equal("delete", 2, r.delete("scan:1", "scan:2"))
    report.check("info", r.info()["redis_version"] == "7.2.4" and r.info("memory")["used_memory"] > 0)
    report.equal("dbsize", 1003, r.dbsize())
    report.equal("config get", {"maxclients": "10000"}, r.config_get("maxclients"))
    report.equal("config set", True, r.config_set("timeout", 0))
    report.check("time", abs(r.time()[0] - time.time()) < 5)
    report.check("client list", any(c["addr"] for c in r.client_list()))
    report.equal("client setname", True, r.client_setname("me"))
    report.check("command", "get" in r.command())
    report.check("command count", r.command_count() > 30)

    p = r.pipeline(transaction=False)
    for i in range(2000):
        p.set("p:%d" % i, i)
        p.get("p:%d" % i)
    out = p.execute()
    report.equal("pipeline", [x for i in range(2000) for x in (True, str(i))], out)

    if "multi" in r.command():
        with r.pipeline() as t:
            t.set("t", 1).incr("t").get("t")
            report.equal("transaction", [True, 2, "2"], t.execute())
    else:
        report.skip("transactions", "MULTI is not there yet")

    big = "x" * 5000000
    r.set("big", big)
    report.check("5 MB", r.get("big") == big)

    wrong = []

    def hammer(n):
        c = redis.Redis(port=server.port)
        for i in range(300):
            c.set("h:%d:%d" % (n, i), i)
            if c.get("h:%d:%d" % (n, i)) != str(i).encode():
                wrong.append((n, i))

    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    report.equal("ten threads", [], wrong)

    report.equal("select", True, r.execute_command("SELECT", 3))
    db = redis.Redis(port=server.port, db=5)
    db.set("only5", 1)
    report.equal("another database", None, r.get("only5"))
    report.equal("flushall", True, r.flushall())
    report.equal("nothing is left", 0, db.dbsize())
    report.check("our server is alive", server.alive())

with Running(int(sys.argv[2])) if sys.argv[1:] else Server(ours(), "--requirepass", "secret") as server:
    report.equal("password", True, redis.Redis(port=server.port, password="secret").ping())
    report.equal("user and password", True, redis.Redis(port=server.port, username="default", password="secret").ping())
    # Versions differ in what they make of WRONGPASS.
    raises("wrong password", (redis.AuthenticationError, redis.ResponseError),
           lambda: redis.Redis(port=server.port, password="x").ping())
    raises("no password", redis.AuthenticationError, lambda: redis.Redis(port=server.port).ping())

report.finish()
