"""Random words: keys, values, numbers, options. All chance comes from R."""
import random

from differential_servers import EPOCH_MS

R = random.Random()


class clock:
    """What the servers' clock shows by then."""
    ms = EPOCH_MS


LIMITS = ["9223372036854775807", "-9223372036854775808", "9223372036854775808", "9223372036854775806", "-1", "0"]


def one(*choices):
    choice = R.choice(choices)
    return choice() if callable(choice) else choice


def key():
    return "k%d" % R.randrange(12)


def case(word):
    return one(word, word, word.lower(), "".join(R.choice((c.lower(), c.upper())) for c in word))


def integer():
    return str(R.choice([R.randrange(-20, 100), R.randrange(-20, 100), R.randrange(-1 << 63, 1 << 63), one(*LIMITS),
                         one("abc", "", "1.5", " 1", "1 ", "+1", "01", "-0", "1e3", "0x10")]))


def small():
    return str(R.randrange(-12, 40))


def floating():
    return one(integer, "1.5", "-0.25", "1e3", "3.0e2", "1e-5", "inf", "-inf", "nan", "0x1p3", "1e400", "1.", ".5",
               "-.5", "1e5000", "infinity", "abc",
               lambda: repr(R.uniform(-1000, 1000)), lambda: repr(R.uniform(-1, 1) * 10 ** R.randrange(-15, 25)))


def binary(length):
    return bytes(R.randrange(256) for _ in range(length))


def value():
    return one(integer, integer, floating, "", "hello", lambda: "x" * R.choice((44, 45, 63, 64, 65, 100, 1000)),
               lambda: binary(R.randrange(60)),
               lambda: R.choice("abcd") * R.randrange(200), lambda: str(R.randrange(1000)), large)


def large():
    """Now and then one that does not arrive in one piece."""
    return R.choice("abcd") * R.choice((70000, 300000)) if R.random() < 0.1 else ""


def far():
    """A time span in seconds; and times that are no times."""
    return str(one(lambda: R.randrange(1000, 100000), lambda: R.randrange(1000, 100000), lambda: R.randrange(1, 100),
                   integer))


def expiry(keep, *others):
    now = clock.ms // 1000
    kind = R.choice(("EX", "PX", "EXAT", "PXAT", keep, keep))
    if kind == "EX":
        return [case(kind), far()]
    if kind == "PX":
        return [case(kind), far() + "000"]
    if kind == "EXAT":
        return [case(kind), one(str(now + R.randrange(1000, 100000)), str(now + 5000), "1", integer)]
    if kind == "PXAT":
        return [case(kind), one(str((now + R.randrange(1000, 100000)) * 1000), "1", integer)]
    return [case(kind)]


def some(*options):
    """Some of the options in any order, now and then one that does not belong there."""
    words = []
    for option in R.sample(options, R.randrange(len(options) + 1)):
        words += option() if callable(option) else [case(option)]
    if R.random() < 0.03:
        words.insert(R.randrange(len(words) + 1), one("FOO", "NX", "XX", "GET", "KEEPTTL", "PERSIST", "EX", "10"))
    return words


def many(make):
    return [make() for _ in range(R.randrange(1, 5))]


def pairs():
    return [word for _ in range(R.randrange(1, 5)) for word in (key(), value())]


def field():
    return one(lambda: "f%d" % R.randrange(10), lambda: str(R.randrange(12)), lambda: str(R.randrange(-3, 9)), "",
               value)


def repeated(make, *more):
    return [word for _ in range(R.choice((1, 1, 2, 3, 8))) for word in [make()] + [m() for m in more]]


def limits(*names):
    """Makes values change their encoding early, or late."""
    return ["CONFIG", "SET", one(*names), str(R.choice((0, 1, 2, 4, 8, 60, 64, 512)))]
