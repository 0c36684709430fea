// SPDX-License-Identifier: Apache-2.0
// Invalid calls are refused on the rank that makes them: nothing is submitted, and the same name
// can be used correctly afterwards.
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class InvalidArguments : public WithSession {
 protected:
  static constexpr const char* name = "refused";

  /// `call` is made by one rank alone, which must learn what is wrong; then all use the name.
  template <typename Call>
  void refuse(Call call, const std::string& why) {
    if (me_ == last_) {
      const auto error = thrown_by<InvalidArgument>(call);
      EXPECT_EQ(error.tensor(), name);
      EXPECT_EQ(error.ranks(), std::vector{me_});
      EXPECT_THAT(error.what(), HasSubstr(std::string(1, '"') + name + '"'));
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(me_)));
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
    std::vector<double> right(4, 1.0);
    allreduce(right, {.name = name, .op = ReduceOp::sum});
    EXPECT_THAT(right, Each(static_cast<double>(n_)));
  }

  std::vector<float> tensor_ = std::vector<float>(4, 1.0F);
};

TEST_F(InvalidArguments, Tensors) {
  refuse([&] { allreduce(TensorView(tensor_.data(), {-4}), {.name = name}); }, "[-4]");
  refuse([&] { allreduce(TensorView(tensor_.data(), {-2, -2}), {.name = name}); }, "[-2, -2]");
  refuse([&] { broadcast(TensorView(static_cast<float*>(nullptr), {4}), 0, {.name = name}); },
         "null");
  refuse(
      [&] {
        allreduce(TensorView(tensor_.data(), {4}, {DeviceType::cuda, 99}), {.name = name});
      },
      "cuda");
  refuse(
      [&] {
        (void)allgather(std::span<const float>(static_cast<float*>(nullptr), 3), {.name = name});
      },
      "null");
}

TEST_F(InvalidArguments, ShapesAndTypesThatNoTensorHas) {
  constexpr std::int64_t big = std::int64_t{1} << 32;
  const auto shaped = [&](Shape shape) { return TensorView(tensor_.data(), std::move(shape)); };
  // The first product overflows, the second wraps around to 0, the third is 0 as a whole only.
  for (const Shape& shape : {Shape{big, big, 3}, Shape{big, big}, Shape{big, big, 0}}) {
    const auto what = "more than 576460752303423488 elements";
    refuse([&] { allreduce(shaped(shape), {.name = name}); }, what);
    refuse([&] { broadcast(shaped(shape), 0, {.name = name}); }, what);
    refuse([&] { allreduce(tensor_, shaped(shape), {.name = name}); }, what);
    refuse([&] { reducescatter(tensor_, shaped(shape), {.name = name}); }, what);
    refuse([&] { (void)allgather(shaped(shape), [](auto) { return nullptr; }, {.name = name}); },
           what);
  }
  const Shape half{std::int64_t{1} << 59};
  const std::vector<TensorView> group{shaped(half), shaped(half)};
  refuse([&] { grouped_allreduce(group, {.name = name}); }, "the tensors have more than");
  refuse([&] { allreduce(TensorView(tensor_.data(), 4, DType{77}), {.name = name}); }, "dtype 77");
  refuse(
      [&] {
        allreduce(TensorView(tensor_.data(), 4, {DeviceType{9}, 0}), {.name = name});
      },
      "device type 9");
}

TEST_F(InvalidArguments, ANameThatIsTooLong) {
  const std::string longest(std::size_t{64} << 10, 'x');
  std::vector<float> ones(4, 1.0F);
  allreduce(ones, {.name = longest, .op = ReduceOp::sum});
  EXPECT_THAT(ones, Each(static_cast<float>(n_)));
  const auto error = thrown_by<InvalidArgument>([&] { allreduce(ones, {.name = longest + 'x'}); });
  EXPECT_THAT(error.what(), HasSubstr("65537 bytes"));
  EXPECT_EQ(error.tensor(), longest + 'x');
  EXPECT_EQ(error.ranks(), std::vector{me_});
  EXPECT_LT(std::string(error.what()).size(), 300U);
}

