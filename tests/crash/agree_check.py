"""agree_check.py: the checks after a round of tests/crash/agree, and the report of differences."""
import time

from agree_load import DATABASES, LEDGER_DATABASE
from resp import Client
from servers import until

SAME_WITHIN = 8  # seconds in which keys that expire now expire on all servers
LONGEST_EXPIRY = 30  # seconds after which keys that clients let expire soon are deleted
SHOWN = 10
BAD_LINES = ("CRITICAL", "BUG REPORT", "ERROR: AddressSanitizer", "runtime error:", "ASSERTION FAILED",
             "Protocol error from primary", "Bad data format")


class Wrong(AssertionError):
    """A check has failed."""


def offsets(group):
    """{name: offset}, or None if an offset changed while they were read."""
    def read(node):
        info = node.replication()
        return int(info["master_repl_offset"] if node is group.primary else info.get("slave_repl_offset", -1))
    first = read(group.primary)
    found = {node.name: read(node) for node in group.nodes}
    return found if found[group.primary.name] == first == read(group.primary) else None


def ahead(node):
    """A description if the replica has more of the stream than the server that it follows. The replica is queried
    first."""
    if not (node.parent and node.free() and node.parent.free()):
        return None
    mine, above = node.replication(), node.parent.replication()
    if mine.get("master_link_status") != "up" or mine.get("role") != "slave" or not above:
        return None
    if mine["master_replid"] != above["master_replid"] or mine["master_port"] != str(node.port_of(node.parent)):
        return None
    if int(mine["slave_repl_offset"]) <= int(above["master_repl_offset"]):
        return None
    return (f"{node.name} has offset {mine['slave_repl_offset']}, {node.parent.name}, which it follows, only "
            f"{above['master_repl_offset']}")


def never_ahead(group):
    """A replica never has more than the server that it follows, except for a moment: a server that copies its data
    again drops its replicas, which notice that a little later, or after a proxy has passed it on."""
    for node in group.replicas():
        if ahead(node) and not until(lambda: not node.proxy.is_clear() or not ahead(node), 1):
            raise Wrong(ahead(node) or f"{node.name} was ahead of the server that it follows for a second")


def wait_until_equal(group):
    """Waits until the links are up and the offsets agree."""
    def missing():
        return [node.name for node in group.replicas() if not node.is_up()]
    if not until(lambda: not missing(), 90):
        raise Wrong(f"the links of {missing()} do not come up")
    seen = {}
    def agreed():
        nonlocal seen
        never_ahead(group)
        seen = offsets(group) or seen
        return seen and len(set(seen.values())) == 1
    if not until(agreed, 60):
        raise Wrong(f"the offsets do not agree: {seen}")


def libraries(node):
    listed = node.call("FUNCTION", "LIST", "WITHCODE")
    return sorted((entry[1], entry[-1]) for entry in listed)


def state(node):
    return node.call("DEBUG", "DIGEST"), tuple(map(tuple, libraries(node)))


def client_of_stream(node):
    """A connection whose commands find keys and fields that have expired but are not deleted yet, as those of a
    primary's stream do."""
    client = Client(node.port)
    client.call("DEBUG", "ROLE", "AS-PRIMARY")
    return client


def state_with_expired(node):
    with client_of_stream(node) as client:
        return client.call("DEBUG", "DIGEST"), tuple(map(tuple, libraries(node)))


def unequal(group, nodes):
    """The replicas that do not have the data and functions of the primary within SAME_WITHIN. A comparison is valid
    only if nothing has changed on the primary meanwhile: a key that expires during it is missing on the servers that
    are queried later."""
    end = time.monotonic() + SAME_WITHIN
    while True:
        wanted = state(group.primary)
        odd = [node for node in nodes if state(node) != wanted]
        if not odd or time.monotonic() > end and (state(group.primary) == wanted or
                                                  time.monotonic() > end + LONGEST_EXPIRY):
            return odd
        time.sleep(0.1)


def unequal_at_once(group, nodes):
    """The replicas that do not have the data and functions of the primary at the same offset. Keys that have expired
    count until the primary deletes them: a difference of these lasts if another server becomes the primary now. Not
    for groups with a genuine server, which as the primary causes such differences."""
    def compared():
        before = offsets(group)
        if not before or len(set(before.values())) != 1:
            return None
        wanted = state_with_expired(group.primary)
        odd = [node for node in nodes if state_with_expired(node) != wanted]
        return offsets(group) == before and (odd,)
    period = group.primary.call("CONFIG", "GET", "repl-ping-replica-period")[1]
    group.primary.call("CONFIG", "SET", "repl-ping-replica-period", "3600")  # a busy machine compares for longer
    try:
        found = until(compared)
    finally:
        group.primary.call("CONFIG", "SET", "repl-ping-replica-period", period)
    if not found:
        raise Wrong("the offset does not stay the same while the copies are compared")
    return found[0]


