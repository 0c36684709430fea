# SPDX-License-Identifier: Apache-2.0
"""While an operation is waited for, other Python threads run, and Ctrl-C ends the job.

Usage: waiting_program.py threads | interrupt
"""
import os
import signal
import sys
import threading

import kolo_train as kolo
import numpy

kolo.init()
me, n = kolo.rank(), kolo.size()


def threads():
    """The first thread waits for an operation that the second one lets the other ranks submit. If
    waiting kept the GIL, they would wait for each other."""
    if me == 0:
        waits = threading.Event()

        def release():
            waits.wait()
            kolo.barrier("released")

        other = threading.Thread(target=release)
        other.start()
        waits.set()
        assert kolo.allreduce(1, op=kolo.Sum, name="late") == n
        other.join()
    else:
        kolo.barrier("released")
        assert kolo.allreduce(1, op=kolo.Sum, name="late") == n
    # Each thread has operations of its own.
    results = {}
    workers = [threading.Thread(target=lambda i=i: results.update(
        {i: kolo.allreduce(numpy.full(1000, float(i)), name=f"of thread {i}")})) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((results[i] == i).all() for i in range(4))
    kolo.barrier()
    if me == 0:
        print("threads run")


def interrupt():
    """Rank 0 gets SIGINT while it waits for an operation that never comes; the other ranks get PeerLeft."""
    main = threading.get_ident()

    def send():
        while sys._current_frames()[main].f_code is not kolo.Request.wait.__code__:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    try:
        if me == 0:
            threading.Thread(target=send).start()
        kolo.allreduce(numpy.ones(3), name=f"only on rank {me}")
    except KeyboardInterrupt:
        print(f"rank {me} was interrupted", flush=True)
        raise
    except kolo.PeerLeft as error:
        print(f"rank {me} misses rank {error.ranks[0]}: {error}", flush=True)
        raise


threads() if sys.argv[1] == "threads" else interrupt()
