// SPDX-License-Identifier: Apache-2.0
// The half of the codec that reads bytes. The verifier of FlatBuffers checks offsets and required
// fields, but not values. So each value is checked where it is read, and later code can rely on it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/dtype.hpp"
#include "base/enumerators.hpp"
#include "negotiation/wire/codec.hpp"
#include "negotiation/wire/layout.hpp"

namespace kolo::internal::negotiation {
namespace {

template <typename T>
using Vector = flatbuffers::Vector<T>;

void require(bool holds, const char* otherwise) {
  if (!holds) throw ProtocolError(otherwise);
}

/// Rejects values that the schema allows but no correct rank sends.
class ValueChecks {
 public:
  /// `ranks`: the size of the world.
  explicit ValueChecks(int ranks) : ranks_(ranks) {}

  template <typename Item>
  void check(const Item& item) const {
    if constexpr (requires { item.set; }) require(item.set >= 0, "a process set without a number");
  }

  void check(const Descriptor& descriptor) const {
    require(std::isfinite(descriptor.prescale) && std::isfinite(descriptor.postscale),
            "a scale that is not finite");
    require_rank_or_none(descriptor.root);
    std::int64_t elements = 0;
    for (const TensorSpec& tensor : descriptor.tensors) {
      const std::optional<std::int64_t> extent = extent_of(tensor.shape.lengths());
      require(extent && *extent <= max_tensor_elements - elements, "a shape that no tensor has");
      elements += *extent;
    }
  }

  void check(const Variant& variant) const {
    require(!variant.ranks.empty(), "a descriptor that no rank submitted");
  }

  void check(const Readiness& readiness) const {
    require(!readiness.variants.empty(), "readiness without a descriptor");
  }

  /// A rank never sends its own error: the other ranks see that the rank has left.
  void check(const Failure& failure) const {
    require(failure.kind != FailureKind::backend, "a failure that no rank reports to others");
  }

  void check(const Departure& departure) const { require_rank(departure.rank); }
  void check(const JoinEntry& join) const { require_rank(join.last); }
  void check(const RankStatus& status) const { require_rank_or_none(status.rank); }
  void check(const ReadinessReport& report) const {
    for (const int rank : report.joins) require_rank(rank);
  }

  /// With a longer interval, a rank would not notice a silent sender in time.
  void check(const Heartbeat& heartbeat) const {
    require_rank_or_none(heartbeat.unresponsive_ancestor);
    require(heartbeat.interval <= Heartbeat::max_interval, "a heartbeat that no rank sends");
  }

  void check(const RankPace& pace) const {
    require_rank(pace.rank);
    require(pace.step.count() >= 0 && pace.computing.count() >= 0, "a pace that no rank sends");
  }
  void check(const OperationPace& pace) const { require_rank(pace.slowest); }

  /// Only these kinds of failures end a session. The others concern single operations.
  void check(const ControlMessage& message) const {
    if (const auto* failure = std::get_if<Failure>(&message.body))
      require(failure->kind == FailureKind::peer_left || failure->kind == FailureKind::stalled,
              "a failure that ends no session");
  }

  void check(const wire::RankRange& range) const {
    require_rank(range.first());
    require_rank(range.last());
    require(range.first() <= range.last(), "a range of ranks that is none");
  }

 private:
  void require_rank(int rank) const {
    require(rank >= 0 && rank < ranks_, "a rank that the world does not have");
  }
  void require_rank_or_none(int rank) const {
    if (rank != -1) require_rank(rank);
  }

  int ranks_;
};

/// Has one overload of `read` for each kind of field. An absent field leaves the member empty or at
/// its default.
class MessageReader : ValueChecks {
 public:
  using ValueChecks::ValueChecks;

  template <typename Number>
    requires std::is_arithmetic_v<Number>
  static void read(Number in, Number& out) { out = in; }

  template <typename Period>
  static void read(std::int64_t in, std::chrono::duration<std::int64_t, Period>& out) {
    out = std::chrono::duration<std::int64_t, Period>(in);
    constexpr std::chrono::years max{30};  // so that adding several times cannot overflow
    require(in >= 0 && out <= max, "a time that no rank waits");
  }

