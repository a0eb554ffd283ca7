#!/usr/bin/env python3
"""Compares the continuation of `trireme generate` with that of transformers for the same prompt
and the exported directory.

usage: prompt_ids.py TRIREME

Random models (Llama and Qwen3 shape) with tokenizers of several families are imported and
exported. For each prompt, the greedy continuation by `generate --prompts F --json` must have the
ids that AutoTokenizer and the model of the export give. Another prompt, for example with one
more BOS, gives another continuation. Exits with 1 and prints all differences.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

NEW_TOKENS = 8
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PROMPTS = ["Once upon a time", " leading blank", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "12345 67", "caf\u00e9 e\u0301 \u4f60\u597d", "\n\n", "I'M DON'T we'll"]
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
ROLES = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(single):
    return processors.TemplateProcessing(single=single, special_tokens=[(name, i) for i, name in enumerate(SPECIAL)])


def cases():
    """(name, shape, normalizer, pre-tokenizer, post-processor, tokenizer_config.json or None)"""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES}
    bos = template("<|im_start|> $A")
    yield "minimind", "qwen3", None, byte_level, None, {**fast, "add_bos_token": False}
    yield "bos asked for, not in the file", "llama", None, byte_level, None, {**fast, "add_bos_token": True, "add_eos_token": True}
    yield "llama3", "llama", None, split(LLAMA3), processors.Sequence([processors.ByteLevel(trim_offsets=False), bos]), fast
    yield "llama3, bos refused", "qwen3", None, split(LLAMA3), bos, {**fast, "add_bos_token": False}
    yield "qwen2", "qwen3", normalizers.NFC(), split(QWEN2), processors.ByteLevel(trim_offsets=False), {**ROLES, "tokenizer_class": "Qwen2Tokenizer", "bos_token": None}
    yield "roberta", "llama", None, pre_tokenizers.ByteLevel(add_prefix_space=True), processors.RobertaProcessing((SPECIAL[2], 2), (SPECIAL[1], 1)), fast
    yield "no class", "qwen3", None, byte_level, bos, ROLES
    yield "tokenizer.json alone", "qwen3", None, byte_level, bos, None
    yield "LlamaTokenizer", "llama", None, split(LLAMA3), bos, {**ROLES, "tokenizer_class": "LlamaTokenizer"}


def make_tokenizer(folder, normalizer, pre_tokenizer, post_processor, config):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([" ".join(PROMPTS[:2]) * 3, "there was a time when we'll say I'M here 123 123 45 \u4f60\u597d\n\n"], trainer)
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    if config is not None:
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
    return tokenizer.get_vocab_size()


def make_model(folder, shape, vocab_size):
    sizes = {"vocab_size": vocab_size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "intermediate_size": 48, "max_position_embeddings": 128, "head_dim": 16, "initializer_range": 0.5, "tie_word_embeddings": False}
    model = LlamaForCausalLM(LlamaConfig(**sizes)) if shape == "llama" else Qwen3ForCausalLM(Qwen3Config(**sizes))
    model.save_pretrained(folder)


def call(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE).stdout.decode()


def check(trireme, work, prompts, name, shape, *parts):
    hf, run, exported = (os.path.join(work, f"{name}-{kind}") for kind in ("hf", "run", "exported"))
    os.makedirs(hf)
    make_model(hf, shape, make_tokenizer(hf, *parts))
    call(trireme, "import", "--hf", hf, "--output", run)
    call(trireme, "export", "--checkpoint", run, "--output", exported)
    lines = call(trireme, "generate", "--checkpoint", run, "--prompts", prompts, "--json", "--max-tokens", NEW_TOKENS, "--temperature", 0,
                 "--device", "cpu", "--precision", "fp32")
    tokenizer = AutoTokenizer.from_pretrained(exported, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, trust_remote_code=False).eval()
    wrong = 0
    for index, (prompt, line) in enumerate(zip(PROMPTS, map(json.loads, lines.splitlines()), strict=True)):
        ids = torch.tensor([tokenizer(prompt).input_ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS)[0, ids.shape[1]:].tolist()
        theirs = out[:out.index(2)] if 2 in out else out
        same = line["index"] == index and line["ids"] == theirs and line["text"] == tokenizer.decode(theirs, skip_special_tokens=True)
        if not same:
            wrong += 1
            print(f"  DIFFERENT: {name}: {prompt!r} = {ids.tolist()[0]}: ours {line}, theirs {theirs}")
    print(f"{name} ({type(tokenizer).__name__}, {shape}): {len(PROMPTS) - wrong} of {len(PROMPTS)} continuations equal")
    return wrong == 0


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        prompts = os.path.join(work, "prompts.jsonl")
        with open(prompts, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
        good = [check(sys.argv[1], work, prompts, *case) for case in cases()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
