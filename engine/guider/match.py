"""Guiding: what a run needs of its guider.

Match: a drafting model and a guider's folder, as far as both are known without weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from transformers import PretrainedConfig

from engine.config.spec import RunSpec
from engine.guider.model import CachedReader, Guider, GuiderReader, read_config, stop_ids
from engine.guider.vocabularies import VocabularyPair, pair_vocabularies, reads_alike
from engine.models.base import ModelInfo
from engine.models.tokenizer import Tokenizer


class GuidedSettings(Protocol):
    """The knobs of guided decoding that decide how the guider reads a run."""

    prompt: str
    fallback: str


@dataclass(frozen=True)
class RunGuider:
    """A guider set on a run: `open` gives a fresh reader, one a sequence.

    `prompts` are the guider's ids of each sequence's prompt; `name` gives what to show of one
    of its tokens, `piece` the text that it stands for, none for a special one; `about` as
    events.RunStarted.guider, `weight_bytes` what the guider itself takes.
    """

    pair: VocabularyPair
    prompts: tuple[tuple[int, ...], ...]
    open: Callable[[], GuiderReader]
    name: Callable[[int], bytes]
    piece: Callable[[int], bytes]
    about: Mapping[str, Any] = field(default_factory=dict)
    weight_bytes: int = 0

    def alone(self, row: int) -> RunGuider:
        """That of one sequence of a batch."""
        return replace(self, prompts=self.prompts[row : row + 1])


@dataclass(frozen=True)
class GuiderMatch:
    """What can be said of a run with a guider before anything is loaded."""

    dlm: Tokenizer
    guider: Tokenizer
    config: PretrainedConfig
    pair: VocabularyPair

    @classmethod
    def of(cls, dlm: Tokenizer, info: ModelInfo, folder: Path) -> GuiderMatch:
        """Both vocabularies read and compared.

        Raises CheckpointError naming the file, ValueError naming `guided.guider`.
        """
        guider, config = Tokenizer(folder), read_config(folder)
        stops = dict.fromkeys((*info.stop_ids, *dlm.stop_ids))  # a config names one of them
        pair = pair_vocabularies(
            dlm, tuple(stops), info.vocab_size,
            guider, stop_ids(guider, config), config.vocab_size,
        )  # fmt: skip
        return cls(dlm, guider, config, pair)

    def own_template(self, rule: GuidedSettings, ids: Sequence[int]) -> bool:
        """Whether the guider reads a prompt, of ids `ids`, in its own template.

        `auto` shares the ids where all of them, specials included, name the same token in both.
        Raises ValueError naming `guided.prompt` where they are to be shared and do not.
        """
        alike = self.pair.shared and reads_alike(ids, self.dlm, self.guider)
        if rule.prompt == "shared" and not alike:
            raise ValueError(
                "guided.prompt: shared needs a prompt whose ids name the same tokens in both "
                "vocabularies, and these differ; choose own_template or auto"
            )
        return rule.prompt == "own_template" or not alike

    def prompt(self, rule: GuidedSettings, spec: RunSpec, ids: Sequence[int]) -> tuple[int, ...]:
        """What the guider reads before the answer, of a spec whose model reads `ids`.

        Raises ValueError naming `guided.prompt` as above, or `guided.guider` where the guider has
        no chat template, or too short a context.
        """
        found = tuple(ids)
        if self.own_template(rule, ids):
            try:
                found = tuple(self.guider.encode_spec(spec))
            except ValueError as error:
                raise ValueError(f"guided.guider: {error}") from None
        most = getattr(self.config, "max_position_embeddings", None)
        if most is not None and len(found) + spec.gen_length > most:
            raise ValueError(
                f"guided.guider: its prompt of {len(found)} tokens and an answer of "
                f"{spec.gen_length} exceed its context of {most}; shorten the prompt or lower "
                "gen_length"
            )
        return found

    def check(self, rule: GuidedSettings) -> None:
        """Raise ValueError naming `guided.fallback` where it asks for what cannot be committed."""
        if rule.fallback == "ar" and not self.pair.shared:
            raise ValueError(
                "guided.fallback: ar commits a token of the guider, which the model's vocabulary "
                "does not have; choose dlm, or a guider with the same vocabulary"
            )

    def guiding(
        self,
        guider: Guider,
        rule: GuidedSettings,
        asked: Sequence[RunSpec],
        prompts: list[list[int]],
    ) -> RunGuider:
        """A guider set on a run of these specs, one a sequence, whose model reads `prompts`."""
        pair, named = self.pair, set(self.guider.specials.values())
        if guider.rows != self.config.vocab_size:  # rows beyond the config's are no tokens either
            beyond = range(self.config.vocab_size, guider.rows)
            pair = replace(pair, guider_barred=(*pair.guider_barred, *beyond))
        own = self.own_template(rule, prompts[0])
        about: dict[str, Any] = guider.describe() | {
            "shared": pair.shared,
            "prompt": "own_template" if own else "shared",
        }
        return RunGuider(
            pair,
            tuple(self.prompt(rule, spec, ids) for spec, ids in zip(asked, prompts, strict=True)),
            lambda: CachedReader(guider),
            self.guider.piece,
            lambda token: b"" if token in named else self.guider.piece(token),
            about,
            guider.weight_bytes(),
        )
