#include "reduction/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/reduce_integers.cpp"
#include <hwy/foreach_target.h>
// The order matters.
#include "base/elements.hpp"
#include "reduction/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::internal::reduction::HWY_NAMESPACE {
#if KOLO_HAVE_VECTORS
namespace {

struct VectorMin {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};

struct VectorMax {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

template <typename T, class Op>
bool run(Inputs inputs, std::int64_t elements, std::byte* output) {
  using Format = formats::PlainFormat<T>;
  Loop<Format, Format, Op, Unscaled>(inputs, output, {}).run(elements);
  return true;
}

/// Not every instruction set multiplies integers of 8 and 64 bits.
template <typename T>
constexpr bool can_multiply = sizeof(T) == 2 || sizeof(T) == 4;

template <typename T>
bool reduce_as(ReduceOp op, Inputs inputs, std::int64_t elements, std::byte* output) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average: return run<T, VectorSum>(inputs, elements, output);
    case ReduceOp::min: return run<T, VectorMin>(inputs, elements, output);
    case ReduceOp::max: return run<T, VectorMax>(inputs, elements, output);
    case ReduceOp::product:
      if constexpr (can_multiply<T>) return run<T, VectorProduct>(inputs, elements, output);
      return false;
    case ReduceOp::adasum: return false;
  }
  return false;
}

}  // namespace

bool reduce_integers(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                     std::byte* output) {
  const bool scaled =
      arithmetic.prescale != 1.0 || arithmetic.postscale != 1.0 || arithmetic.divisor != 1;
  if (scaled) return false;
  bool reduced = false;
  visit_integer(arithmetic.dtype, [&](auto type) {
    reduced = reduce_as<decltype(type)>(arithmetic.op, inputs, elements, output);
  });
  return reduced;
}

#else

bool reduce_integers(const Arithmetic&, Inputs, std::int64_t, std::byte*) { return false; }

#endif  // KOLO_HAVE_VECTORS
}  // namespace kolo::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::internal::reduction {

HWY_EXPORT(reduce_integers);

bool reduce_integers(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                     std::byte* output) {
  return HWY_DYNAMIC_DISPATCH(reduce_integers)(arithmetic, inputs, elements, output);
}

}  // namespace kolo::internal::reduction
#endif
