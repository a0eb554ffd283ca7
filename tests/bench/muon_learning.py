#!/usr/bin/env python3
"""Measures how many tokens Muon and a tuned AdamW need for the same validation loss, and prints a table in Markdown.

usage: muon_learning.py TRIREME TRIREME_DATA TEXTS.jsonl WORK [--steps 600] [--fewer 1.3] [--seeds 3]

Both optimizers train the same small model on the same data. The learning rate of AdamW is the best of ADAMW_RATES, and that of Muon the best of
MUON_RATES, by the last validation loss with seed 1. The runs of AdamW have --steps updates. The runs of Muon have --steps / --fewer updates, with
their own warmup and decay. Muon passes if its mean last validation loss over all seeds is at most that of AdamW. Exits with 1 if not.
TEXTS has one JSON object with a "text" in each line. WORK keeps the runs; runs that exist are not repeated.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ADAMW_RATES = [1e-3, 2e-3, 4e-3, 8e-3]
MUON_RATES = [5e-3, 1e-2, 2e-2]
MODEL = ["--model.hidden_size", "96", "--model.num_layers", "4", "--model.num_heads", "4", "--model.intermediate_size", "384"]
SEQUENCE, BATCH = 128, 8


def pack(arguments):
    """Trains a tokenizer and packs training and validation data: every tenth document is for validation."""
    paths = {name: os.path.join(arguments.work, name) for name in ("train", "valid", "tokenizer")}
    if os.path.isdir(paths["valid"]):
        return paths
    with open(arguments.texts, encoding="utf-8") as file:
        lines = file.readlines()
    for name, chosen in (("train", [x for i, x in enumerate(lines) if i % 10]), ("valid", lines[::10][:200])):
        with open(paths[name] + ".jsonl", "w", encoding="utf-8") as file:
            file.writelines(chosen)
    call = [arguments.trireme_data]
    subprocess.run([*call, "tokenizer", "train", "--input", paths["train"] + ".jsonl", "--vocab-size", "1024", "--output", paths["tokenizer"]], check=True, capture_output=True)
    for name in ("train", "valid"):
        subprocess.run([*call, "pack", "--kind", "pretrain", "--tokenizer", paths["tokenizer"], "--input", paths[name] + ".jsonl", "--seq-len", str(SEQUENCE), "--output", paths[name]],
                       check=True, capture_output=True)
    return paths


def train(arguments, paths, name, steps, seed, keys):
    """Trains one model, unless it exists. Returns (step, validation loss) for each validation."""
    run = os.path.join(arguments.work, f"{name}-{steps}-seed{seed}")
    metrics = os.path.join(run, "metrics.jsonl")
    if not os.path.exists(run + ".done"):
        command = [arguments.trireme, "pretrain", "--data", paths["train"], "--data.valid_path", paths["valid"], "--run", run, *MODEL, "--train.device", "cpu", "--train.precision", "fp32",
                   "--train.threads", "1", "--train.steps", str(steps), "--train.seq_len", str(SEQUENCE), "--train.micro_batch", str(BATCH), "--train.global_batch", str(BATCH), "--train.seed",
                   str(seed), "--train.eval_every", str(max(steps // 10, 1)), "--data.valid_tokens", "32768", "--train.log_every", "0", "--checkpoint.every", "0", "--optim.schedule", "wsd", "--optim.warmup_steps", "20",
                   "--optim.decay_steps", str(steps // 2), "--optim.min_lr", "0", *keys]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        open(run + ".done", "w", encoding="utf-8").close()
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [(line["eval_step"], line["valid_loss"]) for line in lines if line.get("valid_loss") is not None]


def tuned(arguments, paths, name, steps, rates, keys_of):
    """Returns the best rate and the curves of all seeds with it."""
    last = {rate: train(arguments, paths, f"{name}-{rate}", steps, 1, keys_of(rate))[-1][1] for rate in rates}
    best = min(last, key=last.get)
    print(f"\n{name}, {steps} updates, seed 1: " + ", ".join(f"rate {rate} -> {loss:.4f}" for rate, loss in last.items()), flush=True)
    return best, [train(arguments, paths, f"{name}-{best}", steps, seed, keys_of(best)) for seed in range(1, arguments.seeds + 1)]


def table(name, curves):
    print(f"\n| updates of {name} | tokens | mean validation loss | lowest | highest |\n|---|---|---|---|---|")
    for points in zip(*curves):
        losses = [loss for _, loss in points]
        step = points[0][0]
        print(f"| {step} | {step * SEQUENCE * BATCH:,} | {statistics.mean(losses):.4f} | {min(losses):.4f} | {max(losses):.4f} |")
    return statistics.mean(curve[-1][1] for curve in curves)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trireme", "trireme_data", "texts", "work"):
        parser.add_argument(name)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--fewer", type=float, default=1.3)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    paths = pack(arguments)
    fewer = int(arguments.steps / arguments.fewer)
    adamw_rate, adamw = tuned(arguments, paths, "adamw", arguments.steps, ADAMW_RATES, lambda rate: ["--optim.name", "adamw", "--optim.lr", str(rate)])
    # Embedding, head and vectors have the best rate of AdamW.
    muon_rate, muon = tuned(arguments, paths, "muon", fewer, MUON_RATES, lambda rate: ["--optim.name", "muon", "--optim.matrix_lr", str(rate), "--optim.lr", str(adamw_rate)])
    of_adamw, of_muon = table(f"AdamW, rate {adamw_rate}", adamw), table(f"Muon, rate {muon_rate}", muon)
    passed = of_muon <= of_adamw
    print(f"\nMuon after {fewer} updates: {of_muon:.4f}; AdamW after {arguments.steps} updates: {of_adamw:.4f}: {'passed' if passed else 'failed'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
