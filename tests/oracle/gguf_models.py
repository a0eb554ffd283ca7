"""Makes tiny random models with transformers for gguf_export.py, and the tensors that their GGUF files should have."""
import io
import json
import os
import random
from dataclasses import dataclass, field
from typing import Any

import gguf
import sentencepiece
import torch
import transformers
from prompt_ids import LLAMA3, QWEN2, ROLES, SPECIAL, make_tokenizer, split, template
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import generate_merges

SPACE = "\u2581"
PIECES = "default"  # the name of the pre-tokenizer of SentencePiece tokenizers
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 256}
GPT2_SIZES = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256}
EMBEDDINGS = ("embed_tokens", "lm_head", "wte", "embed_in", "embed_out")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer. `pre` is the name of its pre-tokenizer in llama.cpp."""
    pre: str
    pre_tokenizer: Any
    normalizer: Any = None
    post_processor: Any = None
    ignore_merges: bool = False


@dataclass(frozen=True)
class Case:
    """A model: configuration class of transformers without "Config", its values, architecture of llama.cpp."""
    name: str
    values: dict
    arch: str
    tokens: Tokens
    padding: int = 0  # rows of the embedding that have no token
    prompts: tuple = (3, 11, 30)  # numbers of tokens
    keys: dict = field(default_factory=dict)  # keys that the file must have


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES])
BOS = template("<|im_start|> $A")
PREPEND = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
GPT2 = Tokens("gpt-2", BYTES)
SMOLLM = Tokens("smollm", DIGITS, post_processor=BOS)
LLAMA_BPE = Tokens("llama-bpe", split(LLAMA3), post_processor=BOS, ignore_merges=True)
QWEN = Tokens("qwen2", split(QWEN2), normalizers.NFC())
DBRX = Tokens("dbrx", split(LLAMA3))
QWEN_35 = Tokens("qwen35", split(QWEN35))
GEMMA = Tokens(PIECES, pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", SPACE), BOS)
LLAMA2 = Tokens(PIECES, None, PREPEND, BOS)

LINEAR = {"rope_type": "linear", "factor": 3.0}
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 1.7, 2.4, 4.5], "original_max_position_embeddings": 16}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
GEMMA2_VALUES = {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}
GEMMA3_VALUES = {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "rope_theta": 1e6}
CASES = [
    Case("Llama", {"tie_word_embeddings": False}, "llama", GPT2),
    Case("Llama", {"attention_bias": True, "mlp_bias": True, "rope_scaling": LINEAR}, "llama", SMOLLM),
    Case("Llama", {"head_dim": 24, "rope_scaling": LLAMA3_ROPE}, "llama", LLAMA_BPE),
    Case("Mistral", {"sliding_window": 64}, "llama", LLAMA2, keys={"llama.context_length": 64}),
    Case("Mixtral", {"num_local_experts": 4, "sliding_window": None}, "llama", GPT2),
    Case("Qwen2", {"tie_word_embeddings": True}, "qwen2", QWEN, padding=5),
    Case("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}, "qwen3", DBRX),
    Case("Qwen3Moe", {"head_dim": 16, "mlp_only_layers": [], **EXPERTS}, "qwen3moe", QWEN_35),
    Case("SmolLM3", {"num_hidden_layers": 5}, "smollm3", DBRX),
    # The prompts are longer than the original context length, so transformers uses long_factor, as llama.cpp does for a longer context.
    Case("Phi3", {"partial_rotary_factor": 0.5, "rope_scaling": LONGROPE, "original_max_position_embeddings": 16}, "phi3", GPT2, prompts=(18, 22, 30),
         keys={"phi3.context_length": 256, "phi3.rope.scaling.original_context_length": 16, "phi3.rope.dimension_count": 8}),
    Case("Olmo2", {"tie_word_embeddings": False}, "olmo2", GPT2),
    Case("Gemma", {"head_dim": 24}, "gemma", GEMMA),
    Case("Gemma2", {"num_hidden_layers": 4, **GEMMA2_VALUES}, "gemma2", GPT2),
    Case("Gemma3Text", GEMMA3_VALUES, "gemma3", GPT2),
    Case("GPT2", {}, "gpt2", GPT2),
    Case("GPTNeoX", {"rotary_pct": 0.25, "hidden_act": "gelu_pytorch_tanh"}, "gptneox", GPT2),
    Case("Starcoder2", {}, "starcoder2", GPT2),
    Case("StableLm", {"partial_rotary_factor": 0.5, "use_qkv_bias": True}, "stablelm", GPT2),
]
# Further configurations of the same architectures.
MORE = [
    Case("Phi3", {"sliding_window": 64}, "phi3", GPT2, keys={"phi3.context_length": 64, "phi3.attention.sliding_window": 64}),
    Case("Gemma2", {"num_hidden_layers": 46, **GEMMA2_VALUES, "query_pre_attn_scalar": 16, "rope_scaling": LINEAR}, "gemma2", GEMMA),
    Case("Gemma3Text", {**GEMMA3_VALUES, "num_hidden_layers": 62, "query_pre_attn_scalar": 16}, "gemma3", GEMMA),
    Case("GPT2", {"tie_word_embeddings": False, "n_inner": 96}, "gpt2", GPT2),
    Case("GPTNeoX", {"rotary_pct": 1.0, "hidden_act": "gelu", "use_parallel_residual": False, "rope_scaling": LINEAR}, "gptneox", GPT2),
    Case("Starcoder2", {"tie_word_embeddings": False, "sliding_window": 64, "hidden_act": "gelu"}, "starcoder2", GPT2,
         keys={"starcoder2.context_length": 64}),
    Case("StableLm", {"partial_rotary_factor": 1.0}, "stablelm", GPT2),
    Case("SmolLM3", {"num_hidden_layers": 8, "tie_word_embeddings": False, "rope_scaling": LINEAR}, "smollm3", GPT2),
    Case("Olmo2", {"tie_word_embeddings": False, "rope_scaling": LINEAR}, "olmo2", GPT2),
    Case("Gemma", {"head_dim": 32, "rope_scaling": LINEAR}, "gemma", GPT2),
]


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


def make_tokens(folder, tokens):
    """Writes the files of the tokenizer. Returns the number of tokens."""
    if tokens.pre == PIECES:
        size = make_piece_tokenizer(folder, tokens.normalizer, tokens.pre_tokenizer, tokens.post_processor)
    else:
        size = make_tokenizer(folder, tokens.normalizer, tokens.pre_tokenizer, tokens.post_processor,
                              {"tokenizer_class": "PreTrainedTokenizerFast", **ROLES, "chat_template": TEMPLATE})
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokenizer["model"]["ignore_merges"] = tokens.ignore_merges
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)
    return size


def make_model(folder, case):
    """Writes a model with random weights to the directory. Returns the model."""
    size = make_tokens(folder, case.tokens)
    sizes = GPT2_SIZES if case.name == "GPT2" else SIZES if case.name == "GPTNeoX" else {**SIZES, "num_key_value_heads": 2}
    config = getattr(transformers, f"{case.name}Config")(**{**sizes, "vocab_size": size + case.padding, "pad_token_id": None, "bos_token_id": None,
                                                            "eos_token_id": 2, **case.values})
    config._attn_implementation = "eager"  # pylint: disable=protected-access  # other implementations have no soft-cap
    head = "LMHeadModel" if case.name == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{case.name.removesuffix('Text')}{head}")(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:  # random norms and biases; norms of Gemma have to be exact as 1 + w
                zero = key.endswith("bias") or "Gemma" in case.name
                parameter.copy_((0.2 * torch.randn_like(parameter) + (0.0 if zero else 1.0)).mul(1024).round() / 1024)
            else:
                parameter.copy_(0.2 * torch.randn_like(parameter))
            if any(part in key for part in EMBEDDINGS):
                parameter[size:] = parameter[:3] = 0  # unused ids and special tokens are never the most likely ones
    model.save_pretrained(folder)
    return model


class TableGelu(torch.nn.Module):
    """GELU as llama.cpp computes it: the approximation with tanh, from a table of all inputs in f16 with values in f16."""

    def forward(self, x):
        table = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x.abs() < 10, table, x.clamp(min=0))


def use_table_gelu(model):
    """Replaces GELU in the model. Returns False if the model has no GELU."""
    found = False
    for module in list(model.modules()):
        for name in ("act", "act_fn"):
            if "gelu" in type(getattr(module, name, None)).__name__.lower():
                setattr(module, name, TableGelu())
                found = True
    return found


def neighbours(tensor, heads):
    """Returns the rows of queries or keys in the order of a file that rotates neighbours."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def of_file(name, tensor, case, config):
    """Returns a tensor in the layout of the file."""
    kind = ".".join(name.split(".")[-2:])
    if "Gemma" in case.name and tensor.dim() == 1:
        return tensor + 1
    if case.name == "GPT2" and kind in ("c_attn.weight", "c_proj.weight", "c_fc.weight"):
        return tensor.T
    if case.name == "GPTNeoX" and "query_key_value" in name:  # from q, k, v of each head to all q, all k, all v
        return tensor.unflatten(0, (config.num_attention_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
    if case.arch in ("llama", "smollm3") and kind in ("q_proj.weight", "q_proj.bias"):
        return neighbours(tensor, config.num_attention_heads)
    if case.arch in ("llama", "smollm3") and kind in ("k_proj.weight", "k_proj.bias"):
        return neighbours(tensor, config.num_key_value_heads)
    return tensor


def wanted_tensors(model, case):
    """Returns the tensors of the file by name, in f32. The package gguf knows the names."""
    config, found = model.config, {}
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == case.arch)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        layer, kind = "".join(name.split(".")[2:3]), name.rsplit(".", 1)[-1]
        if kind == "gate_up_proj":
            for part, rows in zip(("gate", "up"), tensor.chunk(2, dim=1)):
                found[f"blk.{layer}.ffn_{part}_exps.weight"] = rows
        elif kind == "down_proj":
            found[f"blk.{layer}.ffn_down_exps.weight"] = tensor
        elif not (config.tie_word_embeddings and name in ("lm_head.weight", "embed_out.weight")):
            found[names.get_name(name, try_suffixes=(".weight", ".bias"))] = of_file(name, tensor, case, config)
    if case.values.get("rope_scaling") is LONGROPE:
        for kind in ("long", "short"):
            found[f"rope_factors_{kind}.weight"] = torch.tensor(LONGROPE[f"{kind}_factor"])
    return {name: tensor.contiguous().numpy() for name, tensor in found.items()}
