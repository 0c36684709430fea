// What the targets of TFRecord files share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kolo::fuzz {

/// Of each record whose length can be believed: its checksums become right. The length of the
/// last becomes what is there, unless it is off by far.
void repair_records(std::span<std::uint8_t> file);

/// A file as `tfrecord::RecordWriter` makes it.
[[nodiscard]] std::string write_records(const std::vector<std::string>& records);

}  // namespace kolo::fuzz
