# SPDX-License-Identifier: Apache-2.0
"""The charts, each drawn from recorded measurements."""
import math
from statistics import median

from svg import Picture

SETS = {"resnet50": "ResNet-50", "bert-base": "BERT-base", "1000x1KB": "1000 tensors of 1 KiB"}
PEERS = {
    "kolo": ("Kolo", "blue"),
    "horovod": ("Horovod", "red"),
    "horovod_tuned": ("Horovod, tuned MPI", "orange"),
    "ddp": ("DistributedDataParallel, Gloo", "purple"),
    "mpi": ("one flat MPI_Allreduce", "gray"),
}


def number(value):
    value = float(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.3g}"


def legend(picture, x, y, entries):
    """A legend of `entries`, which are names and colors, side by side."""
    for name, color in entries:
        picture.rect(x, y - 9, 11, 11, f"f-{color}", 2)
        picture.text(x + 16, y + 1, name, size=12)
        x += 34 + 6.6 * len(name)


def flat_mpi(one_host, gradients, ranks):
    """MPI's time relative to Kolo's for one flat buffer: median, minimum and maximum of the runs, and the MPI settings:
    tuned for large messages where that was measured."""
    rows = [row for row in one_host if row["what"] == gradients and row["ranks"] == ranks and row["path"] == "staged"]
    tuned = [row for row in rows if row["mpi"] == "tuned"]
    ratios = [float(row["ratio"]) for row in tuned or rows]
    return median(ratios), min(ratios), max(ratios), "tuned" if tuned else "default"


def peers(data):
    rows = [row for row in data["peers"] if row["memory"] == "private"]
    groups = sorted({(row["gradients"], row["ranks"]) for row in rows},
                    key=lambda group: (group[0] != "resnet50", group[1]))
    bar, left, top, width = 15, 190, 82, 560
    height = top + len(groups) * (len(PEERS) * bar + 22) + 30
    out = Picture(800, height, "Time to reduce a model's gradients, relative to Kolo")
    out.text(20, 28, "Time to reduce a set of gradients, relative to Kolo (shorter is better)", "ink bold", 15)
    legend(out, 20, 54, list(PEERS.values()))
    end = 2 * math.ceil(max(float(row["max"]) for row in rows) / 2)
    scale = width / end
    for tick in range(0, end + 1, 2):
        out.line(left + tick * scale, top - 6, left + tick * scale, height - 34)
        out.text(left + tick * scale, height - 18, f"{tick}x", "soft middle", 11)
    y = top
    for gradients, ranks in groups:
        own = [row for row in rows if (row["gradients"], row["ranks"]) == (gradients, ranks)]
        out.text(20, y + 30, SETS[gradients], "ink bold")
        out.text(20, y + 47, f"{ranks} ranks; Kolo: {own[0]['kolo_ms']} ms", "soft", 11)
        values = {row["peer"]: (float(row["times"]), float(row["min"]), float(row["max"])) for row in own}
        values["kolo"] = (1.0, 1.0, 1.0)
        values["mpi"] = flat_mpi(data["one_host"], gradients, ranks)[:3]
        for peer, (_, color) in PEERS.items():
            middle, low, high = values[peer]
            out.rect(left, y, middle * scale, bar - 3, f"f-{color}", 1)
            if high > low:
                out.line(left + low * scale, y + bar / 2 - 1.5, left + high * scale, y + bar / 2 - 1.5, "axis", 1.5)
            out.text(left + max(middle, high) * scale + 6, y + bar - 4.5,
                     f"{middle:.2g}" if middle < 1 else f"{middle:.1f}", "ink", 11)
            y += bar
        y += 22
    out.line(left, top - 6, left, height - 34, "axis")
    return out


