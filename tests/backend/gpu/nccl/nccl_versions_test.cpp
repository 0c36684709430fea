// SPDX-License-Identifier: Apache-2.0
// The real NCCL calls against stub libraries of several versions: functions of newer versions are
// used if they exist. KOLO_TEST_NCCL names the library.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <string>

#include "backend/gpu/nccl/library.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A library that is loaded already is the one that Kolo finds.
class NcclVersions : public testing::Test {
 protected:
  void SetUp() override {
    if (built_version().empty()) GTEST_SKIP() << "this build is without NCCL";
    const char* const path = std::getenv("KOLO_TEST_NCCL");
    ASSERT_NE(path, nullptr);
    stub_ = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(stub_, nullptr) << ::dlerror();
    int version = 0;
    reinterpret_cast<int (*)(int*)>(::dlsym(stub_, "ncclGetVersion"))(&version);
    version_ = version;
  }
  [[nodiscard]] std::string calls() const {
    return reinterpret_cast<const char* (*)()>(::dlsym(stub_, "stub_calls"))();
  }

  static constexpr int oldest = 21800;
  static constexpr int with_memory = 21900;
  static constexpr int with_shrink = 22700;
  static constexpr int with_windows = 22800;

  void* stub_ = nullptr;
  int version_ = 0;
};

TEST_F(NcclVersions, From218On) {
  if (version_ >= oldest) {
    EXPECT_EQ(find_library()->version(), version_);
    return;
  }
  try {
    static_cast<void>(find_library());
    ADD_FAILURE() << "it was not refused";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("NCCL 2.17.1 is not supported: Kolo needs NCCL 2.18"));
  }
}

TEST_F(NcclVersions, MemoryIsAllocatedAndRegisteredByNcclWhereItCan) {
  if (version_ < oldest) GTEST_SKIP();
  const auto nccl = find_library();
  CommHandle comm = nullptr;
  ASSERT_EQ(nccl->init(comm, 1, nccl->make_unique_id(), 0), State::ready);
  if (version_ < with_memory) {  // cudaMalloc, for which there may be no GPU
    std::array<std::byte, 8> memory{};
    EXPECT_EQ(nccl->register_buffer(comm, memory.data(), memory.size()).handle, nullptr);
    try {
      nccl->release(nccl->allocate(64));
    } catch (const BackendError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cudaMalloc failed"));
    }
  } else {
    std::byte* const memory = nccl->allocate(64);
    const Registration registration = nccl->register_buffer(comm, memory, 64);
    EXPECT_EQ(registration.handle, memory);
    EXPECT_FALSE(registration.is_window);
    nccl->deregister_buffer(comm, registration);
    nccl->release(memory);
    EXPECT_THAT(calls(),
                HasSubstr(version_ >= with_windows ? "allocate window register deregister release"
                                                   : "allocate register deregister release"));
  }
  nccl->destroy(comm);
}

TEST_F(NcclVersions, CommunicatorsAreShrunkWhereNcclCan) {
  if (version_ < oldest) GTEST_SKIP();
  const auto nccl = find_library();
  EXPECT_EQ(nccl->can_derive(), version_ >= with_shrink);
  if (!nccl->can_derive()) return;
  CommHandle parent = nullptr;
  CommHandle child = nullptr;
  ASSERT_EQ(nccl->init(parent, 2, nccl->make_unique_id(), 0), State::ready);
  nccl->shrink(child, parent, std::array{1});
  EXPECT_EQ(child, nullptr) << "NCCL reports success before the child is made";
  EXPECT_EQ(nccl->state(parent), State::ready);
  EXPECT_NE(child, nullptr);
  CommHandle blocking = nullptr;
  nccl->split(blocking, parent);
  EXPECT_EQ(nccl->state(parent), State::ready);
  EXPECT_NE(blocking, nullptr);
  nccl->destroy(blocking);
  nccl->destroy(child);
  nccl->destroy(parent);
}

TEST_F(NcclVersions, MemoryIsAWindowWhereTheGpusHaveThem) {
  if (version_ < with_windows) GTEST_SKIP();
  const auto nccl = find_library();
  CommHandle comm = nullptr;
  ASSERT_EQ(nccl->init(comm, 1, nccl->make_unique_id(), 0), State::ready);
  std::byte* const memory = nccl->allocate(64);
  ::setenv("KOLO_TEST_NCCL_WINDOWS", "1", 1);
  const Registration registration = nccl->register_buffer(comm, memory, 64);
  EXPECT_TRUE(registration.is_window);
  nccl->deregister_buffer(comm, registration);
  EXPECT_THAT(calls(), HasSubstr("allocate window close"));
  nccl->release(memory);
  nccl->destroy(comm);
}

/// A call that has not ended would use what the abort frees.
TEST_F(NcclVersions, AnAbortFreesNothingThatACallUses) {
  if (version_ < oldest) GTEST_SKIP();
  const auto nccl = find_library();
  CommHandle comm = nullptr;
  ASSERT_EQ(nccl->init(comm, 1, nccl->make_unique_id(), 0), State::ready);
  const std::array<const CommHandle*, 1> all{&comm};
  std::string before;
  const bool aborted = nccl->abort(all, [&] {
    before = calls();
    return false;
  });
  EXPECT_EQ(aborted, version_ < with_shrink) << "there, calls wait for the GPU only";
  EXPECT_EQ(before.find("abort") != std::string::npos, version_ >= with_shrink);
  EXPECT_THAT(calls(), Not(HasSubstr("end-of-group")));
  nccl->destroy(comm);
}

TEST_F(NcclVersions, AbortsDoNotWaitForOneAnother) {
  if (version_ < oldest) GTEST_SKIP();
  const auto nccl = find_library();
  std::array<CommHandle, 3> comms{};
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(nccl->init(comms.at(i), 1, nccl->make_unique_id(), 0), State::ready);
  EXPECT_TRUE(nccl->abort(std::array<const CommHandle*, 3>{&comms[0], &comms[2], &comms[1]},
                          [] { return true; }));
  EXPECT_THAT(calls(), HasSubstr(version_ >= with_shrink ? "group grouped-abort grouped-abort"
                                                         : "abort abort"));
  EXPECT_THAT(calls(), Not(HasSubstr("deadlock")));
}

TEST_F(NcclVersions, RanksShareAGpuOnlyIfTheUserAllowsIt) {
  if (version_ < oldest) GTEST_SKIP();
  const auto nccl = find_library();
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(nccl->allows_shared_gpus());
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_EQ(nccl->allows_shared_gpus(), version_ >= 23000);
}

}  // namespace
}  // namespace kolo::internal::backend::nccl
