"""A fuzzer that is guided by coverage, on one decoder. Needs ``pip install atheris``, which is no dependency of ours.

python -m tests.faults.fuzzing documents -max_total_time=300 CORPUS tests/faults/seeds/documents
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["slime_store"]):
    from tests.faults import fuzz

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, lambda data: fuzz.run(name, data))
    atheris.Fuzz()
