"""Families of several clients: steps of (client, words). Client 0 is answered once for each step, so it neither
subscribes nor waits; see differential.py.

Clients 1 to 3 are sent only what has one answer on all servers, to the byte.
"""
import hashlib

from differential_words import R, case, clock, far, integer, key, many, one, some, value


def other():
    return R.randrange(1, 4)


# Few keys, so that clients meet; with names of which the encoding is not compared, for the sake of SORT.

def meeting():
    return "sc%d" % R.randrange(4)


def plain():
    """A command on keys where clients meet, with one possible answer."""
    return R.choice([
        lambda: ["SET", meeting(), one("1", "2", "x", "")],
        lambda: ["GET", meeting()],
        lambda: ["DEL"] + many(meeting),
        lambda: ["INCR", meeting()],
        lambda: ["RPUSH", meeting(), one("a", "b")],
        lambda: ["LRANGE", meeting(), "0", "-1"],
        lambda: ["LPOP", meeting()],
        lambda: ["ZADD", meeting(), one("1", "2"), one("a", "b")],
        lambda: ["HSET", meeting(), "f", one("1", "x")],
        lambda: ["EXPIRE", meeting(), one("100", "0", "-1", "1")],
        lambda: ["PERSIST", meeting()],
        lambda: ["RENAME", meeting(), meeting()],
        lambda: ["COPY", meeting(), meeting(), "REPLACE"],
        lambda: ["TTL", meeting()],
        lambda: ["TYPE", meeting()],
        lambda: ["EXISTS"] + many(meeting),
        lambda: ["MOVE", meeting(), one("0", "1")],
        lambda: ["SWAPDB", "0", "1"] if R.random() < 0.3 else ["DBSIZE"],
        lambda: ["SELECT", one("0", "0", "0", "1")],
        lambda: [one("FLUSHDB", "FLUSHALL")] if R.random() < 0.2 else ["PING"],
        lambda: ["SORT", meeting(), "BY", "nosort", "STORE", meeting()],
        lambda: ["PUBLISH", one("x", "y"), "m"],
    ])()


def transactions():
    """MULTI, WATCH, EXEC of several clients that get in each other's way."""
    who = other()
    return R.choice([
        lambda: [(who, ["MULTI"])],
        lambda: [(who, ["MULTI"]), (who, plain()), (R.randrange(4), plain()), (who, plain()), (who, ["EXEC"])],
        lambda: [(who, ["EXEC"])],
        lambda: [(who, [one("EXEC", "EXEC", "EXEC", "DISCARD", "UNWATCH", "RESET")])],
        lambda: [(who, ["WATCH"] + many(meeting)), (R.randrange(4), plain()), (who, ["MULTI"]), (who, plain()),
                 (who, ["EXEC"])],
        lambda: [(who, ["WATCH"] + many(meeting))],
        lambda: [(R.randrange(4), plain())],
        lambda: [(R.randrange(4), plain())],
        lambda: [(R.randrange(4), plain()), (R.randrange(4), plain())],
        lambda: [(who, one(["GET"], ["NONE"], ["SET", "sc1"], ["EXEC", "x"], ["MULTI", "x"], ["WATCH"],
                           ["SELECT", "99"], ["HELLO", "4"], ["RESET"], ["HELLO", "2"]))],
        lambda: wait(),
    ])()


def silenced():
    """CLIENT REPLY in a transaction, which would leave the client silent."""
    who = other()
    return [(who, ["MULTI"]), (who, plain()), (who, ["CLIENT", "REPLY", one("OFF", "SKIP", "ON", "x")]),
            (who, ["EXEC"]), (who, plain())]


def wait():
    ms = R.choice((1, 1000, 2000, 100000))
    clock.ms += ms
    return [(0, ["#clock", ms])]


def queued(command):
    """Client 0's commands of any family in a transaction."""
    steps = [(0, ["MULTI"])]
    if R.random() < 0.2:
        steps.insert(0, (0, ["WATCH"] + many(key)))
        if R.random() < 0.5:
            steps.append((R.randrange(1, 4), ["SET", key(), "other"]))
    for _ in range(R.randrange(6)):
        step = command()
        if not isinstance(step[0], tuple):
            steps.append((0, step))
    return steps + [(0, [one("EXEC", "EXEC", "EXEC", "EXEC", "EXEC", "DISCARD", "RESET" if R.random() < 0.2
                             else "EXEC")])]


