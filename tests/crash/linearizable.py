"""linearizable.py: decides whether the history of an object is linearizable.

    python3 tests/crash/linearizable.py          the checker's own tests
    python3 tests/crash/linearizable.py FILE     a history that a failure has left

An operation has a name, an argument, a result, and the times of its request and its reply by the monotonic clock. The
end of an operation without a reply is INFINITE: it may take effect at any later moment, or never. A history is
linearizable if each operation with a reply can be given a moment between its two times, and some of the others a moment
after their requests, so that the operations in the order of these moments are what one server without faults would do.

The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with Lowe's memory of the
configurations that were tried (Testing for Linearizability, 2017): a configuration is the set of operations that have
taken effect and the state that they have left. It is exponential in the number of operations without a reply, so each
object lives for one round of a test, and a search that would take too long says UNDECIDED.

What else a history tells:

    a sighting     a value was seen at a replica, in a message, or at a server that it was copied to. It need not be the
                   newest one, but its write has taken effect before. So the sighting is an end of the write
    a prefix       a replica shows a part of the data that only grows: a list is a prefix of the last one, and what a
                   replica has shown it shows again
    nil of BLPOP   the queue was empty when the time was over. It is an observation not of the whole wait, but of its
                   end: from the request's time plus the timeout on. An element that was acknowledged before and not
                   taken would have been delivered
    order          the messages of one connection arrive in the order in which it sent them"""
import collections
import json
import re
import sys
import threading
import time

INFINITE, UNKNOWN, BUDGET = float("inf"), "?", 60000
IMPOSSIBLE = object()
EARLY = 0.02  # a timer of the server may be early by so much, and the two clocks are read at different moments

Operation = collections.namedtuple("Operation", "name argument result begin end server")


# --- What one server without faults does: the state after an operation, or IMPOSSIBLE.

def step_register(state, op):
    if op.name == "get":
        return state if state == op.result else IMPOSSIBLE
    if op.name == "getset" and op.result not in (UNKNOWN, state):
        return IMPOSSIBLE
    if op.name == "cas":  # (expected, new)
        return op.argument[1] if state == op.argument[0] else IMPOSSIBLE
    return op.argument


def step_list(state, op):
    if op.name == "push":
        return state + (op.argument,) if op.result in (UNKNOWN, len(state) + 1) else IMPOSSIBLE
    if op.name == "length":
        return state if op.result == len(state) else IMPOSSIBLE
    if op.name == "pop":
        if op.result is None:
            return IMPOSSIBLE if state else state
        if not state or op.result not in (UNKNOWN, state[0]) or (op.argument and state[0] not in op.argument):
            return IMPOSSIBLE
        return state[1:]
    return state if state == op.result else IMPOSSIBLE  # range


def step_counter(state, op):
    if op.name == "incr":
        return state + 1 if op.result in (UNKNOWN, state + 1) else IMPOSSIBLE
    if op.name == "at least":
        return state if state >= op.result else IMPOSSIBLE
    return state if state == op.result else IMPOSSIBLE  # get


MODELS = {"cell": (step_register, None), "list": (step_list, ()), "queue": (step_list, ()), "count": (step_counter, 0)}
READS = {"get", "range", "length", "at least"}
SHOWS = {"get", "getset", "pop", "range"}
ALIKE = {"incr", "pop"}  # operations without a reply that differ in their times only


def kind_of(name):
    return re.sub(r"^\{.*\}", "", name).partition(":")[0]


# --- The search

def candidates(done, taken, base):
    """The operations that may come next: those which have begun before the first end of one that has not come yet."""
    first_end, found, at = INFINITE, [], base
    while at < len(done) and done[at].begin <= first_end:
        if not taken >> (at - base) & 1:
            first_end = min(first_end, done[at].end)
            found.append(at)
        at += 1
    return sorted((at for at in found if done[at].begin <= first_end), key=lambda at: done[at].end), first_end


