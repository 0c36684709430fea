#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks and measures how the sources of src/ and include/ are divided into folders.

  tools/structure.py                check the working tree against the table in docs/architecture.md
  tools/structure.py --measure      print the sizes of the tree as a Markdown table
  tools/structure.py --csv          print the sizes as docs/measurements/structure.csv has them
  tools/structure.py --arrows       print which folders include which, with the number of includes
  tools/structure.py --functions N  print the N longest functions

--revision REVISION (may be repeated) measures commits instead of the working tree, one column each.

The check has limits, too: a folder holds at most 25 source files, a class lives in at most two .cpp
files, a function has at most 44 lines, and a public header at most 300.

The table has one row per folder: the folder, what lives there, and the folders that its files may
include. A folder is named by its path below src/, or by its whole path below include/. The rows
stand in the order of the folders: a folder may only include folders of earlier rows.

Two kinds of headers are treated specially. A public header that has nothing but includes (an umbrella)
gives its folder no dependency. A folder `detail/` belongs to the folder above it, and its headers may include
the header whose part they are.
"""

import argparse
import collections
import csv
import dataclasses
import datetime
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile

TABLE = "docs/architecture.md"
SOURCES = (".hpp", ".h", ".cpp", ".cu", ".fbs", ".hpp.in")

MAX_FILES = 25  # of a folder
MAX_CPP_FILES = 2  # of a class
MAX_FUNCTION = 44  # lines
MAX_PUBLIC_HEADER = 300  # lines
MAX_FILE = 400  # lines

# The only files that a build without MPI leaves out, so that no others may include mpi.h, not even by way
# of a header.
MPI = re.compile(
    r"include/kolo/mpi\.hpp|src/messenger/mpi_messenger\.[ch]pp|src/node/mpi_codes\.cpp|src/session/api/mpi\.cpp"
    r"|src/session/job/mpi_environment\.cpp|src/session/job/mpi_rendezvous\.[ch]pp"
    r"|src/session/startup/over_mpi\.cpp|src/transport/mpi_transport\.[ch]pp")

# Comments, and the literals that may contain `//` or `/*`. An apostrophe after a letter or digit
# is a digit separator.
TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)"""
    r"""|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\""""
    r"""|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE)
# The head of a member function outside of its class, and the class's name; what is nested in a class counts as its
# own. Or the head of a namespace.
MEMBER = re.compile(r"^namespace ([\w:]+) \{|^(?!\s)(?:[^\n(]*[ *&])?((?:[a-z]\w*::)*[A-Z]\w*)(?:<[^<>()]*>)?::"
                    r"(?:[A-Z]\w*(?:<[^<>()]*>)?::)*(?:~?\w+|operator[^\s(]+) ?\(", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def without_comments(text):
    """The text without its comments. Line breaks stay, so that line numbers do not change."""
    def blank(match):
        if match["comment"] is None:
            return match[0]
        return " " + "\n" * match["comment"].count("\n")
    return TOKEN.sub(blank, text)


@dataclasses.dataclass(frozen=True)
class Include:
    source: str
    line: int
    target: str


class Tree:
    """The files below src/ and include/, by path."""

    def __init__(self, files, table=None):
        self.files = files
        self.table = table  # the text of docs/architecture.md
        self.code = {path: without_comments(text) for path, text in files.items() if path.endswith(SOURCES)}
        self._targets = self._find_targets()
        self.includes = [include for path in sorted(self.code) for include in self._includes_of(path)]

    @staticmethod
    def of_directory(root):
        try:
            listed = subprocess.run(
                ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "src", "include"],
                cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
        except (OSError, subprocess.CalledProcessError):  # no repository, such as an unpacked archive, or no git
            listed = [path.relative_to(root).as_posix() for folder in ("src", "include")
                      for path in (root / folder).rglob("*")]
        paths = [path for path in sorted(set(listed)) if (root / path).is_file()]
        table = root / TABLE
        return Tree({path: (root / path).read_text(encoding="utf-8", errors="replace") for path in paths},
                    table.read_text(encoding="utf-8") if table.exists() else None)

    @staticmethod
    def of_revision(root, revision):
        archive = subprocess.run(["git", "archive", revision], cwd=root, check=True, capture_output=True).stdout
        files, table = {}, None
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if not member.isfile() or not (member.name.startswith(("src/", "include/")) or member.name == TABLE):
                    continue
                text = tar.extractfile(member).read().decode("utf-8", errors="replace")
                if member.name == TABLE:
                    table = text
                else:
                    files[member.name] = text
        return Tree(files, table)

    def _find_targets(self):
        """Maps the texts of #include lines to files."""
        targets = {}
        for path in self.code:
            name = path.removesuffix(".in")
            if name.endswith(".fbs"):  # the header that flatc generates from it
                name = name.removesuffix(".fbs") + "_generated.h"
                targets[name.rsplit("/", 1)[-1]] = path
            targets[name.split("/", 1)[1]] = path
            targets[name] = path
        return targets

    def _includes_of(self, path):
        code = self.code[path]
        for match in INCLUDE.finditer(code):
            beside = str(pathlib.PurePosixPath(path).parent / match[1])
            target = self._targets.get(match[1]) or self._targets.get(beside)
            if target:
                yield Include(path, code.count("\n", 0, match.start()) + 1, target)

    def is_umbrella(self, path):
        if not (path.startswith("include/") and path.endswith((".hpp", ".h"))):
            return False
        lines = (line.strip() for line in self.code[path].splitlines())
        return all(line in ("", "#pragma once") or line.startswith(("#include", "#ifndef", "#define", "#endif"))
                   for line in lines)

    def folders(self):
        return sorted({folder_of(path) for path in self.code})

    def arrows(self):
        """The includes across folders, by (folder, included folder)."""
        arrows = collections.defaultdict(list)
        for include in self.includes:
            ends = folder_of(include.source), folder_of(include.target)
            if ends[0] != ends[1] and not self.is_umbrella(include.source):
                arrows[ends].append(include)
        return dict(arrows)

    def file_edges(self):
        pairs = {(include.source, include.target) for include in self.includes}
        return {(source, target) for source, target in pairs
                if not ("/detail/" in source and (target, source) in pairs)}


