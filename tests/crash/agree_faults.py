"""agree_faults.py: the faults of tests/crash/agree, injected while clients write.

A fault is a function of the round. Faults with a duration (a freeze, a busy script) end by themselves, so that other
faults occur meanwhile. A fault that finds no suitable server does nothing."""
import os
import threading
import time

from agree_group import BY_PROXY
from agree_options import random_option
from resp import Client, Error
from servers import until

FAULTS = {}  # name: (weight, function)
BUSY_SCRIPT = "local i = 0 while true do i = i + 1 end"
BUSY_FUNCTION = """#!lua name=busy
redis.register_function{function_name='busy', callback=function() while true do end end, flags={'no-writes'}}"""
WRITING_SCRIPT = "for i = 1, ARGV[1] do redis.call('INCR', 'of script') end return 1"
LONGEST_FREEZE = 9.0


def fault(weight):
    def register(function):
        FAULTS[function.__name__.replace("_", " ")] = (weight, function)
        return function
    return register


def duration(rng):
    """Seconds: usually short, sometimes up to the longest."""
    return rng.choice([rng.uniform(0.05, 0.6), rng.uniform(0.05, 0.6), rng.uniform(0.3, 1.5), rng.uniform(0.3, 1.5),
                       rng.uniform(1, 4) if rng.random() < 0.7 else rng.uniform(4, LONGEST_FREEZE)])


# --- Freezes, busy scripts

def hold(round, node, seconds):
    round.note(f"{node.name} is frozen for {seconds:.2f} s")
    node.freeze()
    round.later(seconds, node.thaw)


@fault(4)
def freeze_replica(round):
    node = round.victim(round.group.replicas())
    if node:
        hold(round, node, duration(round.rng))


@fault(2)
def freeze_primary(round):
    if round.group.primary.free():
        hold(round, round.group.primary, duration(round.rng))


def busy(round, node, words):
    seconds = min(duration(round.rng), 3)
    if node.genuine:  # with "no" it refuses SCRIPT KILL if its link is lost meanwhile
        node.try_set("replica-serve-stale-data", "yes")
    round.note(f"{node.name} executes {' '.join(words)} for {seconds:.2f} s")
    node.held, ended = "busy", threading.Event()

    def run():
        try:
            with Client(node.port, timeout=60) as client:
                client.call("SELECT", 1)
                client.call(*words)
        except OSError:
            pass
        ended.set()

    def stop():
        # The first attempts to stop the script may precede its start.
        name = "FUNCTION" if words[0].startswith("FCALL") else "SCRIPT"
        until(lambda: ended.is_set() or not node.alive() or (node.call(name, "KILL"), False)[1], 60)
        if node.held == "busy":
            node.held = None
    round.later(0, run)
    round.later(seconds, stop)


@fault(4)
def busy_replica(round):
    node = round.victim(round.group.replicas())
    if node:
        busy(round, node, reading_script(round))


def reading_script(round):
    return round.rng.choice([("EVAL_RO", BUSY_SCRIPT, "0"), ("FCALL_RO", "busy", "0")])


@fault(1)
def busy_primary(round):
    primary = round.group.primary
    if primary.free():
        if round.rng.random() < 0.5:
            primary.call("FUNCTION", "LOAD", "REPLACE", BUSY_FUNCTION)
        busy(round, primary, round.rng.choice([("EVAL", BUSY_SCRIPT, "0"), reading_script(round)]))


@fault(1)
def writing_script(round):
    """A script that writes for long cannot be killed; replicas receive all its writes at its end."""
    primary = round.group.primary
    if primary.free():
        count, leaves = round.rng.choice([1000, 20000, 100000]), round.rng.random() < 0.3
        round.note(f"{primary.name} executes a script with {count} writes{', whose client leaves' * leaves}")

        def run():
            with Client(primary.port, timeout=60) as client:
                client.send(("SELECT", 1), ("EVAL", WRITING_SCRIPT, 0, count))
                if not leaves:
                    client.read(), client.read()
        round.later(0, run)


@fault(1)
def sleep(round):
    node = round.victim(round.group.nodes)
    if node:
        seconds = round.rng.uniform(0.05, 1)
        round.note(f"{node.name} sleeps {seconds:.2f} s")
        node.call("DEBUG", "SLEEP", f"{seconds:.2f}")


