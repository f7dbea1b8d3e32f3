#include "runtime/logged_environment.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "runtime/text.h"

namespace hadal {
namespace {

struct Group {
  const char *prefix, *names;  // names: between blanks
};

// HADAL_MPIRUN_OPTIONS and HADAL_SRUN_OPTIONS are left out: they may set any variable (-x, --export).
constexpr Group kLogged[] = {
    {"CUDA_",
     "DEVICE_MAX_CONNECTIONS DEVICE_ORDER LAUNCH_BLOCKING MODULE_LOADING MPS_ACTIVE_THREAD_PERCENTAGE "
     "MPS_PIPE_DIRECTORY VISIBLE_DEVICES"},
    {"HADAL_",
     "EMULATED_DRIVER EMULATED_GPUS EMULATED_HANG EMULATED_QUEUES JOB_START LAUNCHER MAX_CPU_ISA REQUEUE_LIMIT "
     "REQUEUE_ON SWEEP"},
    {"NCCL_",
     "ALGO BUFFSIZE CGA_CLUSTER_SIZE CHECKS_DISABLE CHECK_POINTERS COLLNET_ENABLE COMM_BLOCKING COMM_ID CONF_FILE "
     "CROSS_NIC CUMEM_ENABLE CUMEM_HOST_ENABLE DEBUG DEBUG_FILE DEBUG_SUBSYS DMABUF_ENABLE GRAPH_MIXING_SUPPORT "
     "GRAPH_REGISTER HOSTID IB_ADAPTIVE_ROUTING IB_DISABLE IB_GID_INDEX IB_HCA IB_QPS_PER_CONNECTION IB_RETRY_CNT "
     "IB_SL IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT IGNORE_CPU_AFFINITY LAUNCH_MODE LAUNCH_ORDER_IMPLICIT MAX_CTAS "
     "MAX_NCHANNELS MAX_P2P_NCHANNELS MIN_CTAS MIN_NCHANNELS MIN_P2P_NCHANNELS MNNVL_ENABLE NET NET_GDR_LEVEL "
     "NET_GDR_READ NET_PLUGIN NET_SHARED_BUFFERS NSOCKS_PERTHREAD NTHREADS NVLS_ENABLE P2P_DIRECT_DISABLE P2P_DISABLE "
     "P2P_LEVEL PROFILER_PLUGIN PROTO PXN_DISABLE RUNTIME_CONNECT SHM_DISABLE SOCKET_FAMILY SOCKET_IFNAME "
     "SOCKET_NTHREADS TOPO_DUMP_FILE TOPO_FILE TUNER_PLUGIN"},
    {"OMPI_MCA_",
     "btl btl_sm_use_knem btl_tcp_if_exclude btl_tcp_if_include btl_vader_single_copy_mechanism coll "
     "hwloc_base_binding_policy mpi_leave_pinned mpi_yield_when_idle mtl oob_tcp_if_exclude oob_tcp_if_include "
     "oob_tcp_keepalive_intvl oob_tcp_keepalive_probes oob_tcp_keepalive_time osc plm plm_rsh_agent pml "
     "pml_ob1_send_pipeline_depth rmaps_base_mapping_policy rmaps_base_oversubscribe"},
    {"SLURM_", "JOB_ID JOB_NODELIST RESTART_COUNT"},
    {"UCX_", "IB_GPU_DIRECT_RDMA LOG_LEVEL MAX_RNDV_RAILS MEMTYPE_CACHE NET_DEVICES RNDV_SCHEME RNDV_THRESH TLS"},
};

bool IsLogged(const std::string& name) {
  return std::any_of(std::begin(kLogged), std::end(kLogged), [&name](const Group& group) {
    if (!name.starts_with(group.prefix)) return false;
    const std::string rest = absl::StrCat(" ", name.substr(std::strlen(group.prefix)), " ");
    return absl::StrCat(" ", group.names, " ").find(rest) != std::string::npos;
  });
}

}  // namespace

std::vector<std::string> LoggedEnvironment(const char* const* environment) {
  std::vector<std::string> logged;
  for (; *environment != nullptr; ++environment) {
    const std::string variable(*environment);
    if (!IsLogged(variable.substr(0, variable.find('=')))) continue;
    logged.push_back(Printable(variable));
    std::replace(logged.back().begin(), logged.back().end(), '\n', ' ');
  }
  std::sort(logged.begin(), logged.end());
  return logged;
}

}  // namespace hadal
