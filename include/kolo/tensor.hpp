// SPDX-License-Identifier: Apache-2.0
// Views of the memory that collectives read and write: pointer, shape, dtype and device.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "kolo/types.hpp"

namespace kolo {

namespace detail {

template <typename T>
consteval DType dtype_of() {
  if constexpr (std::same_as<T, bool>) {
    return DType::boolean;
  } else if constexpr (std::same_as<T, std::byte>) {
    return DType::u8;
  } else if constexpr (std::floating_point<T>) {
    return sizeof(T) == 4 ? DType::f32 : DType::f64;
  } else if constexpr (std::is_signed_v<T> && !std::same_as<T, char>) {
    return sizeof(T) == 1   ? DType::i8
           : sizeof(T) == 2 ? DType::i16
           : sizeof(T) == 4 ? DType::i32
                            : DType::i64;
  } else {
    return sizeof(T) == 1   ? DType::u8
           : sizeof(T) == 2 ? DType::u16
           : sizeof(T) == 4 ? DType::u32
                            : DType::u64;
  }
}

}  // namespace detail

/// A type that has a DType: integers of up to 64 bits, `char` and `std::byte` (both u8), `bool`,
/// `float` and `double`.
template <typename T>
concept Element = std::same_as<T, std::byte> || std::same_as<T, bool> ||
                  (std::integral<T> && sizeof(T) <= 8 && !std::same_as<T, wchar_t>) ||
                  std::same_as<T, float> || std::same_as<T, double>;

/// The DType of a C++ type, e.g. `dtype_of<float> == DType::f32`.
template <Element T>
inline constexpr DType dtype_of = detail::dtype_of<T>();

/// A contiguous, sized range of writable elements that outlives the call: an lvalue or a span. A
/// `std::string` is text, not a tensor.
template <typename R>
concept TensorRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::ranges::borrowed_range<R> && !std::same_as<std::remove_cvref_t<R>, std::string> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>> &&
    Element<std::ranges::range_value_t<R>>;

/// A TensorRange whose elements may be const.
template <typename R>
concept ConstTensorRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    std::ranges::borrowed_range<R> && !std::same_as<std::remove_cvref_t<R>, std::string> &&
    Element<std::ranges::range_value_t<R>>;

/// A range that a synchronous call only reads. It may be a temporary.
template <typename R>
concept ReadableRange = ConstTensorRange < std::remove_reference_t<R>
& > ;

/// Memory that a collective reads and writes: row-major, without gaps. A view does not own the
/// memory, which must stay alive and unused by others until the operation is done. Copying a view
/// copies its shape, which allocates memory if there are more than four dimensions.
class TensorView {
 public:
  /// `data` holds `shape.elements()` elements.
  template <Element T>
  TensorView(T* data, Shape shape, Device device = {})
      : data_(data), shape_(std::move(shape)), dtype_(dtype_of<T>), device_(device) {}

  /// A view with an explicit dtype: for f16 and bf16, or a dtype known only at run time.
  TensorView(void* data, Shape shape, DType dtype, Device device = {})
      : data_(data), shape_(std::move(shape)), dtype_(dtype), device_(device) {}

  /// A one-dimensional view of a vector, array or span.
  template <typename R>
    requires(TensorRange<R> && !std::same_as<std::remove_cvref_t<R>, TensorView>)
  TensorView(R&& range)  // NOLINT(google-explicit-constructor)
      : data_(std::ranges::data(range)),
        shape_(std::ranges::size(range)),
        dtype_(dtype_of<std::ranges::range_value_t<R>>) {}

  /// A scalar: no dimensions, one element.
  template <Element T>
    requires(!std::is_const_v<T>)
  TensorView(T& value)  // NOLINT(google-explicit-constructor)
      : data_(&value), dtype_(dtype_of<T>) {}

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return shape_.elements(); }

 private:
  void* data_;
  Shape shape_;
  DType dtype_;
  Device device_;
};

/// A read-only view: memory that a collective reads but does not write. A TensorView converts to
/// it.
class ConstTensorView {
 public:
  /// `data` holds `shape.elements()` elements.
  template <Element T>
  ConstTensorView(const T* data, Shape shape, Device device = {})
      : data_(data), shape_(std::move(shape)), dtype_(dtype_of<T>), device_(device) {}

  /// A view with an explicit dtype: for f16 and bf16, or a dtype known only at run time.
  ConstTensorView(const void* data, Shape shape, DType dtype, Device device = {})
      : data_(data), shape_(std::move(shape)), dtype_(dtype), device_(device) {}

  ConstTensorView(const TensorView& tensor)  // NOLINT(google-explicit-constructor)
      : data_(tensor.data()),
        shape_(tensor.shape()),
        dtype_(tensor.dtype()),
        device_(tensor.device()) {}

  /// A one-dimensional view of a vector, array or span.
  template <typename R>
    requires(ConstTensorRange<R> && !std::same_as<std::remove_cvref_t<R>, TensorView> &&
             !std::same_as<std::remove_cvref_t<R>, ConstTensorView>)
  ConstTensorView(R&& range)  // NOLINT(google-explicit-constructor)
      : data_(std::ranges::data(range)),
        shape_(std::ranges::size(range)),
        dtype_(dtype_of<std::ranges::range_value_t<R>>) {}

  /// A scalar: no dimensions, one element. Temporaries do not compile.
  template <Element T>
  ConstTensorView(const T& value)  // NOLINT(google-explicit-constructor)
      : data_(&value), dtype_(dtype_of<T>) {}
  template <Element T>
  ConstTensorView(const T&& value) = delete;

  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] std::int64_t elements() const noexcept { return shape_.elements(); }

 private:
  const void* data_;
  Shape shape_;
  DType dtype_;
  Device device_;
};

/// A tensor and its name. The name must be the same on all ranks.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

}  // namespace kolo
