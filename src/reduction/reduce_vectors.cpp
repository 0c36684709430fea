// SPDX-License-Identifier: Apache-2.0
// The reductions in vectors, compiled for several instruction sets.
#include "reduction/reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/reduce_vectors.cpp"
#include <hwy/foreach_target.h>
// Included after foreach_target.h, which includes this file once for each instruction set.
#include <array>
#include <concepts>
#include <cstring>

#include "base/elements.hpp"
#include "base/vectors/instruction_set.hpp"
#include "base/vectors/vectors-inl.hpp"
#include "reduction/scaling.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::internal::reduction::HWY_NAMESPACE {
#if KOLO_HAVE_VECTORS
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace formats = kolo::internal::HWY_NAMESPACE;

struct VectorSum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct VectorProduct {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// NaN propagates as in `Extreme` of reduce_scalar.cpp: a comparison with NaN is false and yields
// `b`.
struct VectorMin {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::integral<hn::TFromV<V>>) {
      return hn::Min(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};

struct VectorMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::integral<hn::TFromV<V>>) {
      return hn::Max(a, b);
    } else {
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    }
  }
};

/// The scaling of integers: none.
struct Unscaled {
  template <class V>
  HWY_INLINE V before(V v) const {
    return v;
  }
  template <class V>
  HWY_INLINE V after(V v) const {
    return v;
  }
};

/// The scaling of real numbers. It multiplies before the combination only if `prescaled`: even a
/// factor of 1 would change the bits of a signaling NaN.
template <typename Real, bool prescaled>
class Scaled {
 public:
  explicit Scaled(const Arithmetic& arithmetic)
      : factor_(static_cast<Real>(arithmetic.prescale)),
        scaling_(arithmetic.divisor, arithmetic.postscale) {}

  template <class V>
  HWY_INLINE V before(V v) const {
    if constexpr (prescaled) return hn::Mul(v, hn::Set(hn::DFromV<V>(), factor_));
    return v;
  }

  template <class V>
  HWY_INLINE V after(V v) const {
    using Kind = typename RealScaling<Real>::Kind;
    const hn::DFromV<V> d;
    if (scaling_.kind == Kind::multiply) return hn::Mul(v, hn::Set(d, scaling_.by));
    if (scaling_.kind == Kind::divide) return hn::Div(v, hn::Set(d, scaling_.by));
    return v;
  }

 private:
  Real factor_;
  RealScaling<Real> scaling_;
};

struct Work {
  const Arithmetic& arithmetic;
  Inputs inputs;
  std::int64_t elements;
  std::byte* output;
};

/// Reads elements in the format `In` and writes the results in the format `Out`. The vectors of all
/// inputs are combined before they are written, so that the output may be one of the inputs.
template <class In, class Out, class Op, class Scaling>
class Loop {
 public:
  using D = hn::ScalableTag<typename In::Lane>;
  using V = hn::Vec<D>;

  Loop(const Work& work, const Scaling& scaling)
      : inputs_(work.inputs.data()),
        count_(work.inputs.size()),
        output_(work.output),
        scaling_(scaling) {}

  void run(std::int64_t elements) const {
    std::int64_t i = 0;
    for (; i + 2 * pair() <= elements; i += 2 * pair()) two_pairs(i);
    for (; i + pair() <= elements; i += pair()) one_pair(i);
    if (i < elements) tail(i, static_cast<std::size_t>(elements - i));
  }

 private:
  static constexpr std::size_t in_size = sizeof(typename In::Element);
  static constexpr std::size_t out_size = sizeof(typename Out::Element);
  /// Large enough for a pair of the widest elements.
  using Buffer = std::array<std::byte, 2 * hn::MaxLanes(D()) * sizeof(double)>;

  static HWY_INLINE std::int64_t pair() { return static_cast<std::int64_t>(2 * hn::Lanes(D())); }
  static HWY_INLINE std::int64_t in_bytes(std::int64_t elements) {
    return elements * std::int64_t{in_size};
  }
  static HWY_INLINE std::int64_t out_bytes(std::int64_t elements) {
    return elements * std::int64_t{out_size};
  }

  HWY_INLINE void load(const std::byte* from, V& a, V& b) const {
    In::load_pair(D(), from, a, b);
    a = scaling_.before(a);
    b = scaling_.before(b);
  }
  HWY_INLINE void combine(const std::byte* from, V& a, V& b) const {
    V next_a;
    V next_b;
    load(from, next_a, next_b);
    a = Op()(a, next_a);
    b = Op()(b, next_b);
  }
  HWY_INLINE void store(V a, V b, std::byte* to) const {
    Out::store_pair(D(), scaling_.after(a), scaling_.after(b), to);
  }

  /// Two pairs at a time keep four independent chains of operations in flight.
  HWY_INLINE void two_pairs(std::int64_t first) const {
    const std::int64_t at = in_bytes(first);
    const std::int64_t next = at + in_bytes(pair());
    V a;
    V b;
    V c;
    V d;
    load(inputs_[0] + at, a, b);
    load(inputs_[0] + next, c, d);
    for (std::size_t input = 1; input < count_; ++input) {
      combine(inputs_[input] + at, a, b);
      combine(inputs_[input] + next, c, d);
    }
    store(a, b, output_ + out_bytes(first));
    store(c, d, output_ + out_bytes(first + pair()));
  }

