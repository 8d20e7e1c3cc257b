"""Families of requests that make little sense: any command with any words, payloads from the other server, raw lines;
and what asks about commands."""
from differential_words import R, binary, case, field, floating, integer, key, many, one, small, value

# Commands whose answer is the same everywhere, whatever they are given. Not here: those that take members by chance or
# a cursor, AUTH, DUMP and SORT (README.md).
COMMANDS = """
    append bitcount bitfield bitfield_ro bitop bitpos copy dbsize decr decrby del echo exists expire expireat
    expiretime geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch
    geosearchstore get getbit getdel getex getrange getset hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen
    hmget hmset hset hsetnx hstrlen hvals incr incrby incrbyfloat keys lcs lindex linsert llen lmove lmpop lpop lpos
    lpush lpushx lrange lrem lset ltrim mget move mset msetnx object persist pexpire pexpireat pexpiretime pfadd
    pfcount pfmerge ping psetex pttl publish rename renamenx restore rpop rpoplpush rpush rpushx sadd scard sdiff
    sdiffstore select set setbit setex setnx setrange sinter sintercard sinterstore sismember smembers smismember
    smove spublish srem strlen substr sunion sunionstore swapdb touch ttl type unlink unwatch zadd zcard zcount
    zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrange
    zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange
    zrevrangebylex zrevrangebyscore zrevrank zscore zunion zunionstore hello client|getname client|setname
    client|id|x config|get|nothing* config|set config|resetstat|x pubsub|numpat pubsub|numsub pubsub|shardnumsub
    object|encoding object|refcount object|freq memory|usage command|count|x exec discard latency|x slowlog|x
""".split()
OPTIONS = """
    NX XX GT LT CH INCR EX PX EXAT PXAT KEEPTTL GET WITHSCORES WITHSCORE WITHVALUES LIMIT COUNT MATCH TYPE BY ASC
    DESC ALPHA STORE LEFT RIGHT BEFORE AFTER MIN MAX WEIGHTS AGGREGATE SUM BYSCORE BYLEX REV REPLACE DB ABSTTL
    IDLETIME FREQ RANK MAXLEN LEN IDX MINMATCHLEN WITHMATCHLEN AND OR XOR NOT BIT BYTE OVERFLOW SAT WRAP FAIL
    FROMMEMBER FROMLONLAT BYRADIUS BYBOX m km WITHCOORD WITHDIST WITHHASH STOREDIST ANY NOVALUES NOSCORES PERSIST
    ENCODING
""".split()


def word():
    return one(key, key, key, integer, small, "0", "1", "2", "-1", floating, field, value,
               lambda: case(R.choice(OPTIONS)), lambda: case(R.choice(OPTIONS)), "(1", "[a", "-", "+",
               lambda: binary(5), "u8", "*")


def anything():
    """Any command, any words: wrong arities, types, options."""
    words = R.choice(COMMANDS).split("|")
    if len(words) > 2:
        return [case(w) for w in words]
    words = [case(words[0])] + words[1:] + [one(key, key, word) if i == 0 else word()
                                            for i in range(one(0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8))]
    return [w[:1000] for w in words]  # errors show longer ones only in part


def typed():
    """Values of all types on a few keys with unusual names, so that commands meet the wrong one."""
    name = lambda: one("", b"\0", b"k\xff\r\n", "k 1", "k" * 300, "k1", "k2", "k3")
    return R.choice([
        lambda: ["SET", name(), value()],
        lambda: ["RPUSH", name()] + many(value),
        lambda: ["SADD", name()] + many(integer),
        lambda: ["SADD", name()] + many(value),
        lambda: ["ZADD", name(), "1", value(), "2", value()],
        lambda: ["HSET", name(), field(), value()],
        lambda: ["PFADD", name()] + many(value),
        lambda: ["SETBIT", name(), small(), "1"],
        lambda: ["GEOADD", name(), "1", "2", value()],
        lambda: ["DEL", name()],
        lambda: ["RENAME", name(), name()],
        lambda: ["COPY", name(), name()] + one([], ["REPLACE"]),
        lambda: ["TYPE", name()],
        lambda: ["OBJECT", "ENCODING", name()],
        lambda: ["EXPIRE", name(), one("100", "-1")],
        lambda: ["KEYS", one("*", "k*", "?", "", "**", "k?", "[k]*", "*\xff*")],
        lambda: ["SCAN", "0", "COUNT", "1000", "MATCH", one("*", "k*", "?", "", "**")],
        lambda: ["EXISTS", name(), name()],
        lambda: [R.choice(COMMANDS).split("|")[0], name()] + [word()[:1000] for _ in range(R.randrange(5))],
        lambda: ["DEBUG", "DIGEST-VALUE", name()],
        lambda: ["MEMORY", "USAGE", "none"] + one([], ["SAMPLES", one("0", "5", "-1", "x")]),
    ])()


