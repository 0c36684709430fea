// Sets of gradients, as a model's parameters make them.
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

/// In the order of the model's layers; backward makes them in reverse.
using Gradients = std::vector<Gradient>;

[[nodiscard]] std::int64_t count_elements(const Gradients& gradients);

// The parameters of the common models, with the names that PyTorch's have.
[[nodiscard]] Gradients resnet50();
[[nodiscard]] Gradients resnet101();
[[nodiscard]] Gradients vgg16();
[[nodiscard]] Gradients bert_base();

/// One gradient per line: a name, then a shape (`64x3x7x7`, `64,3,7,7` or `[64, 3, 7, 7]`) or a
/// number of elements. Empty lines and what follows a `#` are skipped. Throws UsageError, which
/// names `origin` and the line.
[[nodiscard]] Gradients read_gradients(std::istream& lines, const std::string& origin);

/// As `read_gradients` reads them.
[[nodiscard]] std::string list_gradients(const Gradients& gradients);

/// `resnet50`, `resnet101`, `vgg16`, `bert-base`; `1000x1KB` for that many of so many bytes each;
/// or the path of a file for `read_gradients`. Throws UsageError.
[[nodiscard]] Gradients find_gradients(const std::string& which, kolo::DType dtype);

}  // namespace perf
