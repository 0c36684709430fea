# SPDX-License-Identifier: Apache-2.0
"""All collectives on NumPy arrays give the results of NumPy, in place and without copies."""
import time
import tracemalloc

import kolo_train as kolo
import numpy
from check import done

kolo.init(stall_warning=30)
me, n = kolo.rank(), kolo.size()


def values(dtype, rank, shape=(3, 5)):
    """The elements of a rank: small integers, so that all sums are exact."""
    return ((numpy.arange(numpy.prod(shape)).reshape(shape) + 3 * rank) % 7 + 1).astype(dtype)


def of_all(dtype, shape=(3, 5)):
    return numpy.stack([values(dtype, rank, shape) for rank in range(n)])


def test_allreduce():
    for dtype in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"):
        own, everything = values(dtype, me), of_all(dtype)
        for op, expected in ((kolo.Sum, everything.sum(axis=0, dtype=dtype)), (kolo.Min, everything.min(axis=0)),
                             (kolo.Max, everything.max(axis=0)), (kolo.Product, everything.prod(axis=0, dtype=dtype))):
            result = kolo.allreduce(own, op=op)
            assert result.dtype == own.dtype and numpy.array_equal(result, expected), (dtype, op)
            assert numpy.array_equal(own, values(dtype, me))
        in_place = values(dtype, me)
        assert kolo.allreduce_(in_place, op=kolo.Sum) is in_place
        assert numpy.array_equal(in_place, everything.sum(axis=0, dtype=dtype))
    mean = kolo.allreduce(values("f4", me))
    assert numpy.allclose(mean, of_all("f4").mean(axis=0))
    either = kolo.allreduce(numpy.array([me == 0, False]), op=kolo.Max)
    assert either.dtype == bool and list(either) == [True, False]
    scaled = kolo.allreduce(values("f8", me), op=kolo.Sum, prescale_factor=2.0, postscale_factor=0.5)
    assert numpy.array_equal(scaled, of_all("f8").sum(axis=0))
    for compression in (kolo.Compression.fp16, kolo.Compression.bf16):
        assert numpy.array_equal(kolo.allreduce(values("f4", me), op=kolo.Sum, compression=compression),
                                 of_all("f4").sum(axis=0))
    assert kolo.allreduce(me + 1, op=kolo.Sum) == n * (n + 1) // 2
    assert kolo.allreduce(numpy.float32(2.0)) == 2.0
    assert kolo.allreduce(numpy.zeros((0, 4), "f4")).shape == (0, 4)


def test_other_arrays():
    """Everything that supports the buffer protocol."""
    data = bytearray([me, 1])
    kolo.allreduce_(data, op=kolo.Max)
    assert list(data) == [n - 1, 1]
    view = memoryview(bytearray(4)).cast("i")
    view[0] = me
    kolo.allreduce_(view, op=kolo.Sum)
    assert view[0] == n * (n - 1) // 2
    rows = values("f4", me, (4, 5))
    kolo.allreduce_(rows[1:3], op=kolo.Sum)
    assert numpy.array_equal(rows[1:3], of_all("f4", (4, 5)).sum(axis=0)[1:3])
    assert numpy.array_equal(rows[::3], values("f4", me, (4, 5))[::3])


def test_groups():
    tensors = [values("f4", me), values("i8", me, (2,)), values("f8", me, (1, 4))]
    expected = [of_all("f4").sum(axis=0), of_all("i8", (2,)).sum(axis=0), of_all("f8", (1, 4)).sum(axis=0)]
    results = kolo.grouped_allreduce(tensors, op=kolo.Sum)
    assert all(map(numpy.array_equal, results, expected))
    assert numpy.array_equal(tensors[0], values("f4", me))
    kolo.grouped_allreduce_(tensors, op=kolo.Sum, name="group")
    assert all(map(numpy.array_equal, tensors, expected))
    gathered = kolo.grouped_allgather([values("f4", me), numpy.full((me, 2), me, "i4")])
    assert numpy.array_equal(gathered[0], numpy.concatenate(of_all("f4")))
    assert numpy.array_equal(gathered[1], numpy.repeat(numpy.arange(n), numpy.arange(n))[:, None].repeat(2, axis=1))


