// SPDX-License-Identifier: Apache-2.0
// Random programs: FullySharded beside DistributedOptimizer, which does the same.
//
// KOLO_RANDOM_PROGRAMS is their number, 12 by default; KOLO_RANDOM_SEED the seed of the first.
#include "fully_sharded_network.hpp"

#include <cstdlib>
#include <optional>
#include <random>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedRandom = TorchTest;

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// One step of a program. It is the same on all ranks, except for `skipped`.
struct Step {
  enum class Kind { once, twice, summed, local, failing_forward, failing_backward };

  Kind kind = Kind::once;
  bool computes_again = false;
  bool in_one_checkpoint = false;
  bool evaluates = false;
  int without_data = -1;  // a rank that takes part with nothing
  int failing = 0;        // the rank that throws
  std::size_t failing_block = 0;
  std::set<std::size_t> skipped{};  // places in the path, of this rank
};

class Program {
 public:
  explicit Program(int seed) : random_(static_cast<std::uint32_t>(seed)) {}

  bool chance(int percent) { return number(100) < percent; }
  int number(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }

  /// Some programs use blocks several times, and not in the order of their names.
  std::vector<std::size_t> path() {
    std::vector<std::size_t> path{0, 1, 2, 3};
    if (chance(50)) return path;
    for (int extra = number(5); extra > 0; --extra)
      path.push_back(static_cast<std::size_t>(number(4)));
    for (std::size_t i = path.size(); i > 1; --i)
      std::swap(path[i - 1], path[static_cast<std::size_t>(number(static_cast<int>(i)))]);
    return path;
  }

  Step step(std::size_t uses) {
    Step step;
    if (chance(50)) step.kind = static_cast<Step::Kind>(number(6));
    step.computes_again = chance(30);
    step.evaluates = chance(20);
    if (size() > 1 && step.kind == Step::Kind::once && chance(20))
      step.without_data = number(size());
    step.failing = number(size());
    step.failing_block = static_cast<std::size_t>(number(4));
    // Ranks that differ run forward once for a backward.
    const bool skips = chance(40) && step.kind != Step::Kind::summed;
    for (int rank = 0; rank < size(); ++rank)
      for (std::size_t use = 0; use < uses; ++use)
        if (chance(40) && skips && rank == kolo::rank()) step.skipped.insert(use);
    step.in_one_checkpoint = chance(20) && !skips && !step.computes_again && step.without_data < 0;
    return step;
  }

 private:
  std::mt19937 random_;
};

// Sets how the model's next forwards run.
template <typename Model>
void prepare(Model& model, const Step& step) {
  model->skipped = step.skipped;
  model->wrap = nullptr;
  if (step.computes_again)
    model->wrap = [](const auto& block, const Tensor& hidden) {
      return checkpointed([block](const Tensor& x) { return block(x); }, hidden);
    };
}

// Everything but the failures: `gradients` has no_sync().
template <typename Model, typename Gradients>
void passes(Model& model, Gradients& gradients, const Step& step, int number) {
  const auto loss_of = [&](auto& net, int data) {
    if (!step.in_one_checkpoint) return testing_support::loss_of(net, data);
    return checkpointed([&](const Tensor& x) { return net->forward(x); }, data_of(data))
        .square()
        .mean();
  };
  switch (step.kind) {
    case Step::Kind::twice:
      loss_of(model, 3 * number).backward();
      loss_of(model, 3 * number + 1).backward();
      return;
    case Step::Kind::summed:
      (loss_of(model, 3 * number) + loss_of(model, 3 * number + 1)).backward();
      return;
    case Step::Kind::local: {
      {
        const auto local = gradients.no_sync();
        loss_of(model, 3 * number).backward();
      }
      loss_of(model, 3 * number + 1).backward();
      return;
    }
    default: loss_of(model, 3 * number).backward();
  }
}

// Runs a pass in which one rank throws.
void fail(ShardedNet& model, const Step& step, int number) {
  const bool throws = rank() == step.failing;
  model->skipped.clear();
  if (step.kind == Step::Kind::failing_forward) {
    model->wrap = nullptr;
    if (throws) {
      model->blocks[step.failing_block]->fails = true;
      EXPECT_THROW(loss_of(model, number), std::runtime_error);
      model->blocks[step.failing_block]->fails = false;
      return;
    }
  } else if (throws) {
    std::size_t call = 0;
    model->wrap = [&](const auto& block, const Tensor& hidden) {
      return call++ == step.failing_block ? Throw::apply(block(hidden)) : block(hidden);
    };
    EXPECT_THROW(loss_of(model, number).backward(), std::runtime_error);
    return;
  }
  const auto error = error_of<BackwardFailed>([&] { loss_of(model, number).backward(); });
  EXPECT_EQ(error.ranks(), std::vector<int>{step.failing});
}

void run(int seed) {
  const auto options = optim::AdamWOptions(0.01);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Program program(seed);
  const FullyShardedOptions how{.reshard_after_forward = program.chance(70),
                                .units_ahead = program.number(4)};
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model, how);
  optim::AdamW optimizer(sharded.parameters(), options);
  auto expected = make_net<Net>();
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), options),
                             expected->named_parameters());
  model->path = expected->path = program.path();
  const bool repeats = model->path.size() > model->blocks.size();
  bool is_exact = true;
  for (int number = 0; number < 8; ++number) {
    Step step = program.step(model->path.size());
    // The first forward shows the order of the units. Without it, they have that of their names.
    if (number == 0) step.skipped.clear();
    if (number == 0 && model->path != std::vector<std::size_t>{0, 1, 2, 3}) {
      step.without_data = -1;
      step.kind = Step::Kind::once;
    }
    const bool fails =
        step.kind == Step::Kind::failing_forward || step.kind == Step::Kind::failing_backward;
    if (fails) {
      optimizer.zero_grad();
      if (size() > 1) fail(model, step, number);
    }
    optimizer.zero_grad();
    plain.zero_grad();
    prepare(model, step);
    prepare(expected, step);
    // Each use that is computed again makes gradients of its own.
    if (repeats && step.computes_again) is_exact = false;
    if (step.evaluates) {
      const ::torch::NoGradGuard no_grad;
      (void)loss_of(model, 1000 + number);
    }
    if (step.without_data == rank()) {
      sharded.take_part();
    } else {
      passes(model, sharded, step, number);
      passes(expected, plain, step, number);
    }
    optimizer.step();
    plain.step();
  }
  (is_exact ? expect_same_state : expect_close_states)(sharded.full_state(), state(*expected));
}

TEST_F(FullyShardedRandom, ProgramsGiveTheSameBits) {
  const int first = from_environment("KOLO_RANDOM_SEED", 0);
  const int count = from_environment("KOLO_RANDOM_PROGRAMS", 12);
  for (int seed = first; seed < first + count && !HasFailure(); ++seed) run(seed);
}

}  // namespace
}  // namespace kolo::internal::testing_support
