// SPDX-License-Identifier: Apache-2.0
#include "load_data.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <kolo/kolo.hpp>
#include <stdexcept>

#include "download.hpp"
#include "program.hpp"
#include "stand_in.hpp"

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
  Data data;
  if (!options.data_dir.empty()) {
    kolo::on_every_rank([&] { data = read_cifar10(options.data_dir); });
  } else if (!options.download.empty()) {
    kolo::on_one_rank(/*root=*/0, [&] { download(cifar10_archive, options.download); });
    kolo::on_every_rank([&] { data = read_cifar10(options.download); });
  } else {
    if (kolo::rank() == 0) say_where_to_get_it();
    data = make_stand_in(options.stand_in_size, options.seed);
  }
  if (options.limit != 0) data.train.keep_first(options.limit);
  examples::check_same_sizes(
      {static_cast<std::int64_t>(data.train.size()), static_cast<std::int64_t>(data.test.size())});
  if (data.train.size() < static_cast<std::size_t>(kolo::size())) {
    throw std::runtime_error(
        fmt::format("{} images cannot be shared by {} ranks", data.train.size(), kolo::size()));
  }
  return data;
}

}  // namespace cifar10