def folder_of(path):
    """The folder as the table names it."""
    parts = path.split("/")[:-1]
    parts = [part for part in parts if part != "detail"]
    return "/".join(parts[1:] if parts[0] == "src" else parts)


@dataclasses.dataclass
class Row:
    line: int
    place: int
    may_include: set


def read_table(text):
    """The rows of the first table with a column "may include", by folder; None if there is no such table."""
    rows, column = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("|"):
            if rows:
                break
            column = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if column is None:
            heads = [cell.lower() for cell in cells]
            column = heads.index("may include") if heads[0].startswith("folder") and "may include" in heads else -1
        elif column > 0 and not set(line) <= set("|-: "):
            for folder in names_in(cells[0]):
                if folder in rows:
                    raise SystemExit(f"{TABLE}:{number}: {folder} has two rows")
                rows[folder] = Row(number, len(rows), names_in(cells[column] if column < len(cells) else ""))
    return rows or None


def names_in(cell):
    return {name.rstrip("/") for name in re.findall(r"`([^`]+)`", cell)}


def cycles(edges):
    """The strongly connected components of more than one node, sorted."""
    following = collections.defaultdict(list)
    for source, target in sorted(edges):
        following[source].append(target)
        following.setdefault(target, [])
    number, low, stack, found = {}, {}, [], []

    def visit(root):
        number[root] = low[root] = len(number)
        stack.append(root)
        work = [(root, iter(following[root]))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in number:
                    number[target] = low[target] = len(number)
                    stack.append(target)
                    work.append((target, iter(following[target])))
                    break
                if target in stack:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    first = stack.index(node)
                    if len(stack) - first > 1:
                        found.append(sorted(stack[first:]))
                    del stack[first:]

    for node in sorted(following):
        if node not in number:
            visit(node)
    return sorted(found)


def check(tree):
    """The violations of the rules, as lines of text."""
    if tree.table is None:
        return [f"{TABLE}: is missing"]
    rows = read_table(tree.table)
    if rows is None:
        return [f"{TABLE}: has no table with the columns \"folder\" and \"may include\""]
    errors = []
    folders = set(tree.folders())
    for folder in sorted(folders - rows.keys()):
        path = min(path for path in tree.code if folder_of(path) == folder)
        errors.append(f"{path}:1: the folder {folder} has no row in {TABLE}")
    for folder, row in rows.items():
        if folder not in folders:
            errors.append(f"{TABLE}:{row.line}: there is no folder {folder}")
        for other in sorted(row.may_include):
            if other not in rows:
                errors.append(f"{TABLE}:{row.line}: {folder} may include {other}, which has no row")
            elif rows[other].place >= row.place:
                errors.append(f"{TABLE}:{row.line}: {folder} may include {other}, which stands at or below it")
    arrows = tree.arrows()
    for (source, target), includes in sorted(arrows.items()):
        if source in rows and target not in rows[source].may_include:
            errors += [f"{include.source}:{include.line}: {source} may not include {target} ({include.target}); "
                       f"see {TABLE}:{rows[source].line}" for include in includes]
    errors += [f"folders that include each other: {', '.join(cycle)}" for cycle in cycles(arrows)]
    errors += [f"{cycle[0]}:1: files that include each other: {', '.join(cycle)}"
               for cycle in cycles(tree.file_edges())]
    return errors + check_mpi(tree) + check_sizes(tree)


def files_of_classes(tree):
    """The .cpp files that define members of each class."""
    files = collections.defaultdict(set)
    for path, code in tree.code.items():
        if path.endswith((".cpp", ".cu")):
            namespace = ""
            for match in MEMBER.finditer(code):
                if match[1]:
                    namespace = match[1] + "::"
                else:
                    files[namespace + match[2]].add(path)
    return files


def check_sizes(tree):
    errors = []
    for folder, count in sorted(collections.Counter(map(folder_of, tree.code)).items()):
        if count > MAX_FILES:
            errors.append(f"{folder}: {count} source files; at most {MAX_FILES}: which rooms does it hold?")
    for name, paths in sorted(files_of_classes(tree).items()):
        if len(paths) > MAX_CPP_FILES:
            errors.append(f"{min(paths)}: {name} lives in {len(paths)} files ({', '.join(sorted(paths))}); "
                          f"at most {MAX_CPP_FILES}: split the class by its members")
        start = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.split("::")[-1]).lower()
        errors += [f"{path}: holds members of {name}, as another file does; its name must begin with {start}"
                   for path in sorted(paths) if len(paths) > 1 and not pathlib.Path(path).name.startswith(start)]
    errors += [f"{path}:{line}: a function of {lines} lines; at most {MAX_FUNCTION}: {head}"
               for lines, path, line, head in functions(tree) if lines > MAX_FUNCTION]
    errors += [f"{path}: {text.count(chr(10))} lines; a public header has at most {MAX_PUBLIC_HEADER}"
               for path, text in sorted(tree.files.items())
               if path.startswith("include/") and text.count("\n") > MAX_PUBLIC_HEADER]
    errors += [f"{path}: {text.count(chr(10))} lines; a file has at most {MAX_FILE}"
               for path, text in sorted(tree.files.items()) if text.count("\n") > MAX_FILE]
    return errors


