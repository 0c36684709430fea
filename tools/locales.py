#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the library prints and parses numbers in the same way in every locale of C and C++.

A program may have set a locale with a decimal comma, with separators of thousands, or with other letters, and the ranks
of a job may have different ones. Numbers are printed by fmt without `L`, and parsed by std::from_chars. This check finds
what depends on the locale, in src/ and include/. A line that must use it has an entry in ALLOWED, with the reason.

Usage: locales.py [ROOT]
"""
import re
import sys
from pathlib import Path

DEPENDS = re.compile(
    r"\bstd::[io]?stringstream\b"                           # numbers by the C++ locale
    r"|\bstd::sto(?:f|d|ld)\b|\b(?:strto(?:f|d|ld)|atof)\("  # numbers by the C locale
    r"|printf\([^;]*%[-+ #0-9.*]*[aefgAEFG]"
    r"|std::to_string\([^()]*\.(?:\d|count\(\))"
    r"|\{[^{}\"]*:[^{}\"]*L\}"
    r"|\bstd::(?:to(?:lower|upper)|is(?:alnum|alpha|digit|lower|punct|space|upper|xdigit))\b"  # letters
    r"|\b(?:put_time|get_time|put_money|get_money|strftime|strcoll)\b")
STREAM = re.compile(r"\bstd::[io]?fstream\b")

# By file: the part of a line that may stand there, and why.
ALLOWED = {
    "src/training/agreement.cpp": ("std::istringstream lines", "reads lines"),
    "src/training/state_text.cpp": ("std::istringstream stream", "reads words"),
    "src/torch/checkpoint/saved_state.cpp": ("stringstream stream", "carries bytes"),
    "include/kolo/torch/checkpoint.hpp": ("stringstream stream", "carries bytes"),
    "src/torch/optimizer/optimizer_kinds.hpp": ("std::ostringstream text", "prints as LibTorch 1.13 does"),
}


def without_comment(line):
    return re.sub(r"//.*", "", line)


def errors_of(path, name):
    allowed, _ = ALLOWED.get(name, ("", ""))
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        code = without_comment(line)
        found = DEPENDS.search(code)
        if found and not (allowed and allowed in code):
            yield f"{name}:{number}: `{found.group()}` depends on the locale: use fmt or std::from_chars"
    # Numbers are read from a file by >> only in the classic locale.
    if STREAM.search(text) and re.search(r"\bfile >> number\b", text) and "imbue(std::locale::classic())" not in text:
        yield f"{name}: reads numbers from a stream in the program's locale: imbue std::locale::classic()"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    errors = [error for folder in ("src", "include") for path in sorted((root / folder).rglob("*.?pp"))
              for error in errors_of(path, str(path.relative_to(root)))]
    for error in errors:
        print(f"locales: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
