// SPDX-License-Identifier: Apache-2.0
#include "features.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace kolo::internal::journeys {

std::string to_string(const Features& features) {
  std::string text;
  for (std::size_t i = 0; i < feature_names.size(); ++i) {
    if (!features.has(static_cast<Feature>(i))) continue;
    if (!text.empty()) text += ',';
    text += feature_names[i];
  }
  return text;
}

Features features_of(const std::string& names) {
  Features features;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto found = std::ranges::find(feature_names, name);
    if (found == feature_names.end()) throw std::invalid_argument("unknown feature " + name);
    features.add(static_cast<Feature>(found - feature_names.begin()));
  }
  return features;
}

}  // namespace kolo::internal::journeys
