#!/usr/bin/env python3
"""Compares `trireme generate` with transformers on the same Hugging Face directory, and samples
with transformers' processors.

usage: generation.py TRIREME SAMPLING_DRIVER

Greedy: 64 prompts of mixed lengths, 128 tokens each, 16 at once. At every position the token has
transformers' largest logit, or a logit within 1e-4 of it; log-probabilities are within 1e-4.
Sampling: 20,000 draws for each filter from the same logits. No draw lies outside of the set that
the processors keep, and chi-square p > 0.001. Exits with 1 and prints all differences.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from prompt_ids import make_tokenizer, pre_tokenizers
from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)
from transformers.generation.logits_process import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor,
                                                    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

BOUND = 1e-4
DRAWS = 20000
SIZES = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
         "max_position_embeddings": 256, "head_dim": 32, "initializer_range": 0.15}

EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True, "mlp_only_layers": [0]}


def make_folder(work, kind):
    folder = os.path.join(work, kind)
    os.makedirs(folder)
    size = make_tokenizer(folder, None, pre_tokenizers.ByteLevel(add_prefix_space=False), None, {"tokenizer_class": "PreTrainedTokenizerFast"})
    sizes = {**SIZES, "vocab_size": size}
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False))
    elif kind == "qwen3_moe":
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **EXPERTS, tie_word_embeddings=False))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=True))
    model.save_pretrained(folder)
    return folder, size


def check_greedy(trireme, work, kind):
    folder, size = make_folder(work, kind)
    prompts = [torch.randint(size, (1 + 7 * i % 90,)).tolist() for i in range(64)]
    file = os.path.join(work, f"{kind}.jsonl")
    with open(file, "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    lines = subprocess.run([trireme, "generate", "--checkpoint", folder, "--prompts", file, "--json", "--max-tokens", "128", "--temperature", "0",
                            "--batch", "16", "--ignore-eos", "--device", "cpu"], check=True, stdout=subprocess.PIPE).stdout.decode()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    unequal, worst_gap, worst_logprob = 0, 0.0, 0.0
    for prompt, line in zip(prompts, map(json.loads, lines.splitlines()), strict=True):
        drawn = torch.tensor(line["ids"])
        assert line["prompt_tokens"] == len(prompt) and line["completion_tokens"] == len(drawn) == 128, line
        logits = model(torch.tensor([prompt + line["ids"]])).logits[0, len(prompt) - 1:-1]
        chosen = logits.gather(1, drawn[:, None])[:, 0]
        unequal += int((logits.argmax(-1) != drawn).sum())
        worst_gap = max(worst_gap, float((logits.max(-1).values - chosen).max()))
        expected = logits.log_softmax(-1).gather(1, drawn[:, None])[:, 0]
        worst_logprob = max(worst_logprob, float((expected - torch.tensor(line["logprobs"])).abs().max()))
    print(f"{kind}: 64 x 128 tokens, {unequal} unequal, largest gap of logits {worst_gap:.1e}, of log-probabilities {worst_logprob:.1e}")
    return worst_gap < BOUND and worst_logprob < BOUND


def filters():
    yield "temperature", {"temperature": 0.7}, [TemperatureLogitsWarper(0.7)]
    yield "top-k", {"top_k": 20}, [TopKLogitsWarper(20)]
    yield "top-p", {"top_p": 0.8}, [TopPLogitsWarper(0.8)]
    yield "min-p", {"min_p": 0.05}, [MinPLogitsWarper(0.05)]
    yield "repetition penalty", {"repetition_penalty": 1.4}, [RepetitionPenaltyLogitsProcessor(1.4)]
    yield "bias", {"logit_bias": {"7": 3.5, "8": -100.0}}, [SequenceBiasLogitsProcessor({(7,): 3.5, (8,): -100.0})]
    yield ("all", {"temperature": 1.3, "top_k": 60, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
           [RepetitionPenaltyLogitsProcessor(1.2), TemperatureLogitsWarper(1.3), TopKLogitsWarper(60), TopPLogitsWarper(0.9), MinPLogitsWarper(0.02)])


def chi_square_p(counts, probabilities):
    expected = probabilities * DRAWS
    order = expected.argsort()
    bins, seen, wanted = [], 0.0, 0.0
    for i in order.tolist():  # at least 5 expected in each bin
        seen, wanted = seen + float(counts[i]), wanted + float(expected[i])
        if wanted >= 5:
            bins.append((seen, wanted))
            seen, wanted = 0.0, 0.0
    if wanted > 0:
        bins[-1] = (bins[-1][0] + seen, bins[-1][1] + wanted)
    statistic = sum((a - b) ** 2 / b for a, b in bins)
    return float(torch.special.gammaincc(torch.tensor((len(bins) - 1) / 2, dtype=torch.float64), torch.tensor(statistic / 2, dtype=torch.float64)))


def check_sampling(driver):
    logits = torch.randn(500, dtype=torch.float64) * 2
    prompt = [3, 3, 90, 200, 499]
    good = True
    for name, config, processors in filters():
        line = json.dumps({"logits": logits.tolist(), "prompt": prompt, "draws": DRAWS, **config})
        counts = torch.tensor(json.loads(subprocess.run([driver], input=(line + "\n").encode(), check=True, stdout=subprocess.PIPE).stdout))
        probabilities = LogitsProcessorList(processors)(torch.tensor([prompt]), logits[None].clone())[0].softmax(-1)
        outside, p = int(counts[probabilities == 0].sum()), chi_square_p(counts, probabilities)
        print(f"{name}: {int((probabilities > 0).sum())} tokens left, {outside} draws outside, p {p:.3f}")
        good = good and outside == 0 and p > 0.001 and int(counts.sum()) == DRAWS
    return good


def main():
    trireme, driver = sys.argv[1:3]
    torch.manual_seed(4)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        good = [check_greedy(trireme, work, kind) for kind in ("qwen3", "qwen3_moe", "llama")] + [check_sampling(driver)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
