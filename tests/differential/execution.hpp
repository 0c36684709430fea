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
  /// The intended operation; this rank may be the odd one, which submits another.
  Execution(const Operation& operation, const ProcessSet& set, int rank);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution() = default;

  [[nodiscard]] const Operation& operation() const { return meant_; }

  void submit();
  /// Submits and waits, by the function that does both where there is one.
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
  std::vector<Buffer> outputs_{};  // where it is not in place
  std::string text_{};
  bool in_place_ = false;
  bool waited_ = false;
  std::exception_ptr error_{};
  std::vector<Counts> counts_{};
  std::string complaint_{};
  // Last, so that they complete before the buffers that they use are destroyed.
  std::variant<Future<void>, Future<Counts>, Future<std::vector<Counts>>> future_{};
};

}  // namespace kolo::internal::differential
