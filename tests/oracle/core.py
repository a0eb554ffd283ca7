#!/usr/bin/env python3
"""Compares `trireme eval --core` with plain Python and transformers, on one rank and on two.

usage: core.py TRIREME TRIREME_DATA --mpiexec MPIEXEC

Makes a bundle of 22 small tasks of all three types, and trains and exports a small model. The
oracle draws with Python's `random`, joins the prompts from the published facts of CORE, encodes
them with AutoTokenizer of transformers and scores them with the plain PyTorch model in fp64.

For all items, shots, choices and decisions are equal, and mean losses agree within 1e-9 in fp64
and 1e-4 in fp32. For all tasks, every value of the JSON document is equal. Both numbers of ranks
print and write the same bytes. Damaged bundles end with exit code 3 and name what is wrong. Exits
with 1 and prints the differences.
"""
import argparse
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from transformers import AutoTokenizer

from post_training import load_model, logits_of

MAX_SEQ_LEN = 2048
# Bounds of a mean loss of a few nats. fp64 attends to all tokens of a batch, so its batches are small.
PASSES = [{"max_per_task": 0, "precision": "fp64", "batch": 1, "bound": 1e-9}, {"max_per_task": 5, "precision": "fp32", "batch": 8, "bound": 1e-4}]
WORDS = ["apple", "river", "stone", "cloud", "seven", "walks", "under", "bright", "old", "music", "never", "again"]
TYPES = ["multiple_choice", "schema", "language_modeling"]
SHOTS = [0, 10, 3, 0, 1, 10, 0, 2]
DELIMITERS = [None, "\nAnswer: ", None, " -> "]
ITEMS = [12, 5, 26, 4]
LONG_TASK, LONG_ITEMS = 5, 95  # Python's sample() of 10 shots remembers positions instead of copying the list


def call(words, expect=0):
    result = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != expect:
        raise SystemExit(f"{' '.join(str(word) for word in words)}\n{result.stdout}{result.stderr}\nexit {result.returncode}, expected {expect}")
    return result.stdout if expect == 0 else result.stderr


def run_of(start, length):
    """Returns consecutive words, which the model learns to continue."""
    return " ".join(WORDS[(start + i) % len(WORDS)] for i in range(length))


class Bundle:
    """Tasks with known records, and the directory with their files."""

    def __init__(self, folder):
        self.folder, self.tasks, rng = folder, [], random.Random(7)
        for number in range(22):
            kind = TYPES[number % 3]
            task = {"label": f"task_{number}", "dataset_uri": f"group_{number % 2}/task_{number}.jsonl", "num_fewshot": [SHOTS[number % len(SHOTS)]],
                    "icl_task_type": kind}
            if DELIMITERS[number % 4] is not None:
                task["continuation_delimiter"] = DELIMITERS[number % 4]
            count = LONG_ITEMS if number == LONG_TASK else ITEMS[number % len(ITEMS)]
            self.tasks.append((task, [self.item(rng, kind) for _ in range(count)], [0, 25, 50, 9.1][number % 4]))
        self.write()

    @staticmethod
    def item(rng, kind):
        at = rng.randrange(len(WORDS))
        before, after = run_of(at, rng.randint(2, 5)), ""
        after = run_of(WORDS.index(before.split()[-1]) + 1, rng.randint(1, 2))
        space = rng.choice(["", "", " ", "\n", "\u00a0 "])
        if kind == "multiple_choice":
            choices = list(dict.fromkeys([after] + [" ".join(rng.sample(WORDS, rng.randint(1, 3))) for _ in range(rng.randint(1, 3))] + ["older"]))
            gold = rng.randrange(len(choices))
            if rng.random() < 0.8:
                choices[0], choices[gold] = choices[gold], choices[0]
            return {"query": before + space, "choices": choices, "gold": gold, "category": "ignored"}
        if kind == "schema":
            contexts = [before, " ".join(rng.sample(WORDS, rng.randint(1, 4)))]
            gold = rng.randrange(2)
            return {"context_options": contexts if gold == 0 else contexts[::-1], "continuation": after + rng.choice(["", " é世"]), "gold": gold}
        continuation = after if rng.random() < 0.7 else rng.choice([7, "ü?", "old again river"])
        return {"context": space + before + space, "continuation": continuation}

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self):
        for task, items, _ in self.tasks:
            file = self.path("eval_data", task["dataset_uri"])
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as out:
                out.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        with open(self.path("core.yaml"), "w", encoding="utf-8") as out:
            out.write("# tasks\nicl_tasks:\n")
            for task, _, _ in self.tasks:
                lines = [f"{key}: {json.dumps(value) if key == 'continuation_delimiter' else value}" for key, value in task.items()]
                out.write("-\n" + "".join(f"  {line}\n" for line in lines))
        with open(self.path("eval_meta_data.csv"), "w", encoding="utf-8", newline="") as out:
            table = csv.writer(out)
            table.writerow(["Eval Task", "Description", "Random baseline"])
            table.writerows([[task["label"], 'with "quotes", commas\nand lines', baseline] for task, _, baseline in self.tasks])


