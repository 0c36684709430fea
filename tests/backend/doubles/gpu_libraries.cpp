// SPDX-License-Identifier: Apache-2.0
// Replaces CUDA and NCCL in whole programs: each process has a GPU of its own, and NCCL is the
// double. A process whose doubles report errors ends with a failure.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"

namespace kolo::internal::backend {
namespace {

struct Doubles {
  std::shared_ptr<FakeCuda> cuda = std::make_shared<FakeCuda>(
      std::vector{0, 1, 2, 3, 4, 5, 6, 7}, static_cast<std::uint64_t>(::getpid()),
      FakeCuda::Clock::by_itself);
  std::shared_ptr<FakeNcclWorld> world{};

  Doubles() = default;
  /// Memory that the program has not given back is no mistake of Kolo's.
  ~Doubles() {
    std::vector<std::string> complaints;
    for (const std::string& complaint : cuda->complaints())
      if (!complaint.ends_with(" are left")) complaints.push_back(complaint);
    if (world != nullptr)
      for (const std::string& complaint : world->complaints()) complaints.push_back(complaint);
    for (const std::string& complaint : complaints)
      std::fprintf(stderr, "the doubles of CUDA and NCCL: %s\n", complaint.c_str());
    if (!complaints.empty()) std::_Exit(70);
  }
  Doubles(const Doubles&) = delete;
  Doubles& operator=(const Doubles&) = delete;
};

Doubles& doubles() {
  static Doubles all;
  return all;
}

}  // namespace

std::string gpu::built_version() { return "13.0"; }

std::shared_ptr<gpu::Runtime> gpu::find_runtime() { return doubles().cuda; }

std::string nccl::built_version() { return "2.28.9"; }

std::shared_ptr<nccl::Library> nccl::find_library() {
  Doubles& all = doubles();
  all.world = FakeNcclWorld::of_job();
  auto library = std::make_shared<FakeNccl>(all.world, all.cuda);
  library->notices_aborts = false;
  return library;
}

}  // namespace kolo::internal::backend
