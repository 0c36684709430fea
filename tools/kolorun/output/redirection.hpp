// SPDX-License-Identifier: Apache-2.0
// Where the output of a process goes: to kolorun's own, to files, or through kolorun.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "kolorun/options.hpp"
#include "node/file_descriptor.hpp"
#include "rendezvous/message.hpp"
#include "tagged_stream.hpp"

namespace kolorun {

struct Redirection {
  node::FileDescriptor out{};  // not valid: kolorun's
  node::FileDescriptor error{};
  std::shared_ptr<LastLines> last_lines{};  // the end of its standard error, if kolorun copies it
  std::string error_file{};                 // the file of its standard error, if there is one
};

/// Adds to `streams` what kolorun is to copy. Throws std::runtime_error if a file cannot be
/// written.
[[nodiscard]] Redirection redirect(const Options& options, const rendezvous::Launch& launch,
                                   std::list<TaggedStream>& streams);

}  // namespace kolorun
