// SPDX-License-Identifier: Apache-2.0
// FullySharded where backward meets units in other ways than forward.
#include "fully_sharded_network.hpp"  // first, as clang 14 needs it

#include <torch/nn/modules/container/modulelist.h>

#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

using FullyShardedGraphs = TorchTest;

const auto graphs_options = optim::AdamWOptions(0.01);

/// A block of which `part` is computed again in backward: 1: the first, 2: the last, 3: both.
struct PartlyImpl : nn::Module {
  explicit PartlyImpl(int width)
      : up(register_module("up", nn::Linear(width, 2 * width))),
        down(register_module("down", nn::Linear(2 * width, width))) {}
  Tensor forward(const Tensor& input) {
    const auto first = [this](const Tensor& x) { return ::torch::gelu(up(x)); };
    const auto last = [this](const Tensor& x) { return down(x).tanh(); };
    const Tensor middle = (part & 1) != 0 ? checkpointed(first, input) : first(input);
    return (part & 2) != 0 ? checkpointed(last, middle) : last(middle);
  }
  nn::Linear up, down;
  inline static int part = 0;
};
TORCH_MODULE(Partly);

/// Comes to its blocks on a path, which may come to one several times.
template <typename Holder>
struct PathNetImpl : nn::Module {
  explicit PathNetImpl(int count = 3) : input(register_module("input", nn::Linear(5, 7))) {
    for (int i = 0; i < count; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Holder(7)));
  }
  Tensor forward(const Tensor& data) {
    Tensor hidden = input(data);
    for (const std::size_t i : path) hidden = blocks[i]->forward(hidden);
    return hidden;
  }
  nn::Linear input;
  std::vector<Holder> blocks{};
  std::vector<std::size_t> path{0, 1, 2};
};
template <typename Block>
using PathNet = nn::ModuleHolder<PathNetImpl<Block>>;
template <typename Block>
using ShardedPathNet = Sharded<nn::ModuleHolder<PathNetImpl<Sharded<Block>>>>;

/// Both trainings make `step(model, gradients, optimizer, number)`.
template <typename Block, typename Step>
void expect_same_on_paths(const Step& step, int steps = 4, bool exact = true) {
  ::torch::manual_seed(3);
  ShardedPathNet<Block> model;
  FullySharded sharded(model);
  optim::AdamW optimizer(sharded.parameters(), graphs_options);
  for (int i = 0; i < steps; ++i) step(model, sharded, optimizer, i);
  ::torch::manual_seed(3);
  PathNet<Block> expected;
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), graphs_options),
                             expected->named_parameters());
  for (int i = 0; i < steps; ++i) step(expected, plain, plain, i);
  (exact ? expect_same_state : expect_close_states)(sharded.full_state(), state(*expected));
}

// A unit that is used twice has a part of its gradients reduced later than the rest, and added.
TEST_F(FullyShardedGraphs, PartsOfAUnitMayBeCheckpointed) {
  for (const int part : {1, 2, 3})
    for (const bool repeats : {false, true}) {
      SCOPED_TRACE("part " + std::to_string(part) + (repeats ? ", repeated" : ""));
      expect_same_on_paths<Partly>(
          [&](auto& model, auto& gradients, auto& optimizer, int step) {
            PartlyImpl::part = part;
            if (repeats && step > 0) model->path = {0, 1, 2, 0};
            usual(model, gradients, optimizer, step);
          },
          4, /*exact=*/!repeats);
    }
}

// A pass does not end the life of a graph.
TEST_F(FullyShardedGraphs, BackwardMayComeSeveralTimes) {
  PartlyImpl::part = 0;
  for (const std::vector<std::size_t>& path :
       {std::vector<std::size_t>{0, 1, 2}, {0, 1, 0, 2}, {1, 0, 2}})
    for (const bool retains : {false, true})
      expect_same_on_paths<Partly>(
          [&](auto& model, auto& /*gradients*/, auto& optimizer, int step) {
            optimizer.zero_grad();
            if (step > 0) model->path = path;  // the first step agrees on the order
            const Tensor first = loss_of(model, step);
            const Tensor second = retains ? first : loss_of(model, step + 100);
            first.backward({}, /*keep_graph=*/retains);
            second.backward();
            optimizer.step();
          });
}

