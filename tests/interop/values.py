"""Values of every type in every encoding: small ones, and such as have just become large. Each is made under the key k
by its commands."""
LONG = "x" * 100
VALUES = {
    "empty string": [("SET", "k", "")],
    "text": [("SET", "k", "hello")],
    "binary": [("SET", "k", bytes(range(256)))],
    "compressible text": [("SET", "k", "abcdefgh" * 1000)],
    "small integer": [("SET", "k", 12)],
    "integers of all widths": [("RPUSH", "k", *[s * (1 << b) + d for b in (0, 6, 7, 12, 15, 23, 31, 62) for s in (1, -1)
                                                for d in (-1, 0, 1)])],
    "short list": [("RPUSH", "k", "a", 1, "", "x" * 60)],
    "long list": [("RPUSH", "k", *["element %d" % i for i in range(3000)])],
    "list of large elements": [("RPUSH", "k", "a", "b" * 9000, "c" * 100000, "d")],
    "intset": [("SADD", "k", 1, 2, 3)],
    "intset of 64 bits": [("SADD", "k", -(1 << 63), (1 << 63) - 1, 0)],
    "small set": [("SADD", "k", "a", "b", 7, "")],
    "large set": [("SADD", "k", *["member %d" % i for i in range(1000)])],
    "large set of integers": [("SADD", "k", *range(1000))],
    "set of long members": [("SADD", "k", LONG, "a")],
    "small hash": [("HSET", "k", "f", "v", "g", 12, "", "")],
    "large hash": [("HSET", "k", *[w for i in range(1000) for w in ("field %d" % i, i)])],
    "hash of long values": [("HSET", "k", "f", LONG * 100, "g", LONG * 1000)],
    "small sorted set": [("ZADD", "k", 1, "a", 2.5, "b", "-inf", "c", "inf", "d", 1e100, "e")],
    "large sorted set": [("ZADD", "k", *[w for i in range(1000) for w in (i / 7, "member %d" % i)])],
    "sorted set of long members": [("ZADD", "k", 1, LONG, 2, "a")],
    "bitmap": [("SETBIT", "k", 100000, 1)],
    "sparse HyperLogLog": [("PFADD", "k", "a", "b", "c")],
    "dense HyperLogLog": [("PFADD", "k", *range(20000))],
}
FEW = [("XADD", "k", "1-1", "a", 1, "b", "two"), ("XADD", "k", "1-2", "a", "", "b", -70000),
       ("XADD", "k", "2-0", "c", "x" * 300), ("XADD", "k", "2-5", "a", 3, "b", 4)]
MANY = [("XADD", "k", "%d-%d" % (i // 3 + 1, i), *[w for f in range(1 + i % 7 // 3)
                                                   for w in ("field %d" % f, "value %d" % i)]) for i in range(500)]
STREAMS = {
    "stream": FEW,
    "stream of one kind of entries": [("XADD", "k", "%d-0" % i, "n", i) for i in range(1, 300)],
    "stream of many kinds": MANY,
    "stream of large entries": [("XADD", "k", "%d-1" % i, "field", "v" * (i * 700)) for i in range(1, 12)],
    "stream with deleted entries": MANY + [("XDEL", "k", "%d-%d" % (i // 3 + 1, i)) for i in range(0, 500, 7)]
    + [("XDEL", "k", "167-499")],
    "stream without its first node": MANY + [("XDEL", "k", "%d-%d" % (i // 3 + 1, i)) for i in range(120)],
    "stream trimmed": MANY + [("XTRIM", "k", "MAXLEN", 77)],
    "stream trimmed by id": MANY + [("XTRIM", "k", "MINID", "100-298")],
    "stream trimmed to about": MANY + [("XTRIM", "k", "MAXLEN", "~", 250)],
    "stream that is empty now": FEW + [("XTRIM", "k", "MAXLEN", 0)],
    "stream whose last id was set": FEW + [("XSETID", "k", "70-0", "ENTRIESADDED", 20, "MAXDELETEDID", "60-0")],
}
READ = ("XREADGROUP", "GROUP", "g", "alice", "COUNT", 2, "STREAMS", "k", ">")
GROUPED = {
    "stream with a group": FEW + [("XGROUP", "CREATE", "k", "g", "0")],
    "stream that has only groups": [("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM"),
                                    ("XGROUP", "CREATE", "k", "12", 0, "ENTRIESREAD", 3)],
    "stream with consumers": FEW + [("XGROUP", "CREATE", "k", "g", "0"), ("XGROUP", "CREATECONSUMER", "k", "g", "idle"),
                                    READ],
    "stream with much pending": MANY + [("XGROUP", "CREATE", "k", "g", "0"), READ[:5] + (300,) + READ[6:],
                                        ("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "k", ">"),
                                        ("XACK", "k", "g", *["%d-%d" % (i // 3 + 1, i) for i in range(0, 500, 3)]),
                                        ("XCLAIM", "k", "g", "carol", 0, "1-1", "2-4", "101-301", "TIME", 1700000000000,
                                         "RETRYCOUNT", 700)],
    "stream with deleted entries pending": FEW + [("XGROUP", "CREATE", "k", "g", "0"), READ, ("XDEL", "k", "1-2"),
                                                  ("XGROUP", "CREATE", "k", "h", "2-0"),
                                                  ("XGROUP", "SETID", "k", "g", "1-1", "ENTRIESREAD", 1)],
}
