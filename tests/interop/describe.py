#!/usr/bin/env python3
"""What the server says of itself, compared with a genuine one: COMMAND, COMMAND DOCS, COMMAND INFO of every command
ours has, the names and defaults of all options, the sections and fields of INFO. The wording of summaries and the like
is ours and not compared."""
import re
import subprocess

from common import Client, Map, Report, Server, genuine, ours

report = Report()
theirs_binary = genuine("valkey-server")
if not theirs_binary:
    report.missing("comparison with a genuine server", "no genuine valkey-server is installed")
    report.finish()


def pairs(value):
    """A map of either protocol as a dictionary."""
    if isinstance(value, Map):
        return dict((k, v) for k, v in value)
    return dict(zip(value[::2], value[1::2]))


def canon(value):
    """Sets and maps in a fixed order, free texts left out."""
    if isinstance(value, list):
        return [canon(v) for v in value]
    return value


def command_entry(info):
    """An entry of COMMAND, with the order that does not matter taken out."""
    name, arity, flags, first, last, step, categories, tips, specs, subs = info
    out = {
        "name": name, "arity": arity,
        # Since 8.1 the slow log is one of the command logs.
        "flags": sorted("skip_commandlog" if flag == "skip_slowlog" else flag for flag in flags), "first key": first,
        "last key": last, "step": step,
        "categories": sorted(categories), "tips": sorted(tips),
    }
    for i, spec in enumerate(specs):
        spec = pairs(spec)
        spec.pop(b"notes", None)
        spec[b"flags"] = sorted(spec[b"flags"])
        out["key spec %d" % i] = repr(canon(spec))
    out["key specs"] = len(specs)
    return out, subs


