"""Random LoRA adapters for the oracle of post-training, as a directory and in a plain model."""
import json
import os

import torch
from safetensors.torch import save_file
from torch.nn import functional as F


class LoraLinear(torch.nn.Module):
    def __init__(self, base, a, b, scale):
        super().__init__()
        self.weight = base.weight.detach()
        self.a, self.b, self.scale = torch.nn.Parameter(a.double()), torch.nn.Parameter(b.double()), scale

    def forward(self, x):
        return F.linear(x, self.weight) + self.scale * F.linear(F.linear(x, self.a), self.b)


class Adapters:
    """Makes random adapters of all linears, as a directory for `trireme import --peft` and in a
    plain model."""

    RANK, ALPHA = 3, 6

    def __init__(self, net, folder):
        generator = torch.Generator().manual_seed(4)
        self.values = {}
        for name, module in net.named_modules():
            if name.startswith("model.layers.") and isinstance(module, torch.nn.Linear):
                rows, columns = module.weight.shape
                self.values[name] = (torch.randn(self.RANK, columns, generator=generator) / 8, torch.randn(rows, self.RANK, generator=generator) / 8)
        os.makedirs(folder)
        targets = sorted({name.rsplit(".", 1)[1] for name in self.values})
        config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": self.RANK, "lora_alpha": self.ALPHA, "lora_dropout": 0.0, "bias": "none",
                  "target_modules": targets, "use_rslora": False, "inference_mode": True, "base_model_name_or_path": ""}
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        save_file({f"base_model.model.{name}.lora_{half}.weight": value for name, pair in self.values.items() for half, value in zip("AB", pair)},
                  os.path.join(folder, "adapter_model.safetensors"))

    def put(self, net):
        for parameter in net.parameters():
            parameter.requires_grad_(False)
        for name, (a, b) in self.values.items():
            parent, last = name.rsplit(".", 1)
            setattr(net.get_submodule(parent), last, LoraLinear(net.get_submodule(name), a, b, self.ALPHA / self.RANK))
        return net
