#!/usr/bin/env python3
"""Imports weights of other programs with `trireme import`: logits equal those of the other
program.

usage: imports.py minimind|peft TRIREME TRIREME_DATA LOGITS_DRIVER

- minimind: MiniMind V2's arithmetic in plain PyTorch (complex-number RoPE, names wq, w1, ...),
saved by torch.save in fp32, fp16 and bf16 and as safetensors, tied and not, and with experts;
also V2.1's names (rotate-half), as transformers' Llama.
- peft: adapters that peft has made and saved (plain, rsLoRA, all-linear) are imported, and
exported both merged and as a PEFT directory, which peft loads again.

The largest difference of logits is below 1e-4. Exits with 1 and prints all differences.
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

BOUND = 1e-4
DIM, LAYERS, HEADS, KV_HEADS, VOCAB = 64, 3, 4, 2, 600
SHAPE = {"hidden_size": DIM, "num_layers": LAYERS, "num_heads": HEADS, "num_kv_heads": KV_HEADS, "max_seq_len": 128}


def call(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE).stdout.decode()


def make_tokenizer(trireme_data, work):
    corpus, tokenizer = (os.path.join(work, name) for name in ("corpus.jsonl", "tokenizer"))
    call(trireme_data, "synth", "--output", corpus, "--documents", 500)
    call(trireme_data, "tokenizer", "train", "--input", corpus, "--vocab-size", VOCAB, "--output", tokenizer)
    return tokenizer


def our_logits(driver, work, run, tokens):
    tokens_file, logits_file = (os.path.join(work, name) for name in ("tokens.safetensors", "logits.safetensors"))
    save_file({"tokens": tokens}, tokens_file)
    if os.path.exists(logits_file):
        os.remove(logits_file)
    call(driver, run, tokens_file, logits_file)
    return load_file(logits_file)["logits"]


def report(name, ours, theirs):
    difference = float((ours.float() - theirs.float()).abs().max())
    good = difference < BOUND
    print(f"{name}: max |logit difference| {difference:.2e} of logits to {float(theirs.abs().max()):.1f}{'' if good else '  OUT OF BOUNDS'}")
    return good


# ---- MiniMind V2, written anew from its formulas

EXPERTS, PER_TOKEN = 4, 2  # and one shared expert, like V2


def v2_weights(tied, experts=False):
    generator = torch.Generator().manual_seed(3)
    width = 64 * ((int(8 * DIM / 3) + 63) // 64)
    head = DIM // HEADS

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * (2.0 / columns) ** 0.5

    state = {"tok_embeddings.weight": matrix(VOCAB, DIM)}
    for i in range(LAYERS):
        names = {"attention.wq": (DIM, DIM), "attention.wk": (KV_HEADS * head, DIM), "attention.wv": (KV_HEADS * head, DIM),
                 "attention.wo": (DIM, DIM)}
        mlps = [f"feed_forward.experts.{e}" for e in range(EXPERTS)] + ["feed_forward.shared_experts"] if experts else ["feed_forward"]
        for mlp in mlps:
            names |= {f"{mlp}.w1": (width, DIM), f"{mlp}.w2": (DIM, width), f"{mlp}.w3": (width, DIM)}
        if experts:
            names["feed_forward.gate"] = (EXPERTS, DIM)
        state |= {f"layers.{i}.{name}.weight": matrix(*shape) for name, shape in names.items()}
        state |= {f"layers.{i}.{name}.weight": 1 + 0.1 * torch.randn(DIM, generator=generator) for name in ("attention_norm", "ffn_norm")}
    state["norm.weight"] = 1 + 0.1 * torch.randn(DIM, generator=generator)
    state["output.weight"] = state["tok_embeddings.weight"] if tied else matrix(VOCAB, DIM)
    return state


def v2_mlp(layer, h):
    def mlp(name):
        gate = F.silu(h @ layer[f"feed_forward.{name}w1.weight"].T) * (h @ layer[f"feed_forward.{name}w3.weight"].T)
        return gate @ layer[f"feed_forward.{name}w2.weight"].T

    if "feed_forward.gate.weight" not in layer:
        return mlp("")
    scores = (h @ layer["feed_forward.gate.weight"].T).softmax(-1)
    weights, chosen = scores.topk(PER_TOKEN, dim=-1)
    gates = torch.zeros_like(scores).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
    return mlp("shared_experts.") + sum(gates[..., e:e + 1] * mlp(f"experts.{e}.") for e in range(EXPERTS))


def v2_logits(state, tokens):
    head = DIM // HEADS

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight

    angles = torch.outer(torch.arange(tokens.shape[1]).double(), 1e6 ** (-torch.arange(0, head, 2).double() / head))
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None, :]  # e^(i phi)

    def rotate(x):
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).float()

    rows, length = tokens.shape
    x = state["tok_embeddings.weight"][tokens]
    for i in range(LAYERS):
        layer = {name.removeprefix(f"layers.{i}."): value for name, value in state.items() if name.startswith(f"layers.{i}.")}
        h = norm(x, layer["attention_norm.weight"])
        q, k, v = ((h @ layer[f"attention.w{one}.weight"].T).view(rows, length, -1, head) for one in "qkv")
        q, k = rotate(q), rotate(k)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=2) for one in (k, v))
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + out.transpose(1, 2).reshape(rows, length, DIM) @ layer["attention.wo.weight"].T
        x = x + v2_mlp(layer, norm(x, layer["ffn_norm.weight"]))
    return norm(x, state["norm.weight"]) @ state["output.weight"].T


def import_minimind(trireme, work, name, tokenizer, preset="minimind-2-small"):
    run = os.path.join(work, name + ".run")
    keys = [word for key, value in SHAPE.items() for word in (f"--model.{key}", value)]
    call(trireme, "import", "--minimind", os.path.join(work, name), "--model.preset", preset, *keys, "--tokenizer", tokenizer,
         "--output", run)
    return run


def check_minimind(trireme, trireme_data, driver, work):
    tokenizer, good = make_tokenizer(trireme_data, work), []
    tokens = torch.randint(0, VOCAB, (2, 40), generator=torch.Generator().manual_seed(1))
    for tied in (True, False):
        whole = v2_weights(tied)
        for kind, dtype in (("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)):
            state = {key: value.to(dtype) for key, value in whole.items()}
            if tied:
                state["output.weight"] = state["tok_embeddings.weight"]
            name = f"v2-{tied}-{kind}.pth"
            torch.save(torch.nn.Module.state_dict(Holder(state)) if kind == "f32" else state, os.path.join(work, name))
            theirs = v2_logits({key: value.float() for key, value in state.items()}, tokens)
            good.append(report(name, our_logits(driver, work, import_minimind(trireme, work, name, tokenizer), tokens), theirs))
        name = f"v2-{tied}.safetensors"
        save_file({key: value.clone() for key, value in whole.items()}, os.path.join(work, name))
        good.append(report(name, our_logits(driver, work, import_minimind(trireme, work, name, tokenizer), tokens), v2_logits(whole, tokens)))
    whole, name = v2_weights(tied=True, experts=True), "v2-moe.pth"
    torch.save(whole, os.path.join(work, name))
    good.append(report(name, our_logits(driver, work, import_minimind(trireme, work, name, tokenizer, "minimind-2-moe"), tokens), v2_logits(whole, tokens)))
    return good + check_llama_names(trireme, driver, work, tokenizer, tokens)


class Holder(torch.nn.Module):
    """Makes state_dict() an ordered dict with metadata, like trainers save it."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination.update(self.state)


