// SPDX-License-Identifier: Apache-2.0
// Detects objects in images with RetinaNet, on COCO:
//
//     mpirun -np 2 retinanet --data coco --pictures found
//
// The lines that make it distributed are marked KOLO here, in trainer.cpp and in gathering.cpp.
#include "trainer.hpp"  // first, as clang 14 needs it

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "anchors.hpp"
#include "generator.hpp"
#include "program.hpp"

namespace {

using namespace retinanet;

struct Data {
  DataSet train, val;
};

Data read_data(const Options& options) {
  if (options.generate > 0) {
    examples::make_once(options.data,
                        [&] { generate(options.data, options.generate, options.seed); });
  }
  Data data;
  // KOLO: if one rank cannot read the data, every rank throws.
  kolo::on_every_rank([&] {
    data.train = read_part(options.data, "train");
    data.val = read_part(options.data, "val");
    if (data.train.categories != data.val.categories) {
      throw std::runtime_error(
          fmt::format("'{}': train and val have different categories", options.data.string()));
    }
  });
  examples::check_same_sizes({static_cast<std::int64_t>(data.train.pictures.size()),
                              static_cast<std::int64_t>(data.val.pictures.size())});
  return data;
}

void print_sizes(const Options& options, const Data& data) {
  fmt::print(
      "{} pictures with {} objects to train on, {} with {} to validate, {} categories; "
      "{} anchors\n",
      data.train.pictures.size(), data.train.objects(), data.val.pictures.size(),
      data.val.objects(), data.train.categories.size(),
      make_anchors(options.image_size, options.anchor_size).size());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    const auto options = parse_options(argc, argv);
    if (!options) return;
    at::set_num_threads(options->threads);
    const Data data = read_data(*options);
    if (kolo::rank() == 0) print_sizes(*options, data);
    Trainer(*options, data.train, data.val).run();
  });
}
