// SPDX-License-Identifier: Apache-2.0
#include "trainer.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "batch.hpp"
#include "evaluation.hpp"
#include "networks.hpp"
#include "pictures.hpp"

namespace gan {
namespace {

using torch::Tensor;

torch::optim::Adam adam(const torch::nn::Sequential& network, double learning_rate) {
  return torch::optim::Adam(network->parameters(),
                            torch::optim::AdamOptions(learning_rate).betas({0.5, 0.999}));
}

// The distance of the logits from saying that all images are real, or that all are generated.
Tensor loss_of(const Tensor& logits, bool real) {
  const Tensor targets = real ? torch::ones_like(logits) : torch::zeros_like(logits);
  return torch::binary_cross_entropy_with_logits(logits, targets);
}

}  // namespace

Trainer::Trainer(const Options& options, const cifar10::Dataset& images)
    : options_(options),
      images_(images),
      generator_(make_generator(options.noise, options.width)),
      discriminator_(make_discriminator(options.width)),
      // KOLO: each optimizer averages its own gradients over the ranks.
      generator_optimizer_(adam(generator_, options.learning_rate), generator_->named_parameters()),
      discriminator_optimizer_(adam(discriminator_, options.learning_rate),
                               discriminator_->named_parameters()),
      sampler_({.examples = static_cast<std::int64_t>(images.size()), .seed = options.seed}) {
  kolo::broadcast_parameters(*generator_, /*root=*/0);      // KOLO
  kolo::broadcast_parameters(*discriminator_, /*root=*/0);  // KOLO
  // KOLO: each rank draws its own noise.
  torch::manual_seed(options.seed + static_cast<std::uint64_t>(kolo::rank()));
}

void Trainer::run() {
  using Clock = std::chrono::steady_clock;
  const auto batch_size = static_cast<std::int64_t>(options_.batch_size);
  while (sampler_.epoch() < options_.epochs) {
    const Clock::time_point start = Clock::now();
    const std::vector<std::int64_t> indices = sampler_.indices();  // KOLO: this rank's images
    losses_.reset();
    cifar10::Batch batch;
    for (std::int64_t step = 0; step < sampler_.steps_left(batch_size); ++step) {
      batch.fill(images_,
                 cifar10::batch_of(indices, static_cast<std::size_t>(step), options_.batch_size));
      train_step(cifar10::as_tensors(batch).images * 2.0 - 1.0);
    }
    report(std::chrono::duration<double>(Clock::now() - start).count());
    save_samples();
    sampler_.begin_epoch(sampler_.epoch() + 1);
  }
}

// The order of calls is the same as in a program for one process.
void Trainer::train_step(const Tensor& real) {
  const std::int64_t images = real.size(0);
  // The discriminator learns from real and from generated images, in two backward passes.
  discriminator_->zero_grad();
  const Tensor loss_of_real = loss_of(discriminator_->forward(real), /*real=*/true);
  loss_of_real.backward();
  const Tensor generated = generator_->forward(draw_noise(images));
  const Tensor loss_of_generated =
      loss_of(discriminator_->forward(generated.detach()), /*real=*/false);
  loss_of_generated.backward();
  discriminator_optimizer_.step();

  // The generator learns to be taken for real. Backward runs through the discriminator, whose
  // gradients of this pass are zeroed in the next step.
  generator_->zero_grad();
  const Tensor loss_of_generator = loss_of(discriminator_->forward(generated), /*real=*/true);
  loss_of_generator.backward();
  generator_optimizer_.step();

  const auto count = static_cast<double>(images);
  losses_.add("discriminator", (loss_of_real + loss_of_generated).item<double>(), count);
  losses_.add("generator", loss_of_generator.item<double>(), count);
}

Tensor Trainer::draw_noise(std::int64_t images) const {
  return torch::randn({images, options_.noise, 1, 1});
}

void Trainer::report(double seconds) const {
  const auto losses = losses_.over_all_ranks();  // KOLO
  if (kolo::rank() != 0) return;
  std::printf("epoch %lld/%lld: generator loss %.4f, discriminator loss %.4f, %.1f s\n",
              static_cast<long long>(sampler_.epoch() + 1), static_cast<long long>(options_.epochs),
              losses.at("generator"), losses.at("discriminator"), seconds);
  std::fflush(stdout);
}

// KOLO: the statistics of batch normalization differ between ranks. Here one rank alone uses them;
// `broadcast_buffers` makes them equal, so that any rank could.
void Trainer::save_samples() {
  if (options_.samples.empty()) return;
  kolo::broadcast_buffers(*generator_, /*root=*/0);
  kolo::on_one_rank(/*root=*/0, [&] {
    const torch::NoGradGuard no_grad;
    generator_->eval();
    // The same noise after each epoch, independent of the noise of training.
    auto random = torch::make_generator<at::CPUGeneratorImpl>(options_.seed);
    const Tensor noise = torch::randn({64, options_.noise, 1, 1}, random);
    const Tensor images = generator_->forward(noise);
    generator_->train();
    write_picture(options_.samples / ("epoch-" + std::to_string(sampler_.epoch() + 1) + ".ppm"),
                  images, /*columns=*/8);
  });
}

}  // namespace gan
