#!/usr/bin/env python3
"""Trains one model on real text on several layouts, resumes each run on the next layout half-way, and compares the loss
curves in fp32.

usage: compare_layouts.py BUILD_DIR --data TEXT.jsonl [--steps 200] [--seq-len 128] [--batch 4] [--lr 1e-4] [--vocab-size 6400]
       [--experts] [--keep DIR]

The model has 30 M parameters (Qwen3 shape, 512 x 8, vocabulary 6400), or with --experts 8 experts and a shared one (256 x 4) on
layouts for experts. It trains in fp32 with one thread per rank. TEXT.jsonl is packed once, with a tokenizer trained on it. The curve
of one process is the reference. Every other run starts from the same seed on one of LAYOUTS, stops after half of the steps, and
resumes from its checkpoint on the layout after it (the last one: on the first).

Two curves are equal if the loss of every step k differs from the reference by at most (relative)
  FACTOR max(u sqrt(R (1 + H / 2)) / 50, max_{j <= k} d_j)
with u = 2^-24. The first term is the error of a loss on equal weights: that of R = 2 (15 L + 4) roundings and sums of H terms
(tests/support/rounding.hpp). The mean over targets leaves a fiftieth of it (a hundred targets and more, each with a sign). Training
amplifies rounding from update to update, depending on the loss surface. d_j measures this: it is the distance of the same training
on one process with plain operations (train.fused_ops false), which round elsewhere. A layout also rounds elsewhere, so its curve is
another sample of the same noise, and FACTOR allows for chance.

Prints Markdown with the largest difference of every run and its course. Exits with 1 if a step is out of bounds.
"""
import argparse
import datetime
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

FACTOR = 4
LAYERS, WIDTH = 8, 512
FLOOR = 2**-24 * math.sqrt(2 * (15 * LAYERS + 4) * (1 + WIDTH / 2)) / 50
LAYOUTS = [
    ("dp 2", 2, {}),
    ("tp 2, sequence parallel", 2, {"parallel.tp": 2, "parallel.sequence_parallel": "true"}),
    ("cp 2", 2, {"parallel.cp": 2}),
    ("dp 2, tp 2", 4, {"parallel.tp": 2}),
    ("ZeRO-3 of 2", 2, {"parallel.zero": 3}),
]


EXPERTS = {"model.hidden_size": 256, "model.num_layers": 4, "model.num_heads": 4, "model.num_kv_heads": 2, "model.num_experts": 8,
           "model.num_experts_per_tok": 2, "model.moe_intermediate_size": 256, "model.num_shared_experts": 1, "parallel.ep": 1, "parallel.pp": 1,
           "parallel.etp": 0}
EXPERT_LAYOUTS = [
    ("ep 2, edp 2", 4, {"parallel.ep": 2}),
    ("pp 2, tp 2", 4, {"parallel.pp": 2, "parallel.tp": 2}),
    ("pp 2", 2, {"parallel.pp": 2}),
    ("ep 2", 2, {"parallel.ep": 2}),
    ("tp 2, ep 4 of whole experts, ZeRO-3", 4, {"parallel.tp": 2, "parallel.ep": 4, "parallel.etp": 1, "parallel.zero": 3}),
]


def call(command, **options):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, **options)


def make_set(args, work):
    data = f"{args.build}/bin/trireme-data"
    tokenizer, packed = os.path.join(work, "tokenizer"), os.path.join(work, "set")
    if not os.path.exists(packed):
        call([data, "tokenizer", "train", "--input", args.data, "--vocab-size", args.vocab_size, "--output", tokenizer])
        call([data, "pack", "--tokenizer", tokenizer, "--input", args.data, "--seq-len", args.seq_len, "--output", packed])
    return packed


