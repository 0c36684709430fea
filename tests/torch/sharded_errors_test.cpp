// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: calls that it refuses, and ranks that fail, leave, or deviate from the others.
#include "sharded_network.hpp"

#include <sstream>
#include <stdexcept>

namespace kolo::internal::testing_support {
namespace {

/// Its step throws if it is told to.
class ThrowingSgd : public optim::SGD {
 public:
  using SGD::SGD;
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    if (throws) throw std::runtime_error("no step today");
    return SGD::step(closure);
  }
  bool throws = false;
};

}  // namespace
}  // namespace kolo::internal::testing_support

template <>
inline constexpr bool kolo::is_elementwise_optimizer<kolo::internal::testing_support::ThrowingSgd> =
    true;

namespace kolo::internal::testing_support {
namespace {

using ShardedErrorsTest = TorchTest;

TEST_F(ShardedErrorsTest, ARankThatJoinsIsMissed) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    usual_step(network, optimizer, 0);
    const Tensors before{flat(network.parameters())};
    if (rank() != size() - 1) {
      const auto error = error_of<Mismatch>([&] { usual_step(network, optimizer, 1); });
      EXPECT_THAT(error.what(), HasSubstr("join"));
      EXPECT_TRUE(same_bits(flat(network.parameters()), before[0]));
    }
    join();
    usual_step(network, optimizer, 2);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedErrorsTest, ALoneSkipIsAMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    network.loss(0).backward();
    if (rank() == 0) {
      EXPECT_THROW(optimizer.skip_step(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    broadcast_parameters(network, 0);
    usual_step(network, optimizer, 1);
    // Not calling `step` does the same, if all ranks do it.
    optimizer.zero_grad();
    network.loss(2).backward();
    usual_step(network, optimizer, 3);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedErrorsTest, ARankThatGoesOnWithoutAStepGetsMismatch) {
  if (size() == 1) GTEST_SKIP() << "needs several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    network.loss(0).backward();
    if (rank() == 0) {
      EXPECT_THROW(network.loss(1).backward(), Mismatch);
    } else {
      EXPECT_THROW(optimizer.step(), Mismatch);
      network.loss(1).backward();
    }
    broadcast_parameters(network, 0);
    usual_step(network, optimizer, 2);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedErrorsTest, GoesOnAfterABackwardThatThrows) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    ::torch::Tensor loss = network.loss(0);
    if (rank() == size() - 1)
      network.hidden->bias.register_hook([](const ::torch::Tensor&) -> ::torch::Tensor {
        throw std::runtime_error("no gradient today");
      });
    network.output->weight.sum().backward();  // reduced before
    EXPECT_ANY_THROW(loss.backward());
    EXPECT_ANY_THROW(network.loss(1).backward());
    network.zero_grad();
    (network.convolution->weight.sum() + network.output->weight.sum()).backward();
    optimizer.step();
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

TEST_F(ShardedErrorsTest, WorksInAProcessSet) {
  const ProcessSet even = add_process_set(ranks_by(2, size()));
  Network network;
  DistributedOptimizer replicated(optim::Adam(network.parameters(), 0.01),
                                  network.named_parameters(), {.process_set = even});
  Network other;
  ShardedOptimizer sharded(optim::Adam(other.parameters(), 0.01), other.named_parameters(),
                           {.process_set = even});
  for (int step = 0; step < 3; ++step) {
    usual_step(network, replicated, step);
    usual_step(other, sharded, step);
  }
  EXPECT_TRUE(same_bits(flat(network.parameters()), flat(other.parameters())));
}

TEST_F(ShardedErrorsTest, ErrorsNameTheShardedOptimizer) {
  ::torch::Tensor w = parameter({1.0, 2.0});
  ::torch::Tensor v = parameter({1.0, 2.0});
  const auto refusal = [&](const DistributedOptimizerOptions& options) {
    return refusal_of([&] { ShardedOptimizer(optim::SGD({w}, 1.0), {{"w", w}}, options); });
  };
  const auto starts = testing::StartsWith("ShardedOptimizer: ");
  EXPECT_THAT(refusal({.backward_passes_per_step = 0}), starts);
  EXPECT_THAT(refusal({.groups = {{"none"}}}), starts);
  EXPECT_THAT(refusal({.num_groups = -1}), starts);
  EXPECT_THAT(refusal_of([&] { ShardedOptimizer(optim::SGD({w}, 1.0), {{"v", v}}); }), starts);
  EXPECT_THAT(refusal_of([&] {
                ShardedOptimizer(optim::SGD({w}, 1.0), {{"v", v}, {"v", w}});
              }),
              starts);
  EXPECT_THAT(refusal_of([&] {
                ShardedOptimizer(optim::SGD({w}, 1.0), {{std::string(1 << 16, 'n'), w}});
              }),
              starts);
  {
    ShardedOptimizer optimizer(optim::SGD({w, v}, 1.0), {}, Sharding::state);
    w.mutable_grad() = ::torch::ones({2}, f64);
    v.mutable_grad() = w.grad().view({2});
    EXPECT_THAT(refusal_of([&] { optimizer.synchronize(); }), starts);
  }
  if (size() == 1) return;
  ::torch::Tensor u = parameter({1.0, 2.0});
  const double factor = rank() == 0 ? 1.0 : 2.0;
  EXPECT_THAT(error_of<Mismatch>([&] {
                ShardedOptimizer(optim::SGD({u}, 1.0), {.gradient_predivide_factor = factor});
              }).what(),
              HasSubstr("of the ShardedOptimizer differ"));
}

TEST_F(ShardedErrorsTest, RefusesWhatItCannotDo) {
  ::torch::Tensor w = parameter({1.0, 2.0});
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {.op = ReduceOp::adasum}), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {.hook = int8()}), InvalidArgument);
  EXPECT_THROW(ShardedOptimizer(optim::SGD({w}, 1.0), {{"other", parameter({1.0})}}),
               InvalidArgument);
  ::torch::Tensor gaps = ::torch::zeros({4, 2}, f64).narrow(1, 0, 1).set_requires_grad(true);
  const auto error = error_of<InvalidArgument>([&] { ShardedOptimizer(optim::SGD({gaps}, 1.0)); });
  EXPECT_THAT(error.what(), HasSubstr("is not dense in memory"));
  DistributedOptimizer distributed(optim::SGD({w}, 1.0));
  const auto shared = error_of<InvalidArgument>([&] { ShardedOptimizer(optim::SGD({w}, 1.0)); });
  EXPECT_THAT(shared.what(), HasSubstr("cannot share a parameter"));
  if (size() > 1) {  // the ranks differ in the sharding
    ::torch::Tensor v = parameter({1.0, 2.0});
    const Sharding mine = rank() == 0 ? Sharding::state : Sharding::state_and_gradients;
    EXPECT_THROW(ShardedOptimizer(optim::SGD({v}, 1.0), {}, mine), Mismatch);
  }
}

TEST_F(ShardedErrorsTest, AnArchiveOfOneShardIsRefused) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    Network network;
    ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    usual_step(network, optimizer, 0);
    std::stringstream stream;
    EXPECT_THAT(refusal_of([&] { ::torch::save(optimizer, stream); }),
                testing::AllOf(HasSubstr("torch::save: "), HasSubstr("full_state()")));
    const optim::Adam plain(network.parameters(), 0.1);
    ::torch::save(plain, stream);
    EXPECT_THAT(refusal_of([&] { ::torch::load(optimizer, stream); }),
                testing::AllOf(HasSubstr("torch::load: "), HasSubstr("load_full_state()")));
    usual_step(network, optimizer, 1);
    expect_same_bits_on_all_ranks(network.parameters());
  }
}

