// SPDX-License-Identifier: Apache-2.0
// One rank is lost in its step, in the way that the first argument names, while the others gather
// the parameters of a ShardedOptimizer. The others print which rank is missing.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"
#include "kolo/sharded_optimizer.hpp"

namespace {

constexpr int last_step = 3;

class Trainer {
 public:
  Trainer(std::string how, bool leaves) : how_(std::move(how)), leaves_(leaves) {}

  std::vector<kolo::NamedTensor> gradients() { return {{"w", gradient_}, {"v", other_gradient_}}; }
  std::vector<kolo::NamedTensor> parameters() { return {{"w", weight_}, {"v", other_weight_}}; }

  void step(std::span<const kolo::Shard> shards) {
    for (const kolo::Shard& shard : shards) {
      std::vector<float>& weight = shard.parameter == 0 ? weight_ : other_weight_;
      for (std::int64_t k = shard.begin; k < shard.end; ++k)
        weight[static_cast<std::size_t>(k)] += 1.0F;
    }
    if (++steps_ == last_step && leaves_) leave();
  }

 private:
  void leave() const {
    if (how_ == "killed") std::raise(SIGKILL);
    if (how_ == "exit") std::exit(3);
    throw std::runtime_error("thrown on purpose");
  }

  std::string how_;
  bool leaves_;
  int steps_ = 0;
  std::vector<float> weight_ = std::vector<float>(1 << 20);
  std::vector<float> gradient_ = std::vector<float>(1 << 20);
  std::vector<float> other_weight_ = std::vector<float>(3);
  std::vector<float> other_gradient_ = std::vector<float>(3);
};

void train(const std::string& how, int leaver, kolo::Sharding sharding) {
  const kolo::Session session;
  Trainer trainer(how, kolo::rank() == leaver);
  kolo::ShardedOptimizer optimizer(trainer, {}, sharding);
  try {
    for (int step = 0; step < last_step; ++step) optimizer.step();
  } catch (const kolo::PeerLeft& error) {
    std::printf("rank %d misses rank %d: %s\n", kolo::rank(), error.ranks().at(0), error.what());
    std::fflush(stdout);
    throw;
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    train(argv[1], std::atoi(argv[2]),
          std::string(argv[3]) == "state" ? kolo::Sharding::state
                                          : kolo::Sharding::state_and_gradients);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
