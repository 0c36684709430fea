// SPDX-License-Identifier: Apache-2.0
// Runs a program on this rank, within an open session.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "execution.hpp"
#include "program.hpp"
#include "support/random.hpp"

namespace kolo::internal::differential {

class Runner {
 public:
  /// Requires an open session.
  Runner(const Program& program, int rank);

  /// Unexpected results on this rank, one per line.
  [[nodiscard]] std::vector<std::string> run();
  [[nodiscard]] std::int64_t operations() const { return operations_; }

 private:
  void run(const Phase& phase);
  void change(const SetChange& change);
  void remove(const SetChange& change);
  [[nodiscard]] std::vector<Execution*> prepare(const std::vector<Operation>& operations);
  [[nodiscard]] std::vector<std::vector<Execution*>> share_out(
      const std::vector<Execution*>& executions, const Phase& phase);
  void restore_order_of_unnamed(std::vector<Execution*>& executions) const;
  void submit(const std::vector<Execution*>& executions, bool in_step);
  void finish(std::vector<Execution*> executions, std::uint64_t seed);
  void check_last(int last);
  void complain(const std::string& text);

  const Program& program_;
  int rank_;
  campaign::Random random_;  // differs between ranks
  std::vector<ProcessSet> sets_{world()};
  std::vector<std::unique_ptr<Execution>> executions_{};  // in the current phase
  std::size_t phase_ = 0;
  std::int64_t operations_ = 0;
  std::mutex mutex_;  // guards complaints_
  std::vector<std::string> complaints_{};
};

/// Runs the program on all ranks of the open session and prints unexpected results. Throws if any
/// rank has one. Returns the number of operations of this rank.
std::int64_t run_program(const Program& program);

}  // namespace kolo::internal::differential
