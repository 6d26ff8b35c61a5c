"""Cost models: how long a batch takes. Every kind is a sum of operator groups, each the largest of affine pieces."""

from sim.cost.model import CostModel, Features, OperatorGroup, cost_model_names, load_cost_model

__all__ = ["CostModel", "Features", "OperatorGroup", "cost_model_names", "load_cost_model"]
