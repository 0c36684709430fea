// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 as TFRecords: the examples in the records must be labeled images.
#include "images.hpp"

#include "example.hpp"
#include "memory_file.hpp"
#include "record_file.hpp"
#include "target.hpp"
#include "tfrecord.hpp"

namespace kolo::internal::fuzz {
namespace {

std::string image_of(char first, std::int64_t label) {
  std::string planes(cifar10::image_bytes, first);
  for (std::size_t i = 0; i < planes.size(); i += 3) planes[i] = static_cast<char>(i / 3);
  return tfrecord::serialize_example(
      {{"image", tfrecord::Bytes{planes}}, {"label", tfrecord::Integers{label}}});
}

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  cifar10::Dataset first;
  try {
    tfrecord::append_images(first, file.path());
  } catch (const tfrecord::RecordError&) {
    return false;
  }
  require(first.pixels.size() == first.size() * cifar10::image_bytes, "an image without its label");
  for (const std::uint8_t label : first.labels)
    require(label < cifar10::classes, "a label that there is not");
  tfrecord::write_images(file.path(), first, 0, first.size());
  cifar10::Dataset second;
  tfrecord::append_images(second, file.path());
  require(first.pixels == second.pixels && first.labels == second.labels,
          "images are others when they are written and read again");
  return first.size() > 0;
}

std::vector<Seed> seeds() {
  return {{"one", write_records({image_of('\x01', 0)})},
          {"two", write_records({image_of('\x70', 9), image_of('\x00', 4)})}};
}

}  // namespace

const Target tfrecord_images_target{.name = "tfrecord_images",
                                    .max_bytes = 2 * 3200,
                                    .run = run,
                                    .seeds = seeds,
                                    .repair = repair_records};

}  // namespace kolo::internal::fuzz
