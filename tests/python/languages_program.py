# SPDX-License-Identifier: Apache-2.0
"""The ranks in Python of a job whose other ranks are in C: languages_program.c does the same."""
import sys

import kolo_train as kolo
import numpy

kolo.init()
values = (1 / (3 * numpy.arange(1000) + kolo.rank() + 1).astype("f4")).astype("f4")
kolo.allreduce_(values, name="gradient")
kolo.require_equal({"values": values})
bits = 5381
for byte in values.tobytes():
    bits = (bits * 33 + byte) & 0xffffffff
try:
    kolo.allreduce_(values, name="mistake")
except kolo.Mismatch as error:
    sys.stdout.write(f"bits: {bits}\ntext: {error}\n")  # in one piece, beside the other ranks'
kolo.shutdown()
