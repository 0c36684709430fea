// SPDX-License-Identifier: Apache-2.0
// GPU tensors in kolo::torch, with test doubles for Kolo's CUDA interface and for LibTorch's view
// of GPUs: their number, streams and memory. The doubles compute nothing: tests queue work on a
// stream, which runs it with a delay.
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fake_cuda.hpp"
#include "fake_gpu_guard.hpp"
#include "fake_nccl.hpp"
#include "session/api/current.hpp"
#include "torch/gpu_stream.hpp"

namespace kolo::internal {
namespace {

using backend::FakeCuda;
using ::torch::Tensor;

std::shared_ptr<FakeCuda> cuda;                    // this rank's double, while a test runs
backend::gpu::StreamHandle user_stream = nullptr;  // LibTorch's current one, on every thread
std::atomic<int> allocated_between_streams{0};

c10::Device this_gpu() { return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(rank())}; }

/// An allocation of floats on a GPU, which lives as long as the tensor. `is_for_kolo`: Kolo's
/// stream writes it first.
Tensor make_tensor(at::IntArrayRef sizes, bool is_for_kolo = false) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  auto* const memory = is_for_kolo ? cuda->make_fresh_memory(bytes) : cuda->make_memory(bytes);
  const auto release = [](void* pointer) {
    cuda->free_memory(static_cast<std::byte*>(pointer), user_stream);
  };
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(memory, memory, release, this_gpu()));
  Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

template <typename Schema>
struct Empty;
template <typename Sizes, typename... Options>
struct Empty<Tensor(Sizes, Options...)> {
  static Tensor make(at::IntArrayRef sizes, Options... /*options*/) { return make_tensor(sizes); }
};

float* numbers_of(const Tensor& tensor) { return static_cast<float*>(tensor.data_ptr()); }

/// Fills the tensor on the user's stream, with a delay.
template <typename Value>
void fill_later(const Tensor& tensor, Value value) {
  cuda->enqueue(user_stream,
                [to = numbers_of(tensor), count = tensor.numel(), value, looks = 0]() mutable {
                  if (++looks < 20) return false;
                  for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<float>(value(k));
                  return true;
                });
}

template <typename Value>
Tensor filled(at::IntArrayRef sizes, Value value) {
  Tensor tensor = make_tensor(sizes);
  fill_later(tensor, value);
  return tensor;
}

}  // namespace

Tensor empty_between_streams(const std::vector<std::int64_t>& sizes,
                             const ::torch::TensorOptions& /*options*/, CUstream_st* user) {
  EXPECT_EQ(user, user_stream);
  EXPECT_NE(CudaStreamScope::current(), nullptr);
  EXPECT_NE(CudaStreamScope::current(), user_stream);
  ++allocated_between_streams;
  return make_tensor(sizes, /*is_for_kolo=*/true);
}

namespace {

/// For contiguous tensors.
Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef /*strides*/,
                     c10::optional<at::ScalarType> /*type*/, c10::optional<at::Layout> /*layout*/,
                     c10::optional<at::Device> /*device*/, c10::optional<bool> /*pinned*/) {
  return make_tensor(sizes);
}

Tensor& zero(Tensor& tensor) {
  fill_later(tensor, [](std::int64_t) { return 0.0; });
  return tensor;
}

C10_REGISTER_GUARD_IMPL(CUDA, FakeGpuGuard);
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("zero_", zero);
  library.impl("empty_strided", empty_strided);
  library.impl("empty.memory_format", Empty<at::_ops::empty_memory_format::schema>::make);
}

/// True: over NCCL, else through the host.
class TorchGpuTest : public testing::TestWithParam<bool> {
 protected:
  TorchGpuTest() {
    cuda = std::make_shared<FakeCuda>(std::vector{0, 1, 2, 3}, 11, FakeCuda::Clock::by_itself);
    std::shared_ptr<backend::FakeNccl> nccl;
    if (GetParam()) {
      world_ = backend::FakeNcclWorld::of_job();
      nccl = std::make_shared<backend::FakeNccl>(world_, cuda);
      nccl->notices_aborts = false;
    }
    session::start_session({.options = {.flight_recorder_dir = "off"},
                            .gpu_libraries = {cuda, [nccl] { return nccl; }}});
    cuda->use_device(rank());
    user_stream = cuda->create_stream();
    kolo::detail::set_framework_stream([](int) { return user_stream; });
    allocated_between_streams = 0;
  }
  ~TorchGpuTest() override {
    cuda->destroy_stream(std::exchange(user_stream, nullptr));
    session::end_session(true, "");
    for (const std::string& complaint : cuda->complaints()) ADD_FAILURE() << complaint;
    if (world_ != nullptr)
      for (const std::string& complaint : world_->complaints()) ADD_FAILURE() << complaint;
    cuda.reset();
  }