def sizes(data):
    """MPI's default allreduce over Kolo's, by size, on 2 and on 4 ranks."""
    out = Picture(820, 360, "Allreduce: MPI's time over Kolo's, by size")
    out.text(20, 28, "Allreduce: time of MPI_Allreduce over Kolo's (above 1, Kolo is faster)", "ink bold", 15)
    legend(out, 20, 54, [("private memory", "blue"), ("shared memory", "green")])
    out.text(330, 55, "line: median of the runs; bars: all runs", "soft", 11)
    for panel, ranks in enumerate(("2", "4")):
        left, top, width, height = 60 + panel * 400, 90, 330, 210
        rows = [row for row in data["one_host"] if row["ranks"] == ranks and row["mpi"] == "default"
                and row["what"].startswith("allreduce") and "sleep" not in row["what"]]
        labels = list(dict.fromkeys(row["what"].removeprefix("allreduce, ") for row in rows))
        x = {label: left + width * index / (len(labels) - 1) for index, label in enumerate(labels)}

        def y(ratio, top=top, height=height):
            return top + height * (1 - math.log2(ratio / 0.0625) / 7)

        for power in range(-4, 4):
            out.line(left, y(2.0 ** power), left + width, y(2.0 ** power), "axis" if power == 0 else "grid")
            out.text(left - 8, y(2.0 ** power) + 4, f"{2.0 ** power:g}", "soft end", 11)
        for label in labels:
            out.text(x[label], top + height + 20, label, "soft middle", 11)
        out.text(left + width / 2, top + height + 42, f"{ranks} ranks", "ink middle bold")
        for path, color, shift in (("staged", "blue", -2), ("zero-copy", "green", 2)):
            points = []
            for label in labels:
                ratios = [float(row["ratio"]) for row in rows
                          if row["path"] == path and row["what"] == "allreduce, " + label]
                out.line(x[label] + shift, y(min(ratios)), x[label] + shift, y(max(ratios)), f"s-{color}", 2)
                points.append((x[label] + shift, y(median(ratios))))
            out.polyline(points, f"s-{color}")
            for point in points:
                out.circle(*point, 3.5, f"f-{color}")
    return out


def ranges(title, unit, low, high, step, rows, bound, description):
    """One line per row: label, color, median, minimum, maximum."""
    left, top, width, line = 400, 62, 380, 22
    out = Picture(820, top + line * len(rows) + 46, description)
    out.text(20, 28, title, "ink bold", 15)
    bottom = top + line * len(rows)

    def x(value):
        return left + width * (value - low) / (high - low)

    tick = low
    while tick <= high + 1e-9:
        out.line(x(tick), top - 8, x(tick), bottom, "axis" if abs(tick - bound) < 1e-9 else "grid")
        out.text(x(tick), bottom + 18, f"{tick:g}{unit}", "soft middle", 11)
        tick += step
    for index, (label, color, middle, least, greatest) in enumerate(rows):
        y = top + line * index + 8
        out.text(left - 16, y + 4, label, "ink end", 12)
        out.line(x(max(least, low)), y, x(min(greatest, high)), y, f"s-{color}", 3)
        out.circle(x(middle), y, 4.5, f"f-{color}")
    return out


def scaling(data):
    rows = [(f"CIFAR-10: {row['settings'].replace('`', '').removeprefix('none, ').split(', btl')[0]}", "blue",
             *(50 * float(row[key]) for key in ("ratio", "ratio_min", "ratio_max"))) for row in data["cifar10_scaling"]]
    rows += [(f"{row['model']}, {row['batch']} images per rank, {row['iterations']} iterations", "green",
              *(float(row[key]) for key in ("efficiency", "efficiency_min", "efficiency_max")))
             for row in data["synthetic_benchmark"]]
    return ranges("Images per second of 2 ranks, in percent of twice one rank", " %", 60, 140, 10, rows, 100,
                  "Scaling from 1 rank to 2: median, least and greatest round")


def training_step(data):
    rows = []
    for row in data["training_step"]:
        for name, key, color in (("with Kolo", "kolo_longer", "blue"), ("with a barrier", "barrier_longer", "gray")):
            value = float(row[key])
            rows.append((f"{row['options']}: {name}", color, value, 0, value))
    return ranges("Training step on 2 ranks: longer than without communication, by", " %", 0, 4, 1, rows, 0,
                  "Cost of a training step: with Kolo, and with only a barrier")


def cifar10(data):
    runs = {}
    for row in data["cifar10_accuracy"]:
        runs.setdefault(row["ranks"], []).append((int(row["epoch"]), 100 * float(row["accuracy"])))
    last = max(epoch for run in runs.values() for epoch, _ in run)
    left, top, width, height, low, high = 60, 76, 730, 250, 10, 80
    out = Picture(820, 372, "CIFAR-10: test accuracy after each epoch, by number of ranks")
    out.text(20, 28, "CIFAR-10: test accuracy in percent, after each epoch", "ink bold", 15)
    colors = dict(zip(runs, ("gray", "blue", "orange")))
    legend(out, 20, 54, [(f"{ranks} rank{'' if ranks == '1' else 's'}", color) for ranks, color in colors.items()])
    for percent in range(low, high + 1, 10):
        y = top + height * (high - percent) / (high - low)
        out.line(left, y, left + width, y)
        out.text(left - 8, y + 4, percent, "soft end")
    for epoch in range(0, last + 1, 5):
        out.text(left + width * epoch / last, top + height + 20, epoch, "soft middle")
    out.text(left + width, top + height + 38, "epochs", "soft end")
    for ranks, run in runs.items():
        out.polyline([(left + width * epoch / last, top + height * (high - percent) / (high - low))
                      for epoch, percent in run], f"s-{colors[ranks]}")
    return out


