"""Presets: named settings used by a paper or by its authors' code, for each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Preset:
    """Named settings of a run.

    `fields` are those of RunSpec.from_dict but for the model and the prompt; `source` says where
    the settings are published.
    """

    name: str
    title: str
    source: str
    fields: Fields = field(hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Lengths:
    """Answer length, block length and steps of a task."""

    gen: int
    block: int
    steps: int

    def fields(self) -> dict[str, Any]:
        """The fields of a RunSpec."""
        return {"gen_length": self.gen, "block_length": self.block, "steps": self.steps}


@dataclass(frozen=True)
class PresetFamily:
    """The presets of a model, which share the fields `common` and the use of a chat template.

    `curve` and `rank` are the model's settings of SPA-Cache.
    """

    common: Fields
    template: bool
    curve: str = ""
    rank: int = 0

    @property
    def plain(self) -> PresetFamily:
        """The same model without its unmasker and the knobs of that, at temperature 0."""
        own = f"{self.common.get('unmasker')}."
        kept = {k: v for k, v in self.common.items() if k != "unmasker" and not k.startswith(own)}
        return PresetFamily(kept | {"temperature": 0.0}, self.template)

    def make(self, name: str, title: str, source: str, lengths: Lengths, **more: Any) -> Preset:
        """A preset of this model; in the names of `more`, two underscores stand for a dot."""
        dotted = {key.replace("__", "."): value for key, value in more.items()}
        base = {"chat": self.template, "cache": "none", "eos": "official", "eos_suppress": "none"}
        return Preset(name, title, source, {**base, **self.common, **lengths.fields(), **dotted})

    def dllm(
        self, task: str, lengths: Lengths, prompt: int, answer: int, where: str, **more: Any
    ) -> Preset:
        """dLLM-Cache with the refresh intervals of a task, and with `chat` as in its script."""
        return self.make(
            f"dllm-cache-{_slug(task)}", f"dLLM-Cache, {task}", f"dLLM-Cache, {where}", lengths,
            cache="dllm_cache", dllm_cache__prompt_interval=prompt,
            dllm_cache__response_interval=answer, dllm_cache__recompute_ratio=0.25,
            **more,
        )  # fmt: skip

    def spa(self, task: str, lengths: Lengths, refresh: int, answer: int, least: float) -> Preset:
        """SPA-Cache with the intervals and the least ratio of a task, and a peak of a quarter.

        The scripts for Dream, and that for HumanEval, give the prompt without a chat template.
        Those for LLaDA look for an end of text after each block, so never in a single block. Those
        for Dream look for one in every step, and their first two steps are full.
        """
        dream = self.curve == "dream"
        at_blocks = "official" if lengths.block == lengths.gen else "fill_safe"
        return self.make(
            f"spa-cache-{_slug(task)}", f"SPA-Cache, {task}", "SPA-Cache, released scripts",
            lengths, cache="spa_cache", spa_cache__budget=self.curve, spa_cache__rank=self.rank,
            spa_cache__peak_ratio=0.25, spa_cache__min_update_ratio=least,
            spa_cache__refresh_interval=refresh, spa_cache__response_interval=answer,
            spa_cache__warm_up=int(dream), eos="fill_eager" if dream else at_blocks,
            chat=not dream and task != "HumanEval",
        )  # fmt: skip

    def fast(self, lengths: Lengths) -> tuple[Preset, ...]:
        """Fast-dLLM: both caches with a threshold, and the dual cache with a factor."""
        where = "Fast-dLLM, defaults"
        factor: Fields = {"unmasker": "factor", "factor__factor": 1.0}
        plain = self.plain
        return (
            plain.make("fast-dual", "Fast-dLLM, dual cache, threshold 0.9", where, lengths,
                       cache="dual", **THRESHOLD),
            plain.make("fast-prefix", "Fast-dLLM, prefix cache, threshold 0.9", where, lengths,
                       cache="prefix", **THRESHOLD),
            plain.make("fast-factor", "Fast-dLLM, dual cache, factor 1", where, lengths,
                       cache="dual", **factor),
        )  # fmt: skip

    def free(self, lengths: Lengths, block: int) -> Preset:
        """FreeCache; the rest is filled after an end of text, on Dream if no mask is before it."""
        return self.make(
            "freecache", f"FreeCache, block {block}", "FlashDLM, settings of FreeCache", lengths,
            cache="freecache", freecache__block=block,
            eos="fill_safe" if self.common["unmasker"] == "dream" else "fill_eager",
        )  # fmt: skip

    def guided(self, lengths: Lengths, block: int, guider: str) -> Preset:
        """FlashDLM: FreeCache and a guider by the released rule; the guider is our choice."""
        return self.plain.make(
            "flashdlm", f"FlashDLM, guider {guider.rpartition('/')[2]}", "FlashDLM, released rule",
            lengths, cache="freecache", freecache__block=block, unmasker="guided",
            guided__guider=guider, guided__rule="rel", guided__k=2, guided__tau=0.5,
        )  # fmt: skip

    def vision(self) -> tuple[Preset, ...]:
        """LLaDA-V with Fast-dLLM's prefix cache and its factor rule, or without both."""
        plain = self.plain
        refreshed: Fields = {
            "cache": "prefix", "prefix__refresh_interval": 32, "unmasker": "factor",
            "factor__factor": 1.0, "stop": [EOT],
        }  # fmt: skip
        return (
            plain.make("llada-v", "MathVista, refresh 32, factor 1",
                       "Fast-dLLM, Table 10: one block of 96", Lengths(96, 96, 96), **refreshed),
            plain.make("demo", "Authors' demo, refresh 32, factor 1", "LLaDA-V, demo",
                       Lengths(128, 128, 128), **refreshed),
            self.make("mathvista", "MathVista, half the steps, no cache",
                      "LLaDA-V, evaluation settings", Lengths(96, 96, 48), stop=[EOT]),
            self.make("chartqa", "ChartQA", "LLaDA-V, evaluation settings", Lengths(16, 16, 16),
                      stop=["\n", EOT]),
            self.make("docvqa", "DocVQA and InfoVQA", "LLaDA-V, evaluation settings",
                      Lengths(32, 32, 16), stop=[EOT]),
        )  # fmt: skip

    def dare(
        self, lengths: Lengths, where: str = "DARE, prefix cache with parallel decoding"
    ) -> tuple[Preset, ...]:
        """DARE-KV and DARE-O on the prefix cache with a threshold, one of the paper's two bases.

        The third preset has the settings of the experiment on Fast-dLLM v2: no reuse in the first
        two layers nor in every second step; the dual cache stands for that of Fast-dLLM v2. The
        threshold of 0.9 is the default of Fast-dLLM.
        """
        plain = self.plain
        return (
            plain.make("dare-kv", "DARE-KV, prefix cache, threshold 0.9", where, lengths,
                       cache="prefix+dare_kv", **THRESHOLD),
            plain.make("dare-o", "DARE-O, prefix cache, threshold 0.9", where, lengths,
                       cache="prefix+dare_o", **THRESHOLD),
            plain.make("dare-o-skip", "DARE-O, dual cache, 2 layers skipped, refresh 2",
                       "DARE, experiment on Fast-dLLM v2", lengths, cache="dual+dare_o",
                       dare_o__skip_first_layers=2, dare_o__refresh_interval=2, **THRESHOLD),
        )  # fmt: skip

    def block_diffusion(self, lengths: Lengths, note: str = "") -> tuple[Preset, ...]:
        """The settings of Fast-dLLM v2's evaluation and DARE-O's on it; a note on the lengths."""
        source = "Fast-dLLM v2, {}" + note
        return (
            self.make("evaluation", "Authors' evaluation", source.format("evaluation"), lengths,
                      cache="frozen", **FAST_V2_RULE),
            self.make("one-token", "GSM8K and Math, one token a step",
                      source.format("task scripts"), lengths, cache="frozen",
                      **{**FAST_V2_RULE, "fast_dllm_v2__threshold": 1.0}),
            self.make("sub-block", "Sub-block cache",
                      source.format("evaluation with its block cache"), lengths,
                      cache="sub_block", sub_block__size=8, **FAST_V2_RULE),
            self.make("dare-o", "DARE-O, 2 layers skipped, refresh 2",
                      f"DARE, experiment on Fast-dLLM v2{note}", lengths, cache="frozen+dare_o",
                      dare_o__skip_first_layers=2, dare_o__refresh_interval=2, **FAST_V2_RULE),
        )  # fmt: skip

    def tiny(self, source: str, plain: Lengths) -> tuple[Preset, ...]:
        """The presets of an embedded model; `source` and `plain` are of plain decoding."""
        blocks, large = Lengths(128, 32, 128), Lengths(128, 64, 128)
        return (
            self.make("demo", "Plain", source, plain),
            *self.fast(blocks), self.free(large, 64),
            self.make("dllm-cache", "dLLM-Cache", DEFAULTS, blocks, cache="dllm_cache"),
            self.make("spa-cache", "SPA-Cache", DEFAULTS, blocks, cache="spa_cache"),
            self.guided(large, 64, TINY_GUIDER),
            *self.dare(blocks, "DARE, its tables; shorter answers"),
        )  # fmt: skip


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-").replace(",", "")


