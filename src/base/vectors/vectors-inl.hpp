// SPDX-License-Identifier: Apache-2.0
// Loads elements from memory into vectors of the type in which they are computed, and stores them.
// For sources that include hwy/foreach_target.h: compiled once for each instruction set, hence the
// unusual include guard.
//
// A format reads and writes pairs of vectors: 2 * Lanes(d) elements at any address. Its conversions
// give the same bits as `computed` and `rounded` for each element.
#if defined(KOLO_BASE_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_BASE_VECTORS_INL
#undef KOLO_BASE_VECTORS_INL
#else
#define KOLO_BASE_VECTORS_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/half.hpp"

// Without vector instructions Highway lacks some operations, and vectors would gain nothing.
#undef KOLO_HAVE_VECTORS
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define KOLO_HAVE_VECTORS 0
#else
#define KOLO_HAVE_VECTORS 1

HWY_BEFORE_NAMESPACE();
namespace kolo::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// True for x86 targets from AVX2 on, which have instructions that convert f16.
inline constexpr bool converts_f16 = HWY_TARGET <= HWY_AVX2;

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

template <typename T>
HWY_INLINE const T* as(const std::byte* from) {
  return reinterpret_cast<const T*>(from);
}
template <typename T>
HWY_INLINE T* as(std::byte* to) {
  return reinterpret_cast<T*>(to);
}

/// Elements whose computation type is their own type.
template <typename T>
struct PlainFormat {
  using Element = T;
  using Lane = T;

  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* from, V& a, V& b) {
    a = hn::LoadU(d, as<T>(from));
    b = hn::LoadU(d, as<T>(from) + hn::Lanes(d));
  }
  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    hn::StoreU(a, d, as<T>(to));
    hn::StoreU(b, d, as<T>(to) + hn::Lanes(d));
  }
};

/// Stores the lower halves of the lanes of `a`, then those of `b`.
template <class D>
HWY_INLINE void store_lower_halves(D /*d*/, Bits<D> a, Bits<D> b, std::byte* to) {
  const hn::Repartition<std::uint16_t, D> d16;
  hn::StoreU(hn::ConcatEven(d16, hn::BitCast(d16, b), hn::BitCast(d16, a)), d16,
             as<std::uint16_t>(to));
}

/// f16 by integer arithmetic: the algorithms of `to_float` and `to_f16` in each lane.
struct SoftF16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::RebindToUnsigned<D> du;
    const auto half =
        hn::PromoteTo(du, hn::LoadU(hn::Rebind<std::uint16_t, D>(), as<std::uint16_t>(from)));
    const auto exponent_mask = hn::Set(du, 0x7c00U << 13U);
    const auto smallest_normal = hn::Set(du, (127U - 14U) << 23U);
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffU)));
    const auto exponent = hn::And(magnitude, exponent_mask);
    const auto normal = hn::Add(magnitude, hn::Set(du, (127U - 15U) << 23U));
    const auto infinite_or_nan = hn::Add(normal, hn::Set(du, (128U - 16U) << 23U));
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(magnitude, smallest_normal)),
                                hn::BitCast(d, smallest_normal)));
    const auto value =
        hn::IfThenElse(hn::Eq(exponent, exponent_mask), infinite_or_nan,
                       hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000U)));
    return hn::BitCast(d, hn::Or(value, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> load_quiet(D d, const std::byte* from) {
    return load(d, from);
  }

  /// The f16 bits, in the lower halves of the lanes.
  template <class D>
  static HWY_INLINE Bits<D> round(D d, hn::Vec<D> value) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto subnormal_shift = hn::Set(du, (127U - 15U + 23U - 10U + 1U) << 23U);
    const auto bits = hn::BitCast(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1U));
    const auto rebiased = hn::Add(magnitude, hn::Set(du, 0xfffU - ((127U - 15U) << 23U)));
    const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
    const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, subnormal_shift));
    const auto subnormal = hn::Sub(hn::BitCast(du, shifted), subnormal_shift);
    // Magnitudes have no sign bit, so they compare correctly as signed integers, for which every
    // instruction set has a comparison.
    const auto order = hn::BitCast(di, magnitude);
    const auto is_above = [&](std::uint32_t limit) HWY_ATTR {
      return hn::RebindMask(du, hn::Gt(order, hn::Set(di, static_cast<std::int32_t>(limit))));
    };
    const auto finite = hn::IfThenElse(is_above(((127U - 14U) << 23U) - 1U), normal, subnormal);
    const auto number =
        hn::IfThenElse(is_above(((127U + 16U) << 23U) - 1U), hn::Set(du, 0x7c00U), finite);
    const auto half = hn::IfThenElse(is_above(255U << 23U), hn::Set(du, 0x7e00U), number);
    return hn::Or(half, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000U)));
  }

  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    store_lower_halves(d, round(d, a), round(d, b), to);
  }
};

