#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares a public header for Doxygen, so that headers need no commands of Doxygen's:

- the comment at the top of a file describes the file;
- what a file declares belongs to the area that AREAS names, which areas.dox describes;
- a comment holds for all functions below it up to the next empty line, as the headers mean it. Doxygen gives it to the
  first one only.

Usage: filter.py HEADER    writes the prepared header to standard output
       filter.py --check   fails if a header has no area, or an area has no description
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include/kolo"
# The area of each header, by its path below include/kolo without ".hpp" or ".h". None: the header declares nothing itself.
AREAS = {
    "c/kolo": None, "c/checkpoint": "c", "c/collectives": "c", "c/diagnostics": "c", "c/elastic": "c",
    "c/error": "c", "c/grouped": "c", "c/optimizer": "c", "c/process_set": "c",
    "c/request": "c", "c/session": "c", "c/types": "c",
    "kolo": None, "torch": None, "training": None, "export": None,
    "session": "sessions", "mpi": "sessions",
    "tensor": "tensors", "types": "tensors", "shared_memory": "tensors", "cuda": "tensors",
    "collectives": "collectives", "collective_options": "collectives", "detail/collectives": "collectives",
    "detail/submission_burst": None,
    "future": "collectives",
    "process_set": "process_sets",
    "error": "errors",
    "optimizer": "optimizers", "training/reproducible": "optimizers", "sharded_optimizer": "optimizers", "training/sharded_model": "optimizers",
    "communication_hook": "hooks",
    "training/sampler": "data", "training/background_loader": "data", "torch/sampler": "data",
    "training/batch_shares": "data",
    "training/learning_rate": "training", "training/metrics": "training", "training/loss_scale": "training",
    "training/best_metric": "training", "training/early_stopping": "training", "training/progress_bar": "training",
    "state_dict": "checkpoints", "training/checkpoint": "checkpoints", "torch/checkpoint": "checkpoints",
    "elastic": "elastic", "state_handler": "elastic", "torch/elastic": "elastic",
    "diagnostics": "diagnostics",
    "torch/optimizer": "torch_optimizers", "torch/sharded_optimizer": "torch_optimizers",
    "torch/reproducible": "torch_optimizers",
    "torch/fully_sharded": "torch_optimizers", "torch/sharded_module": "torch_optimizers",
    "torch/gradients": "torch_optimizers",
    "torch/amp": "torch_precision",
    "torch/collectives": "torch_tensors",
    "torch/state": "torch_models", "torch/sync_batch_norm": "torch_models", "torch/checkpointed": "torch_models",
}
COMMENT = re.compile(r"^ *///( |$)(?!<)")


def file_comment(lines):
    """The index after the plain comment at the top, and that comment in Doxygen's form."""
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    return end, ["///" + line[2:] for line in lines[1:end]]


def repeated(lines):
    """The lines, with the comment of a function repeated above the functions that follow it without an empty line."""
    result, comment, above = [], [], ""
    for i, line in enumerate(lines):
        if COMMENT.match(line):
            comment = comment + [line] if COMMENT.match(above) else [line]
        elif not line.strip() or re.match(r"^ *[}{#]|^ *(public|private|protected):", line):
            comment = []
        elif comment and above.rstrip().endswith((";", "}")) and indent(line) == indent(comment[0]) and is_function(lines, i):
            result += comment
        result.append(line)
        above = line
    return result


def is_function(lines, begin):
    """Whether a line declares a function, except functions that only describe what a class can do."""
    end = next((i for i in range(begin, len(lines)) if lines[i].rstrip().endswith((";", "{", "}"))), begin)
    text = " ".join(lines[begin:end + 1])
    return "(" in text and not re.search(r"= (delete|default);|~|///<|^ *(class|struct|enum|using|friend) ", text)


def indent(line):
    return len(line) - len(line.lstrip())


def prepared(path):
    name = name_of(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    end, comment = file_comment(lines)
    if AREAS[name] is None:
        return "\n".join(["/// @file", *comment, *lines[end:]]) + "\n"
    begin, close = declarations(lines)
    return "\n".join(["/// @file", *comment, *lines[end:begin], f"/// @addtogroup {AREAS[name]}",
                      "/// @details", f"/// @par kolo/%{name}{path.suffix}", *comment, "/// @{", "", *repeated(lines[begin:close]), "",
                      "/// @}", *lines[close:]]) + "\n"


def declarations(lines):
    """The indices of the first line in the namespace, or in `extern "C"`, and of the line after the last one."""
    if 'extern "C" {' in lines:
        begin = lines.index("#endif", lines.index('extern "C" {')) + 1
        return begin, len(lines) - lines[::-1].index("#ifdef __cplusplus") - 1
    inside = next(line for line in lines if re.fullmatch(r"namespace kolo(::\w+)? \{", line))
    return lines.index(inside) + 1, len(lines) - lines[::-1].index(f"}}  // {inside[:-2]}") - 1


def name_of(path):
    return str(path.resolve().relative_to(INCLUDE).with_suffix(""))


def check():
    text = (Path(__file__).parent / "areas.dox").read_text(encoding="utf-8")
    described = set(re.findall(r"@defgroup (\w+)", text))
    headers = {name_of(path) for suffix in ("*.hpp", "*.h") for path in INCLUDE.rglob(suffix)}
    errors = [f"include/kolo/{name}.hpp has no area: add it to AREAS in tools/api/filter.py" for name in headers - set(AREAS)]
    errors += [f"there is no include/kolo/{name}.hpp, which AREAS in tools/api/filter.py names" for name in set(AREAS) - headers]
    errors += [f"tools/api/areas.dox does not describe the area '{area}'" for area in set(AREAS.values()) - {None} - described]
    for error in sorted(errors):
        print(f"filter.py: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    sys.stdout.write(prepared(Path(sys.argv[1])))
