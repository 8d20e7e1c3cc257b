"""The metrics of our server: the exporter in utils/grafana keeps to the text format of Prometheus and has every figure
that the dashboard names, and the exporter of the distribution (prometheus-redis-exporter) reads INFO as it reads that
of a genuine server. Where promtool is installed it checks the format, too."""
import json
import os
import re
import subprocess
import time
import urllib.request

from common import ROOT, Client, Report, Server, free_port, installed, newest_server, ours

GRAFANA = os.path.join(ROOT, "utils", "grafana")
SECONDS = 60
COLUMNS = 24  # of Grafana's grid
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$', re.M)


def page_of(*command):
    """The page that an exporter serves; {port} in its arguments is where."""
    for _ in range(5):
        port = free_port()
        process = subprocess.Popen([word.format(port=port) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + SECONDS
        try:
            while time.time() < end and process.poll() is None:
                try:
                    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=SECONDS) as reply:
                        return reply.read().decode()
                except OSError:
                    time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
    raise RuntimeError("the exporter did not start")


def samples_of(text):
    """[(name, {label: value}, number)]"""
    return [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(number))
            for name, labels, number in SAMPLE.findall(text)]


def scrape(exporter, server):
    return samples_of(page_of(exporter, "-redis.addr", "redis://127.0.0.1:%d" % server.port, "-web.listen-address",
                              "127.0.0.1:{port}"))


def names(samples):
    """Names of the figures that every server has; commands that were not called and events have none."""
    return {name for name, _, _ in samples if name.startswith("redis_") and not name.startswith("redis_exporter_")}


def dashboard():
    """[(panel, expression)]"""
    with open(os.path.join(GRAFANA, "valkey-rdma.json"), encoding="utf-8") as file:
        board = json.load(file)
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]


def check_model(report):
    """What Grafana shows wrongly without a word: an import gives no errors."""
    with open(os.path.join(GRAFANA, "valkey-rdma.json"), encoding="utf-8") as file:
        text = file.read()
    board = json.loads(text)
    report.check("the dashboard has a short uid and a schema version", 0 < len(board["uid"]) <= 40
                 and isinstance(board["schemaVersion"], int))
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval", "__interval",
                                                                                  "__range", "__all"}
    used = set(re.findall(r"\$\{?(\w+)", text))
    report.check("the variables of the dashboard are defined", used <= variables, sorted(used - variables))
    panels, taken = board["panels"], {}
    report.equal("each panel has an id of its own", len(panels), len({panel["id"] for panel in panels}))
    for panel in panels:
        at, title = panel["gridPos"], panel["title"]
        report.check("panel %s is within the grid" % title, at["x"] >= 0 and at["w"] > 0 and at["h"] > 0
                     and at["x"] + at["w"] <= COLUMNS, at)
        for place in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
            if taken.setdefault(place, title) != title:
                report.check("panel %s covers no other panel" % title, False, "%s at %s" % (taken[place], place))
                break
        report.check("panel %s is of a type of Grafana" % title, panel["type"] in ("row", "stat", "timeseries"),
                     panel["type"])
        targets = panel.get("targets", [])
        if panel["type"] == "row":
            continue
        unit = panel["fieldConfig"]["defaults"]["unit"]
        report.check("panel %s has a unit of Grafana" % title, unit in ("Bps", "bytes", "ops", "percentunit", "s",
                                                                        "short"), unit)
        report.check("panel %s has queries" % title, targets
                     and len({target["refId"] for target in targets}) == len(targets))
        for source in [panel] + targets:
            report.equal("panel %s: data source" % title, {"type": "prometheus", "uid": "${datasource}"},
                         source["datasource"])
        for target in targets:
            expression, keys = target["expr"], set(re.findall(r'\bkey="(\w+)"', target["expr"]))
            # Prometheus matches the labels of both sides, so a quotient of two keys is empty without this.
            report.check("panel %s: sides with different keys are matched" % title, len(keys) < 2
                         or "ignoring(key)" in expression or
                         " by (" in expression, expression)
            report.check("panel %s: brackets are paired" % title, all(expression.count(a) == expression.count(b) for a,
                                                                      b in ("()", "[]", "{}")), expression)


def use(server):
    """Something to count."""
    client = Client(server.port)
    for command in ["SET", "key", "value"], ["GET", "key"], ["GET", "absent"], ["SUBSTR"], ["NOSUCH"], [
            "EVAL", r"""return redis.error_reply('QUO"TE\\ back slash')""", "0"]:
        client.call(*command)
    client.close()


