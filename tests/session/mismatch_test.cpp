// SPDX-License-Identifier: Apache-2.0
// Ranks that disagree: every rank gets an error that says which rank submitted what, nothing is
// changed, and the session continues.
#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class Mismatches : public WithSession {
 protected:
  void SetUp() override {
    if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  }

  /// Rank 0 submits by `odd`, the others by `usual`, both under `name`; the message has `texts`.
  /// Then all submit by `usual`. Again and again, since names that are known travel differently.
  template <typename Odd, typename Usual>
  void expect(const std::string& name, Odd odd, Usual usual,
              const std::vector<std::string>& texts) {
    for (int round = 0; round < 3; ++round) {
      const auto error = thrown_by<Mismatch>([&] { me_ == 0 ? odd() : usual(); });
      EXPECT_EQ(error.tensor(), name);
      EXPECT_EQ(error.ranks(), ranks());
      EXPECT_THAT(error.what(), HasSubstr('"' + name + '"'));
      for (const std::string& text : texts) EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_THAT(error.what(), HasSubstr(" on rank 0"));
      EXPECT_THAT(error.what(), HasSubstr(n_ == 2 ? " on rank 1" : " on ranks 1-"));
      EXPECT_THAT(floats_, Each(1.0F));
      EXPECT_THAT(integers_, Each(1));
      EXPECT_EQ(text_, "unchanged");
      usual();
      floats_.assign(8, 1.0F);
      integers_.assign(8, 1);
      text_ = "unchanged";
    }
    expect_usable();
  }

  /// Two allreduces of the same tensor that differ in their options.
  void expect_options(const AllreduceOptions& odd, const AllreduceOptions& usual,
                      const std::vector<std::string>& texts) {
    expect(
        usual.name, [&] { allreduce(floats_, odd); }, [&] { allreduce(floats_, usual); }, texts);
  }

  [[nodiscard]] TensorView shaped(Shape shape) { return {floats_.data(), std::move(shape)}; }

  std::vector<float> floats_ = std::vector<float>(8, 1.0F);
  std::vector<std::int32_t> integers_ = std::vector<std::int32_t>(8, 1);
  std::string text_ = "unchanged";
};

TEST_F(Mismatches, OfDtypes) {
  const AllreduceOptions options{.name = "x", .op = ReduceOp::max};
  expect(
      "x", [&] { allreduce(integers_, options); }, [&] { allreduce(floats_, options); },
      {"allreduce", "dtype i32 on rank 0", ", f32 on rank"});
  expect(
      "y", [&] { broadcast(integers_, 0, {.name = "y"}); },
      [&] { broadcast(floats_, 0, {.name = "y"}); }, {"broadcast", "dtype i32 on rank 0"});
  const auto gather = [](const auto& values) { (void)allgather(values, {.name = "z"}); };
  expect(
      "z", [&] { gather(integers_); }, [&] { gather(floats_); },
      {"allgather", "dtype i32 on rank 0"});
}

TEST_F(Mismatches, OfShapes) {
  expect(
      "x", [&] { allreduce(shaped({7}), {.name = "x"}); },
      [&] { allreduce(shaped({8}), {.name = "x"}); },
      {"allreduce", "shape [7] on rank 0", ", [8] on rank"});
  // As many elements in another shape.
  expect(
      "y",
      [&] {
        allreduce(shaped({2, 4}), {.name = "y"});
      },
      [&] { allreduce(shaped({8}), {.name = "y"}); }, {"shape [2, 4] on rank 0", ", [8] on rank"});
  expect(
      "z",
      [&] {
        broadcast(shaped({2, 2}), 0, {.name = "z"});
      },
      [&] {
        broadcast(shaped({4, 2}), 0, {.name = "z"});
      },
      {"broadcast", "shape [2, 2] on rank 0", ", [4, 2] on rank"});
  const auto share = [&](std::size_t rows) {
    const std::span<const float> some(floats_.data(), rows);
    (void)reducescatter(some, {.name = "r"});
  };
  expect(
      "r", [&] { share(7); }, [&] { share(8); },
      {"reducescatter", "shape [7] on rank 0", ", [8] on rank"});
}

TEST_F(Mismatches, OfAllRanks) {
  std::vector<float> tensor(static_cast<std::size_t>(17 + me_), 1.0F);
  const auto error = thrown_by<Mismatch>([&] { allreduce(tensor, {.name = "all differ"}); });
  for (int rank = 0; rank < n_; ++rank)
    EXPECT_THAT(error.what(),
                HasSubstr("[" + std::to_string(17 + rank) + "] on rank " + std::to_string(rank)));
  EXPECT_EQ(error.ranks(), ranks());
  expect_usable();
}

