// SPDX-License-Identifier: Apache-2.0
// Allgather and alltoall.
#include <gmock/gmock.h>

#include <new>

#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

template <typename T>
T tagged(int from, int to, std::int64_t k) {
  return make<T>((k * 7 + 3 * from + 5 * to) % 100);
}

template <typename T>
class Gather : public BackendTest {
 protected:
  /// `sent(from)` rows of `row_elements`; the result is all ranks' rows.
  void expect_allgather(const std::vector<std::pair<std::int64_t, std::int64_t>>& shapes,
                        auto sent) {
    std::vector<std::unique_ptr<Gathered<T>>> members;
    Batch batch = batch_of(operation_of(OperationType::allgather));
    for (const auto& [rows, row_elements] : shapes) {
      auto& made =
          members.emplace_back(std::make_unique<Gathered<T>>(sent(rows, rank_), row_elements));
      for (std::int64_t k = 0; k < made->input.length; ++k) made->input[k] = tagged<T>(rank_, 0, k);
      batch.tensors.push_back(&made->member);
    }
    run(std::move(batch));
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::int64_t at = 0;
      ASSERT_EQ(members[i]->rows.size(), static_cast<std::size_t>(size_));
      for (int from = 0; from < size_; ++from) {
        const std::int64_t rows = sent(shapes[i].first, from);
        ASSERT_EQ(members[i]->rows[static_cast<std::size_t>(from)], rows);
        for (std::int64_t k = 0; k < rows * shapes[i].second; ++k, ++at)
          ASSERT_EQ(value_of(members[i]->output[at]), value_of(tagged<T>(from, 0, k)));
      }
      ASSERT_EQ(at, members[i]->output.length);
    }
  }

  /// Every rank sends `count(from, to)` rows of each member.
  void expect_alltoall(const std::vector<std::int64_t>& row_elements, auto count) {
    std::vector<std::unique_ptr<Gathered<T>>> members;
    Batch batch = batch_of(operation_of(OperationType::alltoall));
    for (const std::int64_t elements : row_elements) {
      Rows counts;
      std::int64_t rows = 0;
      for (int to = 0; to < size_; ++to) rows += counts.emplace_back(count(rank_, to));
      auto& made = members.emplace_back(std::make_unique<Gathered<T>>(rows, elements));
      made->member.counts = counts;
      std::int64_t at = 0;
      for (int to = 0; to < size_; ++to)
        for (std::int64_t k = 0; k < count(rank_, to) * elements; ++k)
          made->input[at++] = tagged<T>(rank_, to, k);
      batch.tensors.push_back(&made->member);
    }
    run(std::move(batch));
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::int64_t at = 0;
      for (int from = 0; from < size_; ++from) {
        ASSERT_EQ(members[i]->rows[static_cast<std::size_t>(from)], count(from, rank_));
        for (std::int64_t k = 0; k < count(from, rank_) * row_elements[i]; ++k, ++at)
          ASSERT_EQ(value_of(members[i]->output[at]), value_of(tagged<T>(from, rank_, k)));
      }
      ASSERT_EQ(at, members[i]->output.length);
    }
  }
};
TYPED_TEST_SUITE(Gather, AllTypes);

TYPED_TEST(Gather, AllgatherOfTheSameRowsFromEach) {
  const auto same = [](std::int64_t rows, int) { return rows; };
  this->expect_allgather({{1, 1}}, same);
  this->expect_allgather({{500, 3}}, same);
  this->expect_allgather({{0, 4}}, same);
  this->expect_allgather({{5, 1}, {1000, 1}, {2, 0}, {1, 300}}, same);
}

TYPED_TEST(Gather, AllgatherOfOtherRowsFromEach) {
  this->expect_allgather({{0, 3}, {1, 1}, {100, 7}},
                         [](std::int64_t rows, int rank) { return rows * rank + rank % 2; });
}

TYPED_TEST(Gather, AlltoallOfTheSameCounts) {
  this->expect_alltoall({1}, [](int, int) { return std::int64_t{1}; });
  this->expect_alltoall({1, 10}, [](int, int) { return std::int64_t{200}; });
}

TYPED_TEST(Gather, AlltoallOfOtherCounts) {
  this->expect_alltoall({1, 3, 0},
                        [](int from, int to) { return std::int64_t{70} * from * (to % 2) + to; });
  this->expect_alltoall({2}, [](int, int) { return std::int64_t{0}; });
}

class Allgather : public BackendTest {};

TEST_F(Allgather, RanksThatTakeNoPartHaveNoRows) {
  // The last rank has joined.
  Gathered<float> gathered(3);
  for (std::int64_t k = 0; k < 3; ++k) gathered.input[k] = static_cast<float>(10 * rank_ + k);
  Batch batch = batch_of(operation_of(OperationType::allgather));
  batch.tensors.push_back(&gathered.member);
  if (size_ > 1) batch.ranks.pop_back();
  if (size_ > 1 && rank_ == size_ - 1) return;
  run(std::move(batch));
  Rows rows(static_cast<std::size_t>(size_), 3);
  if (size_ > 1) rows.back() = 0;
  EXPECT_EQ(gathered.rows, rows);
  for (std::int64_t k = 0; k < gathered.output.length; ++k)
    EXPECT_EQ(gathered.output[k], static_cast<float>(k / 3 * 10 + k % 3));
}

TEST_F(Allgather, WithoutMemoryItFails) {
  const Allocator allocators[] = {
      [](std::span<const std::int64_t>) -> void* { return nullptr; },
      [](std::span<const std::int64_t>) -> void* { throw std::bad_alloc(); }};
  for (const Allocator& allocator : allocators) {
    start_anew(piece_bytes);
    Gathered<float> gathered(3);
    gathered.member.allocate = allocator;
    Batch batch = batch_of(operation_of(OperationType::allgather));
    batch.tensors.push_back(&gathered.member);
    EXPECT_THROW(finish(*backend_->start(std::move(batch))), BackendError);
  }
}

TEST_F(Allgather, NoElementsNeedNoMemory) {
  Gathered<float> gathered(0);
  gathered.member.allocate = [](std::span<const std::int64_t>) -> void* { return nullptr; };
  Batch batch = batch_of(operation_of(OperationType::allgather));
  batch.tensors.push_back(&gathered.member);
  run(std::move(batch));
}

TEST_F(Allgather, RefusesWhatCannotBe) {
  Gathered<float> gathered(3);
  Batch batch = batch_of(operation_of(OperationType::alltoall));
  batch.tensors.push_back(&gathered.member);
  gathered.member.counts.resize(static_cast<std::size_t>(size_) + 1);
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
  batch.kind.type = OperationType::allgather;
  batch.set.clear();
  EXPECT_THROW(static_cast<void>(backend_->start(batch)), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
