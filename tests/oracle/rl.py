#!/usr/bin/env python3
"""Compares `trireme rl` with plain PyTorch that reads only the published answers.

usage: rl.py TRIREME TRIREME_DATA MPIEXEC [--all] [--keep DIR]

A model is trained for two steps and exported. `trireme rl` generates answers and trains on them for
three steps in fp64. The log-probabilities of the engine, of the loss and of the reference, the
advantages, the loss and the gradient norm must agree with PyTorch within 1e-10. Then the answers get
other rollout log-probabilities and masks, so that ratios differ from 1, and every objective, divisor,
advantage, correction and KL penalty trains on them by replay. One, two and three ranks must generate
equal tokens and compute equal losses. A run that was killed must resume bitwise. A run must increase
a reward. Without --all, every second case and the shorter comparisons run. Exits with 1 and prints
every value that is out of bounds.
"""
import argparse
import json
import os
import random
import sys
import tempfile

import torch
from torch.nn import functional as F

import loaded_program
import model as oracle
from post_training import BETAS, BOUND, CLIP, DECAY, EPS, LR, OPTIM, SHAPE, T, call, keys_of, load_model, logits_of, sentence
from rl_sets import make_start, pack, write_replay

STEPS, GROUP, PROMPTS, NEW = 3, 3, 6, 12
IDS, ROWS = 330, 352  # the embedding has more rows than the tokenizer has ids
RL = {"rl.group": GROUP, "rl.max_new_tokens": NEW, "rl.temperature": 0.7, "rl.rewards": "length=1,repetition=0.5", "train.seq_len": T,
      "train.global_batch": PROMPTS, "train.micro_batch": 2, "train.steps": STEPS, "train.precision": "fp64"}
CASES = [
    {},
    {"rl.divide": "token", "rl.advantage": "group_mean", "rl.correction": "token_truncate", "rl.correction_cap": 1.1},
    {"rl.divide": "constant", "rl.advantage": "batch", "rl.correction": "token_mask", "rl.correction_cap": 1.1, "rl.kl": "reward"},
    {"rl.divide": "token", "rl.correction": "sequence_truncate", "rl.correction_cap": 1.1, "rl.old": "recompute"},
    {"rl.correction": "sequence_mask", "rl.correction_cap": 1.1, "rl.truncated": "mask", "rl.epsilon_high": 0.4},
    {"rl.objective": "cispo", "rl.epsilon_high": 1.2},
    {"rl.objective": "cispo", "rl.epsilon_high": 1.2, "rl.divide": "token", "rl.advantage": "batch", "rl.truncated": "mask"},
    {"rl.objective": "cispo", "rl.divide": "constant", "rl.advantage": "group_mean", "rl.correction": "token_mask",
     "rl.correction_cap": 1.1, "rl.kl": "off"},
    {"rl.objective": "reinforce", "rl.divide": "token", "rl.kl": "reward"},
    {"rl.objective": "reinforce", "rl.correction": "token_truncate", "rl.correction_cap": 1.1},
]
# Two rollouts, with four updates each.
UPDATES = [
    {},
    {"rl.objective": "cispo", "rl.old": "recompute", "rl.correction": "sequence_truncate", "rl.epsilon_high": 1.1, "rl.divide": "token"},
]


def log_probs(net, line, temperature):
    prompt, answer = line["prompt_ids"], line["completion_ids"]
    ids = torch.tensor([prompt + answer])
    scores = F.log_softmax(logits_of(net, ids[:, :-1])[len(prompt) - 1:, :IDS] / temperature, dim=-1)
    return scores.gather(1, torch.tensor(answer)[:, None])[:, 0]


def k3(reference, current):
    return torch.exp(reference - current) - (reference - current) - 1


