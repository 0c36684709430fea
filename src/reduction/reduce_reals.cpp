#include "reduction/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/reduce_reals.cpp"
#include <hwy/foreach_target.h>
// The order matters.
#include "reduction/scaling.hpp"
#include "reduction/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::internal::reduction::HWY_NAMESPACE {
#if KOLO_HAVE_VECTORS
namespace {

// As the scalar ones: a comparison with NaN is false.
struct RealMin {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};

struct RealMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};

/// Multiplies before only if `prescaled`; a factor of 1 would not keep every bit of a NaN.
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

template <class In, class Out, class Op>
bool run(const Work& work) {
  using Real = typename In::Lane;
  const Arithmetic& arithmetic = work.arithmetic;
  if (arithmetic.prescale == 1.0) {
    const Scaled<Real, false> scaling(arithmetic);
    Loop<In, Out, Op, Scaled<Real, false>>(work.inputs, work.output, scaling).run(work.elements);
  } else {
    const Scaled<Real, true> scaling(arithmetic);
    Loop<In, Out, Op, Scaled<Real, true>>(work.inputs, work.output, scaling).run(work.elements);
  }
  return true;
}

template <class Format>
bool reduce_as(const Work& work) {
  switch (work.arithmetic.op) {
    case ReduceOp::sum:
    case ReduceOp::average: return run<Format, Format, VectorSum>(work);
    case ReduceOp::min: return run<Format, Format, RealMin>(work);
    case ReduceOp::max: return run<Format, Format, RealMax>(work);
    case ReduceOp::product: return run<Format, Format, VectorProduct>(work);
    case ReduceOp::adasum: return false;
  }
  return false;
}

/// Halves to f32 or f64; sums only, which is what compressed gradients need.
template <class Format>
bool widen(const Work& work, DType result) {
  const ReduceOp op = work.arithmetic.op;
  if (op != ReduceOp::sum && op != ReduceOp::average) return false;
  if (result == DType::f32) return run<Format, formats::PlainFormat<float>, VectorSum>(work);
  return run<Format, formats::NarrowF64Format, VectorSum>(work);
}

}  // namespace

bool reduce_reals(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                  std::byte* output) {
  const Work work{arithmetic, inputs, elements, output};
  const DType result = arithmetic.result.value_or(arithmetic.dtype);
  const bool widens = result != arithmetic.dtype;
  switch (arithmetic.dtype) {
    case DType::f32: return reduce_as<formats::PlainFormat<float>>(work);
    case DType::f64: return reduce_as<formats::PlainFormat<double>>(work);
    case DType::f16:
      if (widens) return widen<formats::ExactF16Format>(work, result);
      return reduce_as<formats::QuietF16Format>(work);
    case DType::bf16:
      if (widens) return widen<formats::BF16Format>(work, result);
      return reduce_as<formats::SplitBF16Format>(work);
    default: return false;
  }
}

#else

bool reduce_reals(const Arithmetic&, Inputs, std::int64_t, std::byte*) { return false; }

#endif  // KOLO_HAVE_VECTORS
}  // namespace kolo::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::internal::reduction {

HWY_EXPORT(reduce_reals);

bool reduce_reals(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                  std::byte* output) {
  return HWY_DYNAMIC_DISPATCH(reduce_reals)(arithmetic, inputs, elements, output);
}

}  // namespace kolo::internal::reduction
#endif