// After the first step, one rank leaves out uses of units that forward comes to several times.
TEST_F(FullyShardedGraphs, RanksMayLeaveOutSomeUsesOfAUnit) {
  PartlyImpl::part = 0;
  const bool is_last = rank() == size() - 1;
  const std::vector<std::size_t> all{0, 0, 1, 0, 2, 1};
  const std::vector<std::vector<std::size_t>> fewer{
      all, {0, 1, 0, 2}, {0, 0, 1}, {2, 1}, {0, 2}, {1, 0, 1}, {1}, {}, all};
  expect_same_on_paths<Partly>(
      [&](auto& model, auto& gradients, auto& optimizer, int step) {
        model->path = is_last ? fewer.at(static_cast<std::size_t>(step)) : all;
        usual(model, gradients, optimizer, step);
      },
      static_cast<int>(fewer.size()));
}

TEST_F(FullyShardedGraphs, ARankWithoutDataTakesPartInRepeatedUses) {
  PartlyImpl::part = 0;
  expect_same_on_paths<Partly>([&](auto& model, auto& gradients, auto& optimizer, int step) {
    model->path = {0, 1, 0, 0, 2};
    optimizer.zero_grad();
    const bool has_data = step % 2 == 0 || rank() > 0;
    constexpr bool is_sharded =
        std::is_same_v<std::remove_reference_t<decltype(gradients)>, FullySharded>;
    if constexpr (is_sharded) {
      has_data ? loss_of(model, step).backward() : gradients.take_part();
    } else {
      (loss_of(model, step) * (has_data ? 1 : 0)).backward();
    }
    optimizer.step();
  });
}

// A unit that is used again at once stays gathered.
TEST_F(FullyShardedGraphs, AUnitThatIsNextStaysGathered) {
  if (size() == 1) return;
  for (const int ahead : {0, 1}) {
    ShardedPathNet<Partly> model;
    FullySharded sharded(model, {.units_ahead = ahead});
    const ::torch::NoGradGuard no_grad;
    model->path = {0, 0, 0, 1, 2};
    (void)loss_of(model, 0);  // agrees on the uses
    const auto before = sharded.counters().gathers;
    (void)loss_of(model, 1);
    EXPECT_EQ(sharded.counters().gathers - before, ahead == 0 ? 6 : 4);  // with the root
  }
}

TEST_F(FullyShardedGraphs, UnitsOfOneCheckpointAreReducedOnce) {
  ShardedPathNet<Partly> model;
  PartlyImpl::part = 0;
  FullySharded sharded(model);
  for (int step = 0; step < 2; ++step) {
    const auto before = sharded.counters().reductions;
    checkpointed([&](const Tensor& x) { return model->forward(x); }, data_of(step))
        .square()
        .mean()
        .backward();
    EXPECT_EQ(sharded.counters().reductions - before, 4);  // the blocks and the root
  }
}

/// A unit that contains units, and is used several times.
struct TwoBlocksImpl : nn::Module {
  TwoBlocksImpl()
      : first(register_module("first", Sharded<Block>(7))),
        second(register_module("second", Sharded<Block>(7))) {}
  Tensor forward(const Tensor& input) { return second->forward(first->forward(input)); }
  Sharded<Block> first, second;
};
TORCH_MODULE(TwoBlocks);
struct LoopImpl : nn::Module {
  LoopImpl() : inner(register_module("inner", Sharded<TwoBlocks>())) {}
  Tensor forward(const Tensor& data) {
    Tensor hidden = ::torch::constant_pad_nd(data, {0, 2});
    for (int i = 0; i < times; ++i) hidden = inner->forward(hidden);
    return hidden;
  }
  Sharded<TwoBlocks> inner;
  int times = 3;
};
TORCH_MODULE(Loop);

