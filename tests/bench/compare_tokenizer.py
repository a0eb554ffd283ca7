#!/usr/bin/env python3
"""Measures encoding and training of Trireme, gigatoken, tiktoken and Hugging Face tokenizers on one corpus, one
after another.

usage: compare_tokenizer.py BUILD CORPUS.jsonl [--rounds 3] [--parts encode threads train] [--hf-train] [--limit-mb 12] [--json FILE]

Each figure comes from its own process: MB of text (10^6 bytes of UTF-8) per second of wall time, and per
second of processor time (user + system of the timed part), which is correct even on a busy machine. Within a
round, the programs run one after another. A ratio is the median of the ratios of all rounds. All programs use
the tokenizer that Trireme trained on the corpus (6,400 tokens), except in training.

- encode: from a jsonl file in the page cache to ids in memory. tiktoken and Hugging Face get a prepared list
  of texts, and only --limit-mb of text, because they would take minutes.
- threads: Trireme with 2 threads against two processes of 1 thread at the same time, with half of the corpus
  each.
- train: 6,400 tokens from jsonl. Trireme's figure is the whole program, the others only their training call.
  Hugging Face (minutes) runs only with --hf-train, once.

make_corpus.py makes a corpus. Programs that are not installed are skipped and named.
"""
import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ONE = "<|endoftext|>"


def clock():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), usage.ru_utime + usage.ru_stime


def timed(body):
    wall, cpu = clock()
    result = body()
    wall_end, cpu_end = clock()
    return result, wall_end - wall, cpu_end - cpu


def texts_of(path, limit=float("inf")):
    texts, size = [], 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= limit:
                break
    return texts, size


def byte_of_char():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


def worker_encode(peer, tokenizer, corpus, limit):
    """Runs one timed encoding in this process and prints its figures."""
    if peer == "gigatoken":
        import gigatoken
        import awkward
        encoder, size = gigatoken.Tokenizer(tokenizer), texts_of(corpus)[1]
        ids, wall, cpu = timed(lambda: encoder.encode_files(gigatoken.JsonlFileSource([corpus]), parallel=False))
        return size, wall, cpu, int(awkward.sum(awkward.num(ids)))
    texts, size = texts_of(corpus, limit)
    if peer == "tiktoken":
        import tiktoken
        with open(tokenizer, encoding="utf-8") as file:
            state = json.load(file)
        char, special = byte_of_char(), {t["content"] for t in state["added_tokens"]}
        vocab = sorted((i, t) for t, i in state["model"]["vocab"].items() if t not in special)
        ranks = {bytes(char[c] for c in token): rank for rank, (_, token) in enumerate(vocab)}
        pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        encoding = tiktoken.Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        ids, wall, cpu = timed(lambda: [encoding.encode_ordinary(t) for t in texts])
        return size, wall, cpu, count(ids)
    from tokenizers import Tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encoder = Tokenizer.from_file(tokenizer)
    encodings, wall, cpu = timed(lambda: encoder.encode_batch(texts, add_special_tokens=False))
    return size, wall, cpu, sum(len(e.ids) for e in encodings)


def count(ids):
    return sum(len(document) for document in ids)


def worker_train(peer, corpus):
    if peer == "gigatoken":
        import gigatoken
        size = texts_of(corpus)[1]
        _, wall, cpu = timed(lambda: gigatoken.train_bpe(gigatoken.JsonlFileSource([corpus]), 6400, [ONE]))
        return size, wall, cpu, 0
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    texts, size = texts_of(corpus)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=6400, special_tokens=[ONE], show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    _, wall, cpu = timed(lambda: tokenizer.train_from_iterator(texts, trainer))
    return size, wall, cpu, 0


def peer_run(threads, *arguments):
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
    done = subprocess.run([sys.executable, __file__, "--worker", *map(str, arguments)], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])  # some peers print messages


def figures(size, wall, cpu, tokens):
    return {"mb_per_s": size / 1e6 / wall, "mb_per_cpu_s": size / 1e6 / cpu, "wall_s": wall, "cpu_s": cpu, "tokens": tokens}


