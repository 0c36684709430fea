# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/primer.md, which show no measurements."""
import math

from svg import Picture


def box(out, x, y, width, height, label, color="panel", note=""):
    out.rect(x, y, width, height, color if color == "panel" else f"f-{color}", 6, 1 if color == "panel" else 0.3)
    middle = y + height / 2 + (4 if not note else -3)
    out.text(x + width / 2, middle, label, "ink middle bold", 12)
    if note:
        out.text(x + width / 2, middle + 17, note, "soft middle", 11)


def parallelism():
    out = Picture(820, 290, "Data parallel and model parallel training")
    out.text(30, 30, "Data parallel", "ink bold", 15)
    out.text(30, 50, "every rank has the whole model and its own share of the data", "soft", 12)
    for rank in range(2):
        left = 30 + 190 * rank
        box(out, left, 72, 160, 44, f"data, share {rank}", "green")
        out.line(left + 80, 116, left + 80, 138, "axis", 1.5, arrow=True)
        for layer in range(3):
            box(out, left, 142 + 32 * layer, 160, 26, f"layer {layer + 1}", "blue")
    out.curve("M 112 240 C 130 276, 280 276, 298 240", "axis")
    out.curve("M 298 240 C 280 276, 130 276, 112 240", "axis")
    out.text(205, 284, "average the gradients", "ink middle", 12)
    out.text(450, 30, "Model parallel", "ink bold", 15)
    out.text(450, 50, "every rank has a part of the model; all see the same data", "soft", 12)
    box(out, 450, 72, 160, 44, "all data", "green")
    out.line(530, 116, 530, 138, "axis", 1.5, arrow=True)
    box(out, 450, 142, 160, 26, "layer 1, rank 0", "blue")
    box(out, 450, 174, 160, 26, "layer 2, rank 0", "blue")
    box(out, 640, 174, 150, 26, "layer 3, rank 1", "purple")
    out.line(612, 182, 637, 182, "axis", 1.5, arrow=True)
    out.line(638, 193, 613, 193, "axis", 1.5, arrow=True)
    out.text(625, 226, "send activations and their gradients", "ink middle", 12)
    return out


def allreduce():
    out = Picture(820, 290, "A parameter server and an allreduce")
    out.text(30, 30, "Parameter server", "ink bold", 15)
    out.text(30, 50, "one process carries everyone's gradients", "soft", 12)
    box(out, 150, 76, 140, 44, "server", "orange", "parameters")
    for rank in range(4):
        x = 30 + 98 * rank
        box(out, x, 210, 84, 40, f"worker {rank}", "blue")
        out.line(x + 36, 208, 186 + 20 * rank, 124, "axis", 1.5, arrow=True)
        out.line(192 + 20 * rank, 124, x + 48, 206, "axis", 1.5, arrow=True)
    out.text(220, 274, "traffic at the server grows with the workers", "soft middle", 12)
    out.text(450, 30, "Allreduce", "ink bold", 15)
    out.text(450, 50, "every rank adds its share and gets the whole sum", "soft", 12)
    places = [(500, 84), (690, 84), (690, 206), (500, 206)]
    for rank, (x, y) in enumerate(places):
        box(out, x - 42, y, 100, 44, f"rank {rank}", "blue", "parameters")
    for x1, y1, x2, y2 in ((560, 100, 644, 100), (644, 112, 560, 112), (560, 222, 644, 222), (644, 234, 560, 234),
                           (502, 132, 502, 202), (514, 202, 514, 132), (692, 132, 692, 202), (704, 202, 704, 132)):
        out.line(x1, y1, x2, y2, "axis", 1.5, arrow=True)
    out.text(602, 274, "traffic of a rank stays the same", "soft middle", 12)
    return out


