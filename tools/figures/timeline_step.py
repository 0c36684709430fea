#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints one training step of the timelines of some ranks as CSV, for docs/measurements/timeline.csv.

Usage: timeline_step.py STEP TIMELINE...
STEP counts from 0 how often each gradient was reduced before. Times are milliseconds from the step's first span.
"""
import csv
import json
import sys


def spans(path):
    """Rank, track, name, begin and duration (in microseconds) of each span."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    open_spans = {}
    for event in events:
        track = tracks.get(event["tid"])
        if event["ph"] == "X":
            yield event["pid"], track, event["name"], event["ts"], event["dur"]
        elif event["ph"] == "B":
            open_spans[track] = event
        elif event["ph"] == "E" and track in open_spans:
            begun = open_spans.pop(track)
            yield event["pid"], track, begun["name"], begun["ts"], event["ts"] - begun["ts"]


def step_of(path, step):
    """The spans of the gradients in a step, and of the batches at that time. Gradients: what every step reduces."""
    gradients, batches = {}, []
    for span in sorted(spans(path), key=lambda span: span[3]):
        if span[1].startswith("batches") and span[2].startswith("batch "):
            batches.append(span)
        elif span[2] in ("NEGOTIATE", "allreduce"):
            gradients.setdefault(span[1], []).append(span)
    most = max(len(found) for found in gradients.values())
    chosen = [span for found in gradients.values() if len(found) == most for span in found[2 * step:2 * step + 2]]
    begin, end = min(span[3] for span in chosen), max(span[3] + span[4] for span in chosen)
    return chosen + [span for span in batches if begin <= span[3] and span[3] + span[4] <= end + 1000]


def main():
    step, rows = int(sys.argv[1]), []
    for path in sys.argv[2:]:
        rows += step_of(path, step)
    first = min(row[3] for row in rows)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["rank", "track", "span", "begin_ms", "duration_ms"])
    for rank, track, name, begin, duration in sorted(rows, key=lambda row: (row[0], row[3])):
        out.writerow([rank, track, name, f"{(begin - first) / 1000:.3f}", f"{duration / 1000:.3f}"])


if __name__ == "__main__":
    main()
