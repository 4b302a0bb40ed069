"""DriftscopeLM: the engine as a model of the Language Model Evaluation Harness."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lm_eval.api.model import TemplateLM

from engine.batch.decoding_code import code_version
from engine.config.answers import fitting_length
from engine.config.spec import MAX_PROMPT_CHARS, RunSpec
from engine.core.device import peak_memory, reset_peak_memory
from engine.core.files import ASSETS
from engine.core.progress import run_to_end
from engine.distributed.keyed_lines import key_of
from engine.distributed.processes import Processes, leave_group
from engine.evaluate.exam import decoded, resized
from engine.evaluate.sharing.shared_exam import machine_of
from engine.lm_eval import options
from engine.lm_eval.likelihood import factors, greedy_check, likelihood_gflops, log_likelihood
from engine.lm_eval.responses import Place, Response, Responses
from engine.models.loading.families import named_checkpoints
from engine.models.loading.hub import Hub
from engine.models.tokenizer import Messages
from engine.serve import environment
from engine.serve.loaded_model import digests_of, make_job, suffix_ids
from engine.serve.model_pool import ModelPool

_LOG = logging.getLogger(__name__)
LIKELIHOOD = Path(__file__).with_name("likelihood.py")
GENERATION = ("until", "max_gen_toks", "do_sample", "temperature")  # arguments that are followed


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A request for a text: its spec, its context as text and ids, its place and its key.

    `turns` are those of a context in the chat template, else empty. The text has at most `most`
    tokens; None if the run, which decodes whole blocks, gives no more.
    """

    spec: RunSpec
    most: int | None
    context: str
    turns: Messages
    ids: list[int]
    where: Place
    key: str


