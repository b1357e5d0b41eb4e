"""Resources and annotations by which other systems than Linkwise give out GPUs and the like."""

ACCELERATORS = (
    ("amd.com/", "GPUs of AMD"),
    ("gpu.intel.com/", "GPUs of Intel"),
    ("habana.ai/", "Gaudi accelerators of Intel"),
    ("huawei.com/Ascend", "Ascend NPUs of Huawei"),
    ("huawei.com/npu", "Ascend NPUs of Huawei"),
    ("google.com/tpu", "TPUs of Google"),
    ("cloud-tpus.google.com/", "TPUs of Google"),
    ("aws.amazon.com/neuron", "Neuron devices of AWS"),
    ("volcano.sh/vgpu-", "vGPUs of Volcano"),
    ("volcano.sh/gpu-", "GPUs of Volcano"),
    ("koordinator.sh/gpu", "GPUs of Koordinator"),
    ("4pd.io/vgpu", "vGPUs of 4Paradigm"),
    ("tencent.com/vcuda-", "vGPUs of Tencent"),
    ("tke.cloud.tencent.com/qgpu-", "vGPUs of Tencent"),
    ("baidu.com/", "GPUs of Baidu"),
    ("cambricon.com/", "MLUs of Cambricon"),
    ("metax-tech.com/", "GPUs of MetaX"),
    ("mthreads.com/", "GPUs of Moore Threads"),
    ("hygon.com/", "DCUs of Hygon"),
    ("iluvatar.", "GPUs of Iluvatar"),
    ("enflame.com/", "GCUs of Enflame"),
    ("birentech.com/", "GPUs of Biren"),
    ("kunlunxin.com/", "XPUs of Kunlunxin"),
    ("alibabacloud.com/ppu", "PPUs of T-Head, which ACS gives out"),
    ("graphcore.ai/", "IPUs of Graphcore"),
    ("furiosa.ai/", "NPUs of FuriosaAI"),
    ("rebellions.ai/", "NPUs of Rebellions"),
    ("qualcomm.com/qaic", "accelerators of Qualcomm"),
)
"""The beginning of the name of a resource, and whose devices it counts."""
KAI_FRACTIONS = ("gpu-fraction", "gpu-memory")
"""Annotations of pods that KAI Scheduler, and Run:ai, give a part of a GPU."""
