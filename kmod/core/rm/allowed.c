// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Isolation by naming what is harmless, not what is known to harm: a new driver brings
 * new commands, and nobody here has read them. Listed is what the programs of
 * tests/traces asked for (CUDA, PyTorch, NVML, nvidia-smi on an H200), what other
 * engines need on other cards (video, graphics), and what the core itself interprets.
 *
 * Three of the driver's interfaces cannot be read at all, so that only what was seen
 * is listed of them: controls with bit 15 ("legacy GSS"), which the card's firmware
 * serves, those of class 0x2081 ("binary API"), and serialised parameters, which
 * cgpu_pre_control() refuses wherever the core has to read them.
 *
 * The places come from ctrl*.h and class/cl*.h of NVIDIA/open-gpu-kernel-modules, 535 to
 * 595: every parameter structure with a client, an NvP64 or a descriptor in it, that of a
 * command which is not listed, too. The `data` of an event is none: the driver compares
 * it and follows it nowhere.
 *
 * DENY is for what an administrator cannot admit either: it stops, steers or reads
 * other tenants of the card (runlists, register operations, contexts of any client).
 */
#include "core/rm/abi.h"
#include "core/rm/allowed.h"
#include "core/rm/structs.h"

/* A number, who judges it, how many bytes of parameters the core reads, and places in them. */
#define RULE(n, who, bytes, ...) \
	{ .number = n, .judge = CGPU_JUDGE_##who, .params_bytes = bytes, ##__VA_ARGS__ }
#define PASS(n, ...) RULE(n, DRIVER, 0, ##__VA_ARGS__)
/*
 * Passed, with a copy of the parameters: writing them back to the caller's memory the driver
 * might wait for a page as long as the caller likes, and nobody hear that a group was scheduled.
 */
#define OWN(n) RULE(n, DRIVER, CGPU_AS_GIVEN)
#define JUDGE(n, bytes, ...) RULE(n, CORE, bytes, ##__VA_ARGS__)
#define DENY(n) RULE(n, NEVER, 0)
/*
 * Judged as if it were not here. Whoever performs calls with copies has to know what its
 * parameters point to, where an administrator admits what is not listed.
 */
#define UNLISTED(n, ...) RULE(n, NONE, 0, ##__VA_ARGS__)

/* one more than the place, so that nothing said is nowhere */
#define PLACE(at) ((at) + 1)
#define CLIENT(at) .hClient = { PLACE(at) }
#define CLIENTS(first, second) .hClient = { PLACE(first), PLACE(second) }
#define DESCRIPTOR(at) .fd = PLACE(at)
#define CAPABILITY(at) .capability = PLACE(at)
#define POINTERS(...) .pointer = { __VA_ARGS__ }
#define LIST(at, count, element_bytes) { PLACE(at), PLACE(count), element_bytes }
#define UNUSED(at) { PLACE(at), 0, 0 }
/* others: pointers to structures, or to what no u32 beside them counts; descriptors in a u64 */
#define OPAQUE .opaque = true

/* the core reads the beginning alone */
#define HEAD .head = true

static const struct cgpu_rule unlisted;

/* ascending */
static const struct cgpu_rule controls[] = {
	/* SYSTEM_GET_BUILD_VERSION */
	PASS(0x00000101, POINTERS(LIST(8, 0, 1), LIST(16, 0, 1), LIST(24, 0, 1))),
	PASS(0x00000102), /* SYSTEM_GET_CPU_INFO */
	PASS(0x00000127, OPAQUE), /* SYSTEM_GET_P2P_CAPS: to the square of a count */
	PASS(0x0000012B), /* SYSTEM_GET_P2P_CAPS_V2 */
	UNLISTED(0x00000130, OPAQUE), /* SYSTEM_EXECUTE_ACPI_METHOD */
	PASS(0x00000136), /* SYSTEM_GET_FABRIC_STATUS */
	PASS(0x0000013A), /* SYSTEM_GET_P2P_CAPS_MATRIX */
	PASS(0x0000013E), /* no name in NVIDIA's headers: the driver's branch */
	PASS(0x000001F0), /* SYSTEM_GET_FEATURES */
	PASS(0x00000201), /* GPU_GET_ATTACHED_IDS */
	PASS(0x00000202, POINTERS(UNUSED(16))), /* GPU_GET_ID_INFO */
	PASS(0x00000204), /* GPU_GET_DEVICE_IDS */
	JUDGE(0x00000205, 32), /* GPU_GET_ID_INFO_V2 */
	PASS(0x00000214), /* GPU_GET_PROBED_IDS */
	PASS(0x00000215), /* GPU_ATTACH_IDS */
	PASS(0x00000216), /* GPU_DETACH_IDS */
	PASS(0x0000021B), /* GPU_GET_PCI_INFO */
	PASS(0x00000274), /* GPU_GET_UUID_INFO */
	PASS(0x00000275), /* GPU_GET_UUID_FROM_GPU_ID */
	PASS(0x00000279), /* GPU_QUERY_DRAIN_STATE */
	PASS(0x0000027B), /* GPU_GET_MEMOP_ENABLE */
	UNLISTED(0x00000283, OPAQUE), /* IDLE_CHANNELS */
	UNLISTED(0x00000285, OPAQUE), /* PUSH_UCODE_IMAGE */
	PASS(0x00000287), /* no name in NVIDIA's headers: how wide NVLinks are */
	PASS(0x00000288), /* GPU_GET_ACTIVE_DEVICE_IDS */
	PASS(0x00000289), /* GPU_ASYNC_ATTACH_ID */
	PASS(0x00000290), /* GPU_WAIT_ATTACH_ID */
	PASS(0x00000301), /* GSYNC_GET_ATTACHED_IDS */
	UNLISTED(0x00000602, OPAQUE), /* NVD_GET_DUMP */
	UNLISTED(0x00000608, OPAQUE), /* NVD_GET_DPC_ISR_TS */
	PASS(0x00000A04), /* SYNC_GPU_BOOST_GROUP_INFO */
	PASS(0x00000B02), /* GPUACCT_GET_ACCOUNTING_STATE */
	JUDGE(0x00000B04, 0), /* GPUACCT_GET_ACCOUNTING_PIDS */
	PASS(0x00000D01), /* CLIENT_GET_ADDR_SPACE_TYPE */
	PASS(0x00000D02), /* CLIENT_GET_HANDLE_INFO */
	JUDGE(0x00000D03, 12, CLIENT(4)), /* CLIENT_GET_ACCESS_RIGHTS */
	PASS(0x00000D04), /* CLIENT_SET_INHERITED_SHARE_POLICY */
	PASS(0x00000D06), /* CLIENT_SHARE_OBJECT */
	UNLISTED(0x00000D08, OPAQUE), /* CLIENT_SUBSCRIBE_TO_IMEX_CHANNEL */
	UNLISTED(0x00003D04, OPAQUE), /* OS_UNIX_GET_CONTROL_FILE_DESCRIPTOR */
	JUDGE(0x00003D05, 24, DESCRIPTOR(16)), /* OS_UNIX_EXPORT_OBJECT_TO_FD */
	JUDGE(0x00003D06, 20, DESCRIPTOR(0)), /* OS_UNIX_IMPORT_OBJECT_FROM_FD */
	PASS(0x00003D08, DESCRIPTOR(0)), /* OS_UNIX_GET_EXPORT_OBJECT_INFO */
	JUDGE(0x00003D0A, 76, DESCRIPTOR(72)), /* OS_UNIX_CREATE_EXPORT_OBJECT_FD */
	JUDGE(0x00003D0B, 2128, DESCRIPTOR(0)), /* OS_UNIX_EXPORT_OBJECTS_TO_FD */
	JUDGE(0x00003D0C, 652, DESCRIPTOR(0)), /* OS_UNIX_IMPORT_OBJECTS_FROM_FD */
	UNLISTED(0x003E0103, OPAQUE), /* NV003E_CTRL_CMD_GET_SURFACE_PHYS_PAGES */
	PASS(0x00410110, POINTERS(LIST(8, 0, 8))), /* NV0041_CTRL_CMD_GET_SURFACE_INFO */
	UNLISTED(0x00410114, OPAQUE), /* NV0041_CTRL_CMD_GET_FBMEM_BUS_ADDR */
	UNLISTED(0x00730120, OPAQUE), /* NV0073_CTRL_CMD_SYSTEM_EXECUTE_ACPI_METHOD */
	UNLISTED(0x0073015A, OPAQUE), /* NV0073_CTRL_CMD_SYSTEM_SET_DISPLAY_PERF_LIMIT */
	UNLISTED(0x00730168, OPAQUE), /* NV0073_CTRL_CMD_SYSTEM_EXECUTE_ACPI_METHOD */
	UNLISTED(0x0073136A, OPAQUE), /* NV0073_CTRL_CMD_DP_SET_MSA_PROPERTIES */
	UNLISTED(0x00731371, OPAQUE), /* NV0073_CTRL_CMD_DP_RETRIEVE_DP_RING_BUFFER */
	PASS(0x00800201, POINTERS(LIST(8, 0, 4))), /* GPU_GET_CLASSLIST */
	PASS(0x00800280), /* GPU_GET_NUM_SUBDEVICES */
	PASS(0x00800288), /* GPU_QUERY_SW_STATE_PERSISTENCE */
	PASS(0x00800289), /* GPU_GET_VIRTUALIZATION_MODE */
	PASS(0x0080028B), /* no name in NVIDIA's headers, 1 byte */
	PASS(0x00800292), /* GPU_GET_CLASSLIST_V2 */
	PASS(0x00801102, POINTERS(LIST(8, 0, 1))), /* GR_GET_CAPS */
	PASS(0x00801104, POINTERS(LIST(8, 0, 8))), /* GR_GET_INFO */
	PASS(0x00801108), /* GR_SET_TPC_PARTITION_MODE */
	PASS(0x00801109), /* GR_GET_CAPS_V2 */
	PASS(0x00801301, POINTERS(LIST(8, 0, 1))), /* FB_GET_CAPS */
	PASS(0x00801307), /* FB_GET_CAPS_V2 */
	UNLISTED(0x00801401, POINTERS(LIST(8, 0, 1))), /* HOST_GET_CAPS */
	PASS(0x00801402), /* HOST_GET_CAPS_V2 */
	PASS(0x00801701, POINTERS(LIST(8, 0, 1))), /* FIFO_GET_CAPS */
	UNLISTED(0x00801705, OPAQUE), /* FIFO_START_SELECTED_CHANNELS */
	PASS(0x00801707), /* FIFO_GET_ENGINE_CONTEXT_PROPERTIES */
	PASS(0x0080170D, POINTERS(LIST(8, 0, 4), LIST(16, 0, 4))), /* FIFO_GET_CHANNELLIST */
	DENY(0x0080170F), /* FIFO_SET_CHANNEL_PROPERTIES */
	DENY(0x00801711), /* FIFO_STOP_RUNLIST */
	DENY(0x00801712), /* FIFO_START_RUNLIST */
	PASS(0x00801713), /* FIFO_GET_CAPS_V2 */
	UNLISTED(0x00801802, OPAQUE), /* DMA_FILL_PTE_MEM */
	PASS(0x00801806), /* DMA_ADV_SCHED_GET_VA_CAPS */
	PASS(0x0080180D), /* DMA_GET_CAPS */
	UNLISTED(0x0080180F, OPAQUE), /* DMA_UPDATE_PDE_2 */
	PASS(0x00801909), /* PERF_CUDA_LIMIT_SET_CONTROL */
	PASS(0x00801B01, POINTERS(LIST(8, 0, 1))), /* MSENC_GET_CAPS */
	UNLISTED(0x00801C01, POINTERS(LIST(8, 0, 1))), /* BSP_GET_CAPS */
	PASS(0x00801C02), /* BSP_GET_CAPS_V2 */
	PASS(0x00801F02), /* NVJPG_GET_CAPS_V2 */
	PASS(0x00DE0001), /* NV00DE_CTRL_CMD_REQUEST_DATA_POLL */
	UNLISTED(0x00E00101, OPAQUE), /* NV00E0_CTRL_CMD_EXPORT_MEM */
	PASS(0x00E00102), /* NV00E0_CTRL_CMD_IMPORT_MEM */
	PASS(0x00F10001), /* NV00F1_CTRL_CMD_GET_FABRIC_EVENTS */
	PASS(0x00F10002), /* NV00F1_CTRL_CMD_FINISH_MEM_UNIMPORT */
	PASS(0x00F10003), /* NV00F1_CTRL_CMD_DISABLE_IMPORTERS */
	PASS(0x00F80103), /* NV00F8_CTRL_CMD_ATTACH_MEM */
	UNLISTED(0x00F80107, OPAQUE), /* NV00F8_CTRL_CMD_GET_PAGE_LEVEL_INFO */
	PASS(0x00FB0101), /* NV00FB_CTRL_CMD_VALIDATE */
	PASS(0x00FD0101), /* NV00FD_CTRL_CMD_GET_INFO */
	PASS(0x00FD0102), /* NV00FD_CTRL_CMD_ATTACH_MEM */
	UNLISTED(0x00FD0103, OPAQUE), /* NV00FD_CTRL_CMD_REGISTER_EVENT */
	PASS(0x00FD0104, OPAQUE), /* NV00FD_CTRL_CMD_ATTACH_GPU: a descriptor in a u64 */
	PASS(0x00FD0105), /* NV00FD_CTRL_CMD_DETACH_MEM */
	PASS(0x00FD0106), /* NV00FD_CTRL_CMD_ATTACH_REMOTE_GPU */
	PASS(0x00FD0107), /* NV00FD_CTRL_CMD_SET_FAILURE */
	UNLISTED(0x00FE0002, OPAQUE), /* NV00FE_CTRL_CMD_SUBMIT_PAGING_OPERATIONS */
	PASS(0x20800101, POINTERS(LIST(8, 0, 8))), /* GPU_GET_INFO */
	PASS(0x20800102), /* GPU_GET_INFO_V2 */
	PASS(0x20800110), /* GPU_GET_NAME_STRING */
	PASS(0x20800111), /* GPU_GET_SHORT_NAME_STRING */
	PASS(0x20800119), /* GPU_GET_SIMULATION_INFO */
	DENY(0x20800122), /* GPU_EXEC_REG_OPS */
	PASS(0x20800123, POINTERS(LIST(8, 0, 4))), /* GPU_GET_ENGINES */
	UNLISTED(0x20800124, POINTERS(LIST(8, 4, 4))), /* GPU_GET_ENGINE_CLASSLIST */
	DENY(0x2080012C), /* GPU_EVICT_CTX */
	PASS(0x2080012F), /* GPU_QUERY_ECC_STATUS */
	PASS(0x20800131), /* GPU_QUERY_COMPUTE_MODE_RULES */
	PASS(0x20800133), /* GPU_QUERY_ECC_CONFIGURATION */
	PASS(0x2080013F), /* GPU_GET_OEM_BOARD_INFO */
	PASS(0x20800142), /* GPU_GET_ID */
	PASS(0x20800145), /* GPU_ACQUIRE_COMPUTE_MODE_RESERVATION */
	PASS(0x20800146), /* GPU_RELEASE_COMPUTE_MODE_RESERVATION */
	PASS(0x20800147), /* GPU_GET_ENGINE_PARTNERLIST */
	PASS(0x2080014A), /* GPU_GET_GID_INFO */
	PASS(0x2080014B), /* GPU_GET_INFOROM_OBJECT_VERSION */
	PASS(0x20800156), /* GPU_GET_INFOROM_IMAGE_VERSION */
	PASS(0x20800157), /* GPU_QUERY_INFOROM_ECC_SUPPORT */
	PASS(0x2080016C), /* GPU_GET_ENCODER_CAPACITY */
	PASS(0x2080016D), /* GPU_GET_NVENC_SW_SESSION_STATS */
	JUDGE(0x2080016E, 16, POINTERS(LIST(8, 0, 32))), /* GPU_GET_NVENC_SW_SESSION_INFO */
	PASS(0x20800170), /* GPU_GET_ENGINES_V2 */
	UNLISTED(0x20800178, OPAQUE), /* GPU_EXEC_REG_OPS_VGPU */
	PASS(0x2080017B), /* GPU_GET_NVFBC_SW_SESSION_STATS */
	JUDGE(0x2080017C, 4, HEAD), /* GPU_GET_NVFBC_SW_SESSION_INFO */
	PASS(0x2080018B), /* GPU_GET_ACTIVE_PARTITION_IDS */
	JUDGE(0x2080018D, 3812), /* GPU_GET_PIDS */
	PASS(0x2080018E), /* GPU_GET_PID_INFO */
	PASS(0x20800195), /* GPU_GET_COMPUTE_POLICY_CONFIG */
	PASS(0x2080019F), /* GPU_GET_SKYLINE_INFO */
	PASS(0x208001A3), /* GET_GPU_FABRIC_PROBE_INFO */
	PASS(0x208001A4), /* GPU_GET_CHIP_DETAILS */
	PASS(0x208001B2), /* GPU_GET_RECOVERY_ACTION */
	UNLISTED(0x208001E8, OPAQUE), /* GPU_RPC_GSP_TEST */
	PASS(0x20800301), /* EVENT_SET_NOTIFICATION */
	PASS(0x20800403), /* TIMER_GET_TIME */
	PASS(0x20800406), /* TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO */
	PASS(0x20800407), /* TIMER_SET_GR_TICK_FREQ */
	PASS(0x20800513), /* THERMAL_SYSTEM_EXECUTE_V2 */
	UNLISTED(0x20800610, OPAQUE), /* I2C_ACCESS */
	PASS(0x20800802, POINTERS(LIST(8, 0, 8))), /* BIOS_GET_INFO */
	UNLISTED(0x20800803, OPAQUE), /* BIOS_GET_NBSI */
	UNLISTED(0x20800806, OPAQUE), /* BIOS_GET_NBSI_OBJ */
	JUDGE(0x2080110B, 536, POINTERS(UNUSED(16))), /* FIFO_DISABLE_CHANNELS */
	DENY(0x20801110), /* FIFO_CONFIG_CTXSW_TIMEOUT */
	DENY(0x20801115), /* FIFO_RUNLIST_SET_SCHED_POLICY */
	DENY(0x20801117), /* FIFO_DISABLE_USERMODE_CHANNELS */
	DENY(0x2080111A), /* FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION */
	DENY(0x20801121), /* FIFO_OBJSCHED_SET_STATE */
	DENY(0x20801123), /* FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO */
	DENY(0x20801124), /* FIFO_QUERY_CHANNEL_UNIQUE_ID */
	PASS(0x20801201, POINTERS(LIST(8, 0, 8))), /* GR_GET_INFO */
	DENY(0x20801205), /* KGR_CTXSW_ZCULL_MODE */
	PASS(0x20801206), /* GR_GET_ZCULL_INFO */
	JUDGE(0x20801208, CGPU_AS_GIVEN, CLIENT(0)), /* GR_CTXSW_ZCULL_BIND */
	DENY(0x20801209), /* KGR_CTXSW_PM_BIND */
	JUDGE(0x20801210, CGPU_AS_GIVEN), /* GR_SET_CTXSW_PREEMPTION_MODE */
	DENY(0x20801211), /* KGR_CTXSW_PREEMPTION_BIND */
	PASS(0x20801218), /* GR_GET_CTX_BUFFER_SIZE */
	UNLISTED(0x20801219, OPAQUE), /* GR_GET_CTX_BUFFER_INFO */
	PASS(0x2080121B), /* GR_GET_GLOBAL_SM_ORDER */
	UNLISTED(0x20801220, OPAQUE), /* GR_GFX_POOL_INITIALIZE */
	UNLISTED(0x20801221, OPAQUE), /* GR_GFX_POOL_ADD_SLOTS */
	UNLISTED(0x20801222, OPAQUE), /* GR_GFX_POOL_REMOVE_SLOTS */
	PASS(0x20801227), /* GR_GET_CAPS_V2 */
	PASS(0x2080122A), /* GR_GET_GPC_MASK */
	PASS(0x2080122B), /* GR_GET_TPC_MASK */
	PASS(0x20801230), /* GR_GET_SM_ISSUE_RATE_MODIFIER */
	DENY(0x20801231), /* KGR_FECS_BIND_EVTBUF_FOR_UID */
	DENY(0x20801238), /* KGR_FECS_BIND_EVTBUF_FOR_UID_V2 */
	DENY(0x2080123A), /* KGR_CTXSW_SETUP_BIND */
	PASS(0x2080123C), /* GR_GET_SM_ISSUE_RATE_MODIFIER_V2 */
	PASS(0x2080123D), /* GR_GET_SM_ISSUE_THROTTLE_CTRL */
	JUDGE(0x20801301, 16, POINTERS(LIST(8, 0, 8))), /* FB_GET_INFO */
	JUDGE(0x20801303, CGPU_BY_BRANCH), /* FB_GET_INFO_V2 */
	UNLISTED(0x20801310, OPAQUE), /* FB_GET_BAR1_OFFSET */
	PASS(0x20801315), /* FB_GET_GPU_CACHE_INFO */
	PASS(0x20801320), /* FB_GET_FB_REGION_INFO */
	PASS(0x20801322), /* FB_GET_OFFLINED_PAGES */
	UNLISTED(0x20801327, OPAQUE), /* FB_GET_COMPBITCOPY_INFO */
	UNLISTED(0x20801329, OPAQUE), /* FB_COMPBITCOPY_SET_CONTEXT */
	UNLISTED(0x2080132A, OPAQUE), /* FB_COMPBITCOPY_GET_COMPBITS */
	UNLISTED(0x2080132C, OPAQUE), /* FB_COMPBITCOPY_READ_COMPBITS64KB */
	UNLISTED(0x2080132D, OPAQUE), /* FB_COMPBITCOPY_WRITE_COMPBITS64KB */
	UNLISTED(0x20801336, OPAQUE), /* FB_GET_AMAP_CONF */
	UNLISTED(0x20801349, OPAQUE), /* FB_GET_CLIENT_ALLOCATION_INFO */
	PASS(0x20801352), /* FB_GET_SEMAPHORE_SURFACE_LAYOUT */
	PASS(0x20801355), /* FB_QUERY_DRAM_ENCRYPTION_PENDING_CONFIGURATION */
	PASS(0x20801357), /* MEM_SYS_QUERY_DRAM_ENCRYPTION_INFOROM_SUPPORT */
	PASS(0x20801358), /* FB_QUERY_DRAM_ENCRYPTION_INFOROM_SUPPORT */
	PASS(0x20801359), /* FB_QUERY_DRAM_ENCRYPTION_STATUS */
	PASS(0x20801701), /* MC_GET_ARCH_INFO */
	PASS(0x20801702), /* MC_SERVICE_INTERRUPTS */
	PASS(0x20801801), /* BUS_GET_PCI_INFO */
	PASS(0x20801802, POINTERS(LIST(8, 0, 8))), /* BUS_GET_INFO */
	PASS(0x20801803), /* BUS_GET_PCI_BAR_INFO */
	PASS(0x20801813), /* BUS_GET_PEX_COUNTERS */
	PASS(0x20801819), /* BUS_GET_PEX_UTIL_COUNTERS */
	PASS(0x20801823), /* BUS_GET_INFO_V2 */
	PASS(0x20801829), /* BUS_GET_PCIE_REQ_ATOMICS_CAPS */
	PASS(0x2080182A), /* BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS */
	PASS(0x2080182B), /* BUS_GET_C2C_INFO */
	PASS(0x20801830), /* BUS_GET_PCIE_CPL_ATOMICS_CAPS */
	UNLISTED(0x20802002, OPAQUE), /* PERF_GET_LEVEL_INFO */
	PASS(0x2080200A), /* PERF_BOOST */
	PASS(0x2080205A), /* PERF_GET_POWERSTATE */
	PASS(0x20802068), /* PERF_GET_CURRENT_PSTATE */
	JUDGE(0x20802096, 0), /* PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2 */
	UNLISTED(0x20802204, OPAQUE), /* RC_READ_VIRTUAL_MEM */
	PASS(0x20802209), /* RC_GET_WATCHDOG_INFO */
	PASS(0x2080220C), /* RC_RELEASE_WATCHDOG_REQUESTS */
	PASS(0x20802210), /* RC_SOFT_DISABLE_WATCHDOG */
	UNLISTED(0x20802402, OPAQUE), /* NVD_GET_DUMP */
	UNLISTED(0x20802A01, POINTERS(LIST(8, 4, 1))), /* CE_GET_CAPS */
	PASS(0x20802A02), /* CE_GET_CE_PCE_MASK */
	PASS(0x20802A03), /* CE_GET_CAPS_V2 */
	PASS(0x20802A0A), /* CE_GET_ALL_CAPS */
	PASS(0x20803001), /* NVLINK_GET_NVLINK_CAPS */
	PASS(0x20803002), /* NVLINK_GET_NVLINK_STATUS */
	PASS(0x20803083), /* NVLINK_GET_PLATFORM_INFO */
	PASS(0x2080309D), /* NVLINK_LOCK_REMAP_TABLE_AND_MSE */
	PASS(0x208030A0), /* NVLINK_SETUP_NVLE_ENCRYPTION_KEY */
	PASS(0x208030A1), /* NVLINK_GET_REMAP_TABLE_INFO_V2 */
	PASS(0x208030A2), /* NVLINK_GET_UPDATE_NVLE_LIDS_V2 */
	PASS(0x208030A3), /* NVLINK_GET_UPDATE_NVLE_LIDS_V3 */
	UNLISTED(0x20803124, OPAQUE), /* FLCN_GET_CTX_BUFFER_INFO */
	PASS(0x20803125), /* FLCN_GET_CTX_BUFFER_SIZE */
	PASS(0x20803404), /* ECC_GET_REPAIR_STATUS */
	PASS(0x20803406), /* no name in NVIDIA's headers */
	PASS(0x20803601), /* GSP_GET_FEATURES */
	PASS(0x20803801), /* GRMGR_GET_GR_FS_INFO */
	UNLISTED(0x20803A01, OPAQUE), /* DMABUF_EXPORT_OBJECTS_TO_FD */
	PASS(0x20803D07), /* OS_UNIX_VIDMEM_PERSISTENCE_STATUS */
	PASS(0x20808159), /* served by the card's firmware (legacy GSS) */
	PASS(0x20808162), /* served by the card's firmware (legacy GSS) */
	PASS(0x20808513), /* THERMAL_SYSTEM_EXECUTE_V2, as legacy GSS */
	PASS(0x2080852A), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080852B), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080852C), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080852E), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080852F), /* served by the card's firmware (legacy GSS) */
	PASS(0x20808536), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080853A), /* served by the card's firmware (legacy GSS) */
	PASS(0x20808542), /* served by the card's firmware (legacy GSS) */
	PASS(0x20808546), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809001), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809009), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809019), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080901A), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809029), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809030), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809038), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809040), /* served by the card's firmware (legacy GSS) */
	PASS(0x20809064), /* served by the card's firmware (legacy GSS) */
	PASS(0x208090B0), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A026), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A054), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A060), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A06E), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A06F), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A080), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A081), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A084), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A097), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0A4), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0A6), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0A7), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0A8), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0F1), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A0F2), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A60B), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A612), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A613), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A618), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A61D), /* served by the card's firmware (legacy GSS) */
	PASS(0x2080A63C), /* served by the card's firmware (legacy GSS) */
	PASS(0x20810108), /* binary API */
	PASS(0x20810110), /* binary API */
	PASS(0x20810111), /* binary API */
	PASS(0x208F1105), /* NV208F_CTRL_CMD_GPU_VERIFY_INFOROM */
	UNLISTED(0x402C0102, OPAQUE), /* NV402C_CTRL_CMD_I2C_INDEXED */
	UNLISTED(0x402C0105, OPAQUE), /* NV402C_CTRL_CMD_I2C_TRANSACTION */
	PASS(0x503C0102), /* NV503C_CTRL_CMD_REGISTER_VA_SPACE */
	PASS(0x503C0104), /* NV503C_CTRL_CMD_REGISTER_VIDMEM */
	PASS(0x503C0105), /* NV503C_CTRL_CMD_UNREGISTER_VIDMEM */
	UNLISTED(0x50700102, OPAQUE), /* NV5070_CTRL_CMD_STOP_OVERLAY */
	UNLISTED(0x5070010E, OPAQUE), /* NV5070_CTRL_CMD_STOP_BASE */
	UNLISTED(0x50800101, OPAQUE), /* NV5080_CTRL_CMD_DEFERRED_API */
	UNLISTED(0x50800103, OPAQUE), /* NV5080_CTRL_CMD_DEFERRED_API_V2 */
	UNLISTED(0x50800104, OPAQUE), /* NV5080_CTRL_CMD_DEFERRED_API_INTERNAL */
	JUDGE(0x83DE0307, 4), /* NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG */
	PASS(0x83DE0308), /* NV83DE_CTRL_CMD_DEBUG_GET_MODE_MMU_DEBUG */
	PASS(0x83DE0309), /* NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK */
	PASS(0x83DE030C), /* NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES */
	PASS(0x83DE0310), /* NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES */
	DENY(0x83DE0313), /* NV83DE_CTRL_CMD_DEBUG_SET_NEXT_STOP_TRIGGER_TYPE: of all SMs */
	PASS(0x83DE0315, OPAQUE), /* NV83DE_CTRL_CMD_DEBUG_READ_MEMORY: to any length */
	UNLISTED(0x83DE0316, OPAQUE), /* NV83DE_CTRL_CMD_DEBUG_WRITE_MEMORY */
	/* what is suspended while it runs leaves the card to nobody; what is resumed is not shut */
	DENY(0x83DE0317), /* NV83DE_CTRL_CMD_DEBUG_SUSPEND_CONTEXT */
	DENY(0x83DE0318), /* NV83DE_CTRL_CMD_DEBUG_RESUME_CONTEXT */
	DENY(0x83DE031D), /* DEBUG_EXEC_REG_OPS */
	PASS(0x83DE031F), /* NV83DE_CTRL_CMD_DEBUG_SET_MODE_ERRBAR_DEBUG */
	PASS(0x83DE0320), /* NV83DE_CTRL_CMD_DEBUG_GET_MODE_ERRBAR_DEBUG */
	/* they stop and start an SM, whoever has it */
	DENY(0x83DE0321), /* NV83DE_CTRL_CMD_DEBUG_SET_SINGLE_SM_SINGLE_STEP */
	DENY(0x83DE0322), /* NV83DE_CTRL_CMD_DEBUG_SET_SINGLE_SM_STOP_TRIGGER */
	DENY(0x83DE0323), /* NV83DE_CTRL_CMD_DEBUG_SET_SINGLE_SM_RUN_TRIGGER */
	DENY(0x83DE0324), /* NV83DE_CTRL_CMD_DEBUG_SET_SINGLE_SM_SKIP_IDLE_WARP_DETECT */
	UNLISTED(0x83DE0326, OPAQUE), /* NV83DE_CTRL_CMD_DEBUG_READ_BATCH_MEMORY */
	UNLISTED(0x83DE0327, OPAQUE), /* NV83DE_CTRL_CMD_DEBUG_WRITE_BATCH_MEMORY */
	DENY(0x83DE032A), /* NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_GCC_DEBUG */
	PASS(0x906F0101), /* NV906F_CTRL_GET_CLASS_ENGINEID */
	DENY(0x906F0102), /* NV906F_CTRL_CMD_RESET_CHANNEL: resets an engine that it names, too */
	PASS(0x90960101), /* NV9096_CTRL_CMD_SET_ZBC_COLOR_CLEAR */
	PASS(0x90960106), /* NV9096_CTRL_CMD_GET_ZBC_CLEAR_TABLE_SIZE */
	PASS(0x90960107), /* NV9096_CTRL_CMD_GET_ZBC_CLEAR_TABLE_ENTRY */
	PASS(0x90E60102), /* NV90E6_CTRL_CMD_MASTER_GET_VIRTUAL_FUNCTION_ERROR_CONT_INTR_MASK */
	PASS(0x90E70113), /* NV90E7_CTRL_CMD_BBX_GET_LAST_FLUSH_TIME */
	UNLISTED(0x90F10101, OPAQUE), /* NV90F1_CTRL_CMD_VASPACE_GET_GMMU_FORMAT */
	UNLISTED(0x90F10102, OPAQUE), /* NV90F1_CTRL_CMD_VASPACE_GET_PAGE_LEVEL_INFO */
	UNLISTED(0x90F10105, OPAQUE), /* NV90F1_CTRL_CMD_VASPACE_GET_PAGE_LEVEL_INFO_VERIF */
	OWN(0xA06C0101), /* NVA06C_CTRL_CMD_GPFIFO_SCHEDULE */
	PASS(0xA06C0102), /* BIND */
	JUDGE(0xA06C0103, 8), /* NVA06C_CTRL_CMD_SET_TIMESLICE */
	JUDGE(0xA06C0104, 8), /* NVA06C_CTRL_CMD_GET_TIMESLICE */
	PASS(0xA06C0105), /* NVA06C_CTRL_CMD_PREEMPT */
	PASS(0xA06C0106), /* GET_INFO */
	PASS(0xA06C0107), /* SET_INTERLEAVE_LEVEL */
	PASS(0xA06C0108), /* GET_INTERLEAVE_LEVEL */
	DENY(0xA06C0110), /* MAKE_REALTIME */
	OWN(0xA06F0103), /* NVA06F_CTRL_CMD_GPFIFO_SCHEDULE */
	PASS(0xA06F0104), /* NVA06F_CTRL_CMD_BIND */
	PASS(0xA06F0109), /* SET_INTERLEAVE_LEVEL */
	PASS(0xA06F0111), /* RESTART_RUNLIST */
	UNLISTED(0xA0800105, OPAQUE), /* NVA080_CTRL_CMD_VGPU_DISPLAY_GET_POINTER_ADDRESS */
	UNLISTED(0xA0800207, OPAQUE), /* NVA080_CTRL_CMD_UPDATE_SYSMEM_BITMAP */
	UNLISTED(0xA0800301, OPAQUE), /* NVA080_CTRL_CMD_VGPU_GET_CONFIG */
	UNLISTED(0xA0830103, OPAQUE), /* NVA083_CTRL_CMD_VIRTUAL_DISPLAY_GET_DEFAULT_EDID */
	UNLISTED(0xA0BC0101, OPAQUE), /* NVA0BC_CTRL_CMD_NVENC_SW_SESSION_UPDATE_INFO */
	UNLISTED(0xB0690106, OPAQUE), /* NVB069_CTRL_CMD_FAULTBUFFER_GET_REGISTER_MAPPINGS */
	PASS(0xB06F0104), /* BIND_B06_F */
	UNLISTED(0xB06F010C, OPAQUE), /* NVB06F_CTRL_CMD_GET_ENGINE_CTX_DATA */
	UNLISTED(0xB06F010D, OPAQUE), /* NVB06F_CTRL_CMD_MIGRATE_ENGINE_CTX_DATA */
	DENY(0xB0CC010A), /* NVB0CC_CTRL_CMD_EXEC_REG_OPS */
	PASS(0xB0CC0115), /* NVB0CC_CTRL_CMD_GET_CHIPLET_HS_CREDIT_POOL */
	PASS(0xB0CC0119), /* NVB0CC_CTRL_CMD_RESERVE_CCU_PROF */
	PASS(0xC06F0104), /* BIND_C06_F */
	UNLISTED(0xC3650106, OPAQUE), /* ACCESS_CNTR_BUFFER_GET_REGISTER_MAPPINGS */
	UNLISTED(0xC3690101, OPAQUE), /* MMU_FAULT_BUFFER_REGISTER_NON_REPLAY_BUF */
	UNLISTED(0xC3690102, OPAQUE), /* MMU_FAULT_BUFFER_UNREGISTER_NON_REPLAY_BUF */
	UNLISTED(0xC3690103, OPAQUE), /* MMU_FAULT_BUFFER_REGISTER_REPLAY_BUF */
	UNLISTED(0xC3690104, OPAQUE), /* MMU_FAULT_BUFFER_UNREGISTER_REPLAY_BUF */
	PASS(0xC36F0101), /* NVC36F_CTRL_GET_CLASS_ENGINEID */
	PASS(0xC36F0104), /* BIND_C36_F */
	PASS(0xC36F0108), /* NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN */
	PASS(0xC36F010A), /* NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX */
	PASS(0xC56F010B), /* NVC56F_CTRL_CMD_GET_KMB */
	PASS(0xC56F010E), /* NV_CONF_COMPUTE_CTRL_GET_SECURITY_POLICY */
	PASS(0xCB330101), /* NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES */
	PASS(0xCB330104), /* NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_GPUS_STATE */
	JUDGE(0xCB330106, 24), /* NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_VIDMEM_SIZE */
	PASS(0xCB330109), /* NV_CONF_COMPUTE_CTRL_CMD_GET_GPU_CERTIFICATE */
	PASS(0xCB33010B), /* NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_NUM_SECURE_CHANNELS */
	PASS(0xCB33010C), /* NV_CONF_COMPUTE_CTRL_CMD_GPU_GET_KEY_ROTATION_STATE */
};

