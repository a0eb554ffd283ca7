#!/usr/bin/env python3
"""Loads exported directories with Hugging Face transformers and compares every tensor; imports
models that transformers writes.

usage: hf_export_oracle.py DRIVER

- Mistral and scaled rotary frequencies: a model that transformers writes is imported and
exported again, with equal values.
- Each shape (qwen3, llama), tied or not, and dtype: all keys match, none is missing, unexpected
or re-initialised, and there is no remote code. Values equal the float32 export rounded by torch.
- The other direction: save_pretrained, also in several files, is imported and exported, equal
bit for bit.

Exits with 1 and prints all differences.
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CLASSES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}


def load(folder, dtype):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True, trust_remote_code=False)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(kind), f"{folder}: {kind}: {info[kind]}"
    return model.eval()


def check_export(driver, work, shape, tie, name, reference):
    folder = os.path.join(work, f"{shape}-{tie}-{name}")
    subprocess.run([driver, "export", folder, shape, tie, name], check=True)
    model = load(folder, DTYPES[name])
    assert type(model).__name__ == CLASSES[shape], type(model).__name__
    assert getattr(model.config, "rope_parameters", None) is None or model.config.rope_parameters["rope_theta"] == 50000.0
    assert hasattr(model.config, "rope_parameters") or model.config.rope_theta == 50000.0  # transformers 4
    assert model.config.tie_word_embeddings == (tie == "tied")
    assert next(model.parameters()).dtype == DTYPES[name]
    state = model.state_dict()
    stored = load_file(os.path.join(folder, "model.safetensors"))
    for key, value in stored.items():
        assert torch.equal(state[key], value), f"{folder}: {key} differs after loading"
        if reference is not None:
            assert torch.equal(value, reference[key].to(DTYPES[name])), f"{folder}: {key} is not rounded as torch does"
    logits = model(torch.arange(20).unsqueeze(0) % 96).logits
    assert torch.isfinite(logits).all()
    return folder, stored, logits


def check_import(driver, work, shape, tie, model, logits):
    for shard_size in ("5GB", "60KB"):
        written = os.path.join(work, f"hf-{shape}-{tie}-{shard_size}")
        model.save_pretrained(written, max_shard_size=shard_size)
        back = written + "-back"
        subprocess.run([driver, "import", written, back], check=True)
        again = load(back, torch.float32)
        for key, value in model.state_dict().items():
            assert torch.equal(again.state_dict()[key], value), f"{back}: {key} differs"
        assert torch.equal(again(torch.arange(20).unsqueeze(0) % 96).logits, logits), f"{back}: logits differ"


def check_mistral(driver, work):
    """Checks that a Mistral model of transformers is exported as Mistral, with the same tensors
    and logits."""
    torch.manual_seed(1)
    config = MistralConfig(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                           num_key_value_heads=2, max_position_embeddings=64, sliding_window=64)
    model = MistralForCausalLM(config).eval()
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        written = os.path.join(work, f"mistral-{name}")
        model.to(dtype).save_pretrained(written)
        back = written + "-back"
        subprocess.run([driver, "import", written, back, name], check=True)
        again = load(back, dtype)
        assert type(again).__name__ == "MistralForCausalLM" and again.config.sliding_window is None
        before, after = (load_file(os.path.join(folder, "model.safetensors")) for folder in (written, back))
        assert before.keys() == after.keys() and all(before[key].view(torch.uint8).equal(after[key].view(torch.uint8)) for key in before)
        tokens = torch.arange(60).unsqueeze(0) % 96
        # A window that covers everything takes another path of attention, so rounding differs.
        difference = float((again(tokens).logits - model(tokens).logits).abs().max())
        assert difference < (1e-5 if name == "f32" else 0.02), f"mistral {name}: logits differ by {difference}"
    print(f"mistral: {len(before)} tensors equal, imported and exported, f32 and bf16")


def frequencies_in_double(rope_type, config):
    narrow = torch.float, torch.float32
    torch.float = torch.float32 = torch.float64  # the keys that the formulas use
    try:
        return ROPE_INIT_FUNCTIONS[rope_type](config, "cpu")
    finally:
        torch.float, torch.float32 = narrow


def check_rope(driver, work):
    """Returns the frequencies of transformers, computed in fp64 from the config that
    transformers reads back."""
    cases = [{"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 2048, "attention_factor": 1.0},
             {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "beta_fast": 20.0, "beta_slow": 2.0},
             {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.7},
             {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "truncate": False},
             {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
             {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 256, "low_freq_factor": 2.0, "high_freq_factor": 3.0}]
    for i, scaling in enumerate(cases):
        for head_dim, theta in ((64, 1e6), (128, 5e5), (24, 1e4)):
            config = LlamaConfig(vocab_size=96, hidden_size=2 * head_dim, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                                 num_key_value_heads=1, max_position_embeddings=8192, rope_theta=theta, rope_scaling=dict(scaling))
            written = os.path.join(work, f"rope-{i}-{head_dim}")
            LlamaForCausalLM(config).save_pretrained(written)
            subprocess.run([driver, "import", written, written + "-back"], check=True)
            with open(os.path.join(written + "-back", "config.json"), encoding="utf-8") as file:
                ours = json.load(file)["rope_scaling"]
            text = ",".join([ours.pop("rope_type")] + [f"{key}={str(value).lower()}" for key, value in ours.items()])
            found = json.loads(subprocess.run([driver, "rope", str(head_dim), str(theta), text], check=True, stdout=subprocess.PIPE).stdout)
            got = torch.tensor(found["frequencies"], dtype=torch.float64)
            for folder in (written, written + "-back"):
                wanted, factor = frequencies_in_double(scaling["rope_type"], AutoConfig.from_pretrained(folder))
                assert torch.allclose(got, wanted, rtol=1e-14, atol=0), f"{text}: {((got - wanted) / wanted).abs().max()}"
                assert abs(found["attention_factor"] - factor) < 1e-15 * factor, f"{text}: {factor}"
    print(f"rope: {len(cases)} scalings equal in fp64")


def main():
    driver = sys.argv[1]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        check_mistral(driver, work)
        check_rope(driver, work)
        for shape, tie in itertools.product(CLASSES, ("tied", "untied")):
            folder, reference, logits = check_export(driver, work, shape, tie, "f32", None)
            for name in ("bf16", "f16"):
                check_export(driver, work, shape, tie, name, reference)
            check_import(driver, work, shape, tie, load(folder, torch.float32), logits)
            print(f"{shape} {tie}: {len(reference)} tensors equal, exported and imported")


if __name__ == "__main__":
    main()
