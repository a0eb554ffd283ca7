#!/usr/bin/env python3
"""Trains with PyTorch on one device for a comparison with Trireme: fp32 weights under bf16
autocast, fused AdamW, clip by global norm; eager or compiled.

usage: peer.py --dump DIR --out FILE --device cuda|cpu --warmup N [--compile]

DIR is the output of `parity_driver train --batches-only`. Batches are on the device before the
clock starts. Writes {"losses", "step_time_s" (after the warm-up steps), "first_step_s" (with
compilation), "peak_memory_bytes", "peak_allocated_bytes"}. Needs only torch.
"""
import argparse
import json
import os
import sys
import time

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import model as oracle
from peer_format import safetensors_entries

DTYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64, "I32": torch.int32}


def load_safetensors(path):
    """{name: tensor}"""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    return {name: torch.frombuffer(data, dtype=DTYPES[dtype], count=count // DTYPES[dtype].itemsize, offset=begin).clone().view(shape)
            for name, dtype, shape, begin, count in safetensors_entries(data)}


def check_rows(bounds, targets):
    """Checks that each row is one document with padding only after it, so that causal attention
    needs no mask. `bounds`: the starts of segments in the concatenated rows; targets [rows, T]."""
    T = targets.shape[1]
    for bound in bounds:
        row, column = divmod(int(bound), T)
        if column and bool((targets[row, column:] != oracle.IGNORE).any()):
            raise SystemExit(f"row {row} holds several documents: the peer would need a mask")


def load_updates(dump, device):
    """Returns for each update its micro-batches (tokens, targets, positions) on the device and
    the number of its targets."""
    batches = load_safetensors(os.path.join(dump, "batches.safetensors"))
    steps, micro_steps, _, _ = batches["tokens"].shape
    begin, updates = batches["bounds_begin"], []
    for step in range(steps):
        for micro in range(micro_steps):
            index = step * micro_steps + micro
            check_rows(batches["segment_bounds"][begin[index]:begin[index + 1]], batches["targets"][step, micro])
        micro_batches = [tuple(batches[name][step, micro].to(device) for name in ("tokens", "targets", "positions")) for micro in range(micro_steps)]
        updates.append((micro_batches, int((batches["targets"][step] != oracle.IGNORE).sum())))
    return updates


def make_optimizer(net, values):
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": values["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
                             lr=values["lr"], betas=(values["beta1"], values["beta2"]), eps=values["eps"], fused=True)


def update(net, optimizer, micro_batches, num_targets, device, clip_norm):
    """Runs one update. Returns the loss sum as a tensor on the device, so that the host does not
    wait."""
    total = torch.zeros((), device=device, dtype=torch.float64)
    for tokens, targets, positions in micro_batches:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = net(tokens, targets, positions)
        (loss / num_targets).backward()
        total += loss.detach()
    torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def memory(device):
    if device == "cpu":
        return {}
    return {"peak_memory_bytes": torch.cuda.max_memory_reserved(), "peak_allocated_bytes": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser()
    for name in ("dump", "out", "device"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    with open(os.path.join(args.dump, "run.json"), encoding="utf-8") as file:
        config = json.load(file)
    net = oracle.Model(config["model"], config["train"]["seq_len"], torch.float32)
    net.load(load_safetensors(os.path.join(args.dump, "initial.safetensors")))
    net.to(args.device)
    optimizer = make_optimizer(net, config["optim"])
    step_net = torch.compile(net) if args.compile else net
    losses, times = [], []
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    updates = load_updates(args.dump, args.device)
    for micro_batches, num_targets in updates:
        wait()
        begin = time.perf_counter()
        total = update(step_net, optimizer, micro_batches, num_targets, args.device, config["optim"]["clip_norm"])
        wait()
        times.append(time.perf_counter() - begin)
        losses.append(total.item() / num_targets)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "step_time_s": times[args.warmup:], "first_step_s": times[0], **memory(args.device)}, file)


if __name__ == "__main__":
    main()
