"""RunGuider: a guider prepared for a run, and the checks that need no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from transformers import PretrainedConfig

from engine.config.spec import RunSpec
from engine.guider.model import Guider, GuiderReader, causal_info, find_stop_ids, read_config
from engine.guider.vocabularies import VocabularyPair, pair_vocabularies, same_prompt_tokens
from engine.models.base import ModelInfo
from engine.models.tokenizer import Tokenizer


class GuidedSettings(Protocol):
    """The knobs of guided decoding that decide how the guider reads a run."""

    prompt: str
    fallback: str


@dataclass(frozen=True)
class RunGuider:
    """A guider prepared for a run.

    `prompts` are the guider's ids of each sequence's prompt, and `open_reader` makes a reader for
    a sequence. `token_label` gives the bytes to show for a token, `token_bytes` its bytes in a
    text (empty for a special token). `description` is RunStarted.guider.
    """

    vocabularies: VocabularyPair
    prompts: tuple[tuple[int, ...], ...]
    open_reader: Callable[[], GuiderReader]
    token_label: Callable[[int], bytes]
    token_bytes: Callable[[int], bytes]
    description: Mapping[str, Any] = field(default_factory=dict)
    weight_bytes: int = 0

    def for_sequence(self, row: int) -> RunGuider:
        """The guider of one sequence of a batch."""
        return replace(self, prompts=self.prompts[row : row + 1])


@dataclass(frozen=True)
class GuiderMatch:
    """A drafting model and a guider, compared by tokenizer and config before weights are loaded."""

    model_tokenizer: Tokenizer
    tokenizer: Tokenizer
    config: PretrainedConfig
    vocabularies: VocabularyPair

    @classmethod
    def from_folder(cls, model_tokenizer: Tokenizer, info: ModelInfo, folder: Path) -> GuiderMatch:
        """Read a guider's folder and compare the vocabularies.

        Raises CheckpointError naming the file, or ValueError naming `guided.guider`.
        """
        tokenizer, config = Tokenizer(folder), read_config(folder)
        guider_stop_ids = find_stop_ids(tokenizer, config)
        causal_info(config, guider_stop_ids)  # raises if the layout is another one
        # A config may name only one of the stop tokens.
        stop_ids = tuple(dict.fromkeys((*info.stop_ids, *model_tokenizer.stop_ids)))
        vocabularies = pair_vocabularies(
            model_tokenizer, stop_ids, info.vocab_size,
            tokenizer, guider_stop_ids, config.vocab_size,
        )  # fmt: skip
        return cls(model_tokenizer, tokenizer, config, vocabularies)

    def check(self, settings: GuidedSettings) -> None:
        """Raise ValueError naming `guided.fallback` if the model lacks the guider's tokens."""
        if settings.fallback == "ar" and not self.vocabularies.shared:
            raise ValueError(
                "guided.fallback: ar commits a token of the guider, which the model's vocabulary "
                "does not have; choose dlm, or a guider with the same vocabulary"
            )

    def uses_own_template(self, settings: GuidedSettings, ids: Sequence[int]) -> bool:
        """Whether the guider reads a prompt, of model ids `ids`, in its own chat template.

        `auto` shares the ids if all of them, special tokens included, name the same tokens in both.
        Raises ValueError naming `guided.prompt` if `shared` is impossible.
        """
        alike = self.vocabularies.shared and same_prompt_tokens(
            ids, self.model_tokenizer, self.tokenizer
        )
        if settings.prompt == "shared" and not alike:
            raise ValueError(
                "guided.prompt: shared needs a prompt whose ids name the same tokens in both "
                "vocabularies, and these differ; choose own_template or auto"
            )
        return settings.prompt == "own_template" or not alike

    def prompt(
        self, settings: GuidedSettings, spec: RunSpec, ids: Sequence[int]
    ) -> tuple[int, ...]:
        """The guider's ids of a spec's prompt, of model ids `ids`.

        Raises ValueError naming `guided.prompt` as above, or `guided.guider` if the guider has no
        chat template or too short a context.
        """
        prompt = tuple(ids)
        if self.uses_own_template(settings, ids):
            try:
                prompt = tuple(self.tokenizer.encode_prompt(spec.prompt, spec.messages, spec.chat))
            except ValueError as error:
                raise ValueError(f"guided.guider: {error}") from None
        most = getattr(self.config, "max_position_embeddings", None)
        if most is not None and len(prompt) + spec.gen_length > most:
            raise ValueError(
                f"guided.guider: its prompt of {len(prompt)} tokens and an answer of "
                f"{spec.gen_length} exceed its context of {most}; shorten the prompt or lower "
                "gen_length"
            )
        return prompt

    def run_guider(
        self,
        guider: Guider,
        settings: GuidedSettings,
        specs: Sequence[RunSpec],
        prompts: list[list[int]],
    ) -> RunGuider:
        """Prepare a loaded guider for a run of `specs` and model ids `prompts`, one a sequence."""
        pair, specials = self.vocabularies, set(self.tokenizer.specials.values())
        if guider.vocab_size != self.config.vocab_size:  # further logits belong to no token
            beyond = range(self.config.vocab_size, guider.vocab_size)
            pair = replace(pair, guider_excluded_ids=(*pair.guider_excluded_ids, *beyond))
        own = self.uses_own_template(settings, prompts[0])
        description: dict[str, Any] = guider.describe() | {
            "shared": pair.shared,
            "prompt": "own_template" if own else "shared",
        }
        return RunGuider(
            pair,
            tuple(self.prompt(settings, s, ids) for s, ids in zip(specs, prompts, strict=True)),
            lambda: GuiderReader(guider),
            self.tokenizer.piece,
            lambda token: b"" if token in specials else self.tokenizer.piece(token),
            description,
            guider.weight_bytes(),
        )
