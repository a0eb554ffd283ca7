"""Runs the parts of the check one after another, each as a process of its own, and keeps the JSON document.

A part ends by itself, at its time limit, or when the budget of all parts is used up; its whole process group is then killed. After
each part the document is replaced at once, so that it is complete up to that part whatever happens later.
"""
import dataclasses
import datetime
import json
import os
import signal
import subprocess
import sys
import time

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
EXIT_SKIPPED = 77  # for a part's process, and for the driver if every part is skipped
NO_DEVICE = "no device"
NOT_RUN = "not run: the driver ended before this part"
UNFINISHED = "the part was started and the driver ended before the part did"
RESERVE_S = 2.0  # reserved in the budget for the last part's end
LIMIT_VARIABLE = "TRIREME_GPU_CHECK_LIMIT_S"  # tells a part its limit in seconds
GRACE_S = 3.0  # between SIGTERM and SIGKILL
TAIL_BYTES = 3000


@dataclasses.dataclass
class Part:
    """One part: `limit_s` ends it, `least_s` is what it needs to say anything. `command` gets the path of its result file as last word."""
    name: str
    about: str
    command: list
    limit_s: float
    least_s: float = 5
    needs_device: bool = False


class Ended(Exception):
    """A signal that ends the driver."""


def write_atomic(path, document):
    """Replaces the file: a reader sees the old or the new document, never a part of one."""
    temporary = f"{path}.{os.getpid()}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def tail(path):
    """Returns the end of a log as text; "" if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def read_result(path):
    """Returns the result file of the part so far: {"figures": {...}, "reason": ...}."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def end_group(process):
    """SIGTERM to the whole group of the part, then SIGKILL. The part leads its group and was not waited for, so the number is its own."""
    for number, grace in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + grace
        while number == signal.SIGTERM and time.monotonic() < end:
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.05)
    process.wait()


def wait_for(process, limit_s):
    """Returns True if the process ended within the limit. Its zombie stays until its group has
    been killed."""
    end = time.monotonic() + limit_s
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


def run_part(part, limit_s, work, why_shorter):
    """Runs one part to its end or to `limit_s`; returns (status, reason, figures)."""
    result, log = (os.path.join(work, f"{part.name}.{end}") for end in ("result", "log"))
    with open(log, "wb") as output:
        process = subprocess.Popen([*part.command, result], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, LIMIT_VARIABLE: f"{limit_s:g}"})
        try:
            in_time = wait_for(process, limit_s)
        finally:
            end_group(process)  # also what the part left running
    written = read_result(result)
    figures, reason = written.get("figures", {}), written.get("reason", "")
    if not in_time:
        return FAILED, f"killed after its limit of {limit_s:.0f} s{why_shorter}", figures
    if process.returncode == 0:
        return PASSED, reason, figures
    if process.returncode == EXIT_SKIPPED:
        return SKIPPED, reason or "the part gave no reason", figures
    how = f"ended by signal {-process.returncode}" if process.returncode < 0 else f"ended with exit code {process.returncode}"
    return FAILED, reason or f"{how}: {tail(log)}", figures


class Run:
    """The document of one run and the file that holds it."""

    def __init__(self, parts, path, budget_s, facts):
        self.path = path
        self.begin = time.monotonic()
        self.document = {"format": 1, "started": now(), "finished": None, "budget_s": budget_s, "elapsed_s": 0.0, "exit_code": None, **facts,
                         "parts": [{"name": part.name, "about": part.about, "status": SKIPPED, "reason": NOT_RUN, "seconds": 0.0,
                                    "limit_s": part.limit_s, "figures": {}} for part in parts]}
        self.write()

    def elapsed_s(self):
        return time.monotonic() - self.begin

    def write(self):
        self.document["elapsed_s"] = round(self.elapsed_s(), 3)
        write_atomic(self.path, self.document)

    def put(self, index, **values):
        self.document["parts"][index].update(values)
        self.write()

    def finish(self, code):
        self.document.update(exit_code=code, finished=now())
        self.write()
        return code


def one_part(run, index, part, has_device, budget_s, work):
    """Runs or skips the part and puts its entry."""
    if part.needs_device and not has_device:
        run.put(index, status=SKIPPED, reason=NO_DEVICE)
        return
    left_s = budget_s - run.elapsed_s() - RESERVE_S
    if left_s < part.least_s:
        run.put(index, status=SKIPPED, reason=f"budget: {max(left_s, 0):.0f} s of {budget_s:g} s are left, the part needs {part.least_s:g} s or more")
        return
    limit_s = min(part.limit_s, left_s)
    why_shorter = f", which the budget shortened from {part.limit_s:g} s" if limit_s < part.limit_s else ""
    run.put(index, status=FAILED, reason=UNFINISHED)
    begin = time.monotonic()
    status, reason, figures = FAILED, UNFINISHED, {}
    try:
        status, reason, figures = run_part(part, limit_s, work, why_shorter)
    except Ended as ended:
        status, reason = FAILED, f"ended together with the driver by {ended}"
        figures = read_result(os.path.join(work, f"{part.name}.result")).get("figures", {})
        raise
    except OSError as error:
        reason = f"the part cannot be started: {error}"
    finally:
        run.put(index, status=status, reason=reason, figures=figures, seconds=round(time.monotonic() - begin, 3))


def say(entry):
    """Prints one line per part on standard output."""
    text = entry["status"] + (f": {entry['reason'].splitlines()[0]}" if entry["reason"] else "")
    print(f"{entry['name']:<16} {entry['seconds']:7.1f} s  {text}", flush=True)


def exit_code(entries):
    """0: nothing failed and something passed; 1: a part failed; 77: every part is skipped."""
    statuses = [entry["status"] for entry in entries]
    if FAILED in statuses:
        return 1
    return 0 if PASSED in statuses else EXIT_SKIPPED


def summary(entries):
    counts = {status: sum(entry["status"] == status for entry in entries) for status in (PASSED, FAILED, SKIPPED)}
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def end_by_signal(number, _frame):
    raise Ended(signal.Signals(number).name)


def run_parts(parts, path, budget_s, work, has_device, facts):
    """Runs all parts in order and returns the exit code. `facts` go into the document as they are."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    run = Run(parts, path, budget_s, facts)
    entries = run.document["parts"]
    try:
        for index, part in enumerate(parts):
            one_part(run, index, part, has_device, budget_s, work)
            say(entries[index])
    except Ended as ended:
        print(f"error: the check was ended by {ended}; {path} holds what was done", file=sys.stderr)
        return run.finish(1)
    code = run.finish(exit_code(entries))
    print(f"{summary(entries)} in {run.elapsed_s():.0f} s; {path}", flush=True)
    if code == EXIT_SKIPPED:
        print("error: every part was skipped, so nothing was checked; the reasons are in the lines above", file=sys.stderr)
    return code
