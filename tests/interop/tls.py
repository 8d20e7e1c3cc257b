#!/usr/bin/env python3
"""TLS: genuine tools against our server, our tools against the genuine server, replication between both, and INFO."""
import os
import shutil
import subprocess
import tempfile

from common import Client, Report, Server, free_port, info_fields, newest_server, ours, run, until

report = Report()
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
where = tempfile.mkdtemp(prefix="interop-tls.")


def path(name):
    return os.path.join(where, name)


def arguments(port, *more):
    return ["--tls-port", str(port), "--tls-cert-file", path("server.crt"), "--tls-key-file", path("server.key"),
            "--tls-ca-cert-file", path("ca.crt"), *more]


OPTIONS = ["--tls", "--cacert", path("ca.crt"), "--cert", path("client.crt"), "--key", path("client.key")]


def tools_work(what, cli, benchmark, server, port):
    def call(*args, **kw):
        return run(cli, "-h", "127.0.0.1", "-p", port, *OPTIONS, *args, **kw)

    report.equal("%s: PING" % what, (0, "PONG"), (call("ping")[0], call("ping")[1].strip()))
    large = "0123456789" * 50000
    report.equal("%s: SET of a large value" % what, "OK", run(cli, "-p", port, *OPTIONS, "-x", "set", "large",
                                                              data=large)[1].strip())
    report.check("%s: GET of it" % what, call("get", "large")[1].strip() == large)
    pipe = b"".join(Client.encode("SET", "mass:%d" % i, "v%d" % i) for i in range(5000))
    code, out, err = run(cli, "-p", port, *OPTIONS, "--pipe", data=pipe)
    report.check("%s: --pipe" % what, code == 0 and "errors: 0, replies: 5000" in out, out + err)
    for sni in ([], ["--sni", "localhost"]):
        report.equal("%s: %s" % (what, " ".join(sni) or "no SNI"), "PONG", call(*sni, "ping")[1].strip())
    code, out, err = run(cli, "-p", port, "--tls", "--cacert", path("foreign-ca.crt"), "ping")
    report.check("%s: an unknown authority is refused" % what, code != 0 and "certificate verify failed" in out + err,
                 out + err)
    code, out, err = run(cli, "-p", port, "--tls", "--cacert", path("ca.crt"), "ping")
    report.check("%s: a client without a certificate is refused" % what, code != 0 and "PONG" not in out, out + err)
    for extra in (["-P", 16], ["-d", 20000], ["--threads", 2]):
        code, out, err = run(benchmark, "-p", port, *OPTIONS, "-n", 3000, "-c", 10, "-q", "-t", "set,get", *extra,
                             timeout=120)
        report.check("%s: benchmark %s" % (what, extra[0]), code == 0 and "GET: " in out, out + err)
    report.check("%s: the server is alive" % what, server.alive(), server.output())


def info(port, section):
    with Client(port) as client:
        return info_fields(client.call("INFO", section))


def replicates(what, primary_binary, replica_binary):
    tls = free_port()
    with Server(primary_binary, *arguments(tls, "--tls-replication", "yes", "--repl-diskless-sync-delay",
                                           "0")) as primary:
        Client(primary.port).call("SET", "before", "x" * 100000)
        with Server(replica_binary, *arguments(free_port(), "--tls-replication", "yes")) as replica:
            Client(replica.port).call("REPLICAOF", "127.0.0.1", str(tls))
            up = until(lambda: info(replica.port, "replication").get("master_link_status") == "up")
            report.check("%s: the link is up" % what, up, replica.output())
            Client(primary.port).call("SET", "after", "y")
            arrived = until(lambda: replica.call("GET", "after") == b"y")
            report.check("%s: a write arrives" % what, arrived, replica.output())
            report.equal("%s: the full synchronization brought a large value" % what, 100000,
                         Client(replica.port).call("STRLEN", "before"))


def main():
    theirs, why = newest_server()
    if not theirs or not shutil.which("openssl"):
        report.missing("TLS with genuine programs", why or "openssl(1) is not installed")
        report.finish()
    subprocess.run([os.path.join(ROOT, "tests/harness/make-certificates"), where], check=True)
    if run(theirs, "--port", "0", "--tls-port", "1", timeout=10)[1].find("tls-cert-file") < 0:
        report.missing("TLS with genuine programs", "the genuine server has no TLS")
        report.finish()
    directory = os.path.dirname(theirs)
    their_cli, their_benchmark = os.path.join(directory, "valkey-cli"), os.path.join(directory, "valkey-benchmark")
    port = free_port()
    with Server(ours(), *arguments(port)) as mine:
        tools_work("genuine tools, our server", their_cli, their_benchmark, mine, port)
        other = free_port()
        with Server(theirs, *arguments(other)) as genuine_server:
            tools_work("our tools, genuine server", ours("valkey-cli"), ours("valkey-benchmark"), genuine_server, other)
            fields = [{name: value for name, value in info(at, "tls").items() if "cert" in name}
                      for at in (mine.port, genuine_server.port)]
            for name in set(fields[0]) | set(fields[1]):
                values = [field.get(name) for field in fields]
                if name.endswith("in_seconds"):  # one may be asked a moment after the other
                    report.check("INFO: " + name, abs(int(values[0]) - int(values[1])) <= 5, values)
                else:
                    report.equal("INFO: " + name, values[1], values[0])
    replicates("our replica, genuine primary", theirs, ours())
    replicates("genuine replica, our primary", ours(), theirs)
    report.finish()


try:
    main()
finally:
    shutil.rmtree(where)
