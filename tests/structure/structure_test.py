#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/structure.py and tools/locales.py on small trees."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "structure.py"
sys.path.insert(0, str(SCRIPT.parent))
import structure  # noqa: E402  pylint: disable=wrong-import-position

TABLE = """# Architecture

| folder | what lives there | may include |
| --- | --- | --- |
| `include/kolo/` | what users see | nothing |
| `base/` | tools | `include/kolo` |
| `engine/` | work | `base`, `include/kolo` |
"""
FILES = {
    "include/kolo/tensor.hpp": "#pragma once\nint tensor();\n",
    "include/kolo/calls.hpp": '#pragma once\n#include "kolo/tensor.hpp"\n#include "kolo/detail/calls.hpp"\n',
    "include/kolo/detail/calls.hpp": '#pragma once\n#include "kolo/calls.hpp"\nint calls();\n',
    "src/base/text.hpp": '#pragma once\n#include "kolo/tensor.hpp"\nint text();\n',
    "src/engine/engine.cpp": '#include "base/text.hpp"\n#include "kolo/tensor.hpp"\n#include <vector>\nint engine();\n',
}


def tree(changes=None, table=TABLE):
    files = {**FILES, **(changes or {})}
    return structure.Tree({path: text for path, text in files.items() if text is not None}, table)


class Check(unittest.TestCase):
    def errors(self, *args, **kwargs):
        return structure.check(tree(*args, **kwargs))

    def test_accepts_what_the_table_allows(self):
        self.assertEqual(self.errors(), [])

    def test_names_file_and_line_of_a_forbidden_include(self):
        errors = self.errors({"src/base/number.cpp": '// first\n/* second\n */\n#include "engine/engine.hpp"\n',
                              "src/engine/engine.hpp": "int engine();\n"})
        self.assertTrue(errors[0].startswith("src/base/number.cpp:4: base may not include engine (src/engine/engine.hpp)"),
                        errors)

    def test_finds_a_folder_without_a_row(self):
        self.assertEqual(self.errors({"src/other/other.cpp": "int other();\n"}),
                         ["src/other/other.cpp:1: the folder other has no row in docs/architecture.md"])

    def test_finds_a_folder_inside_a_folder_without_a_row(self):
        self.assertEqual(len(self.errors({"src/base/inner/inner.cpp": "int inner();\n"})), 1)

    def test_finds_a_row_without_a_folder(self):
        errors = self.errors(table=TABLE + "| `gone/` | nothing any more | nothing |\n")
        self.assertEqual(errors, ["docs/architecture.md:8: there is no folder gone"])

    def test_finds_rows_that_allow_includes_upward(self):
        errors = self.errors(table=TABLE.replace("| `include/kolo` |", "| `include/kolo`, `engine` |"))
        self.assertIn("docs/architecture.md:6: base may include engine, which stands at or below it", errors)

    def test_finds_cycles_of_files(self):
        errors = self.errors({"src/base/one.hpp": '#include "base/two.hpp"\n', "src/base/two.hpp": '#include "one.hpp"\n'})
        self.assertEqual(errors, ["src/base/one.hpp:1: files that include each other: src/base/one.hpp, src/base/two.hpp"])

    def test_finds_cycles_of_folders(self):
        errors = self.errors({"src/base/up.cpp": '#include "engine/engine.hpp"\n', "src/engine/engine.hpp": "int x;\n"})
        self.assertIn("folders that include each other: base, engine", errors)

    def test_finds_files_that_need_mpi(self):
        errors = self.errors({"src/base/number.cpp": "#include <mpi.h>\n",
                              "include/kolo/mpi.hpp": "#include <mpi.h>\n",
                              "src/base/text.cpp": '#include "kolo/mpi.hpp"\n'})
        self.assertEqual(errors, [
            "src/base/number.cpp: may not include mpi.h: it is built without MPI too",
            "src/base/text.cpp:1: may not include include/kolo/mpi.hpp: it is built without MPI too"])

    def test_ignores_includes_in_comments(self):
        self.assertEqual(self.errors({"src/base/a.cpp": '// #include "engine/engine.cpp"\n'}), [])

    def test_takes_generated_headers_for_their_schema(self):
        errors = self.errors({"src/engine/wire.fbs": "table A {}\n", "src/base/a.cpp": '#include "wire_generated.h"\n'})
        self.assertTrue(errors[0].startswith("src/base/a.cpp:1: base may not include engine (src/engine/wire.fbs)"), errors)

    def test_umbrella_headers_give_their_folder_no_dependency(self):
        changes = {"include/kolo/more/more.hpp": '#include "kolo/tensor.hpp"\nint more();\n',
                   "include/kolo/all.hpp": '// All.\n#pragma once\n\n#include "kolo/more/more.hpp"\n'}
        table = TABLE.replace("| `base/`", "| `include/kolo/more/` | more | `include/kolo` |\n| `base/`")
        self.assertEqual(self.errors(changes, table), [])
        changes["include/kolo/all.hpp"] += "int all();\n"
        self.assertNotEqual(self.errors(changes, table), [])

    def test_needs_the_table(self):
        self.assertEqual(len(self.errors(table="# Nothing\n")), 1)
        self.assertEqual(len(self.errors(table=None)), 1)


