"""The base of every part: its result file, and functions that run Trireme's programs."""
import json
import os
import subprocess
import sys
import time

import driver
import places


class Failed(Exception):
    """The part found something wrong; the message is its reason."""


class Skipped(Exception):
    """The part cannot say anything here; the message is its reason."""


class Context:
    """One part while it runs. `figures` are in the result file as soon as they are noted, so that a killed part keeps them. `log` is the standard error
    of the last command."""

    def __init__(self, name, device, size, work, result):
        self.name, self.device, self.work = name, device, work
        self.small = size == "small"
        self.folder = os.path.join(work, name)
        os.makedirs(self.folder, exist_ok=True)
        self.result_path, self.figures, self.reason, self.log = result, {}, "", ""
        self.end = time.monotonic() + float(os.environ.get(driver.LIMIT_VARIABLE, "inf"))

    def write(self):
        driver.write_atomic(self.result_path, {"figures": self.figures, "reason": self.reason})

    def note(self, **figures):
        self.figures.update(figures)
        self.write()

    def path(self, name):
        return os.path.join(self.folder, name)

    def check(self, good, reason):
        """Raises Failed unless `good`."""
        if not good:
            raise Failed(reason)

    def left_s(self):
        """Returns the seconds until the driver ends this part; infinite without a driver."""
        return self.end - time.monotonic()

    def threads(self):
        """Returns the number of threads. A small rehearsal uses one thread: it shares the
        machine, and threads that wait for each other cost more than they give."""
        return {"OMP_NUM_THREADS": "1"} if self.small else {}

    def run(self, words, codes=(0,), **environment):
        """Runs a command to its end and returns its standard output. Raises Failed unless its exit code is one of `codes`."""
        words = [str(word) for word in words]
        print("+", *words, flush=True)
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
                              env=places.environment(**self.threads(), **environment))
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        self.log = err
        sys.stdout.write(err)
        sys.stdout.flush()
        if done.returncode not in codes:
            how = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"ended with exit code {done.returncode}"
            raise Failed(f"`{' '.join(words)}` {how}: {(err.strip() or out.strip())[-driver.TAIL_BYTES:]}")
        return out

    def trireme(self, *words, **options):
        return self.run([places.program("bin/trireme"), *words], **options)

    def trireme_data(self, *words, **options):
        return self.run([places.program("bin/trireme-data"), *words], **options)


def keys(values):
    """{"train.steps": 3} as command-line words."""
    return [word for key, value in values.items() for word in (f"--{key}", value)]


def metrics(run):
    """Returns the metrics of a run: {step: line}; the last line of a step counts."""
    lines = {}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "step" in line and "loss" in line:
                lines[line["step"]] = line
    return lines


def end_line(run):
    """Returns the line that a run writes at its end; {} if it has written none."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return next((line for line in map(json.loads, file) if "end_step" in line), {})


def losses(run, steps):
    """Returns the losses of steps 1 to `steps`. Raises Failed if one is missing."""
    lines = metrics(run)
    if sorted(lines) != list(range(1, steps + 1)):
        raise Failed(f"{run}/metrics.jsonl has the steps {sorted(lines)}, must have 1 to {steps}")
    return [lines[step]["loss"] for step in range(1, steps + 1)]


def distance(values, reference):
    """Returns the largest relative difference of two lists; infinite if one of them has a NaN."""
    differences = [abs(a - b) / abs(b) if a == a and b == b else float("inf") for a, b in zip(values, reference)]
    return max(differences)