def messages():
    """Channels, patterns, shard channels."""
    channel = lambda: one("a", "b", "ab", "news.x", "news.y", b"\0\xff", "", "__keyspace@0__:sc1", "__keyevent@0__:set")
    pattern = lambda: one("*", "a*", "news.*", "[ab]", "?", "__key*__:*", "", "x")
    who = other()
    return R.choice([
        lambda: [(who, ["SUBSCRIBE"] + many(channel))],
        lambda: [(who, ["PSUBSCRIBE"] + many(pattern))],
        lambda: [(who, ["SSUBSCRIBE"] + many(channel))],
        lambda: [(who, [one("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE")] + many(channel))],
        lambda: [(who, ["PUNSUBSCRIBE"] + many(pattern))],
        lambda: [(who, [one("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE")])],
        lambda: [(who, [one("PING", "RESET", "GET", "QUITE", "PING")] + one([], ["x"], []))],
        lambda: [(who, ["MULTI"]), (who, [one("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE"), "a"]),
                 (who, ["PUBLISH", "a", "own"]), (who, ["EXEC"])],
        lambda: [(who, ["HELLO", one("2", "3")])],
        lambda: [(one(0, who), ["PUBLISH", channel(), one("m", "", "x" * 100)])],
        lambda: [(0, ["PUBLISH", channel(), one("m", "", "x" * 100)])],
        lambda: [(0, ["SPUBLISH", channel(), "m"])],
        lambda: [(0, ["PUBSUB", "CHANNELS"] + one([], [pattern()]))],
        lambda: [(0, ["PUBSUB", "SHARDCHANNELS"] + one([], [pattern()]))],
        lambda: [(0, ["PUBSUB", one("NUMSUB", "SHARDNUMSUB")] + one([], many(channel)))],
        lambda: [(0, ["PUBSUB", "NUMPAT"] + one([], [], ["x"]))],
        lambda: [(one(0, who), plain())],
        lambda: [(0, ["CONFIG", "SET", "notify-keyspace-events", one("", "KEA", "Kg$", "Elx", "AKE", "Kzhtmn", "EAmn",
                                                                     "KEA")])],
        lambda: [(0, ["CONFIG", "GET", "notify-keyspace-events"])],
        lambda: wait(),
    ])()


