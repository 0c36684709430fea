#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fortran/kolo_c.f90, the declarations of include/kolo/c in Fortran, so that the two cannot drift apart.

| C | Fortran |
| --- | --- |
| an enumerator | a parameter of kind c_int |
| a struct, and the macro of its defaults | a type that is bind(C), with these values |
| a handle, a callback, `void*`, a pointer in a struct | c_ptr, c_funptr |
| a pointer to values or structs | an optional argument by reference, an array if its number follows |

Usage: fortran.py [--write]   without --write, only tells whether the file is current; the exit status is 1 if it is not
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "fortran/kolo_c.f90"
# Each header after those whose types it uses.
HEADERS = ("types", "error", "session", "process_set", "request", "collectives", "grouped", "optimizer", "checkpoint",
           "elastic", "diagnostics")
NUMBERS = {"int": "integer(c_int)", "int32_t": "integer(c_int32_t)", "int64_t": "integer(c_int64_t)",
           "uint64_t": "integer(c_int64_t)", "size_t": "integer(c_size_t)", "double": "real(c_double)"}
DEFINITION = r"#define (KOLO_\w+)\s+(?:\\\s*)?(\(-?\d+\)|\{.*?\})"
VARIABLE = re.compile(r"(const )?(\w+)\s*((?:\*\s*(?:const\s*)?)*)\s*(\w+)(?:\[(\w+)\])?")
COUNT = re.compile("count|capacity|members|[a-z]+_count")
ARRAYS = ("rows", "users", "inputs", "outputs")  # whose number is not the next argument
SIZES = {"c_int": 4, "c_int32_t": 4, "c_int64_t": 8, "c_size_t": 8, "c_double": 8, "c_ptr": 8, "c_funptr": 8}


class Interface:
    """What the headers declare, in their order."""

    def __init__(self):
        self.enumerators, self.structs, self.functions = [], {}, []
        self.enumerations, self.callbacks, self.defaults = set(), set(), {}
        for name in HEADERS:
            self._read(re.sub(r"//.*", "", (ROOT / f"include/kolo/c/{name}.h").read_text()))
        listed = [line.split()[0] for line in (ROOT / "src/c/symbols.txt").read_text().splitlines()]
        if sorted(name for _, name, _ in self.functions) != listed:
            sys.exit("fortran.py: the functions of the headers are not those of src/c/symbols.txt")
        for name, values in self.defaults.items():
            if len(values) != len(self.structs[name]):
                sys.exit(f"fortran.py: the defaults of {name} are not understood")

    def _read(self, text):
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, re.S):
            self.enumerations.add(name)
            self.enumerators += re.findall(r"(\w+) = (-?\d+)", body)
        for macro, value in re.findall(DEFINITION, text, re.S):
            if value[0] == "(":
                self.enumerators.append((macro, value[1:-1]))
            else:
                self.defaults[macro.lower()] = [each.strip(" {}\\\n") for each in value.replace("\\\n", " ").split(",")]
        self.callbacks.update(re.findall(r"typedef [\w* ]+\(\*(\w+)\)", text))
        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.S):
            self.structs[name] = [self.variable(each.strip()) for each in body.split(";") if each.strip()]
        for result, name, arguments in re.findall(r"KOLO_C_EXPORT ([\w* ]*?)(\w+)\(([^)]*)\);", text):
            self.functions.append((result.strip(), name, [self.variable(each.strip()) for each in arguments.split(",")
                                                          if each.strip() != "void"]))

    @staticmethod
    def variable(text):
        """Its base type, number of stars, whether it is const, its name, and its number if it is an array."""
        found = VARIABLE.fullmatch(" ".join(text.split()))
        if not found:
            sys.exit(f"fortran.py: not understood: {text}")
        return found[2], found[3].count("*"), bool(found[1]), found[4], found[5]

    def value_type(self, base):
        """The type of a value that is no pointer."""
        if base in NUMBERS:
            return NUMBERS[base]
        if base in self.enumerations or base == "kolo_status":
            return "integer(c_int)"
        return "type(c_funptr)" if base in self.callbacks else f"type({base})"

    def argument(self, variable, following):
        base, stars, is_const, name, _ = variable
        name = name.lower()
        is_handle = base == "void" or (base not in NUMBERS and base != "char" and base not in self.structs
                                       and base not in self.enumerations and base not in self.callbacks)
        if base == "char":
            if stars > 1:
                return f"type(c_ptr), value :: {name}"
            return f"character(kind=c_char), intent({'in' if is_const else 'inout'}), optional :: {name}(*)"
        stars -= is_handle
        kind = "type(c_ptr)" if is_handle or stars > 1 else self.value_type(base)
        if stars <= 0:
            return f"{kind}, value :: {name}"
        is_array = name in ARRAYS or (following and following[1] == 0 and COUNT.fullmatch(following[3]))
        intent = "in" if (is_const and stars == 1) or (is_array and is_handle) else "inout"
        return f"{kind}, intent({intent}), optional :: {name}{'(*)' if is_array else ''}"

    def component(self, variable, default):
        base, stars, _, name, number = variable
        kind = "type(c_ptr)" if stars else self.value_type(base)
        if number:
            name += f"({number})"
        if default is None:
            return f"{kind} :: {name}"
        if default == "NULL" or kind == "type(c_ptr)":  # no pointer to a text is constant in Fortran
            default = "c_null_ptr"
        elif kind == "real(c_double)":
            default += "_c_double"
        default = default.lower()
        return f"{kind} :: {name} = {default}"

    def size_of(self, kind):
        """The size and alignment of a type of Fortran: those of the 64-bit systems on which Kolo runs."""
        name = re.search(r"\((\w+)\)", kind)[1]
        if name in SIZES:
            return SIZES[name], SIZES[name]
        end, alignment = 0, 1
        for variable in self.structs[name]:
            size, own = (8, 8) if variable[1] else self.size_of(self.value_type(variable[0]))
            end = (end + own - 1) // own * own + size * int(variable[4] or 1)
            alignment = max(alignment, own)
        return (end + alignment - 1) // alignment * alignment, alignment


