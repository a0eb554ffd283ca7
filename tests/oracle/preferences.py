#!/usr/bin/env python3
"""Compares KTO, ORPO and SimPO by the real program, on 1 to 3 ranks, with plain PyTorch from the
same exported start.

usage: preferences.py TRIREME TRIREME_DATA [--mpiexec MPIEXEC] [--steps 3] [--keep DIR]

Works like post_training.py: each update has the whole data set, training is in fp64, and for every
step the loss, the gradient norm and the other measures must agree within 1e-10 of the value. The
KTO reference is the start, a checkpoint, or precomputed scores. Exits with 1 and prints all values
that are out of bounds.
"""
import argparse
import os
import random
import sys
import tempfile

import torch
from torch.nn import functional as F

import post_training as base

SIZE = 6  # documents of a data set: a multiple of 1, 2 and 3 ranks


def write_sets(sets):
    rng = random.Random(6)
    user = lambda: {"role": "user", "content": base.sentence(rng, 2, 4)}
    says = lambda: {"role": "assistant", "content": base.sentence(rng, 1, 5)}

    def labeled(i):
        label = i % 3 != 1
        if i % 2:
            return {"prompt": base.sentence(rng, 2, 6), "completion": base.sentence(rng, 1, 9), "label": label}
        return {"messages": [user(), says(), user(), says()], "kto_tag": label}

    def pair(_):
        asks = user()
        return {"chosen": [asks, says()], "rejected": [asks, says()]}

    records = {"kto-six": [labeled(i) for i in range(SIZE)], "kto-valid": [labeled(i) for i in range(5)], "dpo-six": [pair(i) for i in range(SIZE)]}
    for name, lines in records.items():
        base.write_lines(sets.path(f"{name}.jsonl"), lines)
        base.call([sets.data, "pack", "--kind", name.split("-")[0], "--tokenizer", sets.path("tokenizer"), "--input", sets.path(f"{name}.jsonl"),
                   "--seq-len", base.T, "--template", "minimind-v3", "--output", sets.path(name)])


class KtoOracle:
    """Answers with a label. The KL estimate of an update is the mean over its samples of the
    log-ratio of the answer of the document before, after the own prompt; at least 0."""

    def __init__(self, documents, reference, kind="kto", beta=0.1, weights=(1.0, 1.0)):
        self.kind, self.beta, self.weights = kind, beta, weights
        self.desirable = [len(one["desirable"]["ids"]) > one["prompt_len"] for one in documents]
        self.answers = [one["desirable" if good else "undesirable"] for one, good in zip(documents, self.desirable)]
        prompts = [one["prompt_len"] for one in documents]
        self.mixed = []
        for i, own in enumerate(self.answers):
            other, cut = self.answers[i - 1], prompts[i - 1]
            assert other["ids"][:cut] != own["ids"][: prompts[i]]
            self.mixed.append({"ids": (own["ids"][: prompts[i]] + other["ids"][cut:])[: base.T],
                               "target": ([0] * prompts[i] + other["target"][cut:])[: base.T]})
        with torch.no_grad():
            self.reference = [base.log_probs(reference, one).sum() for one in self.answers]
            self.mixed_reference = [base.log_probs(reference, one).sum() for one in self.mixed]

    def loss(self, net):
        with torch.no_grad():
            apart = [base.log_probs(net, one).sum() - other for one, other in zip(self.mixed, self.mixed_reference)]
            estimate = max(0.0, (sum(apart) / len(apart)).item())
        kl = estimate if self.kind == "kto" else 0.0
        total, right, values = 0.0, 0, {True: [], False: []}
        for good, answer, reference in zip(self.desirable, self.answers, self.reference):
            score = base.log_probs(net, answer).sum()
            ratio = score - reference
            if good:
                total = total + self.weights[0] * (1 - torch.sigmoid(self.beta * (ratio - kl)))
            else:
                total = total + self.weights[1] * (1 - torch.sigmoid(self.beta * (kl - ratio)))
            right += (ratio.item() > kl) if good else (ratio.item() < kl)
            values[good].append((self.beta * ratio.item(), score.item()))
        mean = lambda good, i: sum(one[i] for one in values[good]) / len(values[good])
        measures = {"accuracy": right / len(self.answers), "margin": mean(True, 0) - mean(False, 0), "reward_chosen": mean(True, 0),
                    "reward_rejected": mean(False, 0), "kl": kl, "logp_chosen": mean(True, 1), "logp_rejected": mean(False, 1)}
        return total / len(self.answers), measures


