// What the examples' programs begin and end with.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace examples {

/// Runs `work` within a session, and returns the exit status. What it throws is printed with the
/// rank; the other ranks are told that this one leaves.
int run(int argc, char** argv, const std::function<void()>& work);

/// False if only help was asked for, which rank 0 printed. Throws std::runtime_error for a command
/// line that is wrong.
[[nodiscard]] bool parse(CLI::App& app, int argc, char** argv);

/// Each step allocates the same large tensors again. glibc would hand them back to the kernel in
/// between, and the kernel would clear fresh pages for the next step.
void keep_freed_memory();

}  // namespace examples
