"""Command line: write the zoo's models with their weights filled in.

    python -m bench.zoo.materialize OUT_DIR [NAME ...]

All 18 models take 2.3 GB. Each `OUT_DIR/NAME.onnx` comes with `OUT_DIR/NAME.npz`, one set of inputs by input name.
Models that are already there and sound are kept. From Python, call `bench.zoo.materialize`.
"""

import argparse

from bench import zoo

if __name__ != "__main__":  # importing this module would put it in the place of the function of the same name
    raise ImportError("bench.zoo.materialize is a function; this module is its command line: python -m")


def main() -> None:
    """Read the command line, write the models and print their paths."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo.materialize", description="Write the benchmark models.")
    parser.add_argument("out_dir", metavar="OUT_DIR", help="folder to write to; made if missing")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"models, default all: {', '.join(zoo.names())}")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(zoo.names()))
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(zoo.names())}")
    for name in arguments.names or zoo.names():
        for path in zoo.materialize(arguments.out_dir, [name]):
            print(path, flush=True)


main()
