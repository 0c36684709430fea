#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that documents quote files as they are. A block of code after the mark

    <!-- quote: examples/basics/quickstart.cpp -->

consists of lines of that file, in the file's order; line breaks may differ. In a recorded output, lines that begin with
"# " are comments. A line "..." stands for omitted lines. Comments at the ends of lines, lines with only a comment, empty
lines and indentation do not count. In a diff, unchanged and added lines are lines of the file, and after the mark

    <!-- quote: distributed.cpp from single_process.cpp -->

unchanged and removed lines are lines of the second file. Every page of the user guide, as docs/README.md lists it, has
at least one quote.

Usage: quotes.py [ROOT]
"""
import re
import sys
from pathlib import Path

MARK = re.compile(r"^<!-- quote: (\S+)(?: from (\S+))? -->\n+```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = {".cpp": "//", ".hpp": "//", ".c": "//", ".h": "//", ".py": "#", ".sh": "#", ".sbatch": "#", ".yaml": "#", "": "#"}
COMMENT[".txt"] = "# "  # recorded outputs, which have "Iter #1"


def lines_of(text, comment):
    """The lines to compare, without comments and indentation."""
    for line in text.splitlines():
        line = re.split(rf"(?:^|\s){re.escape(comment)}(?!SBATCH)", line, maxsplit=1)[0]
        line = " ".join(line.split())
        if line:
            yield line


def find(chunk, text, begin):
    """Where chunk ends in text, at or after begin; None if it is not there. Lines may be broken elsewhere."""
    pattern = r"\s".join(re.escape(word) for word in " ".join(chunk).split())
    found = re.compile(rf"^{pattern}$", re.MULTILINE).search(text, begin)
    return found.end() if found else None


def differs(block, path):
    """The error in a quote of a file, or None."""
    if not path.is_file():
        return "there is no such file"
    comment = COMMENT.get(path.suffix, "#")
    text = "\n".join(lines_of(path.read_text(encoding="utf-8"), comment))
    position, chunk, chunks = 0, [], []
    for line in [*lines_of(block, comment), "..."]:
        if line != "...":
            chunk.append(line)
        elif chunk:
            chunks.append(chunk)
            chunk = []
    if not chunks:
        return "the block is empty"
    for chunk in chunks:
        end = find(chunk, text, position)
        if end is None:
            missing = [line for line in chunk if line not in text]
            return (f"the file has no line '{missing[0]}'" if missing
                    else f"the lines from '{chunk[0]}' on are not together there, or not in this order")
        position = end
    return None


def side(diff, dropped):
    """A diff without the lines that begin with the sign `dropped`, and without the other signs."""
    return re.sub(rf"^{re.escape(dropped)}.*\n|^[-+ ]", "", diff, flags=re.MULTILINE)


def quote_errors(root, found):
    """The errors in a block, compared with the files that its mark names."""
    new, old, language, block = found.groups()
    parts = [(new, side(block, "-") if language == "diff" else block)]
    if old:
        parts.append((old, side(block, "+")))
    for name, lines in parts:
        wrong = differs(lines, root / name)
        if wrong:
            yield f"not a quote of {name}: {wrong}"


def user_guide(root):
    text = (root / "docs/README.md").read_text(encoding="utf-8")
    section = re.search(r"^## User guide\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    return [root / "docs" / name for name in re.findall(r"\]\(([\w-]+\.md)\)", section[1])] if section else []


def has_example(page):
    """Whether the page quotes a source file, and not only recorded outputs."""
    return re.search("^<!-- quote: (?!docs/measurements/)", page.read_text(encoding="utf-8"), re.MULTILINE) is not None


def check(root):
    errors = []
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.md"))]
    quoted = set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found = list(MARK.finditer(text))
        if len(found) != len(re.findall("^<!-- quote: ", text, re.MULTILINE)):
            errors.append(f"{page}: a mark '<!-- quote: FILE -->' without a block of code")
        for match in found:
            quoted.add(page)
            line = text.count("\n", 0, match.start()) + 1
            errors += [f"{page}:{line}: {wrong}" for wrong in quote_errors(root, match)]
    errors += [f"{page}: a page of the user guide without a quote of a file" for page in user_guide(root)
               if page not in quoted or not has_example(page)]
    return errors


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    errors = check(root)
    for error in errors:
        print(f"quotes: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