def wrapped(text, indent):
    """Lines of at most 100 characters."""
    lines, line = [], " " * indent
    for word in re.findall(r"[^,]+,?\s*", text):
        if len(line) + len(word.rstrip()) > 97:
            lines.append(line.rstrip() + " &")
            line = " " * (indent + 4)
        line += word
    return "\n".join([*lines, line.rstrip()]) + "\n"


def types_of(interface):
    for name, members in interface.structs.items():
        defaults = interface.defaults.get(name)
        yield f"\n  type, bind(C) :: {name}\n"
        for i, member in enumerate(members):
            default = None
            if defaults:
                default = defaults[i]
                if default.startswith("sizeof"):
                    default = f"{interface.size_of(f'type({name})')[0]}_c_size_t"
            yield wrapped(interface.component(member, default), 4)
        yield f"  end type {name}\n"


def functions_of(interface):
    for result, name, arguments in interface.functions:
        names = [each[3].lower() for each in arguments]
        kind = "function" if result != "void" else "subroutine"
        yield "\n" + wrapped(f"{kind} {name}({', '.join(names)}) bind(C)", 4)
        yield "      import\n"
        if result != "void":
            returned = "type(c_ptr)" if result.endswith("*") else interface.value_type(result)
            yield f"      {returned} :: {name}\n"
        for i, each in enumerate(arguments):
            following = arguments[i + 1] if i + 1 < len(arguments) else None
            yield wrapped(interface.argument(each, following), 6)
        yield f"    end {kind} {name}\n"


def module():
    interface = Interface()
    yield "! SPDX-License-Identifier: Apache-2.0\n"
    yield "! The declarations of kolo/c/kolo.h, whose comments describe them. tools/fortran.py has written\n"
    yield "! this file: change the headers instead.\n"
    yield "module kolo_c\n  use, intrinsic :: iso_c_binding\n  implicit none\n  public\n\n"
    for name, value in interface.enumerators:
        if not name.endswith("_MAX_"):
            yield f"  integer(c_int), parameter :: {name.lower()} = {value}\n"
    yield from types_of(interface)
    yield "\n  interface\n"
    yield from functions_of(interface)
    yield "  end interface\nend module kolo_c\n"


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    text = "".join(module())
    if sys.argv[1:]:
        OUTPUT.write_text(text)
    elif not OUTPUT.exists() or OUTPUT.read_text() != text:
        sys.exit("fortran/kolo_c.f90 is not what tools/fortran.py writes from the headers: ./dev fortran")


if __name__ == "__main__":
    main()