def waiting(keys=4, swap=False):
    """Clients that wait for keys, and the order in which they are served. SWAPDB serves several keys in any order."""
    key = lambda: "sb%d" % R.randrange(keys)
    who, timeout = other(), one("0", "0", "0", "0", "0.0", "1000000", "-1", "abc", "inf", "1e20", "nan", "",
                                "99999999999999999999", "9223372036854775807")
    side, end = lambda: one("LEFT", "RIGHT"), lambda: one("MIN", "MAX")
    element = lambda: one("e%d" % R.randrange(5), "", "1")
    push = lambda: R.choice([
        lambda: [one("RPUSH", "LPUSH", "RPUSH", "LPUSHX"), key()] + many(element),
        lambda: ["ZADD", key(), one("1", "2", "-1"), element()] + one([], ["3", element()]),
        lambda: ["RENAME", key(), key()],
        lambda: ["COPY", key(), key(), "REPLACE"],
        lambda: ["SWAPDB", "0", "1"] if swap else ["PING"],
        lambda: ["SELECT", one("0", "0", "1")],
        lambda: ["MOVE", key(), one("0", "1")],
        lambda: ["LMOVE", key(), key(), side(), side()],
        lambda: ["RPOPLPUSH", key(), key()],
        lambda: ["LINSERT", key(), "BEFORE", element(), element()],
        lambda: ["ZINCRBY", key(), "1", element()],
        lambda: ["GEOADD", key(), "1", "2", element()],
        lambda: ["DEL"] + many(key),
        lambda: ["SET", key(), "x"],
        lambda: ["EXPIRE", key(), one("1", "100", "-1")],
        lambda: ["LRANGE", key(), "0", "-1"],
        lambda: ["LPOP", key()],
        lambda: ["ZRANGE", key(), "0", "-1"],
        lambda: ["FLUSHALL"] if R.random() < 0.3 else ["DBSIZE"],
        lambda: [one("BLPOP", "BZPOPMIN"), key(), "0"],
    ])()
    block = lambda: R.choice([
        lambda: [one("BLPOP", "BRPOP")] + many(key) + [timeout],
        lambda: ["BLMOVE", key(), key(), side(), one(side, side, "UP"), timeout],
        lambda: ["BRPOPLPUSH", key(), key(), timeout],
        lambda: ["BLMPOP", timeout, one("1", "2", "0", "x"), key(), key(),
                 side()] + one([], ["COUNT", one("1", "2", "0", "x")]),
        lambda: ["BLMPOP", timeout, "2", key(), key(), side()] + one([], ["COUNT", "2"]),
        lambda: [one("BZPOPMIN", "BZPOPMAX")] + many(key) + [timeout],
        lambda: ["BZMPOP", timeout, "2", key(), key(), end()] + one([], ["COUNT", one("1", "2")]),
        lambda: ["BZMPOP", timeout, one("1", "0"), key(), end()],
    ])()
    def stored():
        """Into a key that does not exist: not all servers serve a client that waits for a key when a value of another
        type replaces it."""
        to, source = R.sample(["sb0", "sb1", "sb2", "sb3"], 2)
        words = R.choice((["SORT", source, "ALPHA", "STORE", to], ["ZUNIONSTORE", to, "1", source],
                          ["ZRANGESTORE", to, source, "0", "-1"],
                          ["GEOSEARCHSTORE", to, source, "FROMLONLAT", "1", "2", "BYRADIUS", "10", "km"]))
        return [(0, ["DEL", to]), (0, words)]
    pushed = lambda: next(words for words in iter(push, None) if not words[0].startswith("B"))
    return R.choice([
        lambda: [(who, block())],
        lambda: [(who, block())],
        lambda: [(who, block())],
        lambda: [(who, block()), (who, ["GET", key()])],  # what is sent behind waits, too
        lambda: [(0, pushed())],
        lambda: [(0, pushed())],
        lambda: [(0, pushed())],
        lambda: [(0, pushed()), (0, pushed())],
        lambda: stored(),
        lambda: [(0, ["MULTI"])] + [(0, ["PING"] if swap else push())] + stored() + [(0, push()), (0, ["EXEC"])],
        lambda: [(0, ["MULTI"])] + [(0, push()) for _ in range(R.randrange(1, 6))] + [(0, ["EXEC"])],
        lambda: [(who, ["MULTI"]), (who, block()), (who, pushed()), (who, ["EXEC"])],
        lambda: [(who, pushed())],
        lambda: [(0, ["CLIENT", "UNBLOCK", "@%d" % other()] + one([], ["TIMEOUT"], ["ERROR"], ["x"]))],
        lambda: [(0, ["CLIENT", "UNBLOCK", one("0", "abc", "99999999")])],
        lambda: wait(),
    ])()


def connections():
    """What belongs to a client: its protocol, name, database."""
    name = lambda: one("me", "a-b", "a b", "", "x\n", b"\xff", "n" * 50)
    return (one(0, other), R.choice([
        lambda: ["HELLO"] + one([], ["2"], ["3"], ["3"], ["1"], ["x"], ["4"], ["3", "SETNAME", name()], ["3", "FOO"],
                                ["2", "AUTH", "default", "x"], ["3", "AUTH", "u"]),
        lambda: ["CLIENT", "SETNAME", name()],
        lambda: ["CLIENT", "GETNAME"],
        lambda: ["CLIENT", "SETINFO", one("LIB-NAME", "lib-ver", "FOO"), name()],
        lambda: ["CLIENT", case(one("NO-TOUCH", "NO-EVICT")), one("on", "off", "ON", "x")],
        lambda: ["CLIENT", one("FOO", "REPLY", "SETNAME", "")],
        lambda: ["CLIENT", "REPLY", one("ON", "x")],
        lambda: ["PING"] + one([], [value()], ["a", "b"]),
        lambda: ["ECHO"] + one([value()], [], ["a", "b"]),
        lambda: ["SELECT", one("0", "1", "15", "16", "-1", "x", integer)],
        lambda: ["AUTH"] + one([], ["x"], ["default", "x"], ["a", "b", "c"]),
        lambda: ["RESET"],
        lambda: ["ECHO", "x"],
        lambda: ["DBSIZE"] + one([], ["x"]),
        lambda: ["TOUCH", key()],
        lambda: ["SET", key(), value()],
        lambda: ["OBJECT", "FREQ", key()],
        lambda: ["EXPIRE", key(), far()],
    ])()),


