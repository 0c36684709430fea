// SPDX-License-Identifier: Apache-2.0
// The tiles, alignments and tails of the kernel: the kernel's code, compiled for the host, compared
// with a copy of one element after the other.
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

// A build with CUDA has the real one.
#define launch_transfer launch_transfer_on_host
#define find_transfer_kernel find_transfer_kernel_on_host
#include "../doubles/fake_cuda.hpp"
#include "backend/gpu/runtime/transfer.cu"
#include "base/elements.hpp"
#include "transfer_types.hpp"

namespace kolo::internal::backend::gpu {
namespace {

/// NaNs may differ in their bits: they become zeros in both.
struct ClearNans {
  std::byte* a;
  std::byte* b;
  std::int64_t elements;

  template <typename From, typename To>
  void operator()() const {
    if constexpr (!std::is_same_v<To, Truth> && !std::integral<To>)
      for (std::int64_t i = 0; i < elements; ++i)
        if (std::isnan(computed(load<To>(a, i))) && std::isnan(computed(load<To>(b, i)))) {
          std::memset(a + i * std::int64_t{sizeof(To)}, 0, sizeof(To));
          std::memset(b + i * std::int64_t{sizeof(To)}, 0, sizeof(To));
        }
  }
};

class KernelTest : public testing::Test {
 protected:
  /// At any alignment unless it is given, which most tensors have.
  void add(Types types, std::int64_t elements, const Scaling& scaling, bool aligned,
           bool in_place) {
    Segment segment{.elements = elements, .scaling = scaling};
    segment.from_type = types.from;
    segment.to_type = types.to;
    segment.from = take(elements, types.from, aligned);
    segment.to =
        in_place ? const_cast<std::byte*>(segment.from) : take(elements, types.to, aligned);
    segments_.push_back(segment);
  }
  void add_at(Types types, std::int64_t elements, std::size_t from_offset, std::size_t to_offset) {
    Segment segment{.elements = elements, .scaling = {}};
    segment.from_type = types.from;
    segment.to_type = types.to;
    segment.from = take_at(elements, types.from, from_offset);
    segment.to = take_at(elements, types.to, to_offset);
    segments_.push_back(segment);
  }

  /// Nothing else in memory may change.
  void expect_as_one_after_the_other() {
    std::vector<std::byte> found(bytes_ + 64);
    for (std::byte& byte : found) byte = static_cast<std::byte>(random_());
    std::vector<std::byte> expected = found;
    std::vector<Segment> moved = segments_;
    for (Segment& segment : moved) place(segment, found.data());
    for (std::span<const Segment> left = moved; !left.empty();) {
      const TransferTable table = make_table(left);
      ASSERT_EQ(launch_transfer(table, nullptr), cudaSuccess);
      left = left.subspan(static_cast<std::size_t>(table.count));
    }
    for (const Segment& offsets : segments_) {
      Segment segment = offsets;
      place(segment, expected.data());
      transfer_on_host(segment);
      Segment other = offsets;
      place(other, found.data());
      const ClearNans clear{other.to, segment.to, segment.elements};
      visit_types(segment.from_type, segment.to_type, clear);
    }
    EXPECT_TRUE(found == expected);
  }

  std::mt19937_64 random_{7};

 private:
  std::byte* take(std::int64_t elements, DType type, bool aligned) {
    return take_at(elements, type, aligned ? 0 : random_() % 17);
  }
  std::byte* take_at(std::int64_t elements, DType type, std::size_t offset) {
    const std::size_t begin = (bytes_ + 15) / 16 * 16 + offset;
    bytes_ = begin + static_cast<std::size_t>(elements * signed_size_of(type)) + random_() % 32;
    return reinterpret_cast<std::byte*>(begin);
  }
  static void place(Segment& segment, std::byte* base) {
    segment.from = base + reinterpret_cast<std::uintptr_t>(segment.from);
    segment.to = base + reinterpret_cast<std::uintptr_t>(segment.to);
  }

  std::vector<Segment> segments_{};  // with offsets for places
  std::size_t bytes_ = 0;
};

TEST_F(KernelTest, EveryTypeScaleAlignmentAndTail) {
  for (const Types types : all_types())
    for (const std::int64_t elements : {1, 7, 16, 1000, 4099, 8192, 40001})
      for (const Scaling scaling : {Scaling{}, Scaling{3, 1.0}, Scaling{4, 1.0}, Scaling{1, 0.3}})
        for (const bool aligned : {true, false}) add(types, elements, scaling, aligned, false);
  expect_as_one_after_the_other();
  EXPECT_EQ(cuda_on_host.blocks, 5 * blocks_per_multiprocessor) << "blocks take several tiles";
}

TEST_F(KernelTest, EveryPairOfAlignments) {
  for (const Types types : all_types())
    for (std::size_t from = 0; from < 16; ++from)
      for (std::size_t to = 0; to < 16; ++to) add_at(types, 37, from, to);
  expect_as_one_after_the_other();
}

TEST_F(KernelTest, InPlace) {
  for (const Types types : all_types())
    if (types.from == types.to)
      for (const bool aligned : {true, false})
        for (const std::int64_t elements : {5, 20003})
          add(types, elements, {7, 1.0}, aligned, true);
  expect_as_one_after_the_other();
}

TEST_F(KernelTest, ManySmallSegments) {
  for (int i = 0; i < 3000; ++i)
    add({DType::f32, DType::f32}, static_cast<std::int64_t>(1 + random_() % 40), {}, i % 2 == 0,
        false);
  expect_as_one_after_the_other();
}

TEST_F(KernelTest, AnErrorThatTheProgramHasNotAskedForStaysItsOwn) {
  add({DType::f32, DType::f32}, 100, {}, true, false);
  cuda_on_host.last_error = cudaErrorInvalidValue;
  expect_as_one_after_the_other();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace kolo::internal::backend::gpu