TEST_F(InvalidArguments, InputsAndOutputs) {
  std::vector<float> short_output(3);
  std::vector<std::int32_t> other_type(4);
  refuse([&] { allreduce(tensor_, short_output, {.name = name}); }, "[3]");
  refuse([&] { allreduce(tensor_, other_type, {.name = name}); }, "i32");
  refuse([&] { broadcast(tensor_, short_output, 0, {.name = name}); }, "[3]");
  const std::span all(tensor_);
  refuse([&] { allreduce(all.first(3), all.last(3), {.name = name}); }, "overlap");
  // In place, but too short.
  refuse([&] { allreduce(all, all.first(3), {.name = name}); }, "[3]");
  refuse([&] { broadcast(all, all.first(3), 0, {.name = name}); }, "[3]");
}

TEST_F(InvalidArguments, GroupsThatShareMemory) {
  std::vector<float> other(4);
  const std::span all(tensor_);
  refuse(
      [&] {
        grouped_allreduce({tensor_, other, tensor_}, {.name = name});
      },
      "tensors 0 and 2 of the group share memory");
  refuse(
      [&] {
        grouped_allreduce({all.last(2), other, all.first(3)}, {.name = name});
      },
      "tensors 0 and 2 of the group share memory");
  // In any order, tensors that only touch each other.
  grouped_allreduce({all.last(1), all.first(2), other, all.subspan(2, 1), all.first(0)});
  EXPECT_THAT(tensor_, Each(1.0F));

  const auto scatter = [&](std::span<float> first, std::span<float> second,
                           std::span<float> first_output, std::span<float> second_output) {
    const std::vector<ConstTensorView> inputs{first, second};
    const std::vector<TensorView> outputs{first_output, second_output};
    grouped_reducescatter(inputs, outputs, {.name = name, .op = ReduceOp::sum});
  };
  const auto rows = static_cast<std::size_t>(n_);  // one for each rank
  std::vector<float> in(rows, 1.0F);
  std::vector<float> out(2);
  const std::span one(in);
  const std::span two(out);
  const auto why = "output 0 of the group shares memory with input or output 1";
  refuse([&] { scatter(one, one, two.first(1), two.first(1)); }, why);
  std::vector<float> next(rows, 1.0F);
  refuse([&] { scatter(one, next, std::span(next).last(1), two.first(1)); }, why);
  scatter(one, one, two.first(1), two.last(1));
  EXPECT_THAT(out, Each(static_cast<float>(n_)));
}

TEST_F(InvalidArguments, Scales) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refuse([&] { allreduce(tensor_, {.name = name, .prescale = infinity}); }, "inf");
  refuse([&] { allreduce(tensor_, {.name = name, .postscale = nan}); }, "nan");
  refuse([&] { grouped_allreduce({tensor_}, {.name = name, .prescale = nan}); }, "nan");
}

TEST_F(InvalidArguments, Operators) {
  bool flag = true;
  std::int32_t integer = 1;
  refuse([&] { allreduce(flag, {.name = name}); }, "average");
  refuse([&] { allreduce(flag, {.name = name, .op = ReduceOp::sum}); }, "sum");
  refuse([&] { allreduce(integer, {.name = name, .op = ReduceOp::adasum}); }, "adasum");
  refuse([&] { (void)reducescatter(tensor_, {.name = name, .op = ReduceOp::adasum}); }, "adasum");
}

TEST_F(InvalidArguments, EnumeratorsThatThereAreNot) {
  refuse([&] { allreduce(tensor_, {.name = name, .op = ReduceOp{200}}); }, "operator 200");
  refuse([&] { allreduce(tensor_, {.name = name, .compression = Compression{7}}); },
         "compression 7");
  refuse([&] { allreduce(tensor_, {.name = name, .average_over = AverageOver{9}}); },
         "average_over 9");
}

TEST_F(InvalidArguments, ATimelineWithoutAPath) {
  EXPECT_THROW(start_timeline(""), InvalidArgument);
}

TEST_F(InvalidArguments, Roots) {
  std::string text;
  refuse([&] { broadcast(tensor_, n_, {.name = name}); }, "root " + std::to_string(n_));
  refuse([&] { broadcast(tensor_, -1, {.name = name}); }, "root -1");
  refuse([&] { broadcast(text, n_, {.name = name}); }, "root");
}

TEST_F(InvalidArguments, CountsAndRows) {
  const std::vector<int> counts(static_cast<std::size_t>(n_ + 1));
  const float scalar = 1.0F;
  refuse([&] { (void)alltoall(tensor_, counts, {.name = name}); }, "counts");
  const std::vector<std::int64_t> absurd(static_cast<std::size_t>(n_), std::int64_t{1} << 62);
  refuse([&] { (void)alltoall(tensor_, absurd, {.name = name}); }, "4 rows");
  refuse([&] { reducescatter(scalar, tensor_, {.name = name}); }, "scalar");
}