def check_llama_names(trireme, driver, work, tokenizer, tokens):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=192, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         num_key_value_heads=KV_HEADS, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=1e6, tie_word_embeddings=True)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 1e6}
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (parameter.dim() == 1))
        torch.save(model.state_dict(), os.path.join(work, "v2.1.pth"))
        run = import_minimind(trireme, work, "v2.1.pth", tokenizer)
        return [report("v2.1.pth", our_logits(driver, work, run, tokens), model(tokens).logits)]


# ---- adapters

def check_peft(trireme, trireme_data, driver, work):
    from transformers import LlamaConfig, Starcoder2Config
    shape = {"vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": 192, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
             "num_key_value_heads": KV_HEADS, "max_position_embeddings": 128, "tie_word_embeddings": False}
    tokenizer, every = make_tokenizer(trireme_data, work), {"target_modules": "all-linear", "r": 8, "lora_alpha": 16, "use_rslora": True}
    programs = (trireme, driver, work, tokenizer)
    return (check_adapters(*programs, "llama", LlamaConfig(**shape), {"qv": {"target_modules": ["q_proj", "v_proj"], "r": 4, "lora_alpha": 9}, "all": every})
            + check_adapters(*programs, "starcoder2", Starcoder2Config(**shape), {"all": every, "mlp": {"target_modules": ["c_fc"], "r": 4, "lora_alpha": 9}}))


def check_adapters(trireme, driver, work, tokenizer, family, config, cases):
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM
    good = []
    tokens = torch.randint(0, VOCAB, (2, 40), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(7)
    plain = AutoModelForCausalLM.from_config(config)
    for parameter in plain.parameters():
        parameter.data.copy_(torch.randn_like(parameter) * 0.1 + (parameter.dim() == 1))
    start, base = os.path.join(work, f"{family}.start"), os.path.join(work, f"{family}.base")
    plain.save_pretrained(start)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with open(os.path.join(tokenizer, name), "rb") as source, open(os.path.join(start, name), "wb") as target:
            target.write(source.read())
    call(trireme, "import", "--hf", start, "--output", base)

    def fresh():
        return AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)

    for case, options in cases.items():
        name = f"{family} {case}"
        theirs, run, merged, ours = (os.path.join(work, f"{name}.{part}") for part in ("peft", "run", "hf", "ours"))
        model = get_peft_model(fresh(), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **options)).eval()
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.data.copy_(torch.randn_like(parameter) * 0.2)
        with torch.no_grad():
            wanted = model(tokens).logits
        model.save_pretrained(theirs)
        call(trireme, "import", "--peft", theirs, "--base", base, "--output", run)
        call(trireme, "export", "--checkpoint", run, "--output", merged)
        call(trireme, "export", "--checkpoint", run, "--adapter", "--output", ours)
        before, after = (load_file(os.path.join(folder, "adapter_model.safetensors")) for folder in (theirs, ours))
        same = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
        print(f"peft {name}: {len(before)} tensors {'equal' if same else 'DIFFERENT'} in the folder that goes out")
        with torch.no_grad():
            again = PeftModel.from_pretrained(fresh(), ours).eval()(tokens).logits
            exported = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)(tokens).logits
            far = float((wanted - fresh()(tokens).logits).abs().max())
        again_run = os.path.join(work, f"{name}.again")
        call(trireme, "import", "--hf", merged, "--output", again_run)
        good += [same, far > 0.1, report(f"peft {name}, our folder loaded by peft", again, wanted),
                 report(f"peft {name}, merged", exported, wanted),
                 report(f"peft {name}, merged, our model", our_logits(driver, work, again_run, tokens), wanted)]
    return good


def main():
    which, trireme, trireme_data, driver = sys.argv[1:5]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        good = {"minimind": check_minimind, "peft": check_peft}[which](trireme, trireme_data, driver, work)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