// Its state is an archive, which kolo::state makes in spite of that refusal.
TEST_F(ShardedErrorsTest, TheShardsOfAnotherClassComeBack) {
  Network network;
  ShardedOptimizer optimizer(
      ThrowingSgd(network.parameters(), optim::SGDOptions(0.1).momentum(0.9)),
      network.named_parameters());
  usual_step(network, optimizer, 0);
  const StateDict parameters = state(network);
  const StateDict saved = state(optimizer);
  usual_step(network, optimizer, 1);
  const ::torch::Tensor expected = flat(network.parameters()).clone();
  load_state(network, parameters);
  load_state(optimizer, saved);
  usual_step(network, optimizer, 1);
  EXPECT_TRUE(same_bits(flat(network.parameters()), expected));
}

// One rank's optimizer throws in its step, while the others gather.
std::vector<int> ranks_missed_in_a_gather(Sharding sharding, int leaver) {
  std::vector<int> missed;
  try {
    const Session session({.flight_recorder_dir = "off"});
    Network network;
    ShardedOptimizer optimizer(ThrowingSgd(network.parameters(), 0.1), network.named_parameters(),
                               {}, sharding);
    usual_step(network, optimizer, 0);
    optimizer.throws = rank() == leaver;
    try {
      usual_step(network, optimizer, 1);
    } catch (const PeerLeft& error) {
      missed = error.ranks();
      EXPECT_THAT(error.what(), HasSubstr("allgather"));
      throw;
    }
  } catch (const std::exception&) {
  }
  return missed;
}

TEST(ShardedDepartureTest, ARankThatIsLostWhileTheOthersGatherIsNamed) {
  int ranks = 0;
  int rank = 0;
  {
    const Session session;
    ranks = size();
    rank = kolo::rank();
  }
  if (ranks == 1) return;
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    for (const int leaver : {0, ranks - 1}) {
      const std::vector<int> missed = ranks_missed_in_a_gather(sharding, leaver);
      EXPECT_EQ(missed, rank == leaver ? std::vector<int>() : std::vector<int>{leaver});
    }
  }
}

TEST_F(ShardedErrorsTest, AParameterThatOneRankAddsIsNamedOnAll) {
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    ::torch::Tensor w = parameter({1.0, 2.0});
    ::torch::Tensor added = parameter({1.0, 1.0});
    ShardedOptimizer optimizer(optim::SGD({w}, 1.0), {{"w", w}}, {}, sharding);
    if (rank() == 0) optimizer.add_param_group(optim::OptimizerParamGroup({added}));
    optimizer.zero_grad();
    const auto loss = [&] { return rank() == 0 ? w.sum() + added.sum() : w.sum(); };
    EXPECT_THAT(error_of<Mismatch>([&] { loss().backward(); }).what(),
                testing::HasSubstr("is on rank 0 only"));
    expect_close(allreduce(values({1.0}), {.op = ReduceOp::sum}), values({1.0 * size()}));
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