@fault(1)
def pause_clients(round):
    node = round.victim(round.group.nodes)
    if node:
        words = ["CLIENT", "PAUSE", round.rng.choice([50, 500, 1500]), round.rng.choice(["WRITE", "ALL"])]
        round.note(f"{node.name}: {' '.join(map(str, words))}: {node.call(*words)}")


# --- Links

@fault(4)
def cut_links(round):
    for _ in range(round.rng.randint(1, 3)):
        node = round.victim(round.group.nodes)
        if node:
            kind = "replica" if node is round.group.primary or round.rng.random() < 0.4 else "master"
            round.note(f"{node.name}: CLIENT KILL TYPE {kind}")
            node.call("CLIENT", "KILL", "TYPE", kind)
            time.sleep(round.rng.uniform(0, 0.3))


@fault(3)
def stall_link(round):
    """Bytes wait in one or both directions of a link; finally they arrive, or the link breaks."""
    node = proxied(round)
    if node:
        ways = round.rng.choice([["up"], ["down"], ["up", "down"]])
        seconds, breaks = duration(round.rng), round.rng.random() < 0.4
        round.note(f"{node.name}: its link stalls {' and '.join(ways)} for {seconds:.2f} s{', and breaks' * breaks}")
        for way in ways:
            node.proxy.open[way].clear()

        def end():
            if breaks:
                node.proxy.cut()
            node.proxy.restore()
        round.later(seconds, end)


@fault(2)
def break_link(round):
    """A link breaks in the middle of the stream, after a number of bytes."""
    node = proxied(round)
    if node:
        node.proxy.break_at = round.rng.choice([1, 100, 5000, 200000, 4000000])
        round.note(f"{node.name}: its link breaks {node.proxy.break_at} bytes later")
        if round.rng.random() < 0.5:
            choose_mode(round)
            node.call("CLIENT", "KILL", "TYPE", "master")


@fault(1)
def slow_link(round):
    node = proxied(round)
    if node:
        node.proxy.rate = round.rng.choice([100000, 1000000, 5000000])
        round.note(f"{node.name}: its link has {node.proxy.rate} bytes/s")
        round.later(duration(round.rng), node.proxy.restore)


def proxied(round):
    return round.victim([node for node in round.group.replicas() if node.by_proxy()])


@fault(3)
def break_device(round):
    """Activates the faults of a server's RDMA device that were chosen for the group."""
    node = round.victim([node for node in round.group.nodes if node.device_faults])
    if node:
        seconds = duration(round.rng)
        round.note(f"{node.name}: its RDMA device has faults for {seconds:.2f} s")
        node.break_device(True)
        round.later(seconds, lambda: node.break_device(False))
        if round.rng.random() < 0.5:
            node.call("CLIENT", "KILL", "TYPE", "master")


@fault(1)
def kill_clients(round):
    if round.group.primary.free():
        round.note("CLIENT KILL TYPE normal")
        round.group.primary.call("CLIENT", "KILL", "TYPE", "normal")


@fault(3)
def move(round):
    """A replica follows another server of the group."""
    group, rng = round.group, round.rng
    node = round.victim(group.replicas())
    if not node:
        return
    above = {node}
    while True:  # neither itself nor its own replicas
        more = {n for n in group.nodes if n.parent in above} - above
        if not more:
            break
        above |= more
    candidates = [n for n in group.nodes if n not in above and n.free()]
    if candidates:
        parent = rng.choice(candidates)
        transport = group.transport(rng, node, parent)
        round.note(f"{node.name} follows {parent.name} ({transport})")
        node.follow(parent, transport)


@fault(3)
def back_and_forth(round):
    """A replica becomes a primary for a moment; sometimes it also executes a write of its own."""
    node = round.victim(round.group.replicas())
    if node:
        wrote = round.rng.random() < 0.4
        round.note(f"{node.name}: REPLICAOF NO ONE, {'SET, ' * wrote}and back")
        node.call("REPLICAOF", "NO", "ONE")
        time.sleep(round.rng.choice([0, 0, 0.2]))
        if wrote:
            node.call("SET", "foreign", "1")
        node.follow(node.parent, node.transport)


