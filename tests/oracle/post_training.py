#!/usr/bin/env python3
"""Compares post-training by the real program and in plain PyTorch, from the same exported start.

usage: post_training.py TRIREME TRIREME_DATA [--tasks sft,dpo,distill,lora] [--steps 3] [--keep
DIR]

A model is trained for two steps and exported. `trireme sft`, `dpo` and `distill` start from it
in fp64, with updates of the whole data set, so the order of samples does not matter. Six
variants of DPO are validated after every update, on their own data set or on a part of the
training set, with blends, with the reference as a checkpoint and as precomputed scores. LoRA
starts from imported adapters, so both sides have the same ones.

The oracle reads the export, takes each document as `trireme-data inspect` prints it, and trains
with torch.optim.AdamW. For every step the loss, the gradient norm and the other measures of the
task must agree within 1e-10 of the value. The final weights of one fp32 run must agree within
1e-6 of the tensor's norm. Exits with 1 and prints every line that is out of bounds.
"""
import argparse
import json
import math
import os
import random
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import model as oracle
from adapters import Adapters
from loaded_program import call

BOUND, WEIGHT_BOUND = 1e-10, 1e-6
SHAPE = {"model.preset": "tiny", "model.hidden_size": 32, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2,
         "model.head_dim": 16, "model.intermediate_size": 48, "model.max_seq_len": 96}
T = 96
OPTIM = {"optim.lr": 1e-2, "optim.schedule": "constant", "train.threads": 1, "train.device": "cpu"}
BETAS, EPS, DECAY, CLIP, LR = (0.9, 0.95), 1e-8, 0.1, 1.0, 1e-2
WORDS = ["apple", "river", "stone", "cloud", "seven", "walks", "under", "bright", "old", "music", "never", "again"]


