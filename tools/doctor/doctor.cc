#include "tools/doctor/doctor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/instruction_set.h"
#include "runtime/comm/collectives.h"
#include "runtime/status_macros.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

void AppendMap(const DoctorReport& report, std::string& text) {
  absl::StrAppendFormat(&text, "%4s  %-20s %5s %7s  %-14s %-8s %s\n", "rank", "host", "local", "threads", "CPUs",
                        "kernels", "launcher");
  for (const DoctorFacts& facts : report.ranks) {
    absl::StrAppendFormat(&text, "%4d  %-20s %2d/%-2d %7d  %-14s %-8s %s\n", facts.rank, facts.host, facts.local_rank,
                          facts.ranks_on_host, facts.threads, CpuList(facts.cpus),
                          InstructionSetName(facts.instruction_sets),
                          facts.environment_rank.empty() ? "-" : facts.environment_rank);
  }
}

std::string Rate(double per_second, double scale) {
  return per_second > 0 ? absl::StrFormat("%.2f", scale * per_second) : "-";
}

void AppendMeasurements(const DoctorReport& report, std::string& text) {
  absl::StrAppendFormat(&text, "\n%4s  %14s %12s %14s %10s %12s %10s  %s\n", "rank", "to next GB/s", "latency us",
                        "all send GB/s", "GFLOP/s", "write MB/s", "rename ms", "files seen, locks work");
  for (size_t r = 0; r < report.measured.size(); ++r) {
    const RankMeasurements& m = report.measured[r];
    absl::StrAppendFormat(&text, "%4d  %14s %12s %14s %10.1f %12s %10.1f  %s, %s\n", r,
                          Rate(m.next_bytes_per_second, 1e-9), Rate(m.next_latency_seconds, 1e6),
                          Rate(m.ring_bytes_per_second, 1e-9), m.gflops, Rate(m.write_bytes_per_second, 1e-6),
                          1e3 * m.rename_seconds, m.sees_others ? "yes" : "NO", m.lock_excludes ? "yes" : "NO");
  }
}

// Empty if no rank has a GPU; a finding has the reason.
void AppendGpus(const DoctorReport& report, std::string& text) {
  if (std::none_of(report.ranks.begin(), report.ranks.end(), [](const DoctorFacts& r) { return r.gpu.found(); }))
    return;
  absl::StrAppendFormat(&text, "\n%4s  %-26s %-7s %-12s %15s %7s %6s %9s %9s %13s %10s\n", "rank", "GPU", "", "PCI bus",
                        "free, all GiB", "driver", "CUDA", "cuBLASLt", "NCCL", "bf16 TFLOP/s", "copy GB/s");
  for (const DoctorFacts& facts : report.ranks) {
    const GpuFacts& gpu = facts.gpu;
    if (!gpu.found()) {
      absl::StrAppendFormat(&text, "%4d  none%s\n", facts.rank, gpu.asked ? absl::StrCat(": ", gpu.why_none) : "");
      continue;
    }
    const RankMeasurements& measured = report.measured[facts.rank];
    absl::StrAppendFormat(
        &text, "%4d  %-26s %-7s %-12s %7.1f %7.1f %7s %6s %9s %9s %13s %10s\n", facts.rank, gpu.device.model,
        gpu.device.architecture, gpu.device.bus.empty() ? "-" : gpu.device.bus,
        static_cast<double>(gpu.device.free_bytes) / kGib, static_cast<double>(gpu.device.memory_bytes) / kGib,
        CudaVersionText(gpu.device.driver), CudaVersionText(gpu.device.runtime), LibraryVersionText(gpu.device.cublas),
        LibraryVersionText(gpu.nccl), Rate(measured.gpu_flops, 1e-12), Rate(measured.gpu_copy_bytes_per_second, 1e-9));
  }
}

const char* SeverityName(Severity severity) {
  return severity == Severity::kNote ? "note" : severity == Severity::kWarning ? "warning" : "bad";
}

// Parses the text of every rank.
template <typename T, typename Parse>
absl::StatusOr<std::vector<T>> Exchange(Collectives& collectives, const std::string& mine, const Parse& parse) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, collectives.AllGather(std::string_view(mine), "doctor"));
  std::vector<T> values;
  for (const std::string& text : all) {
    HADAL_ASSIGN_OR_RETURN(T value, parse(text));
    values.push_back(std::move(value));
  }
  return values;
}

