#!/usr/bin/env python3
"""Random Lua programs on our server and on a genuine one: each reply must be the same, in RESP2 and RESP3, error texts
included.

    tests/interop/lua_programs.py [--seed N] [--count N]

The programs are statements over typed local variables, with functions, closures, coroutines, metatables and commands. A
program ends: loops have bounds that their bodies do not change, and functions call only functions that were defined
before them. Its data stay small: a table gets no element that may be older than itself, so none holds itself or many
times what it held before, and a string that is assigned in a loop is cut. Its reply depends on nothing but the program:
no addresses, no order of a table's keys, no clock, no random numbers.

The programs run in rounds of ROUND. A round begins with the same data, without cached scripts and with a seed of its
own, which a difference names: `--seed THAT --count ROUND` repeats the round. The last lines say how the memory of both
servers grew and how many programs ended in errors.
"""
from common import Error, Server, newest_server, ours
from scripts import NoReply, Pair, R, command, options, prepare, report

ROUND = 500
METHODS = ["upper", "lower", "reverse", "len"]
PATTERNS = ["'%a'", "'%d+'", "'(%w)(%w)'", "'^a'", "'.-b'", "'[abc]*'", "'%s'", "'()'", "'x?'", "'[^%d]'", "'%b()'",
            "'%f[%w]%w+'", "'a$'", "'('", "'[a'", "'%'"]
FORMATS = ["'%d'", "'%5d|'", "'%x'", "'%g'", "'%.3f'", "'%s'", "'%q'", "'%5s|'", "'%-6s|'", "'%c'", "'%i%%'", "'%5.1f'",
           "'%.2s'", "'%y'"]

# What a command answers, or a coroutine, with at most one key in each of its tables.
TOLD = ["local function told(x, y)", "  if type(x) == 'table' and x.map then x = {map = {f = x.map.f}} end",
        "  if type(y) == 'table' and y.err then y = y.err end", "  return type(x) == 'table' and x.err or x, y", "end"]


# An argument of table.sort: numbers and texts by their text.
BY_TEXT = ", function(a, b) return tostring(type(a) == 'table' or a) < tostring(type(b) == 'table' or b) end"