  static void read(std::int64_t in, std::optional<CacheSlot>& out) {
    require(in <= std::numeric_limits<CacheSlot>::max(), "a slot beyond all");
    if (in >= 0) out = static_cast<CacheSlot>(in);
  }

  static void read(const flatbuffers::String* in, std::string& out) {
    if (in != nullptr) out = in->str();
  }

  void read(const Vector<const wire::RankRange*>* in, RankSet& out) const {
    if (in == nullptr) return;
    for (const wire::RankRange* range : *in) {
      check(*range);
      out.insert(RankSet::range(range->first(), range->last()));
    }
  }

  /// Checks the alignment of the elements, since the verifier checks only that of the vector.
  template <typename Number>
  static std::vector<Number> numbers(const Vector<Number>* in) {
    if (in == nullptr) return {};
    require(in->size() == 0 || reinterpret_cast<std::uintptr_t>(in->Data()) % alignof(Number) == 0,
            "a list of numbers that no encoder places there");
    return {in->begin(), in->end()};
  }

  static void read(const Vector<std::int32_t>* in, std::vector<int>& out) { out = numbers(in); }

  static void read(const Vector<std::uint64_t>* in, CacheSlotSet& out) {
    out = CacheSlotSet(numbers(in));
  }

  static void read(const Vector<std::int64_t>* in, Shape& out) { out = Shape(numbers(in)); }

  template <typename Item, typename Table>
  void read(const Vector<flatbuffers::Offset<Table>>* in, std::vector<Item>& out) const {
    if (in == nullptr) return;
    out.reserve(in->size());
    for (const Table* table : *in) read(table, out.emplace_back());
  }

  void read(const wire::Failure* in, std::optional<Failure>& out) const {
    if (in != nullptr) read(in, out.emplace());
  }

  /// Reads a required table: the verifier has checked that it is present.
  template <typename Item>
  void read(const TableOf<Item>* in, Item& out) const {
    const auto members = LayoutOf<Item>::of(out);
    [&]<std::size_t... i>(std::index_sequence<i...> /*fields*/) {
      (read_field<i>(*in, std::get<i>(members)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(members)>>{});
    check(out);
  }

  template <std::size_t i, typename Table, typename Member>
  void read_field(const Table& table, Member& out) const {
    const auto in = table.template get_field<i>();
    if constexpr (std::is_enum_v<Member>) {
      if (!is_enumerator<Member>(in))
        throw ProtocolError(std::string("unknown ") + Table::Traits::field_names[i] + ' ' +
                            std::to_string(in));
      out = static_cast<Member>(in);
    } else {
      read(in, out);
    }
  }

  void read(const wire::Entry* in, Entry& out) const {
    out.sequence = in->sequence();
    read_union<wire::EntryBodyTraits>(*in, out.body);
  }

  void read(const wire::ControlMessage* in, ControlMessage& out) const {
    out.session = in->session();
    read_union<wire::MessageBodyTraits>(*in, out.body);
    check(out);
  }

  template <template <typename> typename Traits, typename Parent, typename... Bodies>
  void read_union(const Parent& in, std::variant<Bodies...>& out) const {
    const auto read_if = [&]<typename Body>(std::type_identity<Body> /*alternative*/) {
      using Table = TableOf<Body>;
      if (in.body_type() != Traits<Table>::enum_value) return false;
      read(in.template body_as<Table>(), out.template emplace<Body>());
      return true;
    };
    if (!(read_if(std::type_identity<Bodies>{}) || ...))
      throw ProtocolError(std::string("unknown body of ") + Parent::Traits::name);
  }
};

template <typename Item, typename Root>
Item read_root(std::span<const std::byte> bytes, int ranks, const char* what) {
  constexpr flatbuffers::uoffset_t max_depth = 64;
  return read_verified<Root, ProtocolError>(bytes, what, max_depth, [ranks](const Root& root) {
    Item item;
    MessageReader(ranks).read(&root, item);
    return item;
  });
}

}  // namespace

ControlMessage decode(std::span<const std::byte> bytes, int ranks) {
  return read_root<ControlMessage, wire::ControlMessage>(bytes, ranks, "a control message");
}

RankStatus decode_status(std::span<const std::byte> bytes, int ranks) {
  return read_root<RankStatus, wire::RankStatus>(bytes, ranks, "the status of a rank");
}

}  // namespace kolo::internal::negotiation