def check_format(report, text):
    """The grammar of the text exposition format 0.0.4."""
    label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(r"(\w+)(?:\{%s(?:,%s)*\})? -?[0-9.]+" % (label, label))
    helped, name, closed, once = None, None, set(), set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            report.check("%s has HELP before TYPE, once" % name, name == helped and name not in closed, line)
            report.check("%s has the suffix of its type" % name, (kind == "counter") == name.endswith("_total")
                         and (kind == "summary") == ("_percentiles_" in name), line)
            closed.add(name)
        else:
            match = sample.fullmatch(line)
            report.check("a sample", match and match.group(1) == name and line.rsplit(" ", 1)[0] not in once, line)
            once.add(line.rsplit(" ", 1)[0])


def check_our_exporter(report):
    exporter = os.path.join(GRAFANA, "exporter")
    with Server(ours(), "--latency-tracking", "yes") as server:
        use(server)
        text = page_of(exporter, "--server", "127.0.0.1:%d" % server.port, "--listen", "127.0.0.1:{port}")
        client = Client(server.port)
        rdma = re.findall(r"^rdma_\w+:[\d.]+\r?$", client.call("INFO", "rdma").decode(), re.M)
        client.close()
        gone = server.port
    check_format(report, text)
    report.check("the exporter says that the server is there", "valkey_up 1\n" in text)
    report.check("the exporter says that the server is gone", page_of(
        exporter, "--server", "127.0.0.1:%d" % gone, "--listen", "127.0.0.1:{port}").endswith("valkey_up 0\n"))
    report.check("labels are escaped", 'error="QUO\\"TE\\\\"' in text)
    promtool = installed("promtool")
    if promtool:
        checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True,
                                 check=False)
        # Status 3: advice about names, which are those of INFO.
        report.check("promtool reads the page", checked.returncode in (0, 3), checked.stdout + checked.stderr)
    known = {(name, label) for name, labels, _ in SAMPLE.findall(text)
             for label in re.findall(r'(\w+)="', labels) + [None]}
    names_known = {name for name, _ in known} | {"up"}
    report.check("hits are counted", 'valkey_keyspace_hits_total 1\n' in text)
    report.check("commands have labels", 'valkey_cmdstat_calls_total{cmd="get"} 2\n' in text)
    if not rdma:
        report.skip("dashboard", "the server is built without RDMA")
        return
    expressions = dashboard()
    report.check("the dashboard has panels", len(expressions) > 20, len(expressions))
    for title, expression in expressions:
        metrics = re.findall(r"\b(up|valkey_\w+)\{([^}]*)\}", expression)
        metrics += [(name, "") for pattern in re.findall(r'__name__=~"([^"]*)"', expression)
                    for name in names_of(pattern)]
        report.check("panel %s names metrics" % title, metrics, expression)
        for metric, matchers in metrics:
            report.check("panel %s: %s exists" % (title, metric), metric in names_known)
            for label in re.findall(r'(\w+)=~?"', matchers):
                report.equal("panel %s: label" % title, "instance", label)  # which Prometheus itself adds
        for label in re.findall(r"by \(([^)]*)\)", expression):
            report.check("panel %s: labels exist" % title, all(
                label == "instance" or any((metric, label) in known for metric, _ in metrics)
                for label in re.split(", *", label)), expression)


def names_of(pattern):
    """The alternatives of a pattern of names: each has to find a metric."""
    group = re.search(r"\(([^)]*)\)", pattern)
    return [pattern.replace(group.group(0), choice) for choice in group.group(1).split("|")] if group else [pattern]


def check_exporter(report):
    exporter = installed("prometheus-redis-exporter")
    if not exporter:
        report.missing("exporter", "prometheus-redis-exporter is not installed")
        return
    with Server(ours()) as server:
        use(server)
        samples = scrape(exporter, server)
    value = {name: number for name, _, number in samples}
    report.equal("the exporter reaches the server", 1.0, value.get("redis_up"))
    report.equal("the exporter finds no error", 0.0, value.get("redis_exporter_last_scrape_error"))
    report.equal("the exporter counts hits", 1.0, value.get("redis_keyspace_hits_total"))
    report.equal("the exporter counts misses", 1.0, value.get("redis_keyspace_misses_total"))
    genuine, why = newest_server()
    if not genuine:
        report.missing("figures of a genuine server", why)
        return
    with Server(genuine) as server:
        use(server)
        theirs = names(scrape(exporter, server))
    report.check("the exporter finds all figures of a genuine server", theirs <= names(samples),
                 sorted(theirs - names(samples)))


def main():
    report = Report()
    check_model(report)
    check_our_exporter(report)
    check_exporter(report)
    report.finish()


main()
