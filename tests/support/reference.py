"""A reference forward: unfused weights, complex rotation, plain softmax."""

import math

import torch


def reference_logits(model, canvas, pad_mask=None) -> torch.Tensor:
    """Logits [B, T, V] of a canvas [B, T]."""
    return reference_lens(model, reference_hidden(model, canvas, pad_mask)[-1])


def reference_lens(model, x) -> torch.Tensor:
    """Logits [B, T, V] of hidden states [B, T, D]."""
    return norm(x, model.norm.weight) @ model.head.weight.T


def reference_hidden(model, canvas, pad_mask=None) -> list[torch.Tensor]:
    """The hidden states [B, T, D] after each layer."""
    info, x, found = model.info, model.embedding.weight[canvas], []
    for layer in range(info.layers):
        block = model.block(layer)
        x = x + _reference_attention(info, block, norm(x, block.attn_norm.weight), pad_mask)
        experts = info.experts_of(layer)
        feed_forward = reference_dense if experts is None else reference_experts
        x = x + feed_forward(block.feed_forward, norm(x, block.ff_norm.weight))
        found.append(x)
    return found


def reference_dense(network, x):
    return _gated(x, network.gate_up.weight, network.down.weight)


def _gated(x, gate_up, down):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up) @ down.T


def reference_experts(network, x):
    """A router and experts, row by row: every expert in order, then the shared one."""
    rows = [_reference_row(network, row) for row in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).view(x.shape)


def _reference_row(network, row):
    given, router = network.experts, network.router
    scores = router.weight @ row
    if given.router == "softmax":
        weights = scores.exp() / scores.exp().sum()
        chosen = set(sorted(range(given.count), key=lambda e: -weights[e])[: given.active])
    else:
        weights = 1 / (1 + (-scores).exp())
        ranks, size = weights + router.bias, given.count // given.groups
        groups = [list(range(g * size, (g + 1) * size)) for g in range(given.groups)]
        groups.sort(key=lambda group: -sum(sorted(float(ranks[e]) for e in group)[-2:]))
        open_ones = [e for group in groups[: given.active_groups] for e in group]
        chosen = set(sorted(open_ones, key=lambda e: -ranks[e])[: given.active])
        weights = weights * given.scale / sum(weights[e] for e in chosen)
    out = torch.zeros_like(row)
    for e in range(given.count):
        if e in chosen:
            gate_up, down = network.gate_up.weight[e], network.down.weight[e]
            out = out + weights[e] * _gated(row, gate_up, down)
    return out if network.shared is None else out + reference_dense(network.shared, row)


def norm(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _reference_attention(info, block, x, pad_mask):
    y = x @ block.qkv.weight.T + (0 if block.qkv.bias is None else block.qkv.bias)
    q, k, v = y.split([info.n_heads * info.head_dim, info.d_kv, info.d_kv], -1)
    q, k, v = (t.unflatten(-1, (-1, info.head_dim)).transpose(1, 2) for t in (q, k, v))
    if info.qk_norm:
        q, k = norm(q, block.q_norm.weight), norm(k, block.k_norm.weight)
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


def reference_rotation(x, rows=None):
    """Rotate [..., T, dh] by position, or by `rows`; pairs (j, j + dh / 2) are complex numbers."""
    rows, half = torch.arange(x.shape[-2]) if rows is None else rows, x.shape[-1] // 2
    angle = rows[..., None] * 1e4 ** (-torch.arange(half, dtype=x.dtype) / half)
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), -1)
