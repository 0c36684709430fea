// SPDX-License-Identifier: Apache-2.0
// The communication hook that sends approximations of low rank, by PowerSGD (Vogels et al., 2019).
//
// A gradient matrix M is approximated by left * right. The ranks sum M * transposed right, with the
// right factor of the last reduction, and make the columns of the sum orthonormal: this is the new
// left factor, the same on all ranks. Then they sum transposed left * M: the new right factor.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"
#include "kolo/error.hpp"
#include "training/hooks/bucket_memory.hpp"
#include "training/hooks/low_rank.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* rights_kind = "kolo.power_sgd.rights.1";
constexpr const char* errors_kind = "kolo.power_sgd.errors.1";

/// The memory of a bucket between its reductions. The buffers are reused.
struct PowerSgdMemory {
  std::vector<std::size_t> places;  // the tensors' places; empty after loading a checkpoint
  std::vector<float> rights;        // the last right factors, orthonormal; equal on all ranks
  std::vector<float> error;         // the error of this rank's approximations; may be empty
  std::vector<float> values;        // the gradients plus the errors
  std::vector<float> lefts;         // the left factors, and gradients that are not compressed
  std::vector<float> own_rights;    // the right factors of this rank's values
  std::vector<float> sums;          // the right factors, summed over the ranks
};

/// A tensor of a bucket, with the offsets of its elements and factors in the vectors of the bucket.
struct Part {
  LowRank matrix{};
  bool compressed = false;
  std::int64_t at = 0;
  std::int64_t left_at = 0;
  std::int64_t right_at = 0;

  /// The number of elements that the tensor adds to the first allreduce.
  [[nodiscard]] std::int64_t left_size() const {
    return compressed ? matrix.left_size() : matrix.size();
  }
};

Part layout_of(const TensorView& tensor, const PowerSgdOptions& options) {
  const std::int64_t elements = tensor.elements();
  const bool is_matrix = tensor.shape().dimensions() > 1 && elements > 0;
  std::int64_t rows = 1;
  // The first length above 1 gives the rows, so that leading lengths of 1 do not make one long row.
  if (is_matrix)
    for (const std::int64_t length : tensor.shape().lengths())
      if (rows == 1) rows = length;
  const std::int64_t columns = elements / rows;
  Part part;
  part.matrix = {rows, columns, std::min({std::int64_t{options.rank}, rows, columns})};
  const auto sent = static_cast<double>(part.matrix.left_size() + part.matrix.right_size());
  part.compressed = is_matrix && sent * options.min_compression <= static_cast<double>(elements);
  return part;
}

/// One reduction of a bucket.
class PowerSgdReduction {
 public:
  PowerSgdReduction(GradientBucket bucket, std::shared_ptr<PowerSgdMemory> memory,
                    const PowerSgdOptions& options)
      : bucket_(std::move(bucket)), memory_(std::move(memory)), options_(options) {
    for (const TensorView& tensor : bucket_.tensors) {
      Part part = layout_of(tensor, options);
      part.at = elements_;
      part.left_at = lefts_;
      part.right_at = rights_;
      elements_ += part.matrix.size();
      lefts_ += part.left_size();
      if (part.compressed) rights_ += part.matrix.right_size();
      parts_.push_back(part);
    }
  }

  Future<void> sum_lefts(const std::string& name) {
    PowerSgdMemory& m = *memory_;
    const bool feedback = options_.error_feedback;
    // Parameters that were frozen or unfrozen change the elements of a bucket. The error and the
    // right factors of other elements do not fit, so they start anew.
    const bool are_others = !m.places.empty() && m.places != bucket_.places;
    if (are_others || m.error.size() != size(elements_))
      m.error.assign(feedback ? size(elements_) : 0, 0.0F);
    m.places = bucket_.places;
    if (are_others || m.rights.size() != size(rights_)) {
      m.rights.assign(size(rights_), 0.0F);
      complete(m.rights);
    }
    m.values.resize(size(elements_));
    gather(bucket_.tensors, bucket_.prescale, feedback ? m.error.data() : nullptr, m.values.data());
    m.lefts.resize(size(lefts_));
    for (const Part& part : parts_) {
      const float* const values = m.values.data() + part.at;
      float* const left = m.lefts.data() + part.left_at;
      if (part.compressed) {
        multiply_by_right(part.matrix, values, m.rights.data() + part.right_at, left);
      } else {
        std::copy(values, values + part.matrix.size(), left);
      }
    }
    return sum(m.lefts, name);
  }

  Future<void> sum_rights(const std::string& name) {
    PowerSgdMemory& m = *memory_;
    m.own_rights.assign(size(rights_), 0.0F);
    finite_ = all_finite(m.lefts.data(), lefts_);
    for (const Part& part : parts_) {
      if (!part.compressed || !finite_) continue;
      float* const left = m.lefts.data() + part.left_at;
      orthonormalize_columns(part.matrix.rows, part.matrix.rank, left);
      multiply_by_left(part.matrix, m.values.data() + part.at, left,
                       m.own_rights.data() + part.right_at);
    }
    m.sums = m.own_rights;
    return sum(m.sums, name);
  }

