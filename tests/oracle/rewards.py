#!/usr/bin/env python3
"""Compares the reward rules with the formulas of MiniMind, computed here with Python's str and re.

usage: rewards.py REWARD_DRIVER [--samples N] [--seed S]

Random answers with thoughts, calls, numbers and texts of several scripts, in one or more turns.
Formulas: jingyaogong/minimind, commit d65ef2c, trainer/train_grpo.py and trainer/train_agent.py.
Exits with 1 and prints the first differences.
"""
import argparse
import json
import random
import re
import subprocess
import sys

PIECES = ["the", "tree", "Tree", "is", "12", "3.5", "-7", "1,234", "x2", "你好", "世界", "ÄÖ", "äö", "ΔΕ",
          "Привет", "é", "ǅ", "½", "²", "\u0301", "_", "!", "?", "...", "\u3000", "\u00a0", "\x1c", "\n", "\t",
          "</think>", "<think>", "<tool_call>", "</tool_call>", "5.", ".5", "+4", "10-5", "😀", "İ", "ß"]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"required": ["a", "b"]}}},
         {"type": "function", "function": {"name": "find", "parameters": {"required": ["text"]}}},
         {"type": "function", "function": {"name": "now", "parameters": {"required": []}}}]
REQUIRED = {"add": ["a", "b"], "find": ["text"], "now": []}
CALLS = ['{"name": "add", "arguments": {"a": 1, "b": 0}}', '{"name": "add", "arguments": {"a": 1}}',
         '{"name": "find", "arguments": "{\\"text\\": \\"x\\"}"}', '{"name": "find", "arguments": {"text": ""}}',
         ' {"name": "now"}\n', '{"name": "none", "arguments": {}}', '{"name": "now", "arguments": "{"}', "{", "not JSON",
         '{"name": "add", "arguments": {"a": null, "b": 2}}']
EXPECTED = ["12", "3.5", "-7", "1234", "1,234", "Paris", "äö", "你好", "tree is", "5", "10", "", " 12 ", "0.5", "привет"]


def answer_of(turn):
    return turn.split("</think>", 1)[1].strip() if "</think>" in turn else turn.strip()


def calls_in(text):
    found = []
    for part in re.findall("<tool_call>(.*?)</tool_call>", text, re.DOTALL):
        try:
            found.append(json.loads(part.strip()))
        except ValueError:
            pass
    return found


def is_valid(call, names):
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    return call.get("name") in names and all(arguments.get(key) not in (None, "") for key in REQUIRED[call["name"]])


def repetition(text):
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    groups = [tuple(words[i:i + 3]) for i in range(len(words) - 2)]
    return min(0.5, (len(groups) - len(set(groups))) * 0.5 * 2 / len(groups)) if groups else 0.0


def found_texts(text, expected):
    numbers = [float(n) for n in re.findall(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w.])", text.replace(",", ""))]
    result = set()
    for one in expected:
        plain, number = one.strip(), one.strip().replace(",", "")
        as_text = plain and plain.lower() in text.lower()
        as_number = re.fullmatch(r"[-+]?\d+(?:\.\d+)?", number) and any(abs(float(number) - n) < 1e-6 for n in numbers)
        if as_text or as_number:
            result.add(one)
    return result


def rewards_of(sample):
    turns, unfinished, record = sample["turns"], sample["unfinished"], sample["record"]
    last, expected = turns[-1], record.get("gt", [])
    answers = [answer_of(turn) for turn in turns]
    calls = [call for answer in answers for call in calls_in(answer)]
    names = {tool["function"]["name"] for tool in record.get("tools", [])}
    final = "" if unfinished else answers[-1].split("</tool_call>")[-1]
    result = dict.fromkeys(["thinking", "tools", "gt"], 0.0)
    result["length"] = 0.5 if 20 <= len(last.strip()) <= 800 else -0.5
    if "</think>" in last:
        thought = last.split("</think>", 1)[0].strip()
        result["thinking"] = (1.0 if 20 <= len(thought) <= 300 else -0.5) + (0.25 if last.count("</think>") == 1 else -0.25)
    result["repetition"] = -repetition((final or answers[-1]) if calls else answers[-1])
    result["tags"] = -0.5 * sum(abs(answer.count("<tool_call>") - answer.count("</tool_call>")) for answer in answers)
    if calls:
        valid = sum(is_valid(call, names) for call in calls)
        gap = abs(valid - len(expected)) + max(0, len(calls) - valid)
        result["tools"] = (0.5 if gap == 0 else -0.5 * gap) - (0.5 if unfinished else 0.0)
    if expected:
        result["gt"] = 2.5 * len(found_texts(final, expected)) / len(expected)
    return result


def some_text(rng):
    parts = [rng.choice(PIECES[:12]) if rng.random() < 0.6 else rng.choice(PIECES) for _ in range(rng.randrange(0, 40))]
    text = rng.choice(["", " ", " "]).join(parts)
    if rng.random() < 0.1:
        text *= rng.randrange(2, 20)
    for _ in range(rng.choice([0, 0, 1, 2])):
        text += f"<tool_call>{rng.choice(CALLS)}</tool_call>" + rng.choice(["", " ", rng.choice(PIECES)])
    return rng.choice(["", "Thought about it for long.</think>", "short</think>"]) + text


def some_sample(rng):
    record = {}
    if rng.random() < 0.8:
        record["gt"] = [rng.choice(EXPECTED) for _ in range(rng.randrange(0, 4))]
    if rng.random() < 0.8:
        record["tools"] = rng.sample(TOOLS, rng.randrange(1, 4))
    turns = [some_text(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    return {"turns": turns, "unfinished": rng.random() < 0.2, "record": record}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    samples = [some_sample(rng) for _ in range(args.samples)]
    lines = "".join(json.dumps(sample) + "\n" for sample in samples)
    output = subprocess.run([args.driver], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(output) == len(samples), (len(output), len(samples))
    different, values = 0, {}
    for sample, line in zip(samples, output):
        found, expected = json.loads(line), rewards_of(sample)
        for name, value in expected.items():
            values.setdefault(name, set()).add(value)
            if abs(found[name] - value) < 1e-12:
                continue
            different += 1
            if different <= 5:
                print(f"{name}: {found[name]}, expected {value}, for {json.dumps(sample, ensure_ascii=False)}")
    print(f"{len(samples)} samples, {different} differences, different values: " +
          ", ".join(f"{name} {len(seen)}" for name, seen in sorted(values.items())))
    assert all(len(seen) > 2 for name, seen in values.items() if name != "length"), "the samples are too simple"
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
