#!/usr/bin/env python3
"""Compares the training of models with experts by the real program and in plain PyTorch, from
the same exported start.

usage: experts.py TRIREME TRIREME_DATA [--steps 3] [--keep DIR]

Works like post_training.py with `trireme sft` and `dpo`. In addition to loss and gradient norm,
the auxiliary loss of the routers must agree within 1e-10. sft computes it over all tokens of a
micro-batch (MiniMind V3's loss), dpo for each sequence. Exits with 1 and prints all values that
are out of bounds.
"""
import argparse
import os
import sys
import tempfile

import torch

import model as oracle
import post_training as base

MOE = {"model.num_experts": 5, "model.moe_intermediate_size": 24, "model.router_aux_loss_coef": 0.3}
CASES = [("one a token", {"model.num_experts_per_tok": 1, "model.norm_topk_prob": "false"}),
         ("two a token, behind a dense layer", {"model.num_experts_per_tok": 2, "model.first_dense_layers": 1})]


class Routed:
    """The assignments and scores of every layer's router for each token, in the forward passes
    since the last clear()."""

    def __init__(self, net):
        self.layers = [layer.mlp for layer in net.model.layers if isinstance(layer.mlp, oracle.MoE)]
        self.clear()

    def clear(self):
        self.chosen, self.scores = [[] for _ in self.layers], [[] for _ in self.layers]

    def note(self):
        for i, moe in enumerate(self.layers):
            self.chosen[i].append(moe.chosen[0])
            self.scores[i].append(moe.scores[0])

    def loss(self, per_choice):
        """Returns the sum over layers for all recorded tokens."""
        total = 0.0
        for chosen, scores in zip(self.chosen, self.scores):
            chosen, scores = torch.cat(chosen), torch.cat(scores)
            total = total + scores.shape[1] * (chosen.mean(0) / per_choice * scores.mean(0)).sum()
        return MOE["model.router_aux_loss_coef"] * total


def log_probs(net, side):
    """Works like post_training's, for a pass through all tokens of the sequence including the
    last one, because routers count it."""
    ids = torch.tensor([side["ids"]])
    scores = torch.log_softmax(base.logits_of(net, ids), dim=-1)[:-1]
    targets = ids[0, 1:]
    keep = torch.tensor(side["target"], dtype=torch.bool)[1:]
    return scores.gather(1, targets[:, None])[:, 0][keep]


class Sft:
    def __init__(self, documents):
        self.documents = documents

    def loss(self, net):
        routed, total, count = Routed(net), 0.0, 0
        for document in self.documents:
            scores = log_probs(net, document)
            routed.note()
            total, count = total - scores.sum(), count + len(scores)
        aux = routed.loss(per_choice=1)
        return total / count + aux, {"loss": (total / count).item(), "aux_loss": aux.item()}


class Dpo:
    """The DPO loss with sums of log-probabilities, sigmoid and beta 0.1."""

    def __init__(self, pairs, reference):
        self.pairs = pairs
        with torch.no_grad():
            self.reference = [[log_probs(reference, pair[side]).sum() for side in ("chosen", "rejected")] for pair in pairs]

    def loss(self, net):
        routed, total, aux = Routed(net), 0.0, 0.0
        for pair, references in zip(self.pairs, self.reference):
            margin = 0.0
            for side, reference, sign in zip(("chosen", "rejected"), references, (1, -1)):
                routed.clear()
                margin = margin + sign * (log_probs(net, pair[side]).sum() - reference)
                routed.note()
                aux = aux + routed.loss(per_choice=routed.layers[0].k)
            total = total - torch.nn.functional.logsigmoid(0.1 * margin)
        loss, aux = total / len(self.pairs), aux / (2 * len(self.pairs))
        return loss + aux, {"loss": loss.item(), "aux_loss": aux.item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme")
    parser.add_argument("trireme_data")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--keep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        work = args.keep or scratch
        os.makedirs(work, exist_ok=True)
        sets = base.Sets(args.trireme_data, work)
        for number, (name, keys) in enumerate(CASES):
            start, exported = (sets.path(f"{word}-{number}") for word in ("start", "exported"))
            base.call([args.trireme, "pretrain", "--data", sets.path("pretrain"), "--run", start, "--train.steps", 2, "--train.precision", "fp32"] +
                      base.keys_of(base.SHAPE, base.OPTIM, MOE, keys))
            base.call([args.trireme, "export", "--checkpoint", start, "--output", exported])
            comparison = base.Comparison(args, sets, start, exported, number)
            for form, task, kind, theirs in (("micro_batch", "sft", "sft", Sft(list(sets.documents("sft")))),
                                             ("sequence", "dpo", "dpo", Dpo(list(sets.documents("dpo")), base.load_model(exported)))):
                comparison.run(f"{task} {name}", task, kind, theirs, {"model.router_aux_loss": form})
            wrong += comparison.wrong
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
