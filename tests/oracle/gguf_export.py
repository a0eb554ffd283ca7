#!/usr/bin/env python3
"""Compares exported GGUF files with transformers, and with llama.cpp that loads them.

usage: gguf_export.py TRIREME

transformers makes tiny random models with tokenizers of several kinds (CASES), and `trireme export
--format gguf` exports them:
- every tensor equals that of transformers: in f32, f16 and bf16 exactly, in q8_0 as the package
gguf quantizes it;
- llama.cpp continues prompts of token ids in f32 with the same greedy ids as `trireme generate`,
with log-probabilities within 1e-3;
- llama.cpp gives the ids of the package tokenizers for random texts, also with tokenizers of
SentencePiece;
- the chat template, the ids of special tokens and the types of tokens are those of the directory.

Exits with 1 and prints all differences.
"""
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import sentencepiece
import torch
import transformers
import xllamacpp
from prompt_ids import LLAMA3, QWEN2, ROLES, SPECIAL, make_tokenizer, split, template
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import generate_merges

NEW, BOUND = 16, 1e-3
PADDED = 3  # the case with rows of the embedding that have no token
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "initializer_range": 0.2}
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES])
BOS = template("<|im_start|> $A")
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SPACE = "\u2581"
PREPEND = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
GEMMA_SPLIT = pre_tokenizers.Split(" ", "merged_with_previous")
PIECES = "default"  # the name of the pre-tokenizer of SentencePiece tokenizers
# Configuration class, its values, architecture of llama.cpp, name of the pre-tokenizer, pre-tokenizer, normalizer, post-processor, ignore_merges
CASES = [
    ("Llama", {"tie_word_embeddings": False}, "llama", "gpt-2", BYTES, None, None, False),
    ("Llama", {"attention_bias": True, "mlp_bias": True, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}, "llama", "smollm", DIGITS, None, BOS, False),
    ("Llama", {"head_dim": 24, "rope_scaling": LLAMA3_ROPE}, "llama", "llama-bpe", split(LLAMA3), None, BOS, True),
    ("Qwen2", {"tie_word_embeddings": True}, "qwen2", "qwen2", split(QWEN2), normalizers.NFC(), None, False),
    ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}, "qwen3", "dbrx", split(LLAMA3), None, None, False),
    ("Qwen3Moe", {"head_dim": 16, "mlp_only_layers": [], **EXPERTS}, "qwen3moe", "qwen35", split(QWEN35), None, None, False),
    ("Mixtral", {"num_local_experts": 4, "sliding_window": None}, "llama", "gpt-2", BYTES, None, None, False),
    ("Gemma3Text", {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "rope_theta": 1e6}, "gemma3", PIECES, GEMMA_SPLIT, normalizers.Replace(" ", SPACE), BOS, False),
    ("Llama", {}, "llama", PIECES, None, PREPEND, BOS, False),
]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
# Names of Hugging Face modules in a GGUF file. Gemma 3 has other norms.
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


class Differences:
    def __init__(self):
        self.compared, self.found = 0, 0

    def equal(self, what, got, want):
        self.compared += 1
        if got != want:
            self.found += 1
            print(f"{what}: {str(got)[:300]}, expected {str(want)[:300]}")


def make_piece_tokenizer(folder, normalizer, pre_tokenizer, post_processor):
    """Trains a SentencePiece-BPE model and converts it as transformers converts published ones."""
    rng = random.Random(1)
    words = ["once", "upon", "a", "time", "there", "was", "banana", "when", "we'll", "don't", "12", "345", "caf\u00e9", "\u4f60\u597d", "_x", "..."]
    texts = [" ".join(rng.choices(words, k=12)) for _ in range(200)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=420, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, unk_piece=SPECIAL[0], bos_piece=SPECIAL[1], eos_piece=SPECIAL[2], pad_id=-1, minloglevel=2,
        user_defined_symbols=[] if normalizer is PREPEND else ["\n\n", "<table>", *(SPACE * n for n in range(2, 6))], hard_vocab_limit=False)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.vocab_size())}
    scores = {piece: pieces.get_score(i) for piece, i in vocab.items()}
    merges = generate_merges(vocab, scores, SPECIAL)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=SPECIAL[0], fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    strip = [decoders.Strip(" ", 1, 0)] if normalizer is PREPEND else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in SPECIAL])
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in vocab if normalizer is not PREPEND and (piece in ("\n\n", "<table>") or piece[:2] == 2 * SPACE)])
    tokenizer.post_processor = post_processor
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **ROLES, "chat_template": TEMPLATE}, file)
    return tokenizer.get_vocab_size()


