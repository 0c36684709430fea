// SPDX-License-Identifier: Apache-2.0
// Runs a training program on this rank, and compares it with the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kolo/future.hpp"
#include "kolo/training.hpp"
#include "program.hpp"
#include "reference.hpp"
#include "surroundings.hpp"
#include "trainer.hpp"

namespace kolo::internal::journeys {

class Journey {
 public:
  /// `directory` is for checkpoints. Must be called without a session.
  Journey(const Program& program, int rank, Maker maker, std::filesystem::path directory);

  /// Throws Unexpected, or any other exception that was not expected.
  void run();
  /// The number of optimizer steps on this rank.
  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  void run_session(int ranks);
  void take_in();
  void check_after_session(std::ptrdiff_t descriptors) const;
  void keep_future();
  void check_kept();
  void check_signal();
  void train(int ranks);
  void restart_epoch();
  void make_trainers();
  void start_trainers();
  void broadcast_model(std::size_t number, int root);
  [[nodiscard]] bool run_epoch(const Epoch& epoch);
  [[nodiscard]] bool run_events(const Epoch& epoch, int step);
  void run_step(const Epoch& epoch, int step);
  void backward(const Epoch& epoch, int step, std::size_t number);
  void finish_step(const Epoch& epoch, int step, std::size_t number);
  void join_all(const Epoch& epoch);
  void run_hooks(const Epoch& epoch, int step, const Event& event);
  void check_metrics(const Epoch& epoch, int step);
  void check_weights(const Epoch& epoch);
  void check_start() const;
  void adopt_weights();
  void load_hooks(const Checkpoint& found, bool per_rank);
  void check_plateau(const Epoch& epoch);
  void end_epoch(const Epoch& epoch);
  void save_checkpoint();
  void load_checkpoint(const Checkpoint& found);
  void resume();
  Checkpoint first_checkpoint();
  void roll_back();
  [[nodiscard]] Replica state() const;
  void set_state(const Replica& replica);
  void stage(const std::string& what) const;

  const Program& program_;
  const int rank_;
  const Maker maker_;
  std::optional<Checkpointer> checkpoints_{};
  Helpers helpers_{};
  std::optional<SignalHandler> handler_{};
  std::vector<Future<std::vector<float>>> kept_{};  // futures of sessions that have ended

  Replica mine_{};
  std::vector<Replica> everybody_{};  // states in the reference at the start of the epoch
  std::map<int, std::vector<Replica>> at_start_of_{};  // states by epoch, for rollbacks
  int epoch_ = 0;
  int branch_ = 0;
  int visits_ = 0;        // number of epochs visited
  bool changed_ = false;  // the program's change of the session has happened
  bool rolled_back_ = false;
  bool returned_ = false;         // it has rolled back, and nothing was saved since
  std::set<std::size_t> over_{};  // events that ended a session
  std::int64_t saved_step_ = -1;
  std::filesystem::path first_saved_{};  // on rank 0
  std::int64_t steps_ = 0;

  // State within a session.
  int ranks_ = 0;
  std::unique_ptr<Reference> reference_{};
  std::vector<ProcessSet> sets_{};                           // process sets of this rank's models
  std::vector<std::shared_ptr<Scaler>> scalers_{};           // by model; null without a loss scale
  std::vector<std::shared_ptr<CommunicationHook>> hooks_{};  // by model; null without a hook
  std::vector<std::unique_ptr<Trainer>> trainers_{};
  std::optional<ReduceOnPlateau> plateau_{};
  std::optional<double> best_{};
};

}  // namespace kolo::internal::journeys
