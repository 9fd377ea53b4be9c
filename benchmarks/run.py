"""Benchmarks: `python benchmarks/run.py [NAME ...]` runs them all, or those named.

Each benchmark compares side by side in one run and returns tidy records. `--out DIR` also writes
them as JSON and CSV.
"""

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from jaxmem import results
from jaxmem.common.table import text_table

REGISTRY = {
    "prefix_cache": "the whole hit curve against replays of an OrderedDict and libCacheSim",
    "roofline": "a million settings of the cost model in one call against its numpy twin",
    "recall": "training a cartridge against numpy and PyTorch; memories in chunks and one by one",
    "dialogue": "eleven memory systems on a thousand conversations against numpy",
    "sessions": "a thousand sessions of MemGPT in four layouts against lean plain Python",
    "lm": "forward, training, teacher and decoding of a language model against transformers",
    "agents": "search and writing at 10^5 memories against numpy and sqlite-vec",
    "doctor_peers": "the doctor on a log of prompts, alone and beside kvlint and llmtrafficlens",
    "kernel_efficiency": "errors of the fitted kernel times on points left out, and on SGLang",
}


def main() -> None:
    """Run benchmarks and print a table each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    what = "\n".join(f"{name}: {text}" for name, text in REGISTRY.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=what)
    parser.add_argument("--out", type=Path, help="folder for NAME.json and NAME.csv")
    args = parser.parse_args()
    for name in args.names:
        if name not in REGISTRY:
            parser.error(f"unknown benchmark {name!r} (known: {', '.join(REGISTRY)})")
    print(", ".join(f"{key} {value}" for key, value in results.stamp().items()))
    for name in args.names or REGISTRY:
        records = importlib.import_module(name).main()
        print(f"\n{name}: {REGISTRY[name]}\n")
        columns = list(dict.fromkeys(key for row in records for key in row))
        print(text_table(columns, [[row.get(key) for key in columns] for row in records]))
        if args.out:
            results.write_records(args.out / f"{name}.json", records)
            results.write_records(args.out / f"{name}.csv", records)


if __name__ == "__main__":
    main()