def sentence(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def write_lines(path, records):
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


class Sets:
    """Data sets of all kinds, and their documents."""

    def __init__(self, data, work):
        rng = random.Random(5)
        self.data, self.work, self.read = data, work, {}
        chat = lambda: [{"role": "user", "content": sentence(rng, 2, 6)}, {"role": "assistant", "content": sentence(rng, 1, 9)}]

        def pair(i):
            shared = chat() if i % 2 else []  # a turn that both sides share, including the answer
            last = chat()
            return {"chosen": shared + last, "rejected": shared + [last[0], {"role": "assistant", "content": sentence(rng, 1, 9)}]}

        pairs = [pair(2 * i) for i in range(7)]
        inputs = {"pretrain": [{"text": sentence(rng, 20, 40)} for _ in range(40)], "sft": [{"conversations": chat()} for _ in range(9)], "dpo": pairs}
        inputs |= {"dpo-turns": [pair(i) for i in range(7)], "dpo-more": [pair(i) for i in range(7)], "dpo-valid": [pair(i) for i in range(5)]}
        for name, records in inputs.items():
            write_lines(self.path(f"{name}.jsonl"), records)
        call([data, "tokenizer", "train", "--input", self.path("pretrain.jsonl"), "--vocab-size", 330, "--output", self.path("tokenizer")])
        for name in inputs:
            kind = name.split("-")[0]
            template = [] if kind == "pretrain" else ["--template", "minimind-v3"]
            call([data, "pack", "--kind", kind, "--tokenizer", self.path("tokenizer"), "--input", self.path(f"{name}.jsonl"), "--seq-len", T,
                  "--output", self.path(name)] + template)

    def path(self, name):
        return os.path.join(self.work, name)

    def facts(self, kind):
        return json.loads(call([self.data, "inspect", self.path(kind), "--json"]))

    def documents(self, kind):
        if kind not in self.read:
            self.read[kind] = [json.loads(call([self.data, "inspect", self.path(kind), "--sample", number, "--json"]))
                               for number in range(self.facts(kind)["documents"])]
        return self.read[kind]


def keys_of(*groups):
    return [word for group in groups for key, value in group.items() for word in (f"--{key}", value)]


def next_tokens(side):
    """Returns inputs and targets of one sequence, each [1, n - 1]."""
    ids = torch.tensor([side["ids"]])
    mask = torch.tensor([side["target"]], dtype=torch.bool)
    targets = ids[:, 1:].masked_fill(~mask[:, 1:], oracle.IGNORE)
    return ids[:, :-1], targets


def logits_of(net, tokens):
    positions = torch.arange(tokens.shape[1])[None]
    x = net.model.embed_tokens(tokens)
    cos, sin = net.cos[positions][:, None], net.sin[positions][:, None]
    for layer in net.model.layers:
        x = layer(x, cos, sin, None)
    return net.lm_head(net.model.norm(x))[0]


def log_probs(net, side):
    tokens, targets = next_tokens(side)
    keep = targets[0] != oracle.IGNORE
    return F.log_softmax(logits_of(net, tokens), dim=-1)[keep].gather(1, targets[0][keep][:, None])[:, 0]


class SftOracle:
    def __init__(self, documents, token_weights=None):
        self.documents, self.token_weights = documents, token_weights or {}

    def loss(self, net):
        total, count = 0.0, 0
        for document in self.documents:
            _, targets = next_tokens(document)
            scores = log_probs(net, document)
            ids = targets[0][targets[0] != oracle.IGNORE]
            weights = torch.tensor([self.token_weights.get(int(i), 1.0) for i in ids], dtype=scores.dtype)
            total, count = total - (weights * scores).sum(), count + len(scores)
        return total / count, {}


def answers_only(pair):
    prompt = pair["prompt_len"]
    return {side: {"ids": pair[side]["ids"], "target": [0] * prompt + pair[side]["target"][prompt:]} for side in ("chosen", "rejected")}


class DpoOracle:
    """`form` is sum, mean or padded_mean; `kind` is sigmoid or ipo; `score` is all, or answer:
    without the targets that both sides begin with."""

    def __init__(self, pairs, reference, form="sum", kind="sigmoid", beta=0.1, smoothing=0.0, sft_weight=0.0, score="all"):
        if score == "answer":
            pairs = [answers_only(pair) for pair in pairs]
        self.pairs, self.form, self.kind, self.beta, self.smoothing, self.sft_weight = pairs, form, kind, beta, smoothing, sft_weight
        with torch.no_grad():
            self.reference = [[self.value(reference, pair[side]) for side in ("chosen", "rejected")] for pair in pairs]

    def value(self, net, side):
        scores = log_probs(net, side)
        return scores.sum() / {"sum": 1, "mean": max(len(scores), 1), "padded_mean": T - 1}[self.form]

    def loss(self, net):
        total, sums = 0.0, {"accuracy": 0.0, "margin": 0.0, "reward_chosen": 0.0, "reward_rejected": 0.0, "logp_chosen": 0.0, "logp_rejected": 0.0}
        for pair, (ref_chosen, ref_rejected) in zip(self.pairs, self.reference):
            chosen, rejected = self.value(net, pair["chosen"]), self.value(net, pair["rejected"])
            margin = (chosen - ref_chosen) - (rejected - ref_rejected)
            if self.kind == "ipo":
                loss = (margin - 1 / (2 * self.beta)) ** 2
            else:
                loss = -(1 - self.smoothing) * F.logsigmoid(self.beta * margin) - self.smoothing * F.logsigmoid(-self.beta * margin)
            total = total + loss - self.sft_weight * log_probs(net, pair["chosen"]).mean()
            rewards = self.beta * (chosen - ref_chosen).item(), self.beta * (rejected - ref_rejected).item()
            sums["accuracy"] += rewards[0] > rewards[1]
            sums["margin"] += rewards[0] - rewards[1]
            for name, value in zip(("reward_chosen", "reward_rejected", "logp_chosen", "logp_rejected"), (*rewards, chosen.item(), rejected.item())):
                sums[name] += value
        return total / len(self.pairs), {name: value / len(self.pairs) for name, value in sums.items()}


class DistillOracle:
    def __init__(self, documents, teacher, alpha=0.5, temperature=1.5):
        self.documents, self.teacher, self.alpha, self.temperature = documents, teacher, alpha, temperature

    def loss(self, net):
        ce, kl, count = 0.0, 0.0, 0
        for document in self.documents:
            tokens, targets = next_tokens(document)
            keep = targets[0] != oracle.IGNORE
            logits = logits_of(net, tokens)[keep]
            with torch.no_grad():
                taught = F.log_softmax(logits_of(self.teacher, tokens)[keep] / self.temperature, dim=-1)
            ce = ce + F.cross_entropy(logits, targets[0][keep], reduction="sum")
            kl = kl + F.kl_div(F.log_softmax(logits / self.temperature, dim=-1), taught, reduction="sum", log_target=True)
            count += int(keep.sum())
        loss = self.alpha * ce + (1 - self.alpha) * self.temperature**2 * kl
        return loss / count, {"ce": ce.item() / count, "kl": kl.item() / count}


def load_model(folder, length=T):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    config = {"hidden_size": c["hidden_size"], "num_layers": c["num_hidden_layers"], "num_heads": c["num_attention_heads"],
              "num_kv_heads": c["num_key_value_heads"], "head_dim": c["head_dim"], "intermediate_size": c["intermediate_size"],
              "vocab_size": c["vocab_size"], "tie_embeddings": c["tie_word_embeddings"], "norm_eps": c["rms_norm_eps"],
              "rope_theta": c.get("rope_theta", 1e6), "qk_norm": c["model_type"].startswith("qwen3"), "activation": "silu",
              "num_experts": c.get("num_experts", 0), "num_experts_per_tok": c.get("num_experts_per_tok"), "norm_topk_prob": c.get("norm_topk_prob"),
              "moe_intermediate_size": c.get("moe_intermediate_size"), "first_dense_layers": len(c.get("mlp_only_layers") or [])}
    net = oracle.Model(config, length, torch.float64)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    net.load({name: value.double() for name, value in weights.items() if name in dict(net.named_parameters())})
    return net


def validate(net, task):
    with torch.no_grad():
        loss, measures = task.loss(net)
    return {"valid_loss": loss.item(), "valid_accuracy": measures["accuracy"], "valid_margin": measures["margin"]}


def train(net, task, steps, held_out=None):
    """Returns loss, gradient norm and measures of every step. With the task `held_out` also the
    result of its validation after the step."""
    matrices = [p for p in net.parameters() if p.dim() > 1 and p.requires_grad]
    vectors = [p for p in net.parameters() if p.dim() == 1 and p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}], lr=LR, betas=BETAS,
                                  eps=EPS, foreach=False, fused=False)
    lines = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss, measures = task.loss(net)
        loss.backward()
        norm = oracle.clip_gradients([p.grad for p in matrices + vectors], CLIP)
        lines.append({"loss": loss.item(), "grad_norm": norm, **measures})
        optimizer.step()
        if held_out is not None:
            lines[-1].update(validate(net, held_out))
    return lines


