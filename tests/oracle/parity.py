#!/usr/bin/env python3
"""Trains the same model twice, once with the real Step and once in plain PyTorch, and compares.

usage: parity.py PARITY_DRIVER TRIREME_DATA [--steps N] [--keep DIR]

Both start from the same weights and use the same batches. The oracle uses torch.optim.AdamW and
SGD (their loop forms) and a clip by global norm. Shapes are Qwen3 and Llama, tied or not, with 3
micro-batches per update and rows of several documents, once with rows of one document each, and
on layouts of 4 ranks that shard the model (LAYOUTS):
  loss of every step   |ours - theirs| <= bound * |theirs|
  gradients of step 1  after the clip, for each parameter ||ours - theirs|| <= bound * ||theirs||
  final weights        like gradients; this is where a wrong weight decay shows
  gradient norms       like losses, in fp64; learning rates are taken from the run
The bound is 1e-5 in fp32 and 1e-10 in fp64. fp32 uses the fast kernels; fp64 has none.

Then the rounding of the fast kernels is measured: distances of losses, gradients and weight
changes (final less initial) from the oracle in fp64, in fp32 and bf16, next to those of the
oracle in the same precision, which also rounds after each operation. They may be at most FACTOR
times those of the oracle, for each parameter the largest in any layer.

The batches are checked separately: positions and targets must follow from tokens and segment
bounds. Exits with 1 and prints every line that is out of bounds.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import model as oracle
from loaded_program import call

BOUND = {"fp32": 1e-5, "fp64": 1e-10}
DTYPE = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
# Both round the same tensors, so the difference is chance and the order of sums: usually 1.0, at
# most 1.7 in 200 gradients.
FACTOR = {"fp32": 3.0, "bf16": 2.0}
SIZES = {"hidden_size": 64, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "intermediate_size": 160}
# (preset, tied, QK-norm heads that are not hidden / heads, packed rows of several documents)
CASES = [
    {"name": "qwen3 tied", "preset": "tiny", "tie": "true", "head_dim": 24, "data": "short"},
    {"name": "qwen3 untied", "preset": "tiny", "tie": "false", "head_dim": 24, "data": "short"},
    {"name": "llama tied", "preset": "minimind-2-small", "tie": "true", "head_dim": 16, "data": "short"},
    {"name": "llama untied", "preset": "minimind-2-small", "tie": "false", "head_dim": 16, "data": "short"},
    {"name": "qwen3 tied, one document a row", "preset": "tiny", "tie": "true", "head_dim": 24, "data": "long"},
]
# No size is a multiple of a vector; one key head serves all query heads.
ODD = {"name": "odd sizes", "preset": "tiny", "tie": "false", "head_dim": 10, "data": "short",
       "keys": {"model.hidden_size": 41, "model.num_kv_heads": 1, "model.intermediate_size": 37, "train.seq_len": 45, "parallel.recompute": "full"}}
# Another activation in every precision; another optimizer in fp64, where rounding does not decide a
# sign.
QWEN = {"preset": "tiny", "tie": "true", "head_dim": 24, "data": "short"}
ACTIVATIONS = [{"name": name, "keys": {"model.activation": name}, **QWEN} for name in ("gelu_tanh", "relu2")]
OPTIMIZERS = [
    {"name": "sgd", "keys": {"optim.name": "sgd", "optim.lr": 0.1}, **QWEN},
    {"name": "sgd with momentum", "keys": {"optim.name": "sgd", "optim.lr": 0.1, "optim.momentum": 0.9}, **QWEN},
    {"name": "sgd by Nesterov", "keys": {"optim.name": "sgd", "optim.lr": 0.1, "optim.momentum": 0.9, "optim.nesterov": "true"}, **QWEN},
    {"name": "lion", "keys": {"optim.name": "lion", "optim.lr": 1e-3}, **QWEN},
]
MUON = {"optim.lr": 2e-3, "optim.matrix_lr": 0.01, "optim.embed_lr": 4e-3, "optim.scalar_lr": 1e-3, "optim.momentum_warmup": 10}
OPTIMIZERS += [
    {"name": f"{name} {method}{' cautious' if cautious == 'true' else ''}",
     "keys": {**MUON, "optim.name": name, "optim.orthogonalize": method, "optim.cautious": cautious}, **QWEN}
    for name, method, cautious in (("muon", "newton_schulz", "false"), ("muon", "polar_express", "true"), ("muon", "gram", "false"), ("normuon", "polar_express", "true"))
]
OPTIMIZERS.append(
    {"name": "llama untied, muon, tp 2 cp 2 zero 3", "ranks": 4,
     "keys": {**MUON, "optim.name": "muon", "optim.head_lr": 3e-3, "parallel.tp": 2, "parallel.cp": 2, "parallel.zero": 3},
     "preset": "minimind-2-small", "tie": "false", "head_dim": 16, "data": "short"})
POLAR_EXPRESS = [  # coefficients of modded-nanogpt for 5 iterations
    (8.156554524902461, -22.48329292557795, 15.878769915207462), (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393), (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]
# tp x cp: none of the 4 ranks has whole rows, whole heads or whole units.
LAYOUTS = [
    {"name": "qwen3 tied, tp 2 cp 2 zero 3", "ranks": 4, "keys": {"parallel.tp": 2, "parallel.cp": 2, "parallel.zero": 3, "parallel.sequence_parallel": "true"}, **QWEN},
    {"name": "llama untied, tp 2 cp 2 zero 3, all_gather", "ranks": 4,
     "keys": {"parallel.tp": 2, "parallel.cp": 2, "parallel.zero": 3, "parallel.cp_form": "all_gather", "parallel.cp_balance": "work"},
     "preset": "minimind-2-small", "tie": "false", "head_dim": 16, "data": "short"},
    {"name": "qwen3 tied, one document a row, cp 2 ulysses", "ranks": 2, "keys": {"parallel.cp": 2, "parallel.cp_form": "ulysses"},
     "preset": "tiny", "tie": "true", "head_dim": 24, "data": "long"},
]
# head_dim 32 selects the bf16 attention kernel; rows are longer than its tiles.
TILES = {"name": "tiles of 64 keys", "preset": "minimind-2-small", "tie": "true", "head_dim": 32, "data": "long"}


def make_sets(trireme_data, work):
    """Makes two data sets of the built-in corpus: its documents, and all of them as one
    document."""
    short, long, tokenizer = (os.path.join(work, name) for name in ("short.jsonl", "long.jsonl", "tokenizer"))
    subprocess.run([trireme_data, "synth", "--output", short, "--documents", "3000"], check=True)
    with open(short, encoding="utf-8") as lines:
        text = "\n".join(json.loads(line)["text"] for line in lines)
    with open(long, "w", encoding="utf-8") as out:
        out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    subprocess.run([trireme_data, "tokenizer", "train", "--input", short, "--vocab-size", "500", "--output", tokenizer], check=True)
    for name in ("short", "long"):
        subprocess.run([trireme_data, "pack", "--kind", "pretrain", "--tokenizer", tokenizer, "--input", os.path.join(work, f"{name}.jsonl"),
                        "--seq-len", "96", "--output", os.path.join(work, name)], check=True)


def run_driver(driver, work, case, precision, steps):
    out = os.path.join(work, "run", f"{case['name'].replace(' ', '-')}-{precision}")
    keys = {f"model.{key}": value for key, value in SIZES.items()}
    keys.update({"model.preset": case["preset"], "model.tie_embeddings": case["tie"], "model.head_dim": case["head_dim"],
                 "model.max_seq_len": 96, "train.steps": steps, "train.precision": precision, "train.micro_batch": 2,
                 "train.global_batch": 6, "train.threads": 1, "optim.lr": 1e-3, "optim.warmup_steps": 5})
    keys.update(case.get("keys", {}))
    command = [driver, "train", "--data", os.path.join(work, case["data"]), "--out", out, "--ranks", str(case.get("ranks", 1))]
    for key, value in keys.items():
        command += [f"--{key}", str(value)]
    call(command)
    with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
        report = json.load(file)
    return report, {name: load_file(os.path.join(out, f"{name}.safetensors")) for name in ("initial", "final", "grads", "batches")}


def micro_batches(batches):
    """Returns for each step a list of (tokens, targets, positions, segments), after a check that
    they are consistent."""
    steps, micro_steps, B, T = batches["tokens"].shape
    begin = batches["bounds_begin"]
    for step in range(steps):
        update = []
        for micro in range(micro_steps):
            index = step * micro_steps + micro
            bounds = batches["segment_bounds"][begin[index]:begin[index + 1]]
            tokens, targets, positions = (batches[name][step, micro] for name in ("tokens", "targets", "positions"))
            segments = oracle.segments_of(bounds, B, T)
            starts = bounds[:-1].long()[segments].view(B, T)
            assert torch.equal(positions, torch.arange(B * T).view(B, T) - starts), "positions do not restart at segments"
            following = torch.full_like(tokens, oracle.IGNORE)
            inside = segments[:, 1:] == segments[:, :-1]
            following[:, :-1][inside] = tokens[:, 1:][inside]
            for segment in range(len(bounds) - 1):  # a segment without targets is padding
                here = segments == segment
                assert torch.equal(targets[here], following[here]) or bool((targets[here] == oracle.IGNORE).all()), "wrong targets"
            update.append((tokens, targets, positions, segments))
        yield update


class Lion(torch.optim.Optimizer):
    """Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.
    PyTorch does not have this optimizer."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                direction = (beta1 * momentum + (1 - beta1) * p.grad).sign()
                p -= group["lr"] * (direction + group["weight_decay"] * p)
                momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Muon:
    """Muon and NorMuon for matrices, AdamW for tables and vectors. Sources: Jordan et al., "Muon", 2024; Amsel
    et al., "The Polar Express", 2025; Li et al., "NorMuon", 2025. The iterations use only X X^T X."""

    def __init__(self, weights, c, steps):
        self.c, self.steps, self.updates = c, steps, 0
        tables = {"model.embed_tokens.weight": "embed_lr", "lm_head.weight": "head_lr"}
        tables.update({name: "value_lr" for name in weights if name.endswith("value_embed.weight")})
        self.matrices = [p for name, p in weights.items() if p.dim() > 1 and name not in tables]
        own = {}
        for entry in filter(None, c["groups"].split(",")):
            name, value = entry.split("=")
            own[name] = float(value)
        groups, self.factors = [], []
        for name, p in weights.items():
            if p.dim() > 1 and name not in tables:
                continue
            group = self.group_of(name, tables)
            rate = own.get(f"{group}.lr", c[tables.get(name, "scalar_lr")])
            self.factors.append(1.0 if rate == -1 else rate / c["lr"])
            groups.append({"params": [p], "weight_decay": own.get(f"{group}.weight_decay", c["weight_decay"] if p.dim() > 1 else 0.0),
                           "betas": tuple(own.get(f"{group}.{beta}", c[beta]) for beta in ("beta1", "beta2"))})
        self.others = torch.optim.AdamW(groups, lr=c["lr"], eps=c["eps"], foreach=False, fused=False)
        self.param_groups = [{"lr": c["lr"]}]
        self.state = {p: {"momentum": torch.zeros_like(p)} for p in self.matrices}

    @staticmethod
    def group_of(name, tables):
        if name in tables:
            return tables[name].removesuffix("_lr")
        last = name.split(".")[-1]
        if name.startswith("model.smear_"):
            return "smear"
        return {"backout_scalar": "backout"}.get(last, last) if last.endswith("_scalar") else "scalar"

    def momentum(self, t):
        """Returns the momentum of update t (from 0)."""
        c = self.c
        begin = max(self.steps - c["decay_steps"], c["warmup_steps"]) if c["schedule"] == "wsd" else self.steps
        if t < c["momentum_warmup"]:
            return c["momentum_start"] + (c["momentum_end"] - c["momentum_start"]) * t / c["momentum_warmup"]
        if c["momentum_final"] < 0 or t < begin:
            return c["momentum_end"]
        return c["momentum_end"] + (c["momentum_final"] - c["momentum_end"]) * (t - begin) / (self.steps - begin)

    def weight_decay(self, t):
        factor = {"constant": 1.0, "linear": 1 - t / self.steps, "cosine": math.cos(math.pi * t / self.steps / 2) ** 2}
        return self.c["weight_decay"] * factor[self.c["decay_schedule"]]

    def orthogonalized(self, u):
        if self.c["row_equalize"]:
            rows = u.norm(dim=1, keepdim=True)
            u = u * rows.mean() / rows
        x = self.iterated(u)
        return x * (min(x.shape) ** 0.5 / x.norm()) if self.c["renormalize"] else x

    def iterated(self, u):
        if self.c["orthogonalize"] == "newton_schulz":
            x, table = u / (u.norm() + 1e-7), [(3.4445, -4.7750, 2.0315)] * 5
        else:
            x, table = u / (1.02 * u.norm() + 1e-6), POLAR_EXPRESS
        for a, b, c in table:
            cube = x @ (x.T @ x)
            x = a * x + b * cube + c * (cube @ (x.T @ x))
        return x

    @torch.no_grad()
    def step(self):
        c, lr = self.c, self.param_groups[0]["lr"]
        for group, factor in zip(self.others.param_groups, self.factors):
            group["lr"] = lr * factor
        self.others.step()
        mu, decay = self.momentum(self.updates), self.weight_decay(self.updates)
        self.updates += 1
        lr *= c["matrix_lr"] / c["lr"]
        for p in self.matrices:
            state = self.state[p]
            state["momentum"] = mu * state["momentum"] + (1 - mu) * p.grad
            o = self.orthogonalized(mu * state["momentum"] + (1 - mu) * p.grad)
            if c["name"] == "normuon":
                mean = o.square().mean(1 if o.shape[0] >= o.shape[1] else 0, keepdim=True)
                before = state.get("squares", torch.zeros_like(mean))
                state["squares"] = c["matrix_beta2"] * before + (1 - c["matrix_beta2"]) * mean
                divided = o / state["squares"].sqrt().clamp(min=1e-5)
                o = divided * o.norm() / divided.norm()
            kept = torch.ones_like(p) if not c["cautious"] else (o * p >= 0).to(p.dtype)
            p -= lr * decay * kept * p + lr * max(1.0, p.shape[0] / p.shape[1]) ** 0.5 * o


