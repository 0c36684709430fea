# SPDX-License-Identifier: Apache-2.0
"""Runs a program that was written for Horovod with Kolo in Horovod's place.

Usage: from_horovod.py PROGRAM, by its path from this folder
"""
import os
import pathlib
import sys
import tempfile

text = (pathlib.Path(__file__).parent / sys.argv[1]).read_text(encoding="utf-8")
before = "import horovod.torch as hvd"
assert before in text
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)  # the program writes a model
    exec(compile(text.replace(before, "import kolo_train.torch as hvd"), sys.argv[1], "exec"))