def open_ones(pending, used, first_end):
    """Of those without a reply. Of some that are alike, the one that began first can stand for all."""
    seen = set()
    for number, op in enumerate(pending):
        if op.begin > first_end:
            return
        if used >> number & 1 or (op.name in ALIKE and op.name in seen):
            continue
        seen.add(op.name)
        yield number


def search(operations, step, state, budget=BUDGET):
    """None: linearizable. Otherwise a text."""
    done = sorted((op for op in operations if op.end != INFINITE), key=lambda op: op.begin)
    pending = sorted((op for op in operations if op.end == INFINITE), key=lambda op: op.begin)
    known, stack, path, deepest = set(), [], [], (-1, None, None)

    def successors(base, taken, used, state):
        found, first_end = candidates(done, taken, base)
        for at in found:
            after = step(state, done[at])
            if after is IMPOSSIBLE:
                continue
            at_base, mask = base, taken | 1 << (at - base)
            while mask & 1:
                at_base, mask = at_base + 1, mask >> 1
            yield (at_base, mask, used, after), done[at]
        for number in open_ones(pending, used, first_end):
            after = step(state, pending[number])
            if after is not IMPOSSIBLE:
                yield (base, taken, used | 1 << number, after), pending[number]

    now, op = (0, 0, 0, state), None
    while True:
        if now not in known:
            known.add(now)
            if now[0] == len(done):
                return None
            if len(known) > budget:
                return "UNDECIDED: too many operations without a reply"
            depth = now[0] + bin(now[1]).count("1")
            if depth > deepest[0]:
                deepest = depth, now, path[-2:] + [op]
            stack.append(successors(*now))
            path.append(op)
        while stack and (found := next(stack[-1], None)) is None:
            stack.pop()
            path.pop()
        if not stack:
            break
        now, op = found
    base, taken, _, state = deepest[1]
    stuck = [show(done[at]) for at in candidates(done, taken, base)[0]]
    return f"after {deepest[0]} of {len(done)} operations, " + "; ".join(map(show, filter(None, deepest[2]))) + \
        f", the value is {brief(state)}, and impossible are " + "; ".join(stuck[:4])


def brief(value):
    text = " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    text = text if len(text) < 100 else "… " + text[-96:]
    return f"({text})" if isinstance(value, (tuple, list)) else text


def show(op):
    return f"{op.name}{'' if op.argument is None or op.name == 'pop' else ' ' + brief(op.argument)} -> " \
           f"{brief(op.result)} at server {op.server} from {op.begin:.3f} to {op.end:.3f}"


# --- Objects

