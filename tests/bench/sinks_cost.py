#!/usr/bin/env python3
"""Compares the step time with all metrics sinks on and with all sinks off, in turns.

usage: sinks_cost.py BUILD_DIR [--pairs 5] [--steps 40] [--layer-norms 10]

One rank of one thread trains a model of 5 M parameters (Qwen3 shape, 256 x 4, bf16) on 512 tokens a step. The run
with sinks writes metrics.jsonl, ranks.jsonl, TensorBoard, Weights & Biases, a textfile and the progress line, has
norms of layers every 10 steps, and a client reads /metrics once a second. Wall time is the time from the event
`ready` to the event `end` of journal.jsonl; CPU time is that of the whole process. On a machine with other work,
the CPU time is the exact number. Prints a line per pair, then the medians.
"""
import argparse
import json
import os
import resource
import statistics
import tempfile
import threading
import urllib.request

from save_beside_steps import call, make_set

T = 128
KEYS = {"model.preset": "minimind-3", "model.hidden_size": 256, "model.num_layers": 4, "model.num_heads": 4, "model.num_kv_heads": 2,
        "model.head_dim": 64, "model.vocab_size": 6400, "model.max_seq_len": T, "train.seq_len": T, "train.micro_batch": 4,
        "train.global_batch": 4, "train.precision": "bf16", "train.threads": 1, "train.device": "cpu", "train.log_every": 1,
        "checkpoint.every": 0}


def scrape(folder, ended, counts):
    """Reads /metrics once a second until the run ends."""
    while not ended.wait(1):
        try:
            with open(os.path.join(folder, "prometheus_sd.json"), encoding="utf-8") as file:
                target = json.load(file)[0]["targets"][0]
            with urllib.request.urlopen(f"http://{target}/metrics", timeout=5) as page:
                counts.append(len(page.read()))
        except (OSError, ValueError):
            pass  # the run has not opened the port yet, or has just closed it


def train(args, packed, folder, with_sinks):
    """Returns wall and CPU seconds per step, and the number of answers of /metrics."""
    textfile = os.path.join(os.path.dirname(folder), "textfile")
    os.makedirs(textfile, exist_ok=True)
    sinks = {"metrics.sinks": "jsonl,progress", "metrics.tensorboard": "true", "metrics.wandb": "true", "metrics.per_rank": "true",
             "metrics.listen": ":0", "metrics.textfile": textfile, "metrics.layer_norms": args.layer_norms}
    keys = {**KEYS, "data.path": packed, "train.steps": args.steps, **(sinks if with_sinks else {"metrics.sinks": "none"})}
    command = [f"{args.build}/bin/trireme", "pretrain", "--run", folder] + [word for key, value in keys.items() for word in (f"--{key}", value)]
    ended, answers = threading.Event(), []
    reader = threading.Thread(target=scrape, args=(folder, ended, answers))
    if with_sinks:
        reader.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended.set()
    if with_sinks:
        reader.join()
    with open(os.path.join(folder, "journal.jsonl"), encoding="utf-8") as lines:
        times = {line["event"]: line["time"] for line in map(json.loads, lines)}
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (times["end"] - times["ready"]) / args.steps, cpu / args.steps, len(answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layer-norms", type=int, default=10)
    args = parser.parse_args()
    wall, cpu = [], []
    with tempfile.TemporaryDirectory() as work:
        packed = make_set(f"{args.build}/bin/trireme-data", work, 2000, T)
        train(args, packed, os.path.join(work, "warm"), False)
        for pair in range(args.pairs):
            results = {}
            for with_sinks in (pair % 2 == 0, pair % 2 == 1):
                results[with_sinks] = train(args, packed, os.path.join(work, f"{pair}-{with_sinks}"), with_sinks)
            on, off = results[True], results[False]
            wall.append(on[0] / off[0] - 1)
            cpu.append(on[1] / off[1] - 1)
            print(f"pair {pair}: wall {off[0]:.4f} -> {on[0]:.4f} s ({wall[-1]:+.2%}), CPU {off[1]:.4f} -> {on[1]:.4f} s ({cpu[-1]:+.2%}),"
                  f" {on[2]} answers of /metrics", flush=True)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"median of {args.pairs} pairs: wall {statistics.median(wall):+.2%}, CPU {statistics.median(cpu):+.2%}")


if __name__ == "__main__":
    main()
