#!/usr/bin/env python3
"""Client libraries and tools use a cluster while slots move and primaries change.

Over TCP, all at the same time: redis-py, ioredis, iovalkey, GLIDE for Node.js, and genuine's valkey-benchmark, which is
libvalkey. Each writes without a pause and reads back what was acknowledged. Over RDMA, on the software device:
valkey-benchmark and valkey-cli of both sides, in a cluster of our nodes and genuine ones; and what clients over RDMA
are told.

    tests/interop/cluster_clients.py [tcp|rdma]
    tests/interop/cluster_clients.py --client redis-py PORT     the client itself, for the interpreter that has redis-py
"""
import json
import os
import re
import select
import subprocess
import sys
import threading
import time

TIMEOUT_MS = 1500
HERE = os.path.dirname(os.path.abspath(__file__))


def redis_py(port):
    """The same as cluster_clients.js, in one thread."""
    import redis
    from redis.cluster import RedisCluster
    client = RedisCluster(host="127.0.0.1", port=port, decode_responses=True, socket_timeout=2)
    acknowledged, errors, last, number, ready = [], 0, "", 0, False
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            if not sys.stdin.readline():
                return
            lost = 0
            for key in acknowledged:
                value = None
                for _ in range(100):
                    try:
                        value = client.get(key)
                        break
                    except (redis.RedisError, OSError) as error:
                        last = repr(error)
                        time.sleep(0.05)
                lost += value != key
            print(json.dumps({"acknowledged": len(acknowledged), "lost": lost, "errors": errors, "last": last}),
                  flush=True)
            acknowledged, errors = [], 0
        key = "redis-py:%d" % number
        number += 1
        try:
            if client.set(key, key):
                acknowledged.append(key)
            if not ready:
                print("ready", flush=True)
            ready = True
            time.sleep(0.001)
        except (redis.RedisError, OSError) as error:
            errors, last = errors + 1, repr(error)
            time.sleep(0.02)


if sys.argv[1:2] == ["--client"]:
    redis_py(int(sys.argv[3]))
    sys.exit(0)

from common import Client, Error, Report, Server, genuine, newest_server, ours, rdma_device, run, until  # noqa: E402
from servers import free_port  # noqa: E402

report = Report()
CLI = ours("valkey-cli")
DEVICE = rdma_device()


# --- Clusters ---

