#!/usr/bin/env python3
"""Trains policies with `trireme rl` on a rule with a known best mean reward and on a reward model, with three seeds.

usage: rl_learning.py TRIREME TRIREME_DATA [--objectives ppo,spo,model] [--seeds 3] [--steps 60] [--keep DIR]

A program rewards odd ids, so the best mean reward is 1. Under each objective and each seed, the mean
reward of the last ten steps must reach 0.9. Controls: with a tiny learning rate the reward must stay,
and with a negative weight it must fall.

model: a reward model learns to prefer words over symbols. Its accuracy on other pairs must be above
chance (95 % interval). Policies that it rewards must reach a reward above the 95 % interval of their first
step, and their kl_ref must stay under KL_BOUND.

Prints the curves of all seeds (means of ten steps) and their spread.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile

from agents_learn import interval
from post_training import OPTIM, T, call, keys_of, sentence
from rl import IDS, ROWS
from rl_sets import make_start, pack

PROGRAM = """import json, sys
for line in sys.stdin:
    record = json.loads(line)
    print(sum(i % 2 for i in record["ids"]) / max(len(record["ids"]), 1), flush=True)
"""
KEYS = {"rl.group": 8, "rl.max_new_tokens": 12, "rl.temperature": 0.7, "train.seq_len": T, "train.global_batch": 6, "train.micro_batch": 6,
        "train.precision": "fp32", "rl.kl": "off", "train.eval_every": 20, "data.split": "4,2,0"}
OBJECTIVES = {"grpo": {}, "cispo": {}, "reinforce": {}, "spo": {}, "ppo": {"ppo.critic_lr": 1e-2, "rl.updates": 2}}

WINDOW, KL_BOUND = 10, 0.5  # steps; nats per token


def curve(values):
    """Returns the mean of each window of steps."""
    return [statistics.mean(values[first:first + WINDOW]) for first in range(0, len(values), WINDOW)]


def show_curves(name, curves):
    """Prints the mean over seeds of each window and, with several seeds, the standard deviation."""
    points = [f"{statistics.mean(point):.3f}" + (f" +- {statistics.stdev(point):.3f}" if len(point) > 1 else "") for point in zip(*curves)]
    print(f"{name}: {', '.join(points)}", flush=True)


def metrics_of(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return list(map(json.loads, file))


def compare_reward_model(args, path, rng):
    """Returns true if the reward model and the policies that it rewards are as expected."""
    pairs = lambda count: [{"prompt": sentence(rng, 2, 6), "chosen": sentence(rng, 2, 6), "rejected": "".join(rng.choices("!?#0123456789", k=12))}
                           for _ in range(count)]
    held = 64
    for name, count in (("pairs", 64), ("held", held)):
        pack(args.trireme_data, path(""), "dpo", name, pairs(count))
    call([args.trireme, "reward", "--init", path("start"), "--data", path("pairs"), "--run", path("reward-model")] +
         keys_of(OPTIM, {"train.steps": 30, "train.seq_len": T, "train.precision": "fp32"}))
    accuracy = json.loads(call([args.trireme, "eval", "--reward", path("reward-model"), "--data", path("held"), "--json"]))["accuracy"]
    chance = interval(round(accuracy * held), held)
    print(f"reward model: accuracy {accuracy:.3f} on {held} other pairs, 95 % interval {chance[0]:.3f} to {chance[1]:.3f}", flush=True)
    right, rewards, kls = chance[0] > 0.5, [], []
    for seed in range(1, args.seeds + 1):
        run = path(f"model {seed}")
        call([args.trireme, "rl", "--init", path("start"), "--data", path("prompts"), "--run", run] +
             keys_of({**OPTIM, **KEYS, "optim.lr": 2e-3, "train.steps": args.steps, "train.seed": seed, "rl.rewards": "model=1", "rl.reward_model": path("reward-model"),
                      "rl.kl": "loss", "rl.beta": 0.1}))
        lines = [line for line in metrics_of(run) if "reward_model" in line]
        rewards.append(curve([line["reward_model"] for line in lines]))
        kls.append(curve([line["kl_ref"] for line in lines]))
        error = lines[0]["reward_std"] / (KEYS["rl.group"] * KEYS["train.global_batch"]) ** 0.5  # standard error of the first step
        print(f"  seed {seed}: first step {lines[0]['reward_model']:.3f} +- {error:.3f}, last ten steps {rewards[-1][-1]:.3f}, largest kl_ref "
              f"{max(line['kl_ref'] for line in lines):.3f}", flush=True)
        right &= rewards[-1][-1] > lines[0]["reward_model"] + 1.96 * error and max(line["kl_ref"] for line in lines) < KL_BOUND
    show_curves("reward of the reward model", rewards)
    show_curves("kl_ref", kls)
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--objectives", default=",".join([*OBJECTIVES, "model"]))
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
        make_start(args, work, rng, 12, IDS, ROWS)
        with open(path("reward.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        def train(objective, seed, weight, lr):
            """Returns the curve of the rewards, and the rewards of the validations."""
            run = path(f"{objective} {seed} {weight} {lr}")
            call([args.trireme, "rl", "--init", path("start"), "--data", path("prompts"), "--run", run] +
                 keys_of({**OPTIM, **KEYS, "optim.lr": lr, "train.steps": args.steps, "train.seed": seed, "rl.objective": objective,
                          "rl.rewards": f"command={weight}", "rl.reward_command": f"{sys.executable} '{path('reward.py')}'",
                          **OBJECTIVES[objective]}))
            lines = metrics_of(run)
            return (curve([line["reward_command"] for line in lines if "reward_command" in line]),
                    [line["valid_reward"] for line in lines if "valid_reward" in line])

        for objective in args.objectives.split(","):
            if objective == "model":
                if not compare_reward_model(args, path, rng):
                    wrong += 1
                    print("these values are not the expected ones")
                continue
            for name, weight, lr, reached in (("learns", 1, 1e-2, lambda first, last: last >= 0.9),
                                              ("without a learning rate", 1, 1e-12, lambda first, last: abs(last - first) < 0.1),
                                              ("with the opposite reward", -1, 1e-2, lambda first, last: last < first - 0.2)):
                results = [train(objective, seed, weight, lr) for seed in range(1, (args.seeds if weight == 1 and lr > 1e-6 else 1) + 1)]
                show_curves(f"{objective} {name}", [rewards for rewards, _ in results])
                print(f"  last ten steps of each seed {', '.join(f'{rewards[-1]:.3f}' for rewards, _ in results)}; validations of seed 1 {results[0][1]}",
                      flush=True)
                if not all(reached(rewards[0], rewards[-1]) for rewards, _ in results):
                    wrong += 1
                    print("this reward is not the expected one")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
