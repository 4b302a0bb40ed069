"""MMaDA: Gen-Verse/MMaDA-8B-Base and -MixCoT, text only (arXiv 2505.15809)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from engine.models.base import ModelInfo
from engine.models.llada import FIELDS, LLADA, LladaAdapter
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.config import integer_field
from engine.models.loading.layout import Layout

FIRST_IMAGE_ID = 126_349  # code 0 of the image tokenizer; LLaDA's text tokens end before it
PARTS = ("llm_vocab_size", "codebook_size", "num_new_special_tokens")


class MmadaAdapter(LladaAdapter):
    """LLaDA with a vocabulary that also holds the codes of images.

    Images are neither read nor written: their ids are never proposed. Confidences are computed in
    float64, as in the authors' generate.py.
    """

    family = "mmada"
    layouts: ClassVar[tuple[Layout, ...]] = (LLADA,)
    # Of the authors' scripts: unlike LLaDA's, one line break after a header.
    template = (
        "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
        "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n' }}"
        "{{ message.content | trim + '<|eot_id|>' }}{% endfor %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n' }}"
    )

    @classmethod
    def read_info(cls, config: Mapping[str, Any], stop_ids: tuple[int, ...] = ()) -> ModelInfo:
        """See PretrainedAdapter.read_info; checks that the parts of the vocabulary add up."""
        foreign = tuple(name for name in FIELDS.foreign if name != PARTS[0])
        info = replace(FIELDS, foreign=foreign).read(config, cls.family, stop_ids)
        cls.embedding_rows(config, info)
        counts = {name: integer_field(config, name, 0) for name in PARTS}
        whole = config.get("new_vocab_size", info.vocab_size)
        if not sum(counts.values()) == whole == info.vocab_size:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise CheckpointError(
                f"config.json: vocab_size is {info.vocab_size} and new_vocab_size {whole!r}, but "
                f"{told} add up to {sum(counts.values())}; copy config.json again"
            )
        text = min(counts["llm_vocab_size"], FIRST_IMAGE_ID)
        if info.mask_id >= text:
            raise CheckpointError(
                f"config.json: mask_token_id is {info.mask_id}, an image code; text ends at "
                f"{text - 1}"
            )
        return replace(info, text_size=text, double_confidence=True)