def hosts(data):
    keys = (("one_way_ms", "the same bytes one way, MPI", "gray"), ("both_ways_ms", "from each host at once, MPI", "orange"),
            ("allreduce_ms", "kolo::allreduce of 100 MB", "blue"))
    rows = data["hosts"]
    left, scale, bar = 250, 0.2, 17
    out = Picture(820, 84 + len(rows) * (3 * bar + 20), "Allreduce among emulated hosts")
    out.text(20, 28, "Emulated hosts: time in ms (shorter is better)", "ink bold", 15)
    legend(out, 20, 54, [(name, color) for _, name, color in keys])
    y = 78
    for row in rows:
        lost = f", {row['lost']} % lost" if row["lost"] != "0" else ""
        network = {"mpi": "MPI"}.get(row["network"], row["network"])
        out.text(20, y + 22, f"{row['hosts']} hosts, ranks on each: {row['ranks']}", "ink bold")
        out.text(20, y + 38, f"{row['mbit']} Mbit/s, {int(row['delay_us']) // 1000} ms{lost}, Kolo over {network}", "soft", 11)
        for key, _, color in keys:
            value = float(row[key])
            out.rect(left, y, value * scale, bar - 3, f"f-{color}", 1)
            out.text(left + value * scale + 6, y + bar - 5, f"{value:.0f}", "ink", 11)
            y += bar
        y += 20
    return out


def timeline(data):
    """The spans of one step, with a track per gradient, in the order of the batches."""
    rows = data["timeline"]
    tracks = list(dict.fromkeys(row["track"] for row in rows if not row["track"].startswith("batches"))) + ["batches"]
    colors = {"NEGOTIATE": "gray", "allreduce": "green"}
    end = max(float(row["begin_ms"]) + float(row["duration_ms"]) for row in rows)
    left, width, line, tick = 150, 640, 17, 50
    ranks = sorted({row["rank"] for row in rows})
    height = 66 + len(ranks) * (len(tracks) * line + 34) + 24
    out = Picture(820, height, "Timeline of one training step on 2 ranks")
    out.text(20, 28, "One training step: when gradients wait and when they are reduced", "ink bold", 15)
    legend(out, 20, 52, [("NEGOTIATE", "gray"), ("allreduce", "green"), ("batch", "blue")])
    for number in range(int(end / tick) + 1):
        x = left + width * number * tick / end
        out.line(x, 66, x, height - 26)
        out.text(x, height - 10, f"{number * tick} ms", "soft middle", 11)
    y = 66
    for rank in ranks:
        out.text(20, y + 16, f"rank {rank}", "ink bold", 12)
        y += 24
        for index, track in enumerate(tracks):
            out.text(left - 10, y + index * line + 11, track.removeprefix("0."), "soft end", 11)
        for row in (row for row in rows if row["rank"] == rank):
            track = "batches" if row["track"].startswith("batches") else row["track"]
            out.rect(left + width * float(row["begin_ms"]) / end, y + tracks.index(track) * line + 1,
                     max(2.0, width * float(row["duration_ms"]) / end), line - 5,
                     f"f-{colors.get(row['span'], 'blue')}", 1)
        y += len(tracks) * line + 10
    return out


SCALE_PANELS = [("root_messages", "messages at rank 0 in one step"), ("root_bytes", "bytes at rank 0 in one step"),
                ("tail_us", "µs from the last submission to the last answer")]
SHAPES = {"tree": "blue", "star": "red"}
DASHES = {"first": "none", "steady": "5 3"}