def tracking():
    """Client-side caching: which clients receive which invalidations, in which order. Among commands that are sent at
    once only the last one writes, since the event loop decides which changes one message to a BCAST client contains.
    Scripts have keys of their own, since a server may know only the client that changed a key last."""
    key, prefix = lambda: "st%d" % R.randrange(5), lambda: one("", "s", "st", "st1", "st2", "se", "x", "st12")
    who, scripted = other(), lambda: "se%d" % R.randrange(2)
    mode = lambda: R.choice([
        lambda: [],
        lambda: [],
        lambda: [one("OPTIN", "OPTOUT", "optin")],
        lambda: ["BCAST"] + [word for _ in range(R.choice((0, 1, 1, 2))) for word in ("PREFIX", prefix())],
        lambda: ["BCAST", "PREFIX", one("st1", "st2"), "PREFIX", one("st3", "se")],
        lambda: [one("BCAST", "OPTIN"), one("OPTOUT", "OPTIN", "PREFIX", "x")] if R.random() < 0.3 else [],
    ])() + some("NOLOOP") + one([], [], [], ["REDIRECT", "@%d" % other()],
                                ["REDIRECT", one("0", "-1", "x", "999999999")] if R.random() < 0.3 else [])
    read = lambda: R.choice([
        lambda: ["GET", key()],
        lambda: ["GET", key()],
        lambda: ["MGET"] + many(key),
        lambda: [one("STRLEN", "TTL", "TYPE", "LLEN") if R.random() < 0.5 else "EXISTS", key()],
        lambda: ["LRANGE", key(), "0", "-1"],
        lambda: ["SORT_RO", key()],
        lambda: ["OBJECT", "ENCODING", key()],
        lambda: ["EVAL", "return redis.call('exists', KEYS[1], KEYS[2])", "2", key(), key()],
        lambda: ["EVAL_RO", "return redis.call('exists', ARGV[1])", "1", key(), scripted()],
        lambda: ["EVAL", "return 1", "1", key()],
        lambda: ["GET"] + one([], [key(), "x"]),
        lambda: ["XREAD", "STREAMS", "sx%d" % R.randrange(2), "0"],
        lambda: ["GETEX", key()],
        lambda: ["PING"],
    ])()
    write = lambda: R.choice([
        lambda: ["SET", key(), one("1", "2", "x")],
        lambda: ["SET", key(), one("1", "2", "x")],
        lambda: ["SET", key(), "1", one("PX", "EX"), one("1", "2", "100")],
        lambda: ["MSET", key(), "1", key(), "2"],
        lambda: ["DEL"] + many(key),
        lambda: [one("INCR", "PERSIST", "GETDEL"), key()],
        lambda: ["APPEND", key(), one("", "a")],
        lambda: ["RPUSH", key(), "a", "b"],
        lambda: ["EXPIRE", key(), one("1", "100", "0")],
        lambda: ["RENAME", key(), key()],
        lambda: ["COPY", key(), key(), "REPLACE"],
        lambda: ["MOVE", key(), "1"],
        lambda: ["XADD", "sx%d" % R.randrange(2), "*", "f", "v"],
        lambda: ["EVAL", "redis.call('set', KEYS[2], 1) redis.call('del', KEYS[1]) return redis.call('get', ARGV[1])",
                 "2", scripted(), scripted(), key()],
        lambda: ["SWAPDB", "0", "1"] if R.random() < 0.3 else ["SETRANGE", key(), "0", one("", "x")],
        lambda: [one("FLUSHALL", "FLUSHDB")] if R.random() < 0.3 else ["SET", scripted(), "1"],
    ])()
    steps = R.choice([
        lambda: [(who, ["CLIENT", "TRACKING", case("ON")] + mode())],
        lambda: [(who, ["CLIENT", "TRACKING", "ON"] + mode())],
        lambda: [(who, ["CLIENT", "TRACKING", one("OFF", "OFF", "off", "x")] + one([], mode))],
        lambda: [(who, ["HELLO", one("2", "3", "3", "3")])],
        lambda: [(who, ["CLIENT", "CACHING", one("YES", "NO", "yes", "x")])] + [(who, read())
                                                                                for _ in range(R.randrange(3))],
        lambda: [(who, ["CLIENT", "CACHING", one("YES", "NO")]), (who, ["MULTI"]), (who, read()), (who, read()),
                 (who, ["EXEC"]), (who, read())],
        lambda: [(who, ["CLIENT", "TRACKINGINFO"])],
        lambda: [(who, [one("SUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE"), "__redis__:invalidate"])] if R.random() < 0.5
        else [(who, ["RESET"])],
        lambda: [(who, read()) for _ in range(R.randrange(1, 5))],
        lambda: [(who, read()) for _ in range(R.randrange(1, 5))],
        lambda: [(who, read()) for _ in range(R.randrange(3))] + [(who, write())],
        lambda: [(who, read()), (who, ["MULTI"])] + [(who, one(read, write)) for _ in range(R.randrange(1, 5))]
        + [(who, ["EXEC"])],
        lambda: [(who, ["XREAD", "BLOCK", "0", "STREAMS", "sx%d" % R.randrange(2), "$"])] if R.random() < 0.3 else [],
        lambda: [(0, write())],
        lambda: [(0, write())],
        lambda: [(0, write())],
        lambda: [(0, ["MULTI"])] + [(0, one(read, write)) for _ in range(R.randrange(1, 5))] + [(0, ["EXEC"])],
        lambda: [(who, ["SELECT", one("0", "0", "1")])],
        lambda: [(0, ["CLIENT", "UNBLOCK", "@%d" % other()])],
        lambda: wait(),
    ])()
    return steps + [(0, ["#clock", 0])]


