#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/figures/figures.py, tools/quotes.py, tools/links.py and tools/names.py on the documents, and on copies
with mistakes, and of tools/api/filter.py on the headers."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copy(ROOT / "README.md", self.root)
        for name in ("docs", "examples", "tests/c", "tests/python"):
            shutil.copytree(ROOT / name, self.root / name)

    def run_script(self, *command):
        done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    def figures(self, *options):
        return self.run_script(ROOT / "tools/figures/figures.py", *options, self.root)

    def quotes(self):
        return self.run_script(ROOT / "tools/quotes.py", self.root)

    def change(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        self.assertIn(old, text)
        (self.root / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    def find(self, path, pattern):
        """The first match in a file, whose numbers change with each recording."""
        found = re.search(pattern, (self.root / path).read_text(encoding="utf-8"), re.MULTILINE)
        self.assertIsNotNone(found, f"{path} has no {pattern}")
        return found


class Figures(Documents):
    def test_the_documents_have_the_recorded_figures(self):
        self.assertEqual(self.figures("--check"), (0, ""))

    def test_a_changed_measurement_is_found_and_drawn(self):
        path = "docs/measurements/peers.csv"
        row = next(line for line in (self.root / path).read_text(encoding="utf-8").splitlines()
                   if line.startswith("resnet50,2,") and ",horovod," in line)
        fields = row.split(",")
        fields[4] = str(float(fields[4]) + 0.1)
        self.change(path, row, ",".join(fields))
        status, errors = self.figures("--check")
        self.assertEqual(status, 1)
        for name in ("README.md", "docs/performance.md", "docs/pictures/peers.svg"):
            self.assertIn(f"{self.root / name}: differs", errors)
        self.assertEqual(self.figures()[0], 0)
        self.assertEqual(self.figures("--check"), (0, ""))

    def test_a_figure_typed_into_a_table_is_found(self):
        found = self.find("docs/testing-appendix.md", r"^\| kill \| .*\| (\d+) ms \|")
        self.change("docs/testing-appendix.md", found[0], found[0].replace(f"| {found[1]} ms", f"| 1{found[1]} ms"))
        self.assertIn("docs/testing-appendix.md: differs", self.figures("--check")[1])

    def test_a_changed_picture_is_found(self):
        self.change("docs/pictures/scale.svg", "<circle", "<circle ")
        self.assertIn("docs/pictures/scale.svg: differs", self.figures("--check")[1])

    def test_measurements_say_where_they_are_from(self):
        self.change("docs/measurements/idle.csv", "# Command: ", "# ")
        self.assertIn("idle.csv: no line begins with '# Command: '", self.figures("--check")[1])

    def test_a_value_in_running_text_is_compared(self):
        steps = self.find("docs/testing.md", r"([\d,]+) steps, every program")[1]
        self.change("docs/testing.md", f"{steps} steps", f"1{steps} steps")
        self.assertIn(f"the paragraph with the values 'journeys_hour' has no {steps.replace(',', '')}",
                      self.figures("--check")[1])

    def test_a_value_is_not_found_inside_another(self):
        self.change("docs/diagnosing.md", "takes 73 ns", "takes 173 ns")
        self.assertIn("has no 73", self.figures("--check")[1])

    def test_values_that_are_computed_follow_their_file(self):
        found = self.find("docs/measurements/faults.csv", r"^(_exit0,big,(?:\d+,){4})\d+,")
        self.change("docs/measurements/faults.csv", found[0], f"{found[1]}990,")
        self.assertIn("docs/errors.md: the paragraph with the values 'faults' has no 0.99", self.figures("--check")[1])

    def test_recorded_values_are_shown(self):
        self.change("docs/testing.md", "<!-- values: journeys_hour -->\n", "")
        self.assertIn("no document shows the values 'journeys_hour'", self.figures("--check")[1])

    def test_recorded_outputs_are_quoted_and_say_where_they_are_from(self):
        self.change("docs/measurements/outputs/gan.txt", "# Transcribed from ", "# ")
        self.change("examples/xray/README.md", "<!-- quote: docs/measurements/outputs/xray.txt -->\n", "")
        errors = self.figures("--check")[1]
        self.assertIn("gan.txt: no line begins with '# Recorded at commit'", errors)
        self.assertIn("outputs/xray.txt", errors)

    def test_marks_come_in_pairs(self):
        self.change("docs/scale.md", "<!-- figures: end -->", "")
        self.assertIn("without its", self.figures("--check")[1])


class Quotes(Documents):
    def test_the_documents_quote_files_as_they_are(self):
        self.assertEqual(self.quotes(), (0, ""))

    def test_a_changed_example_is_found(self):
        self.change("examples/basics/resumable.cpp", ".seed = 42", ".seed = 43")
        status, errors = self.quotes()
        self.assertEqual(status, 1)
        self.assertIn("docs/training.md", errors)
        self.assertIn(".seed = 42", errors)

    def test_lines_in_another_order_are_found(self):
        self.change("examples/basics/resumable.cpp", "sampler.load_state(found->part(\"sampler\"));", "step = found->step;")
        self.assertIn("docs/training.md", self.quotes()[1])

    def test_a_missing_file_is_found(self):
        (self.root / "examples/basics/resumable.cpp").unlink()
        self.assertIn("there is no such file", self.quotes()[1])

    def test_a_diff_is_of_both_files(self):
        page = "examples/cifar10_tfrecord/README.md"
        for name, old, new in (("distributed.cpp", "kolo::local_device()", "kolo::other_device()"),
                               ("single_process.cpp", "torch::cuda::is_available()", "torch::cuda::is_here()")):
            with self.subTest(name):
                path = f"examples/cifar10_tfrecord/{name}"
                self.change(path, old, new)
                self.assertIn(f"{page}:", self.quotes()[1])
                self.assertIn(f"not a quote of {path}: the file has no line", self.quotes()[1])
                self.change(path, new, old)
        self.change(page, "-        device_(torch::cuda", "         device_(torch::cuda")
        self.assertIn("not a quote of examples/cifar10_tfrecord/distributed.cpp", self.quotes()[1])

    def test_every_page_of_the_user_guide_has_one(self):
        self.change("docs/elastic.md", "<!-- quote: ", "<!-- ")
        self.assertIn("docs/elastic.md: a page of the user guide without a quote", self.quotes()[1])

    def test_a_changed_output_is_found(self):
        self.change("examples/synthetic_benchmark/README.md", "Iter #4: 1.1 img", "Iter #4: 1.2 img")
        self.assertIn("examples/synthetic_benchmark/README.md", self.quotes()[1])

    def test_an_output_is_no_example(self):
        self.change("docs/diagnosing.md", "<!-- quote: examples/basics/diagnostics.cpp", "<!-- ")
        self.assertIn("docs/diagnosing.md: a page of the user guide without a quote", self.quotes()[1])


class ApiReference(unittest.TestCase):
    def run_filter(self, *arguments):
        done = subprocess.run([sys.executable, str(ROOT / "tools/api/filter.py"), *map(str, arguments)],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_every_header_has_an_area(self):
        self.run_filter("--check")

    def test_functions_share_the_comment_above_them(self):
        text = self.run_filter(ROOT / "include/kolo/session.hpp")
        self.assertEqual(text.count("/// This rank, from 0, and the number of ranks."), 2)
        self.assertIn("/// @addtogroup sessions\n", text)

    def test_what_a_class_cannot_do_and_fields_share_none(self):
        text = self.run_filter(ROOT / "include/kolo/session.hpp")
        self.assertEqual(text.count("/// Passes the program's arguments to MPI."), 1)
        self.assertEqual(self.run_filter(ROOT / "include/kolo/optimizer.hpp").count("/// Number of groups"), 1)


class Links(unittest.TestCase):
    def errors(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (pathlib.Path(folder) / f"{name}.md").write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, str(ROOT / "tools/links.py"), folder], capture_output=True, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1 if done.stderr else 0)
        return done.stderr

    def test_the_documents_have_no_broken_links(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools/links.py")], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_files_and_headings_are_found(self):
        self.assertEqual(self.errors(one="[a](two.md) [b](two.md#some-words-and-code) [c](#here)\n\n# Here\n",
                                     two="## Some words, and `code`\n"), "")

    def test_a_missing_file_is_an_error(self):
        self.assertIn("broken link: two.md\n", self.errors(one="[a](two.md)\n"))

    def test_a_missing_heading_is_an_error(self):
        self.assertIn("no such heading", self.errors(one="[a](#there)\n\n# Here\n"))

    def test_code_has_no_links_and_no_headings(self):
        self.assertIn("no such heading", self.errors(one="[a](#here)\n\n```sh\n# Here\n[b](none.md)\n```\n"))


class Names(unittest.TestCase):
    FILES = {
        "src/base/format.cpp": "namespace base { void print_shape(); }",
        "src/backend/shm/shm_backend.cpp": "struct Backend { int step(); };",
        "tests/fuzz/input": b"\xff",
        "tools/CMakeLists.txt": "add_executable(kolo-perf main.cpp)",
        "docs/page.md": "only_in_a_document",
        "dev": "docs) docs ;;",
    }

    def errors(self, text):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in {**self.FILES, "CONTRIBUTING.md": text}.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
            done = subprocess.run([sys.executable, str(ROOT / "tools/names.py"), folder], capture_output=True, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1 if done.stderr else 0)
        return done.stderr

    def test_the_names_in_the_guide_exist(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools/names.py")], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_paths_and_identifiers_are_found(self):
        self.assertEqual(self.errors("`src/`, `./dev docs`, `format.cpp`, `src/backend/NAME/NAME_backend.cpp`, `src/*/*.cpp`, "
                                     "`print_shape()` in `src/base/format.cpp`, `Backend::step`, `kolo-perf`\n"), "")

    def test_made_up_names_are_errors(self):
        for name in ("print_shapes", "print_shapes()", "Backend::print_shape", "only_in_a_document", "kolo-pert",
                     "src/base/formats.cpp", "src/bases/", "formats.cpp", "src/backend/NAME/NAME_factory.cpp", "./dev doc"):
            with self.subTest(name):
                self.assertIn(f"CONTRIBUTING.md: `{name}`", self.errors(f"See `{name}`.\n"))

    def test_a_name_is_in_the_file_that_is_given(self):
        for name, path in (("`print_shape`", "`shm_backend.cpp`"), ("`step`", "`src/base/format.cpp`")):
            for text in (f"{name} in\n{path}", f"{name} of {path}", f"{name}\n({path})", f"{path}: {name}"):
                with self.subTest(text):
                    self.assertIn(f"{name} is not in {path}", self.errors(f"See {text}.\n"))
        for text in ("`step` in `shm_backend.cpp`", "`step` (`shm_backend.cpp`)", "`shm_backend.cpp`: `step`"):
            with self.subTest(text):
                self.assertEqual(self.errors(f"See {text}.\n"), "")

    def test_code_and_other_text_is_left_out(self):
        self.assertEqual(self.errors("`#if`, `AUTO|ON|OFF`, `format --check`\n\n```sh\n`none.cpp`\n```\n"), "")


if __name__ == "__main__":
    unittest.main()
