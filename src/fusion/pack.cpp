#include "fusion/pack.hpp"

#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/half.hpp"

namespace kolo::fusion {
namespace {

// Elements are read and written by memcpy, since memory given as void* may lie at any address;
// compilers make the plain, vectorised access of it.
template <typename T>
T load(const void* from, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * std::int64_t{sizeof(T)},
              sizeof(T));
  return value;
}

template <typename T>
void store(void* to, std::int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(to) + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <typename From, typename To, typename Function>
void transform(const void* from, void* to, std::int64_t elements, Function function) {
  for (std::int64_t i = 0; i < elements; ++i) store<To>(to, i, function(load<From>(from, i)));
}

void copy(const void* from, void* to, std::int64_t elements, DType dtype) {
  if (elements > 0 && from != to)
    std::memcpy(to, from, static_cast<std::size_t>(elements) * size_of(dtype));
}

/// Truncated toward zero; what the type cannot hold becomes its nearest value, NaN becomes 0.
template <std::integral T>
T truncate(double value) {
  constexpr auto least = static_cast<double>(std::numeric_limits<T>::min());
  // The first value above the range: a power of two, so that it is exact.
  constexpr double above = 2.0 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  if (value <= least) return std::numeric_limits<T>::min();
  if (value >= above) return std::numeric_limits<T>::max();
  return value == value ? static_cast<T>(value) : T{0};
}

template <std::integral T>
void scale_integers(const void* from, void* to, std::int64_t elements, std::int64_t divisor,
                    double scale) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const auto wide_divisor = static_cast<Wide>(divisor);
  if (scale == 1.0) {
    transform<T, T>(from, to, elements,
                    [=](T x) { return static_cast<T>(static_cast<Wide>(x) / wide_divisor); });
  } else {
    transform<T, T>(from, to, elements, [=](T x) {
      return truncate<T>(static_cast<double>(static_cast<Wide>(x) / wide_divisor) * scale);
    });
  }
}

F16 from_float(float value, F16 /*type*/) { return to_f16(value); }
BF16 from_float(float value, BF16 /*type*/) { return to_bf16(value); }

template <typename Half>
void pack_halves(const void* from, void* to, std::int64_t elements, double scale) {
  const auto factor = static_cast<float>(scale);
  transform<Half, float>(from, to, elements, [=](Half x) { return to_float(x) * factor; });
}

/// Hands `transform` what turns a sum into the result. Without a scale it divides, so that the
/// average of equal values is that value; by a power of two a multiplication does the same.
template <std::floating_point Real, typename Consumer>
void with_scaling(std::int64_t divisor, double scale, Consumer consumer) {
  if (scale == 1.0 && !std::has_single_bit(static_cast<std::uint64_t>(divisor))) {
    consumer([n = static_cast<Real>(divisor)](Real x) { return x / n; });
  } else {
    const auto factor = static_cast<Real>(scale / static_cast<double>(divisor));
    consumer([=](Real x) { return x * factor; });
  }
}

template <typename Half>
void unpack_halves(const void* from, void* to, std::int64_t elements, std::int64_t divisor,
                   double scale) {
  with_scaling<float>(divisor, scale, [=](auto scaled) {
    transform<float, Half>(from, to, elements,
                           [=](float x) { return from_float(scaled(x), Half{}); });
  });
}

template <std::floating_point Real>
void scale_reals(const void* from, void* to, std::int64_t elements, std::int64_t divisor,
                 double scale) {
  with_scaling<Real>(divisor, scale,
                     [=](auto scaled) { transform<Real, Real>(from, to, elements, scaled); });
}

/// For types that travel as they are.
void scale_native(const void* from, void* to, std::int64_t elements, DType dtype,
                  std::int64_t divisor, double scale) {
  if (divisor == 1 && scale == 1.0) return copy(from, to, elements, dtype);
  switch (dtype) {
    case DType::u8: return scale_integers<std::uint8_t>(from, to, elements, divisor, scale);
    case DType::i8: return scale_integers<std::int8_t>(from, to, elements, divisor, scale);
    case DType::u16: return scale_integers<std::uint16_t>(from, to, elements, divisor, scale);
    case DType::i16: return scale_integers<std::int16_t>(from, to, elements, divisor, scale);
    case DType::u32: return scale_integers<std::uint32_t>(from, to, elements, divisor, scale);
    case DType::i32: return scale_integers<std::int32_t>(from, to, elements, divisor, scale);
    case DType::u64: return scale_integers<std::uint64_t>(from, to, elements, divisor, scale);
    case DType::i64: return scale_integers<std::int64_t>(from, to, elements, divisor, scale);
    case DType::f32: return scale_reals<float>(from, to, elements, divisor, scale);
    case DType::f64: return scale_reals<double>(from, to, elements, divisor, scale);
    case DType::f16:
    case DType::bf16:
    case DType::boolean:  // has no arithmetic
      return copy(from, to, elements, dtype);
  }
}

}  // namespace

DType wire_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

void pack(const void* tensor, std::int64_t elements, DType dtype, double scale, std::byte* buffer) {
  if (dtype == DType::f16) return pack_halves<F16>(tensor, buffer, elements, scale);
  if (dtype == DType::bf16) return pack_halves<BF16>(tensor, buffer, elements, scale);
  scale_native(tensor, buffer, elements, dtype, 1, scale);
}

void unpack(const std::byte* buffer, std::int64_t elements, DType dtype, std::int64_t divisor,
            double scale, void* tensor) {
  if (dtype == DType::f16) return unpack_halves<F16>(buffer, tensor, elements, divisor, scale);
  if (dtype == DType::bf16) return unpack_halves<BF16>(buffer, tensor, elements, divisor, scale);
  scale_native(buffer, tensor, elements, dtype, divisor, scale);
}

}  // namespace kolo::fusion
