#include "tools/doctor/doctor_gpu.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "kernels/linear.h"
#include "runtime/clock.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"
#include "tools/bench/kernel_batch.h"

namespace hadal {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GpuFacts, asked, required, why_none, absent, nccl, why_no_nccl,
                                                nccl_variables, nccl_refusal)
namespace cuda {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CudaFacts, identity, model, architecture, bus, memory_bytes, free_bytes,
                                                driver, runtime, cublas)
}  // namespace cuda

namespace {

using Json = nlohmann::json;

constexpr int64_t kSmallest = 256, kLargest = 8192;
constexpr double kLongEnough = 1e-3;      // seconds of one product
constexpr double kMeasuredSeconds = 0.2;  // for each of product and copy
constexpr int kTogether = 4;              // launches before the host waits

struct Product {
  explicit Product(const Stream& stream, int64_t n)
      : tensors(stream),
        a(tensors.Matrix(Traffic::kRead, n, n, Storage::kBFloat16)),
        b(tensors.Matrix(Traffic::kRead, n, n, Storage::kBFloat16)),
        c(tensors.Matrix(Traffic::kWritten, n, n, Storage::kBFloat16)) {}
  KernelTensors tensors;
  AnyMatrix a, b, c;
};

// Launches per second. The first launch, which loads and selects kernels, is not timed.
double PerSecond(const Stream& stream, double seconds, const std::function<void()>& launch) {
  launch();
  stream.Synchronize();
  int64_t launches = 0;
  const Stopwatch watch;
  do {
    for (int i = 0; i < kTogether; ++i) launch();
    stream.Synchronize();
    launches += kTogether;
  } while (watch.Seconds() < seconds);
  return static_cast<double>(launches) / watch.Seconds();
}

void Multiply(const Stream& stream, const Product& product) {
  LinearForward(stream, {.x = product.a, .weight = product.b, .y = product.c});
}

TransferGroup EveryPair(int ranks) {
  TransferGroup group;
  for (int a = 0; a < ranks; ++a) {
    group.ranks.push_back(a);
    for (int b = a + 1; b < ranks; ++b) group.pairs.push_back({a, b});
  }
  return group;
}

}  // namespace

GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required) {
  GpuFacts facts{.asked = true, .required = required, .absent = absl::IsNotFound(usable)};
  if (seen.ok()) facts.device = *seen;
  if (!usable.ok()) facts.why_none = usable.message().empty() ? "no reason is known" : std::string(usable.message());
  return facts;
}

