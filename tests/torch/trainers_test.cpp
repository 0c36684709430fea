// SPDX-License-Identifier: Apache-2.0
// Training loops with the structure of other people's trainers: state that is carried from batch to
// batch, losses that are summed, shares of unequal size, a stop that is decided by a value of all
// ranks, and tensors that are replaced during training. Each equals one process on the union of the
// data.
#include <map>
#include <utility>

#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using ::torch::Tensor;

using TrainersTest = TorchTest;

/// The rows of this rank, or all of them.
struct Rows {
  std::int64_t first;
  std::int64_t end;

  static Rows all(std::int64_t count) { return {0, count}; }
  /// The last rank has the remainder.
  static Rows mine(std::int64_t count) {
    const std::int64_t each = count / size();
    return {rank() * each, rank() + 1 == size() ? count : (rank() + 1) * each};
  }
  [[nodiscard]] Tensor of(const Tensor& tensor, std::int64_t dimension = 0) const {
    return tensor.slice(dimension, first, end);
  }
  [[nodiscard]] std::int64_t count() const { return end - first; }
};

template <typename Module>
Module seeded(const Module& module) {
  module->to(f64);
  ::torch::manual_seed(11);
  for (Tensor& parameter : module->parameters()) {
    const ::torch::NoGradGuard no_grad;
    parameter.normal_(0.0, 0.3);
  }
  return module;
}

// --- A language model: the state of an LSTM is carried from one window of the text to the next.

struct LanguageModel : nn::Module {
  LanguageModel() {
    embedding = register_module("embedding", nn::Embedding(letters, 6));
    lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2)));
    head = register_module("head", nn::Linear(8, letters));
  }
  static constexpr std::int64_t letters = 7;
  nn::Embedding embedding{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Linear head{nullptr};
};

/// Truncated backpropagation through time, with clipping by norm.
template <typename Optimizer, typename Clip>
void train_language(LanguageModel& model, Optimizer& optimizer, const Rows& streams,
                    const Clip& clip) {
  ::torch::manual_seed(5);
  const Tensor text = streams.of(::torch::randint(LanguageModel::letters, {41, 12}), 1);
  std::tuple<Tensor, Tensor> state{::torch::zeros({2, streams.count(), 8}, f64),
                                   ::torch::zeros({2, streams.count(), 8}, f64)};
  for (int begin = 0; begin + 10 < text.size(0); begin += 10) {
    optimizer.zero_grad();
    state = {std::get<0>(state).detach(), std::get<1>(state).detach()};
    Tensor output;
    std::tie(output, state) =
        model.lstm->forward(model.embedding(text.slice(0, begin, begin + 10)), state);
    const Tensor wanted = text.slice(0, begin + 1, begin + 11).reshape({-1});
    nn::functional::cross_entropy(model.head(output).flatten(0, 1), wanted).backward();
    clip();
    optimizer.step();
  }
}

TEST_F(TrainersTest, ALanguageModelWithCarriedStateIsOneProcess) {
  const auto alone = seeded(std::make_shared<LanguageModel>());
  optim::SGD alone_optimizer(alone->parameters(), 0.5);
  train_language(*alone, alone_optimizer, Rows::all(12),
                 [&] { nn::utils::clip_grad_norm_(alone->parameters(), 0.1); });
  const auto model = seeded(std::make_shared<LanguageModel>());
  DistributedOptimizer optimizer(optim::SGD(model->parameters(), 0.5), model->named_parameters());
  train_language(*model, optimizer, Rows::mine(12), [&] { clip_grad_norm(optimizer, 0.1); });
  expect_close(flat(model->parameters()), flat(alone->parameters()), 1e-6);  // the norm's epsilon
  expect_same_bits_on_all_ranks(model->parameters());
}

// --- A variational autoencoder: losses are summed over the examples, whose numbers may differ.

