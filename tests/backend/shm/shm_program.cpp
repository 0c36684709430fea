// SPDX-License-Identifier: Apache-2.0
#include "shm_program.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <utility>

namespace kolo::internal::backend {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

/// Small, so that sums over ten ranks are exact in every type.
std::int64_t value(const Step& step, int rank, std::size_t tensor, std::int64_t k) {
  return element(rank, tensor, k + step.salt);
}

std::int64_t sum_of_ranks(const Step& step) {
  return std::accumulate(step.ranks.begin(), step.ranks.end(), std::int64_t{0});
}

/// As a number of reals, before it is divided.
std::int64_t reduced(const Step& step, std::size_t tensor, std::int64_t k) {
  const std::int64_t of_zero = value(step, 0, tensor, k);
  switch (step.kind.op) {
    case ReduceOp::min: return of_zero + step.ranks.front();
    case ReduceOp::max: return of_zero + step.ranks.back();
    default: return static_cast<std::int64_t>(step.ranks.size()) * of_zero + sum_of_ranks(step);
  }
}

template <typename T>
T expected_of(const Step& step, std::size_t tensor, std::int64_t k) {
  return static_cast<T>(reduced(step, tensor, k)) / static_cast<T>(step.divisor);
}

template <typename T>
auto input(const Step& step, int rank) {
  return [&step, rank](std::size_t i, std::int64_t k) { return T(value(step, rank, i, k)); };
}
template <typename T>
auto output(const Step& step) {
  return [&step](std::size_t i, std::int64_t k) { return expected_of<T>(step, i, k); };
}

/// The first half of the tensors is of floats, the others are of integers.
class Allreduce : public Task {
 public:
  Allreduce(const Step& step, int rank)
      : Task(step, rank),
        floats_(half(true), step.salt % 2 == 0, input<float>(step, rank)),
        integers_(half(false), step.salt % 3 == 0, input<std::int64_t>(step, rank)) {}

  AssertionResult holds() override {
    if (auto result = floats_.hold(output<float>(step()), input<float>(step(), rank())); !result)
      return result;
    return integers_.hold(output<std::int64_t>(step()), input<std::int64_t>(step(), rank()));
  }

 private:
  void add_members(std::vector<const BatchTensor*>& members) const override {
    Batch batch;
    floats_.add_to(batch);
    integers_.add_to(batch);
    members = batch.tensors;
  }

  [[nodiscard]] Lengths half(bool first) const {
    const auto middle = step().lengths.begin() + std::ssize(step().lengths) / 2;
    return first ? Lengths(step().lengths.begin(), middle) : Lengths(middle, step().lengths.end());
  }

  Tensors<float> floats_;
  Tensors<std::int64_t> integers_;
};

class Reducescatter : public Task {
 public:
  Reducescatter(const Step& step, int rank)
      : Task(step, rank), inputs_(lengths(), true, input<float>(step, rank)) {
    for (std::size_t i = 0; i < step.lengths.size(); ++i) {
      BatchTensor& member = inputs_.member(i);
      member.rows = step.lengths[i];
      member.row_elements = row_elements(i);
      const std::int64_t rows = reducescatter_rows(member.rows, place(), present());
      outputs_.emplace_back(rows * member.row_elements);
      member.output = outputs_.back().elements.get();
    }
  }

  AssertionResult holds() override {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      std::int64_t begin = 0;
      for (int before = 0; before < place(); ++before)
        begin += reducescatter_rows(step().lengths[i], before, present()) * row_elements(i);
      for (std::int64_t k = 0; k < outputs_[i].length; ++k)
        if (outputs_[i][k] != expected_of<float>(step(), i, begin + k))
          return AssertionFailure()
                 << "element " << k << " of tensor " << i << " is " << outputs_[i][k];
    }
    return inputs_.hold(input<float>(step(), rank()), input<float>(step(), rank()));
  }

 private:
  void add_members(std::vector<const BatchTensor*>& members) const override {
    Batch batch;
    inputs_.add_to(batch);
    members = batch.tensors;
  }

