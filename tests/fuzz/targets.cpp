// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "target.hpp"

namespace kolo::internal::fuzz {

std::span<const Target> targets() {
  static const std::array all{startup_reports_target,
                              checkpoint_file_target,
                              cifar10_file_target,
                              connection_target,
                              diagnosis_target,
                              flight_record_target,
                              gradient_set_target,
                              handshake_target,
                              hook_state_target,
                              json_text_target,
                              rendezvous_target,
                              ring_target,
                              safetensors_target,
                              safetensors_file_target,
                              safetensors_index_target,
                              settings_target,
                              sizes_target,
                              standing_target,
                              state_text_target,
                              status_target,
                              stranger_target,
                              tfrecord_example_target,
                              tfrecord_file_target,
                              tfrecord_images_target,
                              wire_target};
  return all;
}

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  return found == targets().end() ? nullptr : &*found;
}

}  // namespace kolo::internal::fuzz
