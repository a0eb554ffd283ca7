#!/usr/bin/env python3
"""Trains models with the options of nanochat and of modded-nanoGPT, once with the real Step and once in plain PyTorch, and compares.

usage: nanochat.py PARITY_DRIVER TRIREME_DATA

The model is written anew here, from the descriptions of the options: norms without weights, norm of the embedding, scaled queries and keys, residual
scalars, U-net skips, backout, smear, gated value embeddings, values of the first layer and the soft-cap of logits. The preset nanochat is trained with its own optimizer. Losses, norms, gradients of step 1 and weights after 5 updates are
compared like in parity.py, in fp64 with a bound of 1e-10, on one process and on layouts (CASES). Exits with 1 and prints every line that is out of bounds.
"""
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

import model as oracle
import parity

STEPS = 5
NANOCHAT = {"model.norm_gain": "false", "model.embed_norm": "true", "model.qk_scale": 1.2, "model.init": "uniform", "model.residual_scalars": "true",
            "model.smear": "true", "model.backout": "true", "model.value_embeddings": "alternate", "model.softcap": 15, "model.activation": "relu2",
            "model.num_layers": 4, "model.rope_theta": 1e5}
RECORD_11 = {"model.norm_gain": "false", "model.embed_norm": "true", "model.residual_scalars": "true", "model.skips": "true", "model.logit_softcap": 30,
             "model.activation": "relu2", "model.num_layers": 5, "model.rope_theta": 1e4, "model.value_residual": "true"}
WITH_GAIN = {"model.residual_scalars": "true", "model.skips": "true", "model.backout": "true", "model.smear": "true", "model.value_embeddings": "0,2"}
MUON = {**parity.MUON, "optim.name": "muon", "optim.value_lr": 3e-3, "optim.orthogonalize": "newton_schulz"}
# The preset itself, with small sizes. Momentum and weight decay change within the few updates.
PRESET = {"model.depth": 4, "model.num_layers": 4, "model.vocab_size": 512, "model.zero_projections": "false", "train.seq_len": 96, "optim.momentum_warmup": 2,
          "optim.decay_steps": 3, "optim.warmup_steps": 1, "optim.lr": 0.02, "optim.matrix_lr": 0.02, "optim.weight_decay": 0.5}
# The preset of record 11 with small sizes, and with its optimizers: Muon, and AdamW with own rates. Outputs and head are not zeros, so that all weights have gradients.
RECORD = {"model.init": "normal", "model.zero_projections": "false", "model.num_heads": 2, "model.num_kv_heads": 2, "model.num_layers": 6, "model.intermediate_size": 256,
          "model.vocab_size": 512, **parity.MUON, "optim.name": "muon", "optim.orthogonalize": "newton_schulz", "optim.head_lr": 8e-3, "optim.momentum_warmup": 3}
BASE = {"preset": "tiny", "tie": "false", "head_dim": 16, "data": "short"}


def case(name, keys, ranks=1, **base):
    return {"name": name, "ranks": ranks, "keys": keys, **BASE, **base}


CASES = [
    case("nanochat, depth 4", NANOCHAT),
    case("nanochat, depth 4, one document a row, muon", {**NANOCHAT, **MUON}, data="long"),
    case("record 11", RECORD_11),
    case("preset nanogpt-11", RECORD, preset="nanogpt-11", head_dim=32),
    case("preset nanogpt-11, tp 2 sp zero 1", {**RECORD, "parallel.tp": 2, "parallel.zero": 1, "parallel.sequence_parallel": "true"}, 2, preset="nanogpt-11", head_dim=32),
    case("preset nanochat", PRESET, preset="nanochat"),
    case("preset nanochat, tp 2 zero 1", {**PRESET, "parallel.tp": 2, "parallel.zero": 1}, 2, preset="nanochat"),
    case("with weights of norms, tied", WITH_GAIN, tie="true"),
    case("nanochat, tp 2 sp zero 3, full, muon", {**NANOCHAT, **MUON, "parallel.tp": 2, "parallel.sequence_parallel": "true", "parallel.zero": 3, "parallel.recompute": "full"}, 2),
    case("nanochat, cp 2, tied", {**NANOCHAT, "parallel.cp": 2}, 2, tie="true"),
    case("record 11, tp 2 cp 2, selective", {**RECORD_11, "parallel.tp": 2, "parallel.cp": 2, "parallel.recompute": "selective"}, 4),
]


class Scale(nn.Module):
    """RMSNorm with weights, or without."""

    def __init__(self, c, size):
        super().__init__()
        self.eps = c["norm_eps"]
        self.weight = nn.Parameter(torch.ones(size)) if c["norm_gain"] else None

    def forward(self, x):
        normed = x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return normed if self.weight is None else normed * self.weight


class Weight(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))


