#!/usr/bin/env python3
"""Valkey over RDMA between genuine programs and ours, on the software device: the genuine valkey-cli, valkey-benchmark
and rdma-test on our server, our tools on the genuine server. Needs programs built with RDMA, as deps/genuine-valkey
builds them."""
import re

from common import Client, Report, Server, genuine, info_fields, ours, rdma_device, run, until

report = Report()
device = rdma_device()


def has_rdma(program):
    """Does this valkey-cli know --rdma?"""
    return program and "--rdma" in "".join(run(program, "--help")[1:])


def tools_work(what, cli, benchmark, port):
    """The tools of one side on the server of the other."""
    def call(*args, **kw):
        return run(*device, cli, "--rdma", "-h", "127.0.0.1", "-p", port, *args, **kw)

    report.equal("%s: PING" % what, (0, "PONG\n"), call("ping")[:2])
    big = "0123456789abcdef" * (1 << 16)
    report.equal("%s: SET of 1 MiB" % what, "OK", call("-x", "set", "big", data=big)[1].strip())
    report.check("%s: GET of 1 MiB" % what, call("get", "big")[1].rstrip("\n") == big, "another value")
    if cli == ours("valkey-cli"):  # over RDMA --pipe of the genuine tool never ends, on any server
        pipe = b"".join(Client.encode("SET", "mass:%d" % i, "v%d" % i) for i in range(20000))
        code, out, err = call("--pipe", data=pipe)
        report.check("%s: --pipe" % what, code == 0 and "errors: 0, replies: 20000" in out, out + err)
    for args in (("-c", "20"), ("-c", "5", "-P", "16", "-d", "1024"), ("-c", "3", "-d", "100000"),
                 ("-c", "8", "--threads", "2")):
        code, out, err = run(*device, benchmark, "--rdma", "-h", "127.0.0.1", "-p", port, "-n", "4000", "-q", "-t",
                             "set,get", *args, timeout=120)
        counted = re.findall(r"(SET|GET): [0-9.]+ requests per second", out)
        report.check("%s: valkey-benchmark %s" % (what, " ".join(args)),
                     code == 0 and sorted(set(counted)) == ["GET", "SET"], (out + err)[-500:])


cli, benchmark, rdma_test = genuine("valkey-cli"), genuine("valkey-benchmark"), genuine("rdma-test")
if not device or not has_rdma(ours("valkey-cli")):
    report.skip("Valkey over RDMA", "built without RDMA")
    report.finish()
if not has_rdma(cli) or not rdma_test:
    report.missing("Valkey over RDMA", "no genuine programs with RDMA are there (deps/genuine-valkey builds them)")
    report.finish()

with Server(ours(), rdma=True) as server:
    tools_work("genuine tools, our server", cli, benchmark, server.port)
    code, out, err = run(*device, rdma_test, "-h", "127.0.0.1", "-p", server.port, "--thread", "2", timeout=120)
    report.check("genuine rdma-test, our server", code == 0, (code, (out + err)[-500:]))
    report.check("our server is alive", server.alive(), server.output())
with Server(genuine("valkey-server"), rdma=True) as server:
    tools_work("our tools, genuine server", ours("valkey-cli"), ours("valkey-benchmark"), server.port)


def replica_follows(what, primary, replica, method):
    """Our replica over RDMA: full synchronization, stream, acknowledgements, partial synchronization."""
    source, copy = Client(primary.port), Client(replica.port)

    def field(name):
        return info_fields(copy.call("INFO", "replication")).get(name)

    def same():
        return source.call("DEBUG", "DIGEST") == copy.call("DEBUG", "DIGEST")

    source.call("DEBUG", "POPULATE", "5000", "key", "100")
    source.call("SET", "large", "x" * 1000000)
    copy.call("REPLICAOF", "127.0.0.1", primary.port)
    report.check("%s: the link is up" % what, until(lambda: field("master_link_status") == "up"), replica.output())
    report.equal("%s: the link's transport" % what, "rdma", field("master_link_transport"))
    report.check("%s: the data are equal" % what, until(same), "another digest")
    report.check("%s: the full synchronization was %s" % (what, method[0]), method[1] in replica.output(),
                 replica.output())
    source.call("SET", "key", "value")
    report.equal("%s: WAIT" % what, 1, source.call("WAIT", "1", "5000"))
    source.call("CLIENT", "KILL", "TYPE", "replica")
    source.call("SET", "key", "other")
    report.check("%s: the data are equal after a partial synchronization" % what,
                 until(lambda: field("master_link_status") == "up" and same()), "another digest")
    report.check("%s: the partial synchronization" % what, "Successful partial resynchronization" in replica.output(),
                 replica.output())


flags = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"]
for what, program, method in (("genuine primary, our replica", genuine("valkey-server"),
                               ("an ordinary one", "receiving streamed RDB")),
                              ("our primary, our replica", ours(),
                               ("fetched", "fetching the snapshot of the primary by RDMA READ"))):
    with Server(program, *flags, rdma=True) as primary, Server(ours(), *flags, "--rdma-replication", "yes",
                                                               rdma=True) as replica:
        replica_follows(what, primary, replica, method)
report.finish()
