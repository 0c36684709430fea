// SPDX-License-Identifier: Apache-2.0
// Built in place of download.cpp if libcurl, libarchive or OpenSSL is not found.
#include <stdexcept>

#include "download.hpp"

namespace cifar10 {

void download(const Archive& archive, const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / archive.content)) return;
  throw std::runtime_error(
      "this program was built without libcurl, libarchive or OpenSSL and cannot download; fetch " +
      archive.url + " and unpack it into '" + directory.string() + "'");
}

}  // namespace cifar10