def compare(group, nodes):
    odd = unequal(group, nodes) if any(node.genuine for node in group.nodes) else unequal_at_once(group, nodes)
    if not odd:
        return
    raise Wrong(f"{', '.join(node.name for node in odd)} differ from {group.primary.name}, the primary:\n" +
                "\n".join(differences(group.primary, node) for node in odd))


def differences(primary, node):
    """The first keys that differ, with their values."""
    lines, more = [], 0
    if libraries(primary) != libraries(node):
        lines.append(f"    functions: {libraries(primary)}, {node.name}: {libraries(node)}")
    connect = (lambda server: Client(server.port)) if node.genuine or primary.genuine else client_of_stream
    with connect(primary) as a, connect(node) as b:
        for db in [*range(DATABASES), LEDGER_DATABASE]:
            both = [(c.call("SELECT", db), c.call("DBSIZE"), set(c.call("KEYS", "*")))[1:] for c in (a, b)]
            if both[0][0] != both[1][0]:
                lines.append(f"    database {db}: {both[0][0]} keys, {node.name}: {both[1][0]}")
            for key in sorted(both[0][1] | both[1][1]):
                values = [(c.call("DEBUG", "DIGEST-VALUE", key), c.call("PEXPIRETIME", key)) for c in (a, b)]
                if values[0] != values[1]:
                    more += 1
                    if more <= SHOWN:
                        lines.append(f"    database {db}, key {key!r}: " + f", {node.name}: ".join(
                            f"{c.call('TYPE', key)} {value[0][0]} PEXPIRETIME {value[1]} "
                            f"DUMP {(c.call('DUMP', key) or b'')[:120]!r}" for c, value in zip((a, b), values)))
    return "\n".join(lines + [f"    {more} keys differ"])


def logs(group):
    # A genuine server may send the file that FLUSHALL saves instead of the file for a synchronization: its replicas
    # then execute commands whose effects the file already contains.
    copies = ["produced by Valkey version " + node.info("server").get("valkey_version", "") for node in group.nodes
              if node.genuine]
    for node in group.nodes:
        text = node.output(None)
        forgiven = "sending an error to its primary" if any(copy in text for copy in copies) else None
        for line in text.splitlines():
            if any(bad in line for bad in BAD_LINES) and not (forgiven and forgiven in line):
                raise Wrong(f"{node.name} logs: {line[:300]}")


def written(node):
    """A replica must keep what it has acknowledged as synced (FACK), which is less than what it has executed."""
    info = node.info("persistence")
    return (info.get("aof_rewrite_in_progress") == info.get("aof_rewrite_scheduled") == "0" and
            info.get("aof_buffer_length") == info.get("aof_pending_bio_fsync") == "0" and
            info.get("loading") == "0" and info.get("aof_enabled") == "1")


def after_restart(round, node):
    """Kills a server and starts it alone: from its append-only file, or an RDB file that was saved after the last
    write, it must have the same data as the group."""
    group = round.group
    if not node.appends:
        reply = None

        def saved():  # not while a child saves because of `save 1 1`
            nonlocal reply
            reply = node.call("SAVE", timeout=60)
            return reply == "OK"
        if not until(saved, 60):
            raise Wrong(f"{node.name}: SAVE: {reply}")
    elif not until(lambda: written(node), 60):
        raise Wrong(f"{node.name}: the append-only file is not brought to the disk: {node.info('persistence')}")
    round.note(f"{node.name} is killed after the round and starts from its {'append-only' if node.appends else 'RDB'}"
               " file")
    node.kill()
    node.follows_at_start = False
    node.start()
    if node is group.primary:
        return
    if unequal(group, [node]):
        raise Wrong(f"{node.name} has lost data after its restart:\n{differences(group.primary, node)}")
    node.follow(node.parent, node.transport)


def settle(round):
    """After the round all faults are repaired, and all copies must be equal."""
    group, ledger = round.group, round.load.ledger
    round.load.stop()
    round.wait_background()
    group.check_alive()
    group.mend()
    round.load.join()
    if ledger.trouble:
        raise Wrong(ledger.trouble)
    wait_until_equal(group)
    compare(group, group.replicas())
    with Client(group.primary.port) as client:
        ledger.check(client)
        if not ledger.restart(client):
            raise Wrong("the ledger cannot begin the log of the next round")
    logs(group)
    if round.rng.random() < 0.3:
        wait_until_equal(group)
        node = round.rng.choice(group.ours())
        after_restart(round, node)
        wait_until_equal(group)
        compare(group, group.replicas())
