#include "tools/output/trace_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

enum class Track : int { kStep = 1, kCompute, kWaits, kSends, kReceives, kUpdate, kCheckpoint };
constexpr std::pair<Track, const char*> kTracks[] = {{Track::kStep, "step"},
                                                     {Track::kCompute, "compute"},
                                                     {Track::kWaits, "waits"},
                                                     {Track::kSends, "sends"},
                                                     {Track::kReceives, "receives"},
                                                     {Track::kUpdate, "update"},
                                                     {Track::kCheckpoint, "checkpoint"}};

Track TrackOf(TraceKind kind) {
  switch (kind) {
    case TraceKind::kForward:
    case TraceKind::kRecompute:
    case TraceKind::kBackward:
    case TraceKind::kBackwardWeight:
      return Track::kCompute;
    case TraceKind::kSend:
      return Track::kSends;
    case TraceKind::kReceive:
    case TraceKind::kArrival:
      return Track::kReceives;
    case TraceKind::kTiedGradients:
    case TraceKind::kReduceOverReplicas:
    case TraceKind::kReplicaGradients:
    case TraceKind::kGlobalNorm:
    case TraceKind::kOptimizer:
    case TraceKind::kGatherOverReplicas:
    case TraceKind::kTiedWeights:
      return Track::kUpdate;
    case TraceKind::kDrain:
      return Track::kWaits;
    case TraceKind::kStep:
      return Track::kStep;
    case TraceKind::kValidation:
    case TraceKind::kCheckpoint:
      return Track::kCheckpoint;
  }
  return Track::kStep;
}

// Channels have even numbers forward and odd ones backward (pipeline/schedule/schedule.h).
const char* CargoOf(const TraceEvent& event) { return event.channel % 2 == 0 ? "activations" : "gradients"; }

std::string NameOf(const TraceEvent& event) {
  std::string name = TraceKindName(event.kind);
  if (event.channel >= 0) absl::StrAppend(&name, " ", CargoOf(event));
  if (event.kind == TraceKind::kStep) absl::StrAppend(&name, " ", event.step);
  if (event.micro_batch >= 0) absl::StrAppend(&name, " ", event.micro_batch);
  return name;
}

// Identifies a message within a pipeline. With replicas of the pipeline, each sends a message of every key: the first
// sender in rank order belongs to the first receiver, and so on.
using MessageKey = std::tuple<int64_t, int32_t, int32_t>;  // step, channel, micro-batch
MessageKey KeyOf(const TraceEvent& event) { return {event.step, event.channel, event.micro_batch}; }

struct Message {
  const TraceEvent* send = nullptr;
  const TraceEvent* receive = nullptr;
  const TraceEvent* arrival = nullptr;  // null if the receive waited
  int sender = 0, receiver = 0;
};

class Writer {
 public:
  explicit Writer(const RunTrace& trace) : trace_(trace) {
    origin_ = std::numeric_limits<double>::infinity();
    for (const RankTrace& rank : trace.ranks) {
      for (const TraceEvent& event : rank.events) origin_ = std::min(origin_, event.begin_seconds);
    }
    for (int rank = 0; rank < static_cast<int>(trace.ranks.size()); ++rank) {
      for (const TraceEvent& event : trace.ranks[rank].events) Note(rank, event);
    }
  }