/* ascending */
static const struct cgpu_rule classes[] = {
	JUDGE(0x0000, 0), /* NV01_ROOT */
	JUDGE(0x0001, 0), /* NV01_ROOT_NON_PRIV */
	PASS(0x0002), /* NV01_CONTEXT_DMA */
	JUDGE(0x0005, 24, CLIENT(0)), /* NV01_EVENT: NV0005_ALLOC_PARAMETERS.hParentClient */
	UNLISTED(0x000F, CAPABILITY(0)), /* FABRIC_MANAGER_SESSION */
	JUDGE(0x003E, CGPU_BY_BRANCH), /* NV01_MEMORY_SYSTEM */
	DENY(0x003F), /* NV01_MEMORY_LOCAL_PRIVILEGED */
	JUDGE(0x0040, CGPU_BY_BRANCH), /* NV01_MEMORY_LOCAL_USER */
	JUDGE(0x0041, 0), /* NV01_ROOT_CLIENT */
	PASS(0x0070), /* NV01_MEMORY_VIRTUAL */
	PASS(0x0071, OPAQUE), /* NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: to its memory */
	PASS(0x0073), /* NV04_DISPLAY_COMMON */
	DENY(0x0076), /* NV01_MEMORY_FRAMEBUFFER_CONSOLE */
	UNLISTED(0x0078, OPAQUE), /* NV01_EVENT_KERNEL_CALLBACK */
	JUDGE(0x0079, 24, CLIENT(0)), /* NV01_EVENT_OS_EVENT */
	UNLISTED(0x007E, OPAQUE), /* NV01_EVENT_KERNEL_CALLBACK_EX */
	/* NV01_DEVICE_0: NV0080_ALLOC_PARAMETERS.hClientShare, hTargetClient */
	JUDGE(0x0080, 56, CLIENTS(4, 8)),
	/* lists of pages, and clients whose memory they are, in their parameters */
	DENY(0x0081), /* NV01_MEMORY_LIST_SYSTEM */
	DENY(0x0082), /* NV01_MEMORY_LIST_FBMEM */
	DENY(0x0083), /* NV01_MEMORY_LIST_OBJECT */
	UNLISTED(0x0092, OPAQUE), /* NV0092_RG_LINE_CALLBACK */
	UNLISTED(0x00B1, OPAQUE), /* NV01_MEMORY_HW_RESOURCES */
	UNLISTED(0x00C1, OPAQUE), /* NV_FB_SEGMENT */
	DENY(0x00C2), /* NV01_MEMORY_LOCAL_PHYSICAL */
	PASS(0x00DE), /* RM_USER_SHARED_DATA */
	UNLISTED(0x00F1, OPAQUE), /* NV_IMEX_SESSION */
	PASS(0x2080), /* NV20_SUBDEVICE_0 */
	PASS(0x2081), /* NV2081_BINAPI */
	PASS(0x208F), /* NV20_SUBDEVICE_DIAG */
	PASS(0x503B), /* NV50_P2P */
	PASS(0x503C), /* NV50_THIRD_PARTY_P2P */
	JUDGE(0x50A0, CGPU_BY_BRANCH), /* NV50_MEMORY_VIRTUAL */
	/* GT200_DEBUGGER: NV83DE_ALLOC_PARAMETERS.hAppClient */
	JUDGE(0x83DE, 12, CLIENT(4)),
	UNLISTED(0x84A0, OPAQUE), /* NV01_MEMORY_LIST */
	UNLISTED(0x9010, OPAQUE), /* NV9010_VBLANK_CALLBACK */
	PASS(0x902D), /* FERMI_TWOD_A */
	JUDGE(0x9067, 12), /* FERMI_CONTEXT_SHARE_A */
	PASS(0x9072), /* GF100_DISP_SW */
	PASS(0x9096), /* GF100_ZBC_CLEAR */
	UNLISTED(0x90CD, OPAQUE), /* NV_EVENT_BUFFER */
	PASS(0x90E6), /* GF100_SUBDEVICE_MASTER */
	PASS(0x90E7), /* GF100_SUBDEVICE_INFOROM */
	JUDGE(0x90F1, CGPU_BY_BRANCH), /* FERMI_VASPACE_A */
	JUDGE(0xA06C, 20), /* KEPLER_CHANNEL_GROUP_A */
	JUDGE(0xA06F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xA0B5), /* DMA_COPY */
	PASS(0xA0BC), /* NVENC_SW_SESSION */
	PASS(0xA0C0), /* COMPUTE */
	PASS(0xA140), /* KEPLER_INLINE_TO_MEMORY_B */
	JUDGE(0xA16F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xA1C0), /* COMPUTE */
	JUDGE(0xB06F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xB097), /* graphics */
	PASS(0xB0B5), /* DMA_COPY */
	PASS(0xB0C0), /* COMPUTE */
	PASS(0xB197), /* graphics */
	PASS(0xB1C0), /* COMPUTE */
	PASS(0xB8B0), /* NVB8B0_VIDEO_DECODER */
	PASS(0xB8D1), /* NVB8D1_VIDEO_NVJPG */
	PASS(0xB8FA), /* NVB8FA_VIDEO_OFA */
	JUDGE(0xC06F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC097), /* graphics */
	PASS(0xC0B5), /* DMA_COPY */
	PASS(0xC0C0), /* COMPUTE */
	PASS(0xC197), /* graphics */
	PASS(0xC1B5), /* DMA_COPY */
	PASS(0xC1C0), /* COMPUTE */
	PASS(0xC361), /* USERMODE */
	JUDGE(0xC36F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC397), /* graphics */
	PASS(0xC3B5), /* DMA_COPY */
	PASS(0xC3C0), /* COMPUTE */
	PASS(0xC461), /* USERMODE */
	JUDGE(0xC46F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC4B0), /* NVC4B0_VIDEO_DECODER */
	PASS(0xC4B7), /* NVC4B7_VIDEO_ENCODER */
	PASS(0xC4D1), /* NVC4D1_VIDEO_NVJPG */
	PASS(0xC561), /* USERMODE */
	JUDGE(0xC56F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC597), /* graphics */
	PASS(0xC5B5), /* DMA_COPY */
	PASS(0xC5C0), /* COMPUTE */
	PASS(0xC637, CAPABILITY(0)), /* AMPERE_SMC_PARTITION_REF */
	UNLISTED(0xC638, CAPABILITY(0)), /* AMPERE_SMC_EXEC_PARTITION_REF */
	PASS(0xC639, CAPABILITY(0)), /* AMPERE_SMC_CONFIG_SESSION */
	PASS(0xC640, CAPABILITY(0)), /* AMPERE_SMC_MONITOR_SESSION */
	PASS(0xC661), /* USERMODE */
	PASS(0xC697), /* graphics */
	PASS(0xC6B0), /* NVC6B0_VIDEO_DECODER */
	PASS(0xC6B5), /* DMA_COPY */
	PASS(0xC6C0), /* COMPUTE */
	PASS(0xC6FA), /* NVC6FA_VIDEO_OFA */
	PASS(0xC761), /* USERMODE */
	PASS(0xC797), /* graphics */
	PASS(0xC7B0), /* NVC7B0_VIDEO_DECODER */
	PASS(0xC7B5), /* DMA_COPY */
	PASS(0xC7B7), /* NVC7B7_VIDEO_ENCODER */
	PASS(0xC7C0), /* COMPUTE */
	PASS(0xC7FA), /* NVC7FA_VIDEO_OFA */
	JUDGE(0xC86F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC8B5), /* DMA_COPY */
	JUDGE(0xC96F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xC997), /* graphics */
	PASS(0xC9B0), /* NVC9B0_VIDEO_DECODER */
	PASS(0xC9B5), /* DMA_COPY */
	PASS(0xC9B7), /* NVC9B7_VIDEO_ENCODER */
	PASS(0xC9C0), /* COMPUTE */
	PASS(0xC9D1), /* NVC9D1_VIDEO_NVJPG */
	PASS(0xC9FA), /* NVC9FA_VIDEO_OFA */
	JUDGE(0xCA6F, CGPU_BY_BRANCH), /* CHANNEL_GPFIFO */
	PASS(0xCAB5), /* DMA_COPY */
	JUDGE(0xCB33, 4, CLIENT(0)), /* NV_CONFIDENTIAL_COMPUTE */
	PASS(0xCB97), /* graphics */
	PASS(0xCBA2), /* HOPPER_SEC2_WORK_LAUNCH_A */
	PASS(0xCBC0), /* COMPUTE */
	PASS(0xCD40), /* BLACKWELL_INLINE_TO_MEMORY_A */
	PASS(0xCD97), /* graphics */
	PASS(0xCDB0), /* NVCDB0_VIDEO_DECODER */
	PASS(0xCDC0), /* COMPUTE */
	PASS(0xCDD1), /* NVCDD1_VIDEO_NVJPG */
	PASS(0xCDFA), /* NVCDFA_VIDEO_OFA */
	PASS(0xCE97), /* graphics */
	PASS(0xCEB0), /* NVCEB0_VIDEO_DECODER */
	PASS(0xCEB7), /* NVCEB7_VIDEO_ENCODER */
	PASS(0xCEC0), /* COMPUTE */
	PASS(0xCEFA), /* NVCEFA_VIDEO_OFA */
	PASS(0xCFB0), /* NVCFB0_VIDEO_DECODER */
	PASS(0xCFB7), /* NVCFB7_VIDEO_ENCODER */
	PASS(0xCFD1), /* NVCFD1_VIDEO_NVJPG */
	PASS(0xCFFA), /* NVCFFA_VIDEO_OFA */
	PASS(0xD1B0), /* NVD1B0_VIDEO_DECODER */
	PASS(0xD1B7), /* NVD1B7_VIDEO_ENCODER */
	PASS(0xD1FA), /* NVD1FA_VIDEO_OFA */
	PASS(0xD2B0), /* NVD2B0_VIDEO_DECODER */
	PASS(0xD2D1), /* NVD2D1_VIDEO_NVJPG */
	PASS(0xD2FA), /* NVD2FA_VIDEO_OFA */
};