  HWY_INLINE void one_pair(std::int64_t first) const {
    const std::int64_t at = in_bytes(first);
    V a;
    V b;
    load(inputs_[0] + at, a, b);
    for (std::size_t input = 1; input < count_; ++input) combine(inputs_[input] + at, a, b);
    store(a, b, output_ + out_bytes(first));
  }

  /// Reduces the last elements, fewer than a pair of vectors holds, through a buffer with room for
  /// the pair.
  HWY_NOINLINE void tail(std::int64_t first, std::size_t elements) const {
    Buffer buffer{};
    const std::int64_t at = in_bytes(first);
    V a;
    V b;
    std::memcpy(buffer.data(), inputs_[0] + at, elements * in_size);
    load(buffer.data(), a, b);
    for (std::size_t input = 1; input < count_; ++input) {
      std::memcpy(buffer.data(), inputs_[input] + at, elements * in_size);
      combine(buffer.data(), a, b);
    }
    store(a, b, buffer.data());
    std::memcpy(output_ + out_bytes(first), buffer.data(), elements * out_size);
  }

  const std::byte* const* inputs_;
  std::size_t count_;
  std::byte* output_;
  Scaling scaling_;
};

template <class In, class Out, class Op>
bool run(const Work& work) {
  using Number = typename In::Lane;
  const auto run_scaled = [&](const auto& scaling) {
    Loop<In, Out, Op, std::remove_cvref_t<decltype(scaling)>>(work, scaling).run(work.elements);
    return true;
  };
  if constexpr (std::integral<Number>) {
    return run_scaled(Unscaled{});
  } else {
    return work.arithmetic.prescale == 1.0 ? run_scaled(Scaled<Number, false>(work.arithmetic))
                                           : run_scaled(Scaled<Number, true>(work.arithmetic));
  }
}

/// False for 8-bit and 64-bit integers, which some instruction sets cannot multiply.
template <typename T>
constexpr bool can_multiply = !std::integral<T> || sizeof(T) == 2 || sizeof(T) == 4;

template <class Format>
bool reduce_as(const Work& work) {
  switch (work.arithmetic.op) {
    case ReduceOp::sum:
    case ReduceOp::average: return run<Format, Format, VectorSum>(work);
    case ReduceOp::min: return run<Format, Format, VectorMin>(work);
    case ReduceOp::max: return run<Format, Format, VectorMax>(work);
    case ReduceOp::product:
      if constexpr (can_multiply<typename Format::Lane>)
        return run<Format, Format, VectorProduct>(work);
      return false;
    case ReduceOp::adasum: return false;
  }
  return false;
}

/// Reduces half types to results in f32 or f64. Only sums and averages are needed: those of
/// compressed gradients.
template <class Format>
bool widen(const Work& work, DType result) {
  const ReduceOp op = work.arithmetic.op;
  if (op != ReduceOp::sum && op != ReduceOp::average) return false;
  if (result == DType::f32) return run<Format, formats::PlainFormat<float>, VectorSum>(work);
  return run<Format, formats::NarrowF64Format, VectorSum>(work);
}

/// Reduces integers without a scale or divisor. Returns false, without effect, for all other work.
bool reduce_integers(const Work& work) {
  const Arithmetic& arithmetic = work.arithmetic;
  bool reduced = false;
  if (arithmetic.prescale == 1.0 && arithmetic.postscale == 1.0 && arithmetic.divisor == 1)
    visit_integer(arithmetic.dtype, [&](auto type) {
      reduced = reduce_as<formats::PlainFormat<decltype(type)>>(work);
    });
  return reduced;
}

}  // namespace

bool reduce_vectors(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                    std::byte* output) {
  const Work work{arithmetic, inputs, elements, output};
  const DType result = arithmetic.result.value_or(arithmetic.dtype);
  const bool converts = result != arithmetic.dtype;
  switch (arithmetic.dtype) {
    case DType::f32: return reduce_as<formats::PlainFormat<float>>(work);
    case DType::f64: return reduce_as<formats::PlainFormat<double>>(work);
    case DType::f16:
      if (converts) return widen<formats::ExactF16Format>(work, result);
      return reduce_as<formats::QuietF16Format>(work);
    case DType::bf16:
      if (converts) return widen<formats::BF16Format>(work, result);
      return reduce_as<formats::SplitBF16Format>(work);
    default: return !converts && reduce_integers(work);
  }
}

#else

bool reduce_vectors(const Arithmetic&, Inputs, std::int64_t, std::byte*) { return false; }

#endif  // KOLO_HAVE_VECTORS
}  // namespace kolo::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::internal::reduction {

KOLO_DISPATCH_TABLE(reduce_vectors);

bool reduce_vectors(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                    std::byte* output) {
  return KOLO_DISPATCH(reduce_vectors)(arithmetic, inputs, elements, output);
}

}  // namespace kolo::internal::reduction
#endif
