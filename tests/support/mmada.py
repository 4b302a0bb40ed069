"""Small checkpoints in the shape of MMaDA's."""

from pathlib import Path

from tests.support.micro import write_checkpoint

TEXT, CODES = 768, 64  # ids of text, then codes of images


def write_mmada(folder: Path, **changes) -> Path:
    """LLaDA's layout and tokenizer, with image codes behind the vocabulary."""
    sizes = dict.fromkeys(("vocab_size", "embedding_size", "new_vocab_size"), TEXT + CODES)
    own = {"architectures": ["MMadaModelLM"], "model_type": "mmada", "llm_vocab_size": TEXT,
           "codebook_size": CODES, "num_vq_tokens": 16, "num_new_special_tokens": 0}  # fmt: skip
    return write_checkpoint(folder, **sizes, **own | changes)
