#!/usr/bin/env python3
"""Our Sentinels over our and genuine servers, and our and genuine Sentinels in one quorum: a group loses its primary in
each way, and comes back. All Sentinels must agree, all servers must follow, and the data must be the same."""
import socket
import sys
import threading

from common import Client, Report, genuine, wait_for
from sentinel_group import NAME, PATIENCE, Group, device, fields_of

report = Report()
FIVE_MIXED = ["ours", "genuine", "ours", "genuine", "ours"]
# A user with the permissions that valkey-sentinel.conf names, and commands with other names.
RESTRICTED = {
    "server_options": ["user watcher on >word &* +ping +info +role +publish +subscribe +multi +exec +slaveof "
                       "+config|rewrite +client|setname +client|kill +script|kill +client|pause +client|unpause "
                       "+failover", "rename-command failover moved-failover", "rename-command slaveof moved-slaveof"],
    "options": ["sentinel auth-user group watcher", "sentinel auth-pass group word",
                "sentinel rename-command group failover moved-failover",
                "sentinel rename-command group slaveof moved-slaveof"]}
AT_A_TIME = threading.Semaphore(5)
MIXES = {
    "ours alone": (["ours"] * 3, ["ours"] * 3, False),
    "ours alone, over RDMA": (["ours"] * 3, ["ours"] * 3, True),
    "our Sentinels, genuine servers": (["genuine"] * 3, ["ours"] * 3, False),
    "both kinds of each": (["ours", "genuine", "ours"], ["ours", "genuine", "ours"], False),
    "one of our Sentinels beside two genuine ones": (["genuine", "ours", "genuine"], ["genuine", "ours", "genuine"],
                                                     False),
    "five of our Sentinels, five of our servers, over IPv6": (["ours"] * 5, ["ours"] * 5, False, {"host": "::1"}),
    "five of our Sentinels, five genuine servers": (["genuine"] * 5, ["ours"] * 5, False),
    "five of both kinds, over IPv6": (FIVE_MIXED, FIVE_MIXED, False, {"host": "::1"}),
    "a restricted user and renamed commands": (["ours"] * 3, ["ours"] * 3, False, RESTRICTED),
    "a restricted user and renamed commands of genuine servers": (["genuine"] * 3, ["ours", "genuine", "ours"], False,
                                                                  RESTRICTED),
}


def same_epochs(group):
    return len({fields_of(s.call("SENTINEL", "master", NAME))[b"config-epoch"] for s in group.running()}) == 1


def transports(group, primary):
    return {s.info("replication").get("master_link_transport") for s in group.servers if s is not primary}


def failover_without_rdma(group):
    """The promoted server does not listen for RDMA any more: the others follow it by TCP, and by RDMA when it does."""
    old = group.wait_whole()
    for server in group.servers:
        if server is not old:
            server.call("CONFIG", "SET", "rdma-port", 0)
    _, resume = group.fail("killed")
    resume()
    new = group.wait_primary(old)
    group.wait_whole()
    without = transports(group, new)
    new.call("CONFIG", "SET", "rdma-port", new.port)
    new.call("CLIENT", "KILL", "TYPE", "replica")
    wait_for("the links are RDMA again", lambda: transports(group, new) == {"rdma"}, PATIENCE)
    return without


def has_ipv6():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


def watch(name, mix, results):
    with AT_A_TIME:
        play(name, mix, results)


def play(name, mix, results):
    group = None
    options = mix[3] if len(mix) > 3 else {}
    try:
        group = Group(*mix[:3], **options)
        for how in ("killed", "frozen", "failover", "coordinated"):
            if how == "coordinated" and mix[0][0] != mix[0][1]:
                continue
            primary = group.wait_whole()
            with Client(primary.port) as client:
                client.call("SET", "key", how)
                client.call("WAIT", len(mix[0]) - 1, 10000)
            seconds, resume = group.fail(how)
            new = group.wait_primary(primary)
            value = new.call("GET", "key")
            resume()
            group.wait_whole()
            wait_for("all have the same data", lambda: len({s.call("DEBUG", "DIGEST") for s in group.servers}) == 1,
                     PATIENCE)
            wait_for("all have the same epoch", lambda: same_epochs(group), PATIENCE)
            results.append(("%s: %s (%.1f s)" % (name, how, seconds), value == how.encode(), value))
        if mix[2]:
            without = failover_without_rdma(group)
            results.append(("%s: killed, the next one has no RDMA" % name, without == {"tcp"}, without))
    except Exception as error:  # a thread's exception would go unnoticed
        results.append(["%s: a failover" % name, False, repr(error)])
        for process in (group.sentinels + group.servers) if group else []:
            results[-1][2] += "\n--- %s port %d\n%s" % (process.program[-1], process.port, process.output(2500))
    finally:
        if group:
            group.end()


def main():
    results, threads = [], []
    for name, mix in MIXES.items():
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        if "genuine" in mix[0] + mix[1] and not genuine("valkey-sentinel"):
            report.missing(name, "there is no genuine Valkey")
        elif mix[2] and not device():
            report.missing(name, "the software RDMA device is not built")
        elif "IPv6" in name and not has_ipv6():
            report.skip(name, "this machine has no IPv6")
        else:
            threads.append(threading.Thread(target=watch, args=(name, mix, results), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, ok, detail in results:
        report.check(name, ok, detail[:20000] if isinstance(detail, str) else detail)
    report.finish()


main()
