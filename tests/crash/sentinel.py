"""Groups with Sentinels under faults, in three mixes: our Sentinels and servers; our Sentinels over genuine servers;
our and genuine Sentinels over both kinds of servers.

    tests/crash/sentinel [ROUNDS] [--mix ours|genuine-servers|mixed|genuine] [--seed N]

Each round kills or freezes the primary or another server, kills or restarts a Sentinel, asks for a failover, or changes
the configuration, ends the fault, and waits until all Sentinels name one primary, all servers follow it, and all have
the same data. A write that two replicas have acknowledged before must be there. At the end it prints how long the
failovers took. `--mix genuine` is genuine Sentinels alone, for comparison.
"""
import argparse
import os
import random
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))

from common import Error, genuine, wait_for  # noqa: E402
from sentinel_group import NAME, PATIENCE, Group  # noqa: E402

MIXES = {"ours": (["ours"] * 3, ["ours"] * 3),
         "genuine-servers": (["genuine"] * 3, ["ours"] * 3),
         "mixed": (["ours", "genuine", "ours"], ["ours", "genuine", "ours"]),
         "genuine": (["ours"] * 3, ["genuine"] * 3)}
FAULTS = ["kill", "kill", "freeze", "failover", "coordinated", "replica", "sentinel", "set"]


class Rounds:
    def __init__(self, mix, seed):
        self.mix, self.random = mix, random.Random(seed)
        self.group = Group(*MIXES[mix])
        self.durations = {}

    def note(self, fault, seconds):
        self.durations.setdefault(fault, []).append(seconds)

    def round(self, number):
        group = self.group
        fault = self.random.choice(FAULTS)
        if fault == "coordinated" and len(set(MIXES[self.mix][0])) > 1:
            fault = "failover"
        primary = group.wait_whole()
        primary.call("SET", "round", number)
        acknowledged = primary.call("WAIT", 2, 20000) == 2
        if fault in ("kill", "freeze", "failover", "coordinated"):
            how = {"kill": "killed", "freeze": "frozen"}.get(fault, fault)
            try:
                seconds, resume = group.fail(how)
            except AssertionError as error:
                if "NOGOODSLAVE" not in str(error) and "INPROG" not in str(error):
                    raise
                return
            self.note(fault, seconds)
            group.wait_primary(primary)
            resume()
        elif fault == "replica":
            replica = self.random.choice([s for s in group.servers if s is not primary])
            replica.kill()
            time.sleep(self.random.random() * 3)
            replica.start()
        elif fault == "sentinel":
            other = self.random.choice(group.sentinels)
            other.kill() if self.random.random() < 0.5 else other.signal(signal.SIGSTOP)
            time.sleep(self.random.random() * 3)
            other.signal(signal.SIGCONT) if other.alive() else other.start()
        else:
            for sentinel in group.sentinels:
                reply = sentinel.call("SENTINEL", "set", NAME, "parallel-syncs", self.random.randrange(1, 4))
                if isinstance(reply, Error):
                    raise AssertionError(reply)
        new = group.wait_whole()
        wait_for("all have the same data",
                 lambda: len({s.call("DEBUG", "DIGEST") for s in group.servers}) == 1, PATIENCE)
        value = new.call("GET", "round")
        if acknowledged and value != str(number).encode():
            raise AssertionError("round %d (%s): an acknowledged write is gone: %r" % (number, fault, value))


def play(mix, rounds, seed):
    """Plays the rounds; after one that failed, with a new group. Returns how many failed."""
    durations, failed, test = {}, 0, None
    try:
        for number in range(rounds):
            try:
                if not test:
                    test = Rounds(mix, seed + failed)
                    test.durations = durations
                test.round(number)
            except Exception as error:
                failed += 1
                print("%s: round %d FAILED: %r" % (mix, number + 1, error))
                for process in test.group.sentinels + test.group.servers if test else []:
                    print("--- %s, port %d\n%s" % (process.program[-1], process.port, process.output(20000)))
                if test:
                    test.group.end()
                test = None
            print("%s: round %d" % (mix, number + 1), end="\r", flush=True)
    finally:
        if test:
            test.group.end()
        print("%s: %d rounds, %d failed" % (mix, number + 1, failed))
        for fault, seconds in sorted(durations.items()):
            print("%s: %d rounds of %s, seconds until another primary is named: median %.2f, most %.2f" % (
                mix, len(seconds), fault, statistics.median(seconds), max(seconds)), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", nargs="?", type=int, default=200)
    parser.add_argument("--mix", choices=sorted(MIXES), action="append")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    failed = 0
    print("seed %d" % options.seed)
    for mix in options.mix or ["ours", "genuine-servers", "mixed"]:
        if "genuine" in sum(MIXES[mix], []) and not genuine("valkey-sentinel"):
            print("%s: skipped, there is no genuine Valkey" % mix)
            continue
        failed += play(mix, options.rounds, options.seed)
    sys.exit(failed != 0)


main()
