// SPDX-License-Identifier: Apache-2.0
// Backward passes whose gradients are on GPUs.
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/ops/ones.h>
#include <torch/optim/sgd.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gpu_passes.hpp"

namespace kolo::internal {
namespace {

using GpuPassTest = TorchGpuTest;
INSTANTIATE_TEST_SUITE_P(Paths, GpuPassTest, testing::Bool());

TEST_P(GpuPassTest, GradientsAreFinalAfterBackward) {
  const Tensor first = make_tensor({40}).set_requires_grad(true);
  const Tensor second = make_tensor({3000}).set_requires_grad(true);
  DistributedOptimizer optimizer(::torch::optim::SGD({first, second}, 0.1));
  const auto mean = [](std::int64_t k) { return sum_of_ranks() / size() + static_cast<double>(k); };
  for (int step = 0; step < 3; ++step) {
    InBackward::action = [&] {
      accumulate(second, [] { return 2.0; });
      accumulate(first, once);
    };
    InBackward::apply(at::ones({1}).requires_grad_()).sum().backward();
    expect_numbers(first.grad(), mean);
    expect_numbers(second.grad(), [&](std::int64_t k) { return 2.0 * mean(k); });
    first.mutable_grad().reset();
    second.mutable_grad().reset();
    optimizer.zero_grad();
  }
}

/// The passes of two threads end in another order on every second rank, and both must end.
TEST_P(GpuPassTest, TwoThreadsMayBeInPassesAtOnce) {
  const std::vector<Tensor> parameters{make_tensor({3000}).set_requires_grad(true),
                                       make_tensor({3000}).set_requires_grad(true)};
  DistributedOptimizer first(::torch::optim::SGD({parameters[0]}, 0.1));
  DistributedOptimizer second(::torch::optim::SGD({parameters[1]}, 0.1));
  for (int step = 0; step < 3; ++step) {
    std::promise<void> computed;
    const std::size_t early = rank() % 2 == 0 ? 0 : 1;
    std::thread other([&] {
      cuda->use_device(rank());
      run_backward([&] {
        accumulate(parameters[early], once);
        computed.set_value();
      });
    });
    computed.get_future().wait();
    run_backward([&] { accumulate(parameters[1 - early], once); });
    other.join();
    for (const Tensor& parameter : parameters) {
      expect_numbers(parameter.grad(), [](std::int64_t k) {
        return sum_of_ranks() / size() + static_cast<double>(k);
      });
      parameter.mutable_grad().reset();
    }
    first.zero_grad();
    second.zero_grad();
  }
}

/// A model with 40 MB of gradients, and its passes.
class ManyGradients : public TorchGpuTest {
 protected:
  static constexpr std::int64_t elements = 500'000;

  void pass() {
    run_backward([this] {
      for (const Tensor& parameter : parameters_) accumulate(parameter, once);
    });
  }
  void drop() {
    for (const Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    optimizer_->zero_grad();
  }
  void expect_means() {
    for (const Tensor& parameter : parameters_) {
      cuda->synchronize(user_stream);
      for (std::int64_t k = 0; k < elements; k += 79'199)
        ASSERT_FLOAT_EQ(numbers_of(parameter.grad())[k],
                        static_cast<float>(sum_of_ranks() / size() + static_cast<double>(k)));
    }
  }

  /// A pass that fails on one rank, the culprit, with an OwnError fails on all, and the next pass
  /// is right.
  template <typename OwnError, typename Action>
  void expect_failed_pass(bool is_culprit, Action action) {
    if (is_culprit)
      EXPECT_THROW(run_backward(action), OwnError);
    else
      EXPECT_THROW(run_backward(action), BackwardFailed);
    drop();
    pass();
    expect_means();
    drop();
  }

  std::vector<Tensor> parameters_ = [] {
    std::vector<Tensor> made;
    for (int i = 0; i < 20; ++i) made.push_back(make_tensor({elements}).set_requires_grad(true));
    return made;
  }();
  std::unique_ptr<DistributedOptimizer<::torch::optim::SGD>> optimizer_ =
      std::make_unique<DistributedOptimizer<::torch::optim::SGD>>(
          ::torch::optim::SGD(parameters_, 0.1),
          DistributedOptimizerOptions{.compare = {.at_start = false}});
};
INSTANTIATE_TEST_SUITE_P(OverNccl, ManyGradients, testing::Values(true));

/// 40 MB are submitted in three bursts; a further batch is the pass's summary.
TEST_P(ManyGradients, TravelInFewBatches) {
  for (int step = 0; step < 4; ++step) {
    const auto count = [](const char* call) { return cuda->faults.made_by_this_thread(call); };
    const int marks = count("cudaEventRecord");
    const int events = count("cudaEventCreateWithFlags");
    const int waits = count("cudaStreamWaitEvent");
    barrier();
    const std::uint64_t batches = statistics().batches;
    run_backward([&] {
      for (const Tensor& parameter : parameters_) accumulate(parameter, once);
      EXPECT_EQ(count("cudaEventRecord") - marks, 2) << "the GPU reduces while backward computes";
    });
    EXPECT_LE(statistics().batches - batches, 4);
    EXPECT_LE(count("cudaEventRecord") - marks, 6) << "of batches, if this thread drives";
    EXPECT_LE(count("cudaEventCreateWithFlags") - events, step == 0 ? 6 : 3);
    EXPECT_LE(count("cudaStreamWaitEvent") - waits, 6);
    expect_means();
    drop();
  }
}

/// Autograd's nodes may run on different streams. A mark covers only the work of its own.
TEST_P(ManyGradients, OfTwoStreamsAreMarkedOnBoth) {
  const backend::gpu::StreamHandle first = user_stream;
  const backend::gpu::StreamHandle second = cuda->create_stream();
  for (int step = 0; step < 3; ++step) {
    run_backward([&] {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        user_stream = i % 6 < 4 ? first : second;
        // The second stream is late, so that a mark on the first one does not happen to cover it.
        if (i % 6 == 4) cuda->enqueue(second, [looks = 0]() mutable { return ++looks > 1000; });
        accumulate(parameters_[i], once);
      }
      user_stream = first;
    });
    expect_means();
    drop();
  }
  cuda->synchronize(second);
  cuda->destroy_stream(second);
}

/// A GPU that refuses a mark fails the pass on all ranks, and the next pass is right: in the middle
/// of backward, when enough gradients are held, and at its end.
TEST_P(ManyGradients, ThatCannotBeMarkedFailThePass) {
  for (const std::size_t computed : {parameters_.size(), std::size_t{5}}) {
    kolo::synchronize();
    barrier();
    const bool is_refused = rank() == size() - 1;
    expect_failed_pass<BackendError>(is_refused, [&] {
      if (is_refused) cuda->faults.plan("cudaEventRecord");
      for (std::size_t i = 0; i < computed; ++i) accumulate(parameters_[i], once);
    });
  }
}

/// The gradients that are held when backward throws are reduced on the other ranks, which wait.
TEST_P(ManyGradients, AreNotLostWhenBackwardThrows) {
  for (const int thrower : {0, size() - 1}) {
    expect_failed_pass<std::runtime_error>(rank() == thrower, [&] {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (rank() == thrower && i == 10) throw std::runtime_error("on purpose");
        accumulate(parameters_[i], once);
      }
    });
  }
}

}  // namespace
}  // namespace kolo::internal
