"""FLOPs, memory and time of a run on a model whose weights are not needed."""
