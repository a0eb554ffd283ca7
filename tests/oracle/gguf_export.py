#!/usr/bin/env python3
"""Compares exported GGUF files with transformers, and with llama.cpp that loads them.

usage: gguf_export.py TRIREME [more]

transformers makes tiny random models with tokenizers of several kinds (gguf_models.py: CASES, or
MORE with the second argument), and `trireme export --format gguf` exports them:
- every tensor equals that of transformers: in f32, f16 and bf16 exactly, in q8_0 as the package
gguf quantizes it;
- llama.cpp continues prompts of token ids in f32 with the same greedy ids as transformers, and the
most likely tokens have the same log-probabilities. llama.cpp computes GELU from a table in f16, so a
model with GELU is also compared with one that has this table. In another type, the log-probabilities
only have to be close;
- llama.cpp gives the ids of the package tokenizers for random texts, also with tokenizers of
SentencePiece;
- the chat template, the ids of special tokens and the types of tokens are those of the directory.

Exits with 1 and prints all differences.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import torch
import transformers
import xllamacpp
from gguf_models import CASES, MORE, PIECES, SPACE, SPECIAL, TEMPLATE, make_model, use_table_gelu, wanted_tensors
from tokenizers import Tokenizer

NEW = 16
# Bounds of differences of log-probabilities, and the largest differences that were measured.
BOUND = 1e-4  # f32: 3e-5
TABLE_BOUND = 3e-3  # f32, with the table of GELU: 1e-3, where a rounding error selects the next value of the table
GELU_BOUND = 1e-2  # f32, between GELU and its table: 6e-3
OTHER_BOUND = 1.0  # other types: 0.6


class Differences:
    def __init__(self):
        self.compared, self.found = 0, 0

    def equal(self, what, got, want):
        self.compared += 1
        if got != want:
            self.found += 1
            print(f"{what}: {str(got)[:300]}, expected {str(want)[:300]}")


def token_type(token, added, pre):
    """Returns the type of a token in llama.cpp."""
    if pre == PIECES and token == SPECIAL[0]:
        return 2
    if token in added and (added[token].special or SPACE not in token):
        return 3 if added[token].special else 4
    return 6 if pre == PIECES and token.startswith("<0x") else 1


def check_tensors(differences, reader, wanted, dtype, case):
    kinds = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}
    found = {tensor.name: tensor for tensor in reader.tensors if tensor.name != "rope_freqs.weight"}
    differences.equal(f"{case}: names of tensors", sorted(found), sorted(wanted))
    for name in found.keys() & wanted.keys():
        tensor, want = found[name], wanted[name]
        narrow = want.ndim < 2 or name.endswith(("ffn_gate_inp.weight", "position_embd.weight"))
        kind = "f32" if narrow else "f16" if dtype == "q8_0" and want.shape[-1] % 32 else dtype
        differences.equal(f"{case}: type of {name}", int(tensor.tensor_type), kinds[kind])
        differences.equal(f"{case}: shape of {name}", [int(size) for size in reversed(tensor.shape)], list(want.shape))
        data = gguf.quants.quantize(want, gguf.GGMLQuantizationType(kinds[kind]))
        differences.equal(f"{case}: {kind} bytes of {name}", np.ascontiguousarray(tensor.data).tobytes() == data.tobytes(), True)


def value(reader, key):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def check_metadata(differences, reader, folder, model, case):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokens, types = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    size = tokenizer.get_vocab_size()
    differences.equal(f"{case}: architecture", value(reader, "general.architecture"), model.arch)
    differences.equal(f"{case}: pre-tokenizer", value(reader, "tokenizer.ggml.pre"), model.tokens.pre)
    differences.equal(f"{case}: template", value(reader, "tokenizer.chat_template"), TEMPLATE)
    differences.equal(f"{case}: tokens", tokens[:size], [tokenizer.id_to_token(i) for i in range(size)])
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    differences.equal(f"{case}: types", types, [token_type(token, added, model.tokens.pre) for token in tokens[:size]] + [5] * model.padding)
    differences.equal(f"{case}: padding", len(set(tokens)), size + model.padding)
    for role, token in (("bos", 1), ("eos", 2), ("padding", 0)):
        differences.equal(f"{case}: {role}", value(reader, f"tokenizer.ggml.{role}_token_id"), token)
    differences.equal(f"{case}: add_bos", value(reader, "tokenizer.ggml.add_bos_token"), model.tokens.post_processor is not None)
    for key, wanted in model.keys.items():
        differences.equal(f"{case}: {key}", value(reader, key), wanted)


class LlamaCpp:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port = 256, 1, 0, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.warmup, params.verbosity = False, -1
        self.server = xllamacpp.Server(params)

    def post(self, path, body):
        request = urllib.request.Request(f"{self.server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def ids(self, text):
        return self.post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"]

    def complete(self, ids, count):
        return self.post("/completion", {"prompt": ids, "n_predict": count, "temperature": 0, "n_probs": 8, "return_tokens": True, "ignore_eos": True,
                                         "cache_prompt": False})

    def log_probabilities(self, ids):
        """Returns the log-probabilities of the most likely tokens; none if the first one ends inside a character."""
        found = self.complete(ids, 1).get("completion_probabilities", [])
        return {one["id"]: one["logprob"] for one in (found[0]["top_logprobs"] if found else [])}


def random_text(rng):
    parts = [" ", "  ", "\n", "\n\n", "\t", "a", "time", " when", "I'M", "don't", "12", "345", "6", "\u4f60\u597d", "caf\u00e9", "e\u0301", "!", "...", "\u00bd", "\U0001f600",
             "<|im_start|>", "<|im_end|>", "_x", "\r\n", "\u0e01\u0e33", "     ", "banana", " once", "<table>"]
    return "".join(rng.choice(parts) for _ in range(rng.randrange(1, 14)))


def greedy(model, prompt):
    """Returns the greedy ids in transformers."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(NEW):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt):]