class Comparison:
    def __init__(self, args, sets, start, exported, tied):
        self.args, self.sets, self.start, self.exported, self.tied, self.wrong = args, sets, start, exported, tied, 0

    def run(self, name, task, kind, theirs, keys=None, precision="fp64", start=None, net=None, data=None, samples=None, held_out=None,
            ranks=1):
        """`data` and `samples` are a plan and the samples of an update, if they are not the
        whole data set of the kind."""
        if samples is None:
            facts = self.sets.facts(kind)
            samples = facts["documents"] if kind == "dpo" else facts["sequences"]
        run = self.sets.path(f"run-{name}-{self.tied}".replace(" ", "-"))
        launch = [self.args.mpiexec, "-n", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
        shares = {"train.micro_batch": samples, "train.global_batch": samples} | OPTIM | (keys or {})
        call(launch + [self.args.trireme, task, "--init", start or self.start, "--data", data or self.sets.path(kind), "--run", run, "--train.steps",
                       self.args.steps, "--train.precision", precision] + keys_of(shares))
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            read = [json.loads(line) for line in file]
        ours = [line for line in read if "loss" in line]
        for line, valid in zip(ours, [line for line in read if "valid_loss" in line], strict=False):
            assert valid["eval_step"] == line["step"]
            line.update({key: value for key, value in valid.items() if key.startswith("valid_")})
        expected = train(net or load_model(self.exported), theirs, self.args.steps, held_out)
        worst = 0.0
        for step, (mine, other) in enumerate(zip(ours, expected, strict=True), 1):
            for key, value in other.items():
                if key == "accuracy" and abs(other["margin"]) < 1e-12:
                    continue  # rounding decides
                apart = abs(mine[key] - value) / max(abs(value), 1e-3)
                worst = max(worst, apart)
                if not apart <= (BOUND if precision == "fp64" else 1e-4):
                    self.wrong += 1
                    print(f"{name}, step {step}: {key} is {mine[key]!r}, the oracle has {value!r}")
        print(f"{name}, tied {self.tied}: largest relative difference {worst:.1e}", flush=True)
        return run, ours


def compare_dpo(comparison, pairs):
    reference = load_model(comparison.exported)
    if comparison.tied == "false":  # each model is a start of its own and takes half of the cases
        return compare_variants(comparison, reference)
    for form in ("sum", "mean", "padded_mean"):
        for kind in ("sigmoid", "ipo"):
            _, lines = comparison.run(f"dpo {form} {kind}", "dpo", "dpo", DpoOracle(pairs, reference, form, kind),
                                      {"dpo.logprob": form, "dpo.loss": kind})
            first = lines[0]
            if first["margin"] != 0 or (kind == "sigmoid" and abs(first["loss"] - math.log(2)) > 1e-12):
                comparison.wrong += 1
                print(f"dpo {form} {kind}: margin {first['margin']!r}, loss {first['loss']!r} beside an equal reference")
    stored = comparison.sets.path(f"reference-{comparison.tied}")
    call([comparison.args.trireme, "dpo-reference", "--init", comparison.start, "--data", comparison.sets.path("dpo"), "--output", stored,
          "--precision", "fp64", "--device", "cpu"])
    comparison.run("dpo stored reference", "dpo", "dpo", DpoOracle(pairs, reference), {"dpo.reference": stored})
    comparison.run("dpo smoothed, with sft", "dpo", "dpo", DpoOracle(pairs, reference, smoothing=0.2, sft_weight=0.3),
                   {"dpo.label_smoothing": 0.2, "dpo.sft_weight": 0.3})


VARIANTS = [({"dpo.logprob": "sum"}, {"form": "sum"}),
            ({"dpo.logprob": "mean", "dpo.score": "answer"}, {"form": "mean", "score": "answer"}),
            ({"dpo.logprob": "padded_mean"}, {"form": "padded_mean"}),
            ({"dpo.loss": "ipo"}, {"kind": "ipo", "form": "mean"}),  # mean is the default
            ({"dpo.label_smoothing": 0.2, "dpo.score": "answer"}, {"smoothing": 0.2, "score": "answer"}),
            ({"dpo.logprob": "mean", "dpo.sft_weight": 0.3}, {"form": "mean", "sft_weight": 0.3})]


def compare_variants(comparison, reference):
    """Runs every variant with validation, one reference as a checkpoint, and one as scores for
    all data sets, splits and blends."""
    sets = comparison.sets
    turns, more, valid = (list(sets.documents(name)) for name in ("dpo-turns", "dpo-more", "dpo-valid"))
    a, b = sets.path("dpo-turns"), sets.path("dpo-more")
    own = {"data.valid_path": sets.path("dpo-valid")}
    data = [(a, turns, valid, own), (a, turns[:4], turns[4:], {"data.split": "4,3"}), (f"{a} + {b}", turns + more, valid, own),
            (f"0.5 {a} + 0.5 {b}", turns + more, valid, own), (f"{a} + {b}", turns[:4] + more[:4], turns[4:] + more[4:], {"data.split": "4,3"})]
    stored = {}
    for score in ("all", "answer"):
        stored[score] = sets.path(f"scores-{score}-{comparison.tied}")
        call([comparison.args.trireme, "dpo-reference", "--init", comparison.start, "--data", f"{a} + {b}", "--data.valid_path", sets.path("dpo-valid"),
              "--dpo.score", score, "--output", stored[score], "--precision", "fp64", "--device", "cpu"])
    for number, (keys, form) in enumerate(VARIANTS):
        for reading, place in enumerate((comparison.start, stored[form.get("score", "all")])):
            plan, pairs, held_out, more_keys = data[(number + 2 * reading) % len(data)]
            name = f"dpo variant {number + 1} {'stored' if reading else 'checkpoint'}"
            comparison.run(name, "dpo", "dpo", DpoOracle(pairs, reference, **form), {**keys, **more_keys, "dpo.reference": place, "train.eval_every": 1},
                           data=plan, samples=len(pairs), held_out=DpoOracle(held_out, reference, **form))


def compare_lora(comparison, sets, tied):
    folder, run = (sets.path(f"{name}-{tied}") for name in ("adapters", "adapted"))
    adapters = Adapters(load_model(comparison.exported), folder)
    call([comparison.args.trireme, "import", "--peft", folder, "--base", comparison.start, "--output", run])
    keys = {"lora.rank": Adapters.RANK, "lora.alpha": Adapters.ALPHA}
    comparison.run("lora sft", "sft", "sft", SftOracle(list(sets.documents("sft"))), keys, start=run,
                   net=adapters.put(load_model(comparison.exported)))
    comparison.run("lora dpo", "dpo", "dpo", DpoOracle(list(sets.documents("dpo")), load_model(comparison.exported)),
                   {**keys, "dpo.reference": comparison.start}, start=run, net=adapters.put(load_model(comparison.exported)))


def make_start(trireme, sets, tied):
    """Trains a model for two steps and exports it. Returns the run and the export."""
    start, exported = (sets.path(f"{name}-{tied}") for name in ("start", "exported"))
    call([trireme, "pretrain", "--data", sets.path("pretrain"), "--run", start, "--train.steps", 2, "--train.precision", "fp32",
          "--model.tie_embeddings", tied] + keys_of(SHAPE, OPTIM))
    call([trireme, "export", "--checkpoint", start, "--output", exported])
    return start, exported


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--tasks", default="sft,dpo,distill,lora")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = args.tasks.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        sets = Sets(args.trireme_data, work)
        wrong = 0
        for tied in ("true", "false"):
            start, exported = make_start(args.trireme, sets, tied)
            comparison = Comparison(args, sets, start, exported, tied)
            if "sft" in tasks:
                comparison.run("sft", "sft", "sft", SftOracle(list(sets.documents("sft"))))
            if "dpo" in tasks:
                compare_dpo(comparison, list(sets.documents("dpo")))
            if "distill" in tasks:
                comparison.run("distill", "distill", "sft", DistillOracle(list(sets.documents("sft")), load_model(exported)),
                               {"distill.teacher": start})
            if "lora" in tasks:
                compare_lora(comparison, sets, tied)
            wrong += comparison.wrong
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