// Of measurements, while a rank seems slow.
constexpr int kAttempts = 3;

bool SeemsSlow(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.speed; });
}

}  // namespace

bool DoctorReport::healthy() const {
  return std::ranges::find(findings, Severity::kBad, &Finding::severity) == findings.end();
}

absl::StatusOr<DoctorReport> Examine(Communicator& communicator, const Stream& stream, const ProbeOptions& options,
                                     const GpuFacts& gpu) {
  Collectives collectives(communicator, options.timeout);
  DoctorReport report;
  DoctorFacts facts{GatherFacts(communicator.rank(), stream.threads()), gpu};
  facts.instruction_sets = AvailableInstructionSets();
  HADAL_ASSIGN_OR_RETURN(report.ranks,
                         Exchange<DoctorFacts>(collectives, DoctorFactsToJson(facts), DoctorFactsFromJson));
  PlaceOnHosts(report.ranks);
  HADAL_ASSIGN_OR_RETURN(RankMeasurements mine, Probe(communicator, stream, options));
  for (int attempt = 1;; ++attempt) {
    HADAL_ASSIGN_OR_RETURN(report.measured,
                           Exchange<RankMeasurements>(collectives, MeasurementsToJson(mine), MeasurementsFromJson));
    report.findings = FindFaults(report.ranks, report.measured);
    if (attempt == kAttempts || !SeemsSlow(report.findings)) return report;
    HADAL_ASSIGN_OR_RETURN(RankMeasurements again, Probe(communicator, stream, options));
    mine = Fastest(mine, std::move(again));
  }
}

absl::Status ExamineLinks(Communicator& communicator, LinkProbe& probe, const ProbeOptions& options,
                          DoctorReport& report) {
  HADAL_ASSIGN_OR_RETURN(const LinkMeasurements mine, probe.Run(options));
  std::vector<double> sent = {mine.connect_seconds, static_cast<double>(mine.device_bytes)};
  sent.insert(sent.end(), mine.bytes_per_second.begin(), mine.bytes_per_second.end());
  Collectives collectives(communicator, options.timeout);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(sent, "doctor: links"));
  for (const std::vector<double>& of_rank : all) {
    report.links.push_back({.connect_seconds = of_rank[0],
                            .device_bytes = static_cast<int64_t>(of_rank[1]),
                            .bytes_per_second = {of_rank.begin() + 2, of_rank.end()}});
  }
  return absl::OkStatus();
}

std::string DoctorToText(const DoctorReport& report) {
  std::string text;
  AppendMap(report, text);
  AppendMeasurements(report, text);
  AppendGpus(report, text);
  AppendLinks(report.links, text);
  absl::StrAppend(&text, "\n");
  std::vector<std::string> hosts;
  for (const DoctorFacts& facts : report.ranks) hosts.push_back(facts.host);
  for (const Finding& finding : report.findings) {
    absl::StrAppendFormat(&text, "%-7s  %s: %s\n",
                          finding.severity == Severity::kBad ? "BAD" : SeverityName(finding.severity),
                          DescribeRanks(finding.ranks, hosts), finding.text);
  }
  absl::StrAppend(&text, report.healthy() ? "ready for a run\n" : "not ready for a run\n");
  return text;
}

std::string DoctorToJson(const DoctorReport& report) {
  nlohmann::ordered_json json{{"healthy", report.healthy()}};
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    json["ranks"].push_back(nlohmann::ordered_json::parse(DoctorFactsToJson(report.ranks[r])));
    json["measured"].push_back(nlohmann::ordered_json::parse(MeasurementsToJson(report.measured[r])));
  }
  for (const LinkMeasurements& links : report.links) {
    json["links"].push_back({{"connect_seconds", links.connect_seconds},
                             {"device_bytes", links.device_bytes},
                             {"bytes_per_second", links.bytes_per_second}});
  }
  json["findings"] = nlohmann::json::array();
  for (const Finding& finding : report.findings) {
    json["findings"].push_back(
        {{"severity", SeverityName(finding.severity)}, {"ranks", finding.ranks}, {"text", finding.text}});
  }
  return json.dump(2) + "\n";
}

}  // namespace hadal