class ReferenceFree:
    """ORPO: the mean -log p of the chosen answer, and beta times the odds-ratio loss of mean
    log-probabilities. SimPO: -log sigmoid(beta m - gamma) of their difference m."""

    def __init__(self, pairs, kind, beta, gamma=0.0):
        self.pairs, self.kind, self.beta, self.gamma = pairs, kind, beta, gamma

    def loss(self, net):
        total, sums = 0.0, dict.fromkeys(("accuracy", "margin", "reward_chosen", "reward_rejected", "logp_chosen", "logp_rejected"), 0.0)
        for pair in self.pairs:
            chosen, rejected = (base.log_probs(net, pair[side]).mean() for side in ("chosen", "rejected"))
            if self.kind == "orpo":
                odds = lambda mean: mean - torch.log1p(-torch.exp(mean))
                total = total - chosen - self.beta * F.logsigmoid(odds(chosen) - odds(rejected))
            else:
                total = total - F.logsigmoid(self.beta * (chosen - rejected) - self.gamma)
            sums["accuracy"] += chosen.item() > rejected.item()
            sums["margin"] += self.beta * (chosen - rejected).item()
            for name, value in (("chosen", chosen), ("rejected", rejected)):
                sums[f"reward_{name}"] += self.beta * value.item()
                sums[f"logp_{name}"] += value.item()
        return total / len(self.pairs), {name: value / len(self.pairs) for name, value in sums.items()}


LAYOUTS = {1: {}, 2: {"parallel.tp": 2, "train.micro_batch": 3}, 3: {"train.micro_batch": 1}}


def compare(args, sets, start, exported, tied):
    comparison = base.Comparison(args, sets, start, exported, tied)
    reference = base.load_model(exported)
    documents, valid, pairs = (list(sets.documents(name)) for name in ("kto-six", "kto-valid", "dpo-six"))
    stored = sets.path(f"kto-scores-{tied}")
    told = base.call([args.trireme, "dpo-reference", "--init", start, "--data", sets.path("kto-six"), "--data.valid_path", sets.path("kto-valid"),
                      "--output", stored, "--precision", "fp64", "--device", "cpu"])
    assert f"labeled answers -> {stored}" in told, told
    held_out = {"data.valid_path": sets.path("kto-valid"), "train.eval_every": 1}
    weights = {"kto.desirable_weight": 1.5, "kto.undesirable_weight": 0.75}
    kto_cases = [("true", 2, "kto", {}, {}), ("true", 3, "kto weights, checkpoint", {**weights, "kto.reference": start}, {"weights": (1.5, 0.75)}),
                 ("false", 1, "kto stored", {"kto.reference": stored, "kto.beta": 0.3}, {"beta": 0.3}),
                 ("false", 2, "apo", {"kto.loss": "apo_zero_unpaired", **weights}, {"kind": "apo_zero_unpaired", "weights": (1.5, 0.75)})]
    for of, ranks, name, keys, form in kto_cases:
        if of == tied:
            comparison.run(f"{name}, ranks {ranks}", "kto", "kto", KtoOracle(documents, reference, **form), {**keys, **held_out, **LAYOUTS[ranks]},
                           data=sets.path("kto-six"), samples=SIZE, held_out=KtoOracle(valid, reference, **form), ranks=ranks)
    dpo_cases = [("true", 3, "orpo", {}, {"beta": 0.1}), ("false", 2, "orpo beta", {"dpo.beta": 0.4}, {"beta": 0.4}),
                 ("true", 1, "simpo", {"dpo.gamma": 0.6}, {"beta": 2.0, "gamma": 0.6}), ("false", 3, "simpo default", {}, {"beta": 2.0, "gamma": 1.0})]
    for of, ranks, name, keys, form in dpo_cases:
        kind = name.split()[0]
        if of == tied:
            comparison.run(f"{name}, ranks {ranks}", "dpo", "dpo", ReferenceFree(pairs, kind, **form), {"dpo.loss": kind, **keys, **LAYOUTS[ranks]},
                           data=sets.path("dpo-six"), samples=SIZE, ranks=ranks)
    return comparison.wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        sets = base.Sets(args.trireme_data, work)
        write_sets(sets)
        wrong = 0
        for tied in ("true", "false"):
            start, exported = base.make_start(args.trireme, sets, tied)
            wrong += compare(args, sets, start, exported, tied)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
