// SPDX-License-Identifier: Apache-2.0
// TFRecord files: lengths, checksums, records.
#include <algorithm>

#include "bytes.hpp"
#include "memory_file.hpp"
#include "record_file.hpp"
#include "target.hpp"
#include "tfrecord.hpp"

namespace kolo::internal::fuzz {

using tfrecord::from_little_endian, tfrecord::to_little_endian;

void repair_records(std::span<std::uint8_t> file) {
  constexpr std::size_t header = 12, checksum = 4, far = 1 << 16;
  while (file.size() >= header + checksum) {
    const auto put = [&](std::size_t at, const std::string& bytes) {
      std::ranges::copy(as_input(bytes), file.subspan(at).begin());
    };
    const std::size_t most = file.size() - header - checksum;
    auto length = from_little_endian<std::uint64_t>(as_text(file).substr(0, 8));
    if (length > far) return;
    if (length > most) put(0, to_little_endian<std::uint64_t>(length = most));
    put(8, to_little_endian(tfrecord::masked_crc32c(as_text(file).substr(0, 8))));
    put(header + length,
        to_little_endian(tfrecord::masked_crc32c(as_text(file).substr(header, length))));
    file = file.subspan(header + length + checksum);
  }
}

std::string write_records(const std::vector<std::string>& records) {
  static MemoryFile file;
  tfrecord::RecordWriter writer(file.path());
  for (const std::string& record : records) writer.write(record);
  writer.close();
  return file.contents();
}

namespace {

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  std::vector<std::string> records;
  try {
    tfrecord::RecordReader reader(file.path());
    while (auto record = reader.next()) records.push_back(std::move(*record));
  } catch (const tfrecord::RecordError& error) {
    require(error.offset() <= bytes.size(), "a fault outside the file");
    return false;
  }
  require(write_records(records) == as_text(bytes),
          "a file of records is another one when it is written again");
  return !records.empty();
}

std::vector<Seed> seeds() {
  return {{"empty-record", write_records({""})},
          {"one", write_records({"record"})},
          {"three", write_records({"first", "", std::string(40, 'x')})}};
}

}  // namespace

const Target tfrecord_file_target{.name = "tfrecord_file",
                                  .max_bytes = 256,
                                  .run = run,
                                  .seeds = seeds,
                                  .repair = repair_records};

}  // namespace kolo::internal::fuzz
