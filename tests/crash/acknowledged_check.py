"""acknowledged_check.py: the history of clients of tests/crash/acknowledged, and the check that it is linearizable.

Each write sets a key to a value that is never used again. The algorithm of Gibbons and Korach (Testing Shared Memories,
1997) then decides in O(n log n). A value has a zone, from the first end of an operation with this value to the last
beginning of one. It is a forward zone if the end comes first, otherwise a backward zone. The history of a key is
linearizable if and only if no read ends before its write begins, no two forward zones overlap, and no forward zone
contains a backward zone. A write without a reply counts if its value was seen.

A replica may answer with old data, and a message may arrive late, but neither may show a write that is later lost. Such
a sighting says that the write took effect before: it counts as an end of the write.

The values of one counter (INCR) grow: a reply that arrived before another request was sent is the smaller one."""
import bisect
import json
import threading
import time

INFINITE = float("inf")
WRITE, READ, SEEN = "write", "read", "seen"


class History:
    """Operations on each key: (kind, value, begin, end). end INFINITE: no reply. value None: the key did not exist."""

    def __init__(self):
        self.lock, self.keys, self.counts, self.total = threading.Lock(), {}, [], {}
        self.under_way = {}  # writes: value to (key, begin)

    def begin(self, key, value):
        with self.lock:
            now = time.monotonic()
            self.under_way[value] = (key, now)
            return now

    def refused(self, value):
        """The server has not executed this write."""
        with self.lock:
            del self.under_way[value]

    def add(self, kind, key, value, begin, end):
        with self.lock:
            if kind == WRITE:
                self.under_way.pop(value)
            self.keys.setdefault(key, []).append((kind, value, begin, end))
            if end != INFINITE:
                self.total[kind] = self.total.get(kind, 0) + 1

    def counted(self, reply, begin, end):
        with self.lock:
            self.counts.append((reply, begin, end))

    def so_far(self):
        """The operations on each key. Writes under way count as writes without a reply."""
        with self.lock:
            keys = {key: list(operations) for key, operations in self.keys.items()}
            for value, (key, begin) in self.under_way.items():
                keys.setdefault(key, []).append((WRITE, value, begin, INFINITE))
            return keys, list(self.counts)

    def violations(self):
        keys, counts = self.so_far()
        return [f"{key}: {text}" for key, operations in sorted(keys.items()) for text in violations(operations)] + \
            count_violations(counts)

    def save(self, path):
        keys, counts = self.so_far()
        with open(path, "w", encoding="ascii") as file:
            json.dump({"keys": keys, "counts": counts}, file)

    @staticmethod
    def load(path):
        history = History()
        with open(path, encoding="ascii") as file:
            saved = json.load(file)
        history.keys, history.counts = saved["keys"], saved["counts"]
        return history


class Cluster:
    """The operations with one value."""

    def __init__(self):
        self.write = None
        self.first_end, self.last_begin, self.first_seen, self.read = INFINITE, -INFINITE, INFINITE, False


def clusters_of(operations):
    clusters = {}
    for kind, value, begin, end in operations:
        cluster = clusters.setdefault(value, Cluster())
        cluster.first_end = min(cluster.first_end, end)
        if kind == WRITE:
            cluster.write = (begin, end)
        else:
            cluster.read, cluster.first_seen = True, min(cluster.first_seen, end)
        if kind != SEEN:
            cluster.last_begin = max(cluster.last_begin, begin)
    return clusters


def violations(operations):
    """The text of each violation in the history of one key."""
    forward, backward, found = [], [], []
    for value, cluster in clusters_of(operations).items():
        if value is None:
            cluster.first_end = -INFINITE  # written before everything
            if cluster.last_begin == -INFINITE:
                continue
        elif cluster.write is None:
            found.append(f"{value} was seen, but nobody wrote it, or its write was refused")
            continue
        elif cluster.write[1] == INFINITE and not cluster.read:
            continue
        elif cluster.first_seen < cluster.write[0]:
            found.append(f"{value} was seen before it was written")
        if cluster.first_end < cluster.last_begin:
            forward.append((cluster.first_end, cluster.last_begin, value))
        else:
            backward.append((cluster.last_begin, cluster.first_end, value))
    forward.sort(key=lambda zone: zone[:2])
    for before, after in zip(forward, forward[1:]):
        if after[0] < before[1]:
            found.append(f"{before[2]} was read after {after[2]}, which had replaced it")
    starts = [zone[0] for zone in forward]
    for begin, end, value in backward:
        at = bisect.bisect_left(starts, begin) - 1  # the last one that starts before it
        if at >= 0 and end < forward[at][1]:
            found.append(f"{value} was written while {forward[at][2]} was read before and after: it is lost, or the "
                         "other one came back")
    return found


def count_violations(counts):
    """Replies of one counter: (reply, begin, end)."""
    found, ends = [], sorted(counts, key=lambda count: count[2])
    highest, at = 0, 0
    for reply, begin, _ in sorted(counts, key=lambda count: count[1]):
        while at < len(ends) and ends[at][2] < begin:
            highest, at = max(highest, ends[at][0]), at + 1
        if reply <= highest:
            found.append(f"the counter went from {highest} back to {reply}")
    return found


def self_test():
    """The checker must find what is wrong, and nothing else."""
    fine = [(READ, None, 0, 1), (WRITE, "a", 0, 3), (WRITE, "b", 2, 5), (READ, "b", 3, 4), (READ, "a", 2, 6),
            (WRITE, "c", 3, INFINITE), (SEEN, "a", 9, 9)]
    wrong = {
        "lost": [(WRITE, "a", 0, 1), (WRITE, "b", 2, 3), (READ, "a", 4, 5)],
        "read too early": [(READ, "a", 0, 1), (WRITE, "a", 2, 3)],
        "gone": [(READ, None, 4, 5), (WRITE, "a", 0, 1)],
        "stale": [(WRITE, "a", 0, 1), (WRITE, "b", 2, 9), (READ, "b", 3, 4), (READ, "a", 5, 6)],
        "seen and lost": [(WRITE, "a", 0, 1), (WRITE, "b", 2, INFINITE), (SEEN, "b", 3, 3), (READ, "a", 5, 6)],
        "from nowhere": [(READ, "x", 0, 1)],
    }
    assert not violations(fine), violations(fine)
    for name, operations in wrong.items():
        assert violations(operations), name
    assert not count_violations([(1, 0, 3), (2, 1, 2), (4, 4, 5)])
    assert count_violations([(1, 0, 1), (2, 2, 3), (2, 4, 5)])
