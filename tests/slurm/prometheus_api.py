#!/usr/bin/env python3
"""Asks a running Prometheus by its HTTP API, for monitoring_test.sh.

usage: prometheus_api.py URL value QUERY                      prints the value of the only series; nothing if there is no series
       prometheus_api.py URL steps RUN JOB SECONDS            checks the steps of two attempts in the last SECONDS
       prometheus_api.py URL answers RUN DASHBOARD ALERTS     checks the queries of both files; waits up to 60 s for the data
       prometheus_api.py URL page TARGETS                     prints the page /metrics of the target in a file prometheus_sd.json

Prints each problem and exits with 1.
"""
import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

WAIT_S = 60
LEGEND_LABEL = re.compile(r"{{\s*(\w+)\s*}}")


def ask(url, path, **values):
    """Returns the data of an answer. Raises SystemExit with the message of Prometheus if it refuses the request."""
    request = f"{url}/api/v1/{path}?{urllib.parse.urlencode(values)}"
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{request}: {error.read().decode()}") from None


def series_of(url, query):
    """Returns the series of an instant query without those that have no number at the moment."""
    return [series for series in ask(url, "query", query=query)["result"] if math.isfinite(float(series["value"][1]))]


def value(url, query):
    series = series_of(url, query)
    if len(series) > 1:
        return [f"{query} has {len(series)} series"]
    for one in series:
        print(f"{float(one['value'][1]):g}")
    return []


def samples_of(url, name, run, job, start, end):
    """Returns the values of one metric at each second. A second value at one time, or wrong labels, end the program."""
    samples = {}
    for series in ask(url, "query_range", query=f'{name}{{run="{run}"}}', start=start, end=end, step=1)["result"]:
        labels = series["metric"]
        if labels.get("run") != run or labels.get("job") != job:
            raise SystemExit(f"{name} has the labels {labels}, must have run {run} and job {job}")
        for at, number in series["values"]:
            if at in samples:
                raise SystemExit(f"{name} has two series at {at}")
            samples[at] = float(number)
    return dict(sorted(samples.items()))


def steps(url, run, job, seconds):
    end = int(time.time())
    step_at, restarts_at = (samples_of(url, name, run, job, end - int(seconds), end) for name in ("trireme_step", "trireme_restarts_total"))
    attempts = {restarts: [step for at, step in step_at.items() if restarts_at.get(at) == restarts] for restarts in set(restarts_at.values())}
    if sorted(attempts) != [0, 1]:
        return [f"trireme_restarts_total has the values {sorted(attempts)}, must have 0 and 1"]
    line = list(step_at.values())
    problems = []
    if line != sorted(line):
        problems.append(f"trireme_step falls: {line}")
    problems += [f"trireme_step does not grow in attempt {restarts:g}: {its}" for restarts, its in attempts.items() if its[0] >= its[-1]]
    if not problems:
        print("steps in Prometheus: " + ", then ".join(f"{its[0]:g} to {its[-1]:g}" for _, its in sorted(attempts.items())))
    return problems


def dashboard_queries(dashboard, run):
    """Returns (title of the panel, query for one run, labels of its legend) of each query."""
    with open(dashboard, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    return [(panel["title"], target["expr"].replace("$run", run), LEGEND_LABEL.findall(target["legendFormat"]))
            for panel in panels for target in panel["targets"]]


def missing_answers(url, run, dashboard):
    problems = []
    for title, query, legend in dashboard_queries(dashboard, run):
        series = series_of(url, query)
        if not series:
            problems.append(f"panel '{title}': no data for {query}")
        problems += [f"panel '{title}': {one['metric']} has no label {label} of the legend"
                     for one in series for label in legend if label not in one["metric"]]
    if run not in ask(url, "label/run/values", **{"match[]": "trireme_step"}):
        problems.append(f"the list of runs of the dashboard lacks {run}")
    return problems


def broken_rules(url, alerts):
    """Returns the rules that Prometheus does not evaluate. A rule on a name that no run serves would never fire."""
    with open(alerts, encoding="utf-8") as file:
        text = file.read()
    names = set(re.findall(r"- alert: (\w+)", text))
    rules = [rule for group in ask(url, "rules")["groups"] for rule in group["rules"]]
    problems = [f"alert {rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"]
    if {rule["name"] for rule in rules} != names:
        problems.append(f"Prometheus has the alerts {sorted(rule['name'] for rule in rules)}, the file has {sorted(names)}")
    served = set(ask(url, "label/__name__/values"))
    return problems + [f"alert {rule['name']}: no run serves {metric}"
                       for rule in rules for metric in set(re.findall(r"\btrireme_\w+", rule["query"])) - served]


def answers(url, run, dashboard, alerts):
    end = time.monotonic() + WAIT_S
    while (problems := missing_answers(url, run, dashboard) + broken_rules(url, alerts)) and time.monotonic() < end:
        time.sleep(1)
    if not problems:
        print(f"queries of the dashboard with data: {len(dashboard_queries(dashboard, run))}")
    return problems


def page(_, targets):
    with open(targets, encoding="utf-8") as file:
        target = json.load(file)[0]["targets"][0]
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as answer:
        sys.stdout.write(answer.read().decode())
    return []


def main():
    url, command = sys.argv[1:3]
    problems = {"value": value, "steps": steps, "answers": answers, "page": page}[command](url, *sys.argv[3:])
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
