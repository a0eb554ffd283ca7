#!/usr/bin/env python3
"""Compares the speed of `trireme bench generate` with CTranslate2 and transformers on the same weights, in
interleaved pairs.

usage: compare_generate.py BUILD_DIR [--only decode1,decode8,prefill,context] [--pairs 3] [--preset minimind-3] [--threads 2]
       [--precisions fp32,bf16]

The weights come from one step of training. 128 tokens follow prompts of 128 tokens (prefill: of 1,024).
CTranslate2 reads the export in fp32, because it has no bf16 on a CPU. `context` runs only Trireme, after
4,096 tokens and after 128. Prints Markdown. Needs torch, transformers and ctranslate2.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

import compare_ddp as base

LOADS = {"decode1": (1, 128, 128, "decode_tokens_per_s"), "decode8": (8, 128, 128, "decode_tokens_per_s"),
         "prefill": (1, 1024, 2, "prefill_tokens_per_s")}


def make_model(args, work):
    data, program = f"{args.build}/bin/trireme-data", f"{args.build}/bin/trireme"
    corpus, tokenizer, packed, run, folder = (os.path.join(work, name) for name in ("corpus.jsonl", "tok", "set", "run", "hf"))
    base.call([data, "synth", "--output", corpus, "--documents", 2000])
    base.call([data, "tokenizer", "train", "--input", corpus, "--vocab-size", 6400, "--output", tokenizer])
    base.call([data, "pack", "--tokenizer", tokenizer, "--input", corpus, "--seq-len", 128, "--output", packed])
    base.call([program, "pretrain", "--data", packed, "--run", run, "--model.preset", args.preset, "--model.vocab_size", 6400, "--train.steps", 1,
               "--train.global_batch", 2, "--train.micro_batch", 2], stderr=subprocess.DEVNULL)
    base.call([program, "export", "--checkpoint", run, "--output", folder], stderr=subprocess.DEVNULL)
    return run, folder


def ours(args, run, load, precision):
    batch, prompt, new, key = load
    text = subprocess.run([f"{args.build}/bin/trireme", "bench", "generate", "--checkpoint", run, "--threads", str(args.threads), "--precision",
                           precision, "--batch", str(batch), "--prompt-tokens", str(prompt), "--new-tokens", str(new), "--json"],
                          check=True, capture_output=True, text=True).stdout
    figures = json.loads(text)
    return figures[key], figures["bandwidth_share"]


def theirs(args, folder, work, engine, load, precision):
    batch, prompt, new, key = load
    out = os.path.join(work, "peer.json")
    base.call([sys.executable, os.path.join(base.HERE, "generate_peer.py"), "--engine", engine, "--model", folder, "--out", out, "--batch", batch,
               "--prompt-tokens", prompt, "--new-tokens", new, "--threads", args.threads, "--precision", precision],
              env={**os.environ, "OMP_NUM_THREADS": str(args.threads)}, stderr=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        return json.load(file)[key]


def compare(args, run, folder, work, name, engine, precision):
    load = LOADS[name]
    print(f"\n### {name}, {precision}, {engine}\n\n| pair | ours tokens/s | theirs | ratio | ours of the memory's limit | load before |\n|---|---|---|---|---|---|",
          flush=True)
    ratios = []
    for pair in range(args.pairs):
        before = base.load()
        speeds = {}
        for side in (("ours", "theirs") if pair % 2 == 0 else ("theirs", "ours")):
            speeds[side] = ours(args, run, load, precision) if side == "ours" else theirs(args, folder, work, engine, load, precision)
        speed, share = speeds["ours"]
        ratios.append(speed / speeds["theirs"])
        print(f"| {pair + 1} | {speed:.1f} | {speeds['theirs']:.1f} | {ratios[-1]:.3f} | {share:.0%} | {before:.2f} |", flush=True)
    print(f"\nMedian ratio {statistics.median(ratios):.3f}.", flush=True)


def compare_contexts(args, run, precision):
    print(f"\n### context, {precision}, ours\n\n| pair | behind 128 | behind 3,968 | ratio |\n|---|---|---|---|", flush=True)
    for pair in range(args.pairs):
        short, long = (ours(args, run, (1, prompt, 128, "decode_tokens_per_s"), precision)[0] for prompt in (128, 3968))
        print(f"| {pair + 1} | {short:.1f} | {long:.1f} | {long / short:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default="decode1,decode8,prefill,context")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--preset", default="minimind-3")
    parser.add_argument("--precisions", default="fp32,bf16")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        run, folder = make_model(args, work)
        print(f"# Generation, {datetime.date.today()}\n\n{base.cpu_model()}, {args.threads} threads, {args.preset}.", flush=True)
        for name in args.only.split(","):
            for precision in args.precisions.split(","):
                if name == "context":
                    compare_contexts(args, run, precision)
                    continue
                if precision == "fp32":
                    compare(args, run, folder, work, name, "ctranslate2", precision)
                compare(args, run, folder, work, name, "transformers", precision)


if __name__ == "__main__":
    main()
