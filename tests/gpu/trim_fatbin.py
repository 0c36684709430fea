#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes from a shared library the GPU code of all architectures but some.

The library keeps its size and all offsets, so it stays valid; removed code becomes zeros, which
compress to almost nothing in an archive. A container of GPU code is a header followed by
entries, each with a header of its own; the entries that stay move up.
"""

import argparse
import pathlib
import struct
import sys

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
ENTRY = struct.Struct("<HHIQ")  # kind, version, size of this header, size of the code
ARCHITECTURE = 28  # offset in the entry's header: 90 for sm_90
MACHINE_CODE = 2


def sections(image):
    """The offset and size of each section of a 64-bit ELF file, by name."""
    if image[:5] != b"\x7fELF\x02":
        sys.exit("trim_fatbin: this is no 64-bit ELF file")
    table, = struct.unpack_from("<Q", image, 40)
    count, names = struct.unpack_from("<HH", image, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * i) for i in range(count)]
    texts = headers[names][4]
    return {bytes(image[texts + header[0]:image.index(b"\0", texts + header[0])]).decode():
            (header[4], header[5]) for header in headers}


def entries(image, begin, end):
    """The offset, kind, architecture and size of each entry."""
    while begin < end:
        kind, _, header, size = ENTRY.unpack_from(image, begin)
        yield begin, kind, struct.unpack_from("<I", image, begin + ARCHITECTURE)[0], header + size
        begin += header + size


def trim_container(image, begin, kept_architectures):
    """Returns the container's end, and whether machine code is left in it."""
    magic, version, header, size = CONTAINER.unpack_from(image, begin)
    end = begin + header + size
    kept = [bytes(image[place:place + total])
            for place, kind, architecture, total in entries(image, begin + header, end)
            if kind == MACHINE_CODE and architecture in kept_architectures]
    code = b"".join(kept)
    CONTAINER.pack_into(image, begin, magic, version, header, len(code))
    image[begin + header:end] = code + bytes(size - len(code))
    return end, bool(kept)


def trim(image, kept_architectures):
    """The number of containers with code left, and of those without."""
    found = sections(image)
    with_code, without_code = 0, 0
    for name in SECTIONS:
        if name not in found:
            continue
        place, size = found[name]
        end = place + size
        while place + CONTAINER.size <= end:
            if CONTAINER.unpack_from(image, place)[0] != MAGIC:
                place += 8  # containers are aligned
                continue
            place, has_code = trim_container(image, place, kept_architectures)
            with_code += has_code
            without_code += not has_code
    return with_code, without_code


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("trimmed", type=pathlib.Path)
    parser.add_argument("--architectures", default="90", help="such as 80,90 (default: 90)")
    arguments = parser.parse_args()
    image = bytearray(arguments.library.read_bytes())
    kept = {int(architecture) for architecture in arguments.architectures.split(",")}
    with_code, without_code = trim(image, kept)
    if with_code == 0:
        sys.exit(f"trim_fatbin: {arguments.library} has no code for {arguments.architectures}")
    arguments.trimmed.write_bytes(image)
    print(f"{arguments.trimmed}: {with_code} containers with code for {arguments.architectures}, "
          f"{without_code} without")


if __name__ == "__main__":
    main()
