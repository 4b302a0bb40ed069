"""DriftscopeLM: the engine as a model of the Language Model Evaluation Harness."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from lm_eval.api.model import TemplateLM

from engine.config.answers import fitting_length
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.evaluate.exam import resized
from engine.generate.end_of_text import text_length
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from engine.lm_eval.likelihood import log_likelihood
from engine.lm_eval.options import spec_of
from engine.models.loading.families import named_checkpoints
from engine.serve.lane import make_job
from engine.serve.model_pool import ModelPool

_LOG = logging.getLogger(__name__)


def cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first of the stop strings; empty ones do not count."""
    ends = [text.find(stop) for stop in stops if stop and stop in text]
    return text[: min(ends)] if ends else text


class DriftscopeLM(TemplateLM):
    """A diffusion language model of the engine.

    `pretrained` is a folder, the name of an embedded model or one of the Hub; `mc_num` the number
    of masks of a log-likelihood; the other arguments are those of `options.spec_of`. Raises
    ValueError naming an argument that does not fit.
    """

    def __init__(
        self,
        pretrained: str,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        mc_num: int = 128,
        **arguments: Any,
    ) -> None:
        super().__init__()
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size: {batch_size!r} is not a number from 1 on; give one")
        if int(mc_num) < 1:
            raise ValueError(f"mc_num: {mc_num!r} is below 1; the nearest valid value is 1")
        self._batch, self._samples = int(batch_size), int(mc_num)
        if str(arguments.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
            _LOG.warning("device: %s is not available; the CPU is used", arguments["device"])
            arguments["device"] = "cpu"
        folders, name = named_checkpoints(str(pretrained), ASSETS)
        self.spec = spec_of(arguments, name)
        self.model = ModelPool(folders).load(self.spec)

    @property
    def eot_token_id(self) -> int:
        """Id of the end of text."""
        return self.model.adapter.info.eos_id

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer: that of the model and the digest of its checkpoint."""
        return f"{self.spec.model}-{self.model.digest[:12]}"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Ids of a text; no special tokens are added."""
        return self.model.tokenizer.encode(string)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of the turns. Raises ValueError naming `chat` if the model has no template."""
        return self.model.tokenizer.chat_text(
            [(turn["role"], turn["content"]) for turn in chat_history], add_generation_prompt
        )

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The template's source; the harness keeps it beside the results."""
        return self.model.tokenizer.template if chat_template else ""

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers, each cut before the first of its stop strings."""
        specs = [self._generation(one.args[1]) for one in requests]
        found: dict[int, str] = {}
        for spec in dict.fromkeys(specs):
            waiting = iter([i for i, own in enumerate(specs) if own == spec])
            while group := list(islice(waiting, self._batch)):
                contexts = [requests[i].args[0] for i in group]
                texts = self._decode(spec, contexts)
                for i, text in zip(group, texts, strict=True):
                    until = requests[i].args[1].get("until") or []
                    found[i] = cut(text, [until] if isinstance(until, str) else until)
                    self.cache_hook.add_partial("generate_until", requests[i].args, found[i])
        return [found[i] for i in range(len(requests))]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Refused: a masked diffusion model has no left-to-right factors."""
        raise NotImplementedError(
            "loglikelihood_rolling: a masked diffusion model does not predict a text token by "
            "token from the left; choose tasks of generate_until or loglikelihood"
        )

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """As the harness's, and an empty continuation has log-likelihood 0 and is greedy."""
        full = [one for one in requests if one.args[1]]
        scored = iter(super().loglikelihood(full, disable_tqdm=disable_tqdm) if full else [])
        return [next(scored) if one.args[1] else (0.0, True) for one in requests]

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        if self.spec.cfg_scale:
            raise ValueError("cfg_scale: log-likelihoods are those without guidance; leave it out")
        found = []
        for texts, context, target in requests:
            kept = self._fitted(context, len(target))
            own = (self.model.adapter, kept, target, self._samples, self._batch, self.spec.seed)
            found.append((log_likelihood(*own), False))
            self.cache_hook.add_partial("loglikelihood", texts, found[-1])
        return found

    def _fitted(self, context: list[int], answer: int) -> list[int]:
        """The last tokens of a context that leave room for the answer, with a warning."""
        most = self.model.adapter.info.max_length - answer
        if most < 1:
            raise ValueError(
                f"context: an answer of {answer} tokens leaves no room in the model's "
                f"{self.model.adapter.info.max_length}; shorten it or lower gen_length"
            )
        if len(context) > most:
            _LOG.warning("the first %d tokens of a context are left out", len(context) - most)
        return context[-most:]

    def _generation(self, given: dict[str, Any]) -> RunSpec:
        """The spec of a request's generation arguments."""
        spec, length = self.spec, given.get("max_gen_toks")
        if length is not None:
            spec = resized(spec, "", fitting_length(int(length), spec.block_length))
        if given.get("do_sample") and given.get("temperature") is not None:
            spec = dataclasses.replace(spec, temperature=float(given["temperature"]))
        return spec

    def _decode(self, spec: RunSpec, contexts: Sequence[str]) -> Iterator[str]:
        """The texts of one batch, before their end of text."""
        prompts = [self._fitted(self.tok_encode(one), spec.gen_length) for one in contexts]
        own = [dataclasses.replace(spec, prompt=one, chat=False) for one in contexts]
        for job in split(make_job(self.model, own[0], prompts, sequence_specs=own)):
            state = Denoiser(job)
            for _ in denoise(state):
                pass
            for row in state.ids[:, state.run.prompt_length :]:
                ids = row[: text_length(row, state.run.info.stop_ids)].tolist()
                yield self.model.tokenizer.decode(ids)
