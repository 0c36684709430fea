// SPDX-License-Identifier: Apache-2.0
#include "backend/adasum.hpp"

#include <bit>

#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend {
namespace {

void scale(std::byte* data, DType dtype, double factor, std::int64_t elements) {
  const std::byte* const inputs[] = {data};
  reduction::reduce({.op = ReduceOp::sum, .dtype = dtype, .prescale = factor}, inputs, elements,
                    data);
}

}  // namespace

AdasumVector::AdasumVector(const BatchTensor& of, Compression compression)
    : tensor(&of), wire(fusion::wire_type(of.dtype, compression)) {}

void AdasumVector::read(const Batch& batch, std::int64_t offset, std::int64_t elements,
                        std::byte* vector) const {
  const auto* const input = static_cast<const std::byte*>(tensor->input);
  std::byte* const to = vector + offset * signed_size_of(wire);
  fusion::convert(input + offset * signed_size_of(tensor->dtype), tensor->dtype, elements, to,
                  wire);
  scale(to, wire, batch.kind.prescale, elements);
}

void AdasumVector::write(const Batch& batch, std::int64_t offset, std::int64_t elements,
                         std::byte* vector) const {
  auto* const output = static_cast<std::byte*>(tensor->output);
  std::byte* const from = vector + offset * signed_size_of(wire);
  scale(from, wire, batch.kind.postscale, elements);
  fusion::convert(from, wire, elements, output + offset * signed_size_of(tensor->dtype),
                  tensor->dtype);
}

std::vector<AdasumPair> adasum_pairs(int ranks) {
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  std::vector<AdasumPair> pairs;
  for (int extra = paired; extra < ranks; ++extra) pairs.push_back({extra - paired, extra});
  for (int distance = 1; distance < paired; distance *= 2)
    for (int first = 0; first < paired; first += 2 * distance)
      pairs.push_back({first, first + distance});
  return pairs;
}

}  // namespace kolo::internal::backend
