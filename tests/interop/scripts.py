#!/usr/bin/env python3
"""Scripts and functions on our server and on a genuine one: each reply must be the same, in RESP2 and RESP3, error
texts included.

    tests/interop/scripts.py [--seed N] [--count N]

First the scripts of scripts.txt, then libraries of functions, then random Lua programs: values through cjson, cmsgpack
and struct and back, mutilated texts for their readers, calls of commands, errors. Last, what a script propagates.
"""
import os
import random
import sys

from common import Client, Report, Server, newest_server, ours

HERE = os.path.dirname(os.path.abspath(__file__))
report = Report()
R = random.Random()


def options(count):
    """Reads --seed and --count, of which `count` is the default. Returns both."""
    seed = random.SystemRandom().randrange(1 << 31)
    for option, value in zip(sys.argv[1::2], sys.argv[2::2]):
        if option == "--seed":
            seed = int(value)
        elif option == "--count":
            count = int(value)
    return seed, count


def fixed_scripts():
    with open(os.path.join(HERE, "scripts.txt")) as f:
        for line in f:
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                yield "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))


# Random programs

STRINGS = ["''", "'a'", "'12'", "'-3.5'", "'x y'", "'\\0\\1\\255'", "('ab'):rep(40)", "'k1'", "'[1,2]'", "'%d'",
           "'\\n'", "'nil'"]


def number():
    return R.choice([str(R.randrange(-300, 300)), str(R.randrange(-1 << 40, 1 << 40)), "%r" % R.uniform(-1000, 1000),
                     "0", "1", "2^31", "-2^31", "2^53", "1e15", "1e100", "-1e-5", "1/3", "255", "65536"])


def value(depth=0):
    k = R.randrange(12)
    if k < 3:
        return number()
    if k < 6:
        return R.choice(STRINGS)
    if k == 6:
        return R.choice(["true", "false", "nil", "cjson.null"])
    if depth > 3:
        return number()
    if k < 9:
        return "{" + ", ".join(value(depth + 1) for _ in range(R.randrange(5))) + "}"
    if k < 11:  # one key: a table's order is its hash function's
        return "{" + R.choice(["a", "b", "ok", "err", "map", "set", "double", "[1.5]", "[3]",
                               "[-1]"]) + " = " + value(depth + 1) + "}"
    return R.choice(["{ok = 'fine'}", "{err = 'E what'}", "{double = 1.5}", "{map = {a = 1}}", "{set = {a = true}}",
                     "{big_number = '12'}"])


JSON = ["[", "]", "{", "}", ",", ":", '"a"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\x"', "1", "-1.5e3", "true", "false",
        "null", " ", "01", "nan", "-inf", "tru",
        '"', "\\", "0x1f", "1e999", "+1", "."]
PACKED = [0x00, 0x7f, 0x80, 0x81, 0x90, 0x91, 0x93, 0xa0, 0xa1, 0xa3, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xca, 0xcb, 0xcc,
          0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3,
          0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xff, 0x01, 0x41]
OPTIONS = ["b", "B", "h", "H", "i", "I", "l", "L", "T", "f", "d", "s", "x", "c0", "c1", "c3", "i1", "I2", "i3", "i8",
           "<", ">", "!", "!2", "!4", "!3", " ", "z", "c", "i33"]
COMMANDS = ["'get', KEYS[1]", "'set', KEYS[1], ARGV[1]", "'incr', KEYS[1]", "'incrby', 'n', %s", "'append', 'k2', %s",
            "'rpush', 'l', %s", "'lrange', 'l', 0, -1", "'hset', 'h', 'f', %s", "'hgetall', 'h'",
            "'del', 'l', 'k2', 'n'", "'echo', %s", "'zadd', 'z', 1.5, %s", "'zrange', 'z', 0, -1, 'withscores'",
            "'get'", "'nosuch', %s", "'subscribe', 'c'", "'type', KEYS[1]", "'exists', KEYS[1], 'h'", "%s",
            "'getrange', KEYS[1], 0, %s", "'blpop', 'none', 0", "'zscore', 'z', 'a'", "'object', 'encoding', 'h'",
            "'expire', KEYS[1], %s"]


def quoted(data):
    return "'" + "".join("\\%03d" % byte for byte in data) + "'"


