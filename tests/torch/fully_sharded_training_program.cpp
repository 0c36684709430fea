// SPDX-License-Identifier: Apache-2.0
// Trainings of a fully sharded model: accumulated passes, clipping, scaled losses with a step that
// all ranks skip, units that compute in another dtype, evaluation and gathered state. Prints
// digests, which must be the same for tensors on CPUs and on GPUs, on every data path.
//
// Usage: fully_sharded_training_program cpu|cuda
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace nn = ::torch::nn;
using ::torch::Tensor;

struct BlockImpl : nn::Module {
  BlockImpl(int width, int inner)
      : up(register_module("up", nn::Linear(width, inner))),
        down(register_module("down", nn::Linear(inner, width))) {}
  Tensor forward(const Tensor& input) { return input + down(::torch::relu(up(input))); }
  nn::Linear up;
  nn::Linear down;
};
TORCH_MODULE(Block);

/// The blocks grow, so that units are gathered and reduced while others compute.
struct NetImpl : nn::Module {
  NetImpl()
      : input(register_module("input", nn::Linear(12, 41))),
        head(register_module("head", nn::Linear(41, 3))) {
    for (const int inner : {5, 83, 20001, 30000, 4})
      blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                       kolo::Sharded<Block>(41, inner)));
  }
  Tensor forward(const Tensor& data) {
    Tensor hidden = input(data);
    for (auto& block : blocks) hidden = block->forward(hidden);
    return head(hidden).to(::torch::kFloat);
  }
  nn::Linear input;
  nn::Linear head;
  std::vector<kolo::Sharded<Block>> blocks{};
};
TORCH_MODULE(Net);
using Model = kolo::Sharded<Net>;

unsigned long long digest_of(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const unsigned char*>(data);
  std::uint64_t hash = 14695981039346656037U;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ begin[i]) * 1099511628211U;
  return hash;
}

unsigned long long digest_of(const Tensor& tensor) {
  const Tensor host = tensor.detach().cpu().contiguous();
  return digest_of(host.data_ptr(), host.nbytes());
}

class Training {
 public:
  Training(const char* name, const ::torch::Device& device,
           const kolo::FullyShardedOptions& options)
      : name_(name),
        device_(device),
        dtype_(options.compute.value_or(::torch::kFloat)),
        model_(make_model(device)),
        sharded_(model_, options),
        optimizer_(sharded_.parameters(), 0.01) {}

  void step(int number) {
    sharded_.zero_grad();
    if (number % 2 == 1) {
      const auto local = sharded_.no_sync();
      pass(false);
    }
    pass(number == 2 && kolo::rank() == 0);
    scaler_.unscale(optimizer_);
    if (number == 3) kolo::clip_grad_norm(optimizer_, 0.1);
    const bool stepped = scaler_.step(optimizer_);
    scaler_.update();
    std::printf("%s, rank %d, step %d: %d %llx\n", name_, kolo::rank(), number, stepped ? 1 : 0,
                evaluate());
  }

  void print_state() {
    for (const std::string& state : {kolo::to_safetensors(sharded_.full_state(0)),
                                     kolo::to_safetensors(sharded_.full_state(optimizer_, 0))})
      std::printf("%s, rank %d, state: %llx\n", name_, kolo::rank(),
                  digest_of(state.data(), state.size()));
  }

 private:
  static Model make_model(const ::torch::Device& device) {
    ::torch::manual_seed(3);
    Model model;
    model->to(device);
    return model;
  }

  void pass(bool overflows) {
    const Tensor x = ::torch::randn({8, 12}).to(device_);
    const Tensor y = x.slice(1, 0, 3).argmax(1);
    Tensor loss = nn::functional::cross_entropy(model_->forward(x.to(dtype_)), y);
    if (overflows) loss = loss * std::numeric_limits<float>::infinity();
    scaler_.scale(loss).backward();
  }

  unsigned long long evaluate() {
    const ::torch::NoGradGuard no_grad;
    return digest_of(model_->forward(::torch::ones({2, 12}).to(device_).to(dtype_)));
  }

  const char* name_;
  ::torch::Device device_;
  ::torch::Dtype dtype_;
  Model model_;
  kolo::FullySharded sharded_;
  ::torch::optim::AdamW optimizer_;
  kolo::GradScaler scaler_{{.initial = 1024.0}};
};

void train(const char* name, const ::torch::Device& device,
           const kolo::FullyShardedOptions& options) {
  Training training(name, device, options);
  ::torch::manual_seed(100 + static_cast<std::uint64_t>(kolo::rank()));
  for (int number = 0; number < 5; ++number) training.step(number);
  training.print_state();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const kolo::Session session({.flight_recorder_dir = "off"});
    const bool on_gpu = argc > 1 && std::string_view(argv[1]) == "cuda";
    const ::torch::Device device =
        on_gpu
            ? ::torch::Device(::torch::kCUDA, static_cast<::torch::DeviceIndex>(kolo::local_rank()))
            : ::torch::Device(::torch::kCPU);
    train("as usual", device, {});
    train("nothing ahead", device, {.units_ahead = 0});
    train("kept", device, {.reshard_after_forward = false});
    train("in f64", device, {.compute = ::torch::kDouble});
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