struct Autoencoder : nn::Module {
  Autoencoder() {
    encoder = register_module("encoder", nn::Linear(9, 6));
    decoder = register_module("decoder", nn::Linear(3, 9));
  }
  nn::Linear encoder{nullptr};
  nn::Linear decoder{nullptr};
};

template <typename Optimizer>
double train_autoencoder(Autoencoder& model, Optimizer& optimizer, const Rows& share) {
  constexpr std::int64_t examples = 25;
  Tensor total = ::torch::zeros({}, f64);
  ::torch::manual_seed(6);
  for (int step = 0; step < 12; ++step) {
    const Tensor images = share.of(::torch::rand({examples, 9}, f64));
    const Tensor noise = share.of(::torch::randn({examples, 3}, f64));
    optimizer.zero_grad();
    const std::vector<Tensor> code = model.encoder(images).chunk(2, 1);
    const Tensor decoded = ::torch::sigmoid(model.decoder(code[0] + noise * (code[1] / 2).exp()));
    const auto sum = nn::functional::BinaryCrossEntropyFuncOptions().reduction(::torch::kSum);
    const Tensor loss = nn::functional::binary_cross_entropy(decoded, images, sum) -
                        0.5 * (1 + code[1] - code[0].square() - code[1].exp()).sum();
    loss.backward();
    optimizer.step();
    total += loss.detach();
  }
  return total.item<double>();
}

TEST_F(TrainersTest, AnAutoencoderWithSummedLossesAndUnequalSharesIsOneProcess) {
  const auto alone = seeded(std::make_shared<Autoencoder>());
  optim::Adam alone_optimizer(alone->parameters(), optim::AdamOptions(0.01));
  const double expected = train_autoencoder(*alone, alone_optimizer, Rows::all(25));
  const auto model = seeded(std::make_shared<Autoencoder>());
  DistributedOptimizer optimizer(optim::Adam(model->parameters(), optim::AdamOptions(0.01)),
                                 model->named_parameters(), {.op = ReduceOp::sum});
  const double mine = train_autoencoder(*model, optimizer, Rows::mine(25));
  expect_close(flat(model->parameters()), flat(alone->parameters()), 1e-9);
  expect_same_bits_on_all_ranks(model->parameters());
  double sum = mine;
  allreduce(sum, {.op = ReduceOp::sum});
  EXPECT_NEAR(sum, expected, 1e-8 * std::abs(expected));
}

// --- Reinforcement learning: passes over one collection of experience end when the policy has
// moved far enough, as the mean of all ranks says.

struct Policy : nn::Module {
  Policy() {
    actor = register_module("actor", nn::Linear(5, 3));
    critic = register_module("critic", nn::Linear(5, 1));
  }
  [[nodiscard]] Tensor log_probability(const Tensor& states, const Tensor& actions) {
    return ::torch::log_softmax(actor(states), 1).gather(1, actions);
  }
  nn::Linear actor{nullptr};
  nn::Linear critic{nullptr};
};

/// Returns the passes that each collection took.
template <typename Optimizer, typename Mean>
std::vector<int> train_policy(Policy& policy, Optimizer& optimizer, const Rows& share,
                              const Mean& mean_of_all) {
  std::vector<int> passes;
  ::torch::manual_seed(8);
  for (int collection = 0; collection < 6; ++collection) {
    const Tensor states = share.of(::torch::randn({24, 5}, f64));
    const Tensor actions = share.of(::torch::randint(3, {24, 1}));
    const Tensor returns = share.of(::torch::randn({24, 1}, f64));
    const Tensor before = policy.log_probability(states, actions).detach();
    passes.push_back(0);
    for (int pass = 0; pass < 40; ++pass) {
      const Tensor after = policy.log_probability(states, actions);
      if (mean_of_all((before - after.detach()).square().mean().item<double>()) > 0.02) break;
      ++passes.back();
      const Tensor ratio = (after - before).exp();
      const Tensor error = policy.critic(states) - returns;
      const Tensor gain =
          ::torch::min(ratio * -error.detach(), ratio.clamp(0.8, 1.2) * -error.detach());
      optimizer.zero_grad();
      (0.5 * error.square().mean() - gain.mean()).backward();
      optimizer.step();
    }
  }
  return passes;
}

