// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/safetensors_file.hpp"

#include <algorithm>

#include "training/bytes.hpp"

namespace kolo::internal {

SafetensorsHeader read_header(File& file) {
  const std::uint64_t total = file.size();
  try {
    const std::string start = file.read(std::min<std::uint64_t>(header_start_bytes, total));
    const std::uint64_t length = header_length(start, total);
    // A hostile length may be below that of the part of the JSON that was read already.
    std::string text = start.substr(sizeof(std::uint64_t), length);
    const std::size_t have = text.size();
    text.resize(length);
    file.read(text.data() + have, length - have);
    return parse_header(text, total - sizeof(std::uint64_t) - length);
  } catch (const SafetensorsFault& fault) {
    file.refuse(fault.fault(), fault.what());
  }
}

void read_data(File& file, const SafetensorsHeader& header, const std::vector<char*>& places) {
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const std::uint64_t bytes = header.tensors[i].end - header.tensors[i].begin;
    file.read(places[i], bytes);
    checksum = crc32({places[i], bytes}, checksum);
  }
  const auto stated = header.metadata.find(std::string(data_checksum_key));
  if (stated != header.metadata.end() && stated->second != print_checksum(checksum))
    file.refuse(CheckpointFault::corrupt, "is corrupt: the checksum of its data is wrong");
}

void set_data_checksum(SafetensorsHeader& header, const std::vector<std::string_view>& data) {
  const auto stated = header.metadata.find(std::string(data_checksum_key));
  if (stated == header.metadata.end()) return;
  std::uint32_t checksum = 0;
  for (const std::string_view bytes : data) checksum = crc32(bytes, checksum);
  stated->second = print_checksum(checksum);
}

void write_safetensors(const std::filesystem::path& path, const std::string& kind,
                       SafetensorsHeader header, const std::vector<std::string_view>& data) {
  set_data_checksum(header, data);
  const std::string start = print_header(header);
  write_file(path, kind, [&](File& file) {
    file.write(start);
    for (const std::string_view bytes : data) file.write(bytes);
  });
}

}  // namespace kolo::internal