def log_probabilities(model, prompt, ids):
    """Returns the log-probabilities of all tokens before each of the ids: [NEW, vocabulary]."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([prompt + ids]), use_cache=False).logits[0, len(prompt) - 1:-1].double(), -1)


def check_logits(differences, llama, wanted, step, bounds, case):
    """Compares the log-probabilities of the most likely tokens with those of each reference. Returns the largest differences."""
    worst, count = [0.0] * len(bounds), 0
    for prompt, ids, references in wanted:
        for i in range(0, NEW, step):
            for token, found in llama.log_probabilities(prompt + ids[:i]).items():
                count += 1
                worst = [max(old, abs(found - float(reference[i, token]))) for old, reference in zip(worst, references)]
    differences.equal(f"{case}: enough log-probabilities", count >= 8, True)
    for bound, value_found in zip(bounds, worst):
        differences.equal(f"{case}: log-probabilities within {bound} (differ by {value_found:.1e})", value_found < bound, True)
    return " ".join(f"{one:.1e}" for one in worst)


def check_texts(differences, llama, folder, tokens, case):
    rng = random.Random(len(case))
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    for _ in range(150):
        text = random_text(rng)
        if tokens.pre == PIECES or tokens.normalizer is None or tokens.normalizer.normalize_str(text) == text:  # llama.cpp does not normalize
            differences.equal(f"{case}: ids of {text!r}", llama.ids(text), tokenizer.encode(text).ids)


def check_case(differences, trireme, number, case, with_texts):
    name = f"{case.name} {number}"
    rng = random.Random(number)
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "model")
        os.makedirs(folder)
        model = make_model(folder, case)
        tensors = wanted_tensors(model, case)
        size = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).get_vocab_size()
        prompts = [[rng.randrange(size) for _ in range(length)] for length in case.prompts]
        greedy_ids = [greedy(model, prompt) for prompt in prompts]
        references = [[log_probabilities(model, *one)] for one in zip(prompts, greedy_ids)]
        has_gelu = use_table_gelu(model)
        for one, reference in zip(zip(prompts, greedy_ids), references):
            reference.append(log_probabilities(model, *one))
        wanted = list(zip(prompts, greedy_ids, references))
        exact_bounds = (GELU_BOUND, TABLE_BOUND) if has_gelu else (BOUND, BOUND)
        worst = []
        for dtype in ("f32", ("f16", "bf16", "q8_0")[number % 3]):
            out = os.path.join(work, dtype)
            subprocess.run([trireme, "export", "--checkpoint", folder, "--output", out, "--format", "gguf", "--dtype", dtype], check=True,
                           stdout=subprocess.DEVNULL)
            path, is_exact = f"{out}/model.gguf", dtype == "f32"
            check_tensors(differences, gguf.GGUFReader(path), tensors, dtype, f"{name} {dtype}")
            llama = LlamaCpp(path)
            bounds = exact_bounds if is_exact else (OTHER_BOUND,)
            worst.append(f"{dtype} {check_logits(differences, llama, wanted, 3 if is_exact else 5, bounds, f'{name} {dtype}')}")
            if is_exact:
                for prompt, ids in zip(prompts, greedy_ids):
                    differences.equal(f"{name}: greedy ids", llama.complete(prompt, NEW)["tokens"], ids)
                check_metadata(differences, gguf.GGUFReader(path), folder, case, name)
            if is_exact and with_texts:
                check_texts(differences, llama, folder, case.tokens, name)
    print(f"{name}: {case.arch}, {case.tokens.pre}, log-probabilities within {', '.join(worst)}", flush=True)


def main():
    trireme, more = sys.argv[1], sys.argv[2:] == ["more"]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    differences = Differences()
    tokenizers = []
    for number, case in enumerate(MORE if more else CASES):
        torch.manual_seed(number)
        check_case(differences, trireme, number, case, with_texts=case.tokens not in tokenizers)
        tokenizers.append(case.tokens)
    print(f"{differences.compared} compared, {differences.found} different")
    return 1 if differences.found else 0


if __name__ == "__main__":
    assert SPECIAL == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    sys.exit(main())
