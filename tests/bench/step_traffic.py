#!/usr/bin/env python3
"""Counts the collectives, messages and bytes of a training step on 2, 4 and 8 ranks, with and without metrics sinks.

usage: step_traffic.py BUILD_DIR

The model has 8 layers of width 64 (1 row of 32 tokens for each data rank, fp32). count_sends.c counts every MPI message
of a rank outside of Trireme. Two runs of different lengths give the messages and bytes of one step, as a mean over the
ranks. A profile of the longer run names the collectives of rank 0. The bytes of the update are those in RUN/layout.json; the
rest belongs to the stop vote and to the metrics. Prints a Markdown table.
"""
import argparse
import collections
import json
import os
import subprocess
import tempfile

from save_beside_steps import make_set

HERE = os.path.dirname(os.path.abspath(__file__))
T, SHORT, LONG = 32, 4, 14
PROFILED = 9
KEYS = {"model.preset": "minimind-3", "model.hidden_size": 64, "model.num_layers": 8, "model.num_heads": 4, "model.num_kv_heads": 2,
        "model.head_dim": 16, "model.vocab_size": 600, "model.max_seq_len": T, "train.seq_len": T, "train.micro_batch": 1,
        "train.precision": "fp32", "train.threads": 1, "train.device": "cpu", "checkpoint.every": 0}
LAYOUTS = [(2, {}), (4, {}), (8, {}), (8, {"parallel.tp": 2, "parallel.pp": 2})]
VOTE = ("step vote", "step maxima")


def sink_keys(work):
    sinks = {"metrics.sinks": "jsonl,progress", "metrics.tensorboard": "true", "metrics.wandb": "true", "metrics.listen": ":0",
             "metrics.textfile": work}
    return [("none", {"metrics.sinks": "none"}), ("all", sinks), ("all, norms and histograms", {**sinks, "metrics.layer_norms": 1})]


def train(args, work, name, ranks, steps, keys):
    """Returns the messages and the bytes that a rank sent, as means, and the run directory."""
    run, counts = os.path.join(work, f"{name}-{steps}"), os.path.join(work, f"{name}-{steps}.count")
    keys = {**KEYS, **keys, "data.path": os.path.join(work, "set"), "train.steps": steps,
            "train.global_batch": ranks // keys.get("parallel.tp", 1) // keys.get("parallel.pp", 1) * keys.get("parallel.pp", 1)}
    if steps == LONG:
        keys["train.profile"] = f"steps={PROFILED}:{PROFILED},ranks=0"
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-x", f"LD_PRELOAD={work}/count_sends.so", "-x", f"COUNT_SENDS={counts}",
               "-n", str(ranks), f"{args.build}/bin/trireme", "pretrain", "--run", run]
    command += [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr}")
    totals = [0, 0]
    for rank in range(ranks):
        with open(f"{counts}.{rank}", encoding="ascii") as file:
            for i, value in enumerate(file.read().split()):
                totals[i] += int(value) / ranks
    return totals, run


def collectives(run):
    """Returns the number of collectives of the update and of the vote in the profiled step of rank 0."""
    with open(f"{run}/profile/steps-{PROFILED}-{PROFILED}/rank-00000.trace.json", encoding="utf-8") as file:
        events = [str(event.get("name")) for event in json.load(file)["traceEvents"]]
    names = [name for name in events if " of group " in name and not name.startswith("wait for ")]
    counts = collections.Counter(any(f"'{vote}'" in name for vote in VOTE) for name in names)
    return counts[False], counts[True]


def update_bytes(run):
    with open(f"{run}/layout.json", encoding="utf-8") as file:
        return sum(row["moved_bytes"] for row in json.load(file)["collectives"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(["mpicc", "-O1", "-shared", "-fPIC", "-o", f"{work}/count_sends.so", f"{HERE}/count_sends.c"], check=True)
        make_set(f"{args.build}/bin/trireme-data", work, 1000, T)
        print("| ranks | layout | sinks | collectives of the update | collectives of vote and metrics | messages of a rank | bytes of a rank |"
              " update, rank 0 | vote and metrics |\n|---|---|---|---|---|---|---|---|---|")
        for index, (ranks, layout) in enumerate(LAYOUTS):
            for sink, keys in sink_keys(work):
                name = f"{index}-{sink}"
                short, _ = train(args, work, name, ranks, SHORT, {**layout, **keys})
                long, run = train(args, work, name, ranks, LONG, {**layout, **keys})
                messages, size = ((b - a) / (LONG - SHORT) for a, b in zip(short, long))
                update, vote = collectives(run)
                text = ", ".join(f"{key.split('.')[1]} {value}" for key, value in layout.items()) or f"dp {ranks}"
                moved = update_bytes(run)
                print(f"| {ranks} | {text} | {sink} | {update} | {vote} | {messages:.1f} | {size:,.0f} | {moved:,.0f} | {size - moved:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
