// SPDX-License-Identifier: Apache-2.0
#include "matching.hpp"

#include <algorithm>
#include <cstddef>

namespace retinanet {
namespace {

constexpr double min_overlap_to_find = 0.5;
constexpr double min_overlap_to_ignore = 0.4;
constexpr std::size_t none = static_cast<std::size_t>(-1);

bool is_looked_for(const Object& object) {
  return !object.crowd && object.box.width() > 0.0 && object.box.height() > 0.0;
}

// Assigns objects, identified by index, to anchors.
class Matching {
 public:
  Matching(const std::vector<Box>& anchors, const std::vector<Object>& objects)
      : anchors_(anchors),
        objects_(objects),
        object_of_(anchors.size(), none),
        best_(anchors.size(), 0.0) {
    take_by_overlap();
    serve_those_left_out();
  }

  [[nodiscard]] Targets targets() const {
    Targets targets{.labels = std::vector<std::int64_t>(anchors_.size(), background),
                    .offsets = std::vector<float>(anchors_.size() * 4, 0.0F)};
    for (std::size_t i = 0; i < anchors_.size(); ++i) {
      if (object_of_[i] == none) {
        if (best_[i] >= min_overlap_to_ignore || is_in_crowd(anchors_[i]))
          targets.labels[i] = ignored;
        continue;
      }
      const Object& object = objects_[object_of_[i]];
      const Offsets offsets = encode(anchors_[i], object.box);
      targets.labels[i] = object.category;
      float* place = targets.offsets.data() + 4 * i;
      for (const double value : {offsets.x, offsets.y, offsets.width, offsets.height}) {
        *place++ = static_cast<float>(value);
      }
      ++targets.found;
    }
    return targets;
  }

 private:
  void take_by_overlap() {
    for (std::size_t k = 0; k < objects_.size(); ++k) {
      if (!is_looked_for(objects_[k])) continue;
      for (std::size_t i = 0; i < anchors_.size(); ++i) {
        const double shared = overlap(anchors_[i], objects_[k].box);
        if (shared <= best_[i]) continue;
        best_[i] = shared;
        object_of_[i] = shared >= min_overlap_to_find ? k : none;
      }
    }
  }

  void serve_those_left_out() {
    std::vector<bool> served(objects_.size(), false);
    for (const std::size_t object : object_of_) {
      if (object != none) served[object] = true;
    }
    for (std::size_t k = 0; k < objects_.size(); ++k) {
      if (served[k] || !is_looked_for(objects_[k])) continue;
      const std::size_t anchor = best_free_anchor(objects_[k].box);
      if (anchor != none) object_of_[anchor] = k;
    }
  }

  [[nodiscard]] std::size_t best_free_anchor(const Box& box) const {
    double best_overlap = 0.0;
    std::size_t best = none;
    for (std::size_t i = 0; i < anchors_.size(); ++i) {
      if (object_of_[i] != none) continue;
      const double shared = overlap(anchors_[i], box);
      if (shared <= best_overlap) continue;
      best_overlap = shared;
      best = i;
    }
    return best;
  }

  [[nodiscard]] bool is_in_crowd(const Box& anchor) const {
    return std::any_of(objects_.begin(), objects_.end(), [&](const Object& object) {
      return object.crowd && part_inside(anchor, object.box) >= 0.5;
    });
  }

  const std::vector<Box>& anchors_;
  const std::vector<Object>& objects_;
  std::vector<std::size_t> object_of_;  // index of each anchor's object
  std::vector<double> best_;            // overlap of each anchor with any object
};

}  // namespace

Targets match(const std::vector<Box>& anchors, const std::vector<Object>& objects) {
  return Matching(anchors, objects).targets();
}

}  // namespace retinanet
