# SPDX-License-Identifier: Apache-2.0
"""Values in running text. A paragraph after the mark

    <!-- values: GROUP -->

has each value of that group as a number: of the group in docs/measurements/text.csv, or of the function in DERIVED, which
computes values from other files. The paragraph ends at an empty line."""
import re

MARK = re.compile(r"^ *<!-- values: (\w+) -->\n(.*?)(?=\n *\n|\Z)", re.DOTALL | re.MULTILINE)


def faults(data):
    rows = data["faults"]
    dead = [row for row in rows if row["fault"] in ("kill", "_exit0", "_exit3", "abort") and row["max_ms"]]
    return [sum(int(row["runs"]) for row in rows), f"{max(int(row['max_ms']) for row in dead) / 1000:.2f}",
            max(float(row["gone_s"]) for row in rows if row["gone_s"])]


def synthetic_without(data):
    """The speed of two ranks without exchange, in percent, in the two runs of 7 iterations with batches of 4."""
    rows = [row for row in data["synthetic_benchmark"] if (row["iterations"], row["batch"]) == ("7", "4")]
    return [round(max(100 * float(row["without"]) / (2 * float(row["alone"])) for row in rows))]


DERIVED = {"faults": faults, "synthetic_without": synthetic_without}


def groups(data):
    result = {name: [str(value) for value in derive(data)] for name, derive in DERIVED.items()}
    for row in data["text"]:
        result.setdefault(row["group"], []).append(row["value"])
    return result


def has(paragraph, value):
    """Parses an integer; commas may separate groups of three digits."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", paragraph)
    return re.search(rf"(?<![\d.]){re.escape(value)}(?!\d|\.\d)", plain) is not None


def check(texts, data):
    """The errors in the values of texts, which are given by their paths."""
    known, used, errors = groups(data), set(), []
    for path, text in texts.items():
        for match in MARK.finditer(text):
            name, paragraph = match.groups()
            used.add(name)
            if name not in known:
                errors.append(f"{path}: docs/measurements has no group of values '{name}'")
            errors += [f"{path}: the paragraph with the values '{name}' has no {value}, as docs/measurements has"
                       for value in known.get(name, []) if not has(paragraph, value)]
        if len(MARK.findall(text)) != text.count("<!-- values: "):
            errors.append(f"{path}: a mark '<!-- values: GROUP -->' that no paragraph follows")
    return errors + [f"no document shows the values '{name}'" for name in known if name not in used]
