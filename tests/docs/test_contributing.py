"""The adapter and the registry entry of the contributor's guide are those of MMaDA."""

import re

from engine.models.loading.families import FAMILIES, Family
from engine.models.loading.registry import MMADA_8B
from engine.models.mmada import MmadaAdapter
from engine.models.tokenizer import Tokenizer
from tests.support.micro import ROOT, TINY

GUIDE = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
ADAPTER, ENTRY = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def example():
    names = {}
    exec(ADAPTER, names)
    return names["MmadaAdapter"]


def test_the_adapter_reads_what_the_engines_own_reads():
    shown = example()
    stops = (126348,)
    assert shown.read_info(MMADA_8B, stops) == MmadaAdapter.read_info(MMADA_8B, stops)
    assert shown.layouts == MmadaAdapter.layouts
    own, guides = (Tokenizer(TINY, one.template) for one in (MmadaAdapter, shown))
    turns = (("user", " One? "), ("assistant", "1"), ("user", "Two?"))
    assert guides.encode_prompt("", turns) == own.encode_prompt("", turns)


def test_the_entry_is_that_of_the_registry():
    entry = eval(ENTRY.strip(), {"Family": Family, "MmadaAdapter": MmadaAdapter})
    assert entry in FAMILIES
