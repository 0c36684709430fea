// SPDX-License-Identifier: Apache-2.0
// Training loops with the structure of PyTorch's own C++ examples. Only their optimizers are
// wrapped and their data is divided; the rest is the same as in a program for one process.
#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
namespace F = ::torch::nn::functional;
using ::torch::Tensor;

constexpr std::int64_t whole_batch = 12;  // divided by 1, 2, 3 and 4 ranks

/// The examples of one rank, or all of them.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = whole_batch;
};

Share own_share() {
  const std::int64_t count = whole_batch / size();
  return {rank() * count, count};
}

Tensor examples(std::vector<std::int64_t> shape, int step, const Share& share) {
  ::torch::manual_seed(static_cast<std::uint64_t>(1000 + step));
  shape.insert(shape.begin(), whole_batch);
  return ::torch::randn(shape, f64).slice(0, share.first, share.first + share.count);
}

Tensor labels(int classes, int step, const Share& share) {
  ::torch::manual_seed(static_cast<std::uint64_t>(2000 + step));
  return ::torch::randint(classes, {whole_batch}, ::torch::kInt64)
      .slice(0, share.first, share.first + share.count);
}

/// mnist.cpp: a convolutional network, negative log-likelihood, SGD with momentum.
struct DigitsImpl : nn::Module {
  DigitsImpl()
      : conv1(register_module("conv1", nn::Conv2d(1, 3, 3))),
        conv2(register_module("conv2", nn::Conv2d(3, 4, 3))),
        fc1(register_module("fc1", nn::Linear(16, 8))),
        fc2(register_module("fc2", nn::Linear(8, 5))) {}
  Tensor forward(Tensor x) {
    x = ::torch::relu(::torch::max_pool2d(conv1->forward(x), 2));
    x = ::torch::relu(conv2->forward(x));
    x = ::torch::relu(fc1->forward(x.view({-1, 16})));
    return ::torch::log_softmax(fc2->forward(x), 1);
  }
  nn::Conv2d conv1;
  nn::Conv2d conv2;
  nn::Linear fc1;
  nn::Linear fc2;
};
TORCH_MODULE(Digits);

template <typename Optimizer>
void train_digits(Digits& model, Optimizer& optimizer, const Share& share) {
  model->train();
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const Tensor output = model->forward(examples({1, 10, 10}, step, share));
    Tensor loss = ::torch::nll_loss(output, labels(5, step, share));
    loss.backward();
    optimizer.step();
  }
}

/// regression.cpp: one layer, the module's zero_grad, and a hand-written update.
template <typename Gradients>
void train_regression(nn::Linear& layer, const Share& share, const Gradients& /*alive*/) {
  for (int step = 0; step < 8; ++step) {
    const Tensor x = examples({4}, step, share);
    const Tensor target = x.pow(2).sum(1, /*keepdim=*/true);
    layer->zero_grad();
    Tensor loss = ::torch::smooth_l1_loss(layer->forward(x), target);
    loss.backward();
    const ::torch::NoGradGuard no_grad;
    for (Tensor& parameter : layer->parameters()) parameter.add_(-0.1 * parameter.grad());
  }
}

