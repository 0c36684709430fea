# SPDX-License-Identifier: Apache-2.0
# Usage: copy this file to packages/kolo/package.py in a repository of your own.
from spack.package import *


class Kolo(CMakePackage, CudaPackage):
    """Distributed data-parallel training for C++ programs, over MPI, NCCL and shared memory."""

    # For `spack develop kolo` or `spack install kolo source=...`: set this to your clone of the
    # sources.
    git = "file:///path/to/kolo"

    license("Apache-2.0")

    version("main", branch="main")

    variant("shared", default=True, description="Build shared libraries")
    variant("torch", default=False, description="Build kolo::torch, which needs LibTorch")
    variant("nccl", default=True, when="+cuda", description="Support NCCL between GPUs")
    variant("tools", default=True, description="Build kolo-perf, kolo-diagnose, kolo-checkpoint and kolorun")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi@3.1:")
    depends_on("fmt@9.1:")
    depends_on("spdlog@1.10: +shared fmt_external=True")
    depends_on("highway@1.0.3:")
    depends_on("hwloc@2.9:")
    depends_on("libsodium@1.0.18:")
    depends_on("libfabric@1.17:")
    depends_on("zlib-api")
    depends_on("flatbuffers@2:", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("cli11@2.1:", type="build", when="+tools")
    depends_on("py-torch@1.13:", when="+torch")
    depends_on("cuda@12.5:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")

    conflicts("%gcc@:11", msg="Kolo needs C++20 as g++ 12 has it")

    def cmake_args(self):
        args = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("KOLO_BUILD_TOOLS", "tools"),
            self.define_from_variant("KOLO_WITH_TORCH", "torch"),
            self.define_from_variant("KOLO_WITH_CUDA", "cuda"),
            self.define("KOLO_WITH_NCCL", self.spec.satisfies("+nccl")),
            self.define("KOLO_BUILD_TESTS", False),
            self.define("KOLO_BUILD_EXAMPLES", False),
            self.define("KOLO_BUILD_BENCHMARKS", False),
        ]
        if self.spec.satisfies("+cuda") and "none" not in self.spec.variants["cuda_arch"].value:
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args
