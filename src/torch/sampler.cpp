// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kolo/error.hpp"

namespace kolo {
namespace {

constexpr const char* archive_key = "sampler";

}  // namespace

void DataLoaderSampler::reset(detail::OptionalSize new_size) {
  if (new_size && static_cast<std::int64_t>(*new_size) != examples_)
    throw InvalidArgument("kolo::DataLoaderSampler: the loader asks for " +
                          std::to_string(*new_size) + " examples, but the sampler has " +
                          std::to_string(examples_));
  indices_ = sampler_->indices();
  next_ = 0;
}

detail::OptionalBatch DataLoaderSampler::next(std::size_t batch_size) {
  const std::size_t count = std::min(batch_size, indices_.size() - next_);
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
