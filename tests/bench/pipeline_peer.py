#!/usr/bin/env python3
"""Runs one rank of the pipeline peer of compare_ddp.py: torch.distributed.pipelining over gloo, 1F1B, fp32 weights (under bf16
autocast with --precision bf16), fused AdamW.

usage: pipeline_peer.py --dump DIR --rank R --size N --port P --out FILE --layers 4,4 [--precision bf16|fp32]

DIR is the output of `parity_driver train --batches-only`. Rank r has layers[r] layers, rank 0 the embedding, the last one norm and head;
both have a tied table, and their gradients are added before the clip, in which the table counts once. A step is timed like in ddp_peer.py: all
micro-batches of an update, clip, update. Rank 0 writes {"losses": [...], "step_time_s": [...]}.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import ddp_peer
import model as oracle


class Stage(nn.Module):
    """Layers [first, end) of the oracle's model, with rows of one document each."""

    def __init__(self, whole, first, end, has_embedding, has_head, precision):
        super().__init__()
        self.embed_tokens = whole.model.embed_tokens if has_embedding else None
        self.layers = whole.model.layers[first:end]
        self.norm = whole.model.norm if has_head else None
        self.lm_head = whole.lm_head if has_head else None
        self.bf16 = precision == "bf16"
        self.register_buffer("cos", whole.cos, persistent=False)
        self.register_buffer("sin", whole.sin, persistent=False)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            if self.embed_tokens is not None:
                x = self.embed_tokens(x)
            length = x.shape[1]
            cos, sin = self.cos[None, None, :length], self.sin[None, None, :length]
            for layer in self.layers:
                x = layer(x, cos, sin, None)
            return x if self.lm_head is None else self.lm_head(self.norm(x)).float()


def table_of(stage):
    return stage.embed_tokens.weight if stage.embed_tokens is not None else stage.lm_head.weight


def clip(stage, tied, args, clip_norm):
    """Clips by the norm of the whole model, in which a tied table counts once."""
    if tied:
        dist.all_reduce(table_of(stage).grad)
    counted = [p.grad for p in stage.parameters() if not (tied and args.rank > 0 and p is table_of(stage))]
    squares = torch.stack([grad.square().sum() for grad in counted]).sum()
    dist.all_reduce(squares)
    factor = min(1.0, clip_norm / (squares.sqrt().item() + 1e-6))
    for parameter in stage.parameters():
        parameter.grad.mul_(factor)


def main():
    parser = ddp_peer.peer_parser()
    parser.add_argument("--layers", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=args.size)
    with open(os.path.join(args.dump, "run.json"), encoding="utf-8") as file:
        config = json.load(file)
    whole = oracle.Model(config["model"], config["train"]["seq_len"], torch.float32)
    whole.load(load_file(os.path.join(args.dump, "initial.safetensors")))
    batches = load_file(os.path.join(args.dump, "batches.safetensors"))
    own = argparse.Namespace(rank=0, size=1)  # every rank reads all rows
    updates = ddp_peer.load_batches(own, batches)
    layers = [int(count) for count in args.layers.split(",")]
    first, last_rank = sum(layers[:args.rank]), args.size - 1
    stage = Stage(whole, first, first + layers[args.rank], args.rank == 0, args.rank == last_rank, args.precision)
    tied = config["model"]["tie_embeddings"]
    optimizer = ddp_peer.make_optimizer(stage, config["optim"])
    num_targets = 1

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=oracle.IGNORE, reduction="sum") / num_targets

    pipeline = Schedule1F1B(PipelineStage(stage, args.rank, args.size, torch.device("cpu")), len(updates[0][0]), loss_fn=loss_of,
                            scale_grads=False)
    losses, times = [], []
    for micro_batches, num_targets in updates:
        tokens, targets = (torch.cat([micro[i] for micro in micro_batches]) for i in (0, 1))
        start = time.perf_counter()
        micro_losses = []
        if args.rank == 0:
            pipeline.step(tokens)
        elif args.rank == last_rank:
            pipeline.step(target=targets, losses=micro_losses)
        else:
            pipeline.step()
        clip(stage, tied, args, config["optim"]["clip_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        times.append(time.perf_counter() - start)
        total = torch.tensor(float(sum(loss.item() for loss in micro_losses)), dtype=torch.float64)
        dist.all_reduce(total)
        losses.append(total.item())
    ddp_peer.leave(args, losses, times)


if __name__ == "__main__":
    main()
