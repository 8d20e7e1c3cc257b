"""The exporter of the distribution (prometheus-redis-exporter) on our server: it reads INFO as it reads that of a
genuine server, and finds every figure that the dashboard in utils/grafana names."""
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


def scrape(exporter, server, *options):
    """The metrics of a server: [(name, {label: value}, number)]."""
    for _ in range(5):
        port = free_port()
        process = subprocess.Popen([exporter, "-redis.addr", "redis://127.0.0.1:%d" % server.port,
                                    "-web.listen-address",
                                    "127.0.0.1:%d" % port, *options],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.time() + SECONDS
        try:
            while time.time() < end and process.poll() is None:
                try:
                    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=SECONDS) as reply:
                        text = reply.read().decode()
                    return [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(number))
                            for name, labels, number in SAMPLE.findall(text)]
                except OSError:
                    time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
    raise RuntimeError("the exporter did not start")


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
    for command in ["SET", "key", "value"], ["GET", "key"], ["GET", "absent"], ["SUBSTR"], ["NOSUCH"]:
        client.call(*command)
    client.close()


def main():
    report = Report()
    check_model(report)
    exporter = installed("prometheus-redis-exporter")
    if not exporter:
        report.missing("metrics", "prometheus-redis-exporter is not installed")
        report.finish()
    with Server(ours()) as server:
        use(server)
        samples = scrape(exporter, server, "-script", os.path.join(GRAFANA, "rdma-metrics.lua"))
        plain = scrape(exporter, server)
        client = Client(server.port)
        info = client.call("INFO", "rdma").decode()
        client.close()
    value = {name: number for name, labels, number in samples if "key" not in labels}
    report.equal("the exporter reaches the server", 1.0, value.get("redis_up"))
    report.equal("the exporter finds no error", 0.0, value.get("redis_exporter_last_scrape_error"))
    report.equal("hits are counted", 1.0, value.get("redis_keyspace_hits_total"))
    report.equal("misses are counted", 1.0, value.get("redis_keyspace_misses_total"))

    genuine, why = newest_server()
    if genuine:
        with Server(genuine) as server:
            use(server)
            theirs = names(scrape(exporter, server))
        report.check("the exporter finds all figures of a genuine server", theirs <= names(plain),
                     sorted(theirs - names(plain)))
    else:
        report.missing("figures of a genuine server", why)

    fields = dict(re.findall(r"^(rdma_\w+):([\d.]+)\r?$", info, re.M))
    keys = {labels["key"] for name, labels, _ in samples if name == "redis_script_values"}
    report.equal("every number of INFO rdma is a metric", sorted(fields), sorted(keys))
    if not fields:
        report.skip("dashboard", "the server is built without RDMA")
        report.finish()
    known, expressions = names(samples), dashboard()
    report.check("the dashboard has panels", len(expressions) > 20, len(expressions))
    for title, expression in expressions:
        metrics = re.findall(r"\b(redis_\w+)\{([^}]*)\}", expression)
        report.check("panel %s names metrics" % title, metrics and len(metrics) == expression.count("redis_"),
                     expression)
        for metric, matchers in metrics:
            report.check("panel %s: %s exists" % (title, metric), metric in known)
            for label, operator, wanted in re.findall(r'(\w+)(=~?)"([^"]*)"', matchers):
                if label != "key":
                    report.equal("panel %s: label" % title, "instance", label)  # which Prometheus itself adds
                    continue
                # An alternative that no figure has would be invisible: each has to find one.
                pattern = wanted if operator == "=~" else re.escape(wanted)
                group = re.search(r"\(([^)]*)\)", pattern)
                choices = [pattern.replace(group.group(0), choice)
                           for choice in group.group(1).split("|")] if group else [pattern]
                for choice in choices:
                    report.check("panel %s: %s exists" % (title, choice),
                                 any(re.fullmatch(choice, key) for key in keys))
    report.finish()


main()