  [[nodiscard]] int place() const {
    return static_cast<int>(std::ranges::find(step().ranks, rank()) - step().ranks.begin());
  }
  [[nodiscard]] std::int64_t row_elements(std::size_t i) const {
    return 1 + (step().salt + static_cast<std::int64_t>(i)) % 3;
  }
  [[nodiscard]] Lengths lengths() const {
    Lengths lengths = step().lengths;
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] *= row_elements(i);
    return lengths;
  }

  Tensors<float> inputs_;
  std::deque<Array<float>> outputs_{};
};

auto numbered(const Step& step, int rank) {
  return [&step, rank](std::size_t i, std::int64_t k) {
    return static_cast<std::int32_t>(16 * (k + step.salt + static_cast<std::int64_t>(i)) + rank);
  };
}

class Broadcast : public Task {
 public:
  Broadcast(const Step& step, int rank)
      : Task(step, rank), tensors_(step.lengths, step.salt % 2 == 0, numbered(step, rank)) {}

  AssertionResult holds() override {
    return tensors_.hold(numbered(step(), step().kind.root), numbered(step(), rank()));
  }

 private:
  void add_members(std::vector<const BatchTensor*>& members) const override {
    Batch batch;
    tensors_.add_to(batch);
    members = batch.tensors;
  }

  Tensors<std::int32_t> tensors_;
};

class StringBroadcast : public Task {
 public:
  StringBroadcast(const Step& step, int rank)
      : Task(step, rank), text_(rank == step.kind.root ? expected() : "before") {
    member_.text = &text_;
  }

  AssertionResult holds() override {
    return text_ == expected() ? AssertionSuccess()
                               : AssertionFailure() << "a text of " << text_.size() << " bytes";
  }

 private:
  void add_members(std::vector<const BatchTensor*>& members) const override {
    members = {&member_};
  }
  [[nodiscard]] std::string expected() const {
    std::string text(static_cast<std::size_t>(step().lengths.front()), '\0');
    for (std::size_t i = 0; i < text.size(); ++i)
      text[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(step().salt));
    return text;
  }

  std::string text_;
  BatchTensor member_{};
};

/// Allgather and alltoall.
class Gather : public Task {
 public:
  Gather(const Step& step, int rank) : Task(step, rank) {
    for (std::size_t i = 0; i < step.lengths.size(); ++i) {
      Rows counts;
      std::int64_t sent = 0;
      for (const int to : targets()) sent += counts.emplace_back(rows(i, rank, to));
      auto& made = members_.emplace_back(sent, row_elements(i));
      if (to_each()) made.member.counts = counts;
      std::int64_t at = 0;
      for (const int to : targets())
        for (std::int64_t k = 0; k < rows(i, rank, to) * row_elements(i); ++k)
          made.input[at++] = tagged(rank, to, k);
    }
  }

  AssertionResult holds() override {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const int to = to_each() ? rank() : -1;
      Rows expected;
      for (const int from : step().set)
        expected.push_back(std::ranges::binary_search(step().ranks, from) ? rows(i, from, to) : 0);
      if (members_[i].rows != expected)
        return AssertionFailure() << "rows of tensor " << i << ": "
                                  << testing::PrintToString(members_[i].rows);
      std::int64_t at = 0;
      for (const int from : step().ranks)
        for (std::int64_t k = 0; k < rows(i, from, to) * row_elements(i); ++k, ++at)
          if (members_[i].output[at] != tagged(from, to, k))
            return AssertionFailure()
                   << "element " << at << " of tensor " << i << " is " << members_[i].output[at];
    }
    return AssertionSuccess();
  }

 private:
  void add_members(std::vector<const BatchTensor*>& members) const override {
    for (const Gathered<std::int32_t>& gathered : members_) members.push_back(&gathered.member);
  }

  [[nodiscard]] bool to_each() const { return step().kind.type == OperationType::alltoall; }
  /// -1 stands for all.
  [[nodiscard]] std::vector<int> targets() const {
    return to_each() ? step().ranks : std::vector<int>{-1};
  }
  [[nodiscard]] std::int64_t rows(std::size_t i, int from, int to) const {
    return step().lengths[i] * ((from * 3 + to * 5 + 5 + step().salt) % 4) / 3;
  }
  static std::int64_t row_elements(std::size_t i) { return 1 + static_cast<std::int64_t>(i) % 3; }
  [[nodiscard]] std::int32_t tagged(int from, int to, std::int64_t k) const {
    return static_cast<std::int32_t>(256 * (k + step().salt) + 16 * from + to + 1);
  }

  std::deque<Gathered<std::int32_t>> members_{};
};

