#!/usr/bin/env python3
"""What residual streams cost on a CPU: user CPU seconds of a step of mHC and of mHC-lite beside Pre-LN's, measured as by step_cpu.py.

    tests/bench/mhc_cpu.py HADAL > tests/bench/results/mhc_cpu.txt

Each row: medians over rounds of runs in turn. Takes about ten minutes."""
import os
import statistics
import sys

from step_cpu import MODELS, setting, step_of

ROUNDS = 5


def main() -> None:
    hadal = sys.argv[1]
    methods = ("pre_ln", "mhc", "mhc_lite")
    print(f"{setting(hadal)}; medians of {ROUNDS} rounds")
    print("# instruction set at most, model, method: user CPU seconds of a step, divided by pre_ln's (least to most), load")
    for limit in ("AVX2", ""):
        for name in ("d=64, 50L-50L", "d=128, 10L-10L"):
            rounds = [[step_of(hadal, f"{MODELS[name]} --method {method}", limit) for method in methods] for _ in range(ROUNDS)]
            for i, method in enumerate(methods):
                ratios = sorted(seconds[i] / seconds[0] for seconds in rounds)
                print(f"{limit or 'any':5} {name:15} {method:9} {statistics.median(seconds[i] for seconds in rounds):7.3f}"
                      f"   {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})   {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