std::string CudaVersionText(int version) {
  return version == 0 ? "-" : absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string LibraryVersionText(int version) {
  return version == 0 ? "-" : absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string PlaceOfGpu(const DoctorFacts& facts) {
  const cuda::CudaFacts& device = facts.gpu.device;
  return device.bus.empty() ? device.identity : absl::StrCat(facts.host, " ", device.bus);
}

void PlaceOnHosts(std::vector<DoctorFacts>& ranks) {
  std::map<std::string, int> seen;
  for (DoctorFacts& facts : ranks) facts.local_rank = seen[facts.host]++;
  for (DoctorFacts& facts : ranks) facts.ranks_on_host = seen[facts.host];
}

std::string DoctorFactsToJson(const DoctorFacts& facts) {
  Json json = Json::parse(FactsToJson(facts));
  json["gpu"] = facts.gpu;
  json["gpu"].update(facts.gpu.device);  // one object
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<DoctorFacts> DoctorFactsFromJson(const std::string& text) {
  HADAL_ASSIGN_OR_RETURN(RankFacts facts, FactsFromJson(text));
  const Json gpu = Json::parse(text).value("gpu", Json());
  DoctorFacts all{std::move(facts), gpu.is_object() ? gpu.get<GpuFacts>() : GpuFacts()};
  if (gpu.is_object()) all.gpu.device = gpu.get<cuda::CudaFacts>();
  return all;
}

absl::StatusOr<int64_t> ProductSize(const Stream& stream) {
  for (int64_t n = kSmallest; n < kLargest; n *= 2) {
    const Product product(stream, n);
    if (!product.tensors.status().ok()) {
      if (n == kSmallest) return product.tensors.status();
      return n / 2;
    }
    if (1 / PerSecond(stream, 0, [&] { Multiply(stream, product); }) >= kLongEnough) return n;
  }
  return kLargest;
}

absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n) {
  const Product product(stream, n);
  HADAL_RETURN_IF_ERROR(product.tensors.status());
  const auto size = static_cast<double>(n);
  const int64_t bytes = n * n * BytesOf(Storage::kBFloat16);
  GpuRates rates;
  rates.flops = 2 * size * size * size * PerSecond(stream, kMeasuredSeconds, [&] { Multiply(stream, product); });
  rates.copy_bytes_per_second = 2 * static_cast<double>(bytes) * PerSecond(stream, kMeasuredSeconds, [&] {
                                  stream.Copy(product.c.data, product.a.data, bytes);
                                });
  return rates;
}

bool WouldUseNccl(const std::vector<DoctorFacts>& ranks) {
  std::set<std::string> places;
  for (const DoctorFacts& facts : ranks) {
    const GpuFacts& gpu = facts.gpu;
    if (!gpu.found() || gpu.nccl == 0 || gpu.nccl != ranks[0].gpu.nccl || !gpu.nccl_refusal.empty()) return false;
    places.insert(PlaceOfGpu(facts));
  }
  return ranks.size() > 1 && places.size() == ranks.size();
}

LinkProbe::~LinkProbe() {
  nccl_.reset();
  if (message_ != nullptr) device_.Free(message_);
}

absl::StatusOr<LinkMeasurements> LinkProbe::Run(const ProbeOptions& options) {
  HADAL_ASSIGN_OR_RETURN(message_, device_.Allocate(options.message_bytes));
  const TransferGroup everyone = EveryPair(control_.size());
  LinkMeasurements measured{.bytes_per_second = std::vector<double>(control_.size())};
  const int64_t free_before = device_.FreeBytes();
  const Stopwatch watch;
  HADAL_ASSIGN_OR_RETURN(nccl_, NcclCommunicator::Create(library_, device_, control_, {&everyone, 1}, options.timeout));
  measured.connect_seconds = watch.Seconds();
  measured.device_bytes = free_before - device_.FreeBytes();
  for (const RankPair& pair : InRounds(everyone.pairs)) {
    if (pair.first != control_.rank() && pair.second != control_.rank()) continue;
    for (const auto& [sender, receiver] : {pair, RankPair{pair.second, pair.first}}) {
      HADAL_ASSIGN_OR_RETURN(const double rate, BytesPerSecond(sender, receiver, options));
      if (sender == control_.rank()) measured.bytes_per_second[receiver] = rate;
    }
  }
  HADAL_RETURN_IF_ERROR(nccl_->Close(options.timeout));
  return measured;
}

// The first message, which is not timed, waits until both ranks have come to this pair.
absl::StatusOr<double> LinkProbe::BytesPerSecond(int sender, int receiver, const ProbeOptions& options) {
  const bool sends = sender == control_.rank();
  const auto message = [&]() -> absl::Status {
    const int64_t bytes = options.message_bytes;
    HADAL_ASSIGN_OR_RETURN(CommRequest request, sends ? nccl_->Send(message_, bytes, receiver, kDoctorTag)
                                                      : nccl_->Receive(message_, bytes, sender, kDoctorTag));
    return nccl_->Wait(request, absl::Now() + options.timeout, "doctor: a message over NCCL");
  };
  HADAL_RETURN_IF_ERROR(message());
  const Stopwatch watch;
  for (int round = 0; round < options.rounds; ++round) HADAL_RETURN_IF_ERROR(message());
  return static_cast<double>(options.message_bytes * options.rounds) / watch.Seconds();
}

void AppendLinks(const std::vector<LinkMeasurements>& links, std::string& text) {
  if (links.empty()) return;
  absl::StrAppendFormat(&text, "\nNCCL from each rank to the %d others, both ways\n%4s  %9s %10s %12s %13s  %s\n",
                        links.size() - 1, "rank", "connect s", "MiB a link", "median GB/s", "slowest GB/s", "to rank");
  for (size_t rank = 0; rank < links.size(); ++rank) {
    std::vector<std::pair<double, size_t>> rates;
    for (size_t peer = 0; peer < links.size(); ++peer) {
      if (peer != rank) rates.emplace_back(1e-9 * links[rank].bytes_per_second[peer], peer);
    }
    std::sort(rates.begin(), rates.end());
    const double mib = static_cast<double>(links[rank].device_bytes) / (1 << 20);
    absl::StrAppendFormat(&text, "%4d  %9.2f %10.1f %12.2f %13.2f  %d\n", rank, links[rank].connect_seconds,
                          mib / static_cast<double>(2 * rates.size()), rates[rates.size() / 2].first, rates[0].first,
                          rates[0].second);
  }
}

}  // namespace hadal