class Object:
    """The history of one key."""

    def __init__(self, name):
        self.name, self.kind = name, kind_of(name)
        self.operations, self.sightings, self.shown = [], [], []

    def written(self):
        """Who wrote a value: value to index of the operation."""
        return {op.argument[1] if op.name == "cas" else op.argument: at for at, op in enumerate(self.operations)
                if op.name in ("set", "getset", "cas", "push")}

    def violations(self):
        found = []
        operations = list(self.operations)
        written, seen = self.written(), set()
        for op in operations:
            if op.name == "cas":
                seen.add(op.argument[0])
            if op.name in SHOWS and op.result not in (None, UNKNOWN) and self.kind != "count":
                seen.update(op.result if op.name == "range" else [op.result])
        for value, moment, where in self.sightings:
            if value not in written:
                found.append(f"{where} showed {value}, which nobody wrote, or whose write was refused")
                continue
            op = operations[written[value]]
            if moment < op.begin:
                found.append(f"{where} showed {value} before it was written")
            if moment < op.end:
                operations[written[value]] = op._replace(end=moment, server=f"{op.server}, shown by {where},")
            seen.add(value)
        found += [f"{show(op)}: nobody wrote {value}" for op in operations if op.result not in (None, UNKNOWN)
                  and op.name in ("get", "pop", "getset") and self.kind != "count"
                  for value in [op.result] if value not in written]
        operations = [op for op in operations if not self.without_effect(op, seen)]
        if self.kind == "queue":
            operations, missing = self.taken_without_reply(operations)
            found += missing
        text = search(operations, *MODELS[self.kind])
        if text:
            found.append(text)
        return [f"{self.name}: {text}" for text in found + self.shrunk()]

    @staticmethod
    def without_effect(op, seen):
        """A write without a reply whose value nobody saw may have never happened."""
        if op.end != INFINITE or op.name in ("incr", "pop"):
            return op.end == INFINITE and op.name in READS
        return (op.argument[1] if op.name == "cas" else op.argument) not in seen

    def taken_without_reply(self, operations):
        """Of a queue: what was not taken with a reply and is not there in the end can only have been taken by
        operations without a reply, and they can have taken nothing else. Lengths are not looked at: they may count
        elements that nobody saw."""
        operations = [op._replace(result=UNKNOWN) if op.name == "push" else op for op in operations]
        last, taken = self.last(), {op.result for op in operations if op.name == "pop"}
        if last is None:
            return operations, []
        missing = [op for op in operations if op.name == "push" and op.argument not in taken | set(last)]
        lost = frozenset(op.argument for op in missing)
        takers = [op for op in operations if op.name == "pop" and op.end == INFINITE]
        found = [] if len(takers) >= len(lost) else \
            [f"{len(lost)} elements are gone, and {len(takers)} can have been taken: " +
             "; ".join(map(show, missing[:5]))]
        return [op._replace(argument=lost) if op.name == "pop" and op.end == INFINITE else op for op in operations
                if lost or op.name != "pop" or op.end != INFINITE], found

    def last(self):
        """The last content of a list."""
        reads = [op for op in self.operations if op.name == "range"]
        return max(reads, key=lambda op: op.begin).result if reads else None

    def shrunk(self):
        """What replicas have shown of data that only grow: (server, value, begin, end)."""
        found, by_server, last = [], {}, self.last()
        for server, value, begin, end in self.shown:
            if self.kind == "list" and last is not None and tuple(value) != last[:len(value)]:
                found.append(f"replica {server} showed {brief(value)} at {end:.3f}; in the end it is {brief(last)}")
            by_server.setdefault(server, []).append((begin, end, len(value) if self.kind == "list" else value))
        for server, reads in by_server.items():
            ends, at, highest, moment = sorted(reads, key=lambda read: read[1]), 0, -1, 0
            for begin, end, size in sorted(reads):
                while ends[at][1] < begin:
                    if ends[at][2] > highest:
                        highest, moment = ends[at][2], ends[at][1]
                    at += 1
                if size < highest:
                    found.append(f"replica {server} showed {highest} until {moment:.3f} and {size} at {end:.3f}")
                    break
        return found