def advantages(keys, rewards):
    groups = rewards.view(-1, GROUP)
    if keys["rl.objective"] == "reinforce":
        others = (groups.sum(1, keepdim=True) - groups) / (GROUP - 1)
        return (groups - others).flatten()
    centred = groups - groups.mean(1, keepdim=True)
    divisor = {"group": groups.std(1, keepdim=True, unbiased=False) + 1e-4, "group_mean": 1.0, "batch": rewards.std(unbiased=False) + 1e-4}
    return (centred / divisor[keys["rl.advantage"]]).flatten()


def correction(keys, gap, mask):
    kind, cap = keys["rl.correction"], float(keys["rl.correction_cap"])
    ratio = torch.exp(gap if kind.startswith("token") else (gap * mask).sum().expand_as(gap))
    return ratio.clamp(max=cap) if kind.endswith("truncate") else torch.where(ratio <= cap, ratio, torch.zeros_like(ratio))


def loss_of(net, reference, lines, keys, expected, is_first):
    """Returns the loss of an update; writes the values that the file must have into `expected`. If it is not the first update of the
    rollout, the values that were computed before the first one come from the file."""
    number = lambda key: float(keys[key])
    beta = number("rl.beta")
    answers = []
    for line in lines:
        mask = torch.tensor(line["mask"], dtype=torch.float64)
        current = log_probs(net, line, number("rl.temperature"))
        with torch.no_grad():
            ref = log_probs(reference, line, number("rl.temperature"))
        rollout = torch.tensor(line["rollout_logprobs"], dtype=torch.float64)
        old = current.detach() if keys["rl.old"] == "recompute" else rollout
        gap = current.detach() - rollout
        if not is_first:
            old = torch.tensor(line["old_logprobs"], dtype=torch.float64)
            gap = torch.tensor(line["train_logprobs"], dtype=torch.float64) - rollout if "train_logprobs" in line else None
        answers.append((line, mask, current, ref, gap, old))
    rewards = torch.tensor([sum(float(w) * line["rewards"][n] for n, w in (t.split("=") for t in keys["rl.rewards"].split(","))) if line["rewards"]
                            else line["raw_reward"] for line in lines], dtype=torch.float64)
    if keys["rl.kl"] == "reward":
        rewards = rewards - beta * torch.stack([(k3(ref, old) * mask).sum() for _, mask, _, ref, _, old in answers])
    adv = advantages(keys, rewards)
    used = [0.0 if keys["rl.truncated"] == "mask" and line["finish"] == "length" else 1.0 for line in lines]
    tokens = sum(u * mask.sum() for u, (_, mask, *_) in zip(used, answers))
    total = 0.0
    upper = number("rl.epsilon_high") or (5.0 if keys["rl.objective"] == "cispo" else number("rl.epsilon"))
    for a, u, (line, mask, current, ref, gap, old) in zip(adv, used, answers):
        ratio = torch.exp(current - old)
        if keys["rl.objective"] == "grpo":
            policy = -torch.minimum(ratio * a, ratio.clamp(1 - number("rl.epsilon"), 1 + upper) * a)
        elif keys["rl.objective"] == "cispo":
            policy = -ratio.clamp(max=upper).detach() * a * current
        else:
            policy = -a * current
        each = policy if keys["rl.correction"] == "none" else policy * correction(keys, gap, mask)
        if keys["rl.kl"] == "loss":
            each = each + beta * k3(ref, current)
        divisor = {"sequence": len(lines) * mask.sum(), "token": tokens, "constant": len(lines) * NEW}[keys["rl.divide"]]
        total = total + u * (each * mask).sum() / divisor
        expected.append({"reward": None, "advantage": a.item(), "old_logprobs": (old * mask if keys["rl.old"] == "recompute" else old).tolist(),
                         "ref_logprobs": (ref * mask).tolist() if keys["rl.kl"] != "off" else [], "current": (current * mask).tolist()})
    for one, reward in zip(expected, rewards):
        one["reward"] = reward.item()
    return total


