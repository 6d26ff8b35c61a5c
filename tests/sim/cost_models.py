"""Small cost models of every form for tests."""

from decimal import Decimal

from sim.cost.model import CostModel, cost_model_from_dict


def max_affine() -> CostModel:
    """Pieces that cross within a few batches: a decode run changes pieces in the middle."""
    pieces = {
        "attention": [{"batch": "0.02", "decode_batch": "0.01"}, {"decode_reads": "0.0007", "prefill_square": "1e-5"},
                      {"decode_reads": "0.0009", "n_prefill": "0.001", "prefill_reads": "0.0003"}],
        "other": [{"batch": "0.05"}, {"batch": "0.01", "tokens": "0.004"}],
    }  # fmt: skip
    groups = [{"name": name, "pieces": [{f: Decimal(v) for f, v in piece.items()} for piece in lines]}
              for name, lines in pieces.items()]  # fmt: skip
    data = {"schema_version": 1, "name": "test", "kind": "max-affine", "layers": 4, "groups": groups}
    return cost_model_from_dict(data, "test")