def prompts_of(task, item, shots):
    """Returns the texts of an item, for language_modeling without and with the continuation."""
    delimiter = task.get("continuation_delimiter", " ")
    kind = task["icl_task_type"]

    def joined(record, context, continuation):
        context = context.strip() if kind == "language_modeling" else context
        return f"{context}{delimiter}{continuation}"

    solved = ""
    for shot in shots:
        if kind == "multiple_choice":
            solved += joined(shot, shot["query"], shot["choices"][shot["gold"]]) + "\n\n"
        elif kind == "schema":
            solved += joined(shot, shot["context_options"][shot["gold"]], shot["continuation"]) + "\n\n"
        else:
            solved += joined(shot, shot["context"], shot["continuation"]) + "\n\n"
    if kind == "multiple_choice":
        return [solved + joined(item, item["query"], choice) for choice in item["choices"]]
    if kind == "schema":
        return [solved + joined(item, context, item["continuation"]) for context in item["context_options"]]
    return [(solved + joined(item, item["context"], "")).strip(), solved + joined(item, item["context"], item["continuation"])]


class Oracle:
    def __init__(self, exported):
        self.model = load_model(exported, MAX_SEQ_LEN)
        self.tokenizer = AutoTokenizer.from_pretrained(exported, trust_remote_code=False)
        self.first = self.tokenizer.bos_token_id if self.tokenizer.bos_token_id is not None else self.tokenizer.eos_token_id

    def ids(self, text):
        return [self.first] + self.tokenizer.encode(text, add_special_tokens=False)

    def losses(self, ids, first):
        logits = logits_of(self.model, torch.tensor([ids]))[:-1]
        targets = torch.tensor(ids[1:])
        values = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return values[first - 1:], (logits.argmax(dim=-1) == targets)[first - 1:]

    def item(self, task, items, index, lines):
        count = min(task["num_fewshot"][0], len(items) - 1)
        drawn = random.Random(1234 + index).sample([i for i in range(len(items)) if i != index], count)
        prompts = prompts_of(task, items[index], [items[i] for i in drawn])
        encoded = [self.ids(text) for text in prompts]
        shortest = min(len(ids) for ids in encoded)
        same = lambda at: all(ids[at] == encoded[0][at] for ids in encoded)
        kind = task["icl_task_type"]
        if kind == "language_modeling":
            assert encoded[1][:len(encoded[0])] == encoded[0]
            starts, encoded = [len(encoded[0])], encoded[1:]
        elif kind == "multiple_choice":
            starts = [next((at for at in range(shortest) if not same(at)), shortest)] * len(encoded)
        else:
            length = next((at for at in range(shortest) if not same(-1 - at)), shortest)
            starts = [len(ids) - length for ids in encoded]
        scores = [self.losses(ids, start) for ids, start in zip(encoded, starts)]
        means = [values.mean().item() for values, _ in scores]
        line = {"task": task["label"], "index": index, "line": lines[index], "shots": [lines[i] for i in drawn], "losses": means,
                "num_targets": sum(len(values) for values, _ in scores), "num_correct": sum(int(right.sum()) for _, right in scores)}
        if kind == "language_modeling":
            line["correct"] = bool(scores[0][1].all())
        else:
            line["choice"], line["gold"] = means.index(min(means)), items[index]["gold"]
            line["correct"] = line["choice"] == line["gold"]
        return line

    def evaluate(self, bundle, max_per_task):
        lines, figures = [], []
        for task, items, baseline in bundle.tasks:
            shuffled = list(enumerate(items, 1))
            random.Random(1337).shuffle(shuffled)
            shuffled = shuffled[:max_per_task] if max_per_task else shuffled
            numbers, records = [number for number, _ in shuffled], [record for _, record in shuffled]
            mine = [self.item(task, records, index, numbers) for index in range(len(records))]
            lines += mine
            accuracy = sum(line["correct"] for line in mine) / len(mine)
            figures.append({"label": task["label"], "type": task["icl_task_type"], "shots": task["num_fewshot"][0], "num_items": len(mine),
                            "accuracy": accuracy, "baseline": 0.01 * baseline,
                            "centered": (accuracy - 0.01 * baseline) / (1.0 - 0.01 * baseline)})
        return {"core": sum(one["centered"] for one in figures) / len(figures), "tasks": figures}, lines