 private:
  std::shared_ptr<backend::FakeNcclWorld> world_{};
};
INSTANTIATE_TEST_SUITE_P(Paths, TorchGpuTest, testing::Bool());

double sum_of_ranks() { return size() * (size() - 1) / 2.0; }

template <typename Value>
void expect_numbers(const Tensor& tensor, Value wanted) {
  ASSERT_TRUE(tensor.is_cuda());
  cuda->synchronize(user_stream);
  for (std::int64_t k = 0; k < tensor.numel(); ++k)
    ASSERT_FLOAT_EQ(numbers_of(tensor)[k], static_cast<float>(wanted(k))) << k;
}

TEST_P(TorchGpuTest, AllreducesWaitForLibTorchsStream) {
  const auto own = [](std::int64_t k) { return rank() + static_cast<double>(k % 7); };
  const auto sum = [](std::int64_t k) {
    return sum_of_ranks() + size() * static_cast<double>(k % 7);
  };
  Tensor tensor = filled({30, 20}, own);
  allreduce_(tensor, {.name = "in place", .op = ReduceOp::sum});
  expect_numbers(tensor, sum);
  expect_numbers(allreduce(filled({900}, own), {.name = "out of place", .op = ReduceOp::sum}), sum);
  expect_numbers(allreduce_async_(filled({900}, own), {.name = "async", .op = ReduceOp::sum}).get(),
                 sum);
  std::vector<Tensor> group{filled({5}, own), filled({11, 2}, own)};
  grouped_allreduce_(group, {.name = "group", .op = ReduceOp::sum});
  for (const Tensor& member : group) expect_numbers(member, sum);
}

TEST_P(TorchGpuTest, BroadcastsAndReducescatters) {
  const auto own = [](std::int64_t k) { return 100 * rank() + static_cast<double>(k); };
  Tensor tensor = filled({70}, own);
  broadcast_(tensor, size() - 1, {.name = "b"});
  expect_numbers(tensor,
                 [](std::int64_t k) { return 100 * (size() - 1) + static_cast<double>(k); });
  const Tensor rows =
      reducescatter(filled({2 * size(), 3}, own), {.name = "r", .op = ReduceOp::sum});
  expect_numbers(rows, [](std::int64_t k) {
    return 100 * sum_of_ranks() + size() * static_cast<double>(6 * rank() + k);
  });
}

TEST_P(TorchGpuTest, RowsArriveInMemoryThatBothStreamsKnow) {
  const auto own = [](std::int64_t) { return rank(); };
  const Tensor all = allgather(filled({rank() + 1, 2}, own), {.name = "g"});
  ASSERT_EQ(all.size(0), size() * (size() + 1) / 2);
  cuda->synchronize(user_stream);
  std::int64_t row = 0;
  for (int from = 0; from < size(); ++from)
    for (int i = 0; i <= from; ++i, ++row) EXPECT_EQ(numbers_of(all)[2 * row + 1], from);
  const Received received = alltoall(filled({2 * size(), 1}, own), {.name = "a"});
  expect_numbers(received.output, [](std::int64_t k) { return static_cast<double>(k / 2); });
  EXPECT_EQ(allocated_between_streams, 2);
}

/// No stream waits for the results yet.
void wait_for_launch(const Future<Tensor>& future) {
  const kolo::detail::FutureBase* const pending = &future;
  kolo::detail::FutureBase::wait_for_any({&pending, 1});
}

/// The future has the only reference to the tensor that is sent, until the streams wait for the
/// GPU.
TEST_P(TorchGpuTest, MemoryOfSentTensorsIsReusedOnlyAfterTheOperation) {
  for (int i = 0; i < 10; ++i) {
    Future<Tensor> future =
        allgather_async(filled({500}, [](std::int64_t) { return rank(); }), {.name = "g"});
    wait_for_launch(future);
    const Tensor other = filled({500}, [](std::int64_t) { return -1.0; });
    const Tensor all = future.get();
    expect_numbers(all, [](std::int64_t k) { return static_cast<double>(k / 500); });
  }
}

