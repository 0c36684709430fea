#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the files that gpu-check needs on a machine with only a GPU, glibc and a driver.

The kit is an archive of less than 60 MiB: the programs, Open MPI, NCCL with code for one
architecture, their libraries, a Python, and the script `run`. Made on the Debian whose packages the
programs were built with; the other machine's glibc must be as new.
"""

import argparse
import ctypes.util
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

import trim_fatbin

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_BYTES = 60 << 20
NCCL = "nvidia-nccl-cu13==2.30.7"  # the first minor version that lets ranks share a GPU
PROGRAMS = ["gpu_probe", "gpu_probe_doubles", "gpu_faults", "gpu_faults_doubles",
            "unit.gpu_card", "unit.gpu_kernel", "unit.nccl",
            "unit.gpu_programs", "mpi.gpu", "kolo-perf", "bench-gpu", "bench-gpu-host",
            "bench-gpu-host_doubles", "bench-nccl-cost"]
TORCH_PROGRAMS = ["bench-gpu-step", "gpu_side_stream", "gpu_trainings"]
SCRIPTS = ["tests/gpu/check.py", "tests/gpu/steps.py", "tests/gpu/rows.py", "bench/ddp_step.py"]
PYTHON = ["python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"]

# A part of every system that has glibc, of the driver, or of PyTorch, which the other machine has.
NOT_CARRIED = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so",
               "librt.so", "libutil.so", "libresolv.so", "libcuda.so", "libnvidia", "libnccl.so",
               "libtorch", "libc10", "libgomp", "libcudart", "libcublas", "libcudnn", "libcufft",
               "libcufile", "libcupti", "libcurand", "libcusolver", "libcusparse", "libnvJitLink",
               "libnvrtc", "libnvshmem", "libnvToolsExt")
# Used only where the system has none: others there need theirs, which may be newer.
FALLBACKS = ("libstdc++.so", "libgcc_s.so", "libz.so", "libudev.so", "libexpat.so")
MPI_LIBRARIES = "usr/lib/x86_64-linux-gnu/openmpi/lib"
MPI_PLUGINS = f"{MPI_LIBRARIES}/openmpi3"
PMIX = "usr/lib/x86_64-linux-gnu/pmix2"
# Plug-ins for hardware and schedulers, and the processes of other hosts.
UNUSED_PLUGINS = ("ucx", "ofi", "psm", "openib", "slurm", "flux", "jsm", "gridengine", "memheap",
                  "scoll", "spml", "sshmem", "atomic", "simulator", "vprotocol", "bzip")


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, **more)


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def libraries_of(path):
    """The libraries that the loader finds for a program or library."""
    found = run("ldd", path, stdout=subprocess.PIPE, text=True).stdout
    for line in found.splitlines():
        name, _, place = line.strip().partition(" => ")
        if name.startswith(NOT_CARRIED) or not place:
            continue
        if place.startswith("not found"):
            sys.exit(f"make_kit: {path} needs {name}, which is not found")
        yield name, place.split(" (")[0]


class Kit:
    def __init__(self, folder, programs):
        self.folder = folder
        self.programs = programs
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def add_libraries_of(self, path):
        for name, place in libraries_of(path):
            where = "fallback/lib" if name.startswith(FALLBACKS) else "lib"
            if not (self.folder / where / name).exists():
                copy(os.path.realpath(place), self.folder / where / name)

    def add_programs(self, torch_version):
        """Adds the programs, and the version of PyTorch that those with LibTorch need."""
        if torch_version:
            (self.folder / "torch-version").write_text(torch_version + "\n")
        for name in PROGRAMS + (TORCH_PROGRAMS if torch_version else []):
            source, target = self.programs / name, self.folder / "bin" / name
            if not source.exists():
                sys.exit(f"make_kit: there is no {source}")
            target.parent.mkdir(exist_ok=True)
            run("strip", "-o", target, source)
            self.add_libraries_of(source)
        self.add_loaded("libhwy.so.1")

    def add_loaded(self, name):
        """Adds a library that Kolo loads at run time, and which `ldd` therefore does not show."""
        found = ctypes.util.find_library(name.removeprefix("lib").partition(".")[0])
        if found != name:
            sys.exit(f"make_kit: {name} is not found")
        script = f"import ctypes; ctypes.CDLL({name!r}); print(open('/proc/self/maps').read())"
        maps = run(sys.executable, "-c", script, stdout=subprocess.PIPE, text=True).stdout
        loaded = re.search(rf"\S+/{re.escape(name)}\S*", maps)[0]
        copy(loaded, self.folder / "lib" / name)
        self.add_libraries_of(loaded)

    def add_mpi(self):
        """Adds Open MPI in the folders in which it searches below OPAL_PREFIX."""
        mpi = self.folder / "mpi"
        copy(shutil.which("orterun"), mpi / "usr/bin/mpirun")
        self.add_libraries_of(shutil.which("orterun"))
        plugins = [path for folder in (MPI_PLUGINS, f"{PMIX}/lib/pmix")
                   for path in glob.glob(f"/{folder}/*.so")
                   if not any(word in path for word in UNUSED_PLUGINS)]
        for path in plugins:
            copy(path, mpi / path[1:])
            self.add_libraries_of(path)
        for folder in ("usr/share/openmpi", "usr/share/pmix2", f"{PMIX}/share", "etc/openmpi"):
            if os.path.isdir(f"/{folder}"):
                shutil.copytree(f"/{folder}", mpi / folder, dirs_exist_ok=True,
                                ignore_dangling_symlinks=True)

    def add_nccl(self, library, architectures):
        """Adds the trimmed NCCL library, which is loaded by its name."""
        image = bytearray(library.read_bytes())
        kept = {int(architecture) for architecture in architectures.split(",")}
        with_code, _ = trim_fatbin.trim(image, kept)
        if with_code == 0:
            sys.exit(f"make_kit: {library} has no code for {architectures}")
        target = self.folder / "lib/libnccl.so.2"
        target.write_bytes(image)
        run("strip", "-g", target)
        run("fallocate", "--dig-holes", target)  # where code was

    def add_python(self, work):
        run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PYTHON, cwd=work)
        for package in work.glob("*python3*.deb"):
            run("dpkg-deb", "-x", package, work / "python")
        target = self.folder / "fallback/python"
        copy(work / "python/usr/bin/python3.11", target / "bin/python3")
        library = "lib/python3.11"
        shutil.copytree(work / "python/usr" / library, target / library,
                        ignore=shutil.ignore_patterns("test*", "__pycache__", "lib2to3", "ensurepip",
                                                      "idlelib", "pydoc_data", "distutils"))
        self.add_libraries_of(work / "python/usr/bin/python3.11")

    def add_scripts(self):
        """Adds the scripts and the kernel's source, whose machine code is checked on machines with nvcc."""
        for name in SCRIPTS:
            copy(ROOT / name, self.folder / name)
        copy(ROOT / "tests/gpu/run_kit.sh", self.folder / "run")
        for source in [*ROOT.glob("include/**/*.hpp"), *ROOT.glob("src/**/*.hpp"),
                       *ROOT.glob("src/**/*.cu")]:
            copy(source, self.folder / source.relative_to(ROOT))


