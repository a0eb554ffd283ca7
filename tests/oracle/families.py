#!/usr/bin/env python3
"""Compares every supported model family with transformers, in and out.

usage: families.py HF_EXPORT_DRIVER FAMILY_DRIVER

transformers makes tiny random models of each family in several configurations (CASES). Each one is
imported and exported again:
- fp32 logits of the import differ from those of transformers by less than 1e-5;
- gradients of the mean cross entropy differ by less than 1e-8 in fp64;
- greedy texts of the engine, which caches keys and values, equal those of transformers without a
cache;
- the export has the same architecture, tensors and logits, also in bf16 from several files.

Exits with 1 and prints all differences.
"""
import contextlib
import copy
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from loaded_program import call

NEW = 12
SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
WINDOW = 7  # shorter than the prompts
FACTORS = {"short_factor": [1.0 + 0.05 * i for i in range(4)], "long_factor": [1.0 + i for i in range(4)]}
FACTORS_OF_6_PAIRS = {"short_factor": [1.0 + 0.05 * i for i in range(6)], "long_factor": [1.0 + i for i in range(6)]}
CASES = {
    "Qwen2": [{"tie_word_embeddings": True}, {"num_key_value_heads": 4},
              {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
              {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}],
    "Qwen3": [{"attention_bias": True, "head_dim": 12}, {"head_dim": 8, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0}],
    "Llama": [{"attention_bias": True}, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, {"mlp_bias": True, "hidden_act": "gelu_pytorch_tanh"},
              {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}, {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
              {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
              {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
              {"max_position_embeddings": 256, "rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 64, **FACTORS}}],
    "Mistral": [{"sliding_window": WINDOW}, {"sliding_window": 4096}, {"sliding_window": WINDOW, "tie_word_embeddings": True, "head_dim": 12}],
    "Mixtral": [{"num_local_experts": 4}, {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": WINDOW, "tie_word_embeddings": True}],
    "Phi3": [{}, {"sliding_window": WINDOW, "tie_word_embeddings": True}, {"hidden_size": 64, "partial_rotary_factor": 0.75},
             {"hidden_size": 64, "partial_rotary_factor": 0.75, "max_position_embeddings": 2048, "original_max_position_embeddings": 64,
              "rope_scaling": {"rope_type": "longrope", **FACTORS_OF_6_PAIRS}}],
    "SmolLM3": [{"num_hidden_layers": 4}, {"no_rope_layers": [1, 1, 1], "tie_word_embeddings": False},
                {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": WINDOW, "attention_bias": True, "mlp_bias": True}],
    "Olmo2": [{}, {"attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 4}, {"num_key_value_heads": 1, "head_dim": 12}],
    "Gemma2": [{"head_dim": 8, "sliding_window": WINDOW, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0},
               {"head_dim": 12, "sliding_window": WINDOW, "attention_bias": True, "query_pre_attn_scalar": 20, "tie_word_embeddings": False,
                "attn_logit_softcapping": None, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
               {"head_dim": 8, "sliding_window": 64, "final_logit_softcapping": None, "num_key_value_heads": 4}],
    "Gemma3Text": [{"head_dim": 8, "sliding_window": WINDOW, "sliding_window_pattern": 2},
                   {"head_dim": 12, "sliding_window": WINDOW, "attention_bias": True, "query_pre_attn_scalar": 20, "tie_word_embeddings": False,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
                   {"head_dim": 8, "sliding_window": 64}],
    "Gemma": [{"head_dim": 8}, {"head_dim": 12, "attention_bias": True, "num_key_value_heads": 1, "tie_word_embeddings": False, "hidden_act": "gelu"}],
    "Starcoder2": [{"sliding_window": WINDOW}, {"use_bias": False, "tie_word_embeddings": False, "num_key_value_heads": 1}],
    "StableLm": [{"hidden_size": 64, "use_qkv_bias": True}, {"partial_rotary_factor": 0.5, "tie_word_embeddings": True, "num_key_value_heads": 4}],
    "GPT2": [{}, {"n_inner": 48, "tie_word_embeddings": False, "activation_function": "gelu", "scale_attn_weights": False}],
    "GPTNeoX": [{"rotary_pct": 0.5}, {"use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True, "rotary_pct": 1.0},
                {"hidden_size": 64, "hidden_act": "gelu_new", "rotary_emb_base": 500, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}],
}
# Sizes of families that have other keys.
OWN_SIZES = {"GPT2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0},
             "GPTNeoX": {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}}
for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"):
    OWN_SIZES["GPT2"][key] = SIZES[key]
# Parts of names in files and in a checkpoint.
OTHER_NAMES = [("transformer.wte.", "model.embed_tokens."), ("transformer.wpe.", "model.embed_positions."), ("transformer.h.", "model.layers."),
               ("transformer.ln_f.", "model.norm."), (".ln_1.", ".input_layernorm."), (".ln_2.", ".post_attention_layernorm."),
               (".attn.c_proj.", ".self_attn.o_proj."), (".mlp.c_fc.", ".mlp.up_proj."), (".mlp.c_proj.", ".mlp.down_proj."),
               ("gpt_neox.embed_in.", "model.embed_tokens."), ("gpt_neox.layers.", "model.layers."), ("gpt_neox.final_layer_norm.", "model.norm."),
               ("embed_out.", "lm_head."), (".attention.dense.", ".self_attn.o_proj."), (".mlp.dense_h_to_4h.", ".mlp.up_proj."),
               (".mlp.dense_4h_to_h.", ".mlp.down_proj.")]
# Names of Gemma and OLMo 2 that mean something else in a checkpoint, in the order of replacement.
OUTPUT_NORMS = [("post_attention_layernorm", "attention_output_norm"), ("pre_feedforward_layernorm", "post_attention_layernorm"),
               ("post_feedforward_layernorm", "mlp_output_norm")]


@contextlib.contextmanager
def everything_in_double():
    """Makes transformers compute in fp64 where its code names fp32 (norms, softmax, frequencies)."""
    single, method = torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float = torch.float32 = single
        torch.Tensor.float = method
        torch.set_default_dtype(single)


def gradients_in_double(model, tokens):
    """Returns the mean cross entropy and the model in fp64 with its gradients."""
    with everything_in_double():
        config = copy.deepcopy(model.config)
        config._attn_implementation = config._experts_implementation = "eager"
        wide = type(model)(config).eval()
        weights = dict(model.named_parameters())
        with torch.no_grad():
            for name, parameter in wide.named_parameters():
                parameter.copy_(weights[name])
        loss = F.cross_entropy(wide(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
    return float(loss.detach()), wide


def make_model(name, values):
    config = getattr(transformers, f"{name}Config")(**copy.deepcopy({**OWN_SIZES.get(name, SIZES), **values}))  # transformers changes dicts
    config._attn_implementation = config._experts_implementation = "eager"
    causal = getattr(transformers, "GPT2LMHeadModel" if name == "GPT2" else f"{name.removesuffix('Text')}ForCausalLM")
    model = causal(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            is_norm = parameter.dim() == 1 and not key.endswith("bias")
            parameter.copy_(torch.randn_like(parameter) * (0.72 / config.hidden_size) ** 0.5 + (1.0 if is_norm and "Gemma" not in name else 0.0))
            if is_norm:  # a checkpoint has Gemma's norms as 1 + w, which has to be exact in fp32
                parameter.copy_((parameter * 1024).round() / 1024)
    return model


def rows_of_checkpoint(tensor, head_dim, rotated):
    """Returns the rows of queries or keys in the order of a checkpoint, which rotates element i
    with i + head_dim / 2."""
    first = list(range(rotated // 2)) + list(range(rotated, rotated + (head_dim - rotated) // 2))
    order = first + [i for i in range(head_dim) if i not in first]
    return tensor.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def fused_gradients(name, grad, config, head_dim):
    """Returns the gradients of queries, keys and values of GPT-2 and GPT-NeoX by their names."""
    if "c_attn" in name:
        parts, rotated = grad.chunk(3), head_dim
    else:
        parts = [grad.unflatten(0, (-1, 3, head_dim))[:, part].flatten(0, 1) for part in range(3)]
        rotated = int(head_dim * config.rope_parameters["partial_rotary_factor"])
    for part, rows in zip("qkv", parts):
        key = name.replace("attn.c_attn", f"self_attn.{part}_proj").replace("attention.query_key_value", f"self_attn.{part}_proj")
        yield key, rows if part == "v" else rows_of_checkpoint(rows, head_dim, rotated)


def checkpoint_gradients(model):
    """Returns the gradients of the model by their names in a checkpoint."""
    config, found = model.config, {}
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    names = " ".join(dict(model.named_parameters()))
    queries, keys = config.num_attention_heads * head_dim, getattr(config, "num_key_value_heads", config.num_attention_heads) * head_dim
    for name, parameter in model.named_parameters():
        grad = parameter.grad
        for theirs, ours in OUTPUT_NORMS if "post_feedforward_layernorm" in names else []:
            if theirs in name:
                name = name.replace(theirs, ours)
                break
        if name.startswith("transformer.h.") and ".c_" in name and grad.dim() == 2:  # Conv1D
            grad = grad.t()
        for theirs, ours in OTHER_NAMES:
            name = name.replace(theirs, ours)
        if "c_attn" in name or "query_key_value" in name:
            found.update(fused_gradients(name, grad, config, head_dim))
        elif "qkv_proj" in name:
            for part, rows in zip("qkv", grad.split([queries, keys, keys])):
                rotated = int(head_dim * config.rope_parameters["partial_rotary_factor"])
                found[name.replace("qkv_proj", f"{part}_proj")] = rows if part == "v" else rows_of_checkpoint(rows, head_dim, rotated)
        elif ("q_proj" in name or "k_proj" in name) and config.rope_parameters.get("partial_rotary_factor", 1) != 1:
            found[name] = rows_of_checkpoint(grad, head_dim, int(head_dim * config.rope_parameters["partial_rotary_factor"]))
        elif "gate_up_proj.weight" in name:
            for part, rows in zip(("gate", "up"), grad.chunk(2)):
                found[name.replace("gate_up_proj", f"{part}_proj")] = rows
        else:
            found[name] = grad
    return found


def greedy_uncached(model, tokens):
    for _ in range(NEW):
        tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return tokens[:, -NEW:]


def check(name, values, drivers, work):
    torch.manual_seed(len(str(values)))
    hf_driver, family_driver = drivers
    model = make_model(name, values)
    written = os.path.join(work, "model")
    back, out, tokens_file = f"{written}-back", f"{written}.safetensors", f"{written}-tokens.safetensors"
    model.save_pretrained(written)
    tokens = torch.randint(0, SIZES["vocab_size"], (2, 40))
    save_file({"tokens": tokens}, tokens_file)
    subprocess.run([hf_driver, "import", written, back], check=True, stderr=subprocess.DEVNULL)
    call([family_driver, f"{back}.run", tokens_file, out, NEW])
    ours = load_file(out)

    problems = []
    with torch.no_grad():
        logits, greedy = model(tokens).logits, greedy_uncached(model, tokens)
        again = AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32, attn_implementation="eager").eval()
        exported = float((again(tokens).logits - logits).abs().max())
    difference = float((ours["logits"] - logits).abs().max())
    if not difference < 1e-5:
        problems.append(f"logits differ by {difference:.2e}")
    if not torch.equal(ours["greedy"], greedy):
        problems.append(f"greedy tokens {ours['greedy'].tolist()}, transformers {greedy.tolist()}")
    if type(again) is not type(model) or not exported < 1e-5:
        problems.append(f"the export is {type(again).__name__}, its logits differ by {exported:.2e}")
    state = again.state_dict()
    for key, value in model.state_dict().items():
        if not torch.equal(state[key], value):
            problems.append(f"{key} of the export differs")

    loss, wide = gradients_in_double(model, tokens)
    wanted = checkpoint_gradients(wide)
    found = {key.removeprefix("grad/"): value for key, value in ours.items() if key.startswith("grad/")}
    if found.keys() != wanted.keys():
        problems.append(f"parameters differ: {sorted(found.keys() ^ wanted.keys())}")
    worst = max((float((found[key].flatten() - wanted[key].flatten()).abs().max()), key) for key in found.keys() & wanted.keys())
    if not worst[0] < 1e-8 or not abs(float(ours["loss"]) - loss) < 1e-8:
        problems.append(f"gradients differ by {worst[0]:.2e} ({worst[1]}), losses by {float(ours['loss']) - loss:.2e}")
    print(f"{name} {values}: logits {difference:.1e} of {float(logits.abs().max()):.1f}, gradients {worst[0]:.1e} of "
          f"{max(float(g.abs().max()) for g in wanted.values()):.1e}, export {exported:.1e}", flush=True)
    for problem in problems:
        print(f"  OUT OF BOUNDS: {problem}")
    return not problems


def check_narrow(name, values, drivers, work):
    """Checks that bf16 weights in several files come back with the same bits."""
    torch.manual_seed(5)
    model = make_model(name, values).to(torch.bfloat16)
    written = os.path.join(work, "narrow")
    model.save_pretrained(written, max_shard_size="20KB")
    subprocess.run([drivers[0], "import", written, f"{written}-back", "bf16"], check=True, stderr=subprocess.DEVNULL)
    before, after = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).state_dict() for folder in (written, f"{written}-back"))
    wrong = [key for key in before if not torch.equal(before[key], after[key])]
    print(f"{name} in bf16: {len(before) - len(wrong)} of {len(before)} tensors equal{'  OUT OF BOUNDS: ' + str(wrong) if wrong else ''}", flush=True)
    return not wrong


def main():
    drivers = sys.argv[1:3]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    good = []
    for name, cases in CASES.items():
        for values in cases:
            with tempfile.TemporaryDirectory() as work:
                good.append(check(name, values, drivers, work))
        with tempfile.TemporaryDirectory() as work:
            good.append(check_narrow(name, cases[-1], drivers, work))
    print(f"{sum(good)} of {len(good)} cases are equal")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
