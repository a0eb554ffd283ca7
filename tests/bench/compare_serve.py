#!/usr/bin/env python3
"""Compares the speed of `trireme serve` with 1, 8 and 32 clients with `transformers serve` on the same weights.

usage: compare_serve.py BUILD_DIR [--only ours,long,transformers,continuous] [--requests 64] [--preset minimind-3] [--threads 2] [--precision fp32]

Chats have 16 to 256 tokens and answers 16 to 128, always with the most likely token. Every client sends its
next request when it has an answer. `long`: a prompt of 4,000 tokens arrives while 8 answers are streamed.
Prints Markdown. Needs torch and transformers[serving].
"""
import argparse
import datetime
import os
import random
import statistics
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
import compare_ddp as base
import compare_generate
from serve_load import NoAnswer, Server, by_clients, chat_of, measured, mixed

def tokens_per_s(server, clients, number):
    tokens, seconds = by_clients(clients, mixed(number), server.answer)
    return sum(tokens) / seconds


def measure_ours(args, server):
    print("\n### ours\n\n| clients | tokens/s | first token p50, p99 (ms) | between tokens p50, p99 (ms) |\n|---|---|---|---|", flush=True)
    for clients in (1, 8, 32):
        result = measured(server, clients, args.requests)
        print(f"| {clients} | {result['tokens_per_s']:.1f} | {result['first_token_p50_ms']:.0f}, {result['first_token_p99_ms']:.0f} | "
              f"{result['between_tokens_p50_ms']:.1f}, {result['between_tokens_p99_ms']:.1f} |", flush=True)


def measure_long(server):
    """Returns the gaps between tokens of 8 answers, without and with a prompt of 4,000 tokens
    that is read meanwhile."""
    draws = random.Random(3)
    normal, longest = [], []
    for sink, long_one in ((normal, False), (longest, True)):
        intruder = threading.Timer(1.0, lambda: server.answer(chat_of(draws, 2600), 1))
        if long_one:
            intruder.start()
        streams, _ = by_clients(8, [(chat_of(draws, 20), 200)] * 8, server.stream)
        if long_one:
            intruder.join()
        sink += [1e3 * (b - a) for times in streams for a, b in zip(times[5:], times[6:])]
    step = statistics.median(normal)
    print(f"\n### a long prompt\n\nBetween tokens of 8 answers: median {step:.1f} ms, longest {max(normal):.1f} ms; while a long prompt is read the longest is "
          f"{max(longest):.1f} ms, {max(longest) / step:.1f} normal steps.", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default="ours,long,transformers,continuous")
    for name, value in (("requests", 64), ("threads", 2), ("port", 28431)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--preset", default="minimind-3")
    parser.add_argument("--precision", default="fp32")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    with tempfile.TemporaryDirectory() as work:
        run, folder = compare_generate.make_model(args, work)
        print(f"# Serving, {datetime.date.today()}\n\n{base.cpu_model()}, {args.threads} threads beside the clients, {args.preset}, {args.precision}.", flush=True)
        chosen = args.only.split(",")
        if "ours" in chosen or "long" in chosen:
            server = Server([f"{args.build}/bin/trireme", "serve", "--checkpoint", run, "--port", args.port, "--threads", args.threads, "--precision",
                             args.precision, "--model-name", "it"], args.port, "it")
            if "ours" in chosen:
                measure_ours(args, server)
            if "long" in chosen:
                measure_long(server)
            server.stop()
        for name, flags in (("transformers", []), ("continuous", ["--continuous-batching"])):
            if name not in chosen:
                continue
            args.port += 1
            program = os.path.join(os.path.dirname(sys.executable), "transformers")
            server = Server([program, "serve", folder, "--port", args.port, "--device", "cpu", "--dtype",
                             {"fp32": "float32", "bf16": "bfloat16"}[args.precision], *flags], args.port, folder)
            print(f"\n### transformers serve {' '.join(flags)}\n\n| clients | tokens/s |\n|---|---|", flush=True)
            for clients in (1, 8, 32):
                print(f"| {clients} | {tokens_per_s(server, clients, args.requests):.1f} |", flush=True)
            server.stop()


if __name__ == "__main__":
    try:
        main()
    except NoAnswer as error:
        raise SystemExit(str(error)) from None
