#!/usr/bin/env python3
"""Compares the speed of `trireme bench generate` with CTranslate2, transformers and llama.cpp on the same
weights, in interleaved pairs.

usage: compare_generate.py BUILD_DIR [--only decode1,decode8,prefill,context] [--pairs 3] [--preset minimind-3] [--threads 2]
       [--precisions fp32,bf16,int8] [--engines ctranslate2,transformers,llama.cpp] [--llama-python PROGRAM]

The weights come from one step of training. 128 tokens follow prompts of 128 tokens (prefill: of 1,024).
CTranslate2 reads the export in fp32, because it has no bf16 on a CPU. `context` is decode1 after a
prompt of 3,968 tokens, and also divides Trireme's speed by that of decode1. llama.cpp reads the export to GGUF in f32, bf16 and q8_0 (int8). Prints Markdown.
Needs torch, transformers and ctranslate2. --llama-python is the Python with llama-cpp-python, which must be
compiled on this machine (`pip install --no-binary :all: llama-cpp-python`): a package for every processor is slower.
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
         "prefill": (1, 1024, 2, "prefill_tokens_per_s"), "context": (1, 3968, 128, "decode_tokens_per_s")}
PRECISIONS = {"ctranslate2": ("fp32",), "transformers": ("fp32", "bf16"), "llama.cpp": ("fp32", "bf16", "int8")}
GGUF_TYPES = {"fp32": "f32", "bf16": "bf16", "int8": "q8_0"}


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
    weights = ["--weights", "int8"] if precision == "int8" else ["--precision", precision]
    text = subprocess.run([f"{args.build}/bin/trireme", "bench", "generate", "--checkpoint", run, "--threads", str(args.threads), *weights,
                           "--batch", str(batch), "--prompt-tokens", str(prompt), "--new-tokens", str(new), "--json"],
                          check=True, capture_output=True, text=True).stdout
    figures = json.loads(text)
    return figures[key], figures["bandwidth_share"]


def gguf_file(args, run, work, precision):
    folder = os.path.join(work, f"gguf-{precision}")
    if not os.path.isdir(folder):
        base.call([f"{args.build}/bin/trireme", "export", "--checkpoint", run, "--output", folder, "--format", "gguf", "--dtype",
                   GGUF_TYPES[precision]], stderr=subprocess.DEVNULL)
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".gguf"))


def theirs(args, model, work, engine, load, precision):
    batch, prompt, new, key = load
    out = os.path.join(work, "peer.json")
    program = args.llama_python if engine == "llama.cpp" else sys.executable
    numbers = [] if engine == "llama.cpp" else ["--precision", precision]
    base.call([program, os.path.join(base.HERE, "generate_peer.py"), "--engine", engine, "--model", model, "--out", out, "--batch", batch,
               "--prompt-tokens", prompt, "--new-tokens", new, "--threads", args.threads, *numbers],
              env={**os.environ, "OMP_NUM_THREADS": str(args.threads)}, stderr=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        return json.load(file)[key]


def compare(args, run, folder, work, name, engine, precision):
    load = LOADS[name]
    model = gguf_file(args, run, work, precision) if engine == "llama.cpp" else folder
    print(f"\n### {name}, {precision}, {engine}\n\n| pair | ours tokens/s | theirs | ratio | ours of the memory's limit | load before |\n|---|---|---|---|---|---|",
          flush=True)
    ratios = []
    for pair in range(args.pairs):
        before = base.load()
        speeds = {}
        for side in (("ours", "theirs") if pair % 2 == 0 else ("theirs", "ours")):
            speeds[side] = ours(args, run, load, precision) if side == "ours" else theirs(args, model, work, engine, load, precision)
        speed, share = speeds["ours"]
        ratios.append(speed / speeds["theirs"])
        print(f"| {pair + 1} | {speed:.1f} | {speeds['theirs']:.1f} | {ratios[-1]:.3f} | {share:.0%} | {before:.2f} |", flush=True)
    print(f"\nMedian ratio {statistics.median(ratios):.3f}.", flush=True)


def compare_contexts(args, run, precision):
    print(f"\n### context, {precision}, ours\n\n| pair | behind 128 | behind 3,968 | ratio |\n|---|---|---|---|", flush=True)
    for pair in range(args.pairs):
        short, long = (ours(args, run, LOADS[name], precision)[0] for name in ("decode1", "context"))
        print(f"| {pair + 1} | {short:.1f} | {long:.1f} | {long / short:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default="decode1,decode8,prefill,context")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--preset", default="minimind-3")
    parser.add_argument("--precisions", default="fp32,bf16,int8")
    parser.add_argument("--engines", default=",".join(PRECISIONS))
    parser.add_argument("--llama-python", default=sys.executable)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        run, folder = make_model(args, work)
        print(f"# Generation, {datetime.date.today()}\n\n{base.cpu_model()}, {args.threads} threads, {args.preset}.", flush=True)
        for name in args.only.split(","):
            for precision in args.precisions.split(","):
                if name == "context":
                    compare_contexts(args, run, precision)
                for engine in args.engines.split(","):
                    if precision in PRECISIONS[engine]:
                        compare(args, run, folder, work, name, engine, precision)


if __name__ == "__main__":
    main()
