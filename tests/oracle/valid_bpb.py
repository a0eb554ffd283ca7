#!/usr/bin/env python3
"""Compares the bits per byte of the validation with plain Python, on several layouts.

usage: valid_bpb.py TRIREME TRIREME_DATA --mpiexec MPIEXEC

A model trains for two steps in fp64 and is validated after the second one: on one, two and three
data ranks, with tensor, context and pipeline parallelism, and on the first tokens of the
validation set only. `valid_bpb` agrees within 1e-12 between all layouts, and with `trireme eval`
of the checkpoint. The oracle is the plain PyTorch model with the exported weights: nats of the
targets with text, divided by ln 2 and by the bytes of their text. It agrees within 1e-6, because
the export is in fp32. `train.tokens_per_param` gives the expected number of steps. Exits with 1 and prints what differs.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import torch
from transformers import AutoTokenizer

from post_training import load_model, logits_of

T, STEPS = 64, 2
LAYOUTS = [(1, {}), (2, {}), (3, {}), (2, {"tp": 2}), (2, {"cp": 2}), (2, {"pp": 2})]
SHAPE = {"preset": "tiny", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "intermediate_size": 48,
         "max_seq_len": T}
WORDS = ["apple", "river", "stone", "cloud", "é世", "walks", "under", "bright"]


def call(words, expect=0):
    result = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != expect:
        raise SystemExit(f"{' '.join(str(word) for word in words)}\n{result.stdout}{result.stderr}\nexit {result.returncode}, expected {expect}")
    return result.stdout if expect == 0 else result.stderr


class Place:
    def __init__(self, args, work):
        self.args, self.work, rng = args, work, random.Random(11)
        for name, count in (("train", 90), ("valid", 31)):
            with open(self.path(f"{name}.jsonl"), "w", encoding="utf-8") as out:
                out.writelines(json.dumps({"text": " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6)))}) + "\n" for _ in range(count))
        call([args.trireme_data, "tokenizer", "train", "--input", self.path("train.jsonl"), "--vocab-size", 300, "--output", self.path("tokenizer")])
        for name in ("train", "valid"):
            call([args.trireme_data, "pack", "--tokenizer", self.path("tokenizer"), "--input", self.path(f"{name}.jsonl"), "--seq-len", T,
                  "--output", self.path(name)])

    def path(self, name):
        return os.path.join(self.work, name)

    def train(self, name, ranks=1, layout=None, keys=None, expect=0):
        """Trains a run and returns the line of its validation, or the error text."""
        words = {"train.steps": STEPS, "train.eval_every": STEPS, "train.micro_batch": 2, "train.global_batch": 12, "train.precision": "fp64",
                 "train.device": "cpu", "train.threads": 1, "optim.lr": 1e-2, "data.valid_path": self.path("valid")}
        words |= {f"model.{key}": value for key, value in SHAPE.items()} | {f"parallel.{axis}": size for axis, size in (layout or {}).items()}
        launch = [self.args.mpiexec, "-n", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
        result = call(launch + [self.args.trireme, "pretrain", "--data", self.path("train"), "--run", self.path(name)] +
                      [word for key, value in (words | (keys or {})).items() for word in (f"--{key}", value)], expect)
        if expect != 0:
            return result
        with open(os.path.join(self.path(name), "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return next(line for line in lines if "valid_loss" in line)

    def steps(self, name):
        with open(os.path.join(self.path(name), "status.json"), encoding="utf-8") as file:
            return json.load(file)["step"]

    def export(self, name):
        call([self.args.trireme, "export", "--checkpoint", self.path(name), "--output", self.path(f"{name}-exported")])
        return self.path(f"{name}-exported")

    def documents(self):
        """Returns the ids of all validation documents, in file order."""
        for number in range(json.loads(call([self.args.trireme_data, "inspect", self.path("valid"), "--json"]))["documents"]):
            yield json.loads(call([self.args.trireme_data, "inspect", self.path("valid"), "--sample", number, "--json"]))["ids"]


def text_bytes(exported):
    """Returns the number of text bytes of each id, from the byte alphabet of byte-level BPE."""
    tokenizer = AutoTokenizer.from_pretrained(exported, trust_remote_code=False)
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    return {number: 0 if number in special else len(token) for token, number in tokenizer.get_vocab().items()}


def bits_per_byte(net, rows, sizes):
    """`rows`: ids that are predicted from the beginning of their row only."""
    nats, count = 0.0, 0
    for ids in rows:
        if len(ids) < 2:
            continue
        losses = torch.nn.functional.cross_entropy(logits_of(net, torch.tensor([ids[:-1]])), torch.tensor(ids[1:]), reduction="none")
        for loss, target in zip(losses.tolist(), ids[1:]):
            nats, count = nats + (loss if sizes[target] else 0.0), count + sizes[target]
    return nats / (math.log(2) * count)


def first_tokens(documents, wanted):
    """Cuts the stream of documents every T tokens, up to `wanted` tokens. The target of the last
    token is the token after the cut."""
    stream = [number for ids in documents for number in ids]
    return [stream[at:at + T + 1] for at in range(0, wanted, T)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--mpiexec", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    wrong = []

    def expect_near(what, mine, other, bound):
        print(f"{what}: {mine} and {other}", flush=True)
        if not abs(mine - other) <= bound * abs(other):
            wrong.append(what)

    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        place = Place(args, work)
        lines = [place.train(f"run-{i}", ranks, layout) for i, (ranks, layout) in enumerate(LAYOUTS)]
        for (ranks, layout), line in zip(LAYOUTS, lines):
            expect_near(f"{ranks} ranks, {layout}", line["valid_bpb"], lines[0]["valid_bpb"], 1e-12)
        scores = json.loads(call([args.trireme, "eval", "--checkpoint", place.path("run-0"), "--data", place.path("valid"), "--precision", "fp64",
                                  "--device", "cpu", "--json"]))
        expect_near("trireme eval", lines[0]["valid_bpb"], scores["bits_per_byte"], 1e-12)
        exported = place.export("run-0")
        documents, sizes = list(place.documents()), text_bytes(exported)
        assert all(len(ids) <= T for ids in documents), "best-fit keeps these documents whole"
        assert any(sizes[i] == 0 for ids in documents for i in ids[1:]), "some targets have no text"
        expect_near("oracle", lines[0]["valid_bpb"], bits_per_byte(load_model(exported, T), documents, sizes), 1e-6)

        parameters = sum(p.numel() for p in load_model(exported, T).parameters())
        place.train("by-tokens", keys={"train.steps": 0, "train.eval_every": 1, "train.tokens_per_param": 2.5 * 12 * T / parameters})
        expect_near("steps of 2.5 updates of tokens", place.steps("by-tokens"), 2, 0)
        place.train("by-tokens", keys={"train.steps": 0, "train.eval_every": 1, "train.tokens_per_param": 3.5 * 12 * T / parameters})
        expect_near("steps of a longer run", place.steps("by-tokens"), 3, 0)

        keys = {"data.packing": "concat", "data.cross_documents": "true", "data.valid_tokens": 5 * T}
        cut = [place.train(f"cut-{ranks}", ranks, None, keys) for ranks in (1, 3)]
        expect_near("first tokens, 3 ranks", cut[1]["valid_bpb"], cut[0]["valid_bpb"], 1e-12)
        net, rows = load_model(place.export("cut-1"), T), first_tokens(documents, 5 * T)
        expect_near("targets of the first tokens", cut[0]["valid_targets"], 5 * T, 0)
        expect_near("oracle, first tokens", cut[0]["valid_bpb"], bits_per_byte(net, rows, sizes), 1e-6)
        for value, part in ((T + 1, "multiple of the sequence length (64 tokens), such as 128"), (1000 * T, "has only"), (-1, "must be 0")):
            error = place.train("refused", keys={"data.valid_tokens": value}, expect=2)
            if part not in error:
                wrong.append(f"{part!r} is not in {error!r}")
    for what in wrong:
        print("OUT OF BOUNDS:", what)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
