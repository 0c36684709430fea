// SPDX-License-Identifier: Apache-2.0
// Training steps that are captured into CUDA graphs.
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu_passes.hpp"

namespace kolo::internal {

/// The doubles compute nothing, so this optimizer changes nothing.
class Nothing : public ::torch::optim::SGD {
 public:
  explicit Nothing(std::vector<Tensor> parameters) : SGD(std::move(parameters), 0.1) {}
  Tensor step(LossClosure /*closure*/ = nullptr) override { return {}; }
};

}  // namespace kolo::internal

template <>
inline constexpr bool kolo::is_elementwise_optimizer<kolo::internal::Nothing> = true;

namespace kolo::internal {
namespace {

double mean_at(std::int64_t k) { return sum_of_ranks() / size() + static_cast<double>(k); }

class GpuCaptureTest : public TorchGpuTest {
 protected:
  static std::shared_ptr<const backend::FakeGraph> capture(const std::function<void()>& work) {
    cuda->begin_capture(user_stream, backend::gpu::CaptureMode::global);
    work();
    return cuda->end_capture(user_stream);
  }
  static void expect_gradient(const Tensor& parameter, double factor) {
    cuda->synchronize(user_stream);
    for (std::int64_t k = 0; k < parameter.numel(); k += 13)
      ASSERT_FLOAT_EQ(numbers_of(parameter.grad())[k], static_cast<float>(factor * mean_at(k)));
  }
  template <typename Optimizer>
  static void drop(const Tensor& parameter, Optimizer& optimizer) {
    cuda->synchronize(user_stream);
    parameter.mutable_grad().reset();
    optimizer.zero_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(OverNccl, GpuCaptureTest, testing::Values(true));

/// A captured pass, whose gradients depend on a number that changes between replays.
TEST_P(GpuCaptureTest, ACapturedPassIsReplayed) {
  const Tensor first = make_tensor({40}).set_requires_grad(true);
  const Tensor second = make_tensor({5'000'000}).set_requires_grad(true);
  DistributedOptimizer optimizer(::torch::optim::SGD({first, second}, 0.1));
  double scale = 1.0;
  const auto pass = [&] {
    run_backward([&] {
      accumulate(second, [&scale] { return 2.0 * scale; });
      accumulate(first, [&scale] { return scale; });
    });
  };
  const auto expect_means = [&] {
    expect_gradient(first, scale);
    expect_gradient(second, 2.0 * scale);
  };
  const auto drop_all = [&] {
    drop(first, optimizer);
    drop(second, optimizer);
  };
  {
    const GraphWarmUp warm_up;
    for (int step = 0; step < 2; ++step) {
      pass();
      expect_means();
      drop_all();
    }
  }
  const auto graph = capture(pass);
  for (int replay = 1; replay < 5; ++replay) {
    scale = replay;
    cuda->launch_graph(*graph, user_stream);
    expect_means();
  }
  drop_all();
  scale = 7;
  pass();  // on the common communicator again
  expect_means();
}

/// Two models in one graph, whose steps take turns in its replays and outside of it.
TEST_P(GpuCaptureTest, TwoOptimizersShareAGraph) {
  const Tensor first = make_tensor({4000}).set_requires_grad(true);
  const Tensor second = make_tensor({70}).set_requires_grad(true);
  DistributedOptimizer one(::torch::optim::SGD({first}, 0.1));
  DistributedOptimizer other(::torch::optim::SGD({second}, 0.1));
  double scale = 1.0;
  const auto passes = [&] {
    run_backward([&] { accumulate(first, [&scale] { return scale; }); });
    run_backward([&] { accumulate(second, [&scale] { return 3.0 * scale; }); });
  };
  const auto expect_means = [&] {
    expect_gradient(first, scale);
    expect_gradient(second, 3.0 * scale);
  };
  const auto drop_both = [&] {
    drop(first, one);
    drop(second, other);
  };
  {
    const GraphWarmUp warm_up;
    passes();
    expect_means();
    drop_both();
  }
  const auto graph = capture(passes);
  for (int replay = 2; replay < 5; ++replay) {
    scale = replay;
    cuda->launch_graph(*graph, user_stream);
    expect_means();
  }
  drop_both();
  passes();
  expect_means();
}

/// The gather of parameters is refused, which leaves the session usable.
TEST_P(GpuCaptureTest, AShardedStepIsRefused) {
  const Tensor parameter = make_tensor({40}).set_requires_grad(true);
  ShardedOptimizer optimizer(Nothing({parameter}));
  const auto step = [&] {
    run_backward([&] { accumulate(parameter, once); });
    optimizer.step();
  };
  {
    const GraphWarmUp warm_up;
    step();
    drop(parameter, optimizer);
  }
  std::string why;
  static_cast<void>(capture([&] {
    try {
      step();
    } catch (const InvalidArgument& error) {
      why = error.what();
    }
  }));
  EXPECT_THAT(why, testing::HasSubstr("captured into a CUDA graph"));
  EXPECT_THAT(why, testing::HasSubstr("allgathers cannot"));
  for (int i = 0; i < 3; ++i) {
    drop(parameter, optimizer);
    step();
  }
}

}  // namespace
}  // namespace kolo::internal
