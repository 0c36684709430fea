# SPDX-License-Identifier: Apache-2.0
"""The tables of README.md and docs/ that are made from recorded measurements, by the name in their marks."""
import math
import statistics

from charts import SETS, flat_mpi, number


def markdown(head, rows, align=None):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(align or ["---"] * len(head)) + " |"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def by(rows, *keys):
    """Groups rows by some of their fields, in the order of the file."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def one_host(data):
    def cell(runs, text):
        # In italics if the two cores did not share a cache.
        return "; ".join(f"*{text(run)}*" if float(run["message_ns"]) >= 100 else text(run) for run in runs)

    rows = []
    for key, runs in by(data["one_host"], "ranks", "what", "path", "mpi").items():
        rows.append([*key, cell(runs, lambda run: f"{run['kolo_us']} ({run['kolo_p90_us']})"),
                     cell(runs, lambda run: run["mpi_us"]), cell(runs, lambda run: run["ratio"])])
    return markdown(["np", "what", "path", "MPI", "Kolo, µs: median (p90)", "MPI, µs: median", "MPI over Kolo"], rows)


def cores(data):
    return markdown(["cores", "runs", "message from one to the other", "write", "after the other has read",
                     "after the other has written"],
                    [[row["cores"], row["runs"], f"{row['message_ns']} ns",
                      *(f"{row[each]} GB/s" for each in ("write_gbs", "after_read_gbs", "after_write_gbs"))]
                     for row in data["cores"]], ["---", *["---:"] * 5])


def idle(data):
    return markdown(["np", "idle, percent of a core"],
                    [[row["ranks"], f"{row['min']} to {row['max']}"] for row in data["idle"]])


def encryption(data):
    def link(row):
        return "no limit" if row["mbit"] == "0" else f"{row['mbit']} Mbit/s"

    def what(row):
        size = int(row["bytes"])
        unit = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        return "a step of `bench-cifar10-step`" if row["what"] == "step" else f"allreduce of {unit}"

    return markdown(["between the hosts", "what", "`sockets`", "`encrypted`", "ratio"],
                    [[link(row), what(row), f"{row['plain_ms']} ms", f"{row['encrypted_ms']} ms", row["ratio"]]
                     for row in data["encryption"]], ["---", "---", "---:", "---:", "---:"])


def frame_tags(data):
    return markdown(["control messages of a step", "bytes of each", "tags of one", "tags of a step", "step", "share"],
                    [[row["messages"], row["message_bytes"], f"{row['tag_us']} µs", f"{row['tags_us']} µs",
                      f"{row['step_ms']} ms", f"{float(row['percent']):.2f} %"]
                     for row in data["frame_tags"]], ["---:"] * 6)


def gpu_card(data):
    found = {row["name"]: (float(row["value"]), row["unit"]) for row in data["gpu_card"]}

    def show(name):
        value, unit = found[name]
        if unit == "us" and value >= 1000:
            value, unit = value / 1000, "ms"
        return f"{value:.4g} {unit}" if unit == "GB/s" else f"{value:.3g} {unit.replace('us', 'µs')}"

    def step(name, what):
        return [f"a training step of ResNet-50, {what}", show(f"step-{name}-kolo"),
                f"{show(f'step-{name}-plain')}: LibTorch alone"
                f" ({found[f'step-{name}-kolo-over-plain'][0]:+.1f} %, DDP over PyTorch alone "
                f"{found[f'ddp-{name}-ddp-over-plain'][0]:+.1f} %)"]

    def alone(size, what):
        return [f"an allreduce of {what}, one rank", show(f"nccl-1-kolo-{size}"),
                f"{show(f'nccl-1-bare-{size}')}: NCCL alone"]

    def shared(size, what):
        return [f"the same of {what}: until it is done", show(f"nccl-2-kolo-{size}-in-queue"),
                f"{show(f'nccl-2-blocking-{size}-in-queue')}; in a symmetric window "
                f"{show(f'nccl-2-window-{size}-in-queue')}"]

    return markdown(["work on that card", "Kolo", "beside it, in the same run"], [
        step("128-f32", "batch 128 in `f32`"), step("32-f32", "batch 32 in `f32`"), step("32-bf16", "batch 32 in `bf16`"),
        ["the same, batch 32 in `f32`, with all but the reduction in CUDA graphs", show("step-32-f32-split"),
         f"{show('step-32-f32-graph')}: without reduction ({found['step-32-f32-split-over-graph'][0]:+.1f} %)"],
        ["packing 100 MB", show("pack-100MB"), f"{show('copy-100MB')}: a copy"],
        ["packing the 161 gradients of ResNet-50", show("pack-resnet50"), f"{show('copy-resnet50')}: a copy"],
        alone(4, "4 B"), alone(1048576, "1 MiB"), alone(100000000, "100 MB"),
        *([f"{what}, one rank: submitting; until they are reduced",
           f"{show(f'host-1-{name}-submitted')}; {show(f'host-1-{name}-done')}", ""]
          for name, what in (("resnet50", "the 161 gradients of ResNet-50"), ("1000x1KB", "1000 tensors of 1 KB"))),
        ["an NCCL call of two ranks on the card, 4 B: host time", show("nccl-2-kolo-4-host"),
         f"{show('nccl-2-blocking-4-host')}: a blocking communicator"],
        shared(1048576, "1 MiB"), shared(67108864, "64 MiB")], ["---", "---:", "---"])


def start_up(data):
    return markdown(["ranks", "MPI alone", "with Kolo", "difference"],
                    [[row["ranks"], f"{row['mpi_s']} s", f"{row['kolo_s']} s", f"{float(row['more_s']) + 0:.2f} s"]
                     for row in data["start_up"]], ["---:"] * 4)


def peers(data):
    rows = []
    for (gradients, ranks, memory, kolo), own in by(data["peers"], "gradients", "ranks", "memory", "kolo_ms").items():
        rows.append([gradients, ranks, memory, kolo,
                     *(f"{row['times']} times ({row['min']} to {row['max']})" for row in own)])
    return markdown(["gradients", "np", "Kolo's memory", "Kolo, ms", "Horovod takes", "with tuned MPI",
                     "DistributedDataParallel"], rows)


def readme(data):
    names = {"resnet50": "ResNet-50 (161 tensors, 102 MB)", "1000x1KB": "1000 tensors of 1 KiB"}
    rows = []
    private = [row for row in data["peers"] if row["memory"] == "private"]
    groups = sorted(by(private, "gradients", "ranks", "kolo_ms").items(),
                    key=lambda group: (group[0][0] != "resnet50", group[0][1]))
    for (gradients, ranks, kolo), own in groups:
        ratio, _, _, which = flat_mpi(data["one_host"], gradients, ranks)
        rows.append([names[gradients], ranks, f"{float(kolo):.3g} ms", *(f"{row['times']}x" for row in own),
                     f"{ratio:.2g}x ({which} MPI)"])
    return markdown(["gradients", "ranks", "Kolo", "Horovod 0.28.1", "Horovod, tuned MPI",
                     "DistributedDataParallel, Gloo", "one flat `MPI_Allreduce`"], rows,
                    ["---", "---:", "---:", "---:", "---:", "---:", "---:"])


def training_step(data):
    return markdown(["run", "without communication", "with Kolo", "longer by", "with a barrier, longer by"],
                    [[f"`{row['options']}`", f"{row['without_ms']} ms", f"{row['kolo_ms']} ms",
                      f"{row['kolo_longer']} %", f"{row['barrier_longer']} %"] for row in data["training_step"]])


def hosts(data):
    return markdown(["hosts, ranks on each", "link, each direction", "delay", "packets lost", "Kolo over", "the same bytes one way, MPI",
                     "from each at once, MPI", "`kolo::allreduce` of 100 MB", "relative to one way"],
                    [[f"{row['hosts']}, {row['ranks']}", f"{row['mbit']} Mbit/s", f"{int(row['delay_us']) // 1000} ms",
                      f"{row['lost']} %" if row["lost"] != "0" else "none", {"mpi": "MPI"}.get(row["network"], row["network"]),
                      f"{row['one_way_ms']} ms", f"{row['both_ways_ms']} ms", f"{row['allreduce_ms']} ms",
                      row["relative"]] for row in data["hosts"]])


def faults(data):
    def with_unit(value, unit):
        return f"{value} {unit}" if value else ""

    rows = [[row["fault"], row["phase"], row["runs"], row["broken"], row["named"], with_unit(row["median_ms"], "ms"),
             with_unit(row["max_ms"], "ms"), with_unit(row["gone_s"], "s"), row["late"], row["in_mpi"]]
            for row in data["faults"]]
    return markdown(["fault", "phase", "runs", "broken", "ranks that named it", "named within, median", "max",
                     "job gone within, max", "later than promised", "waits in MPI"], rows)


def elastic_faults(data):
    names = {"host": "agent killed", "hoststop": "agent stopped", "cut": "host cut off"}
    rows = [[names.get(row["fault"], row["fault"]), row["phase"], row["faults"], row["hangs"], row["wrong"], row["left"],
             *(f"{row[each]} ms" if row[each] else "" for each in ("median_ms", "max_ms"))]
            for row in data["elastic_faults"]]
    return markdown(["fault", "phase", "faults", "hangs", "wrong results", "processes left", "next step after, median",
                     "max"], rows, ["---", "---", *["---:"] * 6])


def elastic_runs(data):
    hosts = {"one": "one", "emulated": "two or four, emulated by a setting", "ssh": "two, a script in place of ssh",
             "networks": "two network namespaces"}
    optimizers = {"plain": "custom", "sharded": "custom, sharded", "torch": "Adam", "torch_sharded": "Adam, sharded"}
    rows = [[hosts[row["hosts"]], optimizers[row["optimizer"]], row["runs"], row["faults"], row["hangs"], row["wrong"],
             row["left"]] for row in data["elastic_runs"]]
    return markdown(["hosts", "optimizer", "runs", "faults", "hangs", "wrong results", "processes left"], rows,
                    ["---", "---", *["---:"] * 5])


def elastic_growth(data):
    """The resources of each process after a tenth, a half and all of the growths."""
    rows = []
    for (hosts, process), own in by(data["elastic_growth"], "ranks_per_host", "process").items():
        for row in (own[(len(own) - 1) // 10], own[len(own) // 2], own[-1]):
            rows.append([hosts, process, row["growths"], f"{int(row['resident_kib']) / 1024:.1f} MiB", row["descriptors"],
                         row["threads"]])
    return markdown(["ranks of a host", "process", "after growths", "resident memory", "descriptors", "threads"], rows,
                    ["---", "---", *["---:"] * 4])


def elastic_costs(data):
    return markdown(["what", "where", "Kolo", "beside it", "", "ratio"],
                    [[row["what"], row["place"], f"{row['kolo']} {row['unit']}", row["peer"],
                      f"{row['peer_value']} {row['unit']}", row["ratio"]] for row in data["elastic_costs"]],
                    ["---", "---", "---:", "---", "---:", "---:"])


def scale(data):
    rows = []
    for row in data["scale"]:
        name = SETS[row["gradients"]] + (", star" if row["shape"] == "star" else "")
        rows.append([name, row["step"], row["ranks"], number(row["root_messages"]), number(row["root_bytes"]),
                     number(row["max_messages"]), number(row["max_bytes"]), row["batches"],
                     f"{float(row['tail_us']):,.0f}", row["hops"] if row["step"] == "one" else ""])
    return markdown(["gradients", "step", "ranks", "messages at rank 0", "bytes at rank 0", "most messages of a rank",
                     "most bytes of a rank", "batches", "last answer after, µs", "messages in a row"], rows,
                    ["---", "---"] + ["---:"] * 8)


def size(count):
    count = int(count)
    for limit, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= limit:
            return f"{count >> (20 if unit == 'MiB' else 10)} {unit}"
    return f"{count} B"


def data_scale(data):
    rows = []
    for row in data["data_scale"]:
        ratio = float(row["time_us"]) / float(row["least_us"]) if float(row["least_us"]) >= 1 else None
        rows.append([row["algorithm"], row["hosts"], size(row["bytes"]), f"{float(row['time_us']):,.1f}",
                     f"{float(row['least_us']):,.1f}", f"{ratio:.2f}" if ratio else "", number(row["nic_messages"]),
                     number(row["nic_bytes"]), number(row["least_bytes"])])
    return markdown(["algorithm", "hosts", "tensor", "time, µs", "bound, µs", "time / bound", "messages of a NIC",
                     "bytes of a NIC", "bound, bytes"], rows, ["---"] + ["---:"] * 8)


def reproducible(data):
    return markdown(["ranks", "gradients", "plain averages", "`ReproducibleGradients`", "ratio"],
                    [[row["ranks"], f"{row['megabytes']} MB", f"{float(row['usual_ms']):.0f} ms",
                      f"{float(row['reproducible_ms']):.0f} ms", f"{float(row['ratio']):.1f}"]
                     for row in data["reproducible"]], ["---:"] * 5)


def data_operations(data):
    rows = [[row["operation"], row["hosts"], size(row["bytes"]), f"{float(row['time_us']):,.1f}",
             f"{float(row['least_us']):,.1f}", f"{float(row['time_us']) / float(row['least_us']):.2f}",
             number(row["nic_messages"]), number(row["nic_bytes"])] for row in data["data_operations"]]
    return markdown(["operation", "hosts", "tensor", "time, µs", "bound, µs", "time / bound", "messages of a NIC",
                     "bytes of a NIC"], rows, ["---"] + ["---:"] * 7)


def cifar10_accuracy(data):
    """The results after the last epoch that all runs have, and at the end of longer runs."""
    runs = by(data["cifar10_accuracy"], "ranks")
    common = min(len(run) for run in runs.values())
    rows = []
    for (ranks,), run in runs.items():
        rows += [[ranks, row["epoch"], row["accuracy"], row["loss"],
                  f"`mpirun -np {ranks} cifar10 --data-dir DIR --epochs 25 --seed 42`"]
                 for row in (run[common - 1], run[-1])]
    return markdown(["np", "after epochs", "test accuracy", "test loss", "command"], unique(rows))


def unique(rows):
    return [row for index, row in enumerate(rows) if row not in rows[:index]]


def cifar10_scaling(data):
    return markdown(["Open MPI settings", "rounds", "1 rank, images/s", "2 ranks, images/s", "ratio: median (min to max)"],
                    [[row["settings"], row["rounds"], f"{row['one_min']}-{row['one_max']}",
                      f"{row['two_min']}-{row['two_max']}", f"{row['ratio']} ({row['ratio_min']}-{row['ratio_max']})"]
                     for row in data["cifar10_scaling"]])


def synthetic_benchmark(data):
    return markdown(["model, batch size", "iterations", "2 ranks", "1 alone", "2 without exchange", "efficiency",
                     "relative to the same ranks without exchange"],
                    [[f"{row['model']}, {row['batch']}", row["iterations"], row["two"], row["alone"], row["without"],
                      f"{row['efficiency']} % ({row['efficiency_min']} to {row['efficiency_max']})",
                      f"{row['relative']} % ({row['relative_min']} to {row['relative_max']})"]
                     for row in data["synthetic_benchmark"]])


def recording(data):
    return markdown(["ranks", "rounds", "ms without", "ms with", "longer by", "95 % interval"],
                    [[row["ranks"], row["rounds"], f"{float(row['without_ms']):.0f}", f"{float(row['with_ms']):.0f}",
                      f"{row['longer']} %", f"{row['from']} to {row['to']} %"] for row in data["recording"]])


def recording_step(data):
    return markdown(["steps per timeline", "rounds", "longer by"],
                    [[row["steps"], row["rounds"], f"{row['longer']} %"] for row in data["recording_step"]])


def journeys(data):
    return markdown(["feature", "programs", "fewest with", "programs"],
                    [[f"`{row['feature']}`", row["programs"], f"`{row['fewest_with']}`", row["fewest"]]
                     for row in data["journeys"]], ["---", "--:", "---", "--:"])


def structure(data):
    revisions = list(data["structure"][0])[1:]
    return markdown(["", *revisions], [list(row.values()) for row in data["structure"]],
                    ["---", *["---:"] * len(revisions)])


def additions(data):
    return markdown(["addition", "at 2528e92", "now", "target"], [list(row.values()) for row in data["additions"]])


def transformer_ranks(data):
    return markdown(["ranks", "loss after 50 steps", "after 100", "validation loss after 100"],
                    [list(row.values()) for row in data["transformer_ranks"]])


COMPRESSIONS = {"none": "none", "bf16": "`Compression::bf16`", "int8": "`kolo::int8()`",
                "power-sgd": "`kolo::power_sgd()`, rank 4"}


def compression(data):
    """Bytes on the link, milliseconds of a step by place, and accuracy by seed, as far as they are recorded."""
    steps = {(row["place"], row["compression"]): row for row in data["compression_steps"]}
    accuracy = {(row["compression"], row["seed"]): row["accuracy"] for row in data.get("compression_accuracy", [])}
    places = list(dict.fromkeys(place for (place, _), row in steps.items() if row["ms"]))
    seeds = sorted({seed for _, seed in accuracy}, key=int)
    sent = {name: next(int(row["bytes"]) for (_, of), row in steps.items() if of == name and row["bytes"])
            for name in COMPRESSIONS}

    def times(name):
        return [f"{float(steps[place, name]['ms']):.0f} ms" for place in places]

    rows = [[title, number(sent[name]), f"{100 * sent[name] / sent['none']:.1f} %",
             *(accuracy.get((name, seed), "-") for seed in seeds), *times(name)]
            for name, title in COMPRESSIONS.items()]
    rows.append(["(no reduction)", *[""] * (2 + len(seeds)), *times("alone")])
    return markdown(["compression", "bytes sent per step", "relative to none", *(f"accuracy, seed {seed}" for seed in seeds), *places],
                    rows, ["---"] + ["---:"] * (2 + len(seeds) + len(places)))


def local_sgd_time(data):
    """The times to reach a loss: the lowest one that all algorithms reach, rounded up."""
    algorithms = by(data["local_sgd_time"], "algorithm")
    lowest = max(min(float(row["test_loss"]) for row in rows) for rows in algorithms.values())
    loss = math.ceil(100 * lowest) / 100
    seconds = {name: next(float(row["seconds"]) for row in rows if float(row["test_loss"]) <= loss)
               for (name,), rows in algorithms.items()}
    return markdown(["`--algorithm`", "bytes per step", "an epoch", f"test loss of {loss} after", "of `average`",
                     f"test loss after {len(next(iter(algorithms.values())))} epochs"],
                    [[f"`{name}`", number(rows[-1]["bytes"]), f"{float(rows[-1]['seconds']) / len(rows):.1f} s",
                      f"{seconds[name]:.0f} s", f"{100 * seconds[name] / seconds['average']:.0f} %", rows[-1]["test_loss"]]
                     for (name,), rows in algorithms.items()], ["---"] + ["---:"] * 5)


def overlap_between_hosts(data):
    return markdown(["link, each direction", "run", "without communication", "with Kolo", "with Kolo, after backward",
                     "longer without overlap"],
                    [[f"{row['mbit']} Mbit/s", row["run"], f"{row['without_ms']} ms", f"{row['kolo_ms']} ms",
                      f"{row['after_ms']} ms", f"{row['after_longer']} %"] for row in data["overlap_between_hosts"]],
                    ["---"] + ["---:"] * 5)


def sharded(data):
    rows = []
    for (optimizer,), own in by(data["sharded"], "optimizer").items():
        rows.append([f"`{optimizer}`", *(f"{row['held']} ({row['formula']}), {row['peak']}" for row in own)])
    return markdown(["optimizer", *(f"np={row['ranks']}" for row in own)], rows,
                    ["---", *["---:"] * 3])


def fully_sharded(data):
    places = list(by(data["fully_sharded"], "link", "ranks"))
    rows = []
    for (optimizer,), own in by(data["fully_sharded"], "optimizer").items():
        name, *rest = optimizer.split(" with ")
        rows.append([f"`{name}`" + (f" with `{rest[0]}`" if rest else ""),
                     *(f"{row['peak_mb']} ({row['formula_mb']}); {row['ratio']}" for row in own)])
    return markdown(["optimizer", *(f"np={ranks}, {link}" for link, ranks in places)], rows,
                    ["---"] + ["---:"] * len(places))


def fsdp(data):
    def name(kind):
        kind, *rest = kind.removeprefix("Kolo ").split(" with ")
        return f"`{kind}` with `{rest[0]}`" if rest else kind if "FSDP" in kind else f"`{kind}`"

    ranks = list(by(data["fsdp"], "ranks"))
    return markdown(["training", *(f"np={count}" for (count,) in ranks)],
                    [[name(kind), *(f"{row['ratio']}; {row['resident_mb']} MB; {row['loss']}" for row in own)]
                     for (kind,), own in by(data["fsdp"], "kind").items()], ["---"] + ["---:"] * len(ranks))


def checkpoint_pause(data):
    return markdown(["ranks", "`save`", "`save_async`", "ratio", "rank 0's file", "memory that it adds on rank 0"],
                    [[row["ranks"], f"{row['save_ms']} ms", f"{row['save_async_ms']} ms", row["ratio"],
                      f"{row['share_mib']} MiB", f"{row['memory_mib']} MiB"] for row in data["checkpoint_pause"]])


def rows_between_hosts(data):
    def size(count):
        return f"{int(count) >> 20} MiB" if int(count) >= 1 << 20 else f"{int(count) >> 10} KiB"

    return markdown(["operation", "bytes", "Kolo", "MPI", "MPI's time / Kolo's"],
                    [[row["operation"], size(row["bytes"]), f"{row['kolo_ms']} ms", f"{row['mpi_ms']} ms",
                      f"{float(row['mpi_ms']) / float(row['kolo_ms']):.2f}"] for row in data["rows_between_hosts"]],
                    ["---"] + ["---:"] * 4)


def torch_gradients(data):
    return markdown(["ranks", "run", *(gradients for (gradients,) in by(data["torch_gradients"], "gradients"))],
                    [[*key, *(f"{row['ms']} ms ({row['relative']})" for row in own)]
                     for key, own in by(data["torch_gradients"], "ranks", "run").items()], ["---:"] * 5)


def against_revision(data):
    return markdown(["network", "where", "earlier", "later", "rounds", "with the earlier", "with the later",
                     "later relative to earlier: median (min to max)"],
                    [[row["workload"], row["place"], row["old"], row["new"], row["rounds"], f"{row['old_longer']} %",
                      f"{row['new_longer']} %", f"{row['relative']} % ({row['min']} to {row['max']})"]
                     for row in data["against_revision"]],
                    ["---", "---", "---", "---", *["---:"] * 4])


def fusion_threshold(data):
    """The time with each threshold, relative to that with the default."""
    thresholds = list(dict.fromkeys(row["mib"] for row in data["fusion_threshold"]))
    rows = []
    for (place, gradients, memory), own in by(data["fusion_threshold"], "place", "gradients", "memory").items():
        ratios = {row["mib"]: row["ratio"] for row in own}
        rows.append([gradients, place, memory, f"{own[0]['default_ms']} ms", *(ratios[mib] for mib in thresholds)])
    return markdown(["gradients", "where", "memory", "with 64 MiB", *(f"{mib} MiB" for mib in thresholds)], rows,
                    ["---"] * 3 + ["---:"] * (1 + len(thresholds)))


def small_against_revision(data):
    return markdown(["what", "np", "rounds", "2528e92", "today", "today / 2528e92: median (min to max)"],
                    [[row["what"], row["ranks"], row["rounds"], f"{row['old_us']} µs", f"{row['new_us']} µs",
                      f"{row['ratio']} ({row['min']} to {row['max']})"]
                     for row in data["small_against_revision"]], ["---", "---:", "---:", "---:", "---:", "---"])


def microseconds(text):
    value = float(text)
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def connections_against_revision(data):
    return markdown(["what", "rounds", "1da2711b", "today", "today / 1da2711b: median (min to max)"],
                    [[row["what"], row["rounds"], microseconds(row["old_us"]), microseconds(row["new_us"]),
                      f"{row['ratio']} ({row['min']} to {row['max']})"]
                     for row in data["connections_against_revision"]], ["---", "---:", "---:", "---:", "---"])


def uneven(data):
    def row(title, rows):
        percents = sorted(float(each["percent"]) for each in rows)
        shares = [sorted(int(each["shares"].split()[rank]) for each in rows)[len(rows) // 2] for rank in (0, 1)]
        return [title, *shares, f"{statistics.median(percents):.0f} % ({percents[0]:.0f} to {percents[-1]:.0f})"]

    first = [each for each in data["uneven"] if each["epoch"] == "1"]
    later = [each for each in data["uneven"] if each["epoch"] != "1"]
    return markdown(["epochs", "examples of the fast rank", "of the slow rank", "of the summed speeds: median (range)"],
                    [row("the first, with equal shares", first), row("the others", later)], ["---", "---:", "---:", "---:"])


def campaigns(data):
    return markdown(["command", "what", "result", "commit", "date"],
                    [[f"`{row['command']}`", row["what"], row["result"], row["commit"], row["date"]]
                     for row in data["campaigns"]])


TABLES = {table.__name__: table for table in (
    campaigns, one_host, cores, idle, start_up, gpu_card, frame_tags, encryption, peers, readme, training_step, hosts, faults, scale, cifar10_accuracy,
    elastic_faults, elastic_runs, elastic_growth, elastic_costs, cifar10_scaling, recording, recording_step, journeys,
    structure, additions, transformer_ranks, data_scale, data_operations, reproducible, synthetic_benchmark, compression, overlap_between_hosts,
    local_sgd_time, torch_gradients, against_revision, small_against_revision, connections_against_revision,
    fusion_threshold, rows_between_hosts, sharded, fully_sharded, fsdp, checkpoint_pause, uneven)}
