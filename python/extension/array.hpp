// SPDX-License-Identifier: Apache-2.0
// Arrays of Python as tensors of the C interface, in place.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "kolo/c/kolo.h"

namespace kolo_python {

namespace nb = nanobind;

enum class Access { read, write };

/// The memory of an object that supports DLPack or the buffer protocol. It stays in place while
/// this exists. Raises TypeError for other objects, and ValueError for memory that has gaps, is not
/// the host's, or must not be written.
class Array {
 public:
  Array(const nb::object& object, Access access);

  /// Valid as long as this array.
  [[nodiscard]] kolo_tensor tensor() const { return tensor_; }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    return {tensor_.shape, tensor_.shape + tensor_.dimensions};
  }
  [[nodiscard]] nb::dlpack::dtype dtype() const { return kept_.dtype(); }

 private:
  nb::ndarray<nb::ro> kept_;
  kolo_tensor tensor_{};
};

/// The arrays of a list, and their tensors.
class Arrays {
 public:
  Arrays() = default;
  Arrays(const nb::list& objects, Access access);

  void add(const nb::object& object, Access access) {
    arrays_.emplace_back(object, access);
    tensors_.push_back(arrays_.back().tensor());
  }
  [[nodiscard]] const kolo_tensor* tensors() const { return tensors_.data(); }
  [[nodiscard]] std::size_t size() const { return arrays_.size(); }
  [[nodiscard]] const Array& operator[](std::size_t i) const { return arrays_[i]; }

 private:
  std::vector<Array> arrays_;
  std::vector<kolo_tensor> tensors_;
};

}  // namespace kolo_python