TEST_F(FullyShardedGraphs, RanksMayEvaluateALoopUnequallyOften) {
  for (const int ahead : {0, 1, 3}) {
    ::torch::manual_seed(3);
    Sharded<Loop> model;
    FullySharded sharded(model, {.units_ahead = ahead});
    for (int round = 0; round < 4; ++round) {
      model->times = round == 0 ? 3 : (rank() + round) % 4;
      {
        const ::torch::NoGradGuard no_grad;
        (void)loss_of(model, round);
      }
      model->times = round == 1 || round == 3 ? (rank() + round) % 4 : 3;
      sharded.zero_grad();
      model->times > 0 ? loss_of(model, round).backward() : sharded.take_part();
    }
    std::vector<std::int64_t> least{sharded.counters().gathers};
    std::vector<std::int64_t> most = least;
    kolo::allreduce(least, {.name = "least", .op = ReduceOp::min});
    kolo::allreduce(most, {.name = "most", .op = ReduceOp::max});
    EXPECT_EQ(least, most);
  }
}

/// Computes on another thread, where autograd has numbers of its own.
struct ThreadedImpl : nn::Module {
  explicit ThreadedImpl(int width) : layer(register_module("layer", nn::Linear(width, width))) {}
  Tensor forward(const Tensor& input) {
    Tensor result;
    std::thread([&] { result = input + layer(input).tanh(); }).join();
    return result;
  }
  nn::Linear layer;
};
TORCH_MODULE(Threaded);

TEST_F(FullyShardedGraphs, AForwardMayComputeOnAnotherThread) {
  expect_same_on_paths<Threaded>(usual);
}

// The pass that ends in no_sync keeps gradients whole; the last one is clipped.
TEST_F(FullyShardedGraphs, ACheckpointedPartMayBeAccumulatedAndClipped) {
  expect_same_on_paths<Partly>(
      [&](auto& model, auto& gradients, auto& optimizer, int step) {
        PartlyImpl::part = 3;
        optimizer.zero_grad();
        {
          const auto guard = gradients.no_sync();
          loss_of(model, step).backward();
        }
        loss_of(model, step + 50).backward();
        clip_grad_norm(optimizer, 0.05);
        optimizer.step();
      },
      4, /*exact=*/false);
}

TEST_F(FullyShardedGraphs, ACheckpointedPartMayBeInCopies) {
  if (size() != 2 && size() != 4) return;
  PartlyImpl::part = 2;
  const HybridSets sets = add_hybrid_sets(2);
  ::torch::manual_seed(3);
  ShardedPathNet<Partly> model;
  FullySharded sharded(model, {.process_set = sets.process_set, .replicas = sets.replicas});
  optim::AdamW optimizer(sharded.parameters(), graphs_options);
  ::torch::manual_seed(3);
  PathNet<Partly> expected;
  DistributedOptimizer plain(optim::AdamW(expected->parameters(), graphs_options),
                             expected->named_parameters());
  for (int step = 0; step < 4; ++step) {
    usual(model, sharded, optimizer, step);
    usual(expected, plain, plain, step);
  }
  expect_close_states(sharded.full_state(), state(*expected));
}

// The forward before has left the last unit gathered, and SGD gives shards no new version.
TEST_F(FullyShardedGraphs, AUnitThatIsCalledAloneSeesTheLastStep) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.5);
  loss_of(model, 0).backward();
  (void)loss_of(model, 1);
  optimizer.step();
  const ::torch::NoGradGuard no_grad;
  const Tensor input = ::torch::ones({2, 7});
  const Tensor found = model->blocks[3]->forward(input);
  const auto whole = sharded.gather();
  EXPECT_TRUE(same_bits(found, model->blocks[3]->forward(input)));
}