def command():
    text = R.choice(COMMANDS)
    return text.replace("%s", R.choice([number(), R.choice(STRINGS), "ARGV[1]", "nil", "{}", "true"]))


def expression():
    k = R.randrange(13)
    if k == 0:
        return value()
    if k == 1:
        return "cjson.encode(%s)" % value()
    if k == 2:
        return "cjson.decode(cjson.encode(%s))" % value()
    if k == 3:
        return "cjson.decode(%s)" % quoted("".join(R.choice(JSON) for _ in range(R.randrange(1, 9))).encode())
    if k == 4:
        return "cmsgpack.pack(%s)" % ", ".join(value() for _ in range(R.randrange(3)))
    if k == 5:
        return "{cmsgpack.unpack(cmsgpack.pack(%s))}" % value()
    if k == 6:
        return "{cmsgpack.%s}" % R.choice(["unpack(%s)", "unpack_one(%s)", "unpack_one(%s, 1)",
                                           "unpack_limit(%s, 2)"]) % quoted(
bytes(R.choice(PACKED) for _ in range(R.randrange(12))))
    if k == 7:
        layout = "".join(R.choice(OPTIONS) for _ in range(R.randrange(1, 5)))
        return "struct.pack('%s', %s)" % (layout, ", ".join(R.choice([str(R.randrange(-200, 200)), "'abcd'", "2.5"])
                                                            for _ in range(4)))
    if k == 8:
        layout = "".join(R.choice(OPTIONS) for _ in range(R.randrange(1, 5)))
        return "{struct.unpack('%s', %s)}" % (layout, quoted(bytes(R.randrange(256) for _ in range(R.randrange(24)))))
    if k == 9:
        return R.choice(["struct.size('%s')" % "".join(R.choice(OPTIONS) for _ in range(R.randrange(1, 5))),
                         "tostring(%s)" % number(), "tonumber(%s)" % R.choice(STRINGS),
                         "string.format('%%5.2f|%%s', %s, 'x')" % number(), "bit.band(%s, 255)" % R.randrange(1 << 32),
                         "bit.tohex(%s)" % R.randrange(1 << 32),
                         "#%s" % value(), "%s .. %s" % (R.choice(STRINGS), number()),
                         "({%s})[1] == %s" % (value(), value()), "table.concat({1, 'a', 2}, ',')"])
    if k == 10:
        return "redis.pcall(%s)" % command()
    if k == 11:
        return "{pcall(redis.call, %s)}" % command()
    return "redis.call(%s)" % command()


def program():
    lines = []
    if R.randrange(5) == 0:
        lines.append("redis.setresp(3)")
    for _ in range(R.randrange(3)):
        k = R.randrange(6)
        if k == 0:
            lines.append("local t = %s for i = 1, 3 do redis.call(%s) end" % (value(), command()))
        elif k == 1:
            lines.append("local ok, e = pcall(function() return %s end) if not ok then return {e} end" % expression())
        elif k == 2:
            lines.append("if redis.call('exists', KEYS[1]) == 1 then return %s end" % expression())
        elif k == 3:
            lines.append(R.choice(["error(%s)" % value(), "x = 1", "redis.x = 1", "local u = nosuch", "ARGV[1] = 'new'",
                                   "setmetatable(KEYS, {})"]))
        else:
            lines.append("local v = %s" % expression())
    lines.append("return %s" % expression())
    return "\n".join(lines)


LIBRARIES = [
    ["redis.register_function('f', function(k, a) return {k, a} end)", "f"],
    ["redis.register_function{function_name = 'f', callback = function() return redis.call('get', 'k1') end, flags = "
     "{'no-writes'}}", "f"],
    ["redis.register_function{function_name = 'f', callback = function() return redis.call('set', 'k1', 1) end, flags "
     "= {'no-writes'}}", "f"],
    ["redis.register_function('f', function() return nosuch end)", "f"],
    ["redis.register_function('f', function() error('x') end)", "f"],
    ["redis.register_function('f', function() return redis.pcall('nosuch') end)", "f"],
    ["redis.register_function('f', function() y = 1 end)", "f"],
    ["local n = 0 redis.register_function('f', function() n = n + 1 return n end)", "f"],
    ["redis.register_function('f', function() return KEYS end)", "f"],
    ["redis.register_function('f', function() redis.register_function('g', function() end) end)", "f"],
    ["local x = pairs", "f"], ["redis.call('get', 'k')", "f"],
    ["server.register_function('F', function() return type(redis.call) end)", "f"],
    ["redis.register_function('f', 1)", "f"], ["redis.register_function{}", "f"],
    ["redis.register_function('f', function() return redis.REPL_ALL end)", "f"], ["error('x')", "f"],
    ["error({err = 'E x'})", "f"],
    ["return 1", "f"], ["local t = redis redis.register_function('f', function() return t.call end)", "f"], ["(", "f"]]