def make_optimizer(weights, c, steps):
    if c["name"] in ("muon", "normuon"):
        return Muon(weights, c, steps)
    parameters = list(weights.values())
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": c["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    if c["name"] == "sgd":
        return torch.optim.SGD(groups, lr=c["lr"], momentum=c["momentum"], nesterov=c["nesterov"], foreach=False, fused=False)
    if c["name"] == "lion":
        return Lion(groups, {"lr": c["lr"], "betas": (c["beta1"], c["beta2"])})
    return torch.optim.AdamW(groups, lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"], foreach=False, fused=False)


def replay(report, tensors, dtype, make_model=oracle.Model):
    """Returns losses, gradient norms, gradients of step 1 and the final weights of the same
    training in PyTorch. Weights, optimizer state and sums of gradients are fp32 if the model is
    bf16."""
    net = make_model(report["model"], report["train"]["seq_len"], dtype)
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    weights = {name: torch.nn.Parameter(value.to(wide, copy=True)) for name, value in tensors["initial"].items()}
    optimizer = make_optimizer(weights, report["optim"], report["train"]["steps"])
    losses, norms, first_grads, many = [], [], {}, 0
    for step, update in enumerate(micro_batches(tensors["batches"])):
        net.load(weights)
        num_targets = sum(int((targets != oracle.IGNORE).sum()) for _, targets, _, _ in update)
        for weight in weights.values():
            weight.grad = torch.zeros_like(weight)
        total = 0.0
        for tokens, targets, positions, segments in update:
            mask = oracle.attention_mask(segments)
            many += mask is not None
            net.zero_grad()
            loss = net(tokens, targets, positions, mask)
            total += loss.item()
            (loss / num_targets).backward()
            for name, p in net.named_parameters():
                weights[name].grad += p.grad
        losses.append(total / num_targets)
        norms.append(oracle.clip_gradients([p.grad for p in weights.values()], report["optim"]["clip_norm"]))
        if step == 0:
            first_grads = {name: p.grad.clone() for name, p in weights.items()}
        for group in optimizer.param_groups:
            group["lr"] = report["steps"][step]["lr"]
        optimizer.step()
    return losses, norms, first_grads, {name: p.detach() for name, p in weights.items()}, many


def relative(ours, theirs):
    return abs(ours - theirs) / abs(theirs)


def distance(ours, theirs):
    """Relative; absolute if theirs is 0."""
    return float((ours.double() - theirs.double()).norm() / (theirs.double().norm() or 1.0))


def distances(run, exact, initial):
    """Returns the relative distances of (losses, gradients, final weights) from those in fp64:
    {what: distance}."""
    errors = [relative(a, b) for a, b in zip(run[0], exact[0])]
    result = {"losses": (sum(e * e for e in errors) / len(errors)) ** 0.5}
    result.update({f"gradient of {name}": distance(run[1][name], value) for name, value in exact[1].items()})
    way = [torch.cat([(w[name].double() - initial[name].double()).flatten() for name in initial]) for w in (run[2], exact[2])]
    result["way of all weights"] = distance(*way)
    return result


def of_same_kind(errors):
    """Returns for each parameter the largest error in any layer: a single error may be small by
    chance, and is so on some CPUs."""
    def kind(what):
        return re.sub(r"layers\.\d+", "layers", what)

    largest = {}
    for what, error in errors.items():
        largest[kind(what)] = max(error, largest.get(kind(what), 0))
    return {what: largest[kind(what)] for what in errors}


def calibrate(case, precision, report, tensors, same):
    """`same`: a replay in that precision. Returns true if the program is at most FACTOR times as
    far from fp64 as the oracle in the same precision."""
    losses, _, grads, final, _ = replay(report, tensors, torch.float64)
    exact = losses, grads, final
    theirs = of_same_kind(distances(same, exact, tensors["initial"]))
    ours = distances(([step["loss"] for step in report["steps"]], tensors["grads"], tensors["final"]), exact, tensors["initial"])
    ratio = {what: ours[what] / theirs[what] for what in ours}
    worst = max(ratio, key=ratio.get)
    print(f"{precision} {case['name']}, against fp64: {worst} {ours[worst]:.1e}, the oracle's {theirs[worst]:.1e}")
    bad = [what for what in ours if not ratio[what] <= FACTOR[precision]]
    for what in bad:
        print(f"  OUT OF BOUNDS ({FACTOR[precision]} times {theirs[what]:.2e}): {what}: {ours[what]:.2e}")
    return not bad


def compare(driver, work, case, precision, steps, make_model=oracle.Model):
    report, tensors = run_driver(driver, work, case, precision, steps)
    losses, norms, grads, final, many = replay(report, tensors, DTYPE[precision], make_model)
    good = precision == "fp64" or calibrate(case, precision, report, tensors, (losses, grads, final))
    assert (many > 0) == (case["data"] == "short"), f"{case['name']}: {many} micro-batches have rows of several documents"
    assert grads.keys() == tensors["grads"].keys()
    if precision == "bf16":
        return good
    by_step = [relative(ours["loss"], theirs) for ours, theirs in zip(report["steps"], losses)]
    by_name = {name: distance(tensors["grads"][name], grad) for name, grad in grads.items()}
    by_norm = [relative(ours["grad_norm"], theirs) for ours, theirs in zip(report["steps"], norms)]
    by_weight = {name: distance(tensors["final"][name], value.detach()) for name, value in final.items()}
    worst_step = max(range(steps), key=by_step.__getitem__)
    worst_name = max(by_name, key=by_name.get)
    print(f"{precision} {case['name']}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, differs by {by_step[worst_step]:.1e} (step {worst_step + 1}), "
          f"gradients of step 1 by {by_name[worst_name]:.1e} ({worst_name}), grad_norm by {max(by_norm):.1e}, final weights by {max(by_weight.values()):.1e}")
    bound = BOUND[precision]
    bad = [f"loss of step {i + 1}: {x:.2e}" for i, x in enumerate(by_step) if not x <= bound]
    bad += [f"gradient of {name}: {x:.2e}" for name, x in by_name.items() if not x <= bound]
    bad += [f"final weights of {name}: {x:.2e}" for name, x in by_weight.items() if not x <= bound]
    if precision == "fp64":
        bad += [f"grad_norm of step {i + 1}: {x:.2e}" for i, x in enumerate(by_norm) if not x <= bound]
    for line in bad:
        print(f"  OUT OF BOUNDS ({bound}): {line}")
    return good and not bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("trireme_data")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--keep", help="folder for token sets and runs, kept")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        work = args.keep or temporary
        os.makedirs(work, exist_ok=True)
        make_sets(args.trireme_data, work)
        runs = [(case, precision) for precision in BOUND for case in CASES]
        runs += [(case, precision) for precision in ("fp32", "fp64", "bf16") for case in ACTIVATIONS]
        runs += [(case, "fp64") for case in OPTIMIZERS]
        runs += [(case, precision) for case in LAYOUTS for precision in ("fp64", "fp32")] + [(LAYOUTS[0], "bf16")]
        runs += [(case, "bf16") for case in (CASES[0], CASES[3], ODD, TILES)] + [(ODD, "fp32")]
        good = [compare(args.driver, work, case, precision, args.steps) for case, precision in runs]
    print(f"parity over {args.steps} steps: {sum(good)} of {len(good)} within bounds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