def token_type(token, added, pre):
    """Returns the type of a token in llama.cpp."""
    if pre == PIECES and token == SPECIAL[0]:
        return 2
    if token in added and (added[token].special or SPACE not in token):
        return 3 if added[token].special else 4
    return 6 if pre == PIECES and token.startswith("<0x") else 1


def make_folder(work, padding, pre, name, values, pre_tokenizer, normalizer, post_processor, ignore_merges):
    folder = os.path.join(work, "model")
    os.makedirs(folder)
    if pre == PIECES:
        size = make_piece_tokenizer(folder, normalizer, pre_tokenizer, post_processor)
    else:
        size = make_tokenizer(folder, normalizer, pre_tokenizer, post_processor, {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES, "chat_template": TEMPLATE})
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokenizer["model"]["ignore_merges"] = ignore_merges
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, "vocab_size": size + padding, "pad_token_id": None, "bos_token_id": None, "eos_token_id": 2, **values})
    model = getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:  # random norms and biases; norms of Gemma have to be exact as 1 + w
                parameter.copy_((0.2 * torch.randn_like(parameter) + (0.0 if key.endswith("bias") or "Gemma" in name else 1.0)).mul(1024).round() / 1024)
            else:
                parameter.copy_(0.2 * torch.randn_like(parameter))
            if "embed_tokens" in key or "lm_head" in key:
                parameter[size:] = parameter[:3] = 0  # unused ids and special tokens are never the most likely ones
    model.save_pretrained(folder)
    return folder, model