SCRIPTS = ["return redis.call('get', KEYS[1])", "return redis.call('set', KEYS[1], ARGV[1])",
           "return redis.pcall('incr', KEYS[1])", "return redis.call('incr', KEYS[1])",
           "return {redis.call('rpush', KEYS[1], ARGV[1]), redis.call('lrange', KEYS[1], 0, -1)}",
           "redis.call('del', KEYS[1]) return redis.call('exists', KEYS[1], KEYS[2])",
           "for i = 1, 3 do redis.pcall('incrby', KEYS[1], i) redis.pcall('append', KEYS[2], i) end return "
           "redis.call('ttl', KEYS[1])", "return redis.call('expire', KEYS[1], ARGV[1])",
           "local t = redis.pcall('hset', KEYS[1], 'f', ARGV[1]) return {t, redis.pcall('hgetall', KEYS[1])}",
           "return redis.call('publish', 'x', ARGV[1])", "redis.setresp(3) return redis.pcall('hgetall', KEYS[1])",
           "redis.setresp(3) return {redis.pcall('zscore', KEYS[1], 'a')}",
           "redis.call('select', 1) return redis.call('dbsize')",
           "redis.set_repl(redis.REPL_NONE) return redis.call('set', KEYS[1], 'x')",
           "return redis.call('rename', KEYS[1], KEYS[2])", "return redis.pcall('rename', KEYS[1], KEYS[2]).err",
           "return redis.call('blpop', KEYS[1], 0)", "return redis.call('lpop', KEYS[1], 2)",
           "return redis.call('type', KEYS[1])", "return {KEYS[1], ARGV[1], #KEYS, #ARGV}", "return nosuch",
           "redis.call('set', KEYS[1], 'half') error('stopped')",
           "redis.call('set', KEYS[1], 'half') redis.call('lpush', KEYS[1], 1)",
           "return redis.call('zadd', KEYS[1], 'x', 'a')",
           "#!lua flags=no-writes\nreturn redis.pcall('set', KEYS[1], 1)", "#!lua\nreturn redis.call('get', KEYS[1])",
           "#!lua flags=wrong\nreturn 1", "return (", "return redis.call('multi')",
           "return redis.call('flushdb')", "return redis.sha1hex(ARGV[1])",
           "return redis.acl_check_cmd('get', KEYS[1])", "return redis.status_reply(ARGV[1])",
           "return redis.error_reply(ARGV[1])"]
