// SPDX-License-Identifier: Apache-2.0
// One operation on this rank: submits it, waits for it, and compares it with the expected result.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data.hpp"
#include "program.hpp"

namespace kolo::internal::differential {

class Execution {
 public:
  /// `operation` is the intended operation; if this rank is the odd one, it submits another.
  Execution(const Operation& operation, const ProcessSet& set, int rank);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution() = default;

  [[nodiscard]] const Operation& operation() const { return meant_; }

  void submit();
  /// Submits and waits, by a synchronous function if there is one.
  void run();
  /// Describes an unexpected outcome; "" if there is none. Call once, after `submit` or `run`.
  [[nodiscard]] std::string finish();

 private:
  using Counts = std::vector<std::int64_t>;

  void try_what_is_refused();
  void submit_reduction();
  void submit_gathering();
  void submit_broadcast();
  [[nodiscard]] bool run_at_once();
  [[nodiscard]] GroupedAllreduceOptions group_options() const;
  [[nodiscard]] AllreduceOptions allreduce_options() const;
  [[nodiscard]] Allocator allocator(std::size_t tensor);

  void wait();
  [[nodiscard]] std::string check_success() const;
  [[nodiscard]] std::string check_failure(const std::exception_ptr& error) const;
  [[nodiscard]] std::string check_inputs() const;

  Operation meant_;
  Operation own_;
  ProcessSet set_;
  int rank_;
  std::vector<Buffer> inputs_{};
  std::vector<Buffer> outputs_{};  // if not in place
  std::string text_{};
  bool in_place_ = false;
  bool waited_ = false;
  std::exception_ptr error_{};
  std::vector<Counts> counts_{};
  std::string complaint_{};
  // Last, so that pending operations complete before their buffers are destroyed.
  std::variant<Future<void>, Future<Counts>, Future<std::vector<Counts>>> future_{};
};

}  // namespace kolo::internal::differential