def neighbours(tensor, heads):
    """Returns the rows of queries or keys in the order of a file that rotates neighbours."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def wanted_tensors(model, arch):
    """Returns the tensors of the file by name, in f32."""
    config, found = model.config, {}
    for name, tensor in model.state_dict().items():
        if arch == "gemma3" and tensor.dim() == 1:
            tensor = tensor + 1
        parts = name.split(".")
        if not name.startswith("model.layers."):
            found[{"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]] = tensor
            continue
        layer, module, kind = parts[2], ".".join(parts[3:-1]), parts[-1]
        if kind == "gate_up_proj":
            for part, rows in zip(("gate", "up"), tensor.chunk(2, dim=1)):
                found[f"blk.{layer}.ffn_{part}_exps.weight"] = rows
        elif kind == "down_proj":
            found[f"blk.{layer}.ffn_down_exps.weight"] = tensor
        elif module in ("mlp.gate", "block_sparse_moe.gate"):
            found[f"blk.{layer}.ffn_gate_inp.weight"] = tensor
        else:
            if arch == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
                tensor = neighbours(tensor, config.num_attention_heads if module[10] == "q" else config.num_key_value_heads)
            found[f"blk.{layer}.{(GEMMA if arch == 'gemma3' else NAMES)[module]}.{kind}"] = tensor
    if config.tie_word_embeddings:
        found.pop("output.weight", None)
    return {name: tensor.contiguous().numpy() for name, tensor in found.items()}


def check_tensors(differences, reader, wanted, dtype, case):
    kinds = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}
    found = {tensor.name: tensor for tensor in reader.tensors if tensor.name != "rope_freqs.weight"}
    differences.equal(f"{case}: names of tensors", sorted(found), sorted(wanted))
    for name in found.keys() & wanted.keys():
        tensor, want = found[name], wanted[name]
        narrow = want.ndim < 2 or name.endswith("ffn_gate_inp.weight")
        kind = "f32" if narrow else "f16" if dtype == "q8_0" and want.shape[-1] % 32 else dtype
        differences.equal(f"{case}: type of {name}", int(tensor.tensor_type), kinds[kind])
        differences.equal(f"{case}: shape of {name}", [int(size) for size in reversed(tensor.shape)], list(want.shape))
        data = gguf.quants.quantize(want, gguf.GGMLQuantizationType(kinds[kind]))
        differences.equal(f"{case}: {kind} bytes of {name}", np.ascontiguousarray(tensor.data).tobytes() == data.tobytes(), True)


def value(reader, key):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def check_metadata(differences, reader, folder, padding, arch, pre, post_processor, case):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokens, types = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    size = tokenizer.get_vocab_size()
    differences.equal(f"{case}: architecture", value(reader, "general.architecture"), arch)
    differences.equal(f"{case}: pre-tokenizer", value(reader, "tokenizer.ggml.pre"), pre)
    differences.equal(f"{case}: template", value(reader, "tokenizer.chat_template"), TEMPLATE)
    differences.equal(f"{case}: tokens", tokens[:size], [tokenizer.id_to_token(i) for i in range(size)])
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    differences.equal(f"{case}: types", types, [token_type(token, added, pre) for token in tokens[:size]] + [5] * padding)
    differences.equal(f"{case}: padding", len(set(tokens)), size + padding)
    for role, token in (("bos", 1), ("eos", 2), ("padding", 0)):
        differences.equal(f"{case}: {role}", value(reader, f"tokenizer.ggml.{role}_token_id"), token)
    differences.equal(f"{case}: add_bos", value(reader, "tokenizer.ggml.add_bos_token"), post_processor is not None)


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


def check_llama_cpp(differences, trireme, work, folder, path, pre, normalizer, case):
    rng = random.Random(len(case))
    size = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).get_vocab_size()
    prompts = [[rng.randrange(size) for _ in range(length)] for length in (3, 11, 30)]
    file = os.path.join(work, "prompts.jsonl")
    with open(file, "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    lines = subprocess.run([trireme, "generate", "--checkpoint", folder, "--prompts", file, "--json", "--max-tokens", str(NEW), "--temperature", "0",
                            "--ignore-eos", "--device", "cpu"], check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    llama = LlamaCpp(path)
    worst, num_logprobs = 0.0, 0
    for prompt, line in zip(prompts, map(json.loads, lines), strict=True):
        differences.equal(f"{case}: greedy ids", llama.greedy(prompt, NEW)[0], line["ids"])
        for i in range(0, NEW, 3):
            _, logprobs = llama.greedy(prompt + line["ids"][:i], 1)
            worst = max([worst, *(abs(logprob - line["logprobs"][i]) for logprob in logprobs)])
            num_logprobs += len(logprobs)
    differences.equal(f"{case}: enough log-probabilities", num_logprobs >= 5, True)
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    for _ in range(150):
        text = random_text(rng)
        if pre == PIECES or normalizer is None or normalizer.normalize_str(text) == text:  # llama.cpp does not normalize
            differences.equal(f"{case}: ids of {text!r}", llama.ids(text), tokenizer.encode(text).ids)
    return worst


def main():
    trireme = sys.argv[1]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    differences = Differences()
    for number, (name, values, arch, pre, pre_tokenizer, normalizer, post_processor, ignore_merges) in enumerate(CASES):
        torch.manual_seed(number)
        case = f"{name} {number}"
        with tempfile.TemporaryDirectory() as work:
            padding = 5 if number == PADDED else 0
            folder, model = make_folder(work, padding, pre, name, values, pre_tokenizer, normalizer, post_processor, ignore_merges)
            wanted = wanted_tensors(model, arch)
            for dtype in ("f32", ("f16", "bf16", "q8_0")[number % 3]):
                out = os.path.join(work, dtype)
                subprocess.run([trireme, "export", "--checkpoint", folder, "--output", out, "--format", "gguf", "--dtype", dtype], check=True,
                               stdout=subprocess.DEVNULL)
                check_tensors(differences, gguf.GGUFReader(f"{out}/model.gguf"), wanted, dtype, case)
            path = f"{work}/f32/model.gguf"
            check_metadata(differences, gguf.GGUFReader(path), folder, padding, arch, pre, post_processor, case)
            worst = check_llama_cpp(differences, trireme, work, folder, path, pre, normalizer, case)
            # Trireme gives unused ids no probability; llama.cpp does.
            differences.equal(f"{case}: log-probabilities within {BOUND} (differ by {worst:.1e})", worst < BOUND or padding > 0, True)
        print(f"{case}: {arch}, {pre}, log-probabilities within {worst:.1e}", flush=True)
    print(f"{differences.compared} compared, {differences.found} different")
    return 1 if differences.found else 0


if __name__ == "__main__":
    assert SPECIAL == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    sys.exit(main())
