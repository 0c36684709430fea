#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the names in backquotes in CONTRIBUTING.md and docs/architecture.md exist:

- A path, such as `src/base/format.cpp`, is a file or folder. `NAME` in it stands for any text, and a path may have `*`.
  docs/architecture.md may leave out `src/`.
- A file name without folder, such as `format.cpp`, is the name of a file.
- An identifier, such as `Router::Options` or `submit()`, is in a file of src/, include/, tests/, tools/ or cmake/, or in
  dev; the parts of a qualified one are in one file. In "`check` in `src/backend/batch.cpp`", "`check` (`batch.cpp`)" and
  "`src/backend/batch.cpp`: `check`" it is in that file.
- A command, such as `./dev docs`, has words that are in dev.

Blocks of code, and other text in backquotes, are not checked.

Usage: names.py [ROOT]
"""
import fnmatch
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import links  # noqa: E402  pylint: disable=wrong-import-position

# The pages, and the folders to which their paths may be relative.
DOCUMENTS = {
    "CONTRIBUTING.md": [""],
    "docs/architecture.md": ["", "src/"],
}
SOURCES = ("src", "include", "tests", "tools", "cmake")
IDENTIFIER = re.compile(r"[A-Za-z_][\w-]*(?:::~?\w+)*(?:\(\))?")
FILE_NAME = re.compile(r"[\w.*-]+\.(?:cpp|hpp|h|cu|cmake|csv|fbs|md|py|sh|txt)")
PATH = re.compile(r"[\w./*-]+/[\w./*-]*")
# A name and its file, in the ways in which pages say it.
PLACES = [re.compile(pattern) for pattern in (r"`(?P<name>[^`\s]+)`\s+(?:in|of)\s+`(?P<path>[^`\s]+)`",
                                              r"`(?P<name>[^`\s]+)`\s+\(`(?P<path>[^`\s]+)`\)",
                                              r"`(?P<path>[^`\s]+)`:\s+`(?P<name>[^`\s]+)`")]


class Tree:
    """The files below a folder, and the words in the source files among them."""

    def __init__(self, root):
        self.root = root
        self.names, self.words = set(), {}
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in links.LEFT_OUT]
            self.names.update(names)
            relative = Path(folder).relative_to(root)
            for name in names:
                if relative.parts[:1] and relative.parts[0] in SOURCES or (relative / name) == Path("dev"):
                    self.words[relative / name] = words_of(Path(folder) / name)

    def files(self, path, starts=("",)):
        """The source files to which a path or a file name refers."""
        pattern = pattern_of(path)
        if "/" not in path:
            return [file for file in self.words if fnmatch.fnmatch(file.name, pattern)]
        return [file for file in self.words if any(
            fnmatch.fnmatch(str(file), start + pattern + end) for start in starts for end in ("", "/*"))]

    def has_path(self, path, starts):
        pattern = pattern_of(path)
        if "/" in path:
            return not pattern or any(any(self.root.glob(start + pattern)) for start in starts)
        return any(fnmatch.fnmatch(name, pattern) for name in self.names)

    def has_identifier(self, name, files=None):
        parts = re.findall(r"[\w-]+", name)
        return any(all(part in self.words[file] for part in parts) for file in (self.words if files is None else files))


def words_of(path):
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # an input of the fuzzer
        return set()
    return set(re.findall(r"\w+", text)) | set(re.findall(r"\w+(?:-\w+)+", text))


def pattern_of(path):
    return path.removeprefix("./").rstrip("/").replace("NAME", "*")


def is_path(name):
    if name.startswith("/"):  # on a user's machine
        return False
    return PATH.fullmatch(name) is not None or FILE_NAME.fullmatch(name) is not None


def errors_of(tree, text, starts):
    for name in dict.fromkeys(re.findall(r"`([^`]+)`", text)):
        if name.startswith("./dev "):
            missing = [word for word in name.split()[1:] if not tree.has_identifier(word, tree.files("./dev"))]
            if missing:
                yield f"`{name}`: dev has no {missing[0]}"
        elif is_path(name):
            if not tree.has_path(name, starts):
                yield f"`{name}`: there is no such file or folder"
        elif IDENTIFIER.fullmatch(name) and not tree.has_identifier(name):
            yield f"`{name}`: no file of {', '.join(SOURCES)} has this name"
    for place in PLACES:
        for found in place.finditer(text):
            name, path = found["name"], found["path"]
            if IDENTIFIER.fullmatch(name) and not is_path(name) and is_path(path) and tree.has_path(path, starts):
                if not tree.has_identifier(name, tree.files(path, starts)):
                    yield f"`{name}` is not in `{path}`"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    tree = Tree(root)
    errors = [f"{document}: {error}" for document, starts in DOCUMENTS.items() if (root / document).exists()
              for error in errors_of(tree, links.prose(root / document), starts)]
    for error in errors:
        print(f"names: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