def scale_panel(out, rows, field, title, left, top, width, height):
    ranks = sorted({int(row["ranks"]) for row in rows})
    values = [max(1.0, float(row[field])) for row in rows]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    span = math.log2(ranks[-1] / ranks[0])

    def point(row):
        value = max(1.0, float(row[field]))
        return (left + width * math.log2(int(row["ranks"]) / ranks[0]) / span,
                top + height * (1 - (math.log10(value) - low) / (high - low)))

    out.text(left - 30, top - 12, title, "ink bold", 12)
    for power in range(low, high + 1):
        y = top + height * (1 - (power - low) / (high - low))
        out.line(left, y, left + width, y)
        out.text(left - 6, y + 4, number(10 ** power), "soft end", 11)
    for rank in ranks:
        out.text(left + width * math.log2(rank / ranks[0]) / span, top + height + 17, rank, "soft middle", 11)
    for shape, color in SHAPES.items():
        for step, dash in DASHES.items():
            points = [point(row) for row in rows if row["shape"] == shape and row["step"] == step]
            out.polyline(points, f"s-{color}", 2, dash)
            for x, y in points:
                out.circle(x, y, 3, f"f-{color}")


def scale(data):
    width, height, gap_x, gap_y = 320, 180, 100, 76
    rows = [row for row in data["scale"] if row["step"] in DASHES]
    names = list(dict.fromkeys(row["gradients"] for row in rows))
    out = Picture(70 + len(names) * (width + gap_x), 70 + len(SCALE_PANELS) * (height + gap_y),
                  "Messages and bytes at rank 0, and the time until the last answer, by the number of ranks")
    x = 30
    for shape, color in SHAPES.items():
        for step, dash in DASHES.items():
            out.line(x, 26, x + 30, 26, f"s-{color}", 2, dash)
            out.text(x + 36, 30, f"{shape}, {step} step", "ink", 12)
            x += 150
    out.text(x, 30, "across: ranks", "soft", 12)
    for column, gradients in enumerate(names):
        own = [row for row in rows if row["gradients"] == gradients]
        for line, (field, title) in enumerate(SCALE_PANELS):
            scale_panel(out, own, field, f"{SETS[gradients]}: {title}", 70 + column * (width + gap_x),
                        82 + line * (height + gap_y), width, height)
    return out


ALGORITHMS = {"chosen": ("chosen", "blue"), "direct": ("direct", "orange"),
              "doubling": ("doubling", "purple")}


def data_scale(data):
    """For each number of hosts, the time of each algorithm by the bytes."""
    rows = data["data_scale"]
    names = [8, 64, 512]
    width, height, gap = 260, 220, 80
    out = Picture(70 + len(names) * (width + gap), height + 130, "Time of an allreduce between simulated hosts of 8 ranks")
    legend(out, 40, 28, [*ALGORITHMS.values(), ("bound: bytes through a NIC", "gray")])
    low, high = 0, math.ceil(math.log10(max(float(row["time_us"]) for row in rows)))
    least = min(int(row["bytes"]) for row in rows)
    span = math.log2(max(int(row["bytes"]) for row in rows) / least)
    for column, hosts in enumerate(names):
        left, top = 70 + column * (width + gap), 84
        out.text(left - 30, top - 16, f"{hosts} hosts: µs by bytes", "ink bold", 12)

        def point(row, field, left=left):
            value = max(0.0, math.log10(max(float(row[field]), 1.0)))
            return (left + width * math.log2(int(row["bytes"]) / least) / span,
                    top + height * (1 - (value - low) / (high - low)))

        for power in range(low, high + 1):
            y = top + height * (1 - (power - low) / (high - low))
            out.line(left, y, left + width, y)
            out.text(left - 6, y + 4, number(10 ** power), "soft end", 11)
        own = [row for row in rows if int(row["hosts"]) == hosts]
        for tick in sorted({int(row["bytes"]) for row in own}):
            out.text(left + width * math.log2(tick / least) / span, top + height + 17, number(tick), "soft middle", 11)
        chosen = [row for row in own if row["algorithm"] == "chosen"]
        out.polyline([point(row, "least_us") for row in chosen], "s-gray", 2, "5 3")
        for algorithm, (_, color) in reversed(ALGORITHMS.items()):
            points = [point(row, "time_us") for row in own if row["algorithm"] == algorithm]
            if len(points) > 1:
                out.polyline(points, f"s-{color}", 2, "none")
            for x, y in points:
                out.circle(x, y, 3, f"f-{color}")
    return out


CHARTS = {"peers": peers, "sizes": sizes, "scaling": scaling, "training_step": training_step, "cifar10": cifar10,
          "hosts": hosts, "timeline": timeline, "scale": scale,
          "data_scale": data_scale}