THRESHOLD: Fields = {"unmasker": "threshold", "threshold__threshold": 0.9}
FAST_V2_RULE: Fields = {
    "unmasker": "fast_dllm_v2", "fast_dllm_v2__threshold": 0.9, "fast_dllm_v2__sub_block": 8,
}  # fmt: skip
EOT = "<|eot_id|>"
QUOTA = {"unmasker": "quota", "quota.score": "confidence", "temperature": 0.0}
ENTROPY = {
    "unmasker": "dream", "dream.alg": "entropy", "dream.alg_temp": 0.0, "dream.top_p": 0.95,
    "temperature": 0.2,
}  # fmt: skip
QWEN, TINY_GUIDER = "Qwen/Qwen2.5-1.5B-Instruct", "tiny-qwen2"
HALF, FULL = {"dtype": "bfloat16"}, {"dtype": "float32"}
BLOCKS_8, ONE_BLOCK, BLOCKS_32 = Lengths(256, 8, 256), Lengths(256, 256, 256), Lengths(256, 32, 256)
BLOCKS_64, GUIDED = Lengths(256, 64, 256), Lengths(1024, 1024, 1024)
PAPER, CODE, DEFAULTS = "paper, results", "released scripts", "the engine's defaults"
LEAST = 0.0625  # min_update_ratio of the released scripts that set none