TEST_F(TrainersTest, APolicyThatStopsEarlyByAReducedValueIsOneProcess) {
  const auto alone = seeded(std::make_shared<Policy>());
  optim::Adam alone_optimizer(alone->parameters(), optim::AdamOptions(0.02));
  const std::vector<int> expected = train_policy(*alone, alone_optimizer, Rows::all(24),
                                                 [](double divergence) { return divergence; });
  const auto policy = seeded(std::make_shared<Policy>());
  DistributedOptimizer optimizer(optim::Adam(policy->parameters(), optim::AdamOptions(0.02)),
                                 policy->named_parameters());
  const auto passes = train_policy(*policy, optimizer, Rows::mine(24), [](double divergence) {
    allreduce(divergence, {.name = "divergence"});
    return divergence;
  });
  EXPECT_EQ(passes, expected);
  EXPECT_LT(passes.back(), 40) << "nothing stops early";
  EXPECT_GT(passes.back(), 1);
  expect_close(flat(policy->parameters()), flat(alone->parameters()), 1e-9);
  expect_same_bits_on_all_ranks(policy->parameters());
}

// --- Splatting: points are split and removed during training, so that their tensor is replaced by
// one of another size, with the state of the optimizer.

template <typename Optimizer>
Tensor& points_of(Optimizer& optimizer) {
  return optimizer.param_groups().front().params().front();
}

/// Points with large gradients are doubled, faint ones removed. All ranks see the same gradients.
template <typename Optimizer>
void densify(Optimizer& optimizer) {
  const Tensor old = points_of(optimizer).detach();
  const Tensor norms = points_of(optimizer).grad().norm(2, 1);
  const Tensor kept = old.index({old.select(1, 2) > -0.4});
  const Tensor split = old.index({norms > norms.mean()}) + 0.01;
  optimizer.state().clear();
  points_of(optimizer) = ::torch::cat({kept, split}).set_requires_grad(true);
}

template <typename Optimizer, typename Replace>
void train_points(Optimizer& optimizer, const Rows& views, const Replace& replace) {
  ::torch::manual_seed(9);
  const Tensor targets = ::torch::randn({12, 2}, f64);
  for (int step = 0; step < 24; ++step) {
    const Tensor points = points_of(optimizer);
    const Tensor places = points.slice(1, 0, 2).unsqueeze(0);
    const Tensor light = ::torch::sigmoid(points.select(1, 2));
    const Tensor distances = (views.of(targets).unsqueeze(1) - places).square().sum(2);
    optimizer.zero_grad();
    ((-distances).exp() * light).sum(1).sub(1.0).square().mean().backward();
    const bool densifies = step % 6 == 5;
    optimizer.step();
    if (densifies) replace();
  }
}

TEST_F(TrainersTest, PointsThatAreReplacedDuringTrainingAreOneProcess) {
  ::torch::manual_seed(12);
  const Tensor start = ::torch::randn({10, 3}, f64);
  const auto adam = [&] {
    return optim::Adam({start.clone().set_requires_grad(true)}, optim::AdamOptions(0.05));
  };
  optim::Adam alone = adam();
  train_points(alone, Rows::all(12), [&] { densify(alone); });
  optim::Adam given = adam();
  const NamedParameters named{{"points", points_of(given)}};
  DistributedOptimizer optimizer(std::move(given), named);
  train_points(optimizer, Rows::mine(12), [&] { densify(optimizer); });
  EXPECT_NE(points_of(optimizer).size(0), start.size(0)) << "nothing is replaced";
  expect_close(points_of(optimizer), points_of(alone), 1e-9);
  expect_same_bits_on_all_ranks({points_of(optimizer)});
}

}  // namespace
}  // namespace kolo::internal::testing_support
