// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "base/elements.hpp"
#include "reduction/reduce.hpp"
#include "reduction/scaling.hpp"

namespace kolo::internal::reduction {
namespace {

/// The type in which sums and products are computed. For integers it is unsigned, so that overflow
/// wraps, and at least as wide as int, so that it is not promoted to int.
template <typename T>
using Wrapping =
    std::conditional_t<!std::integral<T>, T,
                       std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>>;

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

/// The minimum or maximum of two values. A comparison with NaN is false and yields `b`, so a NaN in
/// `b` propagates by itself, and one in `a` needs the test `a != a`.
template <class Before>
struct Extreme {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::integral<T>) {
      return Before()(a, b) ? a : b;
    } else {
      return (Before()(a, b) | (a != a)) ? a : b;
    }
  }
};
using Min = Extreme<std::less<>>;
using Max = Extreme<std::greater<>>;

// Blocks are combined in this buffer before they are written, so that the output may be one of the
// inputs. A block fits the first-level cache.
constexpr std::int64_t block = 1024;

template <typename T>
using Block = std::array<Computed<T>, block>;

// The two halves of the work on a block: combining the inputs, and writing the results. Both are
// chosen once for all blocks. An indirect call for each block costs little, and avoids compiling
// every pair of halves.
template <typename T>
using Combine = std::function<void(std::int64_t first, std::int64_t count, Block<T>& acc)>;
template <typename T>
using Finish = std::function<void(const Block<T>& acc, std::int64_t count, std::byte* to)>;

/// `acc[i]` = the combination of the inputs' elements `first + i`.
template <typename T, typename Scale, typename Op>
void combine(Inputs inputs, std::int64_t first, std::int64_t count, Scale scale, Op op,
             Block<T>& acc) {
  const auto at = [&](std::size_t input) {
    return inputs[input] + first * std::int64_t{sizeof(T)};
  };
  const auto element = [scale](const std::byte* from, std::int64_t i) {
    return scale(computed(load<T>(from, i)));
  };
  Computed<T>* const to = acc.data();
  if (inputs.size() == 1) {
    const std::byte* only = at(0);
    for (std::int64_t i = 0; i < count; ++i) to[i] = element(only, i);
    return;
  }
  const std::byte* a = at(0);
  const std::byte* b = at(1);
  for (std::int64_t i = 0; i < count; ++i) to[i] = op(element(a, i), element(b, i));
  for (std::size_t input = 2; input < inputs.size(); ++input) {
    const std::byte* next = at(input);
    for (std::int64_t i = 0; i < count; ++i) to[i] = op(to[i], element(next, i));
  }
}

template <typename T, typename Result>
void reduce_blocks(std::int64_t elements, const Combine<T>& combine, const Finish<T>& finish,
                   std::byte* output) {
  Block<T> acc;
  for (std::int64_t first = 0; first < elements; first += block) {
    const std::int64_t count = std::min(block, elements - first);
    combine(first, count, acc);
    finish(acc, count, output + first * std::int64_t{sizeof(Result)});
  }
}

template <typename Consumer>
void with_operator(ReduceOp op, Consumer consumer) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum: return consumer(Sum{});
    case ReduceOp::min: return consumer(Min{});
    case ReduceOp::max: return consumer(Max{});
    case ReduceOp::product: return consumer(Product{});
    case ReduceOp::adasum: return;  // refused by `reduce`
  }
}

template <typename T>
Combine<T> make_combine(const Arithmetic& arithmetic, Inputs inputs) {
  Combine<T> made;
  with_operator(arithmetic.op, [&](auto op) {
    with_factor<Computed<T>>(arithmetic.prescale, [&](auto scale) {
      made = [=](std::int64_t first, std::int64_t count, Block<T>& acc) {
        combine<T>(inputs, first, count, scale, op, acc);
      };
    });
  });
  return made;
}

/// `Result` is T. For half types it may also be f32 or f64, and for i64 a shorter integer.
template <typename T, typename Result>
Finish<T> make_finish(const Arithmetic& arithmetic) {
  Finish<T> made;
  with_scaling<Computed<T>>(arithmetic.divisor, arithmetic.postscale, [&](auto scaled) {
    made = [=](const Block<T>& acc, std::int64_t count, std::byte* to) {
      const Computed<T>* const from = acc.data();
      for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::integral<Result> && !std::same_as<T, Result>) {
          store<Result>(to, i, nearest<Result>(scaled(from[i])));
        } else {
          store<Result>(to, i, rounded<Result>(scaled(from[i])));
        }
      }
    };
  });
  return made;
}

template <typename T, typename Result = T>
void reduce_as(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
               std::byte* output) {
  reduce_blocks<T, Result>(elements, make_combine<T>(arithmetic, inputs),
                           make_finish<T, Result>(arithmetic), output);
}

/// Booleans are bytes; any value but 0 is true.
void reduce_booleans(ReduceOp op, Inputs inputs, std::int64_t elements, std::byte* output) {
  using Byte = std::uint8_t;
  const auto truth = [](Byte x) { return static_cast<Byte>(x != 0); };
  const auto combine_bytes = [&](std::int64_t first, std::int64_t count, Block<Byte>& acc) {
    if (op == ReduceOp::max) {
      combine<Byte>(inputs, first, count, truth, Max{}, acc);
    } else {
      combine<Byte>(inputs, first, count, truth, Min{}, acc);
    }
  };
  reduce_blocks<Byte, Byte>(elements, combine_bytes, make_finish<Byte, Byte>({}), output);
}

}  // namespace

void reduce_scalar(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements,
                   std::byte* output) {
  if (arithmetic.dtype == DType::boolean)
    return reduce_booleans(arithmetic.op, inputs, elements, output);
  const DType result = arithmetic.result.value_or(arithmetic.dtype);
  if (result != arithmetic.dtype && arithmetic.dtype == DType::i64)
    return visit_integer(result, [&](auto type) {
      reduce_as<std::int64_t, decltype(type)>(arithmetic, inputs, elements, output);
    });
  visit_integer(arithmetic.dtype, [&](auto type) {
    reduce_as<decltype(type)>(arithmetic, inputs, elements, output);
  });
  visit_real(arithmetic.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (is_half_type<T>) {
      if (result == DType::f32) return reduce_as<T, float>(arithmetic, inputs, elements, output);
      if (result == DType::f64) return reduce_as<T, double>(arithmetic, inputs, elements, output);
    }
    reduce_as<T>(arithmetic, inputs, elements, output);
  });
}

}  // namespace kolo::internal::reduction