class Ours:
    def __init__(self, build):
        self.program = os.path.join(build, "bin", "trireme-data")

    def bench(self, tokenizer, corpus, threads):
        done = self.start_bench(tokenizer, corpus, threads)
        return self.end_bench(done)

    def start_bench(self, tokenizer, corpus, threads):
        return subprocess.Popen([self.program, "bench", "--tokenizer", tokenizer, "--input", corpus, "--threads", str(threads), "--seconds", "0",
                                 "--no-pack", "--json"], stdout=subprocess.PIPE, text=True)

    @staticmethod
    def end_bench(process):
        out = json.loads(process.communicate()[0])
        return {"mb_per_s": out["encode_first_pass_mb_per_s"], "mb_per_cpu_s": out["encode_mb_per_cpu_s"], "tokens": out["tokens"]}

    def train(self, corpus, folder, threads, size):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([self.program, "tokenizer", "train", "--input", corpus, "--output", folder, "--vocab-size", "6400", "--threads", str(threads),
                        "--progress", "none"], check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return figures(size, time.perf_counter() - start, cpu, 0)


def report(name, row):
    if "error" in row:
        print(f"    {name:34} not run: {row['error'][:150]}", flush=True)
        return
    times = f"   {row['wall_s']:7.2f} s wall, {row['cpu_s']:7.2f} s processor" if "wall_s" in row else ""
    print(f"    {name:34} {row['mb_per_s']:8.1f} MB/s {row['mb_per_cpu_s']:8.1f} MB/processor-s{times}  load {os.getloadavg()[0]:.1f}", flush=True)


def ratios(rounds, ours, key):
    for peer in rounds[0]:
        pairs = [r[ours][key] / r[peer][key] for r in rounds if peer != ours and "error" not in r.get(peer, {"error": 1})]
        if pairs:
            print(f"    ours / {peer:25} {key:14} median {statistics.median(pairs):7.2f}   of {', '.join(f'{p:.2f}' for p in pairs)}")


def halves(corpus, folder):
    with open(corpus, "rb") as file:
        lines = file.readlines()
    paths = [os.path.join(folder, f"half-{i}.jsonl") for i in range(2)]
    for i, path in enumerate(paths):
        with open(path, "wb") as file:
            file.writelines(lines[i::2])
    return paths


def compare_threads(ours, tokenizer, corpus, rounds, folder):
    parts, results = halves(corpus, folder), []
    print("  threads: two threads, and two processes of one thread at the same time")
    for _ in range(rounds):
        two = ours.bench(tokenizer, corpus, 2)
        processes = [ours.start_bench(tokenizer, part, 1) for part in parts]
        apart = [ours.end_bench(p) for p in processes]
        both = {k: (sum(a[k] for a in apart) if k == "mb_per_s" else statistics.mean(a[k] for a in apart)) for k in ("mb_per_s", "mb_per_cpu_s")}
        results.append({"2 threads": two, "2 processes": both})
        for name, row in results[-1].items():
            report(name, row)
    for key in ("mb_per_s", "mb_per_cpu_s"):
        ratios(results, "2 threads", key)
    return results


def compare_encode(ours, tokenizer, corpus, rounds, limit):
    results, path = [], os.path.join(tokenizer, "tokenizer.json")
    print("  encode, one thread")
    for _ in range(rounds):
        row = {"ours": ours.bench(tokenizer, corpus, 1), "gigatoken": peer_run(1, "encode", "gigatoken", path, corpus, 0)}
        row["tiktoken"] = peer_run(1, "encode", "tiktoken", path, corpus, limit)
        row["Hugging Face"] = peer_run(1, "encode", "hf", path, corpus, limit / 4)
        results.append(row)
        for name, figure in row.items():
            report(name, figure)
        if "tokens" in row["gigatoken"] and row["gigatoken"]["tokens"] != row["ours"]["tokens"]:
            print(f"    note: gigatoken gives {row['gigatoken']['tokens']} tokens, ours {row['ours']['tokens']}")
    for key in ("mb_per_s", "mb_per_cpu_s"):
        ratios(results, "ours", key)
    return results


def compare_train(ours, corpus, rounds, size, hf, folder):
    results = []
    print("  train, 6,400 tokens, two threads")
    for i in range(rounds):
        row = {"ours": ours.train(corpus, os.path.join(folder, f"train-{i}"), 2, size), "gigatoken": peer_run(2, "train", "gigatoken", corpus)}
        if hf and i == 0:
            row["Hugging Face"] = peer_run(2, "train", "hf", corpus)
        results.append(row)
        for name, figure in row.items():
            report(name, figure)
    for key in ("mb_per_s", "mb_per_cpu_s"):
        ratios(results, "ours", key)
    return results


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(names)} processors"


def worker(arguments):
    kind, peer, *rest = arguments
    result = worker_train(peer, rest[0]) if kind == "train" else worker_encode(peer, rest[0], rest[1], float(rest[2]))
    print(json.dumps(figures(*result)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("corpus")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", default=["encode", "threads", "train"], choices=["encode", "threads", "train"])
    parser.add_argument("--hf-train", action="store_true")
    parser.add_argument("--limit-mb", type=float, default=12)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    ours, size = Ours(args.build), texts_of(args.corpus)[1]
    print(f"{processor()}; load {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d %H:%M')}; {size / 1e6:.1f} MB of text")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = os.path.join(folder, "tokenizer")
        if set(args.parts) & {"encode", "threads"}:
            ours.train(args.corpus, tokenizer, 2, size)
        if "encode" in args.parts:
            results["encode"] = compare_encode(ours, tokenizer, args.corpus, args.rounds, args.limit_mb * 1e6)
        if "threads" in args.parts:
            results["threads"] = compare_threads(ours, tokenizer, args.corpus, args.rounds, folder)
        if "train" in args.parts:
            results["train"] = compare_train(ours, args.corpus, args.rounds, size, args.hf_train, folder)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if sys.argv[1:2] == ["--worker"]:
    worker(sys.argv[2:])
else:
    main()
