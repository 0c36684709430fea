// SPDX-License-Identifier: Apache-2.0
// Child processes of kolorun.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "node/file_descriptor.hpp"

namespace kolorun {

namespace node = kolo::internal::node;

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no other file
/// gets these numbers.
void open_standard_streams();
/// Raises the limit of descriptors as far as the system allows, because each process has a
/// connection. Children get the original limit.
void raise_descriptor_limit();

/// A child's standard input, output and error. These descriptors stay open in kolorun.
struct Streams {
  int in;
  int out;
  int error;
  bool ignores_sigterm = false;  // the program gets SIGHUP instead
};

/// Starts the program with the environment of kolorun and `variables`, as the leader of a process
/// group of its own, on these processors, or if there are none on those of kolorun. The child gets
/// SIGTERM, or SIGHUP, if the calling thread ends. Throws std::runtime_error if the program cannot
/// be run.
[[nodiscard]] pid_t start_child(const std::vector<std::string>& command,
                                const std::vector<std::string>& variables, const Streams& streams,
                                std::span<const int> processors = {});

struct Pipe {
  node::FileDescriptor from{};
  node::FileDescriptor to{};
};
/// Creates a pipe that children do not inherit. Throws std::runtime_error.
[[nodiscard]] Pipe make_pipe();

}  // namespace kolorun
