"""Random commands on streams; some of other clients, that wait.

Ids are small, so that they meet; streams "y0" and "y1" have those of the clock. Stream "z" is trimmed exactly by ids,
which may leave it another radix tree than ours; see README.md: nobody asks for that."""
from differential_words import R, case, clock, field, integer, one, repeated, small, some, value


def stream_id():
    return one(lambda: "%d-%d" % (R.randrange(8), R.randrange(6)), lambda: "%d-%d" % (R.randrange(8), R.randrange(6)),
               lambda: str(R.randrange(12)),
               lambda: "%d-%d" % (R.randrange(40), R.randrange(300)), "0-0", "0",
               "18446744073709551615-18446744073709551615", "18446744073709551615",
               "5-18446744073709551615", late_id, stream_no_id)


def late_id():
    return "%d-%d" % (clock.ms + R.randrange(-3, 4), R.randrange(20))


def stream_no_id():
    return one("-", "+", "$", ">", "*", "", "abc", "1-", "-1", "1-*", "(1", "1-1-1", "+1-+2", " 1-1", "1--01", "01-02",
               "0x1", "18446744073709551616", "1.5", "1\0-2",
               "0" * 130 + "1-1")


def streams():
    def key():
        return one("k1", *["x%d" % i for i in range(4)] * 4)

    def late():
        """Streams with ids of the present."""
        return "y%d" % R.randrange(2)

    def ids(count=None):
        return [stream_id() for _ in range(count or R.choice((1, 1, 2, 3, 8, 20)))]

    def group():
        return one("g1", "g1", "g2", "g3", "none")

    def consumer():
        return "c%d" % R.randrange(4)

    def number():
        return one("0", "1", "2", "3", "10", "1000", integer)

    def entries_read():
        """Small enough that the counter does not overflow; see README.md."""
        return ["ENTRIESREAD", one("0", "1", "2", "3", "10", "-1", "-2", "1000000000000", "abc", "+1")]

    def count():
        return ["COUNT", number()]

    def start():
        return one("-", "-", "0", stream_id, lambda: "(" + stream_id())

    def end():
        return one("+", "+", stream_id, lambda: "(" + stream_id())

    def fields():
        return one(lambda: ["f", small()], lambda: ["f", small(), "g", small()], lambda: ["f", "", "g", "x" * 70],
                   lambda: repeated(field, value), lambda: ["f"],
                   lambda: ["f", "1", "g"])

    def trim():
        """Not exactly by an id, which may leave a node without entries there; see README.md."""
        return one(lambda: ["MAXLEN"] + one([], ["="], ["~"]),
                   lambda: ["MINID", "~"]) + [one(small, number,
                                                  stream_id)] + one([], [], [], lambda: ["LIMIT", number()])

    def trim_exactly():
        return ["MINID"] + one([], ["="]) + [stream_id()] + one([], [], [], lambda: ["LIMIT", number()])

    def new_id():
        return one(lambda: "%d-*" % R.randrange(9), lambda: "%d-%d" % (R.randrange(8), R.randrange(40)),
                   lambda: "%d-%d" % (R.randrange(8), R.randrange(40)), stream_id)

    def late_new_id():
        return one("*", "*", lambda: "%d-*" % (clock.ms + R.randrange(-1, 3)), late_id)

    def options():
        return some("NOMKSTREAM", trim) if R.random() < 0.3 else one([], trim)

    def sources():
        keys = [one(key, key, late) for _ in range(R.choice((1, 1, 1, 2, 3)))]
        return keys + [one("0", "0-0", "$", "+", stream_id) for _ in keys] + ([key()] if R.random() < 0.03 else [])

    def group_sources():
        keys = [one(key, key, key, late) for _ in range(R.choice((1, 1, 1, 1, 2, 3)))]
        return keys + [one(">", ">", ">", "0", stream_id) for _ in keys] + ([key()] if R.random() < 0.03 else [])

    def reading():
        return some(count, count, lambda: ["BLOCK", one("-1", "abc")] if R.random() < 0.1 else [],
                    lambda: ["FOO"] if R.random() < 0.03 else [])

    def idle():
        return one("0", "0", "0", "1", "1000", "60000", "-5", "abc")

    def claiming():
        return some("FORCE", "JUSTID", lambda: ["IDLE", one("1000", "0", integer)],
                    lambda: ["TIME", one(lambda: clock.ms - 1000, clock.ms + 1000, "1", "-1", "abc")],
                    lambda: ["RETRYCOUNT", number()], lambda: ["LASTID", stream_id()])

    def waiting():
        """Others wait, and are served by what follows. One more waits no longer."""
        client = R.randrange(1, 4)
        return one(lambda: [(client, ["XREAD", "BLOCK", "0"] + some(count) + ["STREAMS"]
                             + one(lambda: [any_key(), one("$", "$", "+", stream_id)],
                                  lambda: [any_key(), any_key(), "$", "$"]))],
                   lambda: [(client, ["XREADGROUP", "GROUP", group(), consumer(), "BLOCK", "0"] + some(count, "NOACK")
                             + ["STREAMS", any_key(), ">"])],
                   lambda: [(client, ["XREADGROUP", "GROUP", group(), consumer(), "BLOCK", "0", "STREAMS", any_key(),
                                      any_key(), ">", one(">", ">", "0")])],
                   lambda: [(client, ["XADD", any_key(), "*", "f", "1"])],
                   lambda: [(0, ["CLIENT", "UNBLOCK", "@%d" % client] + one([], ["ERROR"], ["TIMEOUT"]))],
                   lambda: [(0, words) for words in (["MULTI"], one(["DEL", any_key()],
                                                                    ["XADD", key(), "8-*", "f", "1"]),
                                                     ["XADD", any_key(), "9-*", "f", "2"],
                                                     ["XREADGROUP", "GROUP", group(), consumer(), "BLOCK", "0",
                                                      "STREAMS", key(), ">"], ["EXEC"])])

    def any_key():
        return one(key, key, key, late)

    if R.random() < 0.05:
        return waiting() + [(0, ["XLEN", any_key()])]  # so that no waiting client is sent more
    return R.choice([
        lambda: ["XADD", key()] + options() + [new_id()] + fields(),
        lambda: ["XADD", key()] + options() + [new_id()] + fields(),
        lambda: ["XADD", key(), "%d-*" % R.randrange(9)] + fields(),
        lambda: ["XADD", key(), "%d-*" % R.randrange(9), "f", small(), "g", "v"],
        lambda: ["XADD", key(), "%d-*" % R.randrange(9), "f", small(), "g", "v"],
        lambda: ["XADD", late(), "*", "f", small()],
        lambda: ["XADD", late()] + options() + [late_new_id()] + fields(),
        lambda: ["XADD", late()] + options() + [late_new_id()] + fields(),
        lambda: ["XTRIM", any_key()] + trim(),
        lambda: ["XTRIM", "z"] + trim_exactly(),
        lambda: ["XADD", "z"] + trim_exactly() + [new_id()] + fields(),
        lambda: ["XDEL", "z"] + ["%d-%d" % (R.randrange(8), R.randrange(8)) for _ in range(20)],
        lambda: ["XADD", "z", "%d-*" % R.randrange(9), "f", small(), "g", "v"],
        lambda: ["XADD", "z", "%d-*" % R.randrange(9), "f", small(), "g", "v"],
        lambda: [one("XLEN", "DEL", "XREAD", "XRANGE"), "z"] + one([], ["-", "+"]),
        lambda: ["XTRIM", any_key(), one("MAXLEN", "MINID"), "~", one(small, stream_id), "LIMIT",
                 one("0", "1", "2", "5", "10")],
        lambda: ["XTRIM", any_key()] + some(trim, lambda: ["LIMIT", number()], "FOO"),
        lambda: ["XDEL", any_key()] + ids(),
        lambda: ["XDEL", any_key()] + ["%d-%d" % (R.randrange(8), R.randrange(8)) for _ in range(20)],
        lambda: ["XDEL", late()] + [late_id() for _ in range(10)],
        lambda: ["XLEN", any_key()],
        lambda: ["XRANGE", any_key(), start(), end()] + some(count, count),
        lambda: ["XREVRANGE", any_key(), end(), start()] + some(count, count),
        lambda: ["XRANGE", any_key(), stream_id(), stream_id()],
        lambda: ["XREVRANGE", any_key(), stream_id(), stream_id(), "COUNT", number()],
        lambda: ["XREAD"] + reading() + [case("STREAMS")] + sources(),
        lambda: ["XREADGROUP", "GROUP", group(), consumer()] + reading() + some("NOACK") + ["STREAMS"]
        + group_sources(),
        lambda: ["XREADGROUP", "GROUP", group(), consumer(), "COUNT", one("1", "2", "3")] + some("NOACK")
        + ["STREAMS", any_key(), ">"],
        lambda: ["XREADGROUP", "GROUP", group(), consumer(), "COUNT", one("1", "2", "3"), "STREAMS", any_key(), ">"],
        lambda: ["XREADGROUP"] + some("NOACK", lambda: ["GROUP", group(), consumer()], count) + [one("STREAMS", "FOO")]
        + group_sources(),
        lambda: ["XGROUP", "CREATE", key(), group(), one("$", "0", "0", stream_id)] + some("MKSTREAM", entries_read),
        lambda: ["XGROUP", "CREATE", key(), group(), one("$", "0")] + some("MKSTREAM"),
        lambda: ["XGROUP", "CREATE", late(), group(), one("$", "0", stream_id)],
        lambda: ["XGROUP", "SETID", any_key(), group(), one("$", "0", stream_id)]
        + some(entries_read, lambda: ["MKSTREAM"] if R.random() < 0.1 else []),
        lambda: ["XGROUP", case("DESTROY"), any_key(), group()] if R.random() < 0.3 else ["XINFO", "GROUPS", any_key()],
        lambda: ["XGROUP", one("CREATECONSUMER", "DELCONSUMER"), any_key(), group(), consumer()],
        lambda: ["XACK", any_key(), group()] + ids(),
        lambda: ["XACK", key(), group()] + ["%d-%d" % (R.randrange(8), R.randrange(4)) for _ in range(10)],
        lambda: ["XPENDING", any_key(), group()],
        lambda: ["XPENDING", any_key(), group()] + one([], [], lambda: ["IDLE", idle()]) + [start(), end(), number()]
        + one([], lambda: [consumer()], lambda: [consumer(), "FOO"]),
        lambda: ["XCLAIM", any_key(), group(), consumer(), idle()] + ids() + claiming(),
        lambda: ["XCLAIM", key(), group(), consumer(), idle()] + ["%d-%d" % (R.randrange(8), R.randrange(6))
                                                                  for _ in range(12)] + claiming(),
        lambda: ["XCLAIM", key(), group(), consumer(), "0", "%d-%d" % (R.randrange(8), R.randrange(6)),
                 "FORCE"] + claiming(),
        lambda: ["XAUTOCLAIM", any_key(), group(), consumer(), idle(),
                 start()] + some(lambda: ["COUNT", one("1", "2", "5", "0", "-1", "abc", "9223372036854775807")],
                                 "JUSTID"),
        lambda: ["XAUTOCLAIM", any_key(), group(), consumer(), idle(),
                 one("-", "0")] + some(lambda: ["COUNT", one("1", "2", "5")], "JUSTID"),
        lambda: ["XINFO", "STREAM", any_key()] + some("FULL", count),
        lambda: ["XINFO", "STREAM", any_key(), "FULL"] + one([], count),
        lambda: ["XINFO", "GROUPS", any_key()],
        lambda: ["XINFO", "CONSUMERS", any_key(), group()],
        lambda: ["XSETID", key(), stream_id()] + some(lambda: ["ENTRIESADDED",
                                                               one("0", "1", "3", "20", "1000", "-1", "1000000000000",
                                                                   "abc")], lambda: ["MAXDELETEDID", stream_id()])
        if R.random() < 0.4 else ["XLEN", key()],
        lambda: ["XSETID", key(), "8-1"] if R.random() < 0.2 else ["XLEN", key()],
        lambda: ["CONFIG", "SET", "stream-node-max-entries", one("1", "2", "3", "5", "20", "100", "0")],
        # smaller ones damage streams of the genuine server
        lambda: ["CONFIG", "SET", "stream-node-max-bytes", one("4096", "4096", "10000", "0")],
        lambda: [one("DEL", "TYPE", "EXISTS"), any_key()] if R.random() < 0.4 else ["XLEN", any_key()],
        lambda: ["COPY", key(), key()] + some("REPLACE") if R.random() < 0.4 else ["XLEN", any_key()],
        lambda: [one("XADD", "XLEN", "XRANGE", "XDEL", "XTRIM", "XREAD", "XREADGROUP", "XACK", "XCLAIM", "XPENDING",
                     "XSETID", "XAUTOCLAIM")] +
                [one(key, group, stream_id, "STREAMS", "GROUP") for _ in range(R.randrange(6))],
        lambda: [one("XGROUP", "XINFO"), one("CREATE", "SETID", "DESTROY", "CREATECONSUMER", "DELCONSUMER", "STREAM",
                                             "GROUPS", "CONSUMERS", "FOO")] +
                [one(key, group, stream_id, consumer) for _ in range(R.randrange(5))],
        lambda: ["SET", key(), "x"] if R.random() < 0.05 else ["XLEN", key()],
    ])()
