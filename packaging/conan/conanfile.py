# SPDX-License-Identifier: Apache-2.0
"""Kolo for Conan 2: `conan create packaging/conan --build=missing -s compiler.cppstd=20`.

The libraries that Kolo uses come from the system, since MPI and LibTorch must be those of the program:
`-c tools.system.package_manager:mode=install` lets Conan install them.
"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt, Dnf


class KoloConan(ConanFile):
    name = "kolo"
    license = "Apache-2.0"
    description = "Distributed data-parallel training for C++ programs"
    topics = ("machine-learning", "distributed", "mpi", "nccl", "libtorch")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "with_torch": [True, False], "with_cuda": [True, False],
               "with_tools": [True, False]}
    default_options = {"shared": False, "with_torch": False, "with_cuda": False, "with_tools": True}

    @property
    def sources(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        lists = load(self, os.path.join(self.sources, "CMakeLists.txt"))
        self.version = re.search(r"project\(kolo VERSION ([\d.]+)", lists)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "include/*", "src/*", "tools/*"):
            copy(self, pattern, self.sources, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def system_requirements(self):
        Apt(self).install(["libopenmpi-dev", "openmpi-bin", "flatbuffers-compiler", "libflatbuffers-dev",
                           "libspdlog-dev", "libfmt-dev", "libhwy-dev", "zlib1g-dev", "libfabric-dev",
                           "libhwloc-dev", "libsodium-dev", "pkg-config", "nlohmann-json3-dev"], check=True)
        Dnf(self).install(["openmpi-devel", "flatbuffers-compiler", "flatbuffers-devel", "spdlog-devel",
                           "fmt-devel", "highway-devel", "zlib-devel", "libfabric-devel", "hwloc-devel",
                           "libsodium-devel", "pkgconf-pkg-config", "json-devel"], check=True)
        if self.options.with_torch:
            Apt(self).install(["libtorch-dev", "libopenblas0-pthread"], check=True)
        if self.options.with_tools:
            Apt(self).install(["libcli11-dev"], check=True)
            Dnf(self).install(["cli11-devel"], check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"KOLO_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["KOLO_UNITY"] = "ON"  # makes a full build fastest
        for variable, option in (("KOLO_BUILD_TOOLS", "with_tools"), ("KOLO_WITH_TORCH", "with_torch"),
                                 ("KOLO_WITH_CUDA", "with_cuda")):
            toolchain.cache_variables[variable] = "ON" if self.options.get_safe(option) else "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # Kolo's own CMake package defines what a program links.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "kolo"))
