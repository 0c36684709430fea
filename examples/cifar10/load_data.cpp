// SPDX-License-Identifier: Apache-2.0
#include "load_data.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <kolo/kolo.hpp>
#include <stdexcept>

#include "download.hpp"
#include "program.hpp"

namespace cifar10 {
namespace {

void say_where_to_get_it() {
  fmt::print(
      "No --data-dir given: training on generated images instead of CIFAR-10.\n"
      "To get CIFAR-10, run with --download DIR, or fetch and unpack it and give --data-dir:\n"
      "  {} ({} MB, MD5 {})\n",
      cifar10_archive.url, cifar10_archive.bytes >> 20, cifar10_archive.md5);
  std::fflush(stdout);
}

}  // namespace

Data load_data(const Options& options) {
  SharedOptions wanted = options;
  if (!options.download.empty()) {
    kolo::on_one_rank(/*root=*/0, [&] { download(cifar10_archive, options.download); });
    wanted.data_dir = options.download;
  }
  if (wanted.data_dir.empty() && kolo::rank() == 0) say_where_to_get_it();
  Data data = read_or_generate(wanted);
  examples::check_same_sizes(
      {static_cast<std::int64_t>(data.train.size()), static_cast<std::int64_t>(data.test.size())});
  if (data.train.size() < static_cast<std::size_t>(kolo::size())) {
    throw std::runtime_error(
        fmt::format("{} images cannot be shared by {} ranks", data.train.size(), kolo::size()));
  }
  return data;
}

}  // namespace cifar10