/// transfer-learning: a frozen body, and a head with an optimizer of its own.
template <typename Optimizer>
void train_head(nn::Sequential& body, nn::Linear& head, Optimizer& optimizer, const Share& share) {
  for (int step = 0; step < 8; ++step) {
    const Tensor features = body->forward(examples({6}, step, share));
    const Tensor output = head->forward(features.view({features.size(0), -1}));
    Tensor loss = F::cross_entropy(output, labels(2, step, share));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
}

class ProgramsTest : public TorchTest {};

TEST_F(ProgramsTest, DigitsAreOneProcess) {
  const auto options = optim::SGDOptions(0.1).momentum(0.5);
  ::torch::manual_seed(1);
  Digits model;
  Digits reference;
  model->to(f64);
  reference->to(f64);
  broadcast_parameters(*model, 0);
  for (std::size_t i = 0; i < model->parameters().size(); ++i)
    reference->parameters()[i].set_data(model->parameters()[i].detach().clone());
  DistributedOptimizer optimizer(optim::SGD(model->parameters(), options),
                                 model->named_parameters());
  optim::SGD plain(reference->parameters(), options);
  train_digits(model, optimizer, own_share());
  train_digits(reference, plain, {});
  expect_same_bits_on_all_ranks(model->parameters());
  expect_close(flat(model->parameters()), flat(reference->parameters()), 1e-10);
}

TEST_F(ProgramsTest, ARegressionWithoutOptimizerIsOneProcess) {
  ::torch::manual_seed(2);
  nn::Linear layer(4, 1);
  nn::Linear reference(4, 1);
  layer->to(f64);
  reference->to(f64);
  for (std::size_t i = 0; i < 2; ++i)
    reference->parameters()[i].set_data(layer->parameters()[i].detach().clone());
  const DistributedGradients gradients(*layer);
  train_regression(layer, own_share(), gradients);
  train_regression(reference, {}, 0);
  expect_same_bits_on_all_ranks(layer->parameters());
  expect_close(flat(layer->parameters()), flat(reference->parameters()), 1e-10);
}

TEST_F(ProgramsTest, ATransferredHeadIsOneProcess) {
  ::torch::manual_seed(3);
  nn::Sequential body(nn::Linear(6, 7), nn::Tanh());
  nn::Linear head(7, 2);
  nn::Linear reference(7, 2);
  body->to(f64);
  head->to(f64);
  reference->to(f64);
  for (std::size_t i = 0; i < 2; ++i)
    reference->parameters()[i].set_data(head->parameters()[i].detach().clone());
  for (Tensor& parameter : body->parameters()) parameter.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::Adam(head->parameters(), optim::AdamOptions(1e-2)),
                                 head->named_parameters());
  optim::Adam plain(reference->parameters(), optim::AdamOptions(1e-2));
  train_head(body, head, optimizer, own_share());
  train_head(body, reference, plain, {});
  expect_same_bits_on_all_ranks(head->parameters());
  expect_close(flat(head->parameters()), flat(reference->parameters()), 1e-8);
}

/// The normalization of activations: batch statistics depend on a rank's share of the batch.
nn::AnyModule normalization(bool uses_batch) {
  if (uses_batch) return nn::AnyModule(nn::BatchNorm2d(3));
  return nn::AnyModule(nn::GroupNorm(nn::GroupNormOptions(1, 3)));
}

nn::Sequential make_generator(bool uses_batch) {
  nn::Sequential network(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 3).bias(false)));
  network->push_back(normalization(uses_batch));
  network->push_back(nn::ReLU());
  network->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 1, 3).bias(false)));
  network->push_back(nn::Tanh());
  return network;
}

nn::Sequential make_discriminator(bool uses_batch) {
  nn::Sequential network(nn::Conv2d(nn::Conv2dOptions(1, 3, 3).bias(false)),
                         nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)));
  network->push_back(normalization(uses_batch));
  network->push_back(nn::Conv2d(nn::Conv2dOptions(3, 1, 3).bias(false)));
  network->push_back(nn::Sigmoid());
  return network;
}

/// dcgan.cpp: the discriminator has two passes before its step, and the generator's pass runs
/// through it. Only the discriminator's module is zeroed, not its optimizer.
template <typename OptimizerG, typename OptimizerD>
void train_gan(nn::Sequential& generator, nn::Sequential& discriminator, OptimizerG& optimizer_g,
               OptimizerD& optimizer_d, const Share& share = own_share()) {
  for (int step = 0; step < 5; ++step) {
    discriminator->zero_grad();
    const Tensor real = examples({1, 5, 5}, step, share);
    const Tensor real_labels = ::torch::full({share.count}, 0.9, f64);
    const Tensor real_output = discriminator->forward(real).reshape(real_labels.sizes());
    const Tensor loss_real = ::torch::binary_cross_entropy(real_output, real_labels);
    loss_real.backward();

    const Tensor fake = generator->forward(examples({4, 1, 1}, 100 + step, share));
    const Tensor fake_labels = ::torch::zeros({share.count}, f64);
    const Tensor fake_output = discriminator->forward(fake.detach()).reshape(fake_labels.sizes());
    const Tensor loss_fake = ::torch::binary_cross_entropy(fake_output, fake_labels);
    loss_fake.backward();
    optimizer_d.step();

    generator->zero_grad();
    const Tensor wanted = ::torch::ones({share.count}, f64);
    const Tensor output = discriminator->forward(fake).reshape(wanted.sizes());
    const Tensor loss = ::torch::binary_cross_entropy(output, wanted);
    loss.backward();
    optimizer_g.step();
  }
}