_LLADA = PresetFamily(QUOTA | HALF, template=True, curve="llada", rank=128)
_LLADA_1_5 = PresetFamily(QUOTA | HALF, template=True, curve="llada_1_5", rank=128)
_LLADA_V = _LLADA_MOE = PresetFamily(QUOTA | HALF, template=True)
_LLADA_BASE = _LLADA_MOE_BASE = PresetFamily(QUOTA | HALF, template=False)
_DREAM = PresetFamily(ENTROPY | HALF, template=True, curve="dream", rank=32)
_DREAM_BASE = PresetFamily(ENTROPY | HALF, template=False)
_MMADA = PresetFamily(QUOTA | HALF | {"temperature": 1.0}, template=True)
_LLADA2 = _FAST_V2 = PresetFamily(HALF | {"temperature": 0.0}, template=True)
_LLADA2_RULE: Fields = {"unmasker": "dynamic", "dynamic__threshold": 0.95}
_TINY_LLADA = PresetFamily(QUOTA | FULL, template=True)
_TINY_BLOCK = PresetFamily(FULL | {"temperature": 0.0}, template=True)
_TINY_DREAM = PresetFamily(ENTROPY | FULL | {"temperature": 0.0, "dream.top_p": 1.0}, template=True)

_SDAR = PresetFamily(HALF | {"temperature": 1.0}, template=True)
_SDAR_TEXT, _FAST_V2_TEXT = Lengths(256, 4, 256), Lengths(256, 32, 256)