def train(args, packed, run, ranks, steps, layout):
    """Trains `run` up to `steps`, from its last checkpoint if it has one."""
    keys = {"model.preset": "minimind-3", "model.hidden_size": WIDTH, "model.num_layers": LAYERS, "model.num_heads": 8, "model.num_kv_heads": 4,
            "model.head_dim": 64, "model.max_seq_len": args.seq_len, "train.seq_len": args.seq_len, "train.micro_batch": args.batch // 2,
            "train.global_batch": args.batch, "train.precision": "fp32", "train.threads": 1, "train.device": "cpu", "train.log_every": 0,
            "train.steps": steps, "optim.lr": args.lr, "optim.schedule": "constant", "optim.warmup_steps": 10, "checkpoint.every": args.steps,
            "parallel.tp": 1, "parallel.cp": 1, "parallel.zero": 0, "parallel.sequence_parallel": "false"}
    if args.experts:
        keys |= {**EXPERTS, "train.micro_batch": args.batch // 4}
    keys |= layout
    command = [f"{args.build}/bin/trireme", "pretrain", "--data", packed, "--run", run]
    command += [word for key, value in keys.items() for word in (f"--{key}", value)]
    if ranks > 1:
        command = ["mpirun", "-n", ranks, "--oversubscribe", "--bind-to", "none"] + command
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    call(command, env=environment, stderr=None if args.verbose else subprocess.DEVNULL)


def losses_of(run, steps):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        losses = {line["step"]: line["loss"] for line in map(json.loads, file) if "loss" in line}
    assert sorted(losses) == list(range(1, steps + 1)), f"{run}: steps {sorted(losses)}"
    return [losses[step] for step in range(1, steps + 1)]


def curve(args, work, packed, name, parts):
    """Returns the losses of a run on one (ranks, steps, layout) after another."""
    run = os.path.join(work, name.replace(" ", "-").replace(",", ""))
    begin = time.monotonic()
    for ranks, steps, layout in parts:
        train(args, packed, run, ranks, steps, layout)
    losses = losses_of(run, args.steps)
    shutil.rmtree(run)
    return losses, time.monotonic() - begin


def distances(losses, reference):
    return [abs(a / b - 1) for a, b in zip(losses, reference)]


def course(values, args):
    """Returns the largest value so far, at some steps."""
    return " | ".join(f"{max(values[:step]):.1e}" for step in marks(args))


def marks(args):
    return sorted({1, *(max(1, args.steps * part // 8) for part in (1, 2, 4, 5, 6, 8))})


def compare(args, work):
    packed = make_set(args, work)
    reference, seconds = curve(args, work, packed, "one process", [(1, args.steps, {})])
    plain, plain_seconds = curve(args, work, packed, "plain", [(1, args.steps, {"train.fused_ops": "false"})])
    noise = distances(plain, reference)
    bounds = [FACTOR * max(FLOOR, max(noise[:step + 1])) for step in range(args.steps)]
    print(f"One process, {args.steps} steps of {args.batch} x {args.seq_len} tokens: loss {reference[0]:.4f} -> {reference[-1]:.4f} ({seconds:.0f} s).\n")
    print("Largest relative difference of the loss from one process, up to step:\n")
    print(f"| run | {' | '.join(map(str, marks(args)))} | s |\n|---|{'---|' * (len(marks(args)) + 1)}")
    print(f"| one process, plain operations | {course(noise, args)} | {plain_seconds:.0f} |")
    print(f"| bound | {course(bounds, args)} | |", flush=True)
    good = True
    layouts = EXPERT_LAYOUTS if args.experts else LAYOUTS
    for i, (name, ranks, layout) in enumerate(layouts):
        next_name, next_ranks, next_layout = layouts[(i + 1) % len(layouts)]
        losses, seconds = curve(args, work, packed, name, [(ranks, args.steps // 2, layout), (next_ranks, args.steps, next_layout)])
        apart = distances(losses, reference)
        wrong = [step + 1 for step in range(args.steps) if not apart[step] <= bounds[step]]
        print(f"| {name}, then {next_name} | {course(apart, args)} | {seconds:.0f} |", flush=True)
        if wrong:
            print(f"\nOUT OF BOUNDS: {name}, then {next_name}, at steps {wrong[:10]}\n", flush=True)
        good = good and not wrong
    print(f"\n{'One curve.' if good else 'NOT one curve.'}")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--data", required=True, help="jsonl of {text}")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4, help="sequences of an update, even")
    parser.add_argument("--lr", type=float, default=1e-4, help="a higher one amplifies rounding more")
    parser.add_argument("--vocab-size", type=int, default=6400)
    parser.add_argument("--experts", action="store_true", help="a mixture of experts, on layouts for it")
    parser.add_argument("--keep", help="folder for the token set, kept")
    parser.add_argument("--verbose", action="store_true", help="what the runs say")
    args = parser.parse_args()
    print(f"# One curve on every layout, {datetime.date.today()}\n")
    with tempfile.TemporaryDirectory() as temporary:
        work = args.keep or temporary
        os.makedirs(work, exist_ok=True)
        return 0 if compare(args, work) else 1


if __name__ == "__main__":
    sys.exit(main())