struct Gan {
  explicit Gan(bool uses_batch) {
    ::torch::manual_seed(4);
    generator = make_generator(uses_batch);
    discriminator = make_discriminator(uses_batch);
    for (auto* module : {&generator, &discriminator}) (*module)->to(f64);
  }
  std::vector<Tensor> parameters() {
    std::vector<Tensor> all = generator->parameters();
    for (const Tensor& parameter : discriminator->parameters()) all.push_back(parameter);
    return all;
  }
  nn::Sequential generator{nullptr};
  nn::Sequential discriminator{nullptr};
};

TEST_F(ProgramsTest, AGanWithoutBatchStatisticsIsOneProcess) {
  const auto options = optim::SGDOptions(0.05).momentum(0.5);
  for (const int num_groups : {0, 2}) {
    Gan own(/*uses_batch=*/false);
    Gan reference(/*uses_batch=*/false);
    const Tensor before = flat(reference.parameters());
    DistributedOptimizer optimizer_g(optim::SGD(own.generator->parameters(), options),
                                     own.generator->named_parameters(), {.num_groups = num_groups});
    DistributedOptimizer optimizer_d(optim::SGD(own.discriminator->parameters(), options),
                                     own.discriminator->named_parameters(),
                                     {.num_groups = num_groups});
    optim::SGD plain_g(reference.generator->parameters(), options);
    optim::SGD plain_d(reference.discriminator->parameters(), options);
    train_gan(own.generator, own.discriminator, optimizer_g, optimizer_d);
    train_gan(reference.generator, reference.discriminator, plain_g, plain_d, Share{});
    expect_same_bits_on_all_ranks(own.parameters());
    expect_close(flat(own.parameters()), flat(reference.parameters()), 1e-10);
    EXPECT_GT((flat(own.parameters()) - before).abs().max().item<double>(), 1e-3);
  }
}

TEST_F(ProgramsTest, AGanTrainsAlikeWithOptimizersOrModulesWrapped) {
  const auto options = optim::AdamOptions(2e-3).betas(std::make_tuple(0.5, 0.5));
  for (const auto& reduction :
       {DistributedOptimizerOptions{}, {.op = ReduceOp::sum}, {.num_groups = 2}}) {
    Gan wrapped(/*uses_batch=*/true);
    DistributedOptimizer optimizer_g(optim::Adam(wrapped.generator->parameters(), options),
                                     wrapped.generator->named_parameters(), reduction);
    DistributedOptimizer optimizer_d(optim::Adam(wrapped.discriminator->parameters(), options),
                                     wrapped.discriminator->named_parameters(), reduction);
    const Tensor before = flat(wrapped.parameters());
    train_gan(wrapped.generator, wrapped.discriminator, optimizer_g, optimizer_d);
    expect_same_bits_on_all_ranks(wrapped.parameters());
    EXPECT_GT((flat(wrapped.parameters()) - before).abs().max().item<double>(), 1e-3);

    Gan plain(/*uses_batch=*/true);
    const DistributedGradients gradients_g(*plain.generator, reduction);
    const DistributedGradients gradients_d(*plain.discriminator, reduction);
    optim::Adam plain_g(plain.generator->parameters(), options);
    optim::Adam plain_d(plain.discriminator->parameters(), options);
    train_gan(plain.generator, plain.discriminator, plain_g, plain_d);
    expect_close(flat(plain.parameters()), flat(wrapped.parameters()), 1e-12);
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
