// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kolo/error.hpp"

namespace kolo {
namespace {

constexpr const char* archive_key = "sampler";

}  // namespace

void DataLoaderSampler::set_shares(std::span<const std::int64_t> shares) {
  if (!shares.empty()) (void)sampler_->steps_left(shares);  // throws for shares that do not fit
  shares_->assign(shares.begin(), shares.end());
}

void DataLoaderSampler::reset(detail::OptionalSize new_size) {
  if (new_size && static_cast<std::int64_t>(*new_size) != examples_)
    throw InvalidArgument("kolo::DataLoaderSampler: the loader asks for " +
                          std::to_string(*new_size) + " examples, but the sampler has " +
                          std::to_string(examples_));
  share_ = shares_->empty()
               ? 0
               : static_cast<std::size_t>((*shares_)[static_cast<std::size_t>(sampler_->rank())]);
  indices_ = shares_->empty() ? sampler_->indices() : sampler_->indices(*shares_);
  next_ = 0;
}

detail::OptionalBatch DataLoaderSampler::next(std::size_t batch_size) {
  const std::size_t count = std::min(share_ == 0 ? batch_size : share_, indices_.size() - next_);
  if (count == 0) return {};
  std::vector<std::size_t> batch;
  for (const std::size_t end = next_ + count; next_ < end; ++next_)
    batch.push_back(static_cast<std::size_t>(indices_[next_]));
  return batch;
}

void DataLoaderSampler::save(::torch::serialize::OutputArchive& archive) const {
  archive.write(archive_key, c10::IValue(state()));
}

void DataLoaderSampler::load(::torch::serialize::InputArchive& archive) {
  c10::IValue saved;
  archive.read(archive_key, saved);
  load_state(saved.toStringRef());
}

}  // namespace kolo
