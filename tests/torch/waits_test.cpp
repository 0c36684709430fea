// SPDX-License-Identifier: Apache-2.0
// A deadlock in which ranks wait in backward(). Its session fails, so this is a program of its own.
#include "support.hpp"

#include <ATen/ThreadLocalState.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;

struct OnAnotherThread : ::torch::autograd::Function<OnAnotherThread> {
  static ::torch::Tensor forward(::torch::autograd::AutogradContext* /*context*/,
                                 const ::torch::Tensor& x) {
    return x.clone();
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   ::torch::autograd::variable_list gradients) {
    const auto done = std::make_shared<std::promise<void>>();
    thread = std::thread([done, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard guard(state);
      const at::AutoGradMode on(true);
      action();
      done->set_value();
      may_end.get_future().wait();
    });
    done->get_future().wait();
    return gradients;
  }
  static std::function<void()> action;
  static std::thread thread;
  static std::promise<void> may_end;
};
std::function<void()> OnAnotherThread::action;
std::thread OnAnotherThread::thread;
std::promise<void> OnAnotherThread::may_end;

// The ranks wait for each other: one for a value, the others in backward(), where a thread has
// submitted gradients and stays, as LibTorch's threads for GPUs do. That is reported at once, long
// before the warning about a late operation.
TEST(WaitsTest, ARankThatWaitsInBackwardCountsAsWaiting) {
  const Session session(SessionOptions{.stall_warning = std::chrono::hours(1),
                                       .stall_shutdown = std::chrono::seconds(4)});
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  ::torch::Tensor a = parameter({1.0});
  ::torch::Tensor b = parameter({1.0});
  const DistributedOptimizer first(optim::SGD({a}, 1.0), {{"a", a}});
  const DistributedOptimizer second(optim::SGD({b}, 1.0), {{"b", b}});
  if (rank() == 0) {
    testing::internal::CaptureStderr();
    EXPECT_THROW(static_cast<void>(average(1.0)), Stalled);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("likely deadlock"));
    return;
  }
  OnAnotherThread::action = [&] { backward(b, 1.0); };
  const ::torch::Tensor x = OnAnotherThread::apply(::torch::zeros({}, f64).requires_grad_());
  EXPECT_THROW((a.sum() + x).backward(), Stalled);
  OnAnotherThread::may_end.set_value();
  OnAnotherThread::thread.join();
}

}  // namespace
}  // namespace kolo::internal::testing_support
