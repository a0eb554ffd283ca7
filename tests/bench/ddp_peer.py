#!/usr/bin/env python3
"""Runs one rank of the peer of compare_ddp.py: PyTorch DDP over gloo, fp32 weights under bf16 autocast (--precision fp32: without),
fused AdamW; or FSDP2.

usage: ddp_peer.py --dump DIR --rank R --size N --port P --out FILE [--precision bf16|fp32] [--compile] [--fsdp each|last] [--cpu-clock]

--fsdp applies fully_shard to each block and to the rest: bf16 parameters, fp32 reduction; gradients are reduced after each
micro-batch, or kept whole up to the last one.

DIR is the output of `parity_driver train --batches-only`. Batches are in memory before the clock starts, so data loading costs
the peer nothing. Rank r takes micro-batch a * size + r of an update, like the loader of Trireme.

A step is timed from its batches to the end of the optimizer (Trireme's step lasts until the next one begins): forward and backward
of each micro-batch (gradients are exchanged only with the last one, while backward runs), clip, update. Rank 0 writes
{"losses": [...], "step_time_s": [...], "peak_bytes": its largest resident size}. With --cpu-clock the times are CPU seconds of the process, which do not include other programs.
"""
import argparse
import contextlib
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import model as oracle


def load_batches(args, device_batches):
    """Returns for each step this rank's micro-batches (tokens, targets, positions) and the
    number of targets of the whole update."""
    steps, micro_steps, B, T = device_batches["tokens"].shape
    begin, updates = device_batches["bounds_begin"], []
    for step in range(steps):
        mine = []
        for micro in range(args.rank, micro_steps, args.size):
            index = step * micro_steps + micro
            bounds = device_batches["segment_bounds"][begin[index]:begin[index + 1]]
            if len(bounds) != B + 1:
                raise SystemExit(f"step {step + 1} has a row of several documents: the peer would need a mask; give another --train.seed")
            mine.append(tuple(device_batches[name][step, micro].contiguous() for name in ("tokens", "targets", "positions")))
        updates.append((mine, int((device_batches["targets"][step] != oracle.IGNORE).sum())))
    return updates


def make_optimizer(net, c):
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": c["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
                             lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["eps"], fused=True)


def step(ddp, optimizer, micro_batches, num_targets, args, clip_norm):
    """Runs one update. Returns the loss sum of this rank."""
    total = torch.zeros((), dtype=torch.float64)
    for i, (tokens, targets, positions) in enumerate(micro_batches):
        last = i + 1 == len(micro_batches)
        if args.fsdp == "last":
            ddp.set_requires_gradient_sync(last)
        with contextlib.nullcontext() if last or args.fsdp else ddp.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16" and not args.fsdp):
                loss = ddp(tokens, targets, positions)
            # DDP averages over ranks. Multiplied by size, the result is the sum that the
            # token-regime loss needs.
            (loss * (args.size / num_targets)).backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return total


def shard(net, dtype):
    """Applies FSDP2. Inputs are not cast: the rotary tables stay in fp32."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in net.model.layers:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(net, mp_policy=policy)


def peer_parser():
    """Parses the arguments of every peer."""
    parser = argparse.ArgumentParser()
    for name in ("dump", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rank", "size", "port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    return parser


def leave(args, losses, times):
    """Ends a rank of the peer."""
    if args.rank == 0:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "step_time_s": times,
                       "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}, file)
    dist.destroy_process_group()


def main():
    parser = peer_parser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fsdp", choices=("each", "last"))
    parser.add_argument("--cpu-clock", action="store_true")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_clock else time.perf_counter
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=args.size)
    with open(os.path.join(args.dump, "run.json"), encoding="utf-8") as file:
        config = json.load(file)
    net = oracle.Model(config["model"], config["train"]["seq_len"], torch.float32)
    net.load(load_file(os.path.join(args.dump, "initial.safetensors")))
    updates = load_batches(args, load_file(os.path.join(args.dump, "batches.safetensors")))
    if args.fsdp:
        ddp = shard(net, torch.bfloat16 if args.precision == "bf16" else torch.float32)
    else:
        ddp = DistributedDataParallel(torch.compile(net) if args.compile else net, gradient_as_bucket_view=True)
    optimizer = make_optimizer(net, config["optim"])
    losses, times = [], []
    for micro_batches, num_targets in updates:
        start = clock()
        total = step(ddp, optimizer, micro_batches, num_targets, args, config["optim"]["clip_norm"])
        times.append(clock() - start)
        dist.all_reduce(total)
        losses.append(total.item() / num_targets)
    leave(args, losses, times)


if __name__ == "__main__":
    main()
