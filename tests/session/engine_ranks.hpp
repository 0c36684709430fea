// SPDX-License-Identifier: Apache-2.0
// Engines of many ranks in one process, and operations that they submit.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kolo/error.hpp"
#include "session/engine/engine.hpp"
#include "thread_links.hpp"

namespace kolo::internal::test {

using session::Engine;
using session::OperationPtr;
using session::Topology;

class Ranks {
 public:
  explicit Ranks(int ranks, Settings settings = {.stall_warning = {}})
      : world_(std::make_shared<ThreadWorld>(ranks)) {
    settings.flight_recorder = 0;
    Topology topology;
    topology.size = topology.local_size = ranks;
    topology.node_of.assign(static_cast<std::size_t>(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      topology.rank = topology.local_rank = rank;
      engines_.push_back(std::make_shared<Engine>(settings, 1, topology,
                                                  std::make_unique<ThreadLinks>(world_, rank)));
      engines_.back()->start();
    }
  }

  [[nodiscard]] int messages() const { return world_->messages(); }
  [[nodiscard]] ThreadWorld& world() { return *world_; }

  /// Runs `body(engine)` for every rank, each on a thread, and then ends the sessions.
  void run(const std::function<void(Engine&)>& body) {
    std::vector<std::thread> threads;
    for (const auto& engine : engines_) {
      threads.emplace_back([&] {
        body(*engine);
        engine->shut_down(true, "");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

inline OperationPtr submit_sum(Engine& engine, const std::string& name, std::vector<double>& tensor,
                               bool waits = false) {
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f64, Shape(tensor.size())}};
  backend::BatchTensor member;
  member.input = member.output = tensor.data();
  member.dtype = DType::f64;
  member.rows = static_cast<std::int64_t>(tensor.size());
  return engine.submit({.name = name, .descriptor = descriptor, .members = {member}}, waits);
}

inline void wait(Engine& engine, const OperationPtr& operation) {
  EXPECT_TRUE(engine.wait(*operation, std::chrono::steady_clock::time_point::max()));
  if (operation->error()) std::rethrow_exception(operation->error());
}

/// The message that waiting for the operation throws.
inline std::string error_of(Engine& engine, const OperationPtr& operation) {
  try {
    wait(engine, operation);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace kolo::internal::test
