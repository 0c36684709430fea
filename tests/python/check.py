# SPDX-License-Identifier: Apache-2.0
"""What the test programs share."""
import contextlib
import re


@contextlib.contextmanager
def raises(kind, pattern):
    """The block raises this exception, and its text matches. Gives a list, which then has the exception."""
    caught = []
    try:
        yield caught
    except kind as error:
        assert type(error) is kind or kind in (ValueError, TypeError), type(error)
        assert re.search(pattern, str(error)), str(error)
        caught.append(error)
    else:
        raise AssertionError(f"no {kind.__name__}")


def done(text):
    """Says that the program is through, from rank 0."""
    import kolo_train as kolo
    kolo.barrier()
    if kolo.rank() == 0:
        print(text)