DEFAULTS = {"rl.objective": "grpo", "rl.beta": 0.1, "rl.epsilon": 0.2, "rl.epsilon_high": 0, "rl.kl": "loss", "rl.advantage": "group",
            "rl.divide": "sequence", "rl.old": "rollout", "rl.correction": "none", "rl.correction_cap": 3, "rl.truncated": "count",
            "rl.updates": 1, "rl.mini_batch": PROMPTS}


class Comparison:
    def __init__(self, trireme, work, start, exported, data):
        self.trireme, self.work, self.start, self.exported, self.data, self.wrong, self.worst = trireme, work, start, exported, data, 0, 0.0

    def expect(self, name, mine, other):
        apart = max((abs(x - y) / max(abs(y), 1e-3) for x, y in zip(mine, other, strict=True)), default=0.0)
        self.worst = max(self.worst, apart)
        if not apart <= BOUND:
            self.wrong += 1
            print(f"{name}: relative difference {apart:.1e}: {mine[:4]!r}, the oracle has {other[:4]!r}")

    def run(self, name, keys, raw_rewards=None):
        """Trains and compares each step. `raw_rewards` are those of the replayed file."""
        run = os.path.join(self.work, f"run {name}")
        keys = {**RL, **keys}
        call([self.trireme, "rl", "--init", self.start, "--data", self.data, "--run", run] + keys_of(OPTIM, keys))
        keys = {**DEFAULTS, **keys}
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            metrics = [line for line in map(json.loads, file) if "loss" in line]
        assert len(metrics) == keys["train.steps"]
        parts = PROMPTS // int(keys["rl.mini_batch"])
        steps_of_rollout = parts * int(keys["rl.updates"])
        net, reference = load_model(self.exported), load_model(self.exported)
        optimizer = torch.optim.AdamW([{"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": DECAY},
                                       {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0}],
                                      lr=LR, betas=BETAS, eps=EPS, foreach=False, fused=False)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        files = []
        for step, measured in enumerate(metrics, 1):
            part = (step - 1) % steps_of_rollout
            with open(os.path.join(run, "rollouts", f"step-{step - part:09}.jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            size = len(lines) // parts
            lines = lines[part % parts * size:][:size]
            for line, raw in zip(lines, raw_rewards[step - 1] if raw_rewards else lines):
                line["raw_reward"] = raw if raw_rewards else raw["reward"]
            expected = []
            optimizer.zero_grad()
            loss = loss_of(net, reference, lines, keys, expected, part == 0)
            loss.backward()
            norm = oracle.clip_gradients([p.grad for p in parameters], CLIP)
            where = f"{name}, step {step}"
            self.expect(f"{where}: loss", [measured["loss"]], [loss.item()])
            self.expect(f"{where}: grad_norm", [measured["grad_norm"]], [norm])
            for line, other in zip(lines, expected if part == 0 else [], strict=part == 0):
                if not raw_rewards:
                    self.expect(f"{where}: rollout_logprobs", line["rollout_logprobs"], other["current"])
                self.expect(f"{where}: reward", [line["reward"], line["advantage"]], [other["reward"], other["advantage"]])
                for key in ("old_logprobs", "ref_logprobs"):
                    self.expect(f"{where}: {key}", line[key], other[key])
            optimizer.step()
            files.append(lines)
        return files


def read_run(run):
    """Returns the metrics of all steps and the published answers."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        metrics = [line for line in map(json.loads, file) if "loss" in line]
    answers = []
    for name in sorted(os.listdir(os.path.join(run, "rollouts"))):
        with open(os.path.join(run, "rollouts", name), encoding="utf-8") as file:
            answers += [json.loads(line) for line in file]
    return metrics, answers


def compare_ranks(comparison, mpiexec, everything):
    """Trains with 1, 2 and 3 ranks, with and without adapters."""
    for keys in ({}, {"lora.rank": 2, "rl.max_gap": 1e-10}, {"rl.updates": 2, "rl.mini_batch": 3, "rl.top_k": 20, "train.steps": 5}):
        runs = []
        several = (1, 2, 3) if not keys or everything and len(keys) < 3 else (1, 3)
        for ranks in several:
            run = os.path.join(comparison.work, f"{ranks} ranks {len(keys)}")
            call([mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
                 keys_of(OPTIM, {**RL, "train.micro_batch": 1, **keys}))
            runs.append(read_run(run))
        for ranks, (metrics, answers) in zip(several[1:], runs[1:]):
            if [a["completion_ids"] for a in answers] != [a["completion_ids"] for a in runs[0][1]]:
                comparison.wrong += 1
                print(f"{ranks} ranks generate other tokens than one rank, {keys}")
            for key in ("loss", "grad_norm", "reward", "reward_length", "reward_std", "entropy", "rollout_gap_mean", "kl_ref"):
                comparison.expect(f"{ranks} ranks, {keys}: {key}", [line[key] for line in metrics], [line[key] for line in runs[0][0]])


def kill_and_resume(comparison, name, keys, points, launch=None):
    """Kills a run at each of the failpoints and resumes it. `launch` begins the command of a run on several ranks. Returns the directories of the runs; that of the whole run comes first."""
    runs = []
    for point in ("", *points):
        run = os.path.join(comparison.work, f"killed {name}{point}")
        runs.append(run)
        command = (launch or [comparison.trireme]) + ["rl", "--init", comparison.start, "--data", comparison.data, "--run", run]
        command += keys_of(OPTIM, {**RL, "checkpoint.every": 1, **keys})
        if point:
            fault = {**os.environ, "TRIREME_FAULT": f"{point}:0:{ {'train.step': 3, 'train.forward': 10}.get(point, 2)}:kill9", "TRIREME_ALLOW_FAULTS": "1"}
            assert loaded_program.run(command, fault)[0] != 0, f"{point} did not end the run"
        call(command)
        with open(os.path.join(run, "chain.txt"), encoding="utf-8") as file:
            chain = file.read()
        if not point:
            whole, answers = chain, read_run(run)[1]
        elif chain != whole or read_run(run)[1] != answers:
            comparison.wrong += 1
            print(f"a run that was killed at {point} differs after its resume")
    return runs


def end_with_another_token(tokenizer):
    """The end token of the tokenizer becomes another one than that of the chat template."""
    path = os.path.join(tokenizer, "tokenizer_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    assert config["eos_token"] == "<|im_end|>"
    config["eos_token"] = "<|endoftext|>"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def generate(comparison, name, keys):
    """Returns the answers of one update with the weights of the start."""
    run = os.path.join(comparison.work, name)
    call([comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
         keys_of(OPTIM, {**RL, "train.steps": 1, "train.micro_batch": 1, "rl.kl": "off", "rl.rewards": "length=1", **keys}))
    return read_run(run)[1]


def compare_draws(comparison, answers):
    """Compares the number of draws of each id with the sum of its probabilities by a chi-square test at five standard deviations."""
    net = load_model(comparison.exported)
    expected, counts = torch.zeros(IDS, dtype=torch.float64), torch.zeros(IDS, dtype=torch.float64)
    for answer in answers:
        ids = torch.tensor([answer["prompt_ids"] + answer["completion_ids"]])
        with torch.no_grad():
            scores = logits_of(net, ids[:, :-1])[len(answer["prompt_ids"]) - 1:, :IDS] / RL["rl.temperature"]
        expected += F.softmax(scores, dim=-1).sum(0)
        counts += torch.bincount(torch.tensor(answer["completion_ids"]), minlength=IDS)
    often = expected >= 5
    value, freedom = ((counts - expected)[often] ** 2 / expected[often]).sum().item(), int(often.sum())
    print(f"chi-square of {int(counts.sum())} draws: {value:.1f} with {freedom} frequent ids")
    if counts.sum() < 20000 or freedom < 200 or value - freedom > 5 * (2 * freedom) ** 0.5:
        comparison.wrong += 1
        print("the tokens do not have the probabilities of the model")


def compare_ends(comparison):
    """An answer ends with the first end token, which may be that of the tokenizer or that of the chat template."""
    answers = generate(comparison, "ends", {"rl.group": 110, "rl.max_new_tokens": 40, "train.precision": "fp32"})
    compare_draws(comparison, answers)
    ends = [0, 2]
    seen = {a["completion_ids"][-1] for a in answers if a["finish"] == "stop"}
    wrong = [a for a in answers if any(i in ends for i in a["completion_ids"][:-1]) or max(a["completion_ids"]) >= IDS or
             (a["finish"] == "stop") != (a["completion_ids"][-1] in ends) or not all(a["mask"])]
    if wrong or seen != set(ends):
        comparison.wrong += 1
        print(f"{len(wrong)} answers end wrongly; the end tokens seen are {seen}")


def compare_gaps(comparison):
    """Generation and training compute equal log-probabilities, with and without YaRN and adapters. The largest gap of bf16 is printed. Without a
    second update, the ratio is 1 within the same bounds."""
    path = lambda name: os.path.join(comparison.work, name)
    call([comparison.trireme, "pretrain", "--data", path("texts"), "--run", path("yarn"), "--train.steps", 2, "--train.precision", "fp32"] +
         keys_of({**SHAPE, "model.vocab_size": ROWS, "model.rope_scaling": "yarn,factor=4,original_max_position_embeddings=16"}, OPTIM))
    for start, precision, bound, keys in (("yarn", "fp64", 1e-10, {}), ("yarn", "fp32", 1e-4, {"lora.rank": 2}), ("start", "fp32", 1e-4, {"lora.rank": 2}),
                                          ("start", "bf16", 1, {})):
        run = path(f"gaps {start} {precision}")
        call([comparison.trireme, "rl", "--init", path(start), "--data", comparison.data, "--run", run] +
             keys_of(OPTIM, {**RL, "train.precision": precision, "rl.max_gap": 10, **keys}))
        metrics, answers = read_run(run)
        gap, ratio = (max(line[key] for line in metrics) for key in ("rollout_gap_max", "ratio_max"))
        lengths = {len(answer["completion_ids"]) for answer in answers}
        print(f"{start}, {precision}, {keys}: largest gap {gap:.1e}, ratio_max - 1 {ratio - 1:.1e}, {len(lengths)} lengths of answers")
        if not 0 < gap <= bound or not abs(ratio - 1) <= 2 * bound:
            comparison.wrong += 1
            print("this gap is out of bounds")


def compare_learning(comparison, everything):
    """A program rewards odd ids, so the best mean reward is 1. The policy must reach 90 % of it, and with a negative weight the reward must fall.
    rl_learning.py trains with all objectives."""
    program = ("import json,sys\nfor line in sys.stdin: r=json.loads(line); n=len(r['ids']); "
               "print(sum(i % 2 for i in r['ids'])/max(n,1),flush=True)")
    script = os.path.join(comparison.work, "reward.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(program)
    steps = 40
    for objective, weight, lr in (("grpo", 1, 1e-2), ("grpo", -1, 1e-2))[:2 if everything else 1]:
        run = os.path.join(comparison.work, f"learning {objective} {weight} {lr}")
        call([comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
             keys_of({**OPTIM, **RL, "optim.lr": lr, "train.steps": steps, "train.precision": "fp32", "rl.rewards": f"command={weight}",
                      "rl.objective": objective, "rl.group": 8, "rl.kl": "off", "rl.reward_command": f"{sys.executable} '{script}'"}))
        rewards = [line["reward_command"] for line in read_run(run)[0]]
        apart = max(line["rollout_gap_max"] for line in read_run(run)[0])
        if apart > 1e-4:
            comparison.wrong += 1
            print(f"log-probabilities of generation and training in fp32 differ by {apart:.1e}")
        first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
        print(f"{objective}, weight {weight}, learning rate {lr}: mean reward of the first and last five steps {first:.3f} {last:.3f}")
        reached = last >= 0.9 if weight > 0 else last < first - 0.2
        if not reached:
            comparison.wrong += 1
            print("this reward is not the expected one")


def compare_reward_model(comparison, rng, trireme_data, mpiexec):
    """A reward model prefers answers with words. Its rewards must not depend on the number of ranks, and a policy must raise them."""
    path = lambda name: os.path.join(comparison.work, name)
    pack(trireme_data, comparison.work, "dpo", "pairs",
         [{"prompt": sentence(rng, 2, 6), "chosen": sentence(rng, 2, 6), "rejected": "".join(rng.choice("!?#0123456789") for _ in range(12))}
          for _ in range(32)])
    call([comparison.trireme, "reward", "--init", comparison.start, "--data", path("pairs"), "--run", path("reward-model")] +
         keys_of(OPTIM, {"train.steps": 20, "train.seq_len": T, "train.precision": "fp32"}))
    keys = {**RL, "rl.rewards": "model=1,length=0.5", "rl.reward_model": path("reward-model"), "train.micro_batch": 1}
    runs = []
    for ranks in (1, 3):
        run = path(f"scored by {ranks}")
        call([mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, comparison.trireme, "rl", "--init", comparison.start, "--data",
              comparison.data, "--run", run] + keys_of(OPTIM, keys))
        runs.append([line["rewards"]["model"] for line in read_run(run)[1]])
    comparison.expect("rewards of the model on 3 ranks", runs[1], runs[0])
    if len(set(runs[0])) < len(runs[0]) // 2:
        comparison.wrong += 1
        print("the reward model gives equal rewards to different answers")
    run = path("raised")
    call([comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
         keys_of(OPTIM, {**keys, "train.steps": 30, "train.precision": "fp32", "rl.kl": "off", "rl.rewards": "model=1", "rl.group": 8}))
    rewards = [line["reward_model"] for line in read_run(run)[0]]
    spread = read_run(run)[0][0]["reward_std"]
    print(f"reward of the reward model: {rewards[0]:.3f} to {rewards[-1]:.3f}, standard deviation of a group {spread:.3f}")
    if rewards[-1] < rewards[0] + spread:
        comparison.wrong += 1
        print("the policy does not raise the reward of the reward model")


def main():
    parser = argparse.ArgumentParser()
    for name in ("trireme", "trireme_data", "mpiexec", "--keep"):
        parser.add_argument(name)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        path = lambda name: os.path.join(work, name)
        make_start(args, work, rng, 9, IDS, ROWS, end_with_another_token)
        call([args.trireme, "export", "--checkpoint", path("start"), "--output", path("exported")])
        comparison = Comparison(args.trireme, work, path("start"), path("exported"), path("prompts"))
        files = comparison.run("generated", {"rl.max_gap": 1e-10})
        raw = [write_replay(path("replay"), step, lines, rng, 1) for step, lines in enumerate(files, 1)]
        for number, keys in list(enumerate(CASES, 1))[::1 if args.all else 2]:
            comparison.run(f"replay {number}", {**keys, "rl.replay": path("replay")}, raw)
        for number, keys in enumerate(UPDATES, 1):
            comparison.run(f"updates {number}", {"train.steps": 8, "rl.updates": 2, "rl.mini_batch": 3, "train.micro_batch": 1, **keys})
        compare_ranks(comparison, args.mpiexec, args.all)
        kill_and_resume(comparison, "", {"train.steps": 5, "rl.updates": 2, "rl.mini_batch": 3, "train.micro_batch": 1},
                        ("rl.rollout", "rl.reward", "rl.published", "train.step"))
        compare_ends(comparison)
        compare_gaps(comparison)
        compare_learning(comparison, args.all)
        compare_reward_model(comparison, rng, args.trireme_data, args.mpiexec)
        print(f"largest relative difference {comparison.worst:.1e}")
    sys.exit(1 if comparison.wrong else 0)


if __name__ == "__main__":
    main()