class Barrier : public Task {
 public:
  using Task::Task;
  AssertionResult holds() override { return AssertionSuccess(); }

 private:
  void add_members(std::vector<const BatchTensor*>& /*members*/) const override {}
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(end));
  }
  template <typename T, std::size_t n>
  T one_of(const std::array<T, n>& values) {
    return values[static_cast<std::size_t>(below(n))];
  }
  std::vector<int> some_of(const std::vector<int>& ranks) {
    std::vector<int> some;
    for (const int rank : ranks)
      if (below(2) == 0) some.push_back(rank);
    if (some.empty()) some.push_back(ranks[static_cast<std::size_t>(below(std::ssize(ranks)))]);
    return some;
  }

 private:
  std::mt19937_64 engine_;
};

void choose_reduction(Random& random, Step& step) {
  step.kind.op = random.one_of(
      std::array{ReduceOp::sum, ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max});
  step.kind.compression =
      random.one_of(std::array{Compression::none, Compression::none, Compression::fp16});
  if (step.kind.op == ReduceOp::average) step.divisor = random.one_of(std::array{1, 2, 4});
  if (step.kind.op == ReduceOp::sum && random.below(4) == 0) {
    step.kind.prescale = 2.0;
    step.kind.postscale = 0.5;
  }
}

}  // namespace

std::vector<Step> random_program(const Mixture& mixture, std::uint64_t seed) {
  constexpr std::array<std::int64_t, 10> lengths{0, 0, 1, 3, 60, 64, 65, 300, 2000, 5000};
  constexpr std::array types{OperationType::allreduce, OperationType::reducescatter,
                             OperationType::broadcast, OperationType::broadcast_string,
                             OperationType::allgather, OperationType::alltoall,
                             OperationType::barrier};
  Random random(seed);
  std::vector<int> all(static_cast<std::size_t>(mixture.ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Step> program(static_cast<std::size_t>(mixture.steps));
  std::uint64_t sequence = 0;
  for (Step& step : program) {
    step.kind.type = random.one_of(types);
    step.set = mixture.all_at_once || random.below(2) == 0 ? all : random.some_of(all);
    step.ranks = mixture.all_at_once || random.below(2) == 0 ? step.set : random.some_of(step.set);
    step.kind.root = step.ranks[static_cast<std::size_t>(random.below(std::ssize(step.ranks)))];
    // Some numbers are of batches of other backends.
    step.sequence = sequence += static_cast<std::uint64_t>(1 + random.below(8) / 6);
    step.joins = sequence / 8;
    step.salt = random.below(1000);
    choose_reduction(random, step);
    const bool text = step.kind.type == OperationType::broadcast_string;
    const std::int64_t tensors = text ? 1 : random.below(5);
    for (std::int64_t i = 0; i < tensors; ++i)
      step.lengths.push_back(mixture.scale * random.one_of(lengths));
  }
  return program;
}

Batch Task::batch() const {
  Batch batch{.kind = step_.kind,
              .tensors = {},
              .set = step_.set,
              .ranks = step_.ranks,
              .divisor = step_.divisor,
              .sequence = step_.sequence,
              .joins = step_.joins};
  add_members(batch.tensors);
  return batch;
}

std::unique_ptr<Task> make_task(const Step& step, int rank) {
  switch (step.kind.type) {
    case OperationType::allreduce: return std::make_unique<Allreduce>(step, rank);
    case OperationType::reducescatter: return std::make_unique<Reducescatter>(step, rank);
    case OperationType::broadcast: return std::make_unique<Broadcast>(step, rank);
    case OperationType::broadcast_string: return std::make_unique<StringBroadcast>(step, rank);
    case OperationType::allgather:
    case OperationType::alltoall: return std::make_unique<Gather>(step, rank);
    default: return std::make_unique<Barrier>(step, rank);
  }
}

}  // namespace kolo::internal::backend
