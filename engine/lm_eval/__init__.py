"""Evaluation of the engine by the Language Model Evaluation Harness (lm_eval)."""