@fault(2)
def arrange(round):
    if all(node.free() for node in round.group.nodes):
        round.group.arrange(round.rng)


# --- Ends and starts

@fault(3)
def kill_replica(round):
    end_replica(round, "is killed", lambda node: node.kill())


@fault(1)
def wipe_replica(round):
    def lose(node):
        node.kill()
        node.wipe()
    end_replica(round, "is killed and loses its files", lose)


@fault(4)
def restart_replica(round):
    words = round.rng.choice([None, None, ("NOSAVE",), ("SAVE",), ("NOW", "FORCE")])
    end_replica(round, f"ends by SHUTDOWN {' '.join(words)}" if words else "gets SIGTERM", lambda node: node.end(words))


def end_replica(round, text, end):
    node = round.victim(round.group.replicas())
    if node:
        round.note(f"{node.name} {text}")
        end(node)
        # It may start from a file older than what it has acknowledged.
        primary = round.group.primary
        node.behind = primary, int(primary.replication().get("master_repl_offset", 0)) if primary.free() else 1 << 62
        restart_later(round, node)


def restart_later(round, node):
    if round.rng.random() < 0.7:
        time.sleep(round.rng.choice([0, 0, 0.3]))
        node.follows_at_start = round.rng.random() < 0.9
        round.note(f"{node.name} starts{'' if node.follows_at_start else ' alone'}")
        node.start()
        if not node.follows_at_start:
            node.follow(node.parent, node.transport)


@fault(2)
def restart_primary(round):
    """The primary ends by SIGTERM, or is killed while it appends each write to a file: all acknowledged writes must
    exist after a restart."""
    primary = round.group.primary
    if not primary.free():
        return
    if primary.appends and round.rng.random() < 0.6:
        round.note(f"{primary.name}, the primary, is killed, and starts again from its append-only file")
        primary.kill()
    else:
        round.note(f"{primary.name}, the primary, gets SIGTERM, and starts again")
        primary.end()
    primary.follows_at_start = False
    primary.start()
    round.primary_again()


@fault(2)
def lose_primary(round):
    """The replica with the highest offset takes over. It must have all that every direct replica has acknowledged."""
    group, ledger, rng = round.group, round.load.ledger, round.rng
    primary = group.primary
    round.wait_background()
    direct = [node for node in primary.clients() if node.free()]
    if not primary.free() or not [node for node in direct if not node.genuine]:
        return
    before = [node.replication() for node in direct]
    sure = len(direct) == len(primary.clients()) and all(
        info.get("master_link_status") == "up" and
        (node.behind[0] is not primary or int(info.get("slave_repl_offset", 0)) >= node.behind[1])
        for node, info in zip(direct, before))
    round.note(f"{primary.name}, the primary, is killed{'' if sure else '; not all replicas are up'}")
    primary.kill()
    ledger.park()
    infos = {node: node.replication() for node in direct}
    usable = {node: int(info["slave_repl_offset"]) for node, info in infos.items()
              if info.get("master_sync_in_progress") == "0" and not node.genuine}
    sure = sure and all(info.get("master_sync_in_progress") == "0" for info in infos.values())
    best = max(usable, key=usable.get) if usable else None
    if best and not sure and "async_loading" in str(infos[best]):
        best = None
    if not best or usable[best] <= 0 or not sure:
        # No replica can safely take over: the primary restarts from its files.
        round.note(f"{primary.name} starts again from its files")
        primary.follows_at_start = False
        primary.start()
        ledger.unpark(ledger.replied if primary.appends else 0)
        round.primary_again()
        return
    round.note(f"{best.name} takes over with offset {usable[best]}")
    group.promote(best, rng)
    primary.parent, primary.transport = best, group.transport(rng, primary, best)
    if rng.random() < 0.5:
        primary.wipe()
    ledger.unpark(ledger.held)