class Histories:
    """The objects of a round, and the messages."""

    def __init__(self):
        self.lock, self.objects, self.under_way, self.tokens = threading.Lock(), {}, {}, 0
        self.messages, self.total = {}, 0
        self.untrue = set()  # values that a message names although their write was refused: it shows nothing

    def object(self, name):
        return self.objects.setdefault(name, Object(name))

    def begin(self, server, name, operation, argument=None):
        """A request is going to be sent. The caller ends the operation with one of the three calls that follow."""
        with self.lock:
            self.tokens += 1
            self.under_way[self.tokens] = (name, operation, argument, time.monotonic(), server)
            return self.tokens

    def end(self, token, result, not_before=0):
        """The reply. `not_before`: so many seconds after its request it cannot have taken effect yet."""
        end = time.monotonic()
        with self.lock:
            if token not in self.under_way:
                return  # after the round
            name, operation, argument, begin, server = self.under_way.pop(token)
            begin = min(begin + max(not_before - EARLY, 0), end)
            self.object(name).operations.append(Operation(operation, argument, result, begin, end, server))
            self.total += 1

    def refused(self, token):
        """The operation was not executed, and never will be."""
        with self.lock:
            self.under_way.pop(token, None)

    def lost(self, token):
        """There will be no reply."""
        with self.lock:
            if token in self.under_way:
                self.give_up(self.under_way.pop(token))

    def give_up(self, request):
        name, operation, argument, begin, server = request
        if operation not in READS:
            self.object(name).operations.append(Operation(operation, argument, UNKNOWN, begin, INFINITE, server))

    def shown(self, token, value):
        """The reply of a replica, which may be old: a tuple for a list, a number for a counter, a value for others."""
        end = time.monotonic()
        with self.lock:
            if token not in self.under_way:
                return
            name, _, _, begin, server = self.under_way.pop(token)
            one = self.object(name)
            if one.kind == "count":
                one.operations.append(Operation("at least", None, value, end, end, server))
            else:
                values = value if isinstance(value, tuple) else [] if value is None else [value]
                one.sightings += [(seen, end, f"server {server}") for seen in values]
            if one.kind in ("list", "count"):
                one.shown.append((server, value, begin, end))

    def seen(self, name, value, where):
        now = time.monotonic()
        with self.lock:
            self.object(name).sightings.append((value, now, where))

    def message(self, subscriber, publisher, number):
        """Message `number` of a publisher's connection at a subscriber's connection."""
        with self.lock:
            self.messages.setdefault((subscriber, publisher), []).append(number)

    def violations(self):
        with self.lock:
            for token in list(self.under_way):
                self.give_up(self.under_way.pop(token))
            for one in self.objects.values():
                one.sightings = [sighting for sighting in one.sightings if sighting[0] not in self.untrue]
            found = [text for _, one in sorted(self.objects.items()) for text in one.violations()]
            for (subscriber, publisher), numbers in sorted(self.messages.items()):
                if any(after <= before for before, after in zip(numbers, numbers[1:])):
                    found.append(f"{subscriber} got the messages {numbers} of {publisher}: not in their order")
            return found

    def save(self, path):
        with self.lock, open(path, "w", encoding="ascii") as file:
            json.dump({name: [one.operations, one.sightings, one.shown] for name, one in self.objects.items()}, file)

    @staticmethod
    def load(path):
        histories = Histories()
        with open(path, encoding="ascii") as file:
            saved = json.load(file)

        def frozen(value):
            return tuple(value) if isinstance(value, list) else value
        for name, (operations, sightings, shown) in saved.items():
            one = histories.object(name)
            one.operations = [Operation(*map(frozen, op)) for op in operations]
            one.sightings = [tuple(sighting) for sighting in sightings]
            one.shown = [tuple(map(frozen, read)) for read in shown]
        return histories


# --- The checker must find what is wrong, and nothing else.

def history(name, *operations, sightings=(), shown=()):
    one = Object(name)
    one.operations = [Operation(*op, 0) for op in operations]
    one.sightings, one.shown = list(sightings), list(shown)
    return one


def lost(name, argument, begin):
    return (name, argument, UNKNOWN, begin, INFINITE)


