#include "kernels/cuda_host/nvtx_profiler.h"

#include <nvtx3/nvToolsExt.h>

namespace hadal::cuda {
namespace {

class NvtxProfiler : public Profiler {
 public:
  explicit NvtxProfiler(nvtxDomainHandle_t domain) : domain_(domain) {}
  ~NvtxProfiler() override { nvtxDomainDestroy(domain_); }

  void Begin(const char* text) override {
    nvtxEventAttributes_t event = {};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = text;
    nvtxDomainRangePushEx(domain_, &event);
  }
  void End() override { nvtxDomainRangePop(domain_); }

 private:
  const nvtxDomainHandle_t domain_;
};

}  // namespace

std::unique_ptr<Profiler> MakeNvtxProfiler() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("hadal");  // null without a tool
  if (domain == nullptr) return nullptr;
  return std::make_unique<NvtxProfiler>(domain);
}

}  // namespace hadal::cuda
