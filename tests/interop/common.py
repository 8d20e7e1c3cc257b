"""What the interoperability tests share: the counting of results, genuine peers, and the servers and clients of
tests/harness.

Every test program prints one line a result and ends with "N passed, N failed[, N skipped]"; what cannot run says why.
"""
import argparse
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from resp import Client, Closed, Error, Map, Push, Set, Status, request  # noqa: E402,F401
from servers import (ROOT, Server, free_port, genuine, info_fields, installed, newest_server,  # noqa: E402,F401
                     ours, rdma_device, until, wait_for)


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, ok, detail=""):
        if ok:
            self.passed += 1
            if os.environ.get("VERBOSE"):
                print("[ok] " + name)
        else:
            self.failed += 1
            print("[failed] %s%s" % (name, ": " + str(detail)[:4000] if detail else ""))
        sys.stdout.flush()
        return ok

    def equal(self, name, want, got):
        return self.check(name, want == got, "expected %r, got %r" % (want, got))

    def skip(self, name, reason):
        self.skipped += 1
        print("[skipped] %s: %s" % (name, reason))
        sys.stdout.flush()

    def missing(self, name, reason):
        """A peer is not there. That is a failure where all of them must be: CI sets CI_REQUIRE_PEERS=yes."""
        if os.environ.get("CI_REQUIRE_PEERS") == "yes":
            self.check(name, False, reason)
        else:
            self.skip(name, reason)

    def finish(self):
        line = "%d passed, %d failed" % (self.passed, self.failed)
        if self.skipped:
            line += ", %d skipped" % self.skipped
        print(line)
        sys.exit(1 if self.failed or not (self.passed or self.skipped) else 0)


def genuine_server():
    """The newest genuine server: of GENUINE_VALKEY, then the distribution's Valkey, then its Redis. None: there is
    none."""
    return genuine("valkey-server") or genuine("redis-server")


def run(*argv, data=None, timeout=60, cwd=None):
    """Runs a program to its end: (exit code, standard output, standard error), as text."""
    stdin = {"input": data.encode() if isinstance(data, str)
             else data} if data is not None else {"stdin": subprocess.DEVNULL}
    try:
        p = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                           cwd=cwd, **stdin)
    except subprocess.TimeoutExpired as e:
        return "timeout", (e.stdout or b"").decode("latin-1"), (e.stderr or b"").decode("latin-1")
    return p.returncode, p.stdout.decode("latin-1"), p.stderr.decode("latin-1")


def seeded_options(description, **defaults):
    """The command line of a program with random steps: --seed N, --verbose, and these options with their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--verbose", action="store_true")
    for name, default in defaults.items():
        parser.add_argument("--" + name, type=type(default), default=default)
    return parser.parse_args()


def required_newest(report, what):
    """The path of the newest genuine server. Without one the program ends here."""
    path, why = newest_server()
    if not path:
        report.missing(what, why)
        report.finish()
    return path