FINE = {
    "concurrent writes": history("cell:0", ("set", "a", "OK", 0, 3), ("set", "b", "OK", 2, 5), ("get", None, "b", 3, 4),
                                 ("get", None, "a", 2, 6), lost("set", "c", 3), ("get", None, None, 0, 1)),
    "a write without a reply, late": history("cell:0", lost("set", "a", 0), ("get", None, None, 1, 2),
                                             ("set", "b", "OK", 3, 4), ("get", None, "a", 5, 6)),
    "exchanges": history("cell:0", ("set", "a", "OK", 0, 1), ("getset", "b", "a", 2, 9),
                         ("cas", ("b", "c"), "OK", 3, 8), ("get", None, "c", 4, 5)),
    "a copy without a reply": history("cell:0", ("set", "a", "OK", 0, 1), lost("cas", ("a", "b"), 2),
                                      ("getset", "c", "b", 3, 4)),
    "appends": history("list:0", ("push", "a", 1, 0, 5), ("push", "b", 2, 0, 5), lost("push", "c", 0),
                       ("range", None, ("a", "b", "c"), 6, 7), lost("push", "d", 0)),
    "increments": history("count:0", ("incr", None, 1, 0, 1), lost("incr", None, 0), lost("incr", None, 0),
                          ("get", None, 3, 2, 3), ("incr", None, 4, 2, 9), ("at least", None, 2, 9, 9)),
    "an empty queue": history("queue:0", ("pop", None, None, 0, 1), ("push", "a", 1, 2, 4), ("pop", None, "a", 2, 5),
                              ("pop", None, None, 4, 6), ("push", "b", 1, 5, 7), ("range", None, ("b",), 8, 9)),
    "taken without a reply": history("queue:0", ("push", "a", 1, 0, 1), lost("pop", None, 0), ("pop", None, None, 3, 4),
                                     lost("pop", None, 0), ("push", "b", 1, 5, 6), ("pop", None, "b", 7, 8)),
    "an old replica": history("list:0", ("push", "a", 1, 0, 1), ("push", "b", 2, 2, 3),
                              ("range", None, ("a", "b"), 9, 9), sightings=[("a", 4, "server 1")],
                              shown=[(1, ("a",), 3, 4), (1, ("a", "b"), 5, 6), (2, (), 6, 7), (1, ("a",), 3, 7)]),
    "many without a reply": history("list:0", *[lost("push", str(n), n) for n in range(40)],
                                    ("range", None, tuple(str(n) for n in range(0, 40, 2)), 50, 51)),
    "increments without replies": history("count:0", *[lost("incr", None, n) for n in range(40)],
                                          *[("get", None, n, 50 + n, 50.5 + n) for n in range(30)]),
}
WRONG = {
    # Row by row what synchronous replication must not do.
    "1: a read at a replaced primary, after a late acknowledgement": history(
        "cell:0", ("set", "first", "OK", 0, 1), ("set", "old", "OK", 2, 9), ("set", "new", "OK", 5, 6),
        ("get", None, "old", 7, 9), ("get", None, "new", 10, 11)),
    "1: the same with a list": history("list:0", ("push", "a", 1, 0, 1), ("push", "b", 2, 5, 6),
                                       ("range", None, ("a",), 7, 9)),
    "2: the same with a counter": history("count:0", ("incr", None, 1, 0, 1), ("incr", None, 2, 5, 6),
                                          ("get", None, 1, 7, 9)),
    "3: nil at a timeout, though an acknowledged element was there": history(
        "queue:0", ("push", "a", 1, 0, 1), ("pop", None, None, 2, 3), ("range", None, ("a",), 4, 5)),
    "3: the same, and the element is taken later": history(
        "queue:0", ("push", "a", 1, 0, 1), ("pop", None, None, 2, 4), ("pop", None, "a", 5, 6)),
    "4: an acknowledged write is lost": history("cell:0", ("set", "old", "OK", 0, 1), ("set", "new", "OK", 2, 3),
                                                ("get", None, "old", 4, 5)),
    "4: the same with a list": history("list:0", ("push", "a", 1, 0, 1), ("push", "b", 2, 2, 3), ("push", "c", 2, 4, 5),
                                       ("range", None, ("a", "c"), 6, 7)),
    "5: a message shows a write that is lost": history(
        "list:0", ("push", "a", 1, 0, 1), lost("push", "b", 2), ("range", None, ("a",), 5, 6),
        sightings=[("b", 3, "a message at server 1")]),
    "6: another server was given a write that is lost": history(
        "cell:0", ("set", "a", "OK", 0, 1), lost("set", "b", 2), ("get", None, "a", 5, 6),
        sightings=[("b", 3, "the server outside")]),
    "6: the same with an increment": history("count:0", ("incr", None, 1, 0, 1), lost("incr", None, 2),
                                             ("at least", None, 2, 3, 3), ("get", None, 1, 4, 5)),
    "7: a replica has forgotten": history("list:0", ("push", "a", 1, 0, 1), ("range", None, ("a",), 9, 9),
                                          shown=[(1, ("a",), 2, 3), (1, (), 4, 5)]),
    "7: the same with a counter": history("count:0", shown=[(1, 3, 2, 3), (2, 1, 4, 5), (1, 2, 4, 5)]),
    # What else can be wrong.
    "an increment that counts twice": history("count:0", ("incr", None, 1, 0, 1), ("incr", None, 1, 2, 3)),
    "a value from nowhere": history("cell:0", ("get", None, "x", 0, 1)),
    "a value before it was written": history("cell:0", ("get", None, "a", 0, 1), ("set", "a", "OK", 2, 3)),
    "two exchanges of one value": history("cell:0", ("set", "a", "OK", 0, 1), ("getset", "b", "a", 2, 9),
                                          ("getset", "c", "a", 2, 9)),
    "a comparison that was wrong": history("cell:0", ("set", "a", "OK", 0, 1), ("set", "b", "OK", 2, 3),
                                           ("cas", ("a", "c"), "OK", 4, 5)),
    "appends in two orders": history("list:0", ("push", "a", 1, 0, 9), ("push", "b", 2, 0, 9),
                                     ("range", None, ("b", "a"), 10, 11)),
    "an element taken twice": history("queue:0", ("push", "a", 1, 0, 1), ("pop", None, "a", 2, 9),
                                      ("pop", None, "a", 2, 9)),
    "an element taken out of order": history("queue:0", ("push", "a", 1, 0, 1), ("push", "b", 2, 2, 3),
                                             ("pop", None, "b", 4, 5), ("pop", None, "a", 6, 7)),
    "an element that came back": history("queue:0", ("push", "a", 1, 0, 1), ("pop", None, "a", 2, 3),
                                         ("range", None, ("a",), 4, 5)),
    "a replica with another order": history("list:0", ("push", "a", 1, 0, 9), ("push", "b", 2, 0, 9),
                                            ("range", None, ("a", "b"), 10, 11), shown=[(1, ("b",), 3, 4)]),
    "taken without a reply, once": history("queue:0", ("push", "a", 1, 0, 1), ("push", "b", 2, 0, 1),
                                           lost("pop", None, 0), ("pop", None, None, 3, 4)),
    "more without a reply than there were": history("count:0", *[lost("incr", None, n) for n in range(12)],
                                                    ("get", None, 13, 20, 21)),
}