/// LibTorch hands memory out again in the order of the stream on which it was allocated.
TEST_P(TorchGpuTest, TheStreamOfTheSubmissionWaitsToo) {
  const backend::gpu::StreamHandle first = user_stream;
  const backend::gpu::StreamHandle second = cuda->create_stream();
  for (int i = 0; i < 10; ++i) {
    Tensor sent = filled({500}, [](std::int64_t) { return rank(); });
    Future<Tensor> future = allgather_async(sent, {.name = "g"});
    wait_for_launch(future);
    user_stream = second;
    const Tensor all = future.get();
    user_stream = first;
    sent.reset();
    user_stream = second;
    expect_numbers(all, [](std::int64_t k) { return static_cast<double>(k / 500); });
    cuda->synchronize(second);
    user_stream = first;
  }
  cuda->destroy_stream(second);
}

/// Runs a function in a backward pass.
struct InBackward : ::torch::autograd::Function<InBackward> {
  static Tensor forward(::torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x.clone();
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   ::torch::autograd::variable_list gradients) {
    action();
    return gradients;
  }
  static std::function<void()> action;
};
std::function<void()> InBackward::action;

/// Does what backward does with a parameter on its GPU: LibTorch's engine, built without GPU
/// support, cannot be convinced that there are GPUs.
void accumulate(const Tensor& parameter, double factor) {
  const auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter);
  ::torch::autograd::variable_list gradients{filled(parameter.sizes(), [=](std::int64_t k) {
    return factor * (rank() + static_cast<double>(k));
  })};
  for (const auto& hook : accumulator->pre_hooks()) gradients = (*hook)(gradients);
  parameter.mutable_grad() = std::move(gradients.front());
  for (const auto& hook : accumulator->post_hooks()) static_cast<void>((*hook)({}, {}));
}

TEST_P(TorchGpuTest, GradientsAreFinalAfterBackward) {
  const Tensor first = make_tensor({40}).set_requires_grad(true);
  const Tensor second = make_tensor({3000}).set_requires_grad(true);
  DistributedOptimizer optimizer(::torch::optim::SGD({first, second}, 0.1));
  const auto mean = [](std::int64_t k) { return sum_of_ranks() / size() + static_cast<double>(k); };
  for (int step = 0; step < 3; ++step) {
    InBackward::action = [&] {
      accumulate(second, 2.0);
      accumulate(first, 1.0);
    };
    InBackward::apply(at::ones({1}).requires_grad_()).sum().backward();
    expect_numbers(first.grad(), mean);
    expect_numbers(second.grad(), [&](std::int64_t k) { return 2.0 * mean(k); });
    first.mutable_grad().reset();
    second.mutable_grad().reset();
    optimizer.zero_grad();
  }
}

/// Runs `action` as a backward pass.
template <typename Action>
void run_backward(Action action) {
  InBackward::action = action;
  InBackward::apply(at::ones({1}).requires_grad_()).sum().backward();
}

/// A model with 40 MB of gradients, and its passes.
class ManyGradients : public TorchGpuTest {
 protected:
  static constexpr std::int64_t elements = 500'000;

  void pass() {
    run_backward([this] {
      for (const Tensor& parameter : parameters_) accumulate(parameter, 1.0);
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
      for (const Tensor& parameter : parameters_) accumulate(parameter, 1.0);
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
        accumulate(parameters_[i], 1.0);
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
      for (std::size_t i = 0; i < computed; ++i) accumulate(parameters_[i], 1.0);
    });
  }
}

/// The gradients that are held when backward throws are reduced on the other ranks, which wait.
TEST_P(ManyGradients, AreNotLostWhenBackwardThrows) {
  for (const int thrower : {0, size() - 1}) {
    expect_failed_pass<std::runtime_error>(rank() == thrower, [&] {
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (rank() == thrower && i == 10) throw std::runtime_error("on purpose");
        accumulate(parameters_[i], 1.0);
      }
    });
  }
}

}  // namespace
}  // namespace kolo::internal
