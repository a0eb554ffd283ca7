#!/usr/bin/env python3
"""Compares exported GGUF files with transformers, and with llama.cpp that loads them.

usage: gguf_export.py TRIREME [more]

transformers makes tiny random models with tokenizers of several kinds (gguf_models.py: CASES, or
MORE with the second argument), and `trireme export --format gguf` exports them:
- every tensor equals that of transformers: in f32, f16 and bf16 exactly, in q8_0 as the package
gguf quantizes it;
- llama.cpp continues prompts of token ids in f32 with the same greedy ids as transformers, with
log-probabilities within the bound of the case. In another type, the log-probabilities differ by at
most 0.5;
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
from gguf_models import CASES, MORE, PIECES, SPACE, SPECIAL, TEMPLATE, make_model, wanted_tensors
from tokenizers import Tokenizer

NEW = 16
OTHER_BOUND = 0.5  # of differences of log-probabilities in a type with fewer bits


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

    def greedy(self, ids, count):
        """Returns the greedy ids and log-probabilities; the last token has none if it ends inside a character."""
        answer = self.post("/completion", {"prompt": ids, "n_predict": count, "temperature": 0, "n_probs": 1, "return_tokens": True, "ignore_eos": True,
                                           "cache_prompt": False})
        return answer["tokens"], [one["logprob"] for one in answer.get("completion_probabilities", [])]


def random_text(rng):
    parts = [" ", "  ", "\n", "\n\n", "\t", "a", "time", " when", "I'M", "don't", "12", "345", "6", "\u4f60\u597d", "caf\u00e9", "e\u0301", "!", "...", "\u00bd", "\U0001f600",
             "<|im_start|>", "<|im_end|>", "_x", "\r\n", "\u0e01\u0e33", "     ", "banana", " once", "<table>"]
    return "".join(rng.choice(parts) for _ in range(rng.randrange(1, 14)))


def greedy(model, prompt):
    """Returns the greedy ids and their log-probabilities in transformers."""
    ids, logprobs = list(prompt), []
    with torch.no_grad():
        for _ in range(NEW):
            scores = torch.log_softmax(model(torch.tensor([ids]), use_cache=False).logits[0, -1].double(), -1)
            ids.append(int(scores.argmax()))
            logprobs.append(float(scores.max()))
    return ids[len(prompt):], logprobs


def check_logits(differences, llama, wanted, bound, case):
    """Compares greedy ids if the bound is small, and log-probabilities. Returns the largest difference."""
    worst, count = 0.0, 0
    for prompt, (ids, logprobs) in wanted:
        if bound < OTHER_BOUND:
            differences.equal(f"{case}: greedy ids", llama.greedy(prompt, NEW)[0], ids)
        for i in range(0, NEW, 3 if bound < OTHER_BOUND else 8):
            chosen, found = llama.greedy(prompt + ids[:i], 1)
            if chosen == ids[i:i + 1]:  # otherwise, the probability is that of another token
                worst = max([worst, *(abs(logprob - logprobs[i]) for logprob in found)])
                count += len(found)
    differences.equal(f"{case}: enough log-probabilities", count >= 3, True)
    differences.equal(f"{case}: log-probabilities within {bound} (differ by {worst:.1e})", worst < bound, True)
    return worst


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
        wanted = [(prompt, greedy(model, prompt)) for prompt in prompts]
        worst = []
        for dtype, bound in (("f32", case.bound), (("f16", "bf16", "q8_0")[number % 3], OTHER_BOUND)):
            out = os.path.join(work, dtype)
            subprocess.run([trireme, "export", "--checkpoint", folder, "--output", out, "--format", "gguf", "--dtype", dtype], check=True,
                           stdout=subprocess.DEVNULL)
            path = f"{out}/model.gguf"
            check_tensors(differences, gguf.GGUFReader(path), tensors, dtype, f"{name} {dtype}")
            llama = LlamaCpp(path)
            worst.append(f"{dtype} {check_logits(differences, llama, wanted, bound, f'{name} {dtype}'):.1e}")
            if dtype == "f32":
                check_metadata(differences, gguf.GGUFReader(path), folder, case, name)
            if dtype == "f32" and with_texts:
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