LIBRARIES = ["#!lua name=%s\nredis.register_function('%s', function(keys, args) return redis.call('get', keys[1]) end)",
             "#!lua name=%s\nlocal n = 0 redis.register_function('%s', function() n = n + 1 return n end)",
             "#!lua name=%s\nredis.register_function('%s', function(keys, args) return redis.call('rpush', keys[1], "
             "unpack(args)) end)", "#!lua name=%s\nreturn %s",
             "#!lua name=%s\nredis.register_function{function_name = '%s', callback = function(keys) return "
             "redis.pcall('incr', keys[1]) end, flags = {'no-writes'}}"]


def scripts():
    """Scripts and functions of several clients, on keys where the clients meet, also in transactions."""
    who, anyone, text = other(), lambda: R.randrange(4), R.choice(SCRIPTS)
    digest = lambda: hashlib.sha1(R.choice(SCRIPTS[:12]).encode()).hexdigest()
    library = lambda: one("liba", "libb")
    function = lambda: one("fa", "fb")
    load = lambda: ["FUNCTION", "LOAD"] + one([], ["REPLACE"],
                                              ["REPLACE"]) + [R.choice(LIBRARIES) % (library(), function())]
    run = lambda: R.choice([
        lambda: [one("EVAL", "EVAL", "EVAL_RO"), text, "2", meeting(), meeting(), one("1", "x", "100")],
        lambda: ["EVAL", text, one("2", "1", "0", "3", "-1", "x"), meeting(), meeting(), "1"],
        lambda: [one("EVALSHA", "EVALSHA", "EVALSHA_RO"), digest(), "2", meeting(), meeting(), one("1", "x")],
        lambda: [one("FCALL", "FCALL", "FCALL_RO"), function(), "1", meeting(), one("1", "x")],
        lambda: ["FCALL", one("nosuch", "fa"), one("0", "9", "x")],
    ])()
    return R.choice([
        lambda: [(anyone(), run())],
        lambda: [(anyone(), run())],
        lambda: [(anyone(), run()), (anyone(), plain()), (anyone(), run())],
        lambda: [(anyone(), plain())],
        lambda: [(who, ["MULTI"]), (who, run()), (anyone(), run()), (who, plain()), (who, run()), (who, ["EXEC"])],
        lambda: [(who, ["WATCH"] + many(meeting)), (anyone(), run()), (who, ["MULTI"]), (who, run()), (who, ["EXEC"])],
        lambda: [(anyone(), load())],
        lambda: [(anyone(), ["FUNCTION", "DELETE", library()])],
        lambda: [(anyone(), ["FUNCTION", "FLUSH"] + one([], ["SYNC"], ["x"]))] if R.random() < 0.3
        else [(anyone(), load())],
        lambda: [(anyone(), ["FUNCTION", "LIST", "LIBRARYNAME", library()])],
        lambda: [(anyone(), ["SCRIPT", "LOAD", R.choice(SCRIPTS)])],
        lambda: [(anyone(), ["SCRIPT", "EXISTS", digest(), digest()])],
        lambda: [(anyone(), ["SCRIPT", "FLUSH"] + one([], ["SYNC"], ["x"]))] if R.random() < 0.3
        else [(anyone(), ["SCRIPT", "LOAD", text])],
        lambda: [(anyone(), ["SCRIPT", "SHOW", digest()])],
        lambda: [(anyone(), [one("SCRIPT", "FUNCTION"), "KILL"])],
        lambda: [(who, ["HELLO", one("2", "3")])],
        lambda: wait(),
    ])()


FAMILIES = {"transactions": transactions, "messages": messages, "waiting": waiting,
            "swapping": lambda: waiting(1, True), "connections": connections}
