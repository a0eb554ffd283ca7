#!/usr/bin/env python3
"""Proves that `trireme rl` learns arithmetic with a calculator in two turns.

usage: agents_learn.py TRIREME TRIREME_DATA [--keep DIR]

A model has learned to call tools, but calls them with wrong arguments and does not use the results well. Three seeds train it with the
reward `gt`. The share of right answers must at least double, with 95 % intervals that do not overlap. With a tiny learning rate, the
share must not double. Prints the curves. Exits with 1 if this is not so.
"""
import argparse
import os
import sys
import tempfile

import rl
from agents import Setup
from post_training import call

STEPS, GROUP, WINDOW, SEEDS = 150, 12, 10, (1, 2, 3)


def interval(right, count):
    """Returns the 95 % interval of a share (Wilson)."""
    z, share = 1.96, right / count
    middle, width = share + z * z / (2 * count), z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return (middle - width) / (1 + z * z / count), (middle + width) / (1 + z * z / count)


def right_answers(setup, name, seed, lr):
    """Returns the share of right answers in each window of steps, and the answers of a window."""
    call(setup.command(name, {"rl.group": GROUP, "rl.rewards": "gt=1", "rl.kl": "off", "train.steps": STEPS, "train.precision": "fp32",
                              "train.seed": seed, "optim.lr": lr, "rl.max_turns": 2}))
    answers = rl.read_run(setup.path(name))[1]
    size = WINDOW * len(answers) // STEPS
    return [sum(a["rewards"]["gt"] > 0 for a in answers[first:first + size]) for first in range(0, len(answers), size)], size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--keep")
    args = parser.parse_args()
    wrong = False
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        setup = Setup(args.trireme, args.trireme_data, work, 160)
        for lr in (1e-3, 1e-12):
            curves = []
            for seed in SEEDS:
                curve, size = right_answers(setup, f"seed {seed} {lr}", seed, lr)
                curves.append(curve)
                print(f"learning rate {lr}, seed {seed}: right of {size}: {curve}", flush=True)
            first, last = sum(curve[0] for curve in curves), sum(curve[-1] for curve in curves)
            count = size * len(SEEDS)
            apart = interval(last, count)[0] > interval(first, count)[1] and last >= 2 * first
            each = all(curve[-1] >= 2 * curve[0] for curve in curves)
            print(f"learning rate {lr}: {first / count:.3f} {interval(first, count)} to {last / count:.3f} {interval(last, count)}")
            wrong |= (apart and each) != (lr > 1e-6)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
