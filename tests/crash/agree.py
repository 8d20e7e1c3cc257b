"""agree.py: injects faults into a group of servers and compares their copies of the data.

    tests/crash/agree [ROUNDS] [--seconds S] [--jobs N] [--seed N [--round K]] [--faults NAME,…] [--server PATH]
                      [--no-rdma] [--no-tls] [--no-genuine] [--keep DIR] [--verbose]

Random clients (agree_load.py) write to a primary, replicas, replicas of replicas and a genuine server (9.1 or newer:
GENUINE_VALKEY), linked over TCP, TLS and RDMA (agree_group.py), while faults occur (agree_faults.py). At the end of
each round the clients stop and all faults are repaired. Then these conditions must hold (agree_check.py):

    every link comes up, and all offsets agree; no replica is ever ahead of the server that it follows
    all have the same DEBUG DIGEST and the same functions
    the ledger, a client that numbers its writes, finds all that were acknowledged, without gaps or repetitions: after a
    failover, after a crash of a primary with appendfsync always, and what all replicas have acknowledged (WAIT) also
    after a replica took over
    a server that is killed afterwards has the same data from its files
    no server has ended by itself, nor logged that a command of its primary failed

A group exists for an era of 10 rounds. All choices follow from the seed, the era and the round, but the interleaving
of the processes does not, so a failure may need several runs to occur again: --seed N --round K repeats the era up
to round K. After a failure the program keeps the files and logs of all servers, prints the history of the era and
continues with the next era. The last line is "N passed, N failed" (rounds); rounds of an aborted era count as
neither.

To search for one kind of defect, use --faults with names of faults; --list-faults lists them."""
import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import agree_check as check  # noqa: E402
import agree_options  # noqa: E402
from agree_faults import FAULTS  # noqa: E402
from agree_group import Group, remove_certificates  # noqa: E402
from agree_load import Generator, Ledger, Load  # noqa: E402
from jobs import start_jobs  # noqa: E402
from servers import newest_server, ours, rdma_device  # noqa: E402

ERA = 10
HISTORY_SHOWN = 60


class Round:
    """The data of a round for faults and checks: the group, its load, the random numbers, the history."""

    def __init__(self, era, number):
        self.era, self.group, self.note = era, era.group, era.note
        self.rng = random.Random(f"{era.options.seed}/round {number}")
        self.background = []
        self.load = Load(era.group, era.generator, random.Random(self.rng.random()), era.ledger)

    def victim(self, nodes):
        free = [node for node in nodes if node.free()]
        return self.rng.choice(free) if free else None

    def later(self, seconds, action):
        def run():
            time.sleep(seconds)
            try:
                action()
            except (OSError, AttributeError):
                pass
        thread = threading.Thread(target=run, daemon=True)
        self.background.append(thread)
        thread.start()

    def wait_background(self):
        for thread in self.background:
            thread.join()
        self.background = []

    def primary_again(self):
        """The primary has been restarted."""
        for node in self.group.nodes:
            if node is not self.group.primary and node.parent is None and node.alive():
                node.follow(self.group.primary, node.transport)

    def run(self):
        names = sorted(self.era.options.faults)
        weights = [FAULTS[name][0] for name in names]
        end = time.monotonic() + self.rng.uniform(0.5, 1.5) * self.era.options.seconds
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0, 0.4))
            name = self.rng.choices(names, weights)[0]
            self.era.counts[name] = self.era.counts.get(name, 0) + 1
            try:
                FAULTS[name][1](self)
                check.never_ahead(self.group)
            except (OSError, KeyError) as error:
                # The server is cut off, loading or busy; the checks at the end of the round decide.
                self.note(f"{name}: {error!r}")
            self.group.check_alive()
        check.settle(self)


