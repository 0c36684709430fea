#include "diagnostics/trace_events.hpp"

#include <iterator>

#include "base/format.hpp"
#include "diagnostics/json_text.hpp"

namespace kolo::diagnostics {
namespace {

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string text_of(const Span& span) {
  if (span.text == nullptr || span.text->empty()) return "(no name)";
  return span.text->size() <= most_text ? *span.text : span.text->substr(0, most_text) + "...";
}

std::string batch_arguments(const Span& span) {
  return fmt::format(
      R"("args":{{"batch":{},"operation":"{}","operations":{},"bytes":{},"dtype":"{}","set":{}}})",
      span.batch, to_string(span.type), span.count, span.bytes, to_string(span.dtype), span.set);
}

}  // namespace

TraceEvents::TraceEvents(TimelineFile& file, int rank) : file_(file), rank_(rank) {
  file_.add(fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{0},"tid":0,"args":{{"name":"rank {0}"}}}})",
      rank_));
  file_.add(fmt::format(
      R"({{"ph":"M","name":"process_sort_index","pid":{0},"tid":0,"args":{{"sort_index":{0}}}}})",
      rank_));
}

void TraceEvents::add_event(const char* phase, std::uint32_t track, TimePoint time,
                            std::string_view rest) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), R"({{"ph":"{}","pid":{},"tid":{},"ts":{:.3f},{}}})",
                 phase, rank_, track, microseconds(time.time_since_epoch()), rest);
  file_.add({line_.data(), line_.size()});
}

void TraceEvents::name_track(const Span& span) {
  if (!named_.insert(span.track).second) return;
  const std::uint32_t track = span.track;
  const std::string name =
      track >= first_named_track    ? text_of(span)
      : track >= first_shared_track ? fmt::format("operations {}", track - first_shared_track + 1)
      : track >= first_batch_track  ? fmt::format("batches {}", track - first_batch_track + 1)
      : track == dropped_track      ? "dropped"
                                    : "session";
  const auto add = [&](const char* what, const std::string& arguments) {
    file_.add(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what,
                          rank_, track, arguments));
  };
  add("thread_name", R"("name":)" + quoted(name));
  add("thread_sort_index", fmt::format(R"("sort_index":{})", track));
}

void TraceEvents::add(const Span& span) {
  name_track(span);
  switch (span.kind) {
    case Span::Kind::operation: return add_operation(span);
    case Span::Kind::batch_begin:
      return add_event(
          "B", span.track, span.begin,
          fmt::format(R"("name":"batch {}","cat":"batch",{})", span.batch, batch_arguments(span)));
    case Span::Kind::batch_end: return add_event("E", span.track, span.end, R"("cat":"batch")");
    case Span::Kind::phase:
      return add_event("X", span.track, span.begin,
                       fmt::format(R"("dur":{:.3f},"name":"{}","cat":"phase")",
                                   microseconds(span.end - span.begin), span.what));
    case Span::Kind::instant:
      return add_event("i", span.track, span.begin,
                       fmt::format(R"("s":"p","name":"{}","args":{{"text":{}}})", span.what,
                                   quoted(span.text == nullptr ? std::string() : text_of(span))));
  }
}

void TraceEvents::add_operation(const Span& span) {
  const bool executed = span.batch != no_batch;
  const auto arguments = [&] {
    return fmt::format(R"("args":{{"name":{},"bytes":{},"dtype":"{}","set":{}{}}})",
                       quoted(text_of(span)), span.bytes, to_string(span.dtype), span.set,
                       executed ? fmt::format(R"(,"batch":{})", span.batch)
                                : std::string(span.failed ? R"(,"failed":true)" : ""));
  };
  const TimePoint agreed = executed ? span.agreed : span.end;
  add_event("X", span.track, span.begin,
            fmt::format(R"("dur":{:.3f},"name":"NEGOTIATE","cat":"operation",{})",
                        microseconds(agreed - span.begin), arguments()));
  if (!executed) return;
  add_event("X", span.track, agreed,
            fmt::format(R"("dur":{:.3f},"name":"{}","cat":"operation",{})",
                        microseconds(span.end - agreed), to_string(span.type), arguments()));
}

void TraceEvents::add_dropped(TimePoint time, std::uint64_t dropped) {
  Span where;
  where.track = dropped_track;
  name_track(where);
  add_event("i", dropped_track, time,
            fmt::format(R"("s":"p","name":"{} spans were dropped so far","args":{{"dropped":{}}})",
                        dropped, dropped));
}

}  // namespace kolo::diagnostics
