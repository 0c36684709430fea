#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns what scale_program counted (CSV on standard input) into a table and a picture.

Usage: scale_report.py DOCUMENT PICTURE
The table replaces what stands between the two marks in DOCUMENT; PICTURE is written as SVG.
"""
import csv
import math
import re
import sys

SETS = {"resnet50": "ResNet-50", "bert-base": "BERT-base"}
PANELS = [
    ("root_messages", "messages at rank 0 in one step"),
    ("root_bytes", "bytes at rank 0 in one step"),
    ("tail_us", "µs from the last submission to the last answer"),
]
COLOURS = {"tree": "#1b6ca8", "star": "#c0392b"}
DASHES = {"first": "none", "steady": "5 3"}


def number(value):
    value = float(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"


def table(rows):
    lines = [
        "| gradients | step | ranks | messages at rank 0 | bytes at rank 0 | most messages of a rank "
        "| most bytes of a rank | batches | last answer after, µs | messages in a row |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        star = row["shape"] == "star"
        name = SETS.get(row["gradients"], row["gradients"])
        chain = row["hops"] if row["step"] == "one" else ""
        lines.append(
            f"| {name}{', star' if star else ''} | {row['step']} | {row['ranks']} "
            f"| {number(row['root_messages'])} | {number(row['root_bytes'])} "
            f"| {number(row['max_messages'])} | {number(row['max_bytes'])} | {row['batches']} "
            f"| {float(row['tail_us']):,.0f} | {chain} |")
    return "\n".join(lines)


def panel(rows, gradients, field, title, left, top, width, height):
    own = [row for row in rows if row["gradients"] == gradients and row["step"] in DASHES]
    ranks = sorted({int(row["ranks"]) for row in own})
    values = [max(1.0, float(row[field])) for row in own]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    span = max(1e-9, math.log2(ranks[-1] / ranks[0]))

    def x(rank):
        return left + width * math.log2(rank / ranks[0]) / span

    def y(value):
        return top + height * (1 - (math.log10(max(1.0, value)) - low) / (high - low))

    out = [f'<text x="{left}" y="{top - 10}" class="title">{SETS.get(gradients, gradients)}: '
           f'{title}</text>']
    for power in range(low, high + 1):
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y(10 ** power):.1f}" '
                   f'y2="{y(10 ** power):.1f}" class="grid"/>'
                   f'<text x="{left - 6}" y="{y(10 ** power) + 4:.1f}" class="end">'
                   f'{number(10 ** power)}</text>')
    for rank in ranks:
        out.append(f'<text x="{x(rank):.1f}" y="{top + height + 16}" class="middle">{rank}</text>')
    for shape, color in COLOURS.items():
        for step, dash in DASHES.items():
            points = sorted((int(row["ranks"]), float(row[field])) for row in own
                            if row["shape"] == shape and row["step"] == step)
            path = " ".join(f"{x(rank):.1f},{y(value):.1f}" for rank, value in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                       f'stroke-width="2" stroke-dasharray="{dash}"/>')
            out += [f'<circle cx="{x(rank):.1f}" cy="{y(value):.1f}" r="3" fill="{color}"/>'
                    for rank, value in points]
    return "\n".join(out)


def picture(rows):
    width, height, gap_x, gap_y = 330, 190, 110, 80
    names = list(dict.fromkeys(row["gradients"] for row in rows))
    total_x = 70 + len(names) * (width + gap_x)
    total_y = 60 + len(PANELS) * (height + gap_y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_x} {total_y}" '
           'font-family="sans-serif" font-size="11">',
           '<style>.title{font-size:13px;font-weight:bold}.grid{stroke:#ddd}.end{text-anchor:end}'
           '.middle{text-anchor:middle}</style>',
           f'<rect width="{total_x}" height="{total_y}" fill="white"/>']
    legend = 80
    for shape, color in COLOURS.items():
        for step, dash in DASHES.items():
            out.append(f'<line x1="{legend}" x2="{legend + 30}" y1="20" y2="20" stroke="{color}" '
                       f'stroke-width="2" stroke-dasharray="{dash}"/>'
                       f'<text x="{legend + 36}" y="24">{shape}, {step} step</text>')
            legend += 150
    out.append(f'<text x="{legend}" y="24">across: ranks</text>')
    for column, gradients in enumerate(names):
        for line, (field, title) in enumerate(PANELS):
            out.append(panel(rows, gradients, field, title, 80 + column * (width + gap_x),
                             70 + line * (height + gap_y), width, height))
    return "\n".join(out + ["</svg>", ""])


def main():
    document, drawing = sys.argv[1:]
    rows = list(csv.DictReader(sys.stdin))
    with open(document, encoding="utf-8") as file:
        text = file.read()
    mark = re.compile(r"(<!-- table: begin -->\n).*(<!-- table: end -->)", re.DOTALL)
    if not mark.search(text):
        sys.exit(f"{document} has no place for the table")
    text = mark.sub(lambda found: found[1] + table(rows) + "\n" + found[2], text)
    with open(document, "w", encoding="utf-8") as file:
        file.write(text)
    with open(drawing, "w", encoding="utf-8") as file:
        file.write(picture(rows))


if __name__ == "__main__":
    main()
