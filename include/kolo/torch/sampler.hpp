// SPDX-License-Identifier: Apache-2.0
// DataLoaderSampler: each rank's share of the data, for LibTorch's data loaders.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/data/samplers/base.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/training/sampler.hpp"

namespace kolo {

namespace detail {

using LoaderSampler = ::torch::data::samplers::Sampler<>;
template <typename Optional>
Optional argument_of(void (LoaderSampler::*)(Optional));
// LibTorch's optional, which is `std::optional` in newer versions.
using OptionalSize = decltype(argument_of(&LoaderSampler::reset));
using OptionalBatch = decltype(std::declval<LoaderSampler&>().next(0));

}  // namespace detail

/// A DistributedSampler for LibTorch's data loaders:
///
///     kolo::DataLoaderSampler sampler({.examples = 50000, .seed = 42});
///     auto loader = torch::data::make_data_loader(
///         std::move(dataset), sampler, torch::data::DataLoaderOptions(64).workers(2));
///     for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);  // another order in each epoch
///       for (const auto& batch : *loader) ...
///     }
///
/// A loader keeps a copy of its sampler. Copies share the DistributedSampler, so `set_epoch` and
/// `load_state` also set the copy in the loader: from its next loop on, the loader loads the rest
/// of that epoch. All ranks get equally many batches, except with Remainder::uneven.
///
/// To resume within an epoch, call `advance` after each step, save `state()`, and after
/// `load_state` do not call `set_epoch` for the epoch that `epoch()` names. The loader loads
/// batches ahead, so it cannot know which of them were used. `elastic::State` takes this object.
/// Not thread-safe.
class KOLO_EXPORT DataLoaderSampler : public ::torch::data::samplers::Sampler<> {
 public:
  /// Throws the errors of DistributedSampler's constructor.
  explicit DataLoaderSampler(const DistributedSamplerOptions& options)
      : sampler_(std::make_shared<DistributedSampler>(options)),
        shares_(std::make_shared<std::vector<std::int64_t>>()),
        examples_(options.examples) {}

  /// Moves to the start of an epoch.
  void set_epoch(std::int64_t epoch) { sampler_->begin_epoch(epoch); }
  /// As the functions of DistributedSampler.
  [[nodiscard]] std::int64_t epoch() const { return sampler_->epoch(); }
  [[nodiscard]] std::int64_t steps_left(std::int64_t batch_size) const {
    return sampler_->steps_left(batch_size);
  }
  void advance(std::int64_t batch_size) { sampler_->advance(batch_size); }
  [[nodiscard]] std::int64_t steps_left(std::span<const std::int64_t> shares) const {
    return sampler_->steps_left(shares);
  }
  [[nodiscard]] double weight(std::span<const std::int64_t> shares) const {
    return sampler_->weight(shares);
  }
  void advance(std::span<const std::int64_t> shares) { sampler_->advance(shares); }
  [[nodiscard]] std::string state() const { return sampler_->state(); }
  void load_state(const std::string& state) { sampler_->load_state(state); }
  void rejoin() { sampler_->rejoin(); }

  /// Gives the ranks batches of different sizes from the loader's next loop on: `shares` is that of
  /// DistributedSampler's functions, and empty for equal batches. The loader's own batch size and
  /// `drop_last` then have no meaning: leave `drop_last` at false. A rank that gets no example in
  /// the last step of an epoch has one batch fewer. Call it again after `rejoin`. Throws
  /// InvalidArgument as those functions do.
  void set_shares(std::span<const std::int64_t> shares);

  // The loader calls the functions below.

  /// Begins with the rest of the current epoch. Throws InvalidArgument for another size than the
  /// option `examples`.
  void reset(detail::OptionalSize new_size = {}) override;
  /// The next batch of this copy; none at the end of the epoch.
  [[nodiscard]] detail::OptionalBatch next(std::size_t batch_size) override;
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  std::shared_ptr<DistributedSampler> sampler_;  // shared by all copies, as is the next member
  std::shared_ptr<std::vector<std::int64_t>> shares_;  // empty: batches of the loader's size
  std::int64_t examples_;
  std::vector<std::int64_t> indices_{};  // the examples of the current loop
  std::size_t next_ = 0;                 // a position in `indices_`
  std::size_t share_ = 0;                // examples of a batch; 0: the loader's size
};

}  // namespace kolo
