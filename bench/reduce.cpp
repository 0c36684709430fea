// SPDX-License-Identifier: Apache-2.0
// The speed of reductions in GB/s, counting the bytes of the inputs and of the output, per element
// type and number of inputs, compared with scalar code in the same run. Then the speed of
// conversions. Usage: bench-reduce [KIB], the size of one input; default: 256, which stays in the
// cache.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "base/dtype.hpp"
#include "base/elements.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Type {
  const char* name;
  kolo::DType dtype;
};

constexpr Type types[] = {{"f32", kolo::DType::f32}, {"f64", kolo::DType::f64},
                          {"f16", kolo::DType::f16}, {"bf16", kolo::DType::bf16},
                          {"i8", kolo::DType::i8},   {"i32", kolo::DType::i32},
                          {"i64", kolo::DType::i64}};

/// The best of several rounds, because other programs on the machine disturb it least.
template <typename Work>
double gigabytes_per_second(std::size_t bytes, Work work) {
  using Nanoseconds = std::chrono::duration<double, std::nano>;
  constexpr std::size_t bytes_per_round = 20'000'000;
  const std::size_t repeats = std::max<std::size_t>(1, bytes_per_round / bytes);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 10; ++round) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < repeats; ++i) work();
    best = std::min(best, Nanoseconds(Clock::now() - start).count());
  }
  return static_cast<double>(bytes * repeats) / best;
}

void print(const char* what, std::size_t inputs, double vectors, double scalar) {
  std::printf("%-12s %6zu %10.1f %10.1f %7.1f\n", what, inputs, vectors, scalar, vectors / scalar);
}

void measure_reductions(std::size_t bytes) {
  constexpr std::size_t max_inputs = 8;
  std::vector<std::vector<std::byte>> memory(max_inputs, std::vector<std::byte>(bytes));
  std::vector<std::byte> output(bytes);
  std::vector<const std::byte*> inputs;
  for (const auto& input : memory) inputs.push_back(input.data());
  for (const Type& type : types) {
    const kolo::internal::reduction::Arithmetic sum{.dtype = type.dtype};
    const auto elements = static_cast<std::int64_t>(bytes / kolo::internal::size_of(type.dtype));
    for (const std::size_t count : {2U, 3U, 4U, 8U}) {
      const kolo::internal::reduction::Inputs some(inputs.data(), count);
      const std::size_t touched = bytes * (count + 1);
      const double vectors = gigabytes_per_second(
          touched, [&] { kolo::internal::reduction::reduce(sum, some, elements, output.data()); });
      const double scalar = gigabytes_per_second(touched, [&] {
        kolo::internal::reduction::reduce_scalar(sum, some, elements, output.data());
      });
      print(type.name, count, vectors, scalar);
    }
  }
}

template <typename From, typename To>
void convert_scalar(const std::byte* from, std::int64_t elements, std::byte* to) {
  for (std::int64_t i = 0; i < elements; ++i)
    kolo::internal::store<To>(
        to, i,
        kolo::internal::rounded<To>(kolo::internal::computed(kolo::internal::load<From>(from, i))));
}

template <typename From, typename To>
void measure_conversion(const char* name, kolo::DType from_type, kolo::DType to_type,
                        std::size_t bytes) {
  const std::size_t elements = bytes / sizeof(float);
  const std::vector<std::byte> from(elements * sizeof(From));
  std::vector<std::byte> to(elements * sizeof(To));
  const auto length = static_cast<std::int64_t>(elements);
  const std::size_t touched = from.size() + to.size();
  const double vectors = gigabytes_per_second(touched, [&] {
    kolo::internal::fusion::convert(from.data(), from_type, length, to.data(), to_type);
  });
  const double scalar = gigabytes_per_second(
      touched, [&] { convert_scalar<From, To>(from.data(), length, to.data()); });
  print(name, 1, vectors, scalar);
}

}  // namespace

int main(int argc, char** argv) {
  using kolo::DType;
  const std::size_t kib = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 256;
  if (kib == 0) {
    std::fprintf(stderr, "usage: bench-reduce [KIB]\n");
    return 1;
  }
  const std::size_t bytes = kib * 1024;
  std::printf("GB/s, inputs of %zu KiB each\n", kib);
  std::printf("%-12s %6s %10s %10s %7s\n", "type", "inputs", "vectors", "scalar", "ratio");
  measure_reductions(bytes);
  measure_conversion<float, kolo::internal::F16>("f32 to f16", DType::f32, DType::f16, bytes);
  measure_conversion<kolo::internal::F16, float>("f16 to f32", DType::f16, DType::f32, bytes);
  measure_conversion<float, kolo::internal::BF16>("f32 to bf16", DType::f32, DType::bf16, bytes);
  measure_conversion<kolo::internal::BF16, float>("bf16 to f32", DType::bf16, DType::f32, bytes);
  measure_conversion<double, kolo::internal::F16>("f64 to f16", DType::f64, DType::f16, bytes);
  measure_conversion<kolo::internal::F16, double>("f16 to f64", DType::f16, DType::f64, bytes);
}