@fault(2)
def failover(round):
    group, rng = round.group, round.rng
    primary = group.primary
    target = round.victim([node for node in primary.clients() if not node.genuine])
    if not target or not primary.free() or not target.is_up():
        return
    primary.transport = target.transport.removesuffix(BY_PROXY)  # it follows the new primary, without a proxy
    primary.set(primary.transport_options())
    words = ["FAILOVER", "TO", "127.0.0.1", target.link_port()]
    forced = rng.random() < 0.25
    if forced:
        round.load.ledger.park()
        words += ["FORCE"]
    words += ["TIMEOUT", rng.choice([100, 1000, 5000])]
    reply = primary.call(*words)
    round.note(f"{primary.name}: {' '.join(map(str, words))} ({target.name}): {reply}")
    if not isinstance(reply, Error) and rng.random() < 0.15:
        time.sleep(rng.choice([0, 0.005, 0.1]))
        round.note(f"FAILOVER ABORT: {primary.call('FAILOVER', 'ABORT')}")
    if not isinstance(reply, Error) and until(lambda: primary.free() and primary.replication().get(
            "master_failover_state") == "no-failover", 20) is None:
        round.note("it does not come to an end; ABORT: %s" % primary.call("FAILOVER", "ABORT"))
    if primary.replication()["role"] == "slave":
        round.note(f"{target.name} is the primary")
        group.primary, target.parent, primary.parent = target, None, target
        until(lambda: target.replication()["role"] == "master", 20)
        for node in group.nodes:
            if node is not primary and node.parent is primary and node.free():
                node.follow(target, group.transport(rng, node, target))
            elif node is not primary and node.parent is primary:
                node.parent, node.transport = target, group.transport(rng, node, target)
    else:
        primary.transport = "tcp"
        primary.set(primary.transport_options())
    if forced:
        round.load.ledger.unpark(0)


# --- Synchronizations

SYNC_MODES = {
    "repl-diskless-sync": ["yes", "yes", "no"],
    "repl-diskless-load": ["disabled", "on-empty-db", "swapdb", "flush-before-load"],
    "dual-channel-replication-enabled": ["yes", "no", "no"],
    "rdb-key-save-delay": ["0", "0", "30", "300"],
    "repl-diskless-sync-delay": ["0", "0", "1"],
    "replica-lazy-flush": ["yes", "no"],
    "rdma-replication-snapshot-memory": ["64mb", "64mb", "4mb"],
    "forkless-buffer-limit": ["64mb", "1mb"],
}


def choose_mode(round):
    chosen = {name: round.rng.choice(values) for name, values in SYNC_MODES.items()}
    for node in round.group.nodes:
        for name, value in chosen.items():
            if node.free():
                node.try_set(name, value)
    round.note("synchronizations: " + ", ".join(f"{name} {value}" for name, value in chosen.items()))