class Programs:
    """`R` is the source of random numbers; `command` gives the arguments of a call of a command."""

    def __init__(self, R, command):
        self.R = R
        self.command = command
        self.fresh = False  # expressions use no tables and functions of the program

    def one(self, *choices):
        choice = self.R.choice(choices)
        return choice() if callable(choice) else choice

    def known(self, kind):
        """A variable of this kind that is in scope and may be used, or None."""
        if self.fresh and kind in ("list", "function"):
            return None
        names = [name for scope in self.scopes for name, its in scope.items() if its == kind]
        return self.R.choice(names) if names else None

    def name(self):
        self.count += 1
        return "v%d" % self.count

    def new(self, kind):
        name = self.name()
        self.scopes[-1][name] = kind
        return name

    def made(self, expression, *arguments):
        """An expression whose value holds no table of the program."""
        before, self.fresh = self.fresh, True
        text = expression(*arguments)
        self.fresh = before
        return text

    # Expressions, by the kind of their value; `depth` is what nesting is left

    def number(self, depth=3):
        if depth == 0 or self.R.random() < 0.3:
            return self.known("number") or self.one(lambda: str(self.R.randrange(-9, 100)), "0", "1", "2", "1.5",
                                                    "-0.25", "1e10", "2^40", "255", "#ARGV")
        less = depth - 1
        return self.one(
            lambda: "(%s %s %s)" % (self.number(less), self.one("+", "-", "*", "/", "%", "^"), self.number(less)),
            lambda: "-(%s)" % self.number(less),
            lambda: "math.%s(%s)" % (self.one("floor", "ceil", "abs", "sqrt"), self.number(less)),
            lambda: "math.%s(%s, %s)" % (self.one("max", "min", "fmod"), self.number(less), self.number(less)),
            lambda: "#%s" % self.string(less),
            lambda: "#(%s)" % self.list(less), lambda: "(%s):byte(%s)" % (self.string(less), self.one("1", "-1", "2")),
            lambda: "(tonumber(%s%s) or %s)" % (self.string(less), self.one("", ", 16", ", 2"), self.number(less)),
            lambda: "bit.%s(%s, %s)" % (self.one("band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror"),
                                        self.number(less), self.number(less)),
            lambda: "bit.%s(%s)" % (self.one("bnot", "tobit", "bswap"), self.number(less)),
            lambda: "select('#', %s, nil)" % self.any(less),
            lambda: "(%s and %s or %s)" % (self.boolean(less), self.number(less), self.number(less)),
            lambda: "(tonumber((%s)[%s]) or 4)" % (self.list(less), self.number(less)))

    def string(self, depth=3):
        if depth == 0 or self.R.random() < 0.3:
            return self.known("string") or self.one("''", "'abc'", "'a b(c)'", "'12'", "'0x1f'", "'1e3'", "'x\\0y'",
                                                    "'\\n'", "'ABba'", "KEYS[1]", "ARGV[1]")
        less = depth - 1
        return self.one(
            lambda: "(%s .. %s)" % (self.string(less), self.one(self.string(less), self.number(less))),
            lambda: "(%s):%s()" % (self.string(less), self.R.choice(METHODS)),
            lambda: "(%s):sub(%s, %s)" % (self.string(less), self.number(less), self.number(less)),
            lambda: "(%s):rep(%s)" % (self.string(less), self.one("0", "1", "3", "-1")),
            lambda: "tostring(%s)" % self.one(self.number(less), self.boolean(less), "nil"),
            lambda: "type(%s)" % self.any(less),
            lambda: "string.format(%s, %s)" % (self.R.choice(FORMATS), self.one(self.number(less), self.string(less))),
            lambda: "string.char(%s)" % ", ".join(str(self.R.randrange(-1 if self.R.random() < 0.02 else 0, 256))
                                                  for _ in range(self.R.randrange(4))),
            lambda: "table.concat(%s, %s)" % (self.list(less), self.string(0)),
            lambda: "((%s):gsub(%s, %s))" % (self.string(less), self.R.choice(PATTERNS),
                                             self.one("'<%0>'", "'%1'", "''", "string.upper", "{a = 'A', b = 1}",
                                                      "'%'")),
            lambda: "((%s):match(%s) or '')" % (self.string(less), self.R.choice(PATTERNS)),
            lambda: "cjson.encode(%s)" % self.list(less),
            lambda: "cmsgpack.pack(%s)" % self.any(less), lambda: "bit.tohex(%s)" % self.number(less),
            lambda: "struct.pack('%s', %s)" % (self.one(">I2", "<i4", "b", ">d", "s", "<hH"),
                                               ", ".join([self.number(less)] * 2)),
            lambda: "redis.sha1hex(%s)" % self.string(less))

    def boolean(self, depth=2):
        if depth == 0:
            return self.one("true", "false")
        less = depth - 1
        return self.one(lambda: "(%s %s %s)" % (self.number(less), self.one("<", "<=", "==", "~=", ">"),
                                                self.number(less)),
                        lambda: "(%s %s %s)" % (self.string(less), self.one("<", "==", ">="), self.string(less)),
                        lambda: "not %s" % self.any(less),
                        lambda: "((%s):find(%s%s) ~= nil)" % (self.string(less), self.R.choice(PATTERNS),
                                                              self.one("", ", 2", ", 1, true")),
                        lambda: "(next(%s) == nil)" % self.list(less),
                        lambda: "rawequal(%s, %s)" % (self.any(less), self.any(less)))

    def list(self, depth=3):
        if depth == 0 or self.R.random() < 0.3:
            return self.known("list") or self.one("{}", "{1, 2, 3}", "{'b', 'a'}", "{nil, 2}" if self.fresh else "KEYS",
                                                  "{nil, 2}")
        less = depth - 1
        return self.one(lambda: "{%s}" % ", ".join(self.any(less) for _ in range(self.R.randrange(4))),
                        lambda: "{unpack(%s)}" % self.list(less),
                        lambda: "{(%s)[%s]}" % (self.list(less), self.number(less)),
                        lambda: "{(%s):find(%s)}" % (self.string(less), self.R.choice(PATTERNS)),
                        lambda: "{pcall(%s)}" % self.callee(less),
                        lambda: "{(%s):byte(1, %s)}" % (self.string(less), self.number(0)),
                        lambda: "cjson.decode(cjson.encode(%s))" % self.list(less),
                        lambda: "{cmsgpack.unpack(cmsgpack.pack(%s))}" % self.any(less),
                        lambda: "{select(%s, %s, %s)}" % (self.one("1", "2", "-1"), self.any(less), self.any(less)),
                        lambda: "{told(redis.pcall(%s))}" % self.command())

    def any(self, depth=2):
        return self.one(lambda: self.number(depth), lambda: self.string(depth), lambda: self.boolean(min(depth, 1)),
                        lambda: self.list(depth), "nil")

    def callee(self, depth):
        name = self.known("function")
        if name and self.R.random() < 0.7:
            return "%s, %s, %s" % (name, self.any(depth), self.any(depth))
        return self.one("error, %s" % self.any(depth), "redis.call, %s" % self.command(),
                        "string.rep, %s, 2" % self.string(depth), "tostring", "assert, %s, 'no'" % self.boolean(1))

    # Statements

    def block(self, depth, loops, function):
        self.scopes.append({})
        lines = [line for _ in range(self.R.randrange(1, 4)) for line in self.statement(depth, loops, function)]
        self.scopes.pop()
        return ["  " + line for line in lines]

    def define(self):
        kind = self.R.choice(["number", "string", "list"])
        text = getattr(self, kind)()
        return ["local %s = %s" % (self.new(kind), text)]

    def function_of(self, depth, loops):
        """A function with two parameters of unknown kinds, which are turned into known ones."""
        name = self.name()
        self.scopes.append({})
        first, second = self.new("number"), self.new("string")
        body = ["  %s, %s = tonumber(%s) or 1, type(%s) == 'string' and %s or ''"
                % (first, second, first, second, second)] + self.block(depth - 1, loops, True)
        body.append("  return %s" % ", ".join(self.any(2) for _ in range(self.R.randrange(1, 3))))
        self.scopes.pop()
        self.scopes[-1][name] = "function"
        return ["local function %s(%s, %s)" % (name, first, second)] + body + ["end"]

    def repeated(self, head, depth, loops, function, names=()):
        self.scopes.append(dict(names))
        lines = [head] + self.block(depth - 1, loops - 1, function)
        if self.R.random() < 0.2:
            lines.append("  if %s then break end" % self.boolean(1))
        self.scopes.pop()
        return lines + ["end"]

    def loop(self, depth, loops, function):
        name = self.name()
        return self.one(
            lambda: self.repeated("for %s = %s do" % (name, self.one("1, 3", "3, 1, -1", "1, 2, 0.5", "1, 0")), depth,
                                  loops, function, {name: "number"}),
            lambda: self.repeated("for %s, x in ipairs({unpack(%s)}) do" % (name, self.list(1)), depth, loops, function,
                                  {name: "number"}),
            lambda: self.repeated("for %s in (%s):gmatch(%s) do" % (name, self.string(1),
                                                                    self.R.choice(["'%a'", "'%d+'", "'[abc]'"])), depth,
                                  loops, function, {name: "string"}),
            lambda: ["local %s = 0" % name] + self.repeated("while %s < 3 do %s = %s + 1" % (name, name, name), depth,
                                                            loops, function),
            lambda: ["local %s = 0" % name, "repeat"] + self.block(depth - 1, loops - 1,
                                                                   function) + ["  %s = %s + 1" % (name, name),
                                                                                "until %s >= 2 or %s"
                                                                                % (name, self.boolean(1))])

    def assign(self):
        kind = self.R.choice(["number", "string", "list"])
        name = self.known(kind)
        if not name:
            return self.define()
        text = self.made(getattr(self, kind))
        return ["%s = %s" % (name, "(%s):sub(1, 100)" % text if kind == "string" else text)]

    def change(self):
        name = self.known("list")
        if not name:
            return self.define()
        return [self.one(lambda: "table.insert(%s, %s)" % (name, self.made(self.any, 1)),
                         lambda: "table.insert(%s, 1, %s)" % (name, self.made(self.any, 1)), "table.remove(%s)" % name,
                         "table.remove(%s, 1)" % name, lambda: "%s[%s] = %s" % (name,
                                                                                self.one("1", "2", "#%s + 1" % name,
                                                                                         "'field'"),
                                                                                self.made(self.any, 1)),
                         lambda: "pcall(table.sort, %s%s)" % (name, self.one("", BY_TEXT)),
                         lambda: "%s.field = (%s.field or 0) == 0 and 1 or 2" % (name, name))]

    def object(self):
        """A table with a metatable, and what it is used for."""
        name, text = self.new("list"), self.number(1)
        return ["local %s = setmetatable(%s, {__index = function(t, k) return %s end, __add = function(a, b) return "
                "%s end, __call = function(self, x) return x end," %
                (name, self.list(1), self.any(1), self.number(1)),
                "  __lt = function(a, b) return %s end, __concat = function(a, b) return %s end, __len = function() "
                "return 7 end})" %
                (self.boolean(1), self.string(1)),
                "local %s = %s" % (self.new("number"), self.one(
                    "%s + %s" % (name, text), "#%s" % name, "%s(%s)" % (name, text),
                    "(tonumber(%s.nothing) or 3)" % name, "(%s < %s and 1 or 2)" % (name, name)))]

    def coroutine(self):
        name = self.name()
        first, second = self.any(1), self.any(1)
        results = self.new("list")
        return ["local %s = coroutine.create(function(a) local b = coroutine.yield(%s, a) %s return b end)" %
                (name, first, self.one("", "error(%s)" % self.string(1), "redis.call(%s)" % self.command())),
                "local %s = {told(coroutine.resume(%s, %s))}" % (results, name, second),
                "%s[#%s + 1] = coroutine.status(%s)" % (results, results, name),
                "%s[#%s + 1] = select(2, told(coroutine.resume(%s, 5)))" % (results, results, name)]

    def statement(self, depth, loops, function):
        k = self.R.randrange(20)
        if k < 6:
            return self.define()
        if k < 9:
            return self.assign()
        if k < 11:
            return self.change()
        if k == 11 and depth:
            return ["if %s then" % self.boolean()] + self.block(depth - 1, loops,
                                                                function) + ["elseif %s then"
                                                                             % self.boolean(1)] + self.block(
depth - 1, loops, function) + ["else"] + self.block(depth - 1, loops, function) + ["end"]
        if k == 12 and depth and loops:
            return self.loop(depth, loops, function)
        if k == 13 and depth and not function:
            return self.function_of(depth, loops)
        if k == 14:
            return self.object()
        if k == 15:
            return self.coroutine()
        if k == 16:
            return ["redis.%s(%s)" % (self.one("call", "pcall", "pcall"), self.command())]
        if k == 17:
            return ["local %s = {pcall(%s)}" % (self.new("list"), self.callee(1))]
        if k == 18 and self.R.random() < 0.2:
            return [self.one("redis.setresp(3)", "redis.setresp(2)", "error(%s)" % self.any(1),
                             "error(%s, %s)" % (self.string(1), self.one("0", "1", "2")), "undefined = 1",
                             "local _ = undefined", "assert(%s)" % self.boolean(1))]
        return ["local %s = {%s}" % (self.new("list"), ", ".join(self.any() for _ in range(3)))]

    def program(self):
        self.scopes, self.count = [{}], 0
        lines = [line for _ in range(self.R.randrange(2, 8)) for line in self.statement(3, 2, False)]
        names = [name for name, kind in self.scopes[0].items() if kind != "function"]
        lines = TOLD + lines
        lines.append("return {%s}" % ", ".join(self.R.sample(names, min(len(names), 6)) + [self.any()]))
        return "\n".join(lines)


