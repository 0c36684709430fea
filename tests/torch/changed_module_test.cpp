// SPDX-License-Identifier: Apache-2.0
// DistributedGradients of a module that changes: layers that are replaced, added, removed, frozen
// or unfrozen.
#include "support.hpp"

#include <memory>
#include <string>
#include <utility>

namespace kolo::internal::testing_support {
namespace {

using ::torch::Tensor;

struct ChangingNet : ::torch::nn::Module {
  ChangingNet() {
    for (const auto& [name, length] : {std::pair("body", 2), std::pair("head", 3)})
      put(name, length);
  }
  /// A layer of the program's own, or one that replaces an earlier one.
  void put(const std::string& name, std::int64_t length) {
    auto layer = std::make_shared<::torch::nn::Module>();
    layer->register_parameter("w", ::torch::ones({length}, f64));
    if (named_children().contains(name)) {
      replace_module(name, layer);
    } else {
      register_module(name, layer);
    }
  }
  void freeze(bool frozen, const std::string& name) {
    for (Tensor& w : named_children()[name]->parameters()) w.set_requires_grad(!frozen);
  }
  /// The gradient of each element is rank + 1.
  void backward() {
    Tensor sum = ::torch::zeros({}, f64);
    for (const Tensor& w : parameters())
      if (w.requires_grad()) sum = sum + w.sum();
    (sum * (rank() + 1)).backward();
  }
  void expect_reduced(double factor = 1.0) {
    for (const auto& item : named_parameters()) {
      SCOPED_TRACE(item.key());
      if (item->requires_grad())
        expect_close(item->grad(), ::torch::full_like(item->detach(), factor * mean_rank()));
    }
    for (Tensor& w : parameters()) w.mutable_grad().reset();
  }
};

class ChangedModuleTest : public TorchTest {
 protected:
  std::shared_ptr<ChangingNet> net_ = std::make_shared<ChangingNet>();
  void expect_passes() {
    for (int pass = 0; pass < 2; ++pass) {
      net_->backward();
      net_->expect_reduced();
    }
  }
};

TEST_F(ChangedModuleTest, ReplacedLayersAreReduced) {
  for (const DistributedOptimizerOptions& options :
       std::vector<DistributedOptimizerOptions>{{}, {.num_groups = 1}}) {
    net_ = std::make_shared<ChangingNet>();
    const DistributedGradients gradients(*net_, options);
    net_->put("head", 3);
    expect_passes();
    net_->put("head", 5);
    net_->put("body", 7);
    expect_passes();
  }
}

TEST_F(ChangedModuleTest, AddedAndRemovedLayersAreFollowed) {
  DistributedGradients gradients(*net_);
  net_->put("adapter", 4);
  expect_passes();
  net_->unregister_module("body");
  expect_passes();
  net_->put("body", 2);
  net_->put("adapter", 2);
  {
    const NoSync local = gradients.no_sync();
    net_->backward();
  }
  net_->backward();
  net_->expect_reduced(2.0);
  {
    const NoSync local = gradients.no_sync();
    net_->backward();
  }
  net_->put("late", 3);
  gradients.synchronize();
  net_->unregister_module("late");
  net_->expect_reduced();
  gradients.rejoin();
  expect_passes();
}

TEST_F(ChangedModuleTest, ReplacedAndRemovedLayersAreFreed) {
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<WeakTensor> former;
  const DistributedGradients gradients(*net_, {.backward_passes_per_step = 2});
  for (int i = 0; i < 20; ++i) {
    const std::string name = i % 2 == 0 ? "head" : "adapter" + std::to_string(i);
    net_->put(name, 4);
    former.emplace_back(net_->named_children()[name]->parameters()[0].getIntrusivePtr());
    net_->backward();  // reduces nothing
    const Tensor kept = rank() == 0 ? net_->named_children()[name]->parameters()[0] : Tensor();
    if (i % 2 == 1) net_->unregister_module(name);
    if (i % 2 == 0) net_->put(name, 4);
    net_->backward();
    for (Tensor& w : net_->parameters()) w.mutable_grad().reset();
  }
  for (int pass = 0; pass < 2; ++pass) net_->backward();
  net_->expect_reduced(2.0);
  net_->backward();
  for (const WeakTensor& tensor : former) EXPECT_TRUE(tensor.expired());
}

TEST_F(ChangedModuleTest, AModuleThatWasWhollyFrozenIsReducedOnceItIsNot) {
  for (const char* layer : {"body", "head"}) net_->freeze(true, layer);
  const DistributedGradients gradients(*net_);
  net_->freeze(false, "head");
  expect_passes();
  net_->freeze(false, "body");
  net_->freeze(true, "head");
  expect_passes();
}

TEST_F(ChangedModuleTest, ALayerThatOneRankUnfreezesIsNamedOnTheOthers) {
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  net_->freeze(true, "head");
  const DistributedGradients gradients(*net_);
  if (rank() == 0) {
    net_->freeze(false, "head");
    net_->backward();
  } else {
    EXPECT_EQ(error_of<InvalidArgument>([&] { net_->backward(); }).tensor(), "head.w");
  }
}

// The ranks have different operations then. All get an error that names a layer, and none waits.
TEST_F(ChangedModuleTest, LayersThatOnlySomeRanksChangeAreNamedOnAll) {
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  const auto change = [&](int kind) {
    if (kind == 0 && rank() == 0) net_->put("head", 3);
    if (kind == 1 && rank() == 0) net_->put("head", 9);
    if (kind == 2 && rank() + 1 == size()) net_->put("adapter", 4);
    if (kind == 3) net_->put(rank() == 0 ? "head" : "body", 2);
  };
  for (int kind = 0; kind < 4; ++kind) {
    SCOPED_TRACE(kind);
    net_ = std::make_shared<ChangingNet>();
    const DistributedGradients gradients(*net_);
    expect_passes();
    change(kind);
    const auto error = error_of<Mismatch>([&] { net_->backward(); });
    EXPECT_THAT(error.what(), testing::HasSubstr(kind == 2   ? "'adapter.w' is on rank"
                                                 : kind == 3 ? "'body.w(2)' is on rank"
                                                             : "'head.w(2)' is on rank 0 only"));
    expect_close(allreduce(values({1.0}), {.op = ReduceOp::sum}), values({1.0 * size()}));
  }
}

TEST_F(ChangedModuleTest, AModuleMayEndBeforeItsGradients) {
  const DistributedGradients gradients(*net_);
  Tensor kept = net_->parameters().front();
  net_.reset();
  backward(kept, rank() + 1);
  expect_close(kept.grad(), values({mean_rank(), mean_rank()}));
}

}  // namespace
}  // namespace kolo::internal::testing_support