TEST_F(Mismatches, OfOperations) {
  const auto reduce = [&] { allreduce(floats_, {.name = "x"}); };
  const auto gather = [&] { (void)allgather(floats_, {.name = "x"}); };
  expect("x", gather, reduce, {"operation allgather on rank 0", "allreduce on rank"});
  expect("x", [&] { barrier({.name = "x"}); }, reduce,
         {"operation barrier on rank 0", "allreduce on rank"});
  expect("x", [&] { broadcast(floats_, 0, {.name = "x"}); }, reduce,
         {"operation broadcast on rank 0", "allreduce on rank"});
  expect("x", reduce, gather, {"operation allreduce on rank 0", "allgather on rank"});
  expect("x", [&] { broadcast(text_, 0, {.name = "x"}); }, gather, {"allgather on rank"});
  const std::vector<float> even(static_cast<std::size_t>(n_));
  expect(
      "x", [&] { (void)alltoall(even, {.name = "x"}); },
      [&] { (void)reducescatter(even, {.name = "x"}); },
      {"operation alltoall on rank 0", "reducescatter on rank"});
}

TEST_F(Mismatches, OfReduceOps) {
  expect_options({.name = "x", .op = ReduceOp::sum}, {.name = "x", .op = ReduceOp::average},
                 {"allreduce", "reduce op sum on rank 0", "average on rank"});
  expect_options({.name = "x", .op = ReduceOp::min}, {.name = "x", .op = ReduceOp::adasum},
                 {"reduce op min on rank 0", "adasum on rank"});
  const auto share = [&](ReduceOp op) { (void)reducescatter(floats_, {.name = "r", .op = op}); };
  expect(
      "r", [&] { share(ReduceOp::sum); }, [&] { share(ReduceOp::average); },
      {"reducescatter", "reduce op sum on rank 0", "average on rank"});
}

TEST_F(Mismatches, OfScales) {
  expect_options({.name = "x", .prescale = 0.5}, {.name = "x", .prescale = 0.25},
                 {"prescale 0.5 on rank 0", "0.25 on rank"});
  expect_options({.name = "x", .postscale = 3.0}, {.name = "x"},
                 {"postscale 3", "on rank 0", "1 on rank"});
  expect_options({.name = "x", .prescale = 2.0, .postscale = 3.0}, {.name = "x"},
                 {"prescale 2", "; postscale 3"});
}

TEST_F(Mismatches, OfOtherOptions) {
  expect_options({.name = "x", .compression = Compression::fp16},
                 {.name = "x", .compression = Compression::bf16},
                 {"compression fp16 on rank 0", "bf16 on rank"});
  expect_options({.name = "x", .average_over = AverageOver::present}, {.name = "x"},
                 {"average over present on rank 0", "all on rank"});
  const auto group = [&](bool exactly) {
    grouped_allreduce({floats_, integers_}, {.name = "g", .fuse_exactly = exactly});
  };
  expect(
      "g", [&] { group(true); }, [&] { group(false); }, {"fuse exactly true on rank 0"});
}

TEST_F(Mismatches, OfRoots) {
  expect(
      "x", [&] { broadcast(floats_, 0, {.name = "x"}); },
      [&] { broadcast(floats_, 1, {.name = "x"}); },
      {"broadcast", "root 0 on rank 0", "1 on rank"});
  expect(
      "t", [&] { broadcast(text_, 0, {.name = "t"}); }, [&] { broadcast(text_, 1, {.name = "t"}); },
      {"root 0 on rank 0", "1 on rank"});
}

TEST_F(Mismatches, OfGroups) {
  expect(
      "g", [&] { grouped_allreduce({floats_}, {.name = "g"}); },
      [&] {
        grouped_allreduce({floats_, integers_}, {.name = "g"});
      },
      {"number of tensors 1 on rank 0", "2 on rank"});
  expect(
      "g",
      [&] {
        grouped_allreduce({integers_, floats_}, {.name = "g"});
      },
      [&] {
        grouped_allreduce({floats_, integers_}, {.name = "g"});
      },
      {"dtype of tensor 0 i32 on rank 0", "f32 on rank"});
  // An allreduce is a group of one.
  allreduce(floats_, {.name = "g"});
}

TEST_F(Mismatches, OfOperationsWithoutAName) {
  const auto error = thrown_by<Mismatch>([&] {
    if (me_ == 0) {
      barrier();
    } else {
      allreduce(floats_);
    }
  });
  EXPECT_EQ(error.tensor(), "");
  EXPECT_EQ(error.ranks(), ranks());
  EXPECT_THAT(error.what(), HasSubstr("barrier on rank 0"));
  allreduce(floats_);
  EXPECT_THAT(floats_, Each(1.0F));
}

TEST_F(Mismatches, AmongPendingOnesFailNoOther) {
  std::vector<std::vector<double>> tensors;
  std::vector<Future<void>> futures;
  for (std::size_t i = 0; i < 20; ++i)
    tensors.emplace_back(i % 5 == 0 && me_ == 0 ? 3 : 4, static_cast<double>(me_));
  for (std::size_t i = 0; i < 20; ++i)
    futures.push_back(
        allreduce_async(tensors[i], {.name = std::to_string(i), .op = ReduceOp::sum}));
  for (std::size_t i = 0; i < 20; ++i) {
    if (i % 5 == 0) {
      EXPECT_THROW(futures[i].wait(), Mismatch);
      EXPECT_THROW(futures[i].wait(), Mismatch);
      EXPECT_TRUE(futures[i].ready());
      EXPECT_THAT(tensors[i], Each(me_));
    } else {
      futures[i].wait();
      EXPECT_THAT(tensors[i], Each(rank_sum_));
    }
  }
}

}  // namespace
}  // namespace kolo::internal
