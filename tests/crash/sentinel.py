"""Groups with Sentinels under faults, in three mixes: our Sentinels and servers; our Sentinels over genuine servers;
our and genuine Sentinels over both kinds of servers.

    tests/crash/sentinel [ROUNDS] [--mix ours|genuine-servers|mixed|genuine|five] [--seed N] [--fault NAME]

Each round kills or freezes the primary or another server, kills or restarts a Sentinel, asks for a failover, changes
the configuration, or parts the network (between a Sentinel and all others, between two Sentinels while the primary
dies, around the primary, around the primary and a Sentinel). It ends the fault, and waits until all Sentinels name one
primary, all servers follow it, and all have the same data. A write that two replicas have acknowledged before must be
there. At the end it prints how long the failovers took. `--mix genuine` is genuine Sentinels alone, for comparison.
"""
import argparse
import os
import random
import signal
import statistics
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))

from common import Client, Closed, Error, genuine, newest_server, wait_for  # noqa: E402
from sentinel_group import NAME, PATIENCE, Group, seen_port  # noqa: E402

MIXES = {"ours": (["ours"] * 3, ["ours"] * 3),
         "genuine-servers": (["genuine"] * 3, ["ours"] * 3),
         "mixed": (["ours", "genuine", "ours"], ["ours", "genuine", "ours"]),
         "five": (["ours"] * 5, ["ours"] * 5),
         "genuine": (["ours"] * 3, ["genuine"] * 3)}
FAULTS = ["kill", "kill", "freeze", "failover", "coordinated", "replica", "sentinel", "set", "part-sentinel",
          "part-two-sentinels", "part-primary", "part-primary-and-sentinel"]


class Rounds:
    def __init__(self, mix, seed, faults):
        self.mix, self.random, self.faults = mix, random.Random(seed), faults
        self.group = Group(*MIXES[mix], network=True)
        self.durations = {}

    def note(self, fault, seconds):
        self.durations.setdefault(fault, []).append(seconds)

    def round(self, number):
        group = self.group
        fault = self.random.choice(self.faults)
        if fault == "coordinated" and len(set(MIXES[self.mix][0])) > 1:
            fault = "failover"
        primary = group.wait_whole()
        try:
            with Client(primary.port, timeout=30) as client:  # WAIT is about the writes of its own connection
                client.call("SET", "round", number)
                acknowledged = client.call("WAIT", 2, 20000) == 2
        except Closed:  # on a busy machine another server was promoted meanwhile
            acknowledged = False
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
        elif fault.startswith("part-"):
            self.part(fault, primary)
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


    def part(self, fault, primary):
        """Parts the network for a while. Where the majority of the Sentinels cannot reach the primary, they promote
        another server."""
        group, network = self.group, self.group.network
        one, other = self.random.sample(group.sentinels, 2)
        everybody = group.servers + group.sentinels
        moves, start = True, time.monotonic()
        if fault == "part-sentinel":
            network.part([one], everybody)
            moves = self.random.random() < 0.5
            if moves:
                primary.kill()
        elif fault == "part-two-sentinels":
            network.part([one], [other])
            primary.kill()
        elif fault == "part-primary":
            network.part([primary], everybody)
        else:
            aside = [primary, one]
            network.part(aside, [member for member in everybody if member not in aside])
        if moves:
            watcher = next(s for s in group.sentinels if s not in (one, other))
            with Client(watcher.port, timeout=PATIENCE) as client:
                wait_for("another primary is named", lambda: int(
                    client.call("SENTINEL", "get-master-addr-by-name", NAME)[1]) != seen_port(primary), PATIENCE)
            self.note(fault, time.monotonic() - start)
        time.sleep(self.random.random() * 3)
        network.heal(self.random.random() < 0.5)
        if not primary.alive():
            primary.start()


def play(mix, rounds, seed, faults):
    """Plays the rounds; after one that failed, with a new group. Returns how many failed."""
    durations, failed, test = {}, 0, None
    try:
        for number in range(rounds):
            try:
                if not test:
                    test = Rounds(mix, seed + failed, faults)
                    test.durations = durations
                test.round(number)
            except Exception as error:
                failed += 1
                print("%s: round %d FAILED: %r" % (mix, number + 1, error))
                traceback.print_exc(file=sys.stdout)
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
    parser.add_argument("--fault", choices=sorted(set(FAULTS)), action="append", help="only these")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    failed = 0
    print("seed %d" % options.seed)
    for mix in options.mix or ["ours", "genuine-servers", "mixed"]:
        why = newest_server()[1] or (None if genuine("valkey-sentinel") else "no genuine valkey-sentinel")
        if why and "genuine" in sum(MIXES[mix], []):
            print("%s: skipped: %s" % (mix, why))
            continue
        failed += play(mix, options.rounds, options.seed, options.fault or FAULTS)
    sys.exit(failed != 0)


main()
