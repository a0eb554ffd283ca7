"""The transformer of src/model in plain PyTorch, for tests only: eager, one module per concept,
without fused kernels.

Covers Qwen3 (RMSNorm on each query and key head) and Llama shapes: RMSNorm, grouped-query
attention, rotary embedding in the rotate-half convention, gated MLP or a mixture of experts,
tied or separate output matrix. Parameter names are those of Hugging Face. Sources: Su et al.,
"RoFormer", 2021; Shazeer, "GLU variants", 2020; Zhang and Sennrich, "RMSNorm", 2019.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

IGNORE = -100


class RMSNorm(nn.Module):
    """The weight is cast to x (bf16 heads under autocast), so that the result stays in x's dtype."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rope_tables(length, head_dim, theta, dtype):
    """Returns cos and sin, each [length, head_dim] with equal halves; angles in fp64."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, cos, sin):
    """x [B, heads, T, D]; cos, sin [B, 1, T, D]: element i is rotated with element i + D/2."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c["num_heads"], c["num_kv_heads"], c["head_dim"]
        self.q_proj = nn.Linear(c["hidden_size"], self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(c["hidden_size"], self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, c["hidden_size"], bias=False)
        self.q_norm = RMSNorm(self.head_dim, c["norm_eps"]) if c["qk_norm"] else nn.Identity()
        self.k_norm = RMSNorm(self.head_dim, c["norm_eps"]) if c["qk_norm"] else nn.Identity()

    def forward(self, x, cos, sin, mask):
        B, T, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(B, T, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(B, T, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))


ACTIVATIONS = {"silu": F.silu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu2": lambda x: F.relu(x).square()}


class MLP(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        self.activation = ACTIVATIONS[c["activation"]]
        self.gate_proj = nn.Linear(c["hidden_size"], width, bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], width, bias=False)
        self.down_proj = nn.Linear(width, c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    """A token passes through the experts with its `num_experts_per_tok` largest softmax scores.
    `scores` and `chosen` [B, T, E] are from the last forward pass. Source: Fedus et al., "Switch
    Transformers", 2022."""

    def __init__(self, c):
        super().__init__()
        self.k, self.normalize = c["num_experts_per_tok"], c["norm_topk_prob"]
        self.gate = nn.Linear(c["hidden_size"], c["num_experts"], bias=False)
        self.experts = nn.ModuleList(MLP(c, c["moe_intermediate_size"]) for _ in range(c["num_experts"]))

    def forward(self, x):
        self.scores = self.gate(x).softmax(dim=-1)
        self.chosen = torch.zeros_like(self.scores).scatter(-1, self.scores.topk(self.k, dim=-1).indices, 1.0)
        gates = self.scores * self.chosen
        if self.normalize:
            gates = gates / gates.sum(dim=-1, keepdim=True)
        return sum(gates[..., i:i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Block(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["norm_eps"])
        experts = c.get("num_experts", 0) > 0 and index >= c["first_dense_layers"]
        self.mlp = MoE(c) if experts else MLP(c, c["intermediate_size"])

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c, i) for i in range(c["num_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["norm_eps"])


class Model(nn.Module):
    """`config`: model values of a run; `length`: the longest position; `dtype` of weights and
    tables."""

    def __init__(self, config, length, dtype):
        super().__init__()
        self.model = Body(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.to(dtype)
        # Positions are not rounded to 8 bits, like in every trainer.
        wide = torch.float32 if dtype == torch.bfloat16 else dtype
        cos, sin = rope_tables(length, config["head_dim"], config["rope_theta"], wide)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def load(self, weights):
        """Loads all parameters by name; none may be missing or unused."""
        own = dict(self.named_parameters())
        assert own.keys() == weights.keys(), f"parameters differ: {sorted(own.keys() ^ weights.keys())}"
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(weights[name])

    def forward(self, tokens, targets, positions, mask=None):
        """Returns the sum of -log p(target) over targets that are not IGNORE. tokens, targets,
        positions [B, T]; mask [B, 1, T, T] bool, or None if each row is one document."""
        x = self.model.embed_tokens(tokens)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        for layer in self.model.layers:
            x = layer(x, cos, sin, mask)
        logits = self.lm_head(self.model.norm(x)).flatten(0, 1)
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")


def segments_of(bounds, B, T):
    """Returns the segment number of each token [B, T], from the flat bounds 0 .. B*T."""
    lengths = bounds[1:] - bounds[:-1]
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths.long()).view(B, T)


def attention_mask(segments):
    """Returns the mask [B, 1, T, T], true if a query may see a key: same segment, not later.
    Returns None if every row is one segment."""
    if bool((segments == segments[:, :1]).all()):
        return None
    same = segments[:, :, None] == segments[:, None, :]
    return same.tril()[:, None]


def clip_gradients(grads, clip_norm):
    """Scales gradients in place to at most `clip_norm`. Returns the norm before."""
    norm = math.sqrt(sum(float(g.double().pow(2).sum()) for g in grads))
    if clip_norm > 0:
        for g in grads:
            g.mul_(min(1.0, clip_norm / (norm + 1e-6)))
    return norm
