// SPDX-License-Identifier: Apache-2.0
// A communication hook with the result of an allreduce, which throws where a test requests it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"

namespace kolo::internal {

/// Sums f64 copies of f32 and f64 gradients in two halves, one after the other.
class HalvesHook : public CommunicationHook {
 public:
  /// The place where the hook throws.
  enum class Place : std::uint8_t { nowhere, reduce, first, second, last };

  Place throws = Place::nowhere;
  std::string throws_for{};  // bucket for which it throws; empty: all
  std::multiset<std::string> reduced{};

  [[nodiscard]] std::string description() const override { return "halves"; }
  [[nodiscard]] bool handles(std::span<const TensorView> bucket) const noexcept override {
    return std::ranges::all_of(bucket, [](const TensorView& view) {
      return view.dtype() == DType::f32 || view.dtype() == DType::f64;
    });
  }

  HookStages reduce(GradientBucket bucket) override {
    maybe(Place::reduce, bucket);
    auto values = std::make_shared<std::vector<double>>();
    const auto sum = [=, this](Place place, const std::string& name) {
      maybe(place, bucket);
      const std::size_t middle = values->size() / 2;
      const std::span<double> all(*values);
      const std::span<double> half =
          place == Place::first ? all.subspan(0, middle) : all.subspan(middle);
      return allreduce_async(
          half, {.name = name, .op = ReduceOp::sum, .process_set = bucket.process_set});
    };
    return HookStages()
        .then([=] { read(bucket, *values); })
        .then([=](const std::string& name) { return sum(Place::first, name); })
        .then([=](const std::string& name) { return sum(Place::second, name); })
        .then([=, this] {
          maybe(Place::last, bucket);
          write(*values, bucket);
          reduced.insert(bucket.name);
        });
  }

 private:
  void maybe(Place place, const GradientBucket& bucket) const {
    if (throws == place && (throws_for.empty() || throws_for == bucket.name))
      throw std::runtime_error("the planted error");
  }
  template <typename T>
  static std::span<T> elements_of(const TensorView& view) {
    return {static_cast<T*>(view.data()), static_cast<std::size_t>(view.elements())};
  }
  static void read(const GradientBucket& bucket, std::vector<double>& values) {
    const auto append = [&](auto elements) {
      values.insert(values.end(), elements.begin(), elements.end());
    };
    for (const TensorView& view : bucket.tensors) {
      if (view.dtype() == DType::f32) append(elements_of<float>(view));
      if (view.dtype() == DType::f64) append(elements_of<double>(view));
    }
  }
  static void write(const std::vector<double>& values, const GradientBucket& bucket) {
    // Applied once, so that sums of integers stay exact.
    const double scale = bucket.prescale * bucket.postscale;
    auto from = values.begin();
    for (const TensorView& view : bucket.tensors) {
      if (view.dtype() == DType::f32)
        for (float& element : elements_of<float>(view))
          element = static_cast<float>(scale * *from++);
      if (view.dtype() == DType::f64)
        for (double& element : elements_of<double>(view)) element = scale * *from++;
    }
  }
};

}  // namespace kolo::internal