their_version = subprocess.run([theirs_binary, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
their_version = tuple(int(n) for n in re.search(r"v=(\d+)\.(\d+)", their_version).groups())


# What Valkey added to commands after the version that is compared with is left out of the comparison.
def is_newer(since):
    return tuple(int(n) for n in since.split(b"."))[:2] > their_version


FREE_TEXT = (b"summary", b"complexity", b"notes", b"deprecated_since", b"replaced_by", b"history")


def compare_docs(name, mine, theirs):
    wrong = []
    for field in (b"since", b"group", b"module", b"doc_flags", b"deprecated_since"):
        if name.startswith("slowlog") and field in (b"doc_flags", b"deprecated_since"):
            continue  # deprecated by COMMANDLOG, later than the genuine server here
        if mine.get(field) != theirs.get(field):
            wrong.append("%s %r, not %r" % (field.decode(), mine.get(field), theirs.get(field)))
    # Complexities are told in words; the orders of magnitude in them must be the same.
    a, b = mine.get(b"arguments"), theirs.get(b"arguments")
    if a or b:
        compare_arguments(name, a or [], b or [], wrong)
    history = [h[0] for h in theirs.get(b"history", [])]
    ours_history = [h[0] for h in mine.get(b"history", []) if not is_newer(h[0])]
    if sorted(history) != sorted(ours_history):
        wrong.append("history of %r, not %r" % (ours_history, history))
    return wrong


def compare_arguments(path, mine, theirs, wrong):
    mine = [argument for argument in mine if not is_newer(pairs(argument).get(b"since", b"0"))]
    if len(mine) != len(theirs):
        wrong.append("%s has %d arguments, not %d" % (path, len(mine), len(theirs)))
        return
    for a, b in zip(mine, theirs):
        a, b = pairs(a), pairs(b)
        where = "%s %s" % (path, b.get(b"name", b"?").decode())
        for field in (b"name", b"type", b"token", b"since", b"key_spec_index", b"display_text", b"deprecated_since"):
            if a.get(field) != b.get(field):
                wrong.append("%s: %s %r, not %r" % (where, field.decode(), a.get(field), b.get(field)))
        if sorted(a.get(b"flags", [])) != sorted(b.get(b"flags", [])):
            wrong.append("%s: flags %r, not %r" % (where, a.get(b"flags"), b.get(b"flags")))
        compare_arguments(where, a.get(b"arguments", []), b.get(b"arguments", []), wrong)


def info_fields(text):
    out, section = {}, None
    for line in text.decode("latin-1").split("\r\n"):
        if line.startswith("# "):
            section = line[2:]
            out[section] = []
        elif ":" in line:
            out[section].append(line.split(":", 1)[0])
    return out


with Server(ours(), "--enable-debug-command", "yes") as a, Server(theirs_binary, "--enable-debug-command", "yes") as b:
    mine, theirs = Client(a.port), Client(b.port)

    # COMMAND and COMMAND INFO
    table_mine = {i[0].decode(): i for i in mine.call("COMMAND")}
    table_theirs = {i[0].decode(): i for i in theirs.call("COMMAND")}
    count = 0

    def compare_entry(x, y):
        global count
        count += 1
        ex, subs_x = command_entry(x)
        ey, subs_y = command_entry(y)
        wrong = ["%s: %r, not %r" % (k, ex.get(k), ey.get(k)) for k in sorted(set(ex) | set(ey))
                 if ex.get(k) != ey.get(k)]
        report.check("COMMAND of " + ey["name"].decode(), not wrong, "; ".join(wrong))
        names_y = {s[0]: s for s in subs_y}
        for s in subs_x:
            if s[0] in names_y:
                compare_entry(s, names_y[s[0]])
            elif s[0].split(b"|")[0].decode() not in ("client", "cluster", "debug", "commandlog"):
                report.check("COMMAND of " + s[0].decode(), False, "the genuine server has no such subcommand")

    known_newer = {"delifeq", "msetex", "commandlog", "clusterscan", "hexpire", "hpexpire", "hexpireat", "hpexpireat",
                   "hpersist", "httl", "hpttl", "hexpiretime", "hpexpiretime", "hgetex", "hsetex", "hgetdel"}
    for name in sorted(table_mine):
        if name in table_theirs:
            compare_entry(table_mine[name], table_theirs[name])
        else:
            report.check("%s is a command of newer servers" % name, name in known_newer or name.startswith("blob."),
                         "the genuine server has no such command")
    report.check("commands in common", count > 30, "only %d" % count)
    print("%d commands and subcommands compared; %d of the genuine server's are not there yet" %
          (count, len(set(table_theirs) - set(table_mine))))

    # COMMAND LIST, subcommands included: cluster mode and modules are not there.
    listed = [{name.decode() for name in client.call("COMMAND", "LIST")} for client in (mine, theirs)]
    absent = {name for name in listed[1] - listed[0] if not name.startswith(("cluster|", "module|load",
                                                                             "module|unload"))
              and name != "clusterscan"}
    report.equal("COMMAND LIST has the commands of the genuine server", [], sorted(absent))

    for name in ("get", "client|kill", "config|set", "nosuch"):
        x, y = mine.call("COMMAND", "INFO", name), theirs.call("COMMAND", "INFO", name)
        report.check("COMMAND INFO " + name, (x[0] is None) == (y[0] is None)
                     and (x[0] is None or command_entry(x[0])[0] == command_entry(y[0])[0]), x)

    # COMMAND DOCS
    docs_mine = {k.decode(): pairs(v) for k, v in pairs(mine.call("COMMAND", "DOCS")).items()}
    docs_theirs = {k.decode(): pairs(v) for k, v in pairs(theirs.call("COMMAND", "DOCS")).items()}

    def compare_doc(name, x, y):
        wrong = compare_docs(name, x, y)
        report.check("COMMAND DOCS of " + name, not wrong, "; ".join(wrong))
        subs = pairs(y.get(b"subcommands", []))
        for sub, doc in pairs(x.get(b"subcommands", [])).items():
            if sub in subs:
                compare_doc(sub.decode(), pairs(doc), pairs(subs[sub]))

    for name in sorted(docs_mine):
        if name in docs_theirs:
            compare_doc(name, docs_mine[name], docs_theirs[name])

    # COMMAND LIST and its filters, for what both have
    both = set(table_mine) & set(table_theirs)
    for filter_by in (("PATTERN", "*set*"), ("ACLCAT", "fast"), ("ACLCAT", "dangerous"), ("ACLCAT", "string"),
                      ("PATTERN", "client|*")):
        x = {n for n in mine.call("COMMAND", "LIST", "FILTERBY", *filter_by) if n.split(b"|")[0].decode() in both}
        y = {n for n in theirs.call("COMMAND", "LIST", "FILTERBY", *filter_by) if n in x
             or n.split(b"|")[0].decode() in both and b"|" not in n}
        report.check("COMMAND LIST FILTERBY " + " ".join(filter_by), y <= x, "missing %r" % sorted(y - x))

    # GETKEYS of lines that both know
    lines = ["GET a", "MSET a 1 b 2", "SET a b EX 10", "SET a b GET", "COPY a b", "RENAME a b", "LCS a b",
             "OBJECT ENCODING a", "DEL a b c", "BITOP AND a b c", "EVAL x 2 a b c", "ZUNIONSTORE d 2 a b",
             "XREAD STREAMS a b 0 0", "SORT a STORE b", "MIGRATE h 1 k 0 1", "PING"]
    for line in lines:
        words = line.split()
        if words[0].lower() not in both:
            continue
        for how in ("GETKEYS", "GETKEYSANDFLAGS"):
            x, y = mine.call("COMMAND", how, *words), theirs.call("COMMAND", how, *words)
            report.equal("COMMAND %s %s" % (how, line), repr(canon(y)), repr(canon(x)))

    # CONFIG GET *
    config_mine = pairs(mine.call("CONFIG", "GET", "*"))
    config_theirs = pairs(theirs.call("CONFIG", "GET", "*"))
    missing = sorted(k.decode() for k in set(config_theirs) - set(config_mine) if not k.startswith(b"tls"))
    report.check("CONFIG GET * has every option of the genuine server", not missing, missing)
    # Values that depend on how the servers were started here.
    differ = {b"port", b"dir", b"bind", b"pidfile", b"logfile", b"save", b"unixsocket", b"jemalloc-bg-thread"}
    for key in sorted(set(config_mine) & set(config_theirs)):
        if key not in differ:
            report.equal("default of " + key.decode(), config_theirs[key], config_mine[key])

    # INFO
    info_mine, info_theirs = info_fields(mine.call("INFO", "everything")), info_fields(theirs.call("INFO",
                                                                                                   "everything"))
    for section, fields in info_theirs.items():
        if section in ("Commandstats", "Errorstats", "Latencystats", "Keyspace", "Modules"):
            continue
        # A line for each script engine: this server has none.
        missing = [f for f in fields if f not in info_mine.get(section, []) and not f.startswith("engine_")]
        report.check("INFO %s has the fields of the genuine server" % section, not missing, missing)

    # DEBUG has the subcommands of the genuine server.
    if their_version >= (9, 1):
        help_mine, help_theirs = (client.call("DEBUG", "HELP") for client in (mine, theirs))
        report.equal("DEBUG HELP has the lines of the genuine server", [],
                     [line for line in help_theirs if line not in help_mine])

    # LATENCY: the forms of the replies, and the bounds of histograms.
    if their_version >= (9, 1):
        latest, bounds, graphs = [], [], []
        for client in (mine, theirs):
            client.call("CONFIG", "SET", "latency-monitor-threshold", "5")
            for seconds in ("0.00001", "0.0001", "0.002", "0.01", "0.1"):
                client.call("DEBUG", "SLEEP", seconds)
            latest.append([[type(field) for field in event] for event in client.call("LATENCY", "LATEST")])
            bounds.append(client.call("LATENCY", "HISTOGRAM", "debug")[1][3][:-1:2][-1])
            graphs.append([re.sub(r"[0-9]+", "N", line) for line in client.call("LATENCY", "GRAPH",
                                                                                "command").decode().split("\n")][:2])
            client.call("CONFIG", "SET", "latency-monitor-threshold", "0")
        report.equal("LATENCY LATEST has the fields of the genuine server", latest[1], latest[0])
        report.equal("LATENCY GRAPH has the head of the genuine server", graphs[1], graphs[0])
        known = {1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056, 2113, 4227, 8454, 16908, 33816, 67633, 135266, 270532,
                 541065, 1073741}
        report.check("LATENCY HISTOGRAM has the bounds of the genuine server", set(bounds) <= known, bounds)

    # The doctors find the same in the same situations; their sentences are ours.
    if their_version >= (9, 1):
        def findings_of_latency(client):
            text = client.call("LATENCY", "DOCTOR").decode()
            events = [re.sub(r"[0-9.]*[0-9]", "N", line) for line in re.findall(r"^[0-9]+\. .*$", text, re.M)]
            slow = bool(re.search(r"^- .*(?:Slow Log|COMMANDLOG)", text, re.M))
            return "CONFIG SET latency-monitor-threshold" in text, events, slow

        def findings_of_memory(client):
            text = client.call("MEMORY", "DOCTOR").decode()
            # The other findings depend on the allocator and on the size of the program.
            peak = bool(re.search(r"^ \* (?:Peak memory|Past peak):", text, re.M))
            return bool(re.search(r"very little memory|less than 5 megabytes", text)), peak

        found = []
        for client in (mine, theirs):
            seen = []
            client.call("LATENCY", "RESET")
            seen.append(("not monitored", findings_of_latency(client)))
            client.call("CONFIG", "SET", "latency-monitor-threshold", "20")
            client.call("LATENCY", "RESET")
            # A slow machine may have had a spike of its own in between.
            seen.append(("monitored", findings_of_latency(client)[0]))
            client.call("DEBUG", "SLEEP", "0.03")
            is_off, events, advice = findings_of_latency(client)
            seen.append(("a slow command", is_off, [line for line in events if ". command: " in line], advice))
            client.call("CONFIG", "SET", "latency-monitor-threshold", "0")
            client.call("FLUSHALL", "SYNC")
            client.call("CONFIG", "RESETSTAT")
            seen.append(("little data", findings_of_memory(client)))
            client.call("DEBUG", "POPULATE", "50000", "key", "200")
            seen.append(("the most data so far", findings_of_memory(client)))
            client.call("FLUSHALL", "SYNC")
            client.call("DEBUG", "POPULATE", "25000", "key", "200")
            seen.append(("half of it", findings_of_memory(client)))
            found.append(seen)
        for want, got in zip(found[1], found[0]):
            report.equal("the doctors with %s" % want[0], want, got)
        names = [[pair[0].decode() for pair in sorted(pairs(client.call("MEMORY", "STATS")).items())]
                 for client in (mine, theirs)]
        report.equal("MEMORY STATS has the fields of the genuine server", names[1], names[0])
        named = [list(pairs(pairs(client.call("MEMORY", "STATS"))[b"db.0"])) for client in (mine, theirs)]
        report.equal("MEMORY STATS has the fields of a database", named[1], named[0])
        for client in (mine, theirs):
            client.call("FLUSHALL", "SYNC")

    # HELP texts name the same subcommands.
    for container in sorted(both):
        if not any(s[0].endswith(b"|help") for s in table_theirs[container][9]) or container in ("cluster",):
            continue
        x, y = mine.call(container, "HELP"), theirs.call(container, "HELP")
        if not isinstance(x, list):
            report.check("%s HELP" % container, False, x)
            continue
        report.equal("%s HELP: first line" % container, y[0], x[0])
        report.equal("%s HELP: last lines" % container, y[-2:], x[-2:])

# --check-system: the same checks first, with the same results. How fast the clock is depends on the moment.
def checks_of(path):
    out = subprocess.run([path, "--check-system"], stdout=subprocess.PIPE, check=False).stdout.decode()
    return [check for check in re.findall(r"^\[([\w-]+)\]\.\.\.(\w+)", out, re.M) if not check[0].startswith("rdma-")]


if their_version >= (9, 1):
    x, y = checks_of(ours()), checks_of(theirs_binary)
    report.equal("--check-system makes the checks of the genuine server", [name for name, _ in y],
                 [name for name, _ in x])
    report.equal("--check-system finds what the genuine server finds", [c for c in y if c[0] != "slow-clocksource"],
                 [c for c in x if c[0] != "slow-clocksource"])

report.finish()