def check_mpi(tree):
    """The files that include mpi.h although a build without MPI has them too."""
    errors = []
    for path, code in sorted(tree.code.items()):
        if MPI.fullmatch(path):
            continue
        if any(match[1] == "mpi.h" for match in INCLUDE.finditer(code)):
            errors.append(f"{path}: may not include mpi.h: it is built without MPI too")
        errors += [f"{include.source}:{include.line}: may not include {include.target}: it is built without MPI too"
                   for include in tree.includes if include.source == path and MPI.fullmatch(include.target)]
    return errors


def code_lines(code):
    return sum(1 for line in code.splitlines() if line.strip())


def functions(tree):
    """Function definitions as (lines, path, line, head), the longest first; relies on .clang-format."""
    other = re.compile(r"^\s*(namespace|class|struct|union|enum|if|else|for|while|do|switch|case|try|catch|return|"
                       r"static constexpr|constexpr auto|extern)\b")
    found = []
    for path, code in tree.code.items():
        lines = code.splitlines()
        for start, line in enumerate(lines):
            if not line.endswith("{"):
                continue
            head = start
            while head > 0 and lines[head - 1].strip() and not re.search(r"[;{}:>]\s*$|^\s*#", lines[head - 1]):
                head -= 1
            text = " ".join(part.strip() for part in lines[head:start + 1])
            indentation = re.match(r"\s*", lines[head])[0]
            if "(" not in text or other.match(text) or " = " in text or re.match(r"[}\].]", text) \
                    or re.search(r"\[[&=\w, ]*\]\s*[({]", text):
                continue
            end = next((index for index in range(start + 1, len(lines)) if lines[index].startswith(indentation + "}")), None)
            if end is not None and lines[end].strip() == "}":
                found.append((end - head + 1, path, head + 1, text[:80]))
    return sorted(found, key=lambda item: (-item[0], item[1], item[2]))


