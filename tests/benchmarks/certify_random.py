"""1,000 random instances through ``certify``: results as they are, and tampered with.

    python tests/benchmarks/certify_random.py [INSTANCES]

Each result is certified as it is (it must not be refuted) and after three kinds of tampering (each must be refused).
The mutations are those of tests/bounds/test_certify.py. Takes about ten minutes of one core.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bounds.test_certify import confirmed_and_refused


def main() -> None:
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    began = time.process_time()
    verdicts: Counter[str] = Counter()
    tried = wrong = 0
    for seed in range(instances):
        try:
            verdict, mutations = confirmed_and_refused(10_000 + seed, 3)
        except AssertionError as error:
            wrong += 1
            print(f"not refused: {error}")
            continue
        verdicts[verdict] += 1
        tried += mutations
    print(f"{instances} instances, {time.process_time() - began:.0f} s CPU")
    print(f"  as they are: {verdicts['confirmed']} confirmed without the solver, {verdicts['open']} partly open, "
          f"{verdicts['refuted']} refuted (must be 0)")  # fmt: skip
    print(f"  tampered with: {tried} tried, {wrong} not refused (must be 0)")


if __name__ == "__main__":
    main()
