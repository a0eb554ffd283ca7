#!/usr/bin/env python3
"""Compares predicted and measured steps on this machine's cores.

    python3 tests/bench/compare_plan.py --steps 5 [--output tests/bench/results/plan.json]

Runs `trireme bench step` on some layouts of 2 and 4 ranks, and `trireme plan --calibration` from one of them
for the others. Prints a table and, with --output, JSON. Ranks beyond the number of cores share them: the
model reports this, and such rows are marked. Exits with 0; with --check, exits with 1 if a row differs by
more than 15 % in time or 10 % in memory.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIME_BOUND, MEMORY_BOUND = 0.15, 0.10
# The constants are fitted to the first layout.
LAYOUTS = [
    (2, {}),
    (2, {"zero": 1}),
    (2, {"zero": 3}),
    (2, {"tp": 2}),
    (2, {"tp": 2, "sequence_parallel": "true"}),
    (2, {"cp": 2}),
    (2, {"pp": 2}),
    (2, {"pp": 2, "schedule": "zb-h1"}),
    (4, {}),
    (4, {"tp": 2, "zero": 1}),
    (4, {"pp": 2}),
    (4, {"pp": 4}),
    (4, {"tp": 4}),
]
FIXED = ["tp", "cp", "pp", "zero", "zero_shard", "sequence_parallel", "tp_chunks", "recompute", "schedule", "virtual_stages"]
USUAL = {"tp": 1, "cp": 1, "pp": 1, "zero": 0, "zero_shard": 0, "sequence_parallel": "false", "tp_chunks": 1,
         "recompute": "none", "schedule": "1f1b", "virtual_stages": 1}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trireme", default=str(ROOT / "build/release/bin/trireme"))
    parser.add_argument("--preset", default="minimind-2-small")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2, help="of a micro-batch")
    parser.add_argument("--batch", type=int, default=16, help="sequences of an update, on every layout")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="measurements of a row; the median counts")
    parser.add_argument("--measured", help="a file for what was measured: read if it is there")
    parser.add_argument("--output")
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def shape(args):
    # bench step balances stages by the longest position, a run by train.seq_len: here both are
    # equal.
    return ["--model.preset", args.preset, "--model.max_seq_len", str(args.seq_len), "--train.seq_len", str(args.seq_len), "--train.micro_batch", str(args.rows),
            "--train.global_batch", str(args.batch), "--train.precision", "fp32"]


def layout_options(layout):
    return [word for key in FIXED for word in (f"--parallel.{key}", str({**USUAL, **layout}[key]))]


def output_of(command):
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {run.returncode}\n{run.stderr}")
    return json.loads(run.stdout)


def measure(args, ranks, layout):
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", str(ranks), args.trireme,
               "bench", "step", "--json", "--steps", str(args.steps), "--train.device", "cpu", *shape(args),
               *layout_options(layout)]
    rows = sorted((output_of(command) for _ in range(args.repeats)), key=lambda row: row["step_time_s"])
    return rows[len(rows) // 2]


def predict(args, ranks, layout, calibration):
    command = [args.trireme, "plan", "--gpu", "cpu", "--nodes", "1", "--gpus-per-node", str(ranks), "--top", "1", "--json",
               "--calibration", calibration, *shape(args), *layout_options(layout)]
    return output_of(command)["layouts"][0]


def main():
    args = arguments()
    cores = os.cpu_count()
    if args.measured and Path(args.measured).exists():
        measured = json.loads(Path(args.measured).read_text())
    else:
        measured = [measure(args, ranks, layout) for ranks, layout in LAYOUTS]
        if args.measured:
            Path(args.measured).write_text(json.dumps(measured) + "\n")
    rows = []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as calibration:
        json.dump(measured[0], calibration)
        calibration.flush()
        for (ranks, layout), row in zip(LAYOUTS, measured):
            plan = predict(args, ranks, layout, calibration.name)
            bytes_there = row["mem_counted_bytes"]
            rows.append({
                "ranks": ranks, "layout": layout, "step_time_s": row["step_time_s"],
                "predicted_step_time_s": plan["step_time_s"], "time_error": plan["step_time_s"] / row["step_time_s"] - 1,
                "comm_exposed_s": row["comm_exposed_s"], "exposed_s": plan["exposed_s"], "mem_counted_bytes": bytes_there,
                "predicted_bytes": plan["memory_bytes"]["total"], "memory_bytes": plan["memory_bytes"],
                "memory_error": plan["memory_bytes"]["total"] / bytes_there - 1, "oversubscribed": ranks > cores})
    for row, index in zip(rows, range(len(rows))):
        name = " ".join(f"{key} {value}" for key, value in row["layout"].items()) or "dp"
        mark = " (constants)" if index == 0 else " (ranks share cores)" if row["oversubscribed"] else ""
        print(f"{row['ranks']} ranks, {name:32s} step {row['step_time_s']:7.3f} s, predicted {row['predicted_step_time_s']:7.3f} "
              f"({100 * row['time_error']:+6.1f} %); bytes {row['mem_counted_bytes'] / 1e6:7.1f} MB, predicted "
              f"{row['predicted_bytes'] / 1e6:7.1f} ({100 * row['memory_error']:+6.1f} %){mark}")
    off = [row for row in rows if abs(row["time_error"]) > TIME_BOUND or abs(row["memory_error"]) > MEMORY_BOUND]
    print(f"{len(rows) - len(off)} of {len(rows)} within {TIME_BOUND:.0%} of time and {MEMORY_BOUND:.0%} of memory; medians "
          f"{statistics.median(abs(row['time_error']) for row in rows):.1%} and "
          f"{statistics.median(abs(row['memory_error']) for row in rows):.1%}")
    if args.output:
        Path(args.output).write_text(json.dumps({"cores": cores, "preset": args.preset, "rows": rows}, indent=1) + "\n")
    return 1 if args.check and off else 0


if __name__ == "__main__":
    sys.exit(main())
