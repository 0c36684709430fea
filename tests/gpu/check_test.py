#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of gpu-check's own logic: limits, results, continuing after a stop."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402  (its folder is named above)
import rows  # noqa: E402  (its folder is named above)
import steps  # noqa: E402  (its folder is named above)
import trim_fatbin  # noqa: E402

# Steps whose programs are scripts in a folder that the test fills.
FAKE_STEPS = '''
import sys
sys.path.insert(0, {here!r})
import steps
def make(arguments):
    maker = steps.Maker(arguments)
    return [steps.Step("first", [maker.alone("one", "one"), maker.alone("two", "two")],
                       is_required={required}),
            steps.Step("second", [maker.alone("three", "three", seconds={seconds}, patterns=["is whole"]),
                                  maker.alone("four", "four")])]
steps.make = make
import check
check.main()
'''


class CheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        for name in ("one", "two", "three", "four"):
            self.program(name, "echo the model is whole; echo %s >>ran" % name)

    def program(self, name, script):
        path = self.path / name
        path.write_text(f"#!/bin/sh\ncd {self.path}\n{script}\n")
        path.chmod(0o755)

    def check(self, *options, required=False, seconds=25):
        script = FAKE_STEPS.format(here=str(HERE), required=required, seconds=seconds)
        result = subprocess.run(
            [sys.executable, "-c", script, "--programs", self.path, "--output",
             self.path / "output", *options], stdout=subprocess.PIPE, text=True, check=False)
        self.summary = json.loads((self.path / "output/summary.json").read_text())
        return result.returncode

    def ran(self):
        return (self.path / "ran").read_text().split()

    def test_all_commands_run_once(self):
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.ran(), ["one", "two", "three", "four"])
        self.assertEqual(len(self.summary["passed"]), 4)
        self.assertIn("the model is whole", (self.path / "output/second.log").read_text())

    def test_what_is_left_is_run_by_the_next_call(self):
        self.assertEqual(self.check("--seconds", "30"), 75)  # only the one with a limit of 25 s
        self.assertEqual(self.ran(), ["three"])
        self.assertEqual(self.summary["left"], ["first/one", "first/two", "second/four"])
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.ran(), ["three", "one", "two", "four"])

    def test_a_failure_is_kept_until_it_is_asked_for_again(self):
        self.program("two", "echo two >>ran; exit 5")
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.summary["failed"], ["first/two"])
        self.assertEqual(self.summary["steps"]["first"]["two"]["reason"], "exit status 5")
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.ran().count("two"), 1)
        self.program("two", "echo two >>ran")
        self.assertEqual(self.check("--again"), 0)
        self.assertEqual(self.ran().count("two"), 2)

    def test_no_step_follows_a_required_one_that_failed(self):
        self.program("one", "exit 3")
        self.assertEqual(self.check(required=True), 1)
        self.assertEqual(self.ran(), ["two"])

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        self.program("three", "sleep 1000 & echo $! >child; echo is whole; wait")
        self.assertEqual(self.check(seconds=1), 1)
        self.assertEqual(self.summary["steps"]["second"]["three"]["reason"], "not done after 1 s")
        child = (self.path / "child").read_text().strip()
        try:
            self.assertNotIn(b"sleep", (pathlib.Path("/proc") / child / "cmdline").read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
        self.assertIn("four", self.ran())

    def test_output_must_match(self):
        self.program("three", "echo the model is damaged")
        self.assertEqual(self.check(), 1)
        self.assertIn("no line of the output matches",
                      self.summary["steps"]["second"]["three"]["reason"])

    def test_a_program_that_is_missing_or_skips_is_no_failure(self):
        (self.path / "one").unlink()
        self.program("two", "echo there is no card; exit 77")
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.summary["skipped"], ["first/one", "first/two"])
        self.assertEqual(self.summary["steps"]["first"]["two"]["reason"], "there is no card")

    def test_goals_come_from_the_numbers_that_commands_print(self):
        self.program("three", "echo is whole; echo measured nccl-2-kolo-4-host 21.5000 us")
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.summary["steps"]["second"]["three"]["numbers"],
                         {"nccl-2-kolo-4-host": [21.5, "us"]})
        self.assertIn("MISSED  host time of an NCCL call of two ranks: 21.5 us (at most 20)",
                      self.summary["goals"])

    def test_one_output_is_of_one_mode(self):
        self.assertEqual(self.check(), 0)
        self.assertEqual(self.check("--dry-run"), 1)


