# SPDX-License-Identifier: Apache-2.0
"""Kolo's programs, which the wheel contains."""

import os
import sys
from pathlib import Path


def _run(name: str) -> None:
    program = Path(__file__).parent / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: this package was built without Kolo's programs")
    os.execv(program, [name, *sys.argv[1:]])


def kolorun() -> None:
    """Starts the ranks of a job."""
    _run("kolorun")


def kolo_diagnose() -> None:
    """Explains flight records, and shows a running job."""
    _run("kolo-diagnose")
