"""Reasons: sentence templates that say on the page why a row was, or was not, recomputed.

A cache policy gives a tuple of `Reason`. Of these the first whose conditions all hold for a row is
shown, after "Recomputed: " or "Not recomputed: "; the last should have no condition.

`when` holds conditions separated by spaces; a leading `!` negates one.

- `first_step`, `first_layer`: the first step of the run, the first layer of the model.
- `full`: the step's StepPlan has the kind `full`. `new_block`: the step is the run's first in its
  block; the run may continue another one that had begun the block.
- `prompt`, `block`, `rest`, `answer`: the region that the row belongs to; the answer is block and
  rest. `after_block`: the row comes after the current block.
- `refresh`: the policy planned to recompute the row's whole region in this step;
  `refresh:prompt`, `refresh:block` and `refresh:rest` are about the region named.
- `recomputed`, `reused`: all, or none, of the row's K, V, attention output and feed-forward output
  were computed in this step and layer. `recomputed:ffn`: that site was (`k`, `v`, `attn`, `ffn`).
- `every_row`: every row that entered the step was recomputed, at all sites of all layers.
- `again`: the row is recomputed in a later step.
- `no:FACT`: the layer's value of a fact (`CachePolicy.facts`) is 0 or negative.
- `KNOB=VALUE`: the value of a knob; `KNOB=` if it is empty.

`text` may hold placeholders. A part in square brackets is left out if a placeholder in it has no
value.

- `{title}`, `{layer}`, `{block}`: the title of the method; numbers counted from 1.
- `{rows}`: the number of rows that entered the step, such as "24 rows".
- `{share}`: the rows recomputed in this step and layer, such as "8 of 32 rows (25 %)";
  `{share:ffn}` counts by that site, `{share:ffn:answer}` the rows of the answer alone.
- `{times}`: "last at step 1, next at step 9", the steps that recompute the row in this layer;
  `{refreshes}` the same for the refreshes of its region, `{refreshes:prompt}` of that region.
- `{drift:v}`: how far the row's `k`, `v` or `q0` (query of the first head) has drifted.
- `{rank:k}`: the place of that drift among the answer's rows, the largest first, such as "rank 41
  of 128"; `k`, `v` or `attn`. Empty unless the drift of every row of the answer is known.
- `{cut:k:ffn}`: the rank, and the least drift of the answer's rows recomputed at the site, such as
  "drift 0.00004, rank 41 of 128; the cut-off for 32 rows was 0.0012". For a method that selects by
  just this drift; empty also where the recomputed rows are not those of the largest drift.
- `{fact:NAME}`, `{percent:NAME}`: the layer's value of a fact, if above 0.
- `{knob:NAME}`: the value of a knob. `{every:NAME}`: an interval, such as "every 8 steps".
"""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """A sentence template and the conditions under which it applies."""

    text: str
    when: str = ""


GENERIC = (
    Reason("{title} recomputes every row in this step", "full"),
    Reason("{title} recomputes {share} in this layer, and this row is not among them; {times}",
           "reused"),
    Reason("{title} recomputes {share} in this layer, this row among them; {times}"),
)  # fmt: skip
