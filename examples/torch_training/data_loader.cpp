// SPDX-License-Identifier: Apache-2.0
// Trains with LibTorch's data loader: each rank reads its share of the data, and all ranks meet
// other batches in each epoch. The lines marked KOLO are the changes from one process.
#include <kolo/torch.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>

namespace {

// 2400 points of two spirals: their two coordinates, and the number of the spiral.
torch::Tensor make_spirals() {
  const torch::Tensor turn = torch::linspace(0.5, 9.0, 1200);
  const torch::Tensor side = torch::stack({turn.cos(), turn.sin()}, 1) * turn.unsqueeze(1) / 9.0;
  const torch::Tensor number = torch::ones({1200, 1});
  return torch::cat({torch::cat({side, 0 * number}, 1), torch::cat({-side, number}, 1)});
}

}  // namespace

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);  // KOLO: start
  torch::manual_seed(1);
  const torch::Tensor points = make_spirals();

  torch::nn::Sequential model(torch::nn::Linear(2, 48), torch::nn::Tanh(), torch::nn::Linear(48, 48), torch::nn::Tanh(),
                              torch::nn::Linear(48, 2));
  kolo::DistributedOptimizer optimizer(  // KOLO: wrap the optimizer
      torch::optim::Adam(model->parameters(), torch::optim::AdamOptions(0.005)), *model);
  kolo::broadcast_parameters(*model, /*root=*/0);  // KOLO: all ranks start from rank 0's model

  // KOLO: in place of torch::data::samplers::RandomSampler
  kolo::DataLoaderSampler sampler({.examples = points.size(0), .seed = 42});
  // KOLO: a batch is divided among the ranks, so that a step is that of one process.
  const int batch_size = std::max(1, 48 / kolo::size());
  auto loader = torch::data::make_data_loader(torch::data::datasets::TensorDataset(points).map(
                                                  torch::data::transforms::Stack<torch::data::TensorExample>()),
                                              sampler, torch::data::DataLoaderOptions(batch_size).workers(2));

  for (int epoch = 0; epoch < 40; ++epoch) {
    sampler.set_epoch(epoch);  // KOLO: another order
    double right = 0;
    double all = 0;
    for (const auto& batch : *loader) {
      const torch::Tensor x = batch.data.narrow(1, 0, 2);
      const torch::Tensor y = batch.data.select(1, 2).to(torch::kLong);
      optimizer.zero_grad();
      const torch::Tensor scores = model->forward(x);
      torch::nn::functional::cross_entropy(scores, y).backward();
      optimizer.step();
      right += (scores.argmax(1) == y).sum().item<double>();
      all += static_cast<double>(y.size(0));
    }
    right = kolo::average(right);  // KOLO: of all ranks
    all = kolo::average(all);
    if (kolo::rank() == 0 && epoch % 10 == 9)
      std::cout << "epoch " << epoch + 1 << ": " << 100 * right / all << " % are right\n";
  }
}
