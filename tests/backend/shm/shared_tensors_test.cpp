// SPDX-License-Identifier: Apache-2.0
// Allreduces of tensors in the ranks' heaps. One thread drives all ranks.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "../tensors.hpp"
#include "shm_host.hpp"

namespace kolo::internal::backend {
namespace {

using Running = std::unique_ptr<Execution>;

constexpr std::int64_t bytes_of_piece = std::int64_t{32} << 10;
constexpr std::int64_t elements_of_piece = bytes_of_piece / std::int64_t{sizeof(float)};

/// A tensor of each rank, of random elements, most of which sums cannot keep exactly.
class SharedTensors : public testing::Test {
 protected:
  static constexpr int size = 3;

  SharedTensors() : host_({0, 1, 2}, bytes_of_piece, std::size_t{8} << 20) {}

  /// `in_heap`: of these ranks the tensor lies in the heap.
  void fill(std::int64_t elements, const std::vector<int>& in_heap) {
    std::mt19937 random(static_cast<unsigned>(elements));
    for (int rank = 0; rank < size; ++rank) {
      if (std::ranges::find(in_heap, rank) != in_heap.end())
        array_memory() = [this, rank](std::size_t) {
          return std::shared_ptr<std::byte>(host_.heap(rank) + sizeof(float), [](std::byte*) {});
        };
      tensors_.emplace_back(Lengths{elements}, true, [&](std::size_t, std::int64_t) {
        return static_cast<float>(random()) / 3e9F - 0.7F;
      });
      array_memory() = nullptr;
    }
  }

  [[nodiscard]] std::vector<float> sums(std::int64_t elements) {
    std::vector<float> sums;
    for (std::int64_t k = 0; k < elements; ++k) {
      float sum = tensors_[0].output(0)[k];
      for (std::size_t rank = 1; rank < size; ++rank) sum += tensors_[rank].output(0)[k];
      sums.push_back(sum);
    }
    return sums;
  }

  Running start(int rank, std::uint64_t sequence = 0) {
    Batch batch;
    batch.kind = allreduce_of(ReduceOp::sum);
    batch.set = batch.ranks = {0, 1, 2};
    batch.sequence = sequence;
    tensors_[static_cast<std::size_t>(rank)].add_to(batch);
    return host_.backend(rank).start(std::move(batch));
  }

  std::vector<float> elements_of(int rank, std::int64_t elements) {
    const float* const first = tensors_[static_cast<std::size_t>(rank)].output(0).elements.get();
    return {first, first + elements};
  }

  /// As often as something moves; false if one of them is not done.
  static bool finish(std::vector<Running>& running) {
    for (bool moved = true; std::exchange(moved, false);)
      for (Running& execution : running) {
        if (execution == nullptr) continue;
        const Progress progress = execution->step();
        moved |= progress != Progress::waiting;
        if (progress == Progress::done) execution.reset();
      }
    return std::ranges::all_of(running, [](const Running& each) { return each == nullptr; });
  }

  std::vector<Running> start_all() {
    std::vector<Running> running;
    for (int rank = 0; rank < size; ++rank) running.push_back(start(rank));
    return running;
  }

  ShmHost host_;
  std::vector<Tensors<float>> tensors_{};
};

/// The number of elements; the ranks whose tensor lies in the heap.
using Given = std::pair<std::int64_t, std::vector<int>>;

class SomeInHeaps : public SharedTensors, public testing::WithParamInterface<Given> {};

TEST_P(SomeInHeaps, AreSummedInTheOrderOfTheRanks) {
  const auto& [elements, in_heap] = GetParam();
  fill(elements, in_heap);
  const std::vector<float> expected = sums(elements);
  std::vector<Running> running = start_all();
  ASSERT_TRUE(finish(running));
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ(elements_of(rank, elements), expected) << rank;
}

// Lengths of one piece, of a few, and of more than may be in progress at once.
const std::vector<Given> givens = [] {
  std::vector<Given> all;
  for (const std::int64_t elements :
       {elements_of_piece, 3 * elements_of_piece + 1, 40 * elements_of_piece + 17})
    for (const std::vector<int>& in_heap :
         {std::vector<int>{}, {0}, {2}, {0, 1}, {1, 2}, {0, 1, 2}})
      all.emplace_back(elements, in_heap);
  return all;
}();
INSTANTIATE_TEST_SUITE_P(Of, SomeInHeaps, testing::ValuesIn(givens));

TEST_F(SharedTensors, ARankIsAWindowAheadOfAnother) {
  fill(40 * elements_of_piece, {0, 1, 2});
  Running first = start(0);
  // All that it can do alone is one step.
  EXPECT_EQ(first->step(), Progress::moved);
  EXPECT_EQ(first->step(), Progress::waiting);
  EXPECT_EQ(host_.backend(0).arena().counters(0, 0).deposited.pieces, shm::max_window);
}

TEST_F(SharedTensors, ARankThatIsDoneIsWrittenNoMore) {
  fill(3 * elements_of_piece, {0, 1, 2});
  std::vector<Running> running = start_all();
  while (running[0] != nullptr)
    for (Running& execution : running)
      if (execution != nullptr && execution->step() == Progress::done) execution.reset();
  const std::int64_t elements = 3 * elements_of_piece;
  std::fill_n(tensors_[0].output(0).elements.get(), elements, 0.5F);
  ASSERT_TRUE(finish(running));
  EXPECT_THAT(elements_of(0, elements), testing::Each(0.5F));
}

TEST_F(SharedTensors, ARankWhoseSessionHasFailedIsWrittenNoMore) {
  constexpr std::int64_t elements = 3 * elements_of_piece;
  fill(elements, {0, 1, 2});
  std::vector<Running> running = start_all();
  EXPECT_EQ(running[2]->step(), Progress::moved);  // its tensors may be written from now on
  host_.backend(2).abandon();
  running[2].reset();
  std::fill_n(tensors_[2].output(0).elements.get(), elements, 0.5F);
  std::vector<Running> others;
  for (const std::size_t rank : {0U, 1U}) others.push_back(std::move(running[rank]));
  EXPECT_FALSE(finish(others));
  EXPECT_THAT(elements_of(2, elements), testing::Each(0.5F));
  EXPECT_THAT(others[0]->waits_for().ranks, testing::ElementsAre(2));
}

}  // namespace
}  // namespace kolo::internal::backend
