# SPDX-License-Identifier: Apache-2.0
"""Each mistake raises its exception, with its text, ranks and tensor, and the session continues."""
import sys

import kolo_train as kolo
import numpy
from check import done, raises

with raises(kolo.NotInitialized, "init"):
    kolo.rank()
with raises(kolo.InvalidArgument, "no_such_setting"):
    kolo.init(no_such_setting=1)
kolo.init()
me, n = kolo.rank(), kolo.size()
with raises(kolo.InvalidArgument, ""):
    kolo.init()

# Wrong arguments: nothing is submitted.
with raises(TypeError, "must be an array that supports DLPack or the buffer protocol.*not list"):
    kolo.allreduce_([1.0, 2.0])
with raises(TypeError, "must be an array.*not ndarray"):
    kolo.allreduce_(numpy.array(["text"]))
with raises(TypeError, "element type is not supported"):
    kolo.allreduce_(numpy.ones(2, "c8"))
with raises(ValueError, "contiguous"):
    kolo.allreduce_(numpy.ones((4, 4))[:, 1])
with raises(ValueError, "read-only"):
    kolo.allreduce_(numpy.frombuffer(b"abc", numpy.uint8))
with raises(TypeError, "must be an array.*not ndarray"):
    kolo.allreduce_(numpy.ones(2, ">f4"))
with raises(kolo.InvalidArgument, "") as caught:
    kolo.allreduce_(numpy.ones(2, bool), op=kolo.Sum)
assert isinstance(caught[0], ValueError) and isinstance(caught[0], kolo.Error)
with raises(kolo.InvalidArgument, "rank"):
    kolo.broadcast_(numpy.ones(2), root_rank=n)
with raises(kolo.InvalidArgument, "call add_process_set first"):
    kolo.barrier(process_set=kolo.ProcessSet([0]))
with raises(kolo.InvalidArgument, ""):
    kolo.add_process_set([n])
with raises(kolo.InvalidArgument, ""):
    kolo.reducescatter(numpy.array(1.0))
with raises(kolo.InvalidArgument, ""):
    kolo.alltoall(numpy.ones(n), [])

# The same name twice, while the other ranks have not submitted it.
if n > 1:
    if me > 0:
        kolo.barrier("between")
    request = kolo.allreduce_async_(numpy.ones(2), name="same")
    if me == 0:
        with raises(kolo.DuplicateName, "same") as caught:
            kolo.allreduce_async_(numpy.ones(3), name="same")
        assert caught[0].tensor == "same"
        kolo.barrier("between")
    request.wait()

# The ranks disagree: all of them get the text, and their tensors are unchanged.
if n > 1:
    tensor = numpy.full(2 + (me == 1), 5.0, "f4")
    with raises(kolo.Mismatch, "weight") as caught:
        kolo.allreduce_(tensor, name="weight")
    assert caught[0].tensor == "weight" and 1 in caught[0].ranks, vars(caught[0])
    assert "2" in str(caught[0]) and "3" in str(caught[0]) and list(tensor) == [5.0] * len(tensor)
    with raises(kolo.Mismatch, "parameter"):
        kolo.require_equal([("parameter", numpy.full(3, float(me)))])
    with raises(kolo.Mismatch, "rank"):
        kolo.broadcast_parameters({f"of rank {me}": numpy.ones(2)})
    texts = kolo.allgather_object(str(caught[0]))
    assert len(set(texts)) == 1
assert kolo.allreduce(1, op=kolo.Sum) == n

if "left" in sys.argv and n > 1:
    if me == n - 1:
        kolo.shutdown()
    else:
        with raises(kolo.PeerLeft, f"{n - 1}") as caught:
            kolo.allreduce(numpy.ones(2), name="after")
        assert n - 1 in caught[0].ranks
        if me == 0:
            print(f"rank 0 misses rank {caught[0].ranks[-1]}: {caught[0]}")
elif "failed" in sys.argv:
    if me == n - 1:
        raise RuntimeError("a mistake of the program")
    kolo.allreduce(numpy.ones(2), name="after")
else:
    done("all mistakes have exceptions")
kolo.shutdown()
with raises(kolo.NotInitialized, ""):
    kolo.allreduce(numpy.ones(2))
