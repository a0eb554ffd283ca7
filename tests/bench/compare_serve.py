#!/usr/bin/env python3
"""Compares the speed of `trireme serve` with 1, 8 and 32 clients with `transformers serve` on the same weights.

usage: compare_serve.py BUILD_DIR [--only ours,long,transformers,continuous] [--requests 64] [--preset minimind-3] [--threads 2] [--precision fp32]

Chats have 16 to 256 tokens and answers 16 to 128, always with the most likely token. Every client sends its
next request when it has an answer. `long`: a prompt of 4,000 tokens arrives while 8 answers are streamed.
Prints Markdown. Needs torch and transformers[serving].
"""
import argparse
import datetime
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import compare_ddp as base
import compare_generate

WAIT_S = 300


def chat_of(draws, words):
    return " ".join(draws.choice(("river", "stone", "north", "light", "seven", "green", "slow", "house")) for _ in range(words))


def mixed(number):
    draws = random.Random(7)
    return [(chat_of(draws, draws.randint(8, 120)), draws.randint(16, 128)) for _ in range(number)]


class Server:
    def __init__(self, command, port, model):
        self.port, self.model = port, model
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + WAIT_S
        while True:
            try:
                self.answer("hello", 2)
                return
            except (OSError, http.client.HTTPException, KeyError, ValueError):
                if time.monotonic() > end or self.process.poll() is not None:
                    raise SystemExit(f"{command[0]} answers nothing") from None
                time.sleep(0.5)

    def post(self, text, max_tokens, **extra):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, "temperature": 0, **extra}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def answer(self, text, max_tokens):
        """Returns the number of completion tokens."""
        return json.loads(self.post(text, max_tokens).read())["usage"]["completion_tokens"]

    def stream(self, text, max_tokens):
        """Returns the times at which tokens of the answer came, from the request on. Uses the
        log-probabilities, because a token may have no text of its own (half a letter, or one
        that the tokenizer does not know)."""
        begin, times = time.perf_counter(), []
        for line in self.post(text, max_tokens, stream=True, logprobs=True):
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                if choices and (choices[0].get("logprobs") or {}).get("content"):
                    times.append(time.perf_counter() - begin)
        return times

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def by_clients(number, requests, call):
    """Returns the results of `call` for all requests, and the seconds."""
    left, results, lock = list(requests), [], threading.Lock()

    def client():
        while True:
            with lock:
                if not left:
                    return
                one = left.pop()
            result = call(*one)
            with lock:
                results.append(result)
    threads = [threading.Thread(target=client) for _ in range(number)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, time.perf_counter() - begin


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def tokens_per_s(server, clients, number):
    tokens, seconds = by_clients(clients, mixed(number), server.answer)
    return sum(tokens) / seconds


def measure_ours(args, server):
    print("\n### ours\n\n| clients | tokens/s | first token p50, p99 (ms) | between tokens p50, p99 (ms) |\n|---|---|---|---|", flush=True)
    for clients in (1, 8, 32):
        speed = tokens_per_s(server, clients, args.requests)
        streams, _ = by_clients(clients, mixed(args.requests), server.stream)
        first = [1e3 * times[0] for times in streams if times]
        gaps = [1e3 * (b - a) for times in streams for a, b in zip(times, times[1:])]
        print(f"| {clients} | {speed:.1f} | {quantile(first, 0.5):.0f}, {quantile(first, 0.99):.0f} | {quantile(gaps, 0.5):.1f}, "
              f"{quantile(gaps, 0.99):.1f} |", flush=True)


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
    main()
