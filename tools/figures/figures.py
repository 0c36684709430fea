#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documents, and writes the tables that stand between marks in them, from the
measurements in docs/measurements/. Checks the values in their running text (values.py).

Usage: figures.py [--check] [ROOT]
  --check   changes nothing, and names the pictures and documents that differ from the measurements
"""
import csv
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import charts  # noqa: E402  pylint: disable=wrong-import-position
import diagrams  # noqa: E402  pylint: disable=wrong-import-position
import tables  # noqa: E402  pylint: disable=wrong-import-position
import values  # noqa: E402  pylint: disable=wrong-import-position

MARK = re.compile(r"^(<!-- figures: (\w+) -->\n).*?^(<!-- figures: end -->)$", re.DOTALL | re.MULTILINE)
# The fields that each file of measurements has in the comments at its beginning.
NEEDED = (("# Command: ",), ("# Recorded at commit", "# Transcribed from"), ("# Machine: ",))


def measurements(folder):
    """The rows of each file, and the errors in the files."""
    data, errors = {}, []
    for path in [*sorted(folder.glob("*.csv")), *sorted(folder.glob("outputs/*.txt"))]:
        lines = path.read_text(encoding="utf-8").splitlines()
        comments = [line for line in lines if line.startswith("#")]
        errors += [f"{path}: no line begins with '{words[0]}'" for words in NEEDED
                   if not any(line.startswith(words) for line in comments)]
        if path.suffix == ".csv":
            data[path.stem] = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return data, errors


def documents(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.md"))]


def wanted(root, data):
    """The content that each picture and each document should have, and the errors."""
    files, errors, used, texts = {}, [], set(), {}
    for name, draw in charts.CHARTS.items():
        files[root / "docs/pictures" / f"{name}.svg"] = draw(data).svg()
    for name, draw in diagrams.DIAGRAMS.items():
        files[root / "docs/pictures" / f"{name}.svg"] = draw().svg()
    for path in documents(root):
        text = texts[path] = path.read_text(encoding="utf-8")
        if len(re.findall("^<!-- figures: ", text, re.MULTILINE)) != 2 * len(MARK.findall(text)):
            errors.append(f"{path}: a mark '<!-- figures: NAME -->' without its '<!-- figures: end -->'")
        for _, name, _ in MARK.findall(text):
            used.add(name)
            if name not in tables.TABLES:
                errors.append(f"{path}: there is no table '{name}'")
        if not errors:
            files[path] = MARK.sub(lambda found: found[1] + tables.TABLES[found[2]](data) + "\n" + found[3], text)
    errors += [f"no document shows the table '{name}'" for name in tables.TABLES if name not in used]
    shown = "".join(texts.values())
    errors += values.check(texts, data)
    errors += [f"no document quotes {path}" for path in (root / "docs/measurements/outputs").glob("*")
               if f"docs/measurements/outputs/{path.name} -->" not in shown]
    errors += [f"no document shows {path.name}" for path in files if path.suffix == ".svg" and path.name not in shown]
    drawn = set(files)
    errors += [f"{path}: nothing draws it" for path in (root / "docs/pictures").glob("*") if path not in drawn]
    return files, errors


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    roots = [argument for argument in arguments if argument != "--check"]
    root = Path(roots[0]) if roots else Path(__file__).resolve().parents[2]
    data, errors = measurements(root / "docs/measurements")
    files, more = wanted(root, data)
    errors += more
    for path, content in files.items():
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        if check:
            errors.append(f"{path}: differs from docs/measurements; run tools/figures/figures.py")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(f"written: {path}")
    for error in errors:
        print(f"figures: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