_LLADA_DEMO = Lengths(128, 32, 128)
_DREAM_DEMO, _DREAM_CHAT = Lengths(512, 512, 512), Lengths(256, 256, 256)
_SPA_LLADA = {
    "GSM8K": (BLOCKS_8, 50, 7, LEAST), "MATH": (BLOCKS_32, 50, 2, LEAST),
    "GPQA": (Lengths(128, 64, 128), 50, 6, LEAST), "BBH": (ONE_BLOCK, 50, 6, LEAST),
    "MMLU-pro": (ONE_BLOCK, 50, 3, 0.125),
    "MBPP": (Lengths(512, 32, 512), 25, 4, LEAST),
    "HumanEval": (Lengths(512, 32, 512), 50, 8, 0.2),
}  # fmt: skip
_SPA_DREAM = {
    "GSM8K": (ONE_BLOCK, 25, 2, 0.125), "MATH": (ONE_BLOCK, 50, 1, LEAST),
    "GPQA": (ONE_BLOCK, 16, 1, 0.2), "BBH": (ONE_BLOCK, 32, 2, LEAST),
    "MMLU-pro": (ONE_BLOCK, 16, 4, LEAST), "MBPP": (ONE_BLOCK, 8, 3, 0.125),
    "HumanEval": (ONE_BLOCK, 50, 3, LEAST),
}  # fmt: skip

