#!/usr/bin/env python3
"""Compares `trireme rl` with the objectives ppo and spo with plain PyTorch that reads only the published answers.

usage: rl_values.py TRIREME TRIREME_DATA MPIEXEC [--all] [--keep DIR]

A model and a reward model are trained for some steps. `trireme rl` generates answers in fp64, or reads
answers with other log-probabilities and masks, and trains a policy, and for ppo a critic that starts
from the reward model. The values, advantages, losses and gradient norms, the step at which a rollout
ends early, and the final weights of the critic must agree with PyTorch within 1e-10. One and three
ranks must agree. A run that was killed must resume bitwise, with the weights of its critic. Without
--all, not every case and not every place of a kill is tried. Exits with 1 and prints every value that is out of bounds.
"""
import argparse
import json
import os
import random
import struct
import sys
import tempfile

import torch

import model as oracle
from post_training import BETAS, CLIP, DECAY, EPS, LR, OPTIM, SHAPE, T, call, keys_of, load_model, sentence
from rl import DEFAULTS, IDS, NEW, PROMPTS, RL, ROWS, Comparison, correction, k3, kill_and_resume, log_probs, read_run
from rl_checks import CRITIC_LR, PPO, SPO, UPDATES, compare_refusals, compare_validation
from rl_sets import make_start, pack, prompts_of, write_replay

GENERATED = [
    {**PPO, **UPDATES, "train.steps": 6},
    {**PPO, **UPDATES, "train.steps": 6, "rl.old": "recompute", "ppo.gamma": 0.9, "ppo.lam": 0.7, "ppo.value_clip": 0.01, "rl.divide": "token"},
    {**PPO, "rl.updates": 4, "ppo.early_stop_kl": 0.1, "train.steps": 12},
    {**SPO, "rl.kl": "reward", "train.steps": 4},
    {**SPO, **UPDATES, "rl.group": 1, "rl.divide": "token", "train.steps": 6},
]
REPLAYED = [
    {**PPO, "rl.epsilon_high": 0.4, "rl.truncated": "mask", "ppo.gamma": 0.9},
    {**PPO, "rl.divide": "token", "rl.kl": "reward", "rl.correction": "token_truncate", "rl.correction_cap": 1.1, "ppo.value_weight": 0.1},
    {**PPO, "rl.divide": "constant", "rl.kl": "off", "rl.correction": "sequence_mask", "rl.correction_cap": 1.1, "rl.truncated": "mask"},
    {**SPO},
    {**SPO, "rl.divide": "constant", "rl.correction": "token_mask", "rl.correction_cap": 1.1, "rl.truncated": "mask"},
]