class DriftscopeLM(TemplateLM):
    """A diffusion language model of the engine; one of several `Processes` if a launcher made them.

    `pretrained` is a folder, the name of an embedded model or one of the Hub, which is downloaded
    if necessary; `mc_num` the number of masks of a log-likelihood; `greedy` also decodes each
    continuation to tell whether it is the greedy one. `samples` is a folder that keeps every
    response, and from which an interrupted evaluation resumes; with `cards` it also gets a run card
    of every whole text. The other arguments are those of `options.spec_of`. Raises ValueError
    naming an argument that does not fit.
    """

    def __init__(
        self,
        pretrained: str = "",
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        mc_num: int = 128,
        greedy: bool | str = False,
        samples: str = "",
        cards: bool | str = False,
        **arguments: Any,
    ) -> None:
        super().__init__()
        self._batch = options.count("batch_size", batch_size)
        self._samples = options.count("mc_num", mc_num)
        if max_batch_size is not None:
            raise ValueError("max_batch_size: leave it out; batch_size is the size of every batch")
        self._greedy = options.flag("greedy", greedy)
        folder = Path(samples) if samples else None
        if options.flag("cards", cards) and folder is None:
            raise ValueError("cards: give the folder of the samples as well, samples=FOLDER")
        self.processes = Processes()
        atexit.register(leave_group)  # the harness does not tell a model that it is over
        if "device" in arguments:
            arguments["device"] = self.processes.device(options.device_of(str(arguments["device"])))
        if not pretrained:
            raise ValueError("pretrained: give a folder or a name, --model_args pretrained=NAME")
        folders, name = named_checkpoints(str(pretrained), ASSETS)
        self.spec = options.spec_of(arguments, name)
        pool = ModelPool(folders, Hub())
        run_to_end(pool.fetch(dataclasses.replace(self.spec, prompt=name, chat=False)))
        self.model = pool.load(self.spec)
        self.responses = Responses(self.processes, folder, options.flag("cards", cards))
        self._unknown: set[str] = set()
        self._turns: dict[str, Messages] = {}  # by the text that the template made of them

    # The harness gathers by these. Up to 0.4.11 it reads `accelerator` and torch.distributed.

    @property
    def rank(self) -> int:
        """Index of this process."""
        return self.processes.rank

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.processes.count

    @property
    def device(self) -> torch.device:
        """Where tensors of `all_gather` live: they are exchanged by the CPU."""
        return torch.device("cpu")

    @property
    def accelerator(self) -> SimpleNamespace:
        """`gather` and `wait_for_everyone`, all that the harness uses of an accelerator."""
        return SimpleNamespace(gather=self.all_gather, wait_for_everyone=self.barrier)

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers of documents of all processes. Raises ValueError if one of them has none."""
        found = torch.stack(self.processes.gather(tensor))
        if int(found.min()) == 0:
            raise ValueError(
                f"limit: a task has fewer documents than the {self.world_size} processes; "
                "start fewer or raise the limit"
            )
        return found

    def gather_object(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """What every process gave, on the process `dst`; None on the others."""
        found = self.processes.gather(obj)
        return found if self.rank == dst else None

    def barrier(self) -> None:
        """Wait for the other processes."""
        self.processes.barrier()

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
        turns = tuple((turn["role"], turn["content"]) for turn in chat_history)
        text = self.model.tokenizer.chat_text(turns, add_generation_prompt)
        if add_generation_prompt:
            self._turns[text] = turns
        return text

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The template's source; the harness keeps it beside the results."""
        return self.model.tokenizer.template if chat_template else ""

    def get_model_info(self) -> dict[str, Any]:
        """For the harness's results: spec, environment and the figures of every task."""
        where = environment.describe(self.spec, self.model.digest)
        where |= {"processes": self.world_size}
        own = {"spec": self.spec.to_dict(), "environment": where, "batch_size": self._batch}
        return {"driftscope": own | {"tasks": self.responses.by_task()}}

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers, each cut before the first of its stop strings."""
        asked = [
            self._asked(one, nth) for one, nth in zip(requests, _repetitions(requests), strict=True)
        ]
        missing = {one.key: one for one in asked if self.responses.find(one.key) is None}
        progress = self.responses.start(len(missing))
        for spec in dict.fromkeys(one.spec for one in missing.values()):
            waiting = [one for one in missing.values() if one.spec == spec]
            for first in range(0, len(waiting), self._batch):
                self._answer(spec, waiting[first : first + self._batch])
                progress.add(len(waiting[first : first + self._batch]))
        texts = []
        for one, request in zip(asked, requests, strict=True):
            response = self.responses.find(one.key)
            assert response is not None
            self.responses.place(one.where, response)
            until = request.args[1].get("until") or []
            texts.append(options.cut(response.text, until if isinstance(until, list) else [until]))
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
            if self.responses.cards is not None:
                self.responses.put_card(one.where, self._lane(one, response))
        self.responses.end()
        return texts

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Refused: a masked diffusion model has no left-to-right factors."""
        raise NotImplementedError(
            "loglikelihood_rolling: a masked diffusion model does not predict a text token by "
            "token from the left; choose tasks of generate_until or loglikelihood"
        )

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Estimates of log-likelihoods; an empty continuation has 0 and is greedy."""
        self._check_unguided()
        pairs = [self._pair(*one.args) for one in requests]
        keys = [self._likelihood_key(*pair) for pair in pairs]
        new = {key: i for i, key in enumerate(keys) if self.responses.find(key) is None}
        progress = self.responses.start(len(new))
        for key, i in new.items():
            self.responses.keep(key, self._scored(*pairs[i]))
            progress.add(1)
        found = []
        for key, request in zip(keys, requests, strict=True):
            response = self.responses.find(key)
            assert response is not None
            self.responses.place(_place(request, 0), response)
            self.cache_hook.add_partial("loglikelihood", request.args, response.value)
            found.append(response.value)
        self.responses.end()
        return found

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        start = [self.prefix_token_id]  # of a text without a context
        return [
            self._scored(self._fitted(context or start, len(target)), target).value
            for _, context, target in requests
        ]

    def _check_unguided(self) -> None:
        if self.spec.cfg_scale:
            raise ValueError("cfg_scale: log-likelihoods are those without guidance; leave it out")

    def _pair(self, context: str, target: str) -> tuple[list[int], list[int]]:
        """The ids of a context, shortened to fit, and of its continuation."""
        if not target:
            return [], []
        before, after = self._encode_pair(context, target) if context else ([], [])
        if not after:  # no context, or one whose last token takes in the whole continuation
            before, after = self.tok_encode(context), self.tok_encode(target)
        before = before or [self.prefix_token_id]  # of a context without text
        answer, block = len(after), self.spec.block_length
        if self._greedy and self.model.adapter.info.block_causal:
            answer = fitting_length(answer, block)  # which greedy_check decodes
        return self._fitted(before, answer), after

    def _likelihood_key(self, context: list[int], target: list[int]) -> str:
        of_model = {"checkpoint": self.model.digest, "dtype": self.spec.dtype}
        of_model["code"] = code_version(RunSpec.cache, RunSpec.unmasker, LIKELIHOOD)
        how = {"mc_num": self._samples, "seed": self.spec.seed, "greedy": self._greedy}
        if self.model.adapter.info.block_causal:
            how["block_length"] = self.spec.block_length
        return key_of(of_model | how | {"context": context, "target": target})

    def _scored(self, context: list[int], target: list[int]) -> Response:
        """The log-likelihood of a continuation, with its costs."""
        self._check_unguided()
        if not target:
            return Response(
                0, 0, 0.0, self._machine(), value=(0.0, True), gflops=0.0, recomputed=1.0
            )
        adapter = self.model.adapter.with_block_size(self.spec.block_length)
        reset_peak_memory(adapter.device)
        start = time.perf_counter()
        value = log_likelihood(adapter, context, target, self._samples, self._batch, self.spec.seed)
        greedy, forwards, spent = False, 0, 0.0
        if self._greedy:
            greedy, forwards, spent = greedy_check(self.model, self.spec, context, target)
        text = len(context), len(context) + len(target)
        return Response(
            tokens=len(target),
            forwards=self._samples * len(factors(adapter.info, *text)) + forwards,
            ms=1e3 * (time.perf_counter() - start),
            machine=self._machine(),
            value=(value, greedy),
            gflops=self._samples * likelihood_gflops(adapter.info, *text) + spent,
            recomputed=1.0,
            peak_bytes=peak_memory(adapter.device),
        )

    def _machine(self) -> dict[str, Any]:
        where = environment.describe(self.spec, self.model.digest)
        return machine_of(where, self.world_size)

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

    def _asked(self, request: Any, repetition: int) -> _Asked:
        context, given = request.args
        spec, most = self._generation(given)
        spec = dataclasses.replace(spec, seed=spec.seed + repetition)
        suffix = suffix_ids(spec, self.model.tokenizer)
        context_ids = self.tok_encode(context) or [self.prefix_token_id]
        ids = self._fitted(context_ids, spec.gen_length + len(suffix))
        where, turns = _place(request, repetition), self._turns.get(context, ())
        values = {name: value for name, value in spec.to_dict().items() if name != "device"}
        parts = {
            "spec": values, **digests_of(self.model, spec), "task": where[0], "prompt": ids,
            "code": code_version(spec.cache, spec.unmasker), "batch": self._batch,
            **({"turns": turns} if turns else {}), **({"most": most} if most else {}),
        }  # fmt: skip
        return _Asked(spec, most, context, turns, ids, where, key_of(parts))

    def _generation(self, given: dict[str, Any]) -> tuple[RunSpec, int | None]:
        """Spec and `most` of generation arguments; others than GENERATION give a warning."""
        for name in sorted({*given} - {*GENERATION} - self._unknown):
            _LOG.warning("gen_kwargs: %s has no effect; known are %s", name, ", ".join(GENERATION))
        self._unknown |= given.keys()
        spec, most = self.spec, options.most_tokens(given, self.spec.block_length)
        if most is not None:
            spec = resized(spec, "", fitting_length(most, spec.block_length))
        temperature = options.number(given, "temperature", float)
        if temperature is not None and given.get("do_sample", temperature > 0):
            spec = dataclasses.replace(spec, temperature=temperature)
        longer = self.model.adapter.info.block_causal or spec.gen_length != most
        return spec, most if longer else None

    def _answer(self, spec: RunSpec, asked: Sequence[_Asked]) -> None:
        """Decode one batch and keep its responses."""
        reset_peak_memory(self.model.adapter.device)
        for one, response in zip(asked, self._decode(spec, asked), strict=True):
            self.responses.keep(one.key, response)

    def _decode(self, spec: RunSpec, asked: Sequence[_Asked]) -> Iterator[Response]:
        """The responses of one batch; prompts are decoded from their ids, so of any length."""
        own = [options.prompted(spec, one.context, one.turns) for one in asked]
        job = make_job(self.model, own[0], [one.ids for one in asked], sequence_specs=own)
        for state, tally in decoded(job):
            size = tally.batch
            for row, one in enumerate(asked[state.job.first_sequence :][:size]):
                ids = list(state.answer(row).ids[: one.most])
                yield Response(
                    tokens=len(ids),
                    forwards=tally.text_steps(0, tally.length, row),
                    ms=tally.total_ms / size,
                    machine=self._machine(),
                    text=self.model.tokenizer.decode(ids),
                    gflops=float(tally.flops.sum()) / 1e9 / size,
                    recomputed=tally.recomputed_share,
                    peak_bytes=peak_memory(self.model.adapter.device),
                )

    def _lane(self, one: _Asked, response: Response) -> dict[str, Any] | None:
        """The lane of a text's run card; None if a spec cannot hold its prompt or gives more."""
        if len(one.context) > MAX_PROMPT_CHARS or response.tokens == one.most:
            return None
        if not one.context.strip() or one.ids != self.tok_encode(one.context):
            return None
        spec = options.prompted(one.spec, one.context, one.turns).to_dict()
        model = {"name": one.spec.model, "digest": self.model.digest}
        results = {"text": response.text, "steps": response.forwards}
        return {"spec": spec, "model": model, "results": results}


def _repetitions(requests: Sequence[Any]) -> Iterator[int]:
    """Which repetition of its request each one is, from 0.

    The harness hands in a request as often as it is repeated. Where other processes have more
    requests it adds copies of the last one, which are no repetitions.
    """
    seen: Counter[int] = Counter()
    for one in requests:
        yield seen[id(one)] % (one.repeats or 1)
        seen[id(one)] += 1


def _place(request: Any, repetition: int) -> Place:
    return str(request.task_name), int(request.doc_id or 0), int(request.idx), repetition
