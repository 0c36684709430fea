#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the relative links in Markdown: the file must be there, and the heading that the link names.

Usage: links.py [ROOT]
"""
import os
import re
import sys
from pathlib import Path

# Folders without documents of this repository.
LEFT_OUT = {"build", ".cache", ".deps", ".git", "data"}


def prose(path):
    """The text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchor(heading):
    """The anchor of a heading, as GitHub and GitLab derive it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(path):
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)}


def documents(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        yield from (Path(folder) / name for name in sorted(names) if name.endswith(".md"))


def check(root):
    errors = []
    for path in documents(root):
        for link in re.findall(r"\]\(([^) ]+)\)", prose(path)):
            if "://" in link or link.startswith("mailto:"):
                continue
            name, _, heading = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists():
                errors.append(f"{path}: broken link: {link}")
            elif heading and target.suffix == ".md" and heading not in anchors(target):
                errors.append(f"{path}: broken link: {link}: there is no such heading")
    return errors


def main():
    errors = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
