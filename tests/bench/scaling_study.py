#!/usr/bin/env python3
"""Compares predicted and measured steps of three model shapes in strong and weak scaling, and prints tables in Markdown.

usage: scaling_study.py TRIREME WORK [--steps 5] [--shapes 128x4,256x6,384x8] [--strong-gflop 320]

For each shape and each kind of scaling, `trireme bench scaling` runs three times on one thread per rank:

1. It measures 1 rank and predicts 2 ranks. The links are those of the data sheet.
2. It measures 2 ranks and predicts 1 rank. The links are fitted to all-reduces of 2 ranks.
3. It measures 1 and 2 ranks and predicts 4 to 4,096 ranks.

The third start measures the points that the first two predict, so no constant of these predictions was fitted to the compared
value. The other measurement of the same point shows the noise of the machine. Strong scaling keeps the global batch, which has at
least one sequence for each rank, and one rank trains all of it. So the work of a step (--strong-gflop) limits the batch, and larger
shapes are predicted on fewer ranks.

WORK gets study.json with all output and a figure of each study.
"""
import argparse
import json
import os
import subprocess
import sys
import time

MOST_RANKS = 4096
STRONG_LENGTH, LEAST_BATCH = 16, 8
WEAK = {"train.seq_len": 64, "train.micro_batch": 16, "train.accumulation": 1}
COMMON = {"model.preset": "tiny", "model.vocab_size": 1024, "train.precision": "fp32", "train.threads": 1, "train.device": "cpu"}


def shape_keys(shape):
    hidden, layers = map(int, shape.split("x"))
    heads = hidden // 64
    return {"model.hidden_size": hidden, "model.num_layers": layers, "model.num_heads": heads, "model.num_kv_heads": heads, "model.head_dim": 64,
            "model.intermediate_size": 8 * hidden // 3 // 64 * 64, "model.max_seq_len": 128}


def strong_batch(args, shape):
    """Returns the largest power of two that is a global batch of short sequences within the limit of work."""
    hidden, layers = map(int, shape.split("x"))
    flops_per_sequence = 6 * 12 * hidden**2 * layers * STRONG_LENGTH
    batch = LEAST_BATCH
    while 2 * batch <= MOST_RANKS and 2 * batch * flops_per_sequence <= 1e9 * args.strong_gflop:
        batch *= 2
    return batch


def keys_of(args, shape, scaling):
    if scaling == "weak":
        return {**COMMON, **shape_keys(shape), **WEAK}
    batch = strong_batch(args, shape)
    return {**COMMON, **shape_keys(shape), "train.seq_len": STRONG_LENGTH, "train.micro_batch": min(64, batch // 2), "train.global_batch": batch}


def study(args, shape, scaling, ranks, predict):
    """Returns the JSON document of one start of bench scaling."""
    name = f"{scaling}-{shape}-{'-'.join(map(str, ranks))}"
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks[-1], args.trireme, "bench", "scaling", f"--{scaling}", "--ranks",
               ",".join(map(str, ranks)), "--predict", ",".join(map(str, predict)), "--steps", args.steps, "--json", "--figure",
               os.path.join(args.work, f"{name}.svg")]
    command += [word for key, value in keys_of(args, shape, scaling).items() for word in (f"--{key}", value)]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def step_s(document, ranks, kind):
    return next(point["step_s"] for point in document["points"] if point["ranks"] == ranks and point["kind"] == kind)


def predicted_ranks(args, shape, scaling):
    most = MOST_RANKS if scaling == "weak" else strong_batch(args, shape)
    return [4**i for i in range(1, 7) if 4**i < most] + [most]


def all_studies(args):
    studies = []
    for shape in args.shapes.split(","):
        for scaling in ("strong", "weak"):
            one = study(args, shape, scaling, [1], [2])
            two = study(args, shape, scaling, [2], [1])
            both = study(args, shape, scaling, [1, 2], predicted_ranks(args, shape, scaling))
            print(f"{shape}, {scaling}: measured", file=sys.stderr, flush=True)
            studies.append({"shape": shape, "scaling": scaling, "one": one, "two": two, "both": both})
            with open(os.path.join(args.work, "study.json"), "w", encoding="utf-8") as file:
                json.dump(studies, file, indent=1)
    return studies


def heldout_rows(study):
    """Returns a row of each point that another number of ranks predicted."""
    rows = []
    for ranks, source, other, links in ((2, "one", "two", "data sheet"), (1, "two", "one", "fitted")):
        predicted = step_s(study[source], ranks, "predicted")
        measured = step_s(study["both"], ranks, "measured")
        again = step_s(study[other], ranks, "measured")
        rows.append(f"| {study['shape']} | {study['scaling']} | {ranks} | {3 - ranks} | {links} | {predicted:.4f} | {measured:.4f} | {predicted / measured - 1:+.1%} |"
                    f" {again:.4f} ({again / measured - 1:+.1%}) |")
    return rows


def print_tables(studies):
    print("\n## Held-out points\n")
    print("| shape | scaling | ranks | predicted from ranks | links | predicted s | measured s | error | measured again s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in studies:
        print("\n".join(heldout_rows(one)))
    print("\n## All-reduce fit and fitted steps\n")
    print("| shape | scaling | alpha us | bandwidth GB/s | error on held-out sizes | errors of the fitted steps (1, 2 ranks) |")
    print("|---|---|---|---|---|---|")
    for one in studies:
        fit = one["both"]["fit"]
        errors = ", ".join(f"{error:+.1%}" for error in one["both"]["step_errors"])
        bandwidth = 1e-9 / max(fit["beta_s_per_byte"], 1e-15)
        print(f"| {one['shape']} | {one['scaling']} | {1e6 * fit['alpha_s']:.1f} | {bandwidth:.2f} | {fit['heldout_error']:.1%} | {errors} |")
    print("\n## Points\n")
    print("| shape | scaling | ranks | kind | step s | tokens/s | efficiency | communication / computation |")
    print("|---|---|---|---|---|---|---|---|")
    for one in studies:
        for point in one["both"]["points"]:
            print(f"| {one['shape']} | {one['scaling']} | {point['ranks']} | {point['kind']} | {point['step_s']:.4f} | {point['tokens_per_s']:,.0f} |"
                  f" {point['efficiency']:.1%} | {point['comm_compute_ratio']:.4f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("work")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--shapes", default="128x4,256x6,384x8")
    parser.add_argument("--strong-gflop", type=float, default=320)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    begin = time.monotonic()
    studies = all_studies(args)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {args.steps} steps a point, {time.monotonic() - begin:.0f} s in all")
    print_tables(studies)


if __name__ == "__main__":
    main()