def fetch_nccl(work):
    """Downloads NCCL from PyPI."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
        "--dest", work, NCCL)
    wheel, = work.glob("nvidia_nccl*.whl")
    run(sys.executable, "-m", "zipfile", "-e", wheel, work / "nccl")
    return work / "nccl/nvidia/nccl/lib/libnccl.so.2"


def pack(folder, archive):
    """Packs the folder with sparse files, so that the zeros in the trimmed NCCL take no room on the
    other machine either. The programs contain the same library: a dictionary as large as all of
    them together stores it once."""
    run("tar", "--create", "--use-compress-program", "xz --threads=1 --lzma2=preset=4,dict=192MiB",
        "--sparse", "--owner=0", "--group=0", "--file", archive, "--directory", folder.parent,
        folder.name)
    size = archive.stat().st_size
    print(f"gpu-kit: {archive}: {size / (1 << 20):.1f} MiB")
    if size >= MAX_BYTES:
        sys.exit(f"gpu-kit: that is not less than {MAX_BYTES >> 20} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path("build/kolo-gpu-kit.tar.xz"))
    parser.add_argument("--torch-version",
                        help="the PyTorch that the programs with LibTorch were built with; by "
                             "default the kit has no such programs")
    parser.add_argument("--nccl", type=pathlib.Path,
                        help=f"a libnccl.so.2; by default {NCCL} is downloaded")
    parser.add_argument("--architectures", default="90",
                        help="whose code is kept of NCCL, such as 80,90 (default: 90)")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    work = output.parent / "gpu-kit.work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    kit = Kit(work / "kolo-gpu-kit", arguments.programs.resolve())
    kit.add_programs(arguments.torch_version)
    kit.add_mpi()
    kit.add_nccl(arguments.nccl or fetch_nccl(work), arguments.architectures)
    kit.add_python(work)
    kit.add_scripts()
    pack(kit.folder, output)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