def test_rows():
    shape = (2 * n + 1, 3)
    scattered = kolo.reducescatter(values("f4", me, shape), op=kolo.Sum)
    begin = 2 * me + min(me, 1)
    assert numpy.array_equal(scattered, of_all("f4", shape).sum(axis=0)[begin:begin + 2 + (me < 1)])
    gathered = kolo.allgather(numpy.full((me + 1, 2), me, "i2"))
    assert gathered.shape == (n * (n + 1) // 2, 2) and gathered.dtype == numpy.int16
    assert numpy.array_equal(gathered[:, 0], numpy.repeat(numpy.arange(n), numpy.arange(n) + 1))
    assert list(kolo.allgather(numpy.array(float(me)))) == list(range(n))
    assert kolo.allgather(numpy.zeros((0, 3))).shape == (0, 3)
    sent = numpy.repeat(numpy.arange(n, dtype="f4"), me + 1) + 10 * me
    received, counts = kolo.alltoall(sent, [me + 1] * n)
    assert counts == [rank + 1 for rank in range(n)]
    assert numpy.array_equal(received, numpy.concatenate([numpy.full(rank + 1, me + 10 * rank) for rank in range(n)]))
    assert numpy.array_equal(kolo.alltoall(numpy.arange(n, dtype="f8") + 10 * me), me + 10.0 * numpy.arange(n))


def test_broadcast():
    root = n - 1
    own = values("f4", me)
    assert numpy.array_equal(kolo.broadcast(own, root), values("f4", root))
    assert numpy.array_equal(own, values("f4", me))
    assert kolo.broadcast_(own, root) is own
    assert numpy.array_equal(own, values("f4", root))
    parameters = {"a": values("f4", me), "b": numpy.asfortranarray(values("f8", me))}
    kolo.broadcast_parameters(parameters, root_rank=root)
    assert numpy.array_equal(parameters["a"], values("f4", root))
    assert numpy.array_equal(parameters["b"], values("f8", root))
    kolo.require_equal(parameters)
    assert kolo.broadcast_object({"rank": me, "data": [1.5]}, root) == {"rank": root, "data": [1.5]}
    assert kolo.allgather_object("x" * me) == ["x" * rank for rank in range(n)]


def test_requests():
    tensors = [values("f4", me) for _ in range(20)]
    order = range(20) if me % 2 == 0 else reversed(range(20))
    requests = {i: kolo.allreduce_async_(tensors[i], op=kolo.Sum, name=f"tensor {i}") for i in order}
    for i, request in requests.items():
        assert kolo.synchronize(request) is tensors[i] and kolo.poll(request)
        assert numpy.array_equal(tensors[i], of_all("f4").sum(axis=0))
    # Dropped requests keep their arrays, and complete.
    if me > 0:
        kolo.barrier("between")
    kolo.allreduce_async_(numpy.ones(1 << 16, "f4"), op=kolo.Sum, name="dropped")
    late = numpy.ones(1 << 16, "f4")
    kolo.allreduce_async_(late, op=kolo.Sum, name="dropped too")
    if me == 0:
        kolo.barrier("between")  # the other ranks submit both after this
    while late[-1] != n:
        time.sleep(0.001)
    request = kolo.barrier_async("waited for")
    while not request.wait_for(0.001):
        pass
    assert request.ready() and request.wait() is None
    gathering = kolo.allgather_async(numpy.array([me]))
    assert gathering.wait() is gathering.wait()


def test_no_copies():
    """NumPy tells tracemalloc of its arrays' memory."""
    big = numpy.ones(1 << 22, "f4")
    kolo.allreduce_(big)
    tracemalloc.start()
    kolo.allreduce_(big)
    kolo.broadcast_(big, 0)
    kolo.grouped_allreduce_([big[:100], big[100:]])
    kolo.broadcast_parameters([("big", big)])
    in_place = tracemalloc.get_traced_memory()[1]
    result = kolo.allreduce(big)
    out_of_place = tracemalloc.get_traced_memory()[1]
    gathered = kolo.allgather(big)
    in_all = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert in_place < 100_000, in_place
    assert out_of_place < result.nbytes + 200_000, out_of_place
    assert in_all < result.nbytes + 300_000, in_all  # the result is in memory of Kolo, not of NumPy
    assert gathered.nbytes == n * big.nbytes and not gathered.flags.owndata


def test_process_sets():
    evens = kolo.add_process_set(range(0, n, 2))
    assert evens.ranks == list(range(0, n, 2)) and evens.size() == (n + 1) // 2
    assert evens.included() == (me % 2 == 0) and evens.process_set_id > 0
    if evens.included():
        assert evens.rank() == me // 2
        assert kolo.allreduce(me, op=kolo.Sum, process_set=evens) == sum(evens.ranks)
    kolo.remove_process_set(evens)
    assert kolo.global_process_set.size() == n and kolo.global_process_set.ranks == list(range(n))
    assert kolo.global_process_set.process_set_id == 0


def test_join():
    for step in range(me + 1):
        total = kolo.allreduce(numpy.ones(2), op=kolo.Sum, name="joined")
        assert list(total) == [n - step] * 2
    assert kolo.join() == kolo.broadcast_object(n - 1) or n == 1


def test_queries():
    assert kolo.is_initialized() and kolo.local_size() == n and kolo.local_rank() == me
    assert kolo.cross_size() == 1 and kolo.cross_rank() == 0 and kolo.is_homogeneous()
    assert kolo.cpu_operations() and "allreduce" in kolo.statistics_text()
    assert kolo.__version__ == kolo.build_info()["version"]
    assert not kolo.stop_requested()


for test in (test_allreduce, test_other_arrays, test_groups, test_rows, test_broadcast, test_requests,
             test_no_copies, test_process_sets, test_queries, test_join):
    test()
done("all results are right")
kolo.shutdown()
assert not kolo.is_initialized()