class Sizes(unittest.TestCase):
    def errors(self, changes):
        return structure.check(tree(changes))

    def test_refuses_a_folder_of_too_many_files(self):
        files = {f"src/base/part_{number}.cpp": "int part();\n" for number in range(structure.MAX_FILES)}
        self.assertEqual(self.errors(files),
                         ["base: 26 source files; at most 25: which rooms does it hold?"])
        del files["src/base/part_0.cpp"]
        self.assertEqual(self.errors(files), [])

    def test_refuses_a_class_in_three_files(self):
        def member(name):
            return f"namespace kolo {{\n\nconst std::vector<int>& Engine::{name}(int x) {{\n  return x;\n}}\n}}\n"
        files = {f"src/engine/{name}.cpp": member(name) for name in ("engine", "engine_stop")}
        self.assertEqual(self.errors(files), [])
        # A constructor, a member of a template, and a destructor belong to their classes.
        for text in ("Engine::Engine(int x) {}\n", "Engine::~Engine() {}\n", "Engine<T>::Engine() {}\n"):
            errors = self.errors({**files, "src/engine/engine_end.cpp": "namespace kolo {\n" + text + "}\n"})
            self.assertEqual(len(errors), 1, text)
            self.assertIn("kolo::Engine lives in 3 files", errors[0])

    def test_counts_members_of_every_namespace_and_of_nested_classes(self):
        files = {f"src/engine/engine_{name}.cpp": f"namespace kolo {{\nint f();\n}}\nnamespace kolo::detail {{\n{text}}}\n"
                 for name, text in (("a", "Engine::Engine() {}\n"), ("b", "void Engine::State::run() {}\n"),
                                    ("c", "bool Engine::operator==(const Engine& other) {}\n"))}
        self.assertIn("kolo::detail::Engine lives in 3 files", self.errors(files)[0])

    def test_takes_no_call_for_a_member(self):
        files = {f"src/engine/{name}.cpp": "namespace kolo {\nint f() {\n  return Engine::count();\n}\n}\n"
                 for name in "abc"}
        self.assertEqual(self.errors(files), [])

    def test_refuses_a_file_that_is_not_named_after_its_class(self):
        files = {f"src/engine/{name}.cpp": f"namespace kolo {{\nvoid Engine::{name}() {{}}\n}}\n"
                 for name in ("engine_start", "stop")}
        self.assertEqual(self.errors(files),
                         ["src/engine/stop.cpp: holds members of kolo::Engine, as another file does; its name must begin "
                          "with engine"])

    def test_tells_classes_of_one_name_apart(self):
        files = {f"src/engine/{name}.cpp": f"namespace {name} {{\nvoid Engine::run() {{}}\n}}\n" for name in "abc"}
        self.assertEqual(self.errors(files), [])
        nested = {f"src/engine/{name}.cpp": f"namespace a {{\nvoid {name}::State::run() {{}}\n}}\n" for name in "ABC"}
        self.assertEqual(self.errors(nested), [])

    def test_refuses_a_long_function(self):
        body = "  work();\n" * structure.MAX_FUNCTION
        errors = self.errors({"src/base/long.cpp": "void run() {\n" + body + "}\n"})
        self.assertEqual(len(errors), 1)
        self.assertIn("a function of 46 lines; at most 44", errors[0])

    def test_refuses_a_long_public_header(self):
        errors = self.errors({"include/kolo/long.hpp": "#pragma once\n" + "// text\n" * 300})
        self.assertEqual(errors, ["include/kolo/long.hpp: 301 lines; a public header has at most 300"])

    def test_refuses_a_long_file(self):
        self.assertEqual(self.errors({"src/base/long.cpp": "// text\n" * 400}), [])
        self.assertEqual(self.errors({"src/base/long.cpp": "// text\n" * 401}),
                         ["src/base/long.cpp: 401 lines; a file has at most 400"])