  std::string Write() {
    text_ = absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":", OtherData(), ",\n\"traceEvents\":[\n");
    for (int rank = 0; rank < static_cast<int>(trace_.ranks.size()); ++rank) {
      NameTracks(rank);
      for (const TraceEvent& event : trace_.ranks[rank].events) {
        const bool later = event.kind == TraceKind::kArrival || event.kind == TraceKind::kReceive;
        if (!later && event.kind != TraceKind::kReplicaGradients) {
          Slice(rank, TrackOf(event.kind), NameOf(event), event);
        }
      }
    }
    int64_t id = 0;
    for (int rank = 0; rank < static_cast<int>(trace_.ranks.size()); ++rank) {
      for (const TraceEvent& event : trace_.ranks[rank].events) {
        if (event.kind != TraceKind::kReplicaGradients) continue;
        ++id;
        Bar("b", rank, Track::kUpdate, NameOf(event), id, Nanoseconds(event.begin_seconds));
        Bar("e", rank, Track::kUpdate, NameOf(event), id, Nanoseconds(event.end_seconds));
      }
    }
    for (const auto& [key, message] : messages_) {
      if (message.receive == nullptr) continue;
      if (message.arrival == nullptr) {
        Slice(message.receiver, Track::kWaits,
              absl::StrCat("wait for ", CargoOf(*message.receive), " ", message.receive->micro_batch),
              *message.receive);
      }
      const TraceEvent receive = SinceSend(message);
      Slice(message.receiver, Track::kReceives, NameOf(receive), receive);
      if (message.send != nullptr) Arrow(message, receive, ++id);
    }
    text_.resize(text_.size() - 2);  // the last comma
    return std::move(text_) + "\n]}\n";
  }

 private:
  void Note(int rank, const TraceEvent& event) {
    if (event.channel < 0) return;
    const MessageKey key = KeyOf(event);
    if (event.kind == TraceKind::kArrival) {  // comes before its receive
      arrivals_[{rank, key}] = &event;
      return;
    }
    Message& message = messages_[{key, seen_[{key, event.kind}]++}];
    if (event.kind == TraceKind::kSend) {
      message.send = &event;
      message.sender = rank;
    } else {
      const auto arrival = arrivals_.find({rank, key});
      message.receive = &event;
      message.arrival = arrival != arrivals_.end() ? arrival->second : nullptr;
      message.receiver = rank;
    }
  }

  std::string OtherData() const {
    double error = 0;
    int64_t dropped = 0;
    for (const RankTrace& rank : trace_.ranks) {
      error = std::max(error, rank.clock_error_seconds);
      dropped += rank.dropped;
    }
    return absl::StrFormat(
        "{\"first_step\":%d,\"last_step\":%d,\"ranks\":%d,\"clock_error_us\":%.3f,\"dropped_events\":%d}",
        trace_.first_step, trace_.last_step, trace_.ranks.size(), 1e6 * error, dropped);
  }

  // Whole nanoseconds since the origin. Begins and ends are rounded, not lengths, so that nested slices stay nested.
  int64_t Nanoseconds(double seconds) const { return std::llround((seconds - origin_) * 1e9); }
  static std::string Microseconds(int64_t nanoseconds) {
    return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
  }

  void Line(const std::string& line) { absl::StrAppend(&text_, line, ",\n"); }

  void NameTracks(int rank) {
    const std::string name = nlohmann::json(absl::StrCat("rank ", rank, " (", trace_.ranks[rank].host, ")")).dump();
    Line(absl::StrFormat(R"({"ph":"M","pid":%d,"name":"process_name","args":{"name":%s}})", rank, name));
    Line(absl::StrFormat(R"({"ph":"M","pid":%d,"name":"process_sort_index","args":{"sort_index":%d}})", rank, rank));
    for (const auto& [track, word] : kTracks) {
      Line(absl::StrFormat(R"({"ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":"%s"}})", rank,
                           static_cast<int>(track), word));
      Line(absl::StrFormat(R"({"ph":"M","pid":%d,"tid":%d,"name":"thread_sort_index","args":{"sort_index":%d}})", rank,
                           static_cast<int>(track), static_cast<int>(track)));
    }
  }

  void Slice(int rank, Track track, const std::string& name, const TraceEvent& event) {
    const int64_t begin = Nanoseconds(event.begin_seconds);
    std::string arguments = absl::StrCat("\"step\":", event.step);
    if (event.chunk >= 0) absl::StrAppend(&arguments, ",\"chunk\":", event.chunk);
    if (event.micro_batch >= 0) absl::StrAppend(&arguments, ",\"micro_batch\":", event.micro_batch);
    if (event.channel >= 0) absl::StrAppend(&arguments, ",\"channel\":", event.channel);
    Line(absl::StrFormat(R"({"ph":"X","pid":%d,"tid":%d,"cat":"%s","name":"%s","ts":%s,"dur":%s,"args":{%s}})", rank,
                         static_cast<int>(track), TraceKindName(event.kind), name, Microseconds(begin),
                         Microseconds(Nanoseconds(event.end_seconds) - begin), arguments));
  }

  // The receive without its time before the send.
  static TraceEvent SinceSend(const Message& message) {
    TraceEvent receive = *message.receive;
    const double sent = message.send != nullptr ? message.send->begin_seconds : receive.begin_seconds;
    receive.begin_seconds = std::max(receive.begin_seconds, std::min(sent, receive.end_seconds));
    return receive;
  }

  // The arrow is attached to the slices that contain its two times; the bar begins where the send ends.
  void Arrow(const Message& message, const TraceEvent& receive, int64_t id) {
    const int64_t send_begin = Nanoseconds(message.send->begin_seconds);
    const int64_t posted = Nanoseconds(message.send->end_seconds);
    const int64_t receive_begin = Nanoseconds(receive.begin_seconds);
    const int64_t receive_end = std::max(receive_begin, Nanoseconds(receive.end_seconds) - 1);
    const TraceEvent& arrival = message.arrival != nullptr ? *message.arrival : receive;
    const int64_t arrived = std::max(posted, Nanoseconds(arrival.end_seconds));
    const auto flow = [&](const char* phase, int rank, Track track, int64_t at) {
      Line(absl::StrFormat(R"({"ph":%s,"pid":%d,"tid":%d,"cat":"message","name":"%s","id":%d,"ts":%s})", phase, rank,
                           static_cast<int>(track), CargoOf(*message.send), id, Microseconds(at)));
    };
    flow("\"s\"", message.sender, Track::kSends, send_begin);
    flow("\"f\",\"bp\":\"e\"", message.receiver, Track::kReceives, receive_end);
    const std::string name = absl::StrCat("in flight: ", CargoOf(*message.send), " ", message.send->micro_batch);
    Bar("b", message.receiver, Track::kReceives, name, id, posted);
    Bar("e", message.receiver, Track::kReceives, name, id, arrived);
  }

  // One end ("b", "e") of an asynchronous event. "id2": with "id" Perfetto 52 gives the bar to no process.
  void Bar(const char* phase, int rank, Track track, const std::string& name, int64_t id, int64_t at) {
    Line(absl::StrFormat(R"({"ph":"%s","pid":%d,"tid":%d,"cat":"in flight","name":"%s","id2":{"local":"%d"},"ts":%s})",
                         phase, rank, static_cast<int>(track), name, id, Microseconds(at)));
  }

  const RunTrace& trace_;
  double origin_ = 0;
  std::map<std::pair<int, MessageKey>, const TraceEvent*> arrivals_;  // by receiving rank
  std::map<std::pair<MessageKey, TraceKind>, int> seen_;  // number of sends and receives of a key so far: the replica
  std::map<std::pair<MessageKey, int>, Message> messages_;
  std::string text_;
};

}  // namespace

absl::StatusOr<TraceSteps> ParseTraceSteps(const std::string& text) {
  absl::string_view rest = text;
  const bool prefixed = absl::ConsumePrefix(&rest, "steps=");
  const std::vector<absl::string_view> ends = absl::StrSplit(rest, '-');
  TraceSteps steps;
  if (prefixed && ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &steps.first) &&
      absl::SimpleAtoi(ends.back(), &steps.last) && steps.first >= 1 && steps.last >= steps.first) {
    return steps;
  }
  return InvalidArgumentError(
      "--trace ", text, ": expected steps=FIRST-LAST or steps=STEP, e.g. --trace steps=100-102; steps count from 1");
}

std::string TraceToJson(const RunTrace& trace) { return Writer(trace).Write(); }

absl::StatusOr<std::string> WriteTraceJson(const RunTrace& trace, const std::string& run_directory) {
  const std::string directory = JoinPath(run_directory, kTracesName);
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = JoinPath(directory, TraceName(trace.first_step, trace.last_step));
  HADAL_RETURN_IF_ERROR(ReplaceFile(path, TraceToJson(trace), "new"));
  return path;
}

}  // namespace hadal
