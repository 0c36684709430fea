// SPDX-License-Identifier: Apache-2.0
// The frame that the examples' programs share: start, command line, and checks of the data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <vector>

namespace CLI {
class App;
}

namespace examples {

/// A command line that cannot be used.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Runs `work` within a session and returns the exit status. Prints an exception of `work` with the
/// rank, except that only rank 0 prints a UsageError; the other ranks learn that this one leaves.
int run(int argc, char** argv, const std::function<void()>& work);
/// The same, but calls `prepare` before the session. If it returns false, no session begins.
int run(int argc, char** argv, const std::function<bool()>& prepare,
        const std::function<void()>& work);

/// Returns false for --help, after rank 0 has printed it. Throws UsageError.
[[nodiscard]] bool parse(CLI::App& app, int argc, char** argv);

/// Makes glibc keep freed memory. Each step allocates the same large tensors: without this, glibc
/// returns them to the kernel, which clears fresh pages for the next step.
void keep_freed_memory();

/// Collective. Rank 0 calls `make` unless the directory exists; the other ranks wait for it.
void make_once(const std::filesystem::path& directory, const std::function<void()>& make);

/// Collective. Throws kolo::Error on every rank if a rank has data sets of other sizes than rank 0:
/// such ranks would take different numbers of steps, and wait for each other.
void check_same_sizes(const std::vector<std::int64_t>& sizes);

}  // namespace examples
