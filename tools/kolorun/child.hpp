// SPDX-License-Identifier: Apache-2.0
// A process that kolorun has started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

/// What a child gets as standard input, output and error: these descriptors stay open here.
struct Streams {
  int in;
  int out;
  int error;
};

/// Starts the program with these variables beside those of kolorun, as the leader of a process
/// group of its own. It gets SIGTERM if the calling thread ends. Throws std::runtime_error if the
/// program cannot be run.
[[nodiscard]] pid_t start_child(const std::vector<std::string>& command,
                                const std::vector<std::string>& variables, const Streams& streams);

struct Pipe {
  node::FileDescriptor from{};
  node::FileDescriptor to{};
};
/// Throws std::runtime_error.
[[nodiscard]] Pipe make_pipe();

}  // namespace kolorun