def self_test():
    for name, one in FINE.items():
        assert not one.violations(), (name, one.violations())
    for name, one in WRONG.items():
        found = one.violations()
        assert found and not any("UNDECIDED" in text for text in found), (name, found)
    histories = Histories()
    token = histories.begin(0, "queue:0", "pop")
    histories.end(histories.begin(0, "queue:0", "push", "a"), 1)
    histories.lost(token)  # may have taken it
    histories.end(histories.begin(0, "queue:0", "pop"), None, not_before=0)
    for number in (1, 2, 5):
        histories.message("a subscriber", "a publisher", number)
    assert not histories.violations(), histories.violations()
    histories.message("a subscriber", "a publisher", 4)
    assert histories.violations()
    # A wait that begins before an element and ends after it was empty only at its beginning.
    token, histories = None, Histories()
    token = histories.begin(0, "queue:0", "pop")
    histories.end(histories.begin(0, "queue:0", "push", "a"), 1)
    time.sleep(2 * EARLY)
    histories.end(token, None, not_before=2 * EARLY)
    assert histories.violations()


def main():
    self_test()
    if len(sys.argv) > 1:
        found = Histories.load(sys.argv[1]).violations()
        print("\n".join(found) or "linearizable")
        return int(bool(found))
    print(f"{len(FINE) + len(WRONG) + 3} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