def full_sync(round):
    """The replicas of a server synchronize again."""
    node = round.victim([n for n in round.group.nodes if n.clients()])
    if node:
        choose_mode(round)
        # A replica of a replica takes over its replication id, and resumes only if the id is the same.
        if node.parent or round.rng.random() < 0.3:
            for replica in node.clients():
                if replica.free():
                    round.note(f"{replica.name} forgets what it has")
                    replica.call("REPLICAOF", "NO", "ONE")
                    replica.call("DEBUG", "CHANGE-REPL-ID")
                    replica.follow(node, replica.transport)
        else:
            round.note(f"{node.name} has a new replication id")
            node.call("DEBUG", "CHANGE-REPL-ID")
            node.call("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(round.rng.choice([0, round.rng.uniform(0, 0.15), round.rng.uniform(0.05, 0.6)]))
    return node


@fault(2)
def synchronize(round):
    full_sync(round)


@fault(3)
def synchronize_and_freeze(round):
    node = full_sync(round)
    if node:
        if round.rng.random() < 0.8:
            node = round.victim(node.clients())
        if node and node.free():
            hold(round, node, duration(round.rng))


@fault(2)
def synchronize_and_kill(round):
    node = full_sync(round)
    replica = node and round.victim(node.clients())
    if replica:
        round.note(f"{replica.name} is killed")
        replica.kill()
        if round.rng.random() < 0.5:
            replica.wipe()
        restart_later(round, replica)


@fault(1)
def synchronize_and_cut(round):
    if full_sync(round):
        cut_links(round)


@fault(1)
def synchronize_and_busy(round):
    node = full_sync(round)
    replica = node and round.victim(node.clients())
    if replica:
        busy(round, replica, reading_script(round))


# --- Limits, files, options

@fault(2)
def small_backlog(round):
    node = round.victim(round.group.nodes)
    if node:
        size = round.rng.choice(["16kb", "64kb", "1mb"])
        round.note(f"{node.name}: repl-backlog-size {size}")
        node.try_set("repl-backlog-size", size)


@fault(2)
def output_limit(round):
    node = round.victim(round.group.nodes)
    if node:
        limit = round.rng.choice(["replica 100kb 0 0", "replica 1mb 50kb 1", "replica 5mb 1mb 1"])
        round.note(f"{node.name}: client-output-buffer-limit {limit}")
        node.try_set("client-output-buffer-limit", limit)


@fault(2)
def eviction(round):
    """Keys are evicted on the primary; the limit has no effect on its replicas."""
    group, rng = round.group, round.rng
    nodes = [group.primary] if rng.random() < 0.7 else group.nodes
    policy = rng.choice(["volatile-random", "volatile-lru", "volatile-lfu", "volatile-ttl"])
    for node in nodes:
        if node.free():
            used = int(node.info("memory")["used_memory"])
            round.note(f"{node.name}: maxmemory {used}, {policy}")
            node.try_set("maxmemory-policy", policy)
            node.try_set("maxmemory", used)


@fault(1)
def eviction_of_all(round):
    """The same with a policy that evicts any key, including those of the ledger."""
    primary = round.group.primary
    if primary.free() and round.load.ledger.park():
        round.load.ledger.evicted = True
        used = int(primary.info("memory")["used_memory"]) - round.rng.choice([0, 100000, 2000000])
        policy = round.rng.choice(["allkeys-random", "allkeys-lru", "allkeys-lfu"])
        round.note(f"{primary.name}: maxmemory {used}, {policy}")
        primary.try_set("maxmemory-policy", policy)
        primary.try_set("maxmemory", used)


@fault(1)
def active_expiry(round):
    node = round.victim(round.group.ours())
    if node:
        value = round.rng.choice([0, 1])
        round.note(f"{node.name}: DEBUG SET-ACTIVE-EXPIRE {value}")
        node.call("DEBUG", "SET-ACTIVE-EXPIRE", value)


@fault(2)
def append_only(round):
    """Turns a replica's append-only file on or off. On return the file is complete, or no longer used."""
    node = round.victim(round.group.replicas())
    if node:
        value = "no" if node.appends else "yes"
        round.note(f"{node.name}: appendonly {value}: {node.append(value)}")
        if value == "yes" and not node.appends:
            round.note(f"{node.name}: its append-only file is not complete; appendonly no: {node.append('no')}")


@fault(1)
def timeouts(round):
    node = round.victim(round.group.nodes)
    if node:
        seconds = round.rng.choice([1, 2, 5])
        round.note(f"{node.name}: repl-timeout {seconds}")
        node.try_set("repl-timeout", seconds)


@fault(2)
def reload(round):
    """As in Valkey, DEBUG RELOAD of a primary drops expired keys without propagating that, so it is used only on
    replicas. A genuine replica rejects its primary's stream during DEBUG LOADAOF."""
    node = round.victim(round.group.ours())
    if node:
        choices = ["RELOAD"] * (node is not round.group.primary) + ["LOADAOF"] * node.appends
        if choices:
            word = round.rng.choice(choices)
            round.note(f"{node.name}: DEBUG {word}: {node.call('DEBUG', word, timeout=60)}")


@fault(1)
def save(round):
    node = round.victim(round.group.nodes)
    if node:
        name = round.rng.choice(["BGSAVE", "BGREWRITEAOF", "SAVE"])
        round.note(f"{node.name}: {name}: {node.call(name, timeout=60)}")


@fault(3)
def change_options(round):
    for _ in range(round.rng.randint(1, 6)):
        node = round.victim(round.group.nodes)
        if node:
            name, value = random_option(round.rng)
            if node.genuine and name == "aof-use-rdb-preamble":  # Group has the reason
                continue
            reply = node.call("CONFIG", "SET", name, value, timeout=60)
            round.note(f"{node.name}: CONFIG SET {name} {value}: {reply}")
