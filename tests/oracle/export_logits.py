#!/usr/bin/env python3
"""Trains a little, exports, and compares the exported directory in transformers with inference
by this project.

usage: export_logits.py TRIREME TRIREME_DATA LOGITS_DRIVER

For Qwen3 and Llama shapes, tied and not, each activation and scaling of rotary frequencies: ids
of AutoTokenizer equal those of `tokenizer encode`; the largest difference of fp32 logits is
below 1e-4; the greedy continuation of several prompts equals that of `trireme generate
--temperature 0`. The weights are trained for a few steps, so that logits are not noise. Exits
with 1 and prints all differences.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

BOUND = 1e-4
NEW_TOKENS = 24
PROMPTS = ["Once upon a time", "What is 2 + 3?", "The", "小猫"]
CASES = [("tiny", "true", "silu", ""), ("tiny", "false", "gelu_tanh", "yarn,factor=4,original_max_position_embeddings=128"),
         ("minimind-3-moe", "true", "silu", ""), ("minimind-2-small", "true", "relu2", ""),
         ("minimind-2-small", "false", "silu", "llama3,factor=4,original_max_position_embeddings=128")]
SIZES = {"hidden_size": 96, "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "max_seq_len": 512}


def call(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE).stdout.decode()


def make_set(trireme_data, work):
    corpus, tokenizer, packed = (os.path.join(work, name) for name in ("corpus.jsonl", "tokenizer", "set"))
    call(trireme_data, "synth", "--output", corpus, "--documents", 4000)
    call(trireme_data, "tokenizer", "train", "--input", corpus, "--vocab-size", 600, "--output", tokenizer)
    call(trireme_data, "pack", "--tokenizer", tokenizer, "--input", corpus, "--seq-len", 128, "--output", packed)
    return corpus, tokenizer, packed


def check_tokenizer(trireme_data, work, corpus, tokenizer, exported):
    encoded = os.path.join(work, "encoded.jsonl")
    if not os.path.exists(encoded):
        call(trireme_data, "tokenizer", "encode", "--tokenizer", tokenizer, "--input", corpus, "--field", "text", "--output", encoded)
    with open(corpus, encoding="utf-8") as texts, open(encoded, encoding="utf-8") as ids:
        pairs = [(json.loads(text)["text"], json.loads(line)["ids"]) for text, line in zip(texts, ids)][:500]
    for text, ids in pairs:
        assert exported.encode(text, add_special_tokens=True) == ids, f"ids differ for {text!r}"
    return pairs


def greedy(model, tokenizer, prompt):
    ids = tokenizer(prompt).input_ids
    prompt_ids = torch.tensor([ids])
    out = model.generate(prompt_ids, attention_mask=torch.ones_like(prompt_ids), do_sample=False, max_new_tokens=NEW_TOKENS)
    return tokenizer.decode(out[0, len(ids):], skip_special_tokens=True)


def check_case(trireme, trireme_data, logits_driver, work, made, preset, tie, activation, scaling):
    corpus, tokenizer_folder, packed = made
    run, hf = os.path.join(work, f"run-{preset}-{tie}"), os.path.join(work, f"hf-{preset}-{tie}")
    keys = [word for key, value in SIZES.items() for word in (f"--model.{key}", value)]
    call(trireme, "pretrain", "--data", packed, "--run", run, "--model.preset", preset, "--model.tie_embeddings", tie, "--model.activation", activation,
         "--model.rope_scaling", scaling, *keys,
         "--train.steps", 40, "--train.micro_batch", 4, "--train.global_batch", 8, "--train.device", "cpu", "--train.threads", 1,
         "--optim.lr", 3e-3, "--train.log_every", 0)
    call(trireme, "export", "--checkpoint", run, "--output", hf)
    model = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, trust_remote_code=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(hf, trust_remote_code=False)

    pairs = check_tokenizer(trireme_data, work, corpus, tokenizer_folder, tokenizer)
    stream = [token for _, ids in pairs for token in ids]
    tokens = torch.tensor(stream[:4 * 128]).view(4, 128)
    tokens_file, logits_file = os.path.join(work, "tokens.safetensors"), os.path.join(work, "logits.safetensors")
    save_file({"tokens": tokens}, tokens_file)
    if os.path.exists(logits_file):
        os.remove(logits_file)
    call(logits_driver, run, tokens_file, logits_file)
    ours, theirs = load_file(logits_file)["logits"], model(tokens).logits
    assert ours.shape == theirs.shape, f"{ours.shape} {theirs.shape}"
    difference = float((ours - theirs).abs().max())
    texts = []
    for prompt in PROMPTS:
        text = call(trireme, "generate", "--checkpoint", run, "--prompt", prompt, "--max-tokens", NEW_TOKENS, "--temperature", 0,
                    "--device", "cpu")
        texts.append((prompt, text.removesuffix("\n"), greedy(model, tokenizer, prompt)))
    wrong = [item for item in texts if item[1] != item[2]]
    print(f"{type(model).__name__} tied {tie} {activation} {scaling}: max |logit difference| {difference:.2e} of logits to {float(theirs.abs().max()):.1f}, "
          f"greedy texts equal {len(texts) - len(wrong)} of {len(texts)}, for example {texts[0][1]!r}")
    for prompt, mine, other in wrong:
        print(f"  OUT OF BOUNDS: {prompt!r}: trireme {mine!r}, transformers {other!r}")
    if not difference < BOUND:
        print(f"  OUT OF BOUNDS ({BOUND}): logits differ by {difference:.2e}")
    return difference < BOUND and not wrong


def main():
    trireme, trireme_data, logits_driver = sys.argv[1:4]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        made = make_set(trireme_data, work)
        good = [check_case(trireme, trireme_data, logits_driver, work, made, *case) for case in CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
