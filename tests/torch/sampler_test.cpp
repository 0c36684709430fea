// SPDX-License-Identifier: Apache-2.0
// Samplers in the data loaders of LibTorch.
#include "support.hpp"

#include <sstream>
#include <string>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

class DataLoaderSamplerTest : public TorchTest {};

/// Its examples are their own indices.
struct Numbers : ::torch::data::Dataset<Numbers> {
  ::torch::data::Example<> get(std::size_t index) override {
    return {::torch::full({}, static_cast<std::int64_t>(index)), ::torch::zeros({})};
  }
  kolo::detail::OptionalSize size() const override { return 24; }
};

auto numbers_loader(const DataLoaderSampler& sampler, std::size_t workers) {
  return ::torch::data::make_data_loader(Numbers().map(::torch::data::transforms::Stack<>()),
                                         sampler,
                                         ::torch::data::DataLoaderOptions(2).workers(workers));
}

template <typename Loader>
std::vector<std::int64_t> numbers_of(Loader& loader, DataLoaderSampler& sampler, int max_batches) {
  std::vector<std::int64_t> numbers;
  for (const auto& batch : loader) {
    for (std::int64_t i = 0; i < batch.data.size(0); ++i)
      numbers.push_back(batch.data[i].template item<std::int64_t>());
    sampler.advance(2);
    if (--max_batches == 0) break;
  }
  return numbers;
}

TEST_F(DataLoaderSamplerTest, GivesALoaderTheSharesOfARank) {
  for (const std::size_t workers : {0U, 2U}) {
    DataLoaderSampler sampler({.examples = 24, .seed = 3});
    const DistributedSampler reference({.examples = 24, .seed = 3});
    const auto loader = numbers_loader(sampler, workers);
    for (int epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      EXPECT_EQ(numbers_of(*loader, sampler, 100), reference.indices(epoch));
    }
  }
  EXPECT_NE(DistributedSampler({.examples = 24}).indices(0),
            DistributedSampler({.examples = 24}).indices(1));
  DataLoaderSampler sampler({.examples = 24});
  EXPECT_THROW(sampler.reset(23), InvalidArgument);
}

TEST_F(DataLoaderSamplerTest, ResumesALoaderWithinAnEpoch) {
  DataLoaderSampler whole({.examples = 24, .seed = 3});
  const auto loader = numbers_loader(whole, 0);
  whole.set_epoch(2);
  std::vector<std::int64_t> numbers = numbers_of(*loader, whole, 2);
  const std::string saved = whole.state();

  DataLoaderSampler resumed({.examples = 24, .seed = 99});
  const auto again = numbers_loader(resumed, 0);
  resumed.load_state(saved);
  EXPECT_EQ(resumed.epoch(), 2);
  const std::vector<std::int64_t> rest = numbers_of(*again, resumed, 100);
  numbers.insert(numbers.end(), rest.begin(), rest.end());
  EXPECT_EQ(numbers, DistributedSampler({.examples = 24, .seed = 3}).indices(2));

  std::stringstream archive;
  ::torch::serialize::OutputArchive written;
  whole.save(written);
  written.save_to(archive);
  ::torch::serialize::InputArchive read;
  read.load_from(archive);
  DataLoaderSampler copy({.examples = 24});
  copy.load(read);
  EXPECT_EQ(copy.state(), whole.state());
}

// Rank 0 has 3 examples of a step, the others 1. The loader's own batch size is 2.
TEST_F(DataLoaderSamplerTest, GivesALoaderUnequalShares) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(size()), 1);
  shares[0] = 3;
  for (const std::size_t workers : {0U, 2U}) {
    DataLoaderSampler sampler({.examples = 24, .seed = 3});
    const auto loader = numbers_loader(sampler, workers);
    sampler.set_shares(shares);
    const DistributedSampler reference({.examples = 24, .seed = 3});
    const std::vector<std::int64_t> expected = reference.indices(shares);
    std::vector<std::int64_t> numbers;
    auto next = loader->begin();
    for (; sampler.steps_left(shares) > 0; sampler.advance(shares)) {
      if (sampler.weight(shares) == 0.0) continue;
      const auto& batch = *next;
      EXPECT_LE(batch.data.size(0), rank() == 0 ? 3 : 1);
      for (std::int64_t i = 0; i < batch.data.size(0); ++i)
        numbers.push_back(batch.data[i].item<std::int64_t>());
      ++next;
    }
    EXPECT_TRUE(next == loader->end());
    EXPECT_EQ(numbers, expected);
    sampler.set_epoch(1);
    sampler.set_shares({});
    EXPECT_EQ(numbers_of(*loader, sampler, 100), reference.indices(1));
    EXPECT_EQ(sampler.steps_left(shares), 0);
  }
  DataLoaderSampler sampler({.examples = 24});
  shares.push_back(1);
  EXPECT_THROW(sampler.set_shares(shares), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::testing_support