#define AT(type, field) PLACE(offsetof(struct type, field))
/* of a struct that the argument ends with */
#define END(type, field) ((int)offsetof(struct type, field) - (int)sizeof(struct type))
#define JUDGED .judge = CGPU_JUDGE_CORE
#define PASSED { .judge = CGPU_JUDGE_DRIVER }
#define RANGE(type) .base = AT(type, base), .length = AT(type, length)
#define RANGE_GROUP \
	{ JUDGED, .op = CGPU_OP_UVM_RANGE_GROUP, \
	  .status = AT(uvm_range_group, rmStatus) }

/* By _IOC_NR. */
const struct cgpu_ioctl_rule cgpu_escapes[CGPU_ESCAPES] = {
	[NV_ESC_RM_ALLOC_MEMORY] = {
		JUDGED, .size = sizeof(struct nvos02_fd), .op = CGPU_OP_ALLOC_MEMORY,
		.hClient = AT(nvos02, hRoot), .hParent = AT(nvos02, hObjectParent),
		.hObject = AT(nvos02, hObjectNew), .makes = true, .hClass = AT(nvos02, hClass),
		.flags = AT(nvos02, flags), .status = AT(nvos02, status),
	},
	[NV_ESC_RM_ALLOC_OBJECT] = {
		JUDGED, .size = sizeof(struct nvos05), .op = CGPU_OP_ALLOC,
		.hClient = AT(nvos05, hRoot), .hParent = AT(nvos05, hObjectParent),
		.hObject = AT(nvos05, hObjectNew), .makes = true, .hClass = AT(nvos05, hClass),
		.status = AT(nvos05, status),
	},
	[NV_ESC_RM_FREE] = {
		JUDGED, .size = sizeof(struct nvos00), .op = CGPU_OP_FREE,
		.hClient = AT(nvos00, hRoot), .hParent = AT(nvos00, hObjectParent),
		.hObject = AT(nvos00, hObjectOld), .status = AT(nvos00, status),
	},
	[NV_ESC_RM_CONTROL] = { /* decode_control() knows where what stands */
		JUDGED, .size = sizeof(struct nvos54), .op = CGPU_OP_CONTROL,
		.params = AT(nvos54, params),
	},
	[NV_ESC_RM_ALLOC] = { /* struct nvos21, or nvos64, which has its status elsewhere */
		JUDGED, .op = CGPU_OP_ALLOC, .params = AT(nvos21, pAllocParms),
		.rights = AT(nvos64, pRightsRequested),
		.hClient = AT(nvos21, hRoot), .hParent = AT(nvos21, hObjectParent),
		.hObject = AT(nvos21, hObjectNew), .makes = true, .hClass = AT(nvos21, hClass),
	},
	[NV_ESC_RM_DUP_OBJECT] = {
		JUDGED, .size = sizeof(struct nvos55), .op = CGPU_OP_DUP,
		.hClient = AT(nvos55, hClient), .hParent = AT(nvos55, hParent),
		.hObject = AT(nvos55, hObject), .makes = true, .status = AT(nvos55, status),
		.hClientSrc = AT(nvos55, hClientSrc), .hObjectSrc = AT(nvos55, hObjectSrc),
	},
	[NV_ESC_RM_SHARE] = {
		JUDGED, .size = sizeof(struct nvos57), .op = CGPU_OP_CLIENT_CALL,
		.hClient = AT(nvos57, hClient), .hObject = AT(nvos57, hObject),
		.status = AT(nvos57, status),
	},
	[NV_ESC_RM_VID_HEAP_CONTROL] = {
		JUDGED, .size = sizeof(struct nvos32), .op = CGPU_OP_HEAP_OTHER,
		.hClient = AT(nvos32, hRoot), .hParent = AT(nvos32, hObjectParent),
		.status = AT(nvos32, status),
	},
	[NV_ESC_RM_MAP_MEMORY] = {
		JUDGED, .size = sizeof(struct nvos33_fd), .op = CGPU_OP_MAP_MEMORY,
		.hClient = AT(nvos33, hClient), .hParent = AT(nvos33, hDevice),
		.hObject = AT(nvos33, hMemory), .fd = AT(nvos33_fd, fd),
		.offset = AT(nvos33, offset), .length = AT(nvos33, length),
		.chosen = AT(nvos33, pLinearAddress), .status = AT(nvos33, status),
	},
	[NV_ESC_RM_UNMAP_MEMORY] = {
		JUDGED, .size = sizeof(struct nvos34), .op = CGPU_OP_UNMAP_MEMORY,
		.hClient = AT(nvos34, hClient), .hObject = AT(nvos34, hMemory),
		.base = AT(nvos34, pLinearAddress), .status = AT(nvos34, status),
	},
	[NV_ESC_RM_ALLOC_CONTEXT_DMA2] = { /* hObjectParent is the client here */
		JUDGED, .size = sizeof(struct nvos39), .op = CGPU_OP_CONTEXT_DMA,
		.hClient = AT(nvos39, hObjectParent), .hObject = AT(nvos39, hObjectNew),
		.makes = true, .hClass = AT(nvos39, hClass), .status = AT(nvos39, status),
	},
	[NV_ESC_RM_MAP_MEMORY_DMA] = { /* hDma: where the page tables are */
		JUDGED, .op = CGPU_OP_MAP_DMA, .hClient = AT(nvos46, hClient),
		.hParent = AT(nvos46, hDevice), .hObject = AT(nvos46, hDma),
		.length = AT(nvos46, length), .chosen = END(nvos46, dmaOffset),
		.status = END(nvos46, status),
	},
	[NV_ESC_RM_UNMAP_MEMORY_DMA] = {
		JUDGED, .op = CGPU_OP_UNMAP_DMA, .hClient = AT(nvos47, hClient),
		.hParent = AT(nvos47, hDevice), .hObject = AT(nvos47, hDma),
		.base = AT(nvos47, dmaOffset), .status = END(nvos47, status),
	},
	[NV_ESC_RM_BIND_CONTEXT_DMA] = {
		JUDGED, .size = sizeof(struct nvos49), .op = CGPU_OP_CLIENT_CALL,
		.hClient = AT(nvos49, hClient), .hObject = AT(nvos49, hCtxDma),
		.status = AT(nvos49, status),
	},
	[NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO] = {
		JUDGED, .size = sizeof(struct nvos56), .op = CGPU_OP_MOVE_MAPPING,
		.hClient = AT(nvos56, hClient), .hObject = AT(nvos56, hMemory),
		.base = AT(nvos56, pOldCpuAddress), .chosen = AT(nvos56, pNewCpuAddress),
		.status = AT(nvos56, status),
	},
	[NV_ESC_ALLOC_OS_EVENT] = {
		JUDGED, .size = sizeof(struct nv_ioctl_os_event), .op = CGPU_OP_OS_EVENT,
		.hClient = AT(nv_ioctl_os_event, hClient), .status = AT(nv_ioctl_os_event, status),
	},
	[NV_ESC_FREE_OS_EVENT] = {
		JUDGED, .size = sizeof(struct nv_ioctl_os_event), .op = CGPU_OP_OS_EVENT,
		.hClient = AT(nv_ioctl_os_event, hClient), .status = AT(nv_ioctl_os_event, status),
	},
	[NV_ESC_REGISTER_FD] = {
		JUDGED, .size = sizeof(struct nv_ioctl_register_fd), .op = CGPU_OP_REGISTER_FD,
		.fd = AT(nv_ioctl_register_fd, ctl_fd),
	},
	[NV_ESC_EXPORT_TO_DMABUF_FD] = {
		JUDGED, .op = CGPU_OP_EXPORT_DMABUF,
		.hClient = AT(nv_ioctl_export_dmabuf, hClient),
		.fd = AT(nv_ioctl_export_dmabuf, fd),
	},
	/* they name no object and no descriptor of anybody */
	[NV_ESC_CARD_INFO] = PASSED,
	[NV_ESC_STATUS_CODE] = PASSED,
	[NV_ESC_CHECK_VERSION_STR] = PASSED,
	[NV_ESC_IOCTL_XFER_CMD] = PASSED, /* what it wraps is judged */
	[NV_ESC_ATTACH_GPUS_TO_FD] = PASSED,
	[NV_ESC_SYS_PARAMS] = PASSED,
	[NV_ESC_NUMA_INFO] = PASSED,
	[NV_ESC_WAIT_OPEN_COMPLETE] = PASSED,
	/* not listed; of these sizes in all branches from 535 to 595 that have them */
	[NV_ESC_RM_I2C_ACCESS] = { .unlisted_size = 32 },
	[NV_ESC_RM_IDLE_CHANNELS] = { .unlisted_size = 56 },
	[NV_ESC_RM_ACCESS_REGISTRY] = { .unlisted_size = 72 },
	[NV_ESC_RM_GET_EVENT_DATA] = { .unlisted_size = 16 },
	[NV_ESC_RM_LOCKLESS_DIAGNOSTIC] = { .unlisted_size = 15412 },
	[NV_ESC_QUERY_DEVICE_INTR] = { .unlisted_size = 8 },
	[NV_ESC_SET_NUMA_STATUS] = { .unlisted_size = 4 },
};

