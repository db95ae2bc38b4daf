"""Runs the proof by itself; `scripts/check-deploy` runs it with all else."""

import sys

from tests.triggers.runs import prove_all

lines = prove_all()
right = sum(line.is_right for line in lines)
slowest = max(line.after_s for line in lines)
print(f"triggers: right={right}/{len(lines)} slowest_s={slowest:.1f}")
sys.exit(right != len(lines))
