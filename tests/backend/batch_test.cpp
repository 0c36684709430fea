// SPDX-License-Identifier: Apache-2.0
#include "backend/batch.hpp"

#include <gmock/gmock.h>

#include <new>
#include <stdexcept>

#include "kolo/error.hpp"
#include "tensors.hpp"

namespace kolo::internal::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Batch batch_of(Descriptor kind, std::vector<int> set, std::vector<int> ranks) {
  Batch batch;
  batch.kind = std::move(kind);
  batch.set = std::move(set);
  batch.ranks = std::move(ranks);
  return batch;
}

TEST(Batch, KnowsThePlacesOfItsRanks) {
  Batch batch = batch_of(operation_of(OperationType::broadcast, 7), {2, 5, 7, 9}, {2, 7, 9});
  EXPECT_EQ(index_of(2, batch), 0);
  EXPECT_EQ(index_of(9, batch), 2);
  EXPECT_EQ(root_index(batch), 1);
  for (const int stranger : {1, 5, 10})
    EXPECT_THROW((void)index_of(stranger, batch), InvalidArgument) << stranger;
  EXPECT_THAT([&] { (void)index_of(5, batch); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 5")));
  batch.kind.root = 5;
  EXPECT_THAT([&] { (void)root_index(batch); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 5")));
}

TEST(Batch, OfATextHasOneText) {
  std::string text = "abc";
  const BatchTensor with{.text = &text};
  const BatchTensor without{};
  Batch batch;
  EXPECT_THROW((void)text_of(batch), InvalidArgument);
  batch.tensors = {&without};
  EXPECT_THROW((void)text_of(batch), InvalidArgument);
  batch.tensors = {&with};
  EXPECT_EQ(&text_of(batch), &text);
  batch.tensors = {&with, &with};
  EXPECT_THROW((void)text_of(batch), InvalidArgument);
}

class Checks : public testing::Test {
 protected:
  /// Checks a batch of one member after `change` has modified it.
  template <typename Change>
  static void check_with(OperationType type, Change change) {
    BatchTensor member{.dtype = DType::f32,
                       .counts = {1, 2},
                       .allocate = [](std::span<const std::int64_t>) -> void* { return nullptr; }};
    Batch batch = batch_of(reduction_of(type, ReduceOp::sum), {0, 3, 4}, {0, 4});
    batch.tensors = {&member};
    change(batch, member);
    check(batch);
  }
};

TEST_F(Checks, AcceptWhatIsRight) {
  for (const OperationType type :
       {OperationType::allreduce, OperationType::reducescatter, OperationType::allgather,
        OperationType::alltoall, OperationType::broadcast, OperationType::barrier})
    EXPECT_NO_THROW(check_with(type, [](Batch&, BatchTensor&) {}));
}

TEST_F(Checks, RefuseMemoryOfAGpu) {
  EXPECT_THROW(check_with(OperationType::allreduce,
                          [](Batch& batch, BatchTensor&) {
                            batch.kind.device = {DeviceType::cuda, 0};
                          }),
               InvalidArgument);
}

TEST_F(Checks, RefuseRanksOutsideTheSet) {
  EXPECT_THAT(
      [] {
        check_with(OperationType::barrier, [](Batch& batch, BatchTensor&) {
          batch.ranks = {0, 2};
        });
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 2")));
}

TEST_F(Checks, RefuseReductionsWithoutMeaning) {
  for (const OperationType type : {OperationType::allreduce, OperationType::reducescatter})
    EXPECT_THROW(
        check_with(type, [](Batch&, BatchTensor& member) { member.dtype = DType::boolean; }),
        InvalidArgument);
}

TEST_F(Checks, RefuseWrongCountsAndMissingAllocators) {
  EXPECT_THAT(
      [] {
        check_with(OperationType::alltoall,
                   [](Batch&, BatchTensor& member) { member.counts = {1}; });
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("2 ranks"), HasSubstr("1 counts"))));
  for (const OperationType type : {OperationType::allgather, OperationType::alltoall})
    EXPECT_THROW(check_with(type, [](Batch&, BatchTensor& member) { member.allocate = nullptr; }),
                 InvalidArgument);
}

class Allocates : public testing::Test {
 protected:
  static constexpr std::int64_t row_elements = 3;

  /// Rank 3 of the set takes no part.
  std::byte* allocate_rows(std::vector<std::int64_t> rows, Allocator allocator) {
    member_.allocate = std::move(allocator);
    return allocate(batch_of(operation_of(OperationType::allgather), {0, 3, 4}, {0, 4}), member_,
                    rows);
  }

  BatchTensor member_{.dtype = DType::f64, .row_elements = row_elements};
};

TEST_F(Allocates, WithTheRowsOfTheWholeSet) {
  std::array<double, 9> memory{};
  std::vector<std::int64_t> told;
  std::byte* const given = allocate_rows({1, 2}, [&](std::span<const std::int64_t> rows) -> void* {
    told.assign(rows.begin(), rows.end());
    return memory.data();
  });
  EXPECT_EQ(given, bytes_of(memory.data()));
  EXPECT_THAT(told, testing::ElementsAre(1, 0, 2));
}

TEST_F(Allocates, NothingForNoElements) {
  const Allocator none = [](std::span<const std::int64_t>) -> void* { return nullptr; };
  EXPECT_EQ(allocate_rows({0, 0}, none), nullptr);
  EXPECT_THAT(
      [&] {
        (void)allocate_rows({1, 0}, none);
      },
      ThrowsMessage<BackendError>(
          AllOf(HasSubstr("allgather"), HasSubstr("3 elements of f64"), HasSubstr("none"))));
}

TEST_F(Allocates, AndSaysWhyItCannot) {
  const Allocator refuses = [](std::span<const std::int64_t>) -> void* {
    throw std::runtime_error("the disk is full");
  };
  EXPECT_THAT(
      [&] {
        (void)allocate_rows({2, 2}, refuses);
      },
      ThrowsMessage<BackendError>(HasSubstr("the disk is full")));
  EXPECT_EQ(allocate_rows({0, 0}, refuses), nullptr);
}

TEST(Slices, CoverAllElementsInOrder) {
  for (const int size : {1, 2, 3, 4, 7, 64}) {
    for (std::int64_t elements = 0; elements < 3000; elements += elements < 70 ? 1 : 97) {
      std::int64_t end = 0;
      for (int index = 0; index < size; ++index) {
        const Slice slice = slice_of(elements, index, size);
        ASSERT_EQ(slice.begin, end) << index << " of " << size << ", " << elements << " elements";
        ASSERT_GE(slice.elements, 0);
        if (elements >= 16 * size && slice.elements > 0) {
          ASSERT_EQ(slice.begin % 16, 0);
        }
        end += slice.elements;
      }
      ASSERT_EQ(end, elements) << size;
    }
  }
}

TEST(Slices, AreFairButForTheirAlignment) {
  for (const int size : {2, 3, 4, 7}) {
    for (const std::int64_t elements : {5, 100, 4096, 1'000'000})
      for (int index = 0; index < size; ++index)
        EXPECT_LE(slice_of(elements, index, size).elements, elements / size + 16);
  }
  EXPECT_EQ(slice_of(std::int64_t{1} << 40, 3, 4).begin, 3 * (std::int64_t{1} << 38));
}

/// Every element of the input belongs to one window of one rank, and lands in its place.
void expect_windows_cover(const std::vector<std::pair<std::int64_t, std::int64_t>>& shapes,
                          int size, std::int64_t bytes, Compression compression) {
  std::vector<Array<float>> inputs;
  std::vector<BatchTensor> members;
  for (const auto& [rows, row_elements] : shapes) {
    const Array<float>& input = inputs.emplace_back(rows * row_elements);
    members.push_back({.input = input.elements.get(),
                       .dtype = DType::f32,
                       .rows = rows,
                       .row_elements = row_elements});
  }
  Batch batch;
  batch.kind = reduction_of(OperationType::reducescatter, ReduceOp::sum, compression);
  for (BatchTensor& member : members) batch.tensors.push_back(&member);
  for (int rank = 0; rank < size; ++rank) batch.ranks.push_back(rank);
  std::vector<std::vector<std::int64_t>> ends(shapes.size());  // by member, then by rank
  for (auto& of_ranks : ends) of_ranks.resize(static_cast<std::size_t>(size));
  Windows windows(batch, bytes);
  Window window;
  while (windows.next(window)) {
    const auto m = static_cast<std::size_t>(window.tensor - members.data());
    const auto* input = static_cast<const float*>(members[m].input);
    ASSERT_LE(window.max_elements * size * (compression == Compression::none ? 4 : 2),
              std::max<std::int64_t>(bytes, 4 * size));
    std::int64_t rows_before = 0;
    for (int rank = 0; rank < size; ++rank) {
      std::int64_t& end = ends[m][static_cast<std::size_t>(rank)];
      const std::int64_t elements = window.elements_of(rank);
      ASSERT_LE(elements, window.max_elements);
      if (elements > 0) {
        ASSERT_EQ(window.offset, end);
        ASSERT_EQ(window.input_of(rank),
                  bytes_of(input + rows_before * members[m].row_elements + end));
      }
      end += elements;
      rows_before += reducescatter_rows(members[m].rows, rank, size);
    }
  }
  for (std::size_t m = 0; m < shapes.size(); ++m)
    for (int rank = 0; rank < size; ++rank)
      EXPECT_EQ(ends[m][static_cast<std::size_t>(rank)],
                reducescatter_rows(shapes[m].first, rank, size) * shapes[m].second)
          << "member " << m << ", rank " << rank;
}

TEST(Windows, CoverAllRows) {
  for (const int size : {1, 2, 3, 5})
    for (const std::int64_t bytes : {1, 64, 1000, 1 << 20})
      for (const Compression compression : {Compression::none, Compression::fp16}) {
        SCOPED_TRACE(testing::Message() << size << " ranks, " << bytes << " bytes");
        expect_windows_cover({}, size, bytes, compression);
        expect_windows_cover({{0, 3}, {3, 0}}, size, bytes, compression);
        expect_windows_cover({{7, 11}, {0, 1}, {1, 100}, {100, 1}}, size, bytes, compression);
      }
}

}  // namespace
}  // namespace kolo::internal::backend