def compare(mine, other, bound, problems):
    """Compares two predictions; losses may differ by rounding."""
    for key, value in other.items():
        if key == "losses":
            # A choice that is the start of another one has nothing to score: null here, NaN in Python.
            same = [(a is None) == math.isnan(b) and (a is None or abs(a - b) <= bound) for a, b in zip(mine[key], value, strict=True)]
            if not all(same):
                problems.append(f"{other['task']} item {other['index']}: losses {mine[key]}, the oracle has {value}")
        elif mine.get(key) != value:
            problems.append(f"{other['task']} item {other['index']}: {key} is {mine.get(key)!r}, the oracle has {value!r}")


def make_model(args, work):
    corpus, tokenizer, packed, run, exported = (os.path.join(work, name) for name in ("corpus.jsonl", "tokenizer", "set", "run", "exported"))
    rng = random.Random(3)
    with open(corpus, "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": run_of(rng.randrange(len(WORDS)), rng.randint(20, 60))}) + "\n" for _ in range(300))
    call([args.trireme_data, "tokenizer", "train", "--input", corpus, "--vocab-size", 320, "--output", tokenizer])
    call([args.trireme_data, "pack", "--tokenizer", tokenizer, "--input", corpus, "--seq-len", 128, "--output", packed])
    shape = {"preset": "tiny", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "intermediate_size": 48,
             "max_seq_len": MAX_SEQ_LEN}
    call([args.trireme, "pretrain", "--data", packed, "--run", run, "--train.steps", 60, "--train.micro_batch", 4, "--train.global_batch", 4,
          "--train.device", "cpu", "--train.threads", 1, "--optim.lr", 5e-3] + [word for key, value in shape.items() for word in (f"--model.{key}", value)])
    call([args.trireme, "export", "--checkpoint", run, "--output", exported])
    return run, exported


def check_damaged(args, run, bundle, work):
    """Damaged copies of the bundle end with exit code 3 and name what is wrong."""
    def damaged(name, change, *parts):
        copy = os.path.join(work, name)
        shutil.copytree(bundle.folder, copy)
        change(copy)
        error = call([args.trireme, "eval", "--checkpoint", run, "--device", "cpu", "--core", copy], expect=3)
        return [f"{name}: {part!r} is not in {error!r}" for part in parts if part not in error]

    def without_task(copy):
        with open(os.path.join(copy, "core.yaml"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(copy, "core.yaml"), "w", encoding="utf-8") as file:
            file.write("-\n".join(part for part in text.split("-\n") if "label: task_5\n" not in part))

    def bad_line(copy):
        with open(os.path.join(copy, "eval_data", "group_1", "task_1.jsonl"), "a", encoding="utf-8") as file:
            file.write("{\n")

    return (damaged("no-task", without_task, "21 tasks", "missing: task_5") +
            damaged("no-file", lambda copy: os.remove(os.path.join(copy, "eval_data", "group_0", "task_4.jsonl")), "task_4.jsonl") +
            damaged("bad-line", bad_line, "task_1.jsonl:6"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--mpiexec", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    problems = []
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        run, exported = make_model(args, work)
        bundle = Bundle(os.path.join(work, "bundle"))
        oracle = Oracle(exported)
        for one_pass in PASSES:
            max_per_task, outputs = one_pass["max_per_task"], []
            for ranks in (1, 2):
                predictions = os.path.join(work, f"predictions-{ranks}.jsonl")
                launch = [args.mpiexec, "-n", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
                limit = ["--max-per-task", max_per_task] if max_per_task else []
                text = call(launch + [args.trireme, "eval", "--checkpoint", run, "--precision", one_pass["precision"], "--batch", one_pass["batch"],
                                      "--device", "cpu", "--threads", 1, "--core", bundle.folder, "--predictions", predictions, "--json"] + limit)
                with open(predictions, encoding="utf-8") as file:
                    outputs.append((text, file.read()))
            if outputs[0] != outputs[1]:
                problems.append("the outputs of 1 and 2 ranks differ")
            expected, lines = oracle.evaluate(bundle, max_per_task)
            if json.loads(outputs[0][0]) != expected:
                problems.append(f"the document is {outputs[0][0]}, the oracle has {json.dumps(expected)}")
            mine = [json.loads(line) for line in outputs[0][1].splitlines()]
            for one, other in zip(mine, lines, strict=True):
                compare(one, other, one_pass["bound"], problems)
            shares = {kind: [one["accuracy"] for one in expected["tasks"] if one["type"] == kind] for kind in TYPES}
            right = {kind: sum(values) / len(values) for kind, values in shares.items()}
            if not all(0.1 < value < 0.95 for value in right.values()):
                problems.append(f"mean accuracies {right}: the bundle is too hard or too easy to show a difference")
            print(f"max-per-task {max_per_task}: {len(lines)} items, CORE {expected['core']:.4f}, mean accuracies {right}", flush=True)
        problems += check_damaged(args, run, bundle, work)
    for problem in problems[:20]:
        print("OUT OF BOUNDS:", problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