class StepsTest(unittest.TestCase):
    def test_every_step_ends_within_eight_minutes(self):
        for dry_run in (True, False):
            for programs in (pathlib.Path("bin"), None):
                class Arguments:
                    mpirun = "mpirun"
                Arguments.dry_run, Arguments.programs = dry_run, programs
                names = [step.name for step in steps.make(Arguments)]
                self.assertEqual(names[-6:], ["probe", "bench", "kernel", "nccl", "torch", "faults"])


    def on_a_card(self, name, folder=pathlib.Path("bin")):
        class Arguments:
            mpirun, dry_run, programs = "mpirun", False, folder
        return {command.name: command for step in steps.make(Arguments)
                for command in step.commands}[name]

    def test_no_program_of_kolo_starts_mpi_alone(self):
        for name in ("kernel-and-nccl", "host", "step-32-f32", "step-captured"):
            self.assertEqual(self.on_a_card(name).environment["KOLO_LAUNCHER"], "none")

    def test_training_on_a_card_uses_the_nccl_of_the_kit(self):
        with unittest.mock.patch.dict(os.environ, KOLO_KIT_NCCL="/kit/lib/libnccl.so.2",
                                      KOLO_TORCH_WHEEL="/wheel/torch"):
            for name in ("trainings-2", "step-32-f32"):
                environment = self.on_a_card(name).environment
                self.assertEqual(environment["LD_PRELOAD"], "/kit/lib/libnccl.so.2")
                self.assertEqual(environment["LD_LIBRARY_PATH"].split(":")[0], "/wheel/torch/lib")

    def test_programs_with_torch_need_the_version_that_the_kit_was_built_with(self):
        with tempfile.TemporaryDirectory() as folder:
            kit, wheel = pathlib.Path(folder) / "kit", pathlib.Path(folder) / "torch"
            for made in (kit / "bin", wheel):
                made.mkdir(parents=True)
            (kit / "torch-version").write_text("2.11.0\n")
            with unittest.mock.patch.dict(os.environ, KOLO_TORCH_WHEEL=str(wheel)):
                for version, reason in (
                        ("2.11.0", ""),
                        ("2.12.1", "the kit is for PyTorch 2.11.0, here is 2.12.1")):
                    (wheel / "version.py").write_text(f"__version__ = '{version}+cu130'\n")
                    command = self.on_a_card("step-32-f32", kit / "bin")
                    self.assertEqual(command.lacks, reason)
        self.assertEqual(command.missing(), reason)

    def test_a_command_fails_if_it_takes_another_path(self):
        command = self.on_a_card("trainings-2")
        line = "[kolo rank 0] info: GPU tensors of ranks 0-1 "
        self.assertEqual(check.judge(command, 0, line + "use NCCL 2.30.7\n")["status"], "passed")
        staged = line + "are staged through host memory: NCCL 2.28.9 lacks it\n"
        self.assertEqual(check.judge(command, 0, staged)["status"], "failed")


class RowsTest(unittest.TestCase):
    KERNELS = ["kernel/memcheck", "kernel/racecheck"]

    def row(self, output, work):
        found, = [line for line in rows.lines(rows.numbers_of(output), self.KERNELS, [], [])
                  if work in line]
        return found

    def test_a_goal_is_met_if_all_of_its_numbers_are_within_their_limits(self):
        first = "measured host-1-resnet50-done 0.2900 ms\n"
        self.assertIn("open ", self.row(first, "161 tensors"))
        good = self.row(first + "noise\nmeasured host-1-1000x1KB-done 0.3500 ms\n", "161 tensors")
        self.assertTrue(good.startswith("met "), good)
        bad = self.row(first + "measured host-1-1000x1KB-done 0.3600 ms\n", "161 tensors")
        self.assertTrue(bad.startswith("MISSED"), bad)

    def test_a_step_must_also_be_below_the_overhead_of_ddp(self):
        names = ("128-f32", "32-f32", "32-bf16")
        own = "".join(f"measured step-{name}-kolo-over-plain 0.5000 %\n" for name in names)
        self.assertIn("open ", self.row(own, "step of ResNet-50"))
        for ddp, word in (("0.6", "met "), ("0.5", "MISSED")):
            other = "".join(f"measured ddp-{name}-ddp-over-plain {ddp} %\n" for name in names)
            self.assertTrue(self.row(own + other, "step of ResNet-50").startswith(word))

    def test_failures_and_kernels_without_a_check_do_not_meet_the_last_goal(self):
        for passed, failed, left, word in ((self.KERNELS, [], [], "met "),
                                           (self.KERNELS[:1], [], [], "open "),
                                           (self.KERNELS, [], ["nccl/staged"], "open "),
                                           (self.KERNELS, ["nccl/staged"], [], "MISSED")):
            self.assertTrue(rows.lines({}, passed, failed, left)[-1].startswith(word))


class TrimTest(unittest.TestCase):
    def test_code_of_other_architectures_becomes_zeros(self):
        def entry(kind, architecture, code):
            header = bytearray(64)
            trim_fatbin.ENTRY.pack_into(header, 0, kind, 1, 64, len(code))
            header[28:32] = architecture.to_bytes(4, "little")
            return bytes(header) + code
        all_entries = [entry(2, 80, b"a" * 24), entry(2, 90, b"b" * 16), entry(1, 90, b"c" * 8)]
        body = b"".join(all_entries)
        image = bytearray(b"before!!" + trim_fatbin.CONTAINER.pack(
            trim_fatbin.MAGIC, 1, trim_fatbin.CONTAINER.size, len(body)) + body + b"behind")
        length = len(image)
        end, has_code = trim_fatbin.trim_container(image, 8, {90})
        self.assertTrue(has_code)
        self.assertEqual((len(image), image[end:]), (length, b"behind"))
        left = list(trim_fatbin.entries(image, 8 + 16, 8 + 16 + len(all_entries[1])))
        self.assertEqual([(kind, architecture) for _, kind, architecture, _ in left], [(2, 90)])
        self.assertEqual(image[24:24 + len(all_entries[1])], all_entries[1])
        self.assertEqual(set(image[24 + len(all_entries[1]):end]), {0})


if __name__ == "__main__":
    unittest.main()
