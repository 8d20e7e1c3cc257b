#!/usr/bin/env python3
"""The test suites that packages of client libraries contain, over TCP, under valkey-rdma-run and through
valkey-rdma-proxy: the same tests must pass.

    client_suites.py [--verbose] [LIBRARY...]     default: ioredis and redis-lua

ioredis comes from npm: few versions contain their tests, 1.15.1 does. It is installed once into build/client-suites
($CLIENT_SUITES). The tests of redis-lua are in the package lua-redis-dev; they need lua5.1. What cannot be had is
skipped, with the reason.

Some of these tests depend on the speed of the machine. A suite with other failures than over TCP runs up to three
times, and a test counts as passed if it has passed once. Tests that fail over TCP may fail in all ways. The last line
counts each test once for each way."""
import argparse
import os
import re
import shutil
import subprocess

from common import ROOT, Report, Server, ours
from servers import LAUNCHER, Proxy, rdma_device

CACHE = os.environ.get("CLIENT_SUITES", os.path.join(ROOT, "build", "client-suites"))
RUN = os.path.join(ROOT, "src", "valkey-rdma-run")
WAYS = ("tcp", "run", "proxy")
ATTEMPTS = 3


class Missing(Exception):
    """Why a suite cannot run here."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(program + " is not installed")


def fetch(command, directory):
    """Runs a command in a directory."""
    try:
        done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=200, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing(" ".join(command[:2]) + ": it takes too long") from error
    if done.returncode:
        raise Missing("%s: %s" % (" ".join(command[:2]), done.stdout.decode("utf-8", "replace").strip()[-300:]))


class Library:
    """A client library's test suite. get() raises Missing; results() runs the tests and returns {title: passed} and
    what was printed."""
    name = ""
    tests = None  # the directory that they run in

    def start(self, prefix, command, environment=None, seconds=200):
        """Runs a command of the suite to its end. Returns its output."""
        done = subprocess.run(prefix + command, cwd=self.tests, env=dict(os.environ, **(environment or {})),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, check=False)
        return done.stdout.decode("utf-8", "replace")


class Ioredis(Library):
    """Left out are the tests of clusters and Sentinels, which connect to servers of their own, one that connects to an
    address outside of this machine, and those that rely on an order of requests on two connections (see
    docs/rdma-run.md)."""
    left_out = ("should close the connection when timeout|restore subscription after reconnecting"
                "|resend unfulfilled commands to the correct db when reconnected|use evalsha when script is loaded"
                "|use EVALSHA and fallback|load scripts first before execute pipeline")

    def get(self):
        need("node", "npm")
        complete = os.path.join(CACHE, "complete")
        self.tests = package = os.path.join(CACHE, "package")
        if os.path.exists(complete):
            return
        shutil.rmtree(CACHE, ignore_errors=True)
        os.makedirs(CACHE)
        install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        fetch(["npm", "pack", "--silent", "ioredis@1.15.1"], CACHE)
        fetch(["tar", "xzf", "ioredis-1.15.1.tgz"], CACHE)
        fetch(install + ["--omit=dev"], package)
        fetch(install + ["--no-save", "mocha@2", "chai@2", "sinon@1", "server-destroy@1"], package)
        # The suite connects to the default address.
        path = os.path.join(package, "lib", "redis.js")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r"^  port: 6379,", "  port: Number(process.env.SUITE_PORT),", text, flags=re.MULTILINE)
        text = re.sub(r"^  host: 'localhost',", "  host: '127.0.0.1',", text, flags=re.MULTILINE)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        with open(complete, "w", encoding="utf-8"):
            pass

    def results(self, prefix, port):
        names = sorted(os.listdir(os.path.join(self.tests, "test", "functional")))
        files = ["test/functional/" + name for name in names if name not in ("cluster.js", "sentinel.js", "monitor.js")]
        out = self.start(prefix, ["node", "node_modules/mocha/bin/_mocha", "--reporter", "tap", "--timeout", "10000",
                                  "--grep", self.left_out, "--invert", "test/helpers/global.js"] + files,
                         {"SUITE_PORT": str(port), "NODE_ENV": "test"})
        # A test can fail after it has passed, in the hook that runs between two: the rest did not run.
        return {title: not bad for bad, title in re.findall(r"^(not )?ok \d+ (.*)$", out, re.MULTILINE)
                if "each\" hook" not in title}, out


class RedisLua(Library):
    """The tests need a framework that no package has: telescope.lua stands in for it."""
    file = "/usr/share/doc/lua-redis-dev/test_client.lua"

    def get(self):
        need("lua5.1")
        if not os.path.exists(self.file):
            raise Missing("lua-redis-dev is not installed")
        self.tests = os.path.dirname(os.path.abspath(__file__))

    def results(self, prefix, port):
        out = self.start(prefix, ["lua5.1", "telescope.lua", self.file, str(port)])
        return {title: not bad for bad, title in re.findall(r"^(not )?ok (.*?)(?:: .*)?$", out, re.MULTILINE)}, out


LIBRARIES = {"ioredis": Ioredis, "redis-lua": RedisLua}


def run_suite(library, way, expected, verbose):
    """{title: passed}, and the number of connections over RDMA. The suite runs again unless all tests have passed, or
    as `expected`; None: as in the run before."""
    best = {}
    with Server(ours(), rdma=True) as server:
        prefix, port, proxy = [], server.port, None
        if way == "run":
            prefix = [LAUNCHER, RUN, "--require", "--map", "127.0.0.1:%d" % port]
        elif way == "proxy":
            proxy = Proxy(port)
            port = proxy.port
        try:
            for _ in range(ATTEMPTS):
                found, out = library.results(prefix, port)
                if verbose:
                    print(out, flush=True)
                before = dict(best) if expected is None else expected
                for title, good in found.items():
                    best[title] = best.get(title) or good
                if best == before or (all(found.values()) and set(found) == set(best)):
                    break
            if not best:
                print("%s, %s: no test ran:\n%s" % (library.name, way, out[-3000:]), flush=True)
            return best, int(server.info("rdma")["rdma_accepted_connections"])
        finally:
            if proxy:
                proxy.stop()


def compare(report, library, verbose):
    results, connections = {}, {}
    for way in WAYS:
        results[way], connections[way] = run_suite(library, way, results.get("tcp"), verbose)
        good = sum(results[way].values())
        print("%s, %s: %d passed, %d failed, %d connections over RDMA"
              % (library.name, way, good, len(results[way]) - good, connections[way]), flush=True)
        report.passed += good
    report.check(library.name + ": tests pass over TCP", any(results["tcp"].values()))
    for title, good in sorted(results["tcp"].items()):
        if not good:
            print("%s: fails over TCP, too: %s" % (library.name, title))
    for way in WAYS[1:]:
        report.check("%s, %s: connections are RDMA" % (library.name, way), connections[way] > 5, connections[way])
        for title in sorted(set(results["tcp"]) | set(results[way])):
            if results[way].get(title) != results["tcp"].get(title):
                report.check("%s, %s: %s" % (library.name, way, title), results[way].get(title),
                             "%s; over TCP %s" % tuple(
                                 {True: "passes", False: "fails", None: "did not run"}[results[w].get(title)]
                                 for w in (way, "tcp")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="show what the suites print")
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY")
    options = parser.parse_args()
    if not set(options.libraries) <= set(LIBRARIES):
        parser.error("the libraries are " + ", ".join(LIBRARIES))
    report = Report()
    if not os.path.exists(RUN) or not rdma_device():
        report.missing("client suites", "valkey-rdma-run is not built (BUILD_RDMA=no)")
        report.finish()
    for name in options.libraries or LIBRARIES:
        library = LIBRARIES[name]()
        library.name = name
        try:
            library.get()
        except Missing as reason:
            report.skip(name, reason)
            continue
        compare(report, library, options.verbose)
    report.finish()


main()
