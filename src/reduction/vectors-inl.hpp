// The loop of the vector reductions. Compiled once for each instruction set, hence the guard.
#if defined(KOLO_REDUCTION_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_REDUCTION_VECTORS_INL
#undef KOLO_REDUCTION_VECTORS_INL
#else
#define KOLO_REDUCTION_VECTORS_INL
#endif

#include <array>
#include <cstring>

#include "base/vectors-inl.hpp"
#include "reduction/reduce.hpp"

#if KOLO_HAVE_VECTORS
HWY_BEFORE_NAMESPACE();
namespace kolo::internal::reduction::HWY_NAMESPACE {

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

/// Neither scale nor division.
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

/// Reads elements as `In` and writes the results as `Out`. The vectors of all inputs are combined
/// before they are written, so that the output may be one of the inputs.
template <class In, class Out, class Op, class Scaling>
class Loop {
 public:
  using D = hn::ScalableTag<typename In::Lane>;
  using V = hn::Vec<D>;

  Loop(Inputs inputs, std::byte* output, const Scaling& scaling)
      : inputs_(inputs.data()), count_(inputs.size()), output_(output), scaling_(scaling) {}

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

  /// Fewer elements than a pair of vectors has, by way of a buffer that has them all.
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

}  // namespace kolo::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // the guard
