"""What quantisation cost: perplexity in three phases, and tasks."""

from satchel.eval.evaluation import EvaluationOptions, evaluate

__all__ = ["EvaluationOptions", "evaluate"]