def payloads():
    """RESTORE of what either server has dumped: @dump0 is ours, @dump1 the genuine one's. Into keys of which the
    encoding is not compared; see README.md."""
    to = lambda: "sr%d" % R.randrange(4)
    ttl = lambda: one("0", "0", "100000", "-1", "abc", small)
    option = lambda: one([], ["REPLACE"], ["REPLACE"], ["REPLACE", "ABSTTL"], ["IDLETIME", "5"], ["FREQ", "5"],
                         ["FREQ", "256"], ["REPLACE", "FOO"], ["IDLETIME", "-1"])
    return R.choice([
        lambda: ["RESTORE", to(), ttl(), "@dump0:" + key()] + option(),
        lambda: ["RESTORE", to(), ttl(), "@dump1:" + key()] + option(),
        lambda: ["RESTORE", to(), "0", "@dump%d:" % R.randrange(2) + one(key, to), "REPLACE"],
        lambda: ["RESTORE", to(), ttl(), one("", binary(20), "x" * 12)] + option(),
        lambda: ["TYPE", to()],
    ])()


def replaced():
    """Hashes with fields that expire, and commands that put a string in their place."""
    name = lambda: "st%d" % R.randrange(3)
    far = lambda: one("100000", "200000")
    return R.choice([
        lambda: ["HSET", name()] + [word for i in range(R.choice((1, 3, 40, 200))) for word in ("f%d" % i, "v%d" % i)],
        lambda: ["HPEXPIRE", name(), far() + "000", "FIELDS", "2", "f0", "f%d" % R.randrange(40)],
        lambda: ["HPEXPIRE", name(), far() + "000", "FIELDS", "1", "f0"],
        lambda: ["HPERSIST", name(), "FIELDS", "1", "f0"],
        lambda: ["SET", name(), value()] + one([], [], ["KEEPTTL"], ["EX", far()]),
        lambda: ["SETEX", name(), far(), value()],
        lambda: ["PSETEX", name(), far() + "000", value()],
        lambda: ["MSET", name(), value(), name(), value()],
        lambda: ["GETSET", name(), value()],
        lambda: ["BITOP", "OR", name(), name()],
        lambda: ["EXPIRE", name(), far()],
        lambda: [one("RENAME", "COPY"), name(), name()],
        lambda: [one("TYPE", "STRLEN", "HLEN", "DEL"), name()],
    ])()


def lines():
    """Requests as lines."""
    return R.choice([
        lambda: b"PING\r\n",
        lambda: b"SET %s \"a\\x00b\\n\"\r\n" % key().encode(),
        lambda: b"GET %s\r\n" % key().encode(),
        lambda: b"  append   %s   'it\\'s'  \r\n" % key().encode(),
        lambda: b"rpush %s a \"\" ''\n" % key().encode(),
        lambda: b"NOSUCH \"a b\"\r\n",
        lambda: b"ECHO \"\\x41\\t\\\"\"\r\n",
        lambda: b"*1\r\n$4\r\nPING\r\n",
        lambda: b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
    ])()


def where(command):
    """Which keys a request of any family has."""
    words = command()
    if isinstance(words[0], tuple) or isinstance(words, bytes):
        return ["COMMAND", "GETKEYS"]
    return ["COMMAND", case(one("GETKEYS", "GETKEYSANDFLAGS", "GETKEYSANDFLAGS"))] + words


FAMILIES = {"anything": anything, "typed": typed, "payloads": payloads, "lines": lines}