LLADA_INSTRUCT = (
    _LLADA.make("demo", "Authors' demo", "LLaDA, generate.py", _LLADA_DEMO),
    _LLADA.make("gsm8k", "GSM8K, blocks of 8", "LLaDA, evaluation settings", BLOCKS_8),
    _LLADA.make("gsm8k-whole", "GSM8K, one block", "LLaDA, evaluation settings", _DREAM_DEMO,
                eos_suppress="confidence"),
    _LLADA.make("math", "Math, blocks of 64", "LLaDA, evaluation settings", Lengths(512, 64, 512)),
    _LLADA.make("humaneval", "HumanEval", "LLaDA, evaluation settings", _DREAM_DEMO,
                eos_suppress="logits"),
    _LLADA.make("mbpp", "MBPP", "LLaDA, evaluation settings", ONE_BLOCK, eos_suppress="confidence"),
    _LLADA.make("gpqa", "GPQA", "LLaDA, evaluation settings", Lengths(64, 64, 64),
                eos_suppress="confidence"),
    _LLADA.dllm("GSM8K", BLOCKS_8, 50, 7, CODE),
    _LLADA.dllm("GPQA", Lengths(128, 64, 128), 50, 6, PAPER),
    _LLADA.dllm("Math", ONE_BLOCK, 50, 1, PAPER),
    _LLADA.dllm("MMLU-pro", ONE_BLOCK, 51, 3, PAPER),
    _LLADA.dllm("BBH", ONE_BLOCK, 100, 5, PAPER),
    _LLADA.dllm("MBPP", Lengths(512, 32, 512), 100, 5, CODE),
    _LLADA.dllm("HumanEval", Lengths(512, 32, 512), 50, 5, PAPER, chat=False),
    *(_LLADA.spa(task, *row) for task, row in _SPA_LLADA.items()),
    *_LLADA.fast(BLOCKS_32), _LLADA.free(BLOCKS_64, 256),
    _LLADA.guided(GUIDED, 256, QWEN), *_LLADA.dare(BLOCKS_32),
)  # fmt: skip
LLADA_1_5 = (
    _LLADA_1_5.make("demo", "Authors' demo", "LLaDA, generate.py", _LLADA_DEMO),
    _LLADA_1_5.make("gsm8k", "GSM8K, blocks of 16", "LLaDA 1.5, evaluation settings",
                    Lengths(256, 16, 256), eos_suppress="confidence"),
    _LLADA_1_5.make("math", "Math, blocks of 128", "LLaDA 1.5, evaluation settings",
                    Lengths(1024, 128, 1024), eos_suppress="confidence"),
    _LLADA_1_5.make("code", "HumanEval and MBPP", "LLaDA 1.5, evaluation settings",
                    Lengths(512, 32, 512), eos_suppress="confidence"),
    *(_LLADA_1_5.spa(task, *row) for task, row in _SPA_LLADA.items()),
    *_LLADA_1_5.fast(BLOCKS_32), _LLADA_1_5.free(BLOCKS_64, 256),
    *_LLADA_1_5.dare(BLOCKS_32),
)  # fmt: skip
LLADA_BASE = (
    _LLADA_BASE.make("demo", "Authors' demo", "LLaDA, generate.py", _LLADA_DEMO),
    _LLADA_BASE.dllm("GSM8K", ONE_BLOCK, 100, 6, PAPER),
    _LLADA_BASE.dllm("GSM8K lossless", ONE_BLOCK, 25, 5, "paper, second configuration"),
    _LLADA_BASE.dllm("GPQA", ONE_BLOCK, 100, 8, PAPER),
    _LLADA_BASE.dllm("Math", ONE_BLOCK, 50, 8, PAPER),
    _LLADA_BASE.dllm("MMLU-pro", ONE_BLOCK, 100, 6, PAPER),
    _LLADA_BASE.dllm("MMLU", ONE_BLOCK, 100, 6, PAPER),
    _LLADA_BASE.dllm("BBH", ONE_BLOCK, 50, 6, PAPER),
    _LLADA_BASE.dllm("MBPP", BLOCKS_32, 50, 4, PAPER),
    _LLADA_BASE.dllm("HumanEval", ONE_BLOCK, 100, 5, PAPER),
    *_LLADA_BASE.fast(BLOCKS_32), _LLADA_BASE.free(BLOCKS_64, 256),
)  # fmt: skip
LLADA_MOE_INSTRUCT = (
    _LLADA_MOE.make("demo", "LLaDA's demo", "LLaDA, generate.py", _LLADA_DEMO),
    _LLADA_MOE.plain.make("dinfer", "dInfer, threshold 0.9, blocks of 32",
                          "dInfer, defaults", BLOCKS_32, **THRESHOLD),
    *_LLADA_MOE.fast(BLOCKS_32), *_LLADA_MOE.dare(BLOCKS_32),
)  # fmt: skip
LLADA_MOE_BASE = (
    _LLADA_MOE_BASE.make("demo", "LLaDA's demo", "LLaDA, generate.py", _LLADA_DEMO),
    *_LLADA_MOE_BASE.fast(BLOCKS_32),
)
LLADA_V = _LLADA_V.vision()
DREAM_INSTRUCT = (
    _DREAM.make("demo", "Authors' demo", "Dream, demo", _DREAM_DEMO),
    _DREAM.make("chat", "Authors' chat", "Dream, chat demo", _DREAM_CHAT, temperature=0.4,
                dream__alg_temp=0.1),
    _DREAM.make("evaluation", "Authors' evaluation", "Dream, evaluation; lengths of its chat demo",
                _DREAM_CHAT, temperature=0.1, dream__top_p=0.9),
    _DREAM.dllm("GSM8K", ONE_BLOCK, 25, 2, PAPER, chat=False),
    _DREAM.dllm("GPQA", ONE_BLOCK, 10, 8, PAPER),
    _DREAM.dllm("Math", ONE_BLOCK, 50, 1, PAPER, chat=False),
    _DREAM.dllm("MMLU-pro", ONE_BLOCK, 5, 1, PAPER),
    _DREAM.dllm("MMLU", ONE_BLOCK, 100, 8, PAPER),
    _DREAM.dllm("BBH", ONE_BLOCK, 10, 2, PAPER, chat=False),
    _DREAM.dllm("MBPP", ONE_BLOCK, 10, 8, PAPER, chat=False),
    _DREAM.dllm("HumanEval", ONE_BLOCK, 50, 1, PAPER, chat=False),
    *(_DREAM.spa(task, *row) for task, row in _SPA_DREAM.items()),
    *_DREAM.fast(BLOCKS_32), _DREAM.free(ONE_BLOCK, 256),
    _DREAM.guided(GUIDED, 256, QWEN), *_DREAM.dare(BLOCKS_32),
)  # fmt: skip
DREAM_BASE = (
    _DREAM_BASE.make("demo", "Authors' demo", "Dream, completion demo", _DREAM_DEMO),
    _DREAM_BASE.dllm("GSM8K", ONE_BLOCK, 100, 8, PAPER),
    _DREAM_BASE.dllm("GPQA", ONE_BLOCK, 100, 8, PAPER),
    _DREAM_BASE.dllm("Math", ONE_BLOCK, 100, 4, PAPER),
    _DREAM_BASE.dllm("MMLU-pro", ONE_BLOCK, 25, 2, PAPER),
    _DREAM_BASE.dllm("MMLU", ONE_BLOCK, 100, 2, PAPER),
    _DREAM_BASE.dllm("BBH", ONE_BLOCK, 25, 4, PAPER),
    _DREAM_BASE.dllm("MBPP", ONE_BLOCK, 25, 8, PAPER),
    _DREAM_BASE.dllm("HumanEval", ONE_BLOCK, 5, 1, PAPER),
    *_DREAM_BASE.fast(BLOCKS_32), _DREAM_BASE.free(ONE_BLOCK, 256),
)  # fmt: skip
SDAR = (
    _SDAR.make("readme", "Authors' example, threshold 0.9", "SDAR, JetEngine example", _SDAR_TEXT,
               cache="frozen", unmasker="dynamic", dynamic__threshold=0.9),
    _SDAR.make("static", "Authors' evaluation, static", "SDAR, evaluation settings", _SDAR_TEXT,
               cache="frozen", unmasker="quota", temperature=0.0),
    _SDAR.make("dynamic", "Authors' evaluation, threshold 0.95", "SDAR, evaluation settings",
               _SDAR_TEXT, cache="frozen", unmasker="dynamic", dynamic__threshold=0.95,
               temperature=0.0),
    _SDAR.make("script", "Authors' script, threshold 0.85", "SDAR, generate.py", _SDAR_TEXT,
               cache="frozen", unmasker="dynamic", dynamic__threshold=0.85),
    _SDAR.make("entropy", "Entropy bound 0.35", "JetEngine, defaults", _SDAR_TEXT, cache="frozen",
               unmasker="entropy_bounded", entropy_bounded__gamma=0.35),
)  # fmt: skip
LLADA2 = (
    _LLADA2.make("authors", "Authors' code, threshold 0.95", "LLaDA2.0, generate", BLOCKS_32,
                 **_LLADA2_RULE),
    _LLADA2.make("frozen", "Keys of finished blocks kept, threshold 0.95",
                 "LLaDA2.0, generate; its results without recomputing finished blocks", BLOCKS_32,
                 cache="frozen", **_LLADA2_RULE),
)  # fmt: skip
FAST_DLLM_V2 = _FAST_V2.block_diffusion(_FAST_V2_TEXT)
DREAM_CODER_INSTRUCT = (
    _DREAM.make("demo", "Authors' example", "Dream-Coder, model page", Lengths(768, 768, 768),
                temperature=0.1),
    _DREAM.make("penalty", "Authors' demos, padding penalty 3", "Dream-Coder, README", _DREAM_DEMO,
                temperature=0.1, dream__top_p=1.0, dream__padding_penalty=3.0),
    *_DREAM.fast(BLOCKS_32), _DREAM.free(ONE_BLOCK, 256),
)  # fmt: skip
DREAM_CODER_BASE = (
    _DREAM_BASE.make("demo", "Completion", "Dream, completion demo", _DREAM_DEMO),
    *_DREAM_BASE.fast(BLOCKS_32), _DREAM_BASE.free(ONE_BLOCK, 256),
)  # fmt: skip
DIFFUCODER_BASE = (
    _DREAM_BASE.make("demo", "Authors' example", "DiffuCoder, README", _DREAM_CHAT),
    *_DREAM_BASE.fast(BLOCKS_32), _DREAM_BASE.free(ONE_BLOCK, 256),
)  # fmt: skip
DIFFUCODER_INSTRUCT = (
    _DREAM.make("demo", "Authors' demo", "DiffuCoder, inference demo", _DREAM_CHAT,
                temperature=0.3),
    *_DREAM.fast(BLOCKS_32), _DREAM.free(ONE_BLOCK, 256),
)  # fmt: skip
DIFFUCODER_CPGRPO = (
    _DREAM.make("example", "Authors' example", "DiffuCoder, README", _DREAM_CHAT, temperature=0.4),
    *DIFFUCODER_INSTRUCT,
)  # fmt: skip
MMADA = (
    _MMADA.make("demo", "Authors' example", "MMaDA, generate.py", Lengths(128, 128, 128)),
    _MMADA.make("app", "Authors' app", "MMaDA, app", Lengths(512, 128, 256)),
    *_MMADA.fast(BLOCKS_32), _MMADA.free(BLOCKS_64, 256),
)  # fmt: skip
TINY_LLADA = _TINY_LLADA.tiny("LLaDA, generate.py", _LLADA_DEMO)
TINY_DREAM = _TINY_DREAM.tiny("Dream, diffusion_generate", Lengths(128, 128, 128))
TINY_BLOCK = _TINY_BLOCK.block_diffusion(Lengths(64, 16, 64), "; other lengths")
