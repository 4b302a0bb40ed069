"""Keys that encode their position, token and step, to check what attention reads."""

import torch

from engine.core.rows import ALL
from engine.generate.loop import Denoiser, denoise
from tests.support.micro import MicroAdapter, make_model, make_prompts, micro_job

PROMPTS = make_prompts(6, 4)


class TaggedKeys(MicroAdapter):
    """Keys hold (position, token, step of writing); `seen` collects those that attention reads."""

    canvas, step = None, 0
    seen: list

    def project(self, layer, names, x, rows, length, heads=None):
        parts = list(super().project(layer, names, x, rows, length, heads))
        if "k" in names:
            at = torch.arange(length) if rows is ALL else rows
            at = torch.arange(length)[at] if isinstance(at, slice) else at
            at = at.expand(len(x), -1)
            k = parts[names.index("k")]
            k[..., 0], k[..., 2] = at[..., None], self.step
            k[..., 1] = self.canvas.gather(1, at)[..., None]
        return tuple(parts)

    def attend(self, layer, q, k, v, key_mask):
        self.seen.append((k[:, 0, :, :3].long(), key_mask))
        return super().attend(layer, q, k, v, key_mask)


def mismatches(spec, expected, shift=0, kv=4, policy=None) -> list[int]:
    """Steps whose attention read a key other than the last one written at its position.

    `expected(step, block, block_step, masked)` returns the rows written, [B, T] bool, and the
    right edges [B] of the keys; `masked` are the masks before each step so far.
    """
    model = make_model(21, shift, kv, cls=TaggedKeys)
    state = Denoiser(micro_job(model, spec, PROMPTS, policy=policy, eager=True))
    model.canvas, model.seen = state.canvas.clone(), []
    history, wrong = [torch.from_numpy(state.masked.copy())], []
    tags = torch.zeros(*state.canvas.shape, 3, dtype=torch.long)
    real = torch.ones_like(history[0]) if state.pad_mask is None else state.pad_mask
    for event in denoise(state):
        rows, edges = expected(event.step, event.block, event.block_step, history)
        now = torch.arange(tags.shape[1]).expand(len(tags), -1)
        now = torch.stack((now, model.canvas, torch.full_like(now, event.step)), -1)
        tags[rows] = now[rows]
        for shown, mask in model.seen:
            for b, edge in enumerate(edges):
                seen = shown[b] if mask is None else shown[b][mask[b]]
                if not torch.equal(seen, tags[b, :edge][real[b, :edge]]):
                    wrong.append(event.step)
        model.canvas, model.step, model.seen = state.canvas.clone(), event.step + 1, []
        history.append(torch.from_numpy(state.masked.copy()))
    return sorted(set(wrong))