// With one rank, the operation would be done before its name is used again.
TEST_F(InvalidArguments, ADuplicateName) {
  if (n_ == 1) GTEST_SKIP() << "alone, an operation does not stay pending";
  for (int holder = 0; holder < n_; ++holder) {
    std::vector<float> first(4, 1.0F);
    if (me_ == holder) {  // pending until the others have passed the barrier
      Future<void> pending = allreduce_async(first, {.name = "twice", .op = ReduceOp::sum});
      const auto error = thrown_by<DuplicateName>([&] { allreduce(tensor_, {.name = "twice"}); });
      EXPECT_EQ(error.tensor(), "twice");
      EXPECT_EQ(error.ranks(), std::vector{me_});
      EXPECT_THAT(error.what(), HasSubstr("\"twice\""));
      EXPECT_THROW((void)allgather(tensor_, {.name = "twice"}), DuplicateName);
      EXPECT_THROW(broadcast(tensor_, 0, {.name = "twice"}), DuplicateName);
      EXPECT_THROW((void)reducescatter(tensor_, {.name = "twice"}), DuplicateName);
      EXPECT_THROW(barrier({.name = "twice"}), DuplicateName);
      barrier({.name = "go"});
      pending.wait();
    } else {
      barrier({.name = "go"});
      allreduce(first, {.name = "twice", .op = ReduceOp::sum});
    }
    EXPECT_THAT(first, Each(static_cast<float>(n_)));
    EXPECT_THAT(tensor_, Each(1.0F));
  }
}

TEST(OutsideASession, EveryOperationIsRefused) {
  std::vector<float> tensor(4, 1.0F);
  std::string text;
  const auto error = thrown_by<NotInitialized>([&] { allreduce(tensor, {.name = "gradient"}); });
  EXPECT_EQ(error.tensor(), "gradient");
  EXPECT_THAT(error.what(), HasSubstr("allreduce \"gradient\": there is no session"));
  EXPECT_THROW((void)allreduce_async(tensor), NotInitialized);
  EXPECT_THROW(grouped_allreduce({tensor}), NotInitialized);
  EXPECT_THROW((void)allgather(tensor), NotInitialized);
  EXPECT_THROW((void)allgather(text), NotInitialized);
  EXPECT_THROW((void)alltoall(tensor), NotInitialized);
  EXPECT_THROW((void)reducescatter(tensor), NotInitialized);
  EXPECT_THROW(broadcast(tensor, 0), NotInitialized);
  EXPECT_THROW(broadcast(text, 0), NotInitialized);
  EXPECT_THROW(barrier(), NotInitialized);
  EXPECT_THROW((void)join(), NotInitialized);
  EXPECT_THROW((void)add_process_set({0}), NotInitialized);
}

TEST(OutsideASession, EveryErrorNamesTheFunction) {
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"barrier: ", [] { barrier(); }},
      {"join: ", [] { (void)join(); }},
      {"kolo::rank: ", [] { (void)rank(); }},
      {"kolo::size: ", [] { (void)size(); }},
      {"kolo::local_rank: ", [] { (void)local_rank(); }},
      {"kolo::local_size: ", [] { (void)local_size(); }},
      {"kolo::cross_rank: ", [] { (void)cross_rank(); }},
      {"kolo::cross_size: ", [] { (void)cross_size(); }},
      {"kolo::homogeneous: ", [] { (void)homogeneous(); }},
      {"kolo::cpu_operations: ", [] { (void)cpu_operations(); }},
      {"kolo::statistics: ", [] { (void)statistics(); }},
      {"kolo::start_timeline: ", [] { start_timeline("timeline.json"); }},
      {"kolo::stop_timeline: ", [] { stop_timeline(); }},
      {"kolo::write_flight_record: ", [] { (void)write_flight_record(); }},
      {"kolo::SharedAllocator: ", [] { const SharedVector<float> vector(1); }},
      {"kolo::ProcessSet::ranks: ", [] { (void)world().ranks(); }},
      {"kolo::add_process_set: ", [] { (void)add_process_set({0}); }},
      {"kolo::remove_process_set: ", [] { remove_process_set(world()); }}};
  for (const auto& [name, call] : calls)
    EXPECT_THAT(thrown_by<NotInitialized>(call).what(), testing::StartsWith(name));
}

}  // namespace
}  // namespace kolo::internal