class Cluster:
    """Nodes, the first `primaries` of which have slots; the others are replicas of them in turn."""

    def __init__(self, programs, primaries, options=(), rdma=False, arguments=None):
        self.nodes = [Server(program, "--cluster-enabled", "yes", "--cluster-node-timeout", str(TIMEOUT_MS),
                             "--repl-diskless-sync-delay", "0", *options, *(arguments or {}).get(i, ()),
                             rdma=rdma and i not in (rdma if isinstance(rdma, set) else ()), start=False)
                      for i, program in enumerate(programs)]
        threads = [threading.Thread(target=node.start) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.ids = [node.call("CLUSTER", "MYID").decode() for node in self.nodes]
        for i, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            if i < primaries:
                node.call("CLUSTER", "ADDSLOTSRANGE", 16384 * i // primaries, 16384 * (i + 1) // primaries - 1)
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port)
        self.wait("the nodes know each other", lambda: all(self.info(node)["cluster_known_nodes"] == str(len(programs))
                                                           and b"handshake" not in node.call("CLUSTER", "NODES")
                                                           for node in self.nodes))
        for i in range(primaries, len(programs)):
            self.nodes[i].call("CLUSTER", "REPLICATE", self.ids[i % primaries])
        self.wait_ok()

    @staticmethod
    def info(node):
        return dict(line.split(":") for line in node.call("CLUSTER", "INFO").decode().splitlines() if line)

    @staticmethod
    def wait(what, condition):
        report.check(what, until(condition, 40)) or report.finish()

    @staticmethod
    def replication(node):
        return node.info("replication")

    def running(self):
        return [node for node in self.nodes if node.alive()]

    def wait_ok(self):
        """All nodes that run serve, agree on the owners of slots, and their replicas are linked."""
        def owners(node):
            slots = node.call("CLUSTER", "SLOTS")
            return [] if isinstance(slots, Error) else [(low, high, of[2]) for low, high, of, *_ in slots]

        def ok():
            nodes = self.running()
            views = [owners(node) for node in nodes]
            return (all(self.info(node)["cluster_state"] == "ok" for node in nodes) and
                    all(view == views[0] for view in views) and
                    all(self.replication(node).get("master_link_status", "up") == "up" for node in nodes))
        self.wait("the cluster is up", ok)

    def move_slots(self, source, target, count):
        code, out, err = run(CLI, "--cluster", "reshard", "127.0.0.1:%d" % self.running()[0].port, "--cluster-from",
                             self.ids[source], "--cluster-to", self.ids[target], "--cluster-slots", count,
                             "--cluster-yes")
        report.check("%d slots move" % count, code == 0, (out + err)[-600:])

    def fail_over(self, replica):
        """The replica and its primary exchange their roles, without a lost write."""
        node = self.nodes[replica]
        report.equal("CLUSTER FAILOVER", "OK", node.call("CLUSTER", "FAILOVER"))
        self.wait("the replica leads", lambda: node.call("ROLE")[0] == b"master")
        self.wait_ok()

    def kill(self, primary, replica):
        self.nodes[primary].kill()
        self.wait("the replica of a killed primary leads", lambda: self.nodes[replica].call("ROLE")[0] == b"master")
        self.wait_ok()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.alive():
                node.process.terminate()
        for node in self.nodes:
            node.stop()


# --- Clients that write ---

class Load:
    """A client process as redis_py() above and cluster_clients.js describe it."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **(environment or {})))

    def line(self, seconds=40):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return "no answer within %d s" % seconds
        return self.process.stdout.readline().strip()

    def wait_ready(self):
        report.equal("%s: writes" % self.name, "ready", self.line())

    def check(self, what, lossless=True):
        """Reads back. A killed primary takes with it what it had not sent to its replica: then lossless is False."""
        self.process.stdin.write("check\n")
        self.process.stdin.flush()
        line = self.line()
        try:
            got = json.loads(line)
        except ValueError:
            report.check("%s: %s" % (self.name, what), False, line)
            return
        report.check("%s: %s" % (self.name, what),
                     got.get("acknowledged", 0) > 0 and (not lossless or got["lost"] == 0), line)
        if os.environ.get("VERBOSE"):
            print("    " + line)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Benchmark(threading.Thread):
    """Runs valkey-benchmark --cluster again and again until end()."""

    def __init__(self, name, command, port):
        super().__init__()
        self.name, self.command, self.port, self.stopping, self.runs, self.problem = name, command, port, False, 0, ""
        self.start()

    def once(self):
        code, out, err = run(*self.command, "-h", "127.0.0.1", "-p", self.port, "--cluster", "-n", "2000", "-c", "8",
                             "-r", "100000", "-q", "-t", "set,get", timeout=90)
        found = sorted(set(re.findall(r"(SET|GET): [0-9.]+ requests per second", out)))
        return "" if code == 0 and found == ["GET", "SET"] else "%s %s" % (code, (out + err)[-600:])

    def run(self):
        while not self.stopping and not self.problem:
            self.problem = self.once()
            self.runs += not self.problem

    def end(self, what):
        self.stopping = True
        self.join()
        report.check("%s: %s" % (self.name, what), self.runs > 0 and not self.problem, self.problem or "no run")


def node_libraries():
    """[(library, environment)] of what is installed, or [] with the reason printed."""
    out = run(os.path.join(HERE, "node_clients"), "install", timeout=200)[1].strip()
    found = [(name, out) for name in ("ioredis", "iovalkey") if os.path.isdir(os.path.join(out, "node_modules", name))]
    if not found:
        report.skip("ioredis and iovalkey in a cluster", out.splitlines()[0] if out else "not installed")
    glide = os.environ.get("INTEROP_GLIDE_CACHE", os.path.join(HERE, "../../build/interop-glide"))
    if os.path.isdir(os.path.join(glide, "node_modules/@valkey/valkey-glide")):
        found.append(("glide", glide))
    else:
        report.skip("GLIDE in a cluster", "npm install --prefix build/interop-glide @valkey/valkey-glide installs it")
    return [(name, {"NODE_PATH": os.path.join(path, "node_modules")}) for name, path in found]


def over_tcp():
    genuine_benchmark = genuine("valkey-benchmark")
    with Cluster([ours()] * 6, 3) as cluster:
        port = cluster.nodes[2].port
        loads = []
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
        if run(python, "-c", "import redis.cluster")[0] == 0:
            loads.append(Load("redis-py", [python, os.path.abspath(__file__), "--client", "redis-py", str(port)]))
        else:
            report.missing("redis-py in a cluster", "it is not installed (Debian: python3-redis)")
        for name, environment in node_libraries():
            loads.append(Load(name, ["node", os.path.join(HERE, "cluster_clients.js"), name, str(port)], environment))
        benchmark = None
        if genuine_benchmark:
            benchmark = Benchmark("genuine valkey-benchmark", [genuine_benchmark], port)
        else:
            report.missing("genuine valkey-benchmark in a cluster", "there is none")
        for load in loads:
            load.wait_ready()
        cluster.move_slots(0, 2, 150)
        if benchmark:
            benchmark.end("all its requests succeed while slots move")
        cluster.fail_over(3)
        for load in loads:
            load.check("no write is lost while slots move and a primary hands over")
        if benchmark:
            report.equal("genuine valkey-benchmark: after the failover", "", benchmark.once())
        cluster.kill(1, 4)
        for load in loads:
            load.check("it writes when a primary is killed", lossless=False)
        time.sleep(0.3)  # of writing
        for load in loads:
            load.check("no write is lost after the failover")
        if benchmark:
            report.equal("genuine valkey-benchmark: after a primary was killed", "", benchmark.once())
        for load in loads:
            load.end()


# --- RDMA ---

def rdma_cli(program, port, *words):
    return run(*DEVICE, program, "--rdma", "-c", "-h", "127.0.0.1", "-p", port, *words)


def told(port, *command):
    """What a client over RDMA is told by a command, as text."""
    return run(*DEVICE, CLI, "--rdma", "-h", "127.0.0.1", "-p", port, *command)[1]


def all_keys(what, program, port):
    """A key of each of many slots is written and read by one tool that follows redirections."""
    lines = "".join("set key:%d %d\nget key:%d\n" % (i, i, i) for i in range(40))
    code, out, err = run(*DEVICE, program, "--rdma", "-c", "-h", "127.0.0.1", "-p", port, data=lines)
    replies = [line for line in out.splitlines() if line and not line.startswith("->")]
    want = [reply for i in range(40) for reply in ("OK", str(i))]
    report.check(what, code == 0 and replies == want, (out + err)[-600:])


def mixed_over_rdma(server):
    """Ours and genuine nodes with rdma-port equal to port: clients over RDMA find all of them."""
    cli, benchmark = genuine("valkey-cli"), genuine("valkey-benchmark")
    with Cluster([ours(), server, ours(), server, ours(), server], 3, rdma=True) as cluster:
        ports = sorted(node.port for node in cluster.nodes)
        all_keys("our valkey-cli --rdma -c in a mixed cluster", CLI, cluster.nodes[0].port)
        for i, kind in enumerate(("ours", "genuine")):
            def listed():
                slots = told(cluster.nodes[i].port, "--json", "CLUSTER", "SLOTS")
                return sorted({node[1] for entry in json.loads(slots) for node in entry[2:]})
            until(lambda: listed() == ports, 10)  # a replica without data is not listed
            report.equal("%s: a client over RDMA is told the RDMA port of each node" % kind, ports, listed())
        all_keys("genuine valkey-cli --rdma -c in a mixed cluster", cli, cluster.nodes[1].port)
        loads = [Benchmark("our valkey-benchmark --rdma --cluster", [*DEVICE, ours("valkey-benchmark"), "--rdma"],
                           cluster.nodes[0].port),
                 Benchmark("genuine valkey-benchmark --rdma --cluster", [*DEVICE, benchmark, "--rdma"],
                           cluster.nodes[2].port)]
        cluster.move_slots(0, 1, 60)
        cluster.move_slots(1, 2, 60)
        for load in loads:
            load.end("all its requests succeed while slots move")
        cluster.fail_over(3)  # from ours to genuine
        cluster.fail_over(4)  # from genuine to ours
        for load in loads:
            report.equal("%s: after failovers" % load.name, "", load.once())
        cluster.kill(2, 5)
        load = loads[1]
        load.port = cluster.nodes[4].port
        report.equal("%s: after a primary was killed" % load.name, "", load.once())
        all_keys("genuine valkey-cli --rdma -c after the failovers", cli, cluster.nodes[4].port)


def without_rdma(server):
    """A node without RDMA is named by its TCP port: the client's connect fails and names the node."""
    with Cluster([ours(), server, ours()], 3, rdma={1}) as cluster:
        slots = json.loads(told(cluster.nodes[0].port, "--json", "CLUSTER", "SLOTS"))
        report.equal("a node without RDMA is listed by its TCP port", cluster.nodes[1].port,
                     [entry[2][1] for entry in slots if entry[0] == 5461][0])
        code, out, err = rdma_cli(CLI, cluster.nodes[0].port, "get", "hello")  # slot 866
        report.equal("keys of other nodes are served", (0, "\n"), (code, out))
        name = "127.0.0.1:%d" % cluster.nodes[1].port
        code, out, err = rdma_cli(CLI, cluster.nodes[0].port, "get", key_of(6000))
        report.check("a client over RDMA is sent there, and says which node it cannot reach",
                     code != 0 and "Could not connect" in out + err and name in out + err, (code, out, err))


def key_of(slot):
    """A text in this slot."""
    for i in range(1000000):
        crc = 0
        for byte in str(i).encode():
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
        if crc & 16383 == slot:
            return str(i)
    raise AssertionError("no key for slot %d" % slot)


def own_ports():
    """Our nodes whose RDMA ports differ from their TCP ports tell each other, and dial each other, there."""
    rdma_ports = [free_port() for _ in range(3)]
    arguments = {i: ("--rdma-port", str(port)) for i, port in enumerate(rdma_ports)}
    with Cluster([ours()] * 3, 2, ("--rdma-replication", "yes"), rdma=True, arguments=arguments) as cluster:
        nodes = cluster.nodes
        replica = nodes[2]

        def listed(command, port):
            return sorted({node[1] for entry in json.loads(told(port, "--json", *command)) for node in entry[2:]})
        report.check("SLOTS over RDMA has the RDMA ports",
                     until(lambda: listed(("CLUSTER", "SLOTS"), rdma_ports[0]) == sorted(rdma_ports), 10),
                     told(rdma_ports[0], "--json", "CLUSTER", "SLOTS"))
        lines = told(rdma_ports[0], "CLUSTER", "NODES")
        report.equal("so has NODES", sorted(rdma_ports), sorted(int(port) for port in re.findall(r":(\d+)@", lines)))
        key = key_of(9000)
        report.equal("so has MOVED", "MOVED 9000 127.0.0.1:%d" % rdma_ports[1],
                     told(rdma_ports[0], "GET", key).strip().replace("(error) ", "").replace("ERROR: ", ""))
        report.equal("a client over TCP is told TCP ports", [nodes[0].port, nodes[1].port, nodes[2].port],
                     [int(port) for id in cluster.ids for port in
                      re.findall("%s [^ ]*:(\\d+)@" % id, nodes[0].call("CLUSTER", "NODES").decode())])
        with Client(nodes[0].port) as client:
            report.check("and nothing of RDMA", b"rdma-port" not in repr(client.call("CLUSTER", "SHARDS")).encode() and
                         "rdma-port" not in repr(client.call("CLUSTER", "SLOTS")))
            report.equal("CLIENT CAPA", "OK", client.call("CLIENT", "CAPA", "rdma-endpoints", "redirect"))
            metadata = {entry[2][1]: entry[2][3] for entry in client.call("CLUSTER", "SLOTS")}
            report.equal("with CLIENT CAPA rdma-endpoints, SLOTS names RDMA ports, too",
                         {nodes[i].port: [b"rdma-port", rdma_ports[i]] for i in (0, 1)}, metadata)
            shards = client.call("CLUSTER", "SHARDS")
            found = sorted(node[node.index(b"rdma-port") + 1] for shard in shards for node in shard[3])
            report.equal("and so does SHARDS", sorted(rdma_ports), found)
        # The port of the bus serves for the next connection: it needs no connection over TCP to ask for it.
        log = len(replica.output(None))
        nodes[0].call("CLIENT", "KILL", "TYPE", "replica")
        report.check("the replica's link uses RDMA",
                     until(lambda: replica.info("replication").get("master_link_status") == "up" and
                           replica.info("replication").get("master_link_transport") == "rdma", 15),
                     replica.info("replication"))
        text = replica.output(None)[log:]
        report.check("it connects by RDMA at once", "No RDMA connection" not in text and "Connecting there" not in text,
                     text)
        nodes[2].call("CLUSTER", "FAILOVER")
        cluster.wait("the replica leads", lambda: nodes[2].call("ROLE")[0] == b"master")
        report.check("after the failover the link uses RDMA, without an attempt at another port",
                     until(lambda: nodes[0].info("replication").get("master_link_status") == "up" and
                           nodes[0].info("replication").get("master_link_transport") == "rdma", 15) and
                     "No RDMA connection" not in nodes[0].output(None), nodes[0].output())


def over_rdma():
    if not DEVICE or "--rdma" not in "".join(run(CLI, "--help")[1:]):
        report.skip("clusters over RDMA", "built without RDMA")
        return
    own_ports()
    server, reason = newest_server()
    if not server or "--rdma" not in "".join(run(genuine("valkey-cli"), "--help")[1:]):
        report.missing("clusters of both kinds over RDMA", reason or "the genuine programs have no RDMA")
        return
    without_rdma(server)
    mixed_over_rdma(server)


wanted = sys.argv[1:] or ["tcp", "rdma"]
if "tcp" in wanted:
    over_tcp()
if "rdma" in wanted:
    over_rdma()
report.finish()
