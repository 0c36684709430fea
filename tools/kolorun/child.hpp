// SPDX-License-Identifier: Apache-2.0
// A process that kolorun has started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

/// Opens /dev/null for those of descriptors 0, 1 and 2 that are closed. Others would get their
/// numbers.
void open_standard_streams();
/// As many descriptors as the system allows: there is a connection for each process. Children get
/// the limit of before.
void raise_descriptor_limit();

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