/* UVM_INITIALIZE's number is too large to be a place in a table. */
const struct cgpu_ioctl_rule cgpu_uvm_initialize = {
	JUDGED, .size = sizeof(struct uvm_initialize), .op = CGPU_OP_UVM_INITIALIZE,
	.flags = AT(uvm_initialize, flags), .status = AT(uvm_initialize, rmStatus),
};

/*
 * By number. Of a client and the descriptor of its file, which stand together, the client: the
 * driver takes rmCtrlFd and looks nothing up by it (535.43.02 to 595.45.04).
 */
const struct cgpu_ioctl_rule cgpu_uvm_commands[CGPU_UVM_COMMANDS] = {
	[UVM_REGISTER_GPU] = {
		JUDGED, .size = sizeof(struct uvm_register_gpu), .op = CGPU_OP_UVM_REGISTER_GPU,
		.gpu = AT(uvm_register_gpu, gpu), .hClient = AT(uvm_register_gpu, hClient),
		.status = AT(uvm_register_gpu, rmStatus),
	},
	[UVM_UNREGISTER_GPU] = {
		JUDGED, .size = sizeof(struct uvm_unregister_gpu),
		.op = CGPU_OP_UVM_UNREGISTER_GPU,
		.gpu = AT(uvm_unregister_gpu, gpu), .status = AT(uvm_unregister_gpu, rmStatus),
	},
	[UVM_REGISTER_GPU_VASPACE] = {
		JUDGED, .size = sizeof(struct uvm_register_vaspace),
		.op = CGPU_OP_UVM_REGISTER_VASPACE,
		.gpu = AT(uvm_register_vaspace, gpu),
		.hClient = AT(uvm_register_vaspace, hClient),
		.hObject = AT(uvm_register_vaspace, hVaSpace),
		.status = AT(uvm_register_vaspace, rmStatus),
	},
	[UVM_UNREGISTER_GPU_VASPACE] = {
		JUDGED, .size = sizeof(struct uvm_unregister_vaspace),
		.op = CGPU_OP_UVM_UNREGISTER_VASPACE,
		.gpu = AT(uvm_unregister_vaspace, gpu),
		.status = AT(uvm_unregister_vaspace, rmStatus),
	},
	[UVM_UNREGISTER_CHANNEL] = {
		JUDGED, .op = CGPU_OP_UVM_UNREGISTER_CHANNEL,
		.hClient = END(uvm_unregister_channel_tail, hClient),
		.hObject = END(uvm_unregister_channel_tail, hChannel),
		.status = END(uvm_unregister_channel_tail, rmStatus),
	},
	[UVM_REGISTER_CHANNEL] = {
		JUDGED, .size = sizeof(struct uvm_register_channel),
		.op = CGPU_OP_UVM_REGISTER_CHANNEL,
		.gpu = AT(uvm_register_channel, gpu), RANGE(uvm_register_channel),
		.hClient = AT(uvm_register_channel, hClient),
		.hObject = AT(uvm_register_channel, hChannel),
		.status = AT(uvm_register_channel, rmStatus),
	},
	[UVM_ALLOC_DEVICE_P2P] = {
		JUDGED, .op = CGPU_OP_UVM_MAP_EXTERNAL, RANGE(uvm_alloc_device_p2p),
		.hClient = AT(uvm_alloc_device_p2p, hClient),
		.hObject = AT(uvm_alloc_device_p2p, hMemory),
		.status = AT(uvm_alloc_device_p2p, rmStatus),
	},
	[UVM_MAP_EXTERNAL_ALLOCATION] = {
		JUDGED, .op = CGPU_OP_UVM_MAP_EXTERNAL, RANGE(uvm_map_external_head),
		.hClient = END(uvm_map_external_tail, hClient),
		.hObject = END(uvm_map_external_tail, hMemory),
		.status = END(uvm_map_external_tail, rmStatus),
	},
	[UVM_UNMAP_EXTERNAL] = {
		JUDGED, .size = sizeof(struct uvm_unmap_external),
		.op = CGPU_OP_UVM_UNMAP_EXTERNAL,
		RANGE(uvm_unmap_external), .gpu = AT(uvm_unmap_external, gpu),
		.status = AT(uvm_unmap_external, rmStatus),
	},
	[UVM_MAP_EXTERNAL_SPARSE] = {
		JUDGED, .size = sizeof(struct uvm_map_sparse), .op = CGPU_OP_UVM_MAP_SPARSE,
		RANGE(uvm_map_sparse), .gpu = AT(uvm_map_sparse, gpu),
		.status = AT(uvm_map_sparse, rmStatus),
	},
	[UVM_MAP_DYNAMIC_PARALLELISM_REGION] = {
		JUDGED, .size = sizeof(struct uvm_map_sparse), .op = CGPU_OP_UVM_PARALLELISM,
		RANGE(uvm_map_sparse), .gpu = AT(uvm_map_sparse, gpu),
		.status = AT(uvm_map_sparse, rmStatus),
	},
	[UVM_FREE] = { /* or struct uvm_free_by_base, without a length */
		JUDGED, .op = CGPU_OP_UVM_FREE, .base = AT(uvm_free, base),
		.status = END(uvm_free, rmStatus),
	},
	[UVM_CREATE_EXTERNAL_RANGE] = {
		JUDGED, .op = CGPU_OP_UVM_CREATE_EXTERNAL,
		RANGE(uvm_create_external), .status = AT(uvm_create_external, rmStatus),
	},
	[UVM_ALLOC_SEMAPHORE_POOL] = {
		JUDGED, .op = CGPU_OP_UVM_SEMAPHORE_POOL, RANGE(uvm_semaphore_pool_head),
		.status = END(uvm_semaphore_pool_tail, rmStatus),
	},
	[UVM_CREATE_RANGE_GROUP] = RANGE_GROUP,
	[UVM_DESTROY_RANGE_GROUP] = RANGE_GROUP,
	/* they act on the va_space of their own file */
	[UVM_ENABLE_PEER_ACCESS] = PASSED,
	[UVM_DISABLE_PEER_ACCESS] = PASSED,
	[UVM_SET_RANGE_GROUP] = PASSED,
	[UVM_PAGEABLE_MEM_ACCESS] = PASSED,
	[UVM_PREVENT_MIGRATION_RANGE_GROUPS] = PASSED,
	[UVM_ALLOW_MIGRATION_RANGE_GROUPS] = PASSED,
	[UVM_SET_PREFERRED_LOCATION] = PASSED,
	[UVM_UNSET_PREFERRED_LOCATION] = PASSED,
	[UVM_ENABLE_READ_DUPLICATION] = PASSED,
	[UVM_DISABLE_READ_DUPLICATION] = PASSED,
	[UVM_SET_ACCESSED_BY] = PASSED,
	[UVM_UNSET_ACCESSED_BY] = PASSED,
	[UVM_MIGRATE] = PASSED,
	[UVM_MIGRATE_RANGE_GROUP] = PASSED,
	[UVM_PAGEABLE_MEM_ACCESS_ON_GPU] = PASSED,
	[UVM_VALIDATE_VA_RANGE] = PASSED,
	[UVM_MM_INITIALIZE] = PASSED,
	[UVM_DISCARD] = PASSED,
};

