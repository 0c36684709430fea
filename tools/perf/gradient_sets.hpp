// SPDX-License-Identifier: Apache-2.0
// Sets of gradients with the shapes of a model's parameters.
#pragma once

#include <cstdint>
#include <istream>
#include <kolo/tensor.hpp>
#include <string>
#include <vector>

namespace perf {

struct Gradient {
  std::string name;
  kolo::Shape shape;
};

/// Gradients in the order of the model's layers; backward computes them in reverse.
using Gradients = std::vector<Gradient>;

[[nodiscard]] std::int64_t count_elements(const Gradients& gradients);

// The parameters of common models, named as in PyTorch.
[[nodiscard]] Gradients resnet50();
[[nodiscard]] Gradients resnet101();
[[nodiscard]] Gradients vgg16();
[[nodiscard]] Gradients bert_base();

/// One gradient per line: a name, then a shape (`64x3x7x7`, `64,3,7,7` or `[64, 3, 7, 7]`) or a
/// number of elements. Empty lines are skipped; `#` starts a comment. Throws UsageError, which
/// names `origin` and the line.
[[nodiscard]] Gradients read_gradients(std::istream& lines, const std::string& origin);

/// Formats a set so that `read_gradients` can read it.
[[nodiscard]] std::string list_gradients(const Gradients& gradients);

/// `which` is `resnet50`, `resnet101`, `vgg16`, `bert-base`, a count and a size such as `1000x1KB`,
/// or the path of a file for `read_gradients`. Throws UsageError.
[[nodiscard]] Gradients find_gradients(const std::string& which, kolo::DType dtype);

}  // namespace perf