/// f16 by the processor's instructions, which convert NaNs differently from `to_float` and
/// `to_f16`.
struct HardF16 {
  template <class D>
  static HWY_INLINE hn::Vec<D> load_quiet(D d, const std::byte* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, as<hwy::float16_t>(from)));
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::RebindToSigned<D> di;
    const auto value = load_quiet(d, from);
    // The instruction makes a signaling NaN quiet; `to_float` does not. A NaN is therefore rebuilt
    // from its bits: the sign is extended over the exponent bits, which are set in any NaN.
    const auto half = hn::LoadU(hn::Rebind<std::int16_t, D>(), as<std::int16_t>(from));
    const auto spread = hn::ShiftLeft<13>(hn::PromoteTo(di, half));
    const auto nan = hn::BitCast(d, hn::Or(spread, hn::Set(di, 0x70000000)));
    return hn::IfThenElse(hn::IsNaN(value), nan, value);
  }

  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    // `to_f16` keeps only the sign of a NaN, whereas the instruction keeps its payload.
    const auto one_nan = hn::BitCast(d, hn::Set(du, 0x7fc00000U));
    const auto named = hn::IfThenElse(hn::IsNaN(value), hn::CopySign(one_nan, value), value);
    hn::StoreU(hn::DemoteTo(d16, named), d16, as<hwy::float16_t>(to));
  }

  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    store(d, a, to);
    store(d, b, to + hn::Lanes(d) * sizeof(F16));
  }
};

/// `quiet` allows a signaling NaN to become quiet on loading. It saves instructions, and makes no
/// difference if the results are f16.
template <bool quiet>
struct F16Format {
  using Element = F16;
  using Lane = float;
  using Convert = std::conditional_t<converts_f16, HardF16, SoftF16>;

  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* from, V& a, V& b) {
    const std::byte* second = from + hn::Lanes(d) * sizeof(F16);
    if constexpr (quiet) {
      a = Convert::load_quiet(d, from);
      b = Convert::load_quiet(d, second);
    } else {
      a = Convert::load(d, from);
      b = Convert::load(d, second);
    }
  }
  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    Convert::store_pair(d, a, b, to);
  }
};

using ExactF16Format = F16Format<false>;
using QuietF16Format = F16Format<true>;

/// `to_bf16` in each lane. The result is in the upper halves of the lanes.
template <class D>
HWY_INLINE Bits<D> round_to_bf16(D /*d*/, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000U));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

struct BF16Format {
  using Element = BF16;
  using Lane = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto half = hn::LoadU(d16, as<std::uint16_t>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half)));
  }

  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* from, V& a, V& b) {
    a = load(d, from);
    b = load(d, from + hn::Lanes(d) * sizeof(BF16));
  }
  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    const hn::Repartition<std::uint16_t, D> d16;
    const auto first = hn::BitCast(d16, round_to_bf16(d, a));
    const auto second = hn::BitCast(d16, round_to_bf16(d, b));
    hn::StoreU(hn::ConcatOdd(d16, second, first), d16, as<std::uint16_t>(to));
  }
};

/// bf16 for computations that do not depend on the order of the elements in the pair: one vector
/// holds the elements at even places, the other those at odd places. This needs no shuffles.
struct SplitBF16Format {
  using Element = BF16;
  using Lane = float;

  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* from, V& a, V& b) {
    const hn::RebindToUnsigned<D> du;
    const hn::Repartition<std::uint16_t, D> d16;
    const auto both = hn::BitCast(du, hn::LoadU(d16, as<std::uint16_t>(from)));
    a = hn::BitCast(d, hn::ShiftLeft<16>(both));
    b = hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000U)));
  }
  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    const hn::RebindToUnsigned<D> du;
    const hn::Repartition<std::uint16_t, D> d16;
    const auto even = hn::ShiftRight<16>(round_to_bf16(d, a));
    const auto odd = hn::And(round_to_bf16(d, b), hn::Set(du, 0xffff0000U));
    hn::StoreU(hn::BitCast(d16, hn::Or(even, odd)), d16, as<std::uint16_t>(to));
  }
};

/// f64 that is computed in f32, for conversions to and from the half types.
struct NarrowF64Format {
  using Element = double;
  using Lane = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
    const hn::Repartition<double, D> d64;
    const hn::Half<D> half;
    const auto lower = hn::DemoteTo(half, hn::LoadU(d64, as<double>(from)));
    const auto upper = hn::DemoteTo(half, hn::LoadU(d64, as<double>(from) + hn::Lanes(d64)));
    return hn::Combine(d, upper, lower);
  }
  template <class D>
  static HWY_INLINE void store(D /*d*/, hn::Vec<D> value, std::byte* to) {
    const hn::Repartition<double, D> d64;
    const hn::Half<D> half;
    hn::StoreU(hn::PromoteTo(d64, hn::LowerHalf(half, value)), d64, as<double>(to));
    hn::StoreU(hn::PromoteTo(d64, hn::UpperHalf(half, value)), d64,
               as<double>(to) + hn::Lanes(d64));
  }

  template <class D, class V>
  static HWY_INLINE void load_pair(D d, const std::byte* from, V& a, V& b) {
    a = load(d, from);
    b = load(d, from + hn::Lanes(d) * sizeof(double));
  }
  template <class D, class V>
  static HWY_INLINE void store_pair(D d, V a, V b, std::byte* to) {
    store(d, a, to);
    store(d, b, to + hn::Lanes(d) * sizeof(double));
  }
};

}  // namespace kolo::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KOLO_HAVE_VECTORS
#endif  // the guard