def read_checkpoint(run, prefix):
    """Returns the tensors of the newest checkpoint by their names after `prefix`."""
    place = os.path.join(run, "checkpoints")
    place = os.path.join(place, max(name for name in os.listdir(place) if name.startswith("step-")))
    with open(os.path.join(place, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    tensors = {}
    for tensor in manifest["tensors"]:
        name = tensor["name"]
        if not name.startswith(prefix):
            continue
        kind = {"f64": "d", "f32": "f"}[tensor["dtype"]]
        assert len(tensor["slices"]) == 1, "the checkpoint is not that of one rank"
        piece = tensor["slices"][0]
        shard = manifest["shards"][piece["shard"]]
        with open(os.path.join(place, shard["name"]), "rb") as file:
            file.seek(piece["at"])
            count = torch.Size(tensor["shape"]).numel()
            values = struct.unpack(f"<{count}{kind}", file.read(count * struct.calcsize(kind)))
        tensors[name[len(prefix):]] = torch.tensor(values, dtype=torch.float64).view(tensor["shape"])
    return tensors


class Critic:
    """The network of a language model with one final norm, and a value head."""

    def __init__(self, exported, weights):
        self.net = load_model(exported)
        self.head = torch.nn.Parameter(weights["reward_head.weight"].clone())
        with torch.no_grad():
            for name, one in self.net.named_parameters():
                one.copy_(weights[name])
        self.named = [*self.net.named_parameters(), ("reward_head.weight", self.head)]
        self.parameters = [one for _, one in self.named]
        self.optimizer = adam(self.parameters, CRITIC_LR)

    def values(self, line):
        prompt, answer = line["prompt_ids"], line["completion_ids"]
        tokens = torch.tensor([(prompt + answer)[:-1]])
        positions = torch.arange(tokens.shape[1])[None]
        x = self.net.model.embed_tokens(tokens)
        cos, sin = self.net.cos[positions][:, None], self.net.sin[positions][:, None]
        for layer in self.net.model.layers:
            x = layer(x, cos, sin, None)
        return (self.net.model.norm(x)[0, len(prompt) - 1:] @ self.head.T)[:, 0]

    def step(self):
        for one in self.parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        oracle.clip_gradients([one.grad for one in self.parameters], CLIP)
        self.optimizer.step()


def adam(parameters, lr):
    return torch.optim.AdamW([{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
                              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}],
                             lr=lr, betas=BETAS, eps=EPS, foreach=False, fused=False)


def estimate(keys, line, values, reward):
    """Returns the advantages of the trained tokens before whitening."""
    advantages, following, later = [0.0] * len(line["mask"]), 0.0, 0.0
    for i in reversed(range(len(line["mask"]))):
        if line["mask"][i]:
            delta = reward + keys["ppo.gamma"] * following - values[i]
            later = advantages[i] = delta + keys["ppo.gamma"] * keys["ppo.lam"] * later
            following, reward = values[i], 0.0
    return torch.tensor(advantages, dtype=torch.float64)


class Tracker:
    """The tracker of MiniMind's trainer/train_spo.py, commit 83e52f6."""

    def __init__(self):
        self.alpha = self.beta = 1.0
        self.last = None

    def baseline(self):
        return self.alpha / (self.alpha + self.beta) * 6 - 3

    def add(self, reward, mean_logprob):
        rho = 0.9 if self.last is None else min(max(2 ** (-abs(self.last - mean_logprob) / 0.06), 0.5), 0.96)
        self.last = mean_logprob
        self.alpha = rho * self.alpha + (reward + 3) / 6
        self.beta = rho * self.beta + 1 - (reward + 3) / 6


class Rollout:
    """The answers of a rollout, with everything that is computed before its first update."""

    def __init__(self, lines, keys, net, reference, critic, tracker):
        self.lines, self.keys = lines, keys
        self.masks = [torch.tensor(line["mask"], dtype=torch.float64) for line in lines]
        self.used = [0.0 if keys["rl.truncated"] == "mask" and line["finish"] == "length" else 1.0 for line in lines]
        sampled = [torch.tensor(line["rollout_logprobs"], dtype=torch.float64) for line in lines]
        with torch.no_grad():
            current = [log_probs(net, line, keys["rl.temperature"]) for line in lines]
            self.reference = [log_probs(reference, line, keys["rl.temperature"]) for line in lines]
            self.values = [critic.values(line) for line in lines] if critic else None
        self.gaps = [now - then for now, then in zip(current, sampled)]
        self.old = current if keys["rl.old"] == "recompute" else sampled
        rewards = [line["raw_reward"] for line in lines]
        if keys["rl.kl"] == "reward":
            rewards = [r - keys["rl.beta"] * (k3(ref, old) * mask).sum().item()
                       for r, ref, old, mask in zip(rewards, self.reference, self.old, self.masks)]
        self.rewards = rewards
        if tracker:
            baseline = tracker.baseline()
            self.advantages = [torch.full_like(mask, min(max(r - baseline, -5), 5)) for r, mask in zip(rewards, self.masks)]
            tokens = sum(mask.sum() for mask in self.masks)
            tracker.add(sum(rewards) / len(rewards), (sum((now * mask).sum() for now, mask in zip(current, self.masks)) / tokens).item())
            return
        raw = [estimate(keys, line, values.tolist(), r) for line, values, r in zip(lines, self.values, rewards)]
        self.returns = [a + values for a, values in zip(raw, self.values)]
        every = torch.cat([a[mask > 0] for a, mask, used in zip(raw, self.masks, self.used) if used])
        self.advantages = [(a - every.mean()) * torch.rsqrt(every.var(unbiased=False) + 1e-8) * mask for a, mask in zip(raw, self.masks)]

    def divisors(self, part):
        tokens = sum(self.used[i] * self.masks[i].sum() for i in part)
        constant = len(part) * NEW
        return [{"sequence": len(part) * self.masks[i].sum(), "token": tokens, "constant": constant}[self.keys["rl.divide"]] for i in part]

    def policy_loss(self, net, part):
        """Returns the loss of a mini-batch and its mean of 0.5 log(ratio)^2."""
        keys, total, squares = self.keys, 0.0, []
        upper = keys["rl.epsilon_high"] or keys["rl.epsilon"]
        for i, divisor in zip(part, self.divisors(part)):
            current = log_probs(net, self.lines[i], keys["rl.temperature"])
            ratio = torch.exp(current - self.old[i])
            if keys["rl.objective"] == "spo":
                policy = -self.advantages[i] * current
            else:
                policy = -torch.minimum(ratio * self.advantages[i], ratio.clamp(1 - keys["rl.epsilon"], 1 + upper) * self.advantages[i])
            each = policy if keys["rl.correction"] == "none" else policy * correction(keys, self.gaps[i], self.masks[i])
            if keys["rl.kl"] == "loss":
                each = each + keys["rl.beta"] * k3(self.reference[i], current)
            total = total + self.used[i] * (each * self.masks[i]).sum() / divisor
            squares.append((0.5 * (current - self.old[i]).detach() ** 2)[self.masks[i] > 0])
        trained = [one for one, i in zip(squares, part) if self.used[i]]
        return total, torch.cat(squares).mean().item(), torch.cat(trained).mean().item()

    def value_loss(self, critic, part):
        total, clip = 0.0, self.keys["ppo.value_clip"]
        for i, divisor in zip(part, self.divisors(part)):
            values, old = critic.values(self.lines[i]), self.values[i]
            limited = torch.minimum(torch.maximum(values, old - clip), old + clip)
            each = 0.5 * torch.maximum((values - self.returns[i]) ** 2, (limited - self.returns[i]) ** 2)
            total = total + self.used[i] * (each * self.masks[i]).sum() / divisor
        return total


class Values(Comparison):
    def train(self, name, keys, raw=None):
        run = os.path.join(self.work, f"run {name}")
        is_ppo = keys["rl.objective"] == "ppo"
        keys = {**RL, **({"ppo.critic_init": os.path.join(self.work, "rewards")} if is_ppo else {}), **keys}
        call([self.trireme, "rl", "--init", self.start, "--data", self.data, "--run", run] + keys_of(OPTIM, keys))
        keys = {**DEFAULTS, **keys}
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            metrics = [line for line in map(json.loads, file) if "loss" in line]
        assert len(metrics) == keys["train.steps"]
        net, reference = load_model(self.exported), load_model(self.exported)
        critic = Critic(self.exported, read_checkpoint(os.path.join(self.work, "rewards"), "param/")) if is_ppo else None
        tracker = None if is_ppo else Tracker()
        parameters = list(net.parameters())
        optimizer = adam(parameters, LR)
        parts, done, rollouts = PROMPTS // keys["rl.mini_batch"], None, 0
        for step, measured in enumerate(metrics, 1):
            where = f"{name}, step {step}"
            file_of = os.path.join(run, "rollouts", f"step-{step:09}.jsonl")
            part_of = lambda number: list(range(len(rollout.lines)))[number % parts * len(rollout.lines) // parts:][:len(rollout.lines) // parts]
            begins = done is None or done == parts * keys["rl.updates"] or \
                keys.get("ppo.early_stop_kl", 0) > 0 and rollout.policy_loss(net, part_of(done))[2] > keys["ppo.early_stop_kl"]
            if begins != os.path.exists(file_of):
                self.wrong += 1
                print(f"{where}: a rollout must {'' if begins else 'not '}begin here")
                return None
            if begins:
                with open(file_of, encoding="utf-8") as file:
                    lines = [json.loads(line) for line in file]
                for line, reward in zip(lines, raw[rollouts] if raw else lines):
                    line["raw_reward"] = reward if raw else sum(
                        float(w) * line["rewards"][n] for n, w in (t.split("=") for t in keys["rl.rewards"].split(",")))
                rollout, done, rollouts = Rollout(lines, keys, net, reference, critic, tracker), 0, rollouts + 1
                self.compare_lines(where, rollout, is_ppo)
            part = part_of(done)
            optimizer.zero_grad()
            loss, approx_kl, _ = rollout.policy_loss(net, part)
            loss.backward()
            norm = oracle.clip_gradients([p.grad for p in parameters], CLIP)
            self.expect(f"{where}: loss", [measured["loss"], measured["grad_norm"]], [loss.item(), norm])
            optimizer.step()
            if is_ppo:
                critic.optimizer.zero_grad()
                value_loss = rollout.value_loss(critic, part)
                (keys["ppo.value_weight"] * value_loss).backward()
                critic.step()
                self.expect(f"{where}: value_loss", [measured["value_loss"]], [value_loss.item()])
                self.expect(f"{where}: approx_kl", [measured["approx_kl"]], [approx_kl])
            done += 1
        if is_ppo:
            saved = read_checkpoint(run, "critic/param/")
            for tensor, value in critic.named:
                self.expect(f"{name}: {tensor} of the critic", saved[tensor].flatten().tolist(), value.detach().flatten().tolist())
        return rollouts

    def compare_lines(self, where, rollout, is_ppo):
        for i, line in enumerate(rollout.lines):
            self.expect(f"{where}: reward", [line["reward"]], [rollout.rewards[i]])
            self.expect(f"{where}: advantage", [line["advantage"]], [rollout.advantages[i][rollout.masks[i] > 0].mean().item()])
            if is_ppo:
                self.expect(f"{where}: values", line["values"], (rollout.values[i] * rollout.masks[i]).tolist())
                self.expect(f"{where}: advantages", line["advantages"], rollout.advantages[i].tolist())


def compare_ranks(comparison, mpiexec):
    """Trains with one and three ranks."""
    for name, more in (("ppo", {**PPO, "rl.updates": 3, "ppo.early_stop_kl": 0.1, "train.steps": 6, "parallel.zero": 2}), ("spo", {**SPO, "train.steps": 4})):
        runs = []
        for ranks in (1, 3):
            run = os.path.join(comparison.work, f"{name} {ranks} ranks")
            call([mpiexec, "--oversubscribe", "--bind-to", "none", "-n", ranks, comparison.trireme, "rl", "--init", comparison.start, "--data",
                  comparison.data, "--run", run] + keys_of(OPTIM, {**RL, "train.micro_batch": 1, **more}))
            runs.append(read_run(run))
        if [a["completion_ids"] for a in runs[0][1]] != [a["completion_ids"] for a in runs[1][1]]:
            comparison.wrong += 1
            print(f"{name}: three ranks generate other tokens than one rank")
        for key in ["loss", "grad_norm", "reward"] + (["value_loss", "approx_kl"] if name == "ppo" else []):
            comparison.expect(f"{name}, 3 ranks: {key}", [line[key] for line in runs[1][0]], [line[key] for line in runs[0][0]])
        comparison.expect(f"{name}, 3 ranks: advantage", [a["advantage"] for a in runs[1][1]], [a["advantage"] for a in runs[0][1]])


def compare_critics(comparison):
    """The critic starts from the policy unless ppo.critic_init names a model. Its checkpoint is also that of a language model."""
    lines = []
    for init in ("", comparison.start):
        run = os.path.join(comparison.work, f"critic of {len(lines)}")
        call([comparison.trireme, "rl", "--init", comparison.start, "--data", comparison.data, "--run", run] +
             keys_of(OPTIM, {**RL, **PPO, "train.steps": 1, "ppo.critic_init": init}))
        lines.append(read_run(run)[1])
    if lines[0] != lines[1] or not any(value for line in lines[0] for value in line["values"]):
        comparison.wrong += 1
        print("the critic of --init differs from that of ppo.critic_init with the same model")
    call([comparison.trireme, "export", "--checkpoint", run, "--output", os.path.join(comparison.work, "exported ppo")])
    call([comparison.trireme, "rl", "--init", run, "--data", comparison.data, "--run", os.path.join(comparison.work, "after ppo")] +
         keys_of(OPTIM, {**RL, "train.steps": 1}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("mpiexec")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(4)
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        path = lambda name: os.path.join(work, name)
        make_start(args, work, rng, 9, IDS, ROWS)
        pack(args.trireme_data, work, "rl", "valid", prompts_of(rng, 5))
        pack(args.trireme_data, work, "dpo", "pairs", [{"prompt": sentence(rng, 2, 6), "chosen": sentence(rng, 2, 6), "rejected": sentence(rng, 1, 2)}
                                                       for _ in range(8)])
        call([args.trireme, "export", "--checkpoint", path("start"), "--output", path("exported")])
        call([args.trireme, "reward", "--init", path("start"), "--data", path("pairs"), "--run", path("rewards")] +
             keys_of(OPTIM, {"train.steps": 2, "train.seq_len": T, "train.precision": "fp32"}))
        call([args.trireme, "pretrain", "--data", path("texts"), "--run", path("other"), "--train.steps", 1, "--train.precision", "fp32"] +
             keys_of({**SHAPE, "model.vocab_size": ROWS, "model.num_layers": 1}, OPTIM))
        comparison = Values(args.trireme, work, path("start"), path("exported"), path("prompts"))
        for number, keys in enumerate(GENERATED, 1):
            if number == 2 and not args.all:
                continue
            begun = comparison.train(f"generated {number}", keys)
            if keys.get("ppo.early_stop_kl") and begun in (None, 3, keys["train.steps"]):
                comparison.wrong += 1
                print("the rollouts do not end early, or all end after one update")
        raw = []
        for step in range(1, 4):
            with open(os.path.join(work, "run generated 4", "rollouts", f"step-{step:09}.jsonl"), encoding="utf-8") as file:
                raw.append(write_replay(path("replay"), step, [json.loads(line) for line in file], rng, 4))
        for number, keys in list(enumerate(REPLAYED, 1))[::1 if args.all else 2]:
            comparison.train(f"replayed {number}", {**keys, "rl.replay": path("replay")}, raw)
        compare_ranks(comparison, args.mpiexec)
        points = ("rl.published", "train.forward", "rl.rollout", "train.step")
        for name, keys in (("ppo", {**PPO, "rl.updates": 3, "ppo.early_stop_kl": 0.1}), ("spo", {**SPO, **UPDATES})):
            runs = kill_and_resume(comparison, f"{name} ", {**keys, "train.steps": 5}, points[:4 if args.all else 2])
            states = [read_checkpoint(run, "critic/" if name == "ppo" else "param/") for run in runs]
            if not states[0] or any(not torch.equal(state[key], states[0][key]) for state in states for key in states[0]):
                comparison.wrong += 1
                print(f"{name}: a resumed run has other weights")
        compare_critics(comparison)
        compare_validation(comparison, args.trireme_data, args.mpiexec)
        compare_refusals(comparison, args.mpiexec)
        print(f"largest relative difference {comparison.worst:.1e}")
    sys.exit(1 if comparison.wrong else 0)


if __name__ == "__main__":
    main()