def measures(tree):
    rows = read_old_order(tree.table or "")
    lengths = [text.count("\n") for path, text in tree.files.items() if path in tree.code]
    arrows = tree.arrows()
    places = {folder: next((place for place, prefix in enumerate(rows) if (folder + "/").startswith(prefix + "/")), None)
              for folder in tree.folders()}
    upward = [ends for ends in arrows if None not in map(places.get, ends) and places[ends[0]] < places[ends[1]]]
    in_cycles = cycles(arrows)
    longest = functions(tree)
    code = {path: code_lines(text) for path, text in tree.code.items()}
    # The line that names the license does not count as a comment.
    comments = {path: code_lines(tree.files[path]) - lines - ("SPDX-License-Identifier" in tree.files[path])
                for path, lines in code.items()}
    of_cpp = [path for path in code if path.endswith((".cpp", ".cu"))]
    return [
        ("files of any kind", len(tree.files)),
        ("source files", len(code)),
        ("lines in source files", sum(lengths)),
        ("code lines", sum(code.values())),
        ("lines with only a comment", sum(comments.values())),
        ("the same in .cpp and .cu files, percent of their code lines",
         round(100 * sum(comments[path] for path in of_cpp) / max(1, sum(code[path] for path in of_cpp)), 1)),
        ("median file length, lines", statistics.median(lengths) if lengths else 0),
        ("source files below 30 lines", sum(length < 30 for length in lengths)),
        ("longest file, lines", max(lengths, default=0)),
        ("functions", len(longest)),
        ("longest function, lines", longest[0][0] if longest else 0),
        ("folders", len(tree.folders())),
        ("arrows between folders", len(arrows)),
        ("includes between folders", sum(map(len, arrows.values()))),
        ("arrows against the order of the table", len(upward)),
        ("folders that are not in the table", sum(place is None for place in places.values())),
        ("folders in include cycles", sum(map(len, in_cycles))),
        ("files in include cycles", sum(map(len, cycles(tree.file_edges())))),
        ("source files of the largest folder", max(collections.Counter(map(folder_of, code)).values(), default=0)),
        ("classes in more than two .cpp files",
         sum(len(paths) > MAX_CPP_FILES for paths in files_of_classes(tree).values())),
        ("public headers", sum(path.startswith("include/") for path in code)),
        ("longest public header, lines",
         max((text.count("\n") for path, text in tree.files.items() if path.startswith("include/")), default=0)),
    ]


def read_old_order(text):
    """The folders in the order of the first table that has a column for them, even one without "may include"."""
    order, inside = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            if order:
                break
            inside = False
        elif not inside:
            inside = True
            wanted = line.lower().lstrip("| ").startswith("folder")
        elif wanted:
            for name in re.findall(r"`([^`]+/)`", line.strip("|").split("|")[0]):
                braces = re.search(r"\{(.*)\}", name)
                order += [name.replace(braces[0], part).rstrip("/") for part in braces[1].split(",")] if braces \
                    else [name.rstrip("/")]
    return order


def print_table(head, rows):
    print(f"| {' | '.join(head)} |")
    print(f"| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")


def print_csv(trees, root):
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=root, check=True, capture_output=True,
                            text=True).stdout.strip()
    today = datetime.date.today()
    columns = [dict(measures(tree)) for tree in trees.values()]
    print("# The size of the source tree at several commits; \"now\" is the tree that this file belongs to.")
    print("# Command: tools/structure.py --csv" + "".join(f" --revision {name}" for name in trees if name != "HEAD")
          + (" --revision HEAD" if "HEAD" in trees else ""))
    print(f"# Recorded at commit {commit} ({today}).")
    print("# Machine: any.")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["what", *("now" if name in ("HEAD", "working tree") else name for name in trees)])
    writer.writerows([what, *(column[what] for column in columns)] for what in columns[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="print sizes")
    parser.add_argument("--csv", action="store_true", help="print sizes as comma-separated values")
    parser.add_argument("--arrows", action="store_true", help="print which folders include which")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="print the N longest functions")
    parser.add_argument("--revision", action="append", default=[], help="a commit instead of the working tree")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent,
                        help="the repository")
    options = parser.parse_args()
    trees = {revision: Tree.of_revision(options.root, revision) for revision in options.revision} \
        or {"working tree": Tree.of_directory(options.root)}
    for name, tree in trees.items():
        if options.arrows:
            counts = collections.defaultdict(dict)
            for (source, target), includes in sorted(tree.arrows().items()):
                counts[source][target] = len(includes)
            print_table(["folder", f"includes ({name})"],
                        [(f"`{source}`", ", ".join(f"`{target}` {count}" for target, count in targets.items()))
                         for source, targets in counts.items()])
        if options.functions:
            print_table([f"function ({name})", "lines"],
                        [(f"`{head}` {path}:{line}", lines)
                         for lines, path, line, head in functions(tree)[:options.functions]])
    if options.measure:
        columns = [dict(measures(tree)) for tree in trees.values()]
        print_table(["", *trees], [(what, *(column[what] for column in columns)) for what in columns[0]])
    if options.csv:
        print_csv(trees, options.root)
    if options.measure or options.csv or options.arrows or options.functions:
        return 0
    failed = False
    for tree in trees.values():
        for error in check(tree):
            failed = True
            print(error, file=sys.stderr)
    if not failed:
        print("Every folder includes what its row in docs/architecture.md allows; there are no cycles.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
