#!/usr/bin/env python3
"""Client libraries under valkey-rdma-run and through valkey-rdma-proxy: redis-py (also asyncio), node-redis, ioredis
and iovalkey must pass as many checks as over TCP, and their connections must be RDMA. What is not installed is
skipped."""
import os
import re
import shutil
import subprocess
import sys

from common import Report, Server, ours

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
from servers import LAUNCHER, ROOT, Proxy

RUN = os.path.join(ROOT, "src", "valkey-rdma-run")
HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
NODE = os.path.join(os.environ.get("INTEROP_NODE_CACHE", os.path.join(ROOT, "build", "interop-node")), "node_modules")
ASYNCIO = """
import asyncio, sys
import redis.asyncio as redis
async def one(i):
    client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    for value in range(30):
        await client.set("async:%d" % i, value)
    got = await client.get("async:%d" % i)
    pipe = client.pipeline()
    for value in range(200):
        pipe.incr("async:%d" % i)
    await pipe.execute()
    async with client.pubsub() as channel:
        await channel.subscribe("channel:%d" % i)
        await client.publish("channel:%d" % i, "x" * 100000)
        message = None
        while message is None or message["type"] != "message":
            message = await channel.get_message(timeout=10)
    await client.close()
    return got == "29" and len(message["data"]) == 100000
async def main():
    results = await asyncio.gather(*[one(i) for i in range(20)])
    print("%d passed, %d failed" % (sum(results), len(results) - sum(results)))
asyncio.run(main())
"""

report = Report()
if not os.path.exists(RUN):
    report.missing("client libraries under valkey-rdma-run", "it is not built (BUILD_RDMA=no)")
    report.finish()


def last_line(command):
    done = subprocess.run(command, cwd=HERE, env=dict(os.environ, NODE_PATH=NODE), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else "nothing, status %d" % done.returncode


with Server(ours(), rdma=True) as server, Server(ours(), "--requirepass", "secret", rdma=True) as secret:
    ports = [str(server.port), str(secret.port)]
    prefix = [LAUNCHER, RUN, "--require"]
    for port in ports:
        prefix += ["--map", "127.0.0.1:" + port]
    suites = []
    if subprocess.run([PYTHON, "-c", "import redis.asyncio"], stderr=subprocess.DEVNULL).returncode == 0:
        suites += [("redis-py", [PYTHON, "redis_py.py", *ports]), ("asyncio", [PYTHON, "-c", ASYNCIO, ports[0]])]
    else:
        report.missing("redis-py under valkey-rdma-run", "it is not installed (Debian: python3-redis)")
    if shutil.which("node") and os.path.isdir(NODE):
        suites.append(("node", ["node", "node_clients.js", ports[0]]))
    else:
        print("[skipped] node clients under valkey-rdma-run: the part node has not installed them")
    with Proxy(server.port) as proxy, Proxy(secret.port) as secret_proxy:
        by_proxy = {ports[0]: str(proxy.port), ports[1]: str(secret_proxy.port)}
        for name, command in suites:
            over_tcp = last_line(command)
            report.check(name + " over TCP", re.search(r"[1-9]\d* passed, 0 failed", over_tcp), over_tcp)
            report.equal(name + " under valkey-rdma-run", over_tcp, last_line(prefix + command))
            report.equal(name + " through valkey-rdma-proxy", over_tcp,
                         last_line([by_proxy.get(word, word) for word in command]))
        command = [os.path.join(ROOT, "src", "valkey-cli"), "-p", ports[0], "client", "info"]
        for name, kind in (("valkey-rdma-run", last_line(prefix + command)),
                           ("valkey-rdma-proxy", last_line([by_proxy.get(word, word) for word in command]))):
            report.check(name + ": the connection is RDMA", "rdma" in kind, kind)
report.finish()
