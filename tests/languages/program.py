# SPDX-License-Identifier: Apache-2.0
"""The ranks in Python of a job whose ranks are in several languages: see program.cpp."""
import sys

import kolo_train as kolo
import numpy

COUNT = 100


def show(line):
    """Prints the line in one piece, beside the other ranks'."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show_bits(name, values):
    show(f"bits of {name}: {values.tobytes().hex()}")


def show_error(kind, call):
    try:
        call()
        show("no error")
    except kind as error:
        ranks = "".join(f" {rank}" for rank in error.ranks)
        show(f"error {kind.__name__} of '{error.tensor}', ranks{ranks}: {error}")


def make_values():
    f4 = numpy.float32
    return f4(1) / (f4(3) * numpy.arange(COUNT, dtype=f4) + f4(kolo.rank()) + f4(1))


def reduce():
    show_bits("allreduce", kolo.allreduce(make_values(), name="gradient"))
    show_bits("compressed allreduce", kolo.allreduce(make_values(), op=kolo.Sum, prescale_factor=0.5,
                                                     compression=kolo.Compression.bf16))
    doubles = 1 / (numpy.arange(7) + kolo.rank() + 2.0)
    integers = numpy.arange(5, dtype=numpy.int32) * numpy.int32(kolo.rank() + 1)
    kolo.grouped_allreduce_([doubles, integers], op=kolo.Sum)
    show_bits("group's doubles", doubles)
    show_bits("group's integers", integers)


def move():
    values = make_values()
    show_bits("allgather", kolo.allgather(values[:kolo.rank() + 1]))
    show_bits("broadcast", kolo.broadcast(values, kolo.size() - 1))
    show_bits("reducescatter", kolo.allgather(kolo.reducescatter(values, op=kolo.Sum)))
    received = kolo.alltoall(100 * kolo.rank() + numpy.arange(2 * kolo.size(), dtype=numpy.int64))
    show_bits("alltoall", kolo.allgather(received))


def use_sets_and_requests():
    values = make_values()
    even = kolo.add_process_set(range(0, kolo.size(), 2))
    if even.included():
        kolo.allreduce_(values, op=kolo.Max, process_set=even)
    kolo.broadcast_(values, 0)
    show_bits("set of even ranks", values)
    both = [make_values(), make_values()]
    calls = [("first", kolo.Product), ("second", kolo.Min)]
    requests = []
    for i in range(2):  # in another order on each second rank
        k = (i + kolo.rank()) % 2
        requests.append(kolo.allreduce_async_(both[k], name=calls[k][0], op=calls[k][1]))
    for request in requests:
        request.wait()
    show_bits("first request", both[0])
    show_bits("second request", both[1])


def make_mistakes():
    values = make_values()
    some = values[:COUNT - 1] if kolo.rank() == 1 else values
    show_error(kolo.Mismatch, lambda: kolo.allreduce_(some, name="weights"))
    show_error(kolo.Mismatch, lambda: kolo.broadcast_(values, 1 if kolo.rank() == 1 else 0, name="start"))
    if kolo.rank() == kolo.size() - 1:
        return
    show_error(kolo.PeerLeft, lambda: kolo.allreduce_(values, name="missed"))


kolo.init(flight_recorder_dir="off")
reduce()
move()
use_sets_and_requests()
make_mistakes()
kolo.shutdown()
