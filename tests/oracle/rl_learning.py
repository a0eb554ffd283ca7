#!/usr/bin/env python3
"""Trains policies with `trireme rl` on a rule with a known best mean reward, with three seeds.

usage: rl_learning.py TRIREME TRIREME_DATA [--objectives ppo,spo] [--seeds 3] [--steps 60] [--keep DIR]

A program rewards odd ids, so the best mean reward is 1. Under each objective and each seed, the mean
reward of the last ten steps must reach 0.9. Controls: with a tiny learning rate the reward must stay,
and with a negative weight it must fall. Prints the rewards of all seeds and their spread.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile

from post_training import OPTIM, SHAPE, T, call, keys_of, sentence, write_lines
from rl import IDS, ROWS

PROGRAM = """import json, sys
for line in sys.stdin:
    record = json.loads(line)
    print(sum(i % 2 for i in record["ids"]) / max(len(record["ids"]), 1), flush=True)
"""
KEYS = {"rl.group": 8, "rl.max_new_tokens": 12, "rl.temperature": 0.7, "train.seq_len": T, "train.global_batch": 6, "train.micro_batch": 6,
        "train.precision": "fp32", "rl.kl": "off", "train.eval_every": 20, "data.split": "4,2,0"}
OBJECTIVES = {"grpo": {}, "cispo": {}, "reinforce": {}, "spo": {}, "ppo": {"ppo.critic_lr": 1e-2, "rl.updates": 2}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--keep")
    args = parser.parse_args()
    rng = random.Random(3)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        path = lambda name: os.path.join(work, name)
        write_lines(path("texts.jsonl"), [{"text": sentence(rng, 20, 40)} for _ in range(40)])
        write_lines(path("prompts.jsonl"), [{"conversations": [{"role": "user", "content": sentence(rng, 2, 6)}, {"role": "assistant", "content": "x"}]}
                                            for _ in range(12)])
        with open(path("reward.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        call([args.trireme_data, "tokenizer", "train", "--input", path("texts.jsonl"), "--vocab-size", IDS, "--output", path("tokenizer")])
        for kind, name, more in (("pretrain", "texts", []), ("rl", "prompts", ["--template", "minimind-v3"])):
            call([args.trireme_data, "pack", "--kind", kind, "--tokenizer", path("tokenizer"), "--input", path(f"{name}.jsonl"), "--seq-len", T,
                  "--output", path(name)] + more)
        call([args.trireme, "pretrain", "--data", path("texts"), "--run", path("start"), "--train.steps", 2, "--train.precision", "fp32"] +
             keys_of({**SHAPE, "model.vocab_size": ROWS}, OPTIM))

        def train(objective, seed, weight, lr):
            """Returns the mean rewards of the first and the last ten steps, and those of the validations."""
            run = path(f"{objective} {seed} {weight} {lr}")
            call([args.trireme, "rl", "--init", path("start"), "--data", path("prompts"), "--run", run] +
                 keys_of({**OPTIM, **KEYS, "optim.lr": lr, "train.steps": args.steps, "train.seed": seed, "rl.objective": objective,
                          "rl.rewards": f"command={weight}", "rl.reward_command": f"{sys.executable} '{path('reward.py')}'",
                          **OBJECTIVES[objective]}))
            with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
                lines = list(map(json.loads, file))
            rewards = [line["reward_command"] for line in lines if "reward_command" in line]
            valid = [line["valid_reward"] for line in lines if "valid_reward" in line]
            return statistics.mean(rewards[:10]), statistics.mean(rewards[-10:]), valid

        for objective in args.objectives.split(","):
            for name, weight, lr, reached in (("learns", 1, 1e-2, lambda first, last: last >= 0.9),
                                              ("without a learning rate", 1, 1e-12, lambda first, last: abs(last - first) < 0.1),
                                              ("with the opposite reward", -1, 1e-2, lambda first, last: last < first - 0.2)):
                results = [train(objective, seed, weight, lr) for seed in range(1, (args.seeds if weight == 1 and lr > 1e-6 else 1) + 1)]
                lasts = [last for _, last, _ in results]
                spread = f", standard deviation {statistics.stdev(lasts):.3f}" if len(lasts) > 1 else ""
                print(f"{objective} {name}: first ten steps {', '.join(f'{first:.3f}' for first, *_ in results)}; last ten steps "
                      f"{', '.join(f'{last:.3f}' for last in lasts)}{spread}; validations of seed 1 {results[0][2]}", flush=True)
                if not all(reached(first, last) for first, last, _ in results):
                    wrong += 1
                    print("this reward is not the expected one")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
