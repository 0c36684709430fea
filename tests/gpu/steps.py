# SPDX-License-Identifier: Apache-2.0
"""The steps of gpu-check and their commands, on a card or against doubles."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP_SECONDS = 470  # the limits of a step's commands together

# NCCL 2.30 and later: several ranks on one GPU. Their kernels take turns unless they are small.
SHARED_CARD = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
# Each rank logs its path, and NCCL's version.
LOGGED = {"KOLO_LOG_LEVEL": "info"}
OVER_NCCL = {**SHARED_CARD, **LOGGED, "KOLO_GPU_OPERATIONS": "nccl"}
ALONE = {"KOLO_LAUNCHER": "none"}
STAGED = {**LOGGED, "KOLO_GPU_OPERATIONS": "staged"}
OPERATIONS = "allreduce,allgather,broadcast,alltoall,reducescatter"


@dataclasses.dataclass
class Command:
    name: str
    argv: list
    seconds: int = 60
    environment: dict = dataclasses.field(default_factory=dict)
    status: int = 0  # None: any
    patterns: list = dataclasses.field(default_factory=list)  # all found in the output
    needs: list = dataclasses.field(default_factory=list)  # programs, by path or name
    keeps_output: bool = False  # in the summary
    lacks: str = ""  # a reason not to run it

    def path(self):
        """The data path that the command is to take: a pattern of Kolo's log line about it."""
        forced = self.environment.get("KOLO_GPU_OPERATIONS")
        return {"nccl": r"GPU tensors of ranks \S+ use NCCL \S+",
                "staged": r"GPU tensors of ranks \S+ are staged through host memory",
                None: r"GPU tensors of ranks \S+ (use|are staged).*"}[forced]

    def __post_init__(self):
        self.argv = [str(word) for word in self.argv]

    def missing(self):
        if self.lacks:
            return self.lacks
        for program in self.needs:
            if shutil.which(str(program)) is None:
                return f"there is no {pathlib.Path(program).name} here"
        return ""


@dataclasses.dataclass
class Step:
    name: str
    commands: list
    is_required: bool = False  # for all later steps

    def __post_init__(self):
        total = sum(command.seconds for command in self.commands)
        assert total <= STEP_SECONDS, f"step {self.name} may take {total} s"


