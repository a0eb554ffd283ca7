#!/usr/bin/env python3
"""Loads exported folders with Hugging Face transformers and compares every tensor; imports what transformers writes.

usage: hf_export_oracle.py DRIVER

For each shape (qwen3, llama), tied or not, and dtype: all keys matched, none missing, unexpected or re-initialised, and
no remote code; values equal to the float32 export rounded by torch. Then the other way: save_pretrained, in several
files too, through our import and export, equal bit for bit. Exits 1 and prints what differs.
"""
import itertools
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

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
    assert model.config.rope_parameters["rope_theta"] == 50000.0
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


def main():
    driver = sys.argv[1]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work, torch.no_grad():
        for shape, tie in itertools.product(CLASSES, ("tied", "untied")):
            folder, reference, logits = check_export(driver, work, shape, tie, "f32", None)
            for name in ("bf16", "f16"):
                check_export(driver, work, shape, tie, name, reference)
            check_import(driver, work, shape, tie, load(folder, torch.float32), logits)
            print(f"{shape} {tie}: {len(reference)} tensors equal, exported and imported")


if __name__ == "__main__":
    main()
