"""Random models against onnxruntime and onnx's reference, from the command line.

    python -m tests.fuzz --first 1000 --count 500 --profile fusion
    python -m tests.fuzz --first 1234 --count 1 --profile general --minimise

A line for each finding, with its profile and seed. A crash of the process is one, too: the last line of --progress
has the seed, and --guards goes on behind it. The exit status is 1 if there were findings.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import warnings

from tests.fuzz.growing import Left
from tests.fuzz.judging import judge, judge_guarded
from tests.fuzz.minimising import minimise, text
from tests.fuzz.profiles import GROWN, PROFILES, again, draw, level


def main() -> int:
    """Judge the seeds that the arguments tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    parser.add_argument("--profile", choices=PROFILES, action="append", help="what is drawn; all by default")
    parser.add_argument("--level", type=int, choices=(0, 99), help="the optimisation level; the seed tells by default")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--guards", action="store_true", help="under guard pages, each model in a process of its own")
    parser.add_argument("--minimise", action="store_true", help="print failing graphs as small as they can be made")
    parser.add_argument("--progress", action="store_true", help="print each seed before it is judged")
    given = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    judged, findings, end = 0, 0, time.monotonic() + given.seconds
    for seed in range(given.first, given.first + given.count):
        for profile in given.profile or PROFILES:
            if time.monotonic() > end:
                break
            if given.progress:
                print(f"{profile} {seed}", file=sys.stderr, flush=True)
            at = level(seed) if given.level is None else given.level
            try:
                found = (judge_guarded if given.guards else judge)(draw(profile, seed), at, again(seed))
            except Left:
                continue
            judged += 1
            if found is not None:
                findings += 1
                print(f"{profile} {seed} at level {at}: {found}", flush=True)
                if given.minimise and profile in GROWN and (smaller := minimise(GROWN[profile](seed), at)) is not None:
                    print(f"{smaller[1]}\n{text(smaller[0])}", flush=True)
    print(f"{judged} models, {findings} findings")
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