  void finish() {
    PowerSgdMemory& m = *memory_;
    // All ranks have the same sums, so all take this branch. The errors stay as they were: a
    // gradient that overflowed must not stay in them.
    if (!finite_ || !all_finite(m.sums.data(), rights_)) {
      m.values.assign(size(elements_), std::numeric_limits<float>::quiet_NaN());
      scatter(m.values.data(), bucket_.tensors);
      return;
    }
    const auto postscale = static_cast<float>(bucket_.postscale);
    for (const Part& part : parts_) {
      const float* const left = m.lefts.data() + part.left_at;
      float* const values = m.values.data() + part.at;
      if (!part.compressed) {
        for (std::int64_t i = 0; i < part.matrix.size(); ++i) values[i] = left[i] * postscale;
        continue;
      }
      if (options_.error_feedback)
        subtract_product(part.matrix, values, left, m.own_rights.data() + part.right_at,
                         m.error.data() + part.at);
      expand(part.matrix, left, m.sums.data() + part.right_at, postscale, values);
    }
    scatter(m.values.data(), bucket_.tensors);
    m.rights.clear();
    if (!options_.warm_start) return;
    std::swap(m.rights, m.sums);
    complete(m.rights);
  }

 private:
  static std::size_t size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

  [[nodiscard]] Future<void> sum(std::vector<float>& elements, const std::string& name) const {
    return allreduce_async(elements,
                           {.name = name, .op = ReduceOp::sum, .process_set = bucket_.process_set});
  }

  // Makes the right factors orthonormal. A row of zeros would stay zero forever, so it is filled
  // with pseudo-random numbers, the same on all ranks.
  void complete(std::vector<float>& rights) const {
    std::uint64_t stream = options_.seed << 20U;
    for (const Part& part : parts_) {
      if (!part.compressed) continue;
      const auto& [rows, columns, rank] = part.matrix;
      float* const right = rights.data() + part.right_at;
      orthonormalize_rows(rank, columns, right);
      for (std::int64_t k = 0; k < rank; ++k, ++stream) {
        float* const row = right + k * columns;
        if (std::any_of(row, row + columns, [](float element) { return element != 0.0F; }))
          continue;
        fill_pseudo_randomly(stream, columns, row);
      }
      orthonormalize_rows(rank, columns, right);
    }
  }

  GradientBucket bucket_;
  std::shared_ptr<PowerSgdMemory> memory_;
  PowerSgdOptions options_;
  std::vector<Part> parts_;
  std::int64_t elements_ = 0;
  std::int64_t lefts_ = 0;
  std::int64_t rights_ = 0;
  bool finite_ = true;
};

class PowerSgdHook : public CommunicationHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options) : options_(options) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format(
        "power_sgd, rank {}, min_compression {}, warm_start {}, error_feedback {}, seed {}",
        options_.rank, options_.min_compression, options_.warm_start, options_.error_feedback,
        options_.seed);
  }

  [[nodiscard]] bool handles(std::span<const TensorView> bucket) const noexcept override {
    return are_real(bucket) &&
           std::any_of(bucket.begin(), bucket.end(), [&](const TensorView& tensor) {
             return layout_of(tensor, options_).compressed;
           });
  }

  HookStages reduce(GradientBucket bucket) override {
    auto& memory = memories_[bucket.name];
    if (!memory) memory = std::make_shared<PowerSgdMemory>();
    const auto reduction = std::make_shared<PowerSgdReduction>(std::move(bucket), memory, options_);
    return HookStages()
        .then([=](const std::string& name) { return reduction->sum_lefts(name); })
        .then([=](const std::string& name) { return reduction->sum_rights(name); })
        .then([=] { reduction->finish(); });
  }

  [[nodiscard]] StateDict state() const override {
    return state_of(rights_kind, all(&PowerSgdMemory::rights));
  }
  [[nodiscard]] StateDict per_rank_state() const override {
    return state_of(errors_kind, all(&PowerSgdMemory::error));
  }
  void load_state(const StateDict& state) override {
    BucketVectors rights = vectors_of(rights_kind, state);
    memories_.clear();
    load(std::move(rights), &PowerSgdMemory::rights);
  }
  void load_per_rank_state(const StateDict& state) override {
    load(vectors_of(errors_kind, state), &PowerSgdMemory::error);
  }

 private:
  using Member = std::vector<float> PowerSgdMemory::*;

  [[nodiscard]] BucketVectors all(Member member) const {
    BucketVectors vectors;
    for (const auto& [name, memory] : memories_)
      if (!(*memory.*member).empty()) vectors.emplace(name, *memory.*member);
    return vectors;
  }
  void load(BucketVectors vectors, Member member) {
    for (auto& [name, vector] : vectors) {
      auto& memory = memories_[name];
      if (!memory) memory = std::make_shared<PowerSgdMemory>();
      *memory.*member = std::move(vector);
    }
  }

  PowerSgdOptions options_;
  std::map<std::string, std::shared_ptr<PowerSgdMemory>> memories_;
};

}  // namespace

std::shared_ptr<CommunicationHook> power_sgd(const PowerSgdOptions& options) {
  if (options.rank < 1 || options.rank > 64)
    throw InvalidArgument(fmt::format("power_sgd: rank is {}, but must be 1 to 64", options.rank));
  if (!(options.min_compression > 1.0))
    throw InvalidArgument(fmt::format("power_sgd: min_compression is {}, but must be above 1",
                                      options.min_compression));
  return std::make_shared<PowerSgdHook>(options);
}

}  // namespace kolo