def ring():
    """The two halves of a ring allreduce of four ranks."""
    out = Picture(820, 320, "Ring allreduce with four ranks")
    colors = ("blue", "red", "orange", "green")
    halves = (("Reduce-scatter: partial sums travel", "after 3 steps each rank has the sum of one quarter", False),
              ("Allgather: sums travel", "after 3 more steps each rank has all sums", True))
    for half, (title, note, full) in enumerate(halves):
        center = 215 + 400 * half, 186
        out.text(30 + 400 * half, 30, title, "ink bold", 15)
        out.text(30 + 400 * half, 50, note, "soft", 12)
        for rank in range(4):
            angle = math.pi / 2 * rank - math.pi / 2
            x, y = center[0] + 130 * math.cos(angle), center[1] + 86 * math.sin(angle)
            out.rect(x - 50, y - 24, 100, 48, "panel", 6)
            out.text(x, y - 8, f"rank {rank}", "ink middle bold", 12)
            for quarter in range(4):
                done = full or quarter == (rank + 1) % 4
                out.rect(x - 42 + 22 * quarter, y, 18, 14, f"f-{colors[quarter]}", 2, 1 if done else 0.3)
        for x1, y1, x2, y2 in ((52, -78, 100, -30), (100, 30, 52, 78), (-52, 78, -100, 30), (-100, -30, -52, -78)):
            out.line(center[0] + x1, center[1] + y1, center[0] + x2, center[1] + y2, "axis", 1.5, arrow=True)
    return out


def bars(out, y, name, spans):
    out.text(30, y + 16, name, "ink", 12)
    for begin, length, label, color in spans:
        out.rect(110 + begin, y, length - 2, 22, f"f-{color}", 3, 0.45)
        out.text(110 + begin + length / 2 - 1, y + 15, label, "ink middle", 11)


def synchronous():
    out = Picture(820, 270, "Synchronous and asynchronous training")
    out.text(30, 28, "Synchronous: all ranks take the same step with the same gradients", "ink bold", 14)
    work = ((90, 110, 100), (110, 90, 120))
    for rank, lengths in enumerate(work):
        begin, spans = 0, []
        for step, length in enumerate(lengths):
            longest = max(row[step] for row in work)
            spans.append((begin, length, f"step {step + 1}", "blue"))
            if length < longest:
                spans.append((begin + length, longest - length, "", "gray"))
            begin += longest
            spans.append((begin, 70, "allreduce", "green"))
            begin += 70
        bars(out, 44 + 32 * rank, f"rank {rank}", spans)
    out.text(30, 118, "gray: waiting for the slowest rank", "soft", 11)
    out.text(30, 158, "Asynchronous: each worker updates the server when it is ready", "ink bold", 14)
    for rank, lengths in enumerate(((90, 110, 100, 95, 105), (110, 90, 120, 100, 80))):
        begin, spans = 0, []
        for step, length in enumerate(lengths):
            spans.append((begin, length, f"step {step + 1}", "blue"))
            spans.append((begin + length, 24, "", "orange"))
            begin += length + 24
        bars(out, 174 + 32 * rank, f"worker {rank}", spans)
    out.text(30, 250, "orange: send gradients, fetch parameters; others have changed them since the step began", "soft", 11)
    return out


def overlap():
    out = Picture(820, 190, "Gradients are reduced while backward still runs")
    out.text(30, 28, "One step: gradients are reduced while backward still runs", "ink bold", 14)
    bars(out, 48, "program", [(0, 150, "forward", "blue"), (150, 90, "layer 4", "purple"), (240, 90, "layer 3", "purple"),
                              (330, 90, "layer 2", "purple"), (420, 90, "layer 1", "purple"), (510, 110, "wait", "gray"),
                              (620, 70, "step()", "blue")])
    bars(out, 100, "Kolo", [(240, 180, "layer 4", "green"), (420, 140, "layers 3 and 2", "green"),
                            (560, 60, "layer 1", "green")])
    for x in (240, 330, 420, 510):
        out.line(110 + x, 70, 110 + x, 96, "axis", 1.2, arrow=True)
    out.text(260, 148, "backward computes the last layer first; what is ready together travels together", "soft", 12)
    return out


DIAGRAMS = {"parallelism": parallelism, "allreduce": allreduce, "ring": ring, "synchronous": synchronous,
            "overlap": overlap}
