"""A reference forward: unfused weights, complex rotation, plain softmax."""

import math

import torch


def reference_logits(model, canvas, pad_mask=None) -> torch.Tensor:
    """Logits [B, T, V] of a canvas [B, T]."""
    return reference_lens(model, reference_hidden(model, canvas, pad_mask)[-1])


def reference_lens(model, x) -> torch.Tensor:
    """Logits [B, T, V] of hidden states [B, T, D]."""
    return _norm(x, model.norm.weight) @ model.head.weight.T


def reference_hidden(model, canvas, pad_mask=None) -> list[torch.Tensor]:
    """The hidden states [B, T, D] after each layer."""
    info, x, found = model.info, model.embedding.weight[canvas], []
    for layer in range(info.layers):
        block = model.block(layer)
        x = x + _reference_attention(info, block, _norm(x, block.attn_norm.weight), pad_mask)
        gate, up = (_norm(x, block.ff_norm.weight) @ block.gate_up.weight.T).split(info.ffn, -1)
        x = x + (gate * torch.sigmoid(gate) * up) @ block.down.weight.T
        found.append(x)
    return found


def _norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _reference_attention(info, block, x, pad_mask):
    y = x @ block.qkv.weight.T + (0 if block.qkv.bias is None else block.qkv.bias)
    q, k, v = y.split([info.n_heads * info.head_dim, info.d_kv, info.d_kv], -1)
    q, k, v = (t.unflatten(-1, (-1, info.head_dim)).transpose(1, 2) for t in (q, k, v))
    if info.qk_norm:
        q, k = _norm(q, block.q_norm.weight), _norm(k, block.k_norm.weight)
    q, k = (
        torch.cat((reference_rotation(t[..., : info.rotary_dim]), t[..., info.rotary_dim :]), -1)
        for t in (q, k)
    )
    k, v = (t.repeat_interleave(info.n_heads // info.n_kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(info.head_dim)
    if pad_mask is not None:
        scores = scores.masked_fill(~pad_mask[:, None, None], -torch.inf)
    if info.attention == "block_causal":
        blocks = torch.arange(x.shape[1]) // info.block_size
        scores = scores.masked_fill(blocks[:, None] < blocks, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ block.out.weight.T


def reference_rotation(x, theta=1e4):
    """Rotate [B, H, T, dh] by position; pairs (j, j + dh / 2) are complex numbers."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * theta ** (
        -torch.arange(half, dtype=x.dtype) / half
    )
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), -1)
