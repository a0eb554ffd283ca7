#!/usr/bin/env python3
"""Runs the peer of compare_moe.py: transformers' Qwen3MoeForCausalLM in one process, fp32 weights (under bf16 autocast with
--precision bf16), fused AdamW.

usage: moe_peer.py --dump DIR --out FILE --threads N [--precision bf16|fp32] [--experts eager|grouped_mm]

DIR is the output of `parity_driver train --batches-only`. A step is timed like in ddp_peer.py: all micro-batches of an update, clip, update. Routers have
no auxiliary loss. Writes {"losses": [...], "step_time_s": [...]}.
"""
import argparse
import json
import os
import sys
import time

import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import ddp_peer
import model as oracle


def make_model(c, weights, experts):
    config = Qwen3MoeConfig(
        vocab_size=c["vocab_size"], hidden_size=c["hidden_size"], intermediate_size=c["intermediate_size"], num_hidden_layers=c["num_layers"],
        num_attention_heads=c["num_heads"], num_key_value_heads=c["num_kv_heads"], head_dim=c["head_dim"], rms_norm_eps=c["norm_eps"],
        max_position_embeddings=c["max_seq_len"], rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]},
        tie_word_embeddings=c["tie_embeddings"], num_experts=c["num_experts"], num_experts_per_tok=c["num_experts_per_tok"],
        moe_intermediate_size=c["moe_intermediate_size"], norm_topk_prob=c["norm_topk_prob"], use_cache=False)
    config._experts_implementation = experts
    net = Qwen3MoeForCausalLM(config).float()
    own = dict(net.named_parameters())
    assert own.keys() == weights.keys(), f"parameters differ: {sorted(own.keys() ^ weights.keys())}"
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name].reshape(parameter.shape))
    return net.train()


def main():
    parser = argparse.ArgumentParser()
    for name in ("dump", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--experts", default="eager")
    args = parser.parse_args()
    args.rank, args.size = 0, 1
    torch.set_num_threads(args.threads)
    with open(os.path.join(args.dump, "run.json"), encoding="utf-8") as file:
        config = json.load(file)
    net = make_model(config["model"], load_file(os.path.join(args.dump, "initial.safetensors")), args.experts)
    optimizer = ddp_peer.make_optimizer(net, config["optim"])
    losses, times = [], []
    for micro_batches, num_targets in ddp_peer.load_batches(args, load_file(os.path.join(args.dump, "batches.safetensors"))):
        start, total = time.perf_counter(), 0.0
        for tokens, targets, positions in micro_batches:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
                logits = net(input_ids=tokens, position_ids=positions).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=oracle.IGNORE, reduction="sum")
            (loss / num_targets).backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(net.parameters(), config["optim"]["clip_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        times.append(time.perf_counter() - start)
        losses.append(total / num_targets)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "step_time_s": times}, file)


if __name__ == "__main__":
    main()
