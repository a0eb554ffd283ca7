#!/usr/bin/env python3
"""Measures the CPU time that the metrics sinks and the norms of layers add to a step.

usage: sinks_cost.py BUILD_DIR [--repeats 5] [--steps 2000]

A step of a large model takes seconds, and a busy machine changes this time by more than all sinks cost. So the
script measures the cost in steps that are short, and divides it by the time of a step of a model of 26 M parameters
(Qwen3 shape, 512 x 8, bf16, 4 x 512 tokens), all on one thread:

1. Sinks: the model has 8 layers of width 32, so a step has the metrics of the large model and little other work.
   Runs without sinks take turns with runs that write metrics.jsonl, ranks.jsonl (each step), TensorBoard, Weights &
   Biases, a textfile and the progress line, while a client reads /metrics once a second.
2. Norms and histograms of layers: the model of 26 M parameters with 16 tokens a step. Runs with the norms in each step
   take turns with runs that have the same sinks and no norms.
3. The step: the model of 26 M parameters with 4 x 512 tokens and no sinks.

All numbers are CPU time between the event `ready` of journal.jsonl and the end: of the training thread
(/proc/PID/task/PID/schedstat) and of the whole process (/proc/PID/stat). The result is the median over the repeats.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from save_beside_steps import make_set

T = 512
NORMS_EVERY = 10
POLL_S = 0.02
LARGE = {"model.preset": "minimind-3", "model.hidden_size": 512, "model.num_layers": 8, "model.num_heads": 8, "model.num_kv_heads": 4,
         "model.head_dim": 64, "model.vocab_size": 6400, "model.max_seq_len": T, "train.precision": "bf16", "train.threads": 1,
         "train.device": "cpu", "checkpoint.every": 0}
SMALL = {**LARGE, "model.hidden_size": 32, "model.num_heads": 2, "model.num_kv_heads": 1, "model.head_dim": 16,
         "model.intermediate_size": 64, "model.vocab_size": 600, "train.seq_len": 16, "train.micro_batch": 1, "train.global_batch": 1}
SHORT = {**LARGE, "train.seq_len": 16, "train.micro_batch": 1, "train.global_batch": 1}
WHOLE = {**LARGE, "train.seq_len": T, "train.micro_batch": 4, "train.global_batch": 4}
NO_SINKS = {"metrics.sinks": "none"}


def all_sinks(work, norms_every):
    textfile = os.path.join(work, "textfile")
    os.makedirs(textfile, exist_ok=True)
    return {"metrics.sinks": "jsonl,progress", "metrics.tensorboard": "true", "metrics.wandb": "true", "metrics.per_rank": "true",
            "metrics.listen": ":0", "metrics.textfile": textfile, "metrics.layer_norms": norms_every, "train.log_every": 1}


def scrape(folder):
    """Reads /metrics once. Returns the number of bytes; 0 if the run has no endpoint."""
    try:
        with open(os.path.join(folder, "prometheus_sd.json"), encoding="utf-8") as file:
            target = json.load(file)[0]["targets"][0]
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=5) as page:
            return len(page.read())
    except (OSError, ValueError):
        return 0


def cpu_s(pid):
    """Returns the CPU seconds of the first thread and of the process."""
    with open(f"/proc/{pid}/task/{pid}/schedstat", encoding="ascii") as file:
        thread_s = int(file.read().split()[0]) / 1e9
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return thread_s, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_ready(folder):
    try:
        with open(os.path.join(folder, "journal.jsonl"), encoding="utf-8") as lines:
            return any('"event":"ready"' in line.replace(" ", "") for line in lines)
    except OSError:
        return False


def train(args, packed, folder, steps, keys):
    """Returns the CPU seconds per step of the training thread and of the process."""
    keys = {**keys, "data.path": packed, "train.steps": steps}
    command = [f"{args.build}/bin/trireme", "pretrain", "--run", folder] + [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    with open(folder + ".log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, OMP_NUM_THREADS="1"))
    ended, answers = threading.Event(), []

    def read_metrics():
        while not ended.wait(1):
            answers.append(scrape(folder))

    reader = threading.Thread(target=read_metrics)
    reader.start()
    begin = end = None
    while process.poll() is None:
        try:
            now = cpu_s(process.pid)
            if begin is not None:
                end = now
            elif is_ready(folder):
                begin = now
        except (OSError, IndexError, ValueError):
            pass  # the process has just ended
        time.sleep(POLL_S)
    ended.set()
    reader.join()
    if process.returncode != 0:
        raise SystemExit(f"{command}: exit {process.returncode}, see {folder}.log")
    if "metrics.listen" in keys and not any(answers):
        raise SystemExit(f"{folder}: /metrics did not answer")
    return tuple((e - b) / steps for b, e in zip(begin, end))


def added(args, packed, work, name, steps, base, without, with_them):
    """Returns the medians of the difference, for the thread and for the process."""
    differences = []
    for repeat in range(args.repeats):
        results = {}
        for is_with in (repeat % 2 == 0, repeat % 2 == 1):
            folder = os.path.join(work, f"{name}-{repeat}-{is_with}")
            results[is_with] = train(args, packed, folder, steps, {**base, **(with_them if is_with else without)})
        differences.append([1e6 * (on - off) for on, off in zip(results[True], results[False])])
        print(f"{name} {repeat}: training thread {1e6 * results[False][0]:.0f} -> {1e6 * results[True][0]:.0f} us,"
              f" process {1e6 * results[False][1]:.0f} -> {1e6 * results[True][1]:.0f} us a step", flush=True)
    columns = list(zip(*differences))
    for what, values in zip(("training thread", "process"), columns):
        print(f"{name}, {what}: median {statistics.median(values):.0f} us, smallest {min(values):.0f}, largest {max(values):.0f}")
    return [statistics.median(values) / 1e6 for values in columns]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        packed = make_set(f"{args.build}/bin/trireme-data", work, 2000, T)
        sinks = added(args, packed, work, "sinks", args.steps, SMALL, NO_SINKS, all_sinks(work, 0))
        norms = added(args, packed, work, "norms of layers", 12, SHORT, all_sinks(work, 0), all_sinks(work, 1))
        step = statistics.median(train(args, packed, os.path.join(work, f"step-{i}"), 4, {**WHOLE, **NO_SINKS})[1] for i in range(3))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"step of 26 M parameters, {4 * T} tokens: {step:.2f} s of CPU time")
    for what, sink_s, norm_s in zip(("training thread", "process"), sinks, norms):
        every_step, shared = sink_s, norm_s / NORMS_EVERY
        print(f"{what}: sinks {every_step / step:.4%}, norms every {NORMS_EVERY} steps {shared / step:.3%}, sum {(every_step + shared) / step:.3%} of this step")


if __name__ == "__main__":
    main()