class Measure(unittest.TestCase):
    def test_counts_code_lines(self):
        text = ('// comment\n\nint a;  // after code\n/* over\n   lines */ int b;\n'
                'const char* c = "// no comment";\nint d = 1\'000;  // \'\nchar e = \'"\'; /* x */\n'
                'auto f = R"(// one\n\n// two)";\n')
        self.assertEqual(structure.code_lines(structure.without_comments(text)), 7)

    def test_measures_a_tree(self):
        measured = dict(structure.measures(tree({"src/CMakeLists.txt": "\n"})))
        self.assertEqual(measured["files of any kind"], 6)
        self.assertEqual(measured["source files"], 5)
        self.assertEqual(measured["arrows between folders"], 3)
        self.assertEqual(measured["arrows against the order of the table"], 0)
        self.assertEqual(measured["public headers"], 3)

    def test_counts_arrows_against_the_order(self):
        changes = {"src/base/up.cpp": '#include "engine/engine.hpp"\n#include "engine/other.hpp"\nint x;\n',
                   "src/engine/engine.hpp": "int x;\n", "src/engine/other.hpp": "int x;\n"}
        measured = dict(structure.measures(tree(changes)))
        self.assertEqual(measured["arrows against the order of the table"], 1)
        self.assertEqual(measured["folders in include cycles"], 2)

    def test_finds_functions(self):
        text = "namespace a {\n\nint f(int x,\n      int y) {\n  if (x) {\n    return 1;\n  }\n  return y;\n}\n\n}  // namespace a\n"
        self.assertEqual([found[:3] for found in structure.functions(tree({"src/base/f.cpp": text}))],
                         [(7, "src/base/f.cpp", 3)])


class Locales(unittest.TestCase):
    """What depends on the program's locale."""

    LINES = {
        "std::ostringstream text;": True,
        "// std::ostringstream text;": False,
        "double x = std::stod(text);": True,
        "int x = std::stoi(text);": False,
        "std::printf(\"%d %5.2f\", 1, x);": True,
        "std::snprintf(path, 9, \"/proc/%d\", 1);": False,
        "fmt::format(\"{:L}\", x);": True,
        "fmt::format(\"{:.2f}\", x);": False,
        "if (std::isalnum(c)) return;": True,
        "while (file >> number) ++n;  std::ifstream file;": True,
        "std::ifstream file; file.imbue(std::locale::classic()); file >> number;": False,
    }

    def test_are_not_used(self):
        script = SCRIPT.with_name("locales.py")
        done = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line, depends in self.LINES.items():
            with tempfile.TemporaryDirectory() as name:
                path = pathlib.Path(name) / "src/base/text.cpp"
                path.parent.mkdir(parents=True)
                path.write_text(line + "\n", encoding="utf-8")
                done = subprocess.run([sys.executable, str(script), name], check=False, capture_output=True)
                self.assertEqual(done.returncode, int(depends), line)


class Program(unittest.TestCase):
    @unittest.skipUnless(shutil.which("git"), "there is no git")
    def test_reads_directories_and_revisions(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            self.write_files(root)
            git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.com", "-C", name]
            subprocess.run([*git, "init", "-q"], check=True)
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
            self.assertEqual(self.run_script(root).returncode, 0)
            (root / "src/base/new.cpp").write_text('#include "engine/engine.cpp"\n', encoding="utf-8")
            failed = self.run_script(root)
            self.assertEqual(failed.returncode, 1)
            self.assertIn("src/base/new.cpp:1: base may not include engine", failed.stderr)
            self.assertEqual(self.run_script(root, "--revision", "HEAD").returncode, 0)
            measured = self.run_script(root, "--measure", "--revision", "HEAD").stdout
            self.assertIn("| files of any kind | 5 |", measured)

    def test_reads_an_unpacked_archive(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            self.write_files(root)
            self.assertEqual(self.run_script(root).returncode, 0)
            (root / "src/base/new.cpp").write_text('#include "engine/engine.cpp"\n', encoding="utf-8")
            self.assertIn("src/base/new.cpp:1: base may not include engine", self.run_script(root).stderr)

    @staticmethod
    def write_files(root):
        for path, text in {**FILES, "docs/architecture.md": TABLE}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")

    @staticmethod
    def run_script(root, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), "--root", str(root), *arguments],
                              check=False, capture_output=True, text=True)


if __name__ == "__main__":
    unittest.main()