class NoReply(str):
    """Why there is no reply. Two of them are not the same reply."""


class Pair:
    """The same requests to both servers."""

    def __init__(self, servers, protocol):
        self.servers = servers
        self.clients = [Client(server.port, timeout=120) for server in servers]
        self.call("HELLO", protocol, quiet=True)

    def call(self, *words, quiet=False):
        replies = []
        for client in self.clients:
            try:
                replies.append(client.call(*words))
            except OSError as e:
                replies.append(NoReply(e))
        if not quiet:
            name = " ".join(map(str, words))
            same = repr(replies[0]) == repr(replies[1]) and type(replies[0]) == type(replies[1])
            same = same and not any(isinstance(r, NoReply) for r in replies)
            report.check(name[:600], same, "ours %.600r, genuine %.600r" % tuple(replies))
        return replies


def prepare(pair):
    for words in (["FLUSHALL"], ["SCRIPT", "FLUSH"], ["FUNCTION", "FLUSH"], ["HSET", "h", "a", "1"], ["SADD", "s", "m"],
                  ["ZADD", "z", "1.5", "m"], ["SET", "a", "1.0"]):
        pair.call(*words, quiet=True)


def compare_functions(pair):
    for code, function in LIBRARIES:
        pair.call("FUNCTION", "FLUSH")
        pair.call("FUNCTION", "LOAD", "#!lua name=lib\n" + code)
        for words in (["FCALL", function, 1, "k1", "a1"], ["FCALL_RO", function, 0], ["FCALL", function, 0],
                      ["FUNCTION", "LIST", "WITHCODE"], ["FUNCTION", "STATS"],
                      ["FUNCTION", "DELETE", "lib"]):
            pair.call(*words)
    pair.call("FUNCTION", "LOAD", "#!lua name=lib\n" + LIBRARIES[0][0])
    dumps = pair.call("FUNCTION", "DUMP", quiet=True)  # the compressors differ
    pair.call("FUNCTION", "RESTORE", dumps[1])
    pair.call("FUNCTION", "RESTORE", dumps[0], "REPLACE")
    pair.call("FUNCTION", "FLUSH")
    pair.call("FUNCTION", "RESTORE", dumps[0])
    pair.call("FCALL", "f", 1, "k", "v")
    for _ in range(200):
        damaged = bytearray(dumps[1])
        damaged[R.randrange(len(damaged))] ^= 1 << R.randrange(8)
        pair.call("FUNCTION", "RESTORE", bytes(damaged[:R.randrange(1, len(damaged) + 1)]), "FLUSH")


def main():
    theirs, why = newest_server()
    if not theirs:
        report.missing("comparison of scripts", why)
        report.finish()
    seed, count = options(3000)
    R.seed(seed)
    print("seed %d" % seed)
    with Server(ours()) as a, Server(theirs) as b:
        for protocol in (2, 3):
            pair = Pair((a, b), protocol)
            prepare(pair)
            for script in fixed_scripts():
                pair.call("EVAL", script, 1, "k1", "a1", "a2")
                if not (a.alive() and b.alive()):
                    report.check("both servers live", False, script)
                    report.finish()
            compare_functions(pair)
            prepare(pair)
            for _ in range(count // 2):
                pair.call(R.choice(["EVAL", "EVAL", "EVAL", "EVAL_RO"]), program(), 1, "k1", str(R.randrange(100)))
            pair.call("DBSIZE")
            for key in sorted(pair.call("KEYS", "*", quiet=True)[0]):
                kind = pair.call("TYPE", key)[0]
                reads = {"string": ["GET", key], "list": ["LRANGE", key, 0, -1], "hash": ["HGETALL", key],
                         "zset": ["ZRANGE", key, 0, -1, "WITHSCORES"]}
                if kind in reads:
                    pair.call(*reads[kind])
    report.finish()


if __name__ == "__main__":
    main()
