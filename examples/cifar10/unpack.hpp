// SPDX-License-Identifier: Apache-2.0
// Unpacks archives.
#pragma once

#include <filesystem>

namespace cifar10 {

/// Unpacks a .tar.gz into an existing directory. Throws std::runtime_error for a damaged archive,
/// for an entry that would be outside of the directory, and for an entry that is neither a file nor
/// a directory; the entries before it are on disk then.
void unpack(const std::filesystem::path& file, const std::filesystem::path& directory);

}  // namespace cifar10