class Maker:
    """Settings shared by the steps."""

    def __init__(self, arguments):
        self.dry = arguments.dry_run
        self.mpirun = arguments.mpirun
        self.builds = arguments.programs is None
        self.bin = (arguments.programs or ROOT / "build/gpu/bin").resolve()
        self.doubles = "_doubles" if self.dry else ""  # the end of programs' names

    def alone(self, name, program, *arguments, **more):
        path = self.bin / program
        return Command(name, [path, *arguments], needs=[path], **more)

    def ranks(self, name, count, program, *arguments, options=(), seconds=60, **more):
        path = self.bin / program
        return Command(
            name, [self.mpirun, *options, "-np", count, "--timeout", seconds - 10, path, *arguments],
            needs=[self.mpirun, path], seconds=seconds, **more)

    def probe(self):
        commands = [self.alone("gpu", "gpu_probe" + self.doubles, keeps_output=True,
                               environment=SHARED_CARD)]
        if self.dry:
            # The real libraries too: without a GPU they say so.
            commands.append(self.alone("this-machine", "gpu_probe", status=None, keeps_output=True,
                                       patterns=["there is no GPU here|cuda:0: "]))
        else:
            commands.append(Command("nvidia-smi", ["nvidia-smi"], needs=["nvidia-smi"],
                                    keeps_output=True))
        return Step("probe", commands, is_required=True)

    def build(self):
        build = ROOT / "build/gpu"
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DKOLO_WITH_CUDA=ON", "-DKOLO_WITH_NCCL=ON"]
        targets = ["gpu_probe", "gpu_faults", "unit.gpu_card", "kolo-perf", "bench-gpu",
                   "bench-gpu-host", "bench-nccl-cost"]
        wheel = torch_wheel()
        if wheel:
            options += ["-DKOLO_WITH_TORCH=ON", f"-DTorch_DIR={ROOT}/cmake/torch-wheel",
                        f"-DKOLO_TORCH_WHEEL={wheel}"]
            targets += ["gpu_trainings", "gpu_side_stream", "bench-gpu-step"]
        else:
            options.append("-DKOLO_WITH_TORCH=OFF")
        return Step("build", [
            Command("configure", ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options],
                    needs=["cmake", "ninja"]),
            Command("compile", ["cmake", "--build", build, "--target", *targets], seconds=400)],
            is_required=True)

    def kernel(self):
        if self.dry:
            return Step("kernel", [self.alone("on-the-host", "unit.gpu_kernel", seconds=120)])
        kernel = ("unit.gpu_card", "--gtest_filter=*TheKernel*")
        commands = [self.alone("against-the-reference", *kernel, patterns=["OK .*TheKernel"])]
        for tool in ("memcheck", "racecheck", "initcheck"):
            command = self.alone(tool, *kernel, seconds=80, patterns=["OK .*TheKernel"])
            command.argv[:0] = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
            command.needs.append("compute-sanitizer")
            commands.append(command)
        return Step("kernel", commands)

    def nccl(self):
        if self.dry:
            return Step("nccl", [
                self.alone("communicators", "unit.nccl", seconds=120),
                self.alone("random-programs", "unit.gpu_programs", seconds=240),
                self.ranks("two-processes", 2, "mpi.gpu")])
        commands = [
            self.alone("one-rank", "unit.gpu_card", "--gtest_filter=*OneRank*",
                       patterns=["OK .*OneRankOverNccl"]),
            self.alone("one-process", "unit.gpu_card", "--gtest_filter=*TwoRanks*",
                       environment=SHARED_CARD, patterns=["OK .*TwoRanksInOneProcess"])]
        for name, environment in (("two-processes", OVER_NCCL),
                                  ("staged", STAGED)):
            commands.append(self.ranks(
                name, 2, "kolo-perf", "--device", "cuda", "--operation", OPERATIONS, "--sizes",
                "4,1000,64K,5M", "--dtype", "f32,f64,f16,bf16,i16,i32,u8", "--iterations", "4",
                "--warmup", "1", "--csv", seconds=120, environment=environment))
        return Step("nccl", commands)

    def faults(self):
        commands = []
        for scenario, ranks in (("kill", 2), ("two", 3), ("init", 2), ("shrink", 3)):
            survivors = [rank for rank in range(ranks) if rank != ranks - 2]
            commands.append(self.ranks(
                scenario, ranks, "gpu_faults" + self.doubles, scenario,
                options=["--enable-recovery"], seconds=90, status=None,
                environment=OVER_NCCL,
                patterns=[f"rank {rank}: its model, copied off the GPU, is whole"
                          for rank in survivors]))
        return Step("faults", commands)

    def torch(self):
        if self.dry:
            return Step("torch", [
                self.ranks("collectives-and-hooks", 2, "torch.gpu", seconds=120),
                *(self.ranks(f"trainings-{count}", count, "gpu_trainings_doubles", "cuda",
                             seconds=120) for count in (1, 2))])
        torch = self.with_torch()
        commands = [self.ranks(f"trainings-{count}", count, "gpu_trainings", seconds=80,
                               lacks=torch.lacks,
                               environment={**torch.libraries, **LOGGED,
                                            **(OVER_NCCL if count > 1 else {})})
                    for count in (1, 2, 3)]
        commands += [self.ranks(f"side-stream-{count}", count, "gpu_side_stream", seconds=100,
                                lacks=torch.lacks,
                                environment={**torch.libraries, **SHARED_CARD, **LOGGED})
                     for count in (1, 2)]
        return Step("torch", commands)

    def with_torch(self):
        """PyTorch's libraries for the programs with LibTorch."""
        wheel = torch_wheel()
        if not wheel:
            return Torch({}, "there is no PyTorch with CUDA here: name its folder in KOLO_TORCH_WHEEL")
        folders = [f"{wheel}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        libraries = {"LD_LIBRARY_PATH": ":".join(folders), **kit_nccl()}
        built = self.bin.parent / "torch-version"  # of a kit
        found = version_of(pathlib.Path(wheel))
        if built.exists() and built.read_text().strip() != found:
            return Torch(libraries, f"the kit is for PyTorch {built.read_text().strip()}, "
                                    f"here is {found}")
        return Torch(libraries, "")

    def bench(self):
        if self.dry:
            return Step("bench", [
                self.alone("plan", "bench-gpu", "--plan", keeps_output=True),
                self.alone("nccl-plan", "bench-nccl-cost", "--plan", keeps_output=True),
                self.alone("step", "bench-gpu-step", "--device", "cpu", "--model", "tiny",
                           "--batch-size", "2", "--steps", "2", "--rounds", "2", "--kinds",
                           "plain,kolo,late,graph,split,captured", environment=ALONE, keeps_output=True,
                           patterns=["measured step-2-f32-captured-over-graph "]),
                self.ranks("host", 2, "bench-gpu-host_doubles", "--passes", "2", "10x1KB", "2x64KB",
                           keeps_output=True, patterns=["measured host-2-10x1KB-done "]),
                self.ranks("gradients-cpu", 2, "kolo-perf", "--gradients", "1000x1KB",
                           "--iterations", "2", keeps_output=True)])
        return Step("bench", [*self.bench_steps(), *self.bench_calls()])

    def bench_steps(self):
        torch = self.with_torch()
        environment = {**torch.libraries, **LOGGED, **ALONE, "KOLO_GPU_OPERATIONS": "nccl"}
        commands = []
        for name, batch, dtype, kinds in (("32-f32", 32, "f32", "plain,kolo,late,graph,split"),
                                          ("128-f32", 128, "f32", "plain,kolo"),
                                          ("32-bf16", 32, "bf16", "plain,kolo"),
                                          ("captured", 32, "f32", "graph,captured")):
            commands.append(self.alone(
                f"step-{name}", "bench-gpu-step", "--batch-size", batch, "--dtype", dtype,
                "--kinds", kinds, seconds=50, environment=environment, lacks=torch.lacks,
                keeps_output=True))
        commands.insert(3, Command(
            "ddp", [sys.executable, ROOT / "bench/ddp_step.py", "32-f32", "128-f32", "32-bf16"],
            seconds=58, keeps_output=True))
        return commands

    def bench_calls(self):
        """Kolo in a process of its own needs KOLO_LAUNCHER, since MPI starts a daemon there, which the
        kit lacks."""
        over_nccl = {**LOGGED, **ALONE, "KOLO_GPU_OPERATIONS": "nccl"}
        return [
            self.alone("host", "bench-gpu-host", seconds=30, environment=over_nccl,
                       keeps_output=True),
            self.ranks("host-2", 2, "bench-gpu-host", "1x1MiB", "1x64MiB", "resnet50", seconds=40,
                       environment=OVER_NCCL, keeps_output=True),
            self.ranks("nccl-cost", 2, "bench-nccl-cost", seconds=50, environment=OVER_NCCL,
                       keeps_output=True),
            self.alone("kernel-and-nccl", "bench-gpu", seconds=50, environment=over_nccl,
                       keeps_output=True),
            self.ranks("gradients-staged-2", 2, "kolo-perf", "--device", "cuda", "--gradients",
                       "resnet50,1000x1KB", "--iterations", "10", seconds=40, environment=STAGED,
                       keeps_output=True)]


@dataclasses.dataclass
class Torch:
    """PyTorch's libraries, as variables of the environment, or the reason why there are none."""
    libraries: dict
    lacks: str


def version_of(wheel):
    """The version of PyTorch in a wheel's folder `torch`."""
    path = wheel / "version.py"
    found = re.search(r"__version__ = '([^'+]+)", path.read_text()) if path.exists() else None
    return found[1] if found else "of an unknown version"


def kit_nccl():
    """The environment in which programs with LibTorch use the kit's NCCL. LibTorch's libraries name
    the folder of its own, older NCCL (DT_RPATH), which comes before LD_LIBRARY_PATH."""
    library = os.environ.get("KOLO_KIT_NCCL")
    return {"LD_PRELOAD": library} if library else {}


def torch_wheel():
    """The folder of PyTorch, if it has CUDA."""
    if "KOLO_TORCH_WHEEL" in os.environ:
        return os.environ["KOLO_TORCH_WHEEL"]
    script = ("import os, torch\n"
              "if torch.version.cuda: print(os.path.dirname(torch.__file__))")
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True, check=False)
    return found.stdout.strip()


def make(arguments):
    maker = Maker(arguments)
    # The most telling steps first, since the time on a card may end.
    chosen = [maker.probe(), maker.bench(), maker.kernel(), maker.nccl(), maker.torch(),
              maker.faults()]
    return [maker.build(), *chosen] if maker.builds else chosen
