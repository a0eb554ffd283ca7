#!/usr/bin/env python3
"""Slows one of four ranks down by 1 s a step in each phase, and prints which rank and phase the run and its report name.

usage: slow_ranks.py BUILD_DIR [--ranks 4] [--slow 2] [--steps 20]

The failpoints are `train.backward` (compute), `data.batch` (data) and `train.step` (between steps: other). A last run has no slow rank.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

from save_beside_steps import make_set

T = 32
POINTS = {"compute": "train.backward", "data loading": "data.batch", "between steps": "train.step", "no slow rank": None}
KEYS = {"model.preset": "tiny", "model.hidden_size": 32, "model.num_layers": 2, "model.num_heads": 2, "model.num_kv_heads": 1,
        "model.intermediate_size": 64, "model.max_seq_len": 64, "train.seq_len": T, "train.micro_batch": 1, "train.device": "cpu",
        "train.threads": 1, "checkpoint.every": 0}
WARNING = re.compile(r"rank (\d+) on host \S+ is slow: .*, in phase (\w+);")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--slow", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    program = f"{args.build}/bin/trireme"
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1", TRIREME_ALLOW_FAULTS="1")
    print("| slowed down in | lines that name the rank | phases in these lines | median excess a step | warning in the log | `slow_ranks` of the report |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        packed = make_set(f"{args.build}/bin/trireme-data", work, 400, T)
        for number, (place, point) in enumerate(POINTS.items()):
            folder = os.path.join(work, f"run{number}")
            keys = {**KEYS, "data.path": packed, "train.steps": args.steps, "train.global_batch": args.ranks}
            command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(args.ranks), program, "pretrain", "--run", folder]
            command += [str(word) for key, value in keys.items() for word in (f"--{key}", value)]
            fault = {"TRIREME_FAULT": f"{point}:{args.slow}:*:delay"} if point else {}
            done = subprocess.run(command, env={**environment, **fault}, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr}")
            with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
                lines = [line for line in map(json.loads, file) if "slowest_rank" in line]
            named = [line for line in lines if line["slowest_rank"] == args.slow]
            phases = sorted({line["slowest_phase"] for line in named})
            excess = sorted(line["slowest_excess_s"] for line in named)
            report = json.loads(subprocess.run([program, "report", "--json", folder], check=True, capture_output=True, text=True).stdout)
            slow = [f"rank {one['rank']}, {one['phase']}, {one['excess']:.1%}" for one in report["runs"][0]["slow_ranks"]]
            warning = WARNING.search(done.stderr)
            print(f"| {place} | {len(named)} of {len(lines)} | {', '.join(phases)} | {excess[len(excess) // 2] if excess else 0:.3f} s |"
                  f" {'rank ' + ', '.join(warning.groups()) if warning else 'none'} | {'; '.join(slow) or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
