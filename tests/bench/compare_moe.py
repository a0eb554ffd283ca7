#!/usr/bin/env python3
"""Compares the training speed of a mixture of experts in one process, `trireme pretrain` and transformers'
Qwen3Moe, in interleaved pairs.

usage: compare_moe.py BUILD_DIR [--pairs 5] [--steps 5] [--warmup 2] [--threads 2] [--precision bf16|fp32] [--experts eager,grouped_mm]

The model is 512 x 4 with 8 experts of width 512, two per token, T = 512, 8 rows per update in micro-batches
of 4, without auxiliary loss. Everything else works like in compare_ddp.py: the same start, batches and first
loss (1e-3). --experts selects implementations of transformers. Prints Markdown.
"""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

import compare_ddp as base

GLOBAL = 8
EXPERTS = {"model.num_layers": 4, "model.num_experts": 8, "model.num_experts_per_tok": 2, "model.moe_intermediate_size": 512,
           "model.router_balance": "none", "train.global_batch": GLOBAL}


def run_ours(args, work, packed):
    run = os.path.join(work, "run")
    shutil.rmtree(run, ignore_errors=True)
    base.call([f"{args.build}/bin/trireme", "pretrain", "--data", packed, "--run", run, "--train.log_every", 0] +
              base.keys_of({"train.steps": args.steps, "train.threads": args.threads}), stderr=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "step" in line]
    return [line["loss"] for line in lines], [line["step_time_s"] for line in lines]


def run_theirs(args, work, dump, experts):
    out = os.path.join(work, "peer.json")
    base.call([sys.executable, os.path.join(base.HERE, "moe_peer.py"), "--dump", dump, "--out", out, "--threads", args.threads, "--precision",
               args.precision, "--experts", experts], env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
    with open(out, encoding="utf-8") as file:
        result = json.load(file)
    return result["losses"], result["step_time_s"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    for name, value in (("pairs", 5), ("steps", 5), ("warmup", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--experts", default="eager")
    args = parser.parse_args()
    base.KEYS |= {**EXPERTS, "train.precision": args.precision}
    base.GLOBAL = GLOBAL
    with tempfile.TemporaryDirectory() as work:
        packed, dump = base.make_inputs(args, work)
        print(f"# A mixture of experts in one process, {datetime.date.today()}\n\n{base.cpu_model()}, {args.threads} threads, {args.precision}.", flush=True)
        for experts in args.experts.split(","):
            base.check_losses(run_ours(args, work, packed)[0], run_theirs(args, work, dump, experts)[0])
            base.measure_pairs(args, f"transformers, {experts}", lambda: run_ours(args, work, packed), lambda: run_theirs(args, work, dump, experts),
                               args.pairs)


if __name__ == "__main__":
    main()