def memory(pair):
    """used_memory and used_memory_vm_total, in MiB, of both servers."""
    found = []
    for client in pair.clients:
        fields = dict(line.split(":", 1) for line in client.call("INFO", "memory").decode().splitlines() if ":" in line)
        found.append([int(fields[name]) >> 20 for name in ("used_memory", "used_memory_vm_total")])
    return "%d + %d MiB, genuine %d + %d" % (*found[0], *found[1])


def main():
    theirs, why = newest_server()
    if not theirs:
        report.missing("random Lua programs", why)
        report.finish()
    seed, count = options(20000)
    programs, errors = Programs(R, command), 0
    with Server(ours()) as a, Server(theirs) as b:
        pairs = [Pair((a, b), protocol) for protocol in (2, 3)]
        for begin in range(0, count, ROUND):
            R.seed(seed)
            failed, pair = report.failed, pairs[seed % 2]
            prepare(pair)
            for _ in range(min(ROUND, count - begin)):
                replies = pair.call(R.choice(["EVAL", "EVAL", "EVAL", "EVAL_RO"]), programs.program(), 1, "k1",
                                    str(R.randrange(100)))
                errors += isinstance(replies[1], Error)
                if any(isinstance(reply, NoReply) for reply in replies):
                    print("The seed of this round is %d" % seed)
                    report.finish()
            if report.failed != failed:
                print("The seed of this round is %d" % seed)
            if begin // ROUND % 20 == 0:
                print("%d programs, %d errors, memory %s" % (begin + ROUND, errors, memory(pair)), flush=True)
            seed += 1
    print("%d of %d programs ended in errors" % (errors, count))
    report.finish()


if __name__ == "__main__":
    main()