class Attention(nn.Module):
    def __init__(self, c, has_values, mixes_values):
        super().__init__()
        self.c, width = c, c["hidden_size"]
        self.q_proj = nn.Linear(width, c["num_heads"] * c["head_dim"], bias=False)
        self.k_proj = nn.Linear(width, c["num_kv_heads"] * c["head_dim"], bias=False)
        self.v_proj = nn.Linear(width, c["num_kv_heads"] * c["head_dim"], bias=False)
        self.o_proj = nn.Linear(c["num_heads"] * c["head_dim"], width, bias=False)
        self.q_norm, self.k_norm = Scale(c, c["head_dim"]), Scale(c, c["head_dim"])
        if has_values:
            self.value_embed = Weight((c["num_kv_heads"], c["vocab_size"], c["head_dim"]))
            self.value_gate = Weight((c["num_kv_heads"], min(12, width)))
        if mixes_values:
            self.value_scalar = nn.Parameter(torch.zeros(1))

    def forward(self, x, tokens, first_values, cos, sin, mask):
        """Returns the result and the values before they are mixed."""
        c, (B, T, _) = self.c, x.shape
        q = self.q_proj(x).view(B, T, c["num_heads"], c["head_dim"])
        k, v = (proj(x).view(B, T, c["num_kv_heads"], c["head_dim"]) for proj in (self.k_proj, self.v_proj))
        if hasattr(self, "value_embed"):
            gate = 3 * torch.sigmoid(x[..., :self.value_gate.weight.shape[1]] @ self.value_gate.weight.T)
            v = v + gate[..., None] * self.value_embed.weight[:, tokens].permute(1, 2, 0, 3)
        own = v
        if hasattr(self, "value_scalar"):
            v = (1 - self.value_scalar) * own + self.value_scalar * first_values
        q, k = (c["qk_scale"] * oracle.rotate(norm(y).transpose(1, 2), cos, sin) for norm, y in ((self.q_norm, q), (self.k_norm, k)))
        repeat = c["num_heads"] // c["num_kv_heads"]
        k, v = k.repeat_interleave(repeat, 1), v.transpose(1, 2).repeat_interleave(repeat, 1)
        seen = torch.ones(T, T, dtype=torch.bool).tril() if mask is None else mask
        scores = (q @ k.transpose(-2, -1) / c["head_dim"] ** 0.5).masked_fill(~seen, -torch.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1)), own


class PlainMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.activation = oracle.ACTIVATIONS[c["activation"]]
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(self.activation(self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        last, text = c["num_layers"] - 1, c["value_embeddings"]
        has_values = (last - layer) % 2 == 0 if text == "alternate" else str(layer) in text.split(",")
        self.input_layernorm = Scale(c, c["hidden_size"])
        self.self_attn = Attention(c, has_values, c["value_residual"] and layer > 0)
        self.post_attention_layernorm = Scale(c, c["hidden_size"])
        self.mlp = PlainMLP(c) if c["mlp"] == "plain" else oracle.MLP(c, c["intermediate_size"])
        if c["residual_scalars"]:
            self.residual_scalar, self.embedding_scalar = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        if c["skips"] and layer >= c["num_layers"] - c["num_layers"] // 2:
            self.skip_scalar = nn.Parameter(torch.ones(1))

    def forward(self, x, first, tokens, first_values, cos, sin, mask):
        if hasattr(self, "residual_scalar"):
            x = self.residual_scalar * x + self.embedding_scalar * first
        attention, values = self.self_attn(self.input_layernorm(x), tokens, first_values, cos, sin, mask)
        x = x + attention
        return x + self.mlp(self.post_attention_layernorm(x)), values


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c, i) for i in range(c["num_layers"]))
        self.norm = Scale(c, c["hidden_size"])
        if c["smear"]:
            self.smear_gate, self.smear_scalar = Weight((min(24, c["hidden_size"]),)), nn.Parameter(torch.zeros(1))
        if c["backout"]:
            self.backout_scalar = nn.Parameter(torch.zeros(1))


class Model(oracle.Model):
    def __init__(self, c, length, dtype):
        nn.Module.__init__(self)
        self.c, self.model = c, Body(c)
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c["tie_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.to(dtype)
        cos, sin = oracle.rope_tables(length, c["head_dim"], c["rope_theta"], dtype)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def embedded(self, tokens, positions):
        x = self.model.embed_tokens(tokens)
        if self.c["embed_norm"]:
            x = x / (x.square().mean(-1, keepdim=True) + self.c["norm_eps"]).sqrt()
        if not self.c["smear"]:
            return x
        weight = self.model.smear_gate.weight
        gate = self.model.smear_scalar * torch.sigmoid(x[..., :len(weight)] @ weight)
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        return x + torch.where(positions > 0, gate, 0)[..., None] * before

    def forward(self, tokens, targets, positions, mask=None):
        c, layers = self.c, self.model.layers
        x = first = self.embedded(tokens, positions)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        outputs, stack, first_values = [], [], None
        for i, layer in enumerate(layers):
            if hasattr(layer, "skip_scalar"):
                x = x + layer.skip_scalar * stack.pop()
            x, values = layer(x, first, tokens, first_values, cos, sin, mask)
            if first_values is None:
                first_values = values
            outputs.append(x)
            if i < len(layers) // 2:
                stack.append(x)
        if c["backout"]:
            x = x - self.model.backout_scalar * outputs[len(layers) // 2]
        logits = self.lm_head(self.model.norm(x)).flatten(0, 1)
        if c["logit_softcap"]:
            logits = c["logit_softcap"] * torch.tanh(logits / c["logit_softcap"])
        return F.cross_entropy(logits, targets.flatten(), ignore_index=oracle.IGNORE, reduction="sum")


def main():
    driver, trireme_data = sys.argv[1:3]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        parity.make_sets(trireme_data, work)
        good = [parity.compare(driver, work, one, "fp64", STEPS, Model) for one in CASES]
    print(f"nanochat over {STEPS} updates: {sum(good)} of {len(good)} within bounds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