class Era:
    def __init__(self, options, number, generator):
        self.options, self.number, self.generator = options, number, generator
        self.history, self.counts, self.started = [], {}, time.monotonic()
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
        self.directory = tempfile.mkdtemp(prefix=f"valkey-agree-{options.seed}-{number}.", dir=options.keep)
        self.rng = random.Random(f"{options.seed}/era {number}")

    def note(self, text):
        self.history.append(f"{time.monotonic() - self.started:8.3f} {time.strftime('%H:%M:%S')} {text}")
        if self.options.verbose:
            print(self.history[-1], flush=True)

    def run(self, rounds):
        """Returns the number of rounds that passed, and whether all passed."""
        passed, failure = 0, None
        self.group = Group(self.options, self.rng, self.directory, self.note)
        try:
            self.group.start(self.rng)
            self.ledger = Ledger(self.group, self.note)
            if self.number == 0:
                unknown = agree_options.unknown(self.group.primary)
                if unknown:
                    raise check.Wrong(f"agree_options.py does not know {', '.join(unknown)}")
            for number in rounds:
                self.note(f"--- round {number}")
                Round(self, number).run()
                passed += 1
        except Exception as error:  # whatever it is, the servers' state is what matters
            failure = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        if failure:
            self.report(number if self.history and "round" in " ".join(self.history) else rounds[0], failure)
        self.group.stop()
        if not failure and not self.options.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        return passed, failure is None

    def report(self, number, failure):
        self.note("FAILED: " + failure)
        for node in self.group.nodes:
            if node.alive():
                node.thaw()
        with open(os.path.join(self.directory, "history"), "w") as f:
            f.write("\n".join(self.history) + "\n")
        for node in self.group.nodes:  # copies the files before stopping changes them
            if node.alive():
                try:
                    with open(os.path.join(self.directory, node.name + ".info"), "wb") as f:
                        f.write(node.call("INFO", "everything"))
                except (OSError, TypeError):
                    pass
        print(f"[failed] round {number} of seed {self.options.seed}: {failure}\n" +
              "\n".join("  " + line for line in self.history[-HISTORY_SHOWN:]) +
              f"\n  repeat with --seed {self.options.seed} --round {number}; files: {self.directory}", flush=True)


def work(options):
    """Runs the eras of one job."""
    passed = failed = 0
    generator, counts, started = Generator(random.Random(0)), {}, time.monotonic()
    first, last = (options.round // ERA * ERA, options.round + 1) if options.round is not None else (0, options.rounds)
    for number in range(first // ERA, (last + ERA - 1) // ERA):
        if number % options.jobs != options.job and options.round is None:
            continue
        if options.limit and time.monotonic() - started > options.limit:
            break
        era = Era(options, number, generator)
        ok, well = era.run(range(number * ERA, min((number + 1) * ERA, last)))
        passed, failed = passed + ok, failed + (not well)
        for name, count in era.counts.items():
            counts[name] = counts.get(name, 0) + count
    remove_certificates()
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description="Breaks a group of servers in every way, and compares their copies.")
    parser.add_argument("rounds", nargs="?", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long clients write in a round, on average")
    parser.add_argument("--limit", type=float, help="start no era after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="groups at the same time")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--round", type=int, help="the era of this round, up to it")
    parser.add_argument("--faults", help="only these, separated by commas")
    parser.add_argument("--without", default="", help="all but these")
    parser.add_argument("--list-faults", action="store_true")
    parser.add_argument("--server", default=ours(), help="the program of our servers")
    parser.add_argument("--no-rdma", dest="rdma", action="store_false")
    parser.add_argument("--no-tls", dest="tls", action="store_false")
    parser.add_argument("--no-genuine", dest="genuine", action="store_false")
    parser.add_argument("--keep", help="keep the files of all eras below this directory")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.list_faults:
        print("\n".join(f"{name} {weight}" for name, (weight, _) in sorted(FAULTS.items())))
        return 0
    options.faults = options.faults.split(",") if options.faults else [name for name in FAULTS if name not in
                                                                       options.without.split(",")]
    if not set(options.faults) <= set(FAULTS):
        parser.error("no fault is named " + ", ".join(sorted(set(options.faults) - set(FAULTS))))
    options.rdma = options.rdma and bool(rdma_device())
    options.genuine = options.genuine and newest_server()[0]
    options.server = os.path.abspath(options.server)
    if options.job is None and options.jobs > 1 and options.round is None:
        return int(start_jobs(__file__, options) > 0)
    options.job = options.job or 0
    print(f"seed {options.seed}", flush=True)
    return int(work(options) > 0)


sys.exit(main())
