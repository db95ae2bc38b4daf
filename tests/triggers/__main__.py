"""Asks every trigger of KEDA on real servers and compares with the truth, as `scripts/check-deploy` does."""

import argparse
import sys

from tests.triggers.runs import prove_all

# There is nothing to choose, but whoever asks for help does not want servers started.
argparse.ArgumentParser(prog="python -m tests.triggers", description=__doc__).parse_args()
lines = prove_all()
right = sum(line.is_right for line in lines)
slowest = max(line.after_s for line in lines)
print(f"triggers: right={right}/{len(lines)} slowest_s={slowest:.1f}")
sys.exit(right != len(lines))
