// SPDX-License-Identifier: Apache-2.0
// The message `Example` of TensorFlow.
#include "example.hpp"

#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

bool run(Bytes bytes) {
  tfrecord::Example example;
  try {
    example = tfrecord::parse_example(as_text(bytes));
  } catch (const tfrecord::ExampleError& error) {
    require(error.offset() <= bytes.size(), "a fault outside the message");
    return false;
  }
  const std::string once = tfrecord::serialize_example(example);
  const tfrecord::Example again = tfrecord::parse_example(once);
  require(again.size() == example.size() && tfrecord::serialize_example(again) == once,
          "an example is another one when it is written and read again");
  return !example.empty();
}

std::vector<Seed> seeds() {
  using tfrecord::Bytes, tfrecord::Floats, tfrecord::Integers, tfrecord::serialize_example;
  // Unpacked numbers, and unknown fields of every kind, which the decoder skips.
  const std::string single("\x0A\x10\x0A\x0E\x0A\x01i\x12\x09\x1A\x07\x08\x05\x08\xFF\x01\x10\x01",
                           18);
  const std::string floats(
      "\x0A\x10\x0A\x0E\x0A\x01"
      "f\x12\x09\x12\x07\x0D\x00\x00\x80\x3F\x10\x01",
      18);
  const std::string unknown("\x18\x07\x21\x00\x00\x00\x00\x00\x00\x00\x00\x2D\x00\x00\x00\x00", 16);
  return {{"bytes", serialize_example({{"image", Bytes{"abc", ""}}, {"none", Bytes{}}})},
          {"numbers", serialize_example({{"label", Integers{-1, 0, 300}}, {"x", Floats{0.5F}}})},
          {"nothing-of-a-kind", serialize_example({{"empty", {}}})},
          {"single-floats", floats},
          {"single-integers", single},
          {"unknown-fields", unknown + single}};
}

}  // namespace

const Target tfrecord_example_target{
    .name = "tfrecord_example", .max_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