TEST_F(FullyShardedGraphs, FreezingAfterTheGuardCounts) {
  ::torch::manual_seed(3);
  ShardedPathNet<Partly> model = [] {
    const ConstructSharded guard;
    return ShardedPathNet<Partly>();
  }();
  for (const Tensor& parameter : model->blocks[1]->parameters())
    Tensor(parameter).requires_grad_(false);
  FullySharded sharded(model);
  for (const auto& [name, shard] : sharded.named_parameters())
    EXPECT_EQ(shard.requires_grad(), !name.starts_with("block1.")) << name;
  const StateDict before = sharded.full_state();
  optim::SGD optimizer(sharded.parameters(), 0.1);
  loss_of(model, 0).backward();
  optimizer.step();
  const StateDict after = sharded.full_state();
  for (const auto& [name, tensor] : before.tensors)
    EXPECT_EQ(after.tensors.at(name) == tensor, name.starts_with("block1.")) << name;
}

/// One block under several names, as in ALBERT.
template <typename Holder>
struct RepeatingImpl : nn::Module {
  RepeatingImpl() : list(register_module("list", nn::ModuleList())), block(7) {
    for (int i = 0; i < 3; ++i) list->push_back(block.ptr());
  }
  Tensor forward(const Tensor& data) {
    Tensor hidden = ::torch::constant_pad_nd(data, {0, 2});
    for (int i = 0; i < 3; ++i) hidden = block->forward(hidden);
    return hidden;
  }
  nn::ModuleList list;
  Holder block;
};

TEST_F(FullyShardedGraphs, AUnitMayHaveSeveralNames) {
  using Model = Sharded<nn::ModuleHolder<RepeatingImpl<Sharded<Block>>>>;
  for (const bool guarded : {false, true}) {
    ::torch::manual_seed(3);
    Model model = [&] {
      std::optional<ConstructSharded> guard;
      if (guarded) guard.emplace();
      return Model();
    }();
    FullySharded sharded(model);
    optim::AdamW optimizer(sharded.parameters(), graphs_options);
    for (int i = 0; i < 3; ++i) usual(model, sharded, optimizer, i);
    EXPECT_GT(sharded.counters().gathers, size() > 1 ? 3 : -1);  // not kept by the root
    ::torch::manual_seed(3);
    nn::ModuleHolder<RepeatingImpl<Block>> expected;
    // The list would give the optimizer each parameter three times.
    DistributedOptimizer plain(optim::AdamW(expected->block->parameters(), graphs_options),
                               expected->block->named_parameters());
    for (int i = 0; i < 3; ++i) usual(expected, plain, plain, i);
    expect_same_state(sharded.full_state(), state(*expected));
  }
}

// SGD writes to shards without a new version.
TEST_F(FullyShardedGraphs, GatherSeesTheLastStep) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  optim::SGD optimizer(sharded.parameters(), 0.5);
  loss_of(model, 0).backward();
  (void)loss_of(model, 1);  // keeps the root and the last unit
  optimizer.step();
  const StateDict expected = sharded.full_state();
  const auto whole = sharded.gather();
  expect_same_state(state(*model), expected);
}

TEST_F(FullyShardedGraphs, AGuardOfAnEarlierSessionReleasesNothing) {
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model);
  {
    const auto old = sharded.gather();
    sharded.rejoin();
  }
  const auto whole = sharded.gather();
  EXPECT_THROW((void)loss_of(model, 0), InvalidArgument);
}

// Ranks of one copy have made more optimizers than those of the others.
TEST_F(FullyShardedGraphs, CopiesAgreeOnNames) {
  if (size() != 2 && size() != 4) return;
  const ProcessSet alone = add_process_set({0});
  const Tensor parameter = ::torch::ones({2}, ::torch::requires_grad());
  std::optional<DistributedOptimizer<optim::SGD>> other;
  if (rank() == 0)
    other.emplace(optim::SGD(std::vector<Tensor>{parameter}, 0.1),
                  NamedParameters{{"other", parameter}},
                  DistributedOptimizerOptions{.process_set = alone});
  const HybridSets sets = add_hybrid_sets(size() / 2);
  auto model = make_net<ShardedNet>();
  FullySharded sharded(model, {.process_set = sets.process_set, .replicas = sets.replicas});
  optim::SGD optimizer(sharded.parameters(), 0.1);
  usual(model, sharded, optimizer, 0);
  EXPECT_THROW((void)sharded.full_state(99), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::testing_support