/* Without a branch that depends on the number: this is on the way of every control. */
static const struct cgpu_rule *find(const struct cgpu_rule *rules, uint32_t count,
				    uint32_t number)
{
	while (count > 1) {
		uint32_t half = count / 2;

		rules = rules[half].number <= number ? rules + half : rules;
		count -= half;
	}
	return rules->number == number ? rules : &unlisted;
}

const struct cgpu_rule *cgpu_control_rule(uint32_t cmd)
{
	return find(controls, sizeof(controls) / sizeof(controls[0]), cmd);
}

const struct cgpu_rule *cgpu_class_rule(uint32_t hClass)
{
	return find(classes, sizeof(classes) / sizeof(classes[0]), hClass);
}

const struct cgpu_rule *cgpu_class_at(uint32_t index)
{
	return index < sizeof(classes) / sizeof(classes[0]) ? &classes[index] : NULL;
}

uint32_t cgpu_escape_judge(uint32_t nr)
{
	return nr < CGPU_ESCAPES ? cgpu_escapes[nr].judge : CGPU_JUDGE_NONE;
}

uint32_t cgpu_escape_unlisted_size(uint32_t nr)
{
	return nr < CGPU_ESCAPES ? cgpu_escapes[nr].unlisted_size : 0;
}

uint32_t cgpu_uvm_judge(uint32_t cmd)
{
	/* numbers too large to be a place in a table */
	if (cmd == UVM_INITIALIZE || cmd == UVM_DEINITIALIZE)
		return CGPU_JUDGE_CORE;
	return cmd < CGPU_UVM_COMMANDS ? cgpu_uvm_commands[cmd].judge : CGPU_JUDGE_NONE;
}
