#!/usr/bin/env python3
"""Compares trained tokenizer.json files, byte for byte, with those of Hugging Face `tokenizers`.

usage: training_oracle.py DRIVER PROGRAM [--cases N] [--seed S] [--mpiexec MPIEXEC]

DRIVER is training_driver (many small random cases), PROGRAM is trireme-data (its options,
several inputs, several ranks). With TRIREME_TEST_DATA=DIR, tokenizers are trained on the texts
of DIR/*.jsonl as well. Exits with 1 if anything differs.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PIECES = ["the", " the", "don't", "WE'LL", "'s", "return", "abc123", "3.14", "世界", "你好，", "мир", "नमस्ते", "👍🏽", "é", "e\u0301",
          "<s>", "<|x|>", " ", "  ", "\n", "\r\n", " \n", "\t", "\u3000", "\u00a0", "\0", "=====", "_x_"]
TOKENS = ["<s>", "<|x|>", "ab", "aba", "the", "Ġthe", "Ġ", "a", "é", "世", "世 界", " the", "b b", "\n"]


def random_text(rng, letters):
    if letters:
        return "".join(rng.choice(letters) for _ in range(rng.randrange(0, 60)))
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(0, 40)))


def random_case(rng):
    letters = rng.choice(["ab", "aab", "abc ", "aé的 ", "ab\n ", None, None])
    case = {"texts": [random_text(rng, letters) for _ in range(rng.choice([0, 1, 5, 40]))],
            "reserved": rng.sample(TOKENS, rng.choice([0, 0, 1, 3, 6])), "lines": rng.random() < 0.3, "cut": rng.random() < 0.4}
    case["all_bytes"] = rng.random() < 0.6
    case["vocab_size"] = rng.choice([1, 50, 256, 262, 300, 400, 800]) if case["all_bytes"] else rng.choice([0, 5, 20, 100])
    case["pattern"] = rng.choice(["gpt2", "gpt2", "llama3", "qwen2", "qwen3.5", "cl100k", "o200k", "tekken"])
    if rng.random() < 0.3:
        case["min_frequency"] = rng.choice([1, 2, 3, 9])
    if rng.random() < 0.3:
        case["max_token_length"] = rng.choice([0, 1, 2, 3, 4, 6, 17])
    if rng.random() < 0.4:
        case["limit_alphabet"] = rng.choice([256, 257, 300]) if case["all_bytes"] else rng.choice([1, 2, 3, 5, 8])
    return case


def texts_of(case):
    if not case.get("lines"):
        return case["texts"]
    return [line + "\n" * (not last) for text in case["texts"] for lines in [text.split("\n")]
            for last, line in zip([False] * (len(lines) - 1) + [True], lines) if line or not last]


def tied_at_the_limit(case, tokenizer):
    """Returns True if the limit cuts between equally frequent characters, where Hugging Face
    chooses at random."""
    limit = case.get("limit_alphabet")
    if limit is None:
        return False
    probe, counts = trainers.BpeTrainer(vocab_size=0, show_progress=False), {}
    for text in texts_of(case):
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
            for c in piece:
                counts[c] = counts.get(c, 0) + 1
    if case["all_bytes"]:
        counts.update({c: float("inf") for c in pre_tokenizers.ByteLevel.alphabet()})
    if case.get("cut"):  # cut tokens bring their own characters
        return True
    ordered = sorted(counts.values(), reverse=True)
    return len(ordered) > limit and ordered[limit - 1] == ordered[limit]


def pre_tokenizer_of(case, ours):
    """The expression of other patterns is read from this project's file: tokenizer_oracle.py
    checks that it is the known one."""
    if case.get("pattern", "gpt2") == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    regex = json.loads(ours)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def hf_train(case, ours, folder, files=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer_of(case, ours)
    tokenizer.decoder = decoders.ByteLevel()
    if tied_at_the_limit(case, tokenizer):
        return None
    if case.get("cut"):
        tokenizer.add_special_tokens(case["reserved"])
    options = {k: case[k] for k in ("min_frequency", "max_token_length", "limit_alphabet") if k in case}
    trainer = trainers.BpeTrainer(vocab_size=case["vocab_size"], special_tokens=case["reserved"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if case["all_bytes"] else [], **options)
    if files:
        tokenizer.train(files, trainer)
    else:
        tokenizer.train_from_iterator(texts_of(case), trainer)
    path = os.path.join(folder, "hf.json")
    tokenizer.save(path)
    with open(path, "rb") as file:
        return file.read()


class Checks:
    def __init__(self):
        self.equal, self.different, self.skipped = 0, 0, 0

    def compare(self, what, ours, theirs):
        if theirs is None:
            self.skipped += 1
        elif ours == theirs:
            self.equal += 1
        else:
            self.different += 1
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
            print(f"DIFFERENT {str(what)[:1500]}\n  at byte {at}: ours {ours[at - 60:at + 60]!r}\n  theirs {theirs[at - 60:at + 60]!r}")


def check_random(driver, checks, rng, count, folder):
    cases = [random_case(rng) for _ in range(count)]
    path = os.path.join(folder, "cases.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
    subprocess.run([driver, path, folder], check=True)
    for i, case in enumerate(cases):
        with open(os.path.join(folder, f"{i}.json"), "rb") as file:
            ours = file.read()
        checks.compare(case, ours, hf_train(case, ours, folder))


def check_program(program, mpiexec, checks, rng, folder):
    """Trains on one corpus in two jsonl files with the program's options."""
    texts = [random_text(rng, None) + rng.choice(["", "\n", " end"]) for _ in range(400)]
    data = os.environ.get("TRIREME_TEST_DATA")
    for path in sorted(glob.glob(os.path.join(data, "pretrain.jsonl"))) if data else []:
        with open(path, encoding="utf-8") as file:
            texts += [json.loads(line)["text"] for line in file]
    inputs = [os.path.join(folder, name) for name in ("a.jsonl", "b.jsonl")]
    for path, part in zip(inputs, (texts[::2], texts[1::2])):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": t}) + "\n\n" for t in part)
    special = os.path.join(folder, "special.json")
    reserved = ["<s>", "<|x|>", "世界"]
    with open(special, "w", encoding="utf-8") as file:
        json.dump(reserved, file)
    base = {"texts": texts, "all_bytes": True, "vocab_size": 900, "reserved": reserved}
    runs = [({}, [], 1), ({"cut": True}, ["--special-in-text", "allow"], 1), ({"lines": True}, ["--unit", "line"], 2),
            ({"min_frequency": 40}, ["--min-frequency", "40"], 3), ({"max_token_length": 5}, ["--max-token-length", "5"], 1),
            ({"pattern": "llama3"}, ["--pattern", "llama3"], 3), ({"all_bytes": False}, ["--alphabet", "used"], 1), ({"limit_alphabet": 256, "cut": False}, ["--limit-alphabet", "256"], 1)]
    for number, (options, arguments, ranks) in enumerate(runs):
        case, output = {**base, **options}, os.path.join(folder, f"program-{number}")
        launch = [mpiexec, "-n", str(ranks), "--oversubscribe", "--bind-to", "none"] if ranks > 1 and mpiexec else []
        subprocess.run([*launch, program, "tokenizer", "train", "--input", *inputs, "--output", output, "--vocab-size", "900", "--threads",
                        str(1 + number % 3), "--progress", "none", "--special-tokens", special, *arguments], check=True, stderr=subprocess.PIPE)
        with open(os.path.join(output, "tokenizer.json"), "rb") as file:
            ours = file.read()
        checks.compare((options, ranks), ours, hf_train(case, ours, folder))
    # Trains on files of lines, like Hugging Face reads them.
    plain = [os.path.join(folder, name) for name in ("a.txt", "b.txt")]
    output = os.path.join(folder, "files")
    parts = ["\n".join(texts[::2]), "\n".join(texts[1::2]) + "\n"]
    for path, source, text in zip(plain, inputs, parts):
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        with open(source, "w", encoding="utf-8") as file:
            file.write(json.dumps({"text": text}) + "\n")
    subprocess.run([program, "tokenizer", "train", "--input", *inputs, "--output", output, "--vocab-size", "900", "--progress", "none",
                    "--special-tokens", special, "--unit", "line"], check=True, stderr=subprocess.PIPE)
    with open(os.path.join(output, "tokenizer.json"), "rb") as file:
        ours = file.read()
    checks.compare("train(files)", ours, hf_train(base, ours, folder, plain))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mpiexec", default="")
    args = parser.parse_args()
    rng, checks = random.Random(args.seed), Checks()
    with tempfile.TemporaryDirectory() as folder:
        check_random(args.driver, checks, rng, args.cases, folder)
        check_program(args.program, args.mpiexec, checks, rng, folder)
    print(f"{checks.equal} files equal, {checks.different} different, {checks.skipped} not compared (a tie at limit_alphabet)")
    sys.exit(1 if checks.different or checks.equal < args.cases // 2 else 0)


main()
