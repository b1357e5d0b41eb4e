/* A stand-in for libnvidia-ml.so.1: serves the machine that a file describes.
 *
 * The environment variable LINKWISE_NVML_MACHINE holds the path of the file, which standin.py
 * writes. Every call reads the file again if it was replaced, so that faults appear while a program
 * runs. One statement a line:
 *
 *   init <code> <generation>            result of nvmlInit; a new generation ends earlier sessions
 *   driver <version> <cuda version>     the latter as NVML encodes it: 12020
 *   gpu <i> <state> <uuid> <bus id> <minor> <memory, bytes> <numa or -1> <mig> <model>
 *   nvlink <i> <link> <active> <bus id> <remote type>
 *   level <i> <j> <level or -1>         as NVML encodes it; -1: not supported
 *   p2p <i> <j> <status>
 *   fabric <state> <clique> <cluster, 32 hexadecimal digits>
 *   process <i> <pid> <bytes>
 *   event <i> <type> <data>             appended only; a reader gets those after its registration
 *   fails <function> <code>             the function is not supported, or fails otherwise
 */

#define _GNU_SOURCE
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { GPUS = 16, LINKS = 36, PROCESSES = 64, EVENTS = 1024, FAILURES = 32 };
enum {
  OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999
};

typedef struct { int active; char bus_id[32]; unsigned remote_type; } Link;
typedef struct { unsigned pid; unsigned long long bytes; } Process;
typedef struct {
  int state, minor, numa, mig, links, processes;
  char uuid[96], bus_id[32], model[96];
  unsigned long long memory;
  Link link[LINKS];
  Process process[PROCESSES];
} GPU;
typedef struct { int gpu; unsigned long long type, data; } Event;
typedef struct { char function[96]; int code; } Failure;
typedef struct {
  int init, generation, cuda, gpus, events, failures;
  char driver[64];
  GPU gpu[GPUS];
  int level[GPUS][GPUS], p2p[GPUS][GPUS];
  int fabric_state, clique;
  unsigned char cluster[16];
  Event event[EVENTS];
  Failure failure[FAILURES];
} Machine;
typedef struct { int next; int registered[GPUS]; } EventSet;

/* Structures of NVML's binary interface. */
typedef struct {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} PCI;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } ProcessInfo;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } EventData;
typedef struct { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; } Fabric;
typedef struct {
  unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state;
  unsigned health;
} FabricV;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Machine machine;
static struct stat seen;
static int sessions, session_generation;
static char handles[GPUS]; /* the address of handles[i] is the handle of GPU i */

static void read_line(Machine *m, char *line) {
  int i, j, k, state, minor, numa, mig, offset = 0;
  unsigned type;
  unsigned long long a, b;
  char text[96], bus_id[32], cluster[40];
  if (sscanf(line, "init %d %d", &m->init, &m->generation) == 2) return;
  if (sscanf(line, "driver %63s %d", m->driver, &m->cuda) == 2) return;
  if (sscanf(line, "gpu %d %d %95s %31s %d %llu %d %d %n", &i, &state, text, bus_id, &minor, &a,
             &numa, &mig, &offset) == 8 && i >= 0 && i < GPUS) {
    GPU *g = &m->gpu[i];
    g->state = state, g->minor = minor, g->memory = a, g->numa = numa, g->mig = mig;
    strcpy(g->uuid, text), strcpy(g->bus_id, bus_id);
    snprintf(g->model, sizeof g->model, "%s", line + offset);
    g->model[strcspn(g->model, "\n")] = 0;
    if (i >= m->gpus) m->gpus = i + 1;
  } else if (sscanf(line, "nvlink %d %d %d %31s %u", &i, &j, &k, bus_id, &type) == 5) {
    Link *l = &m->gpu[i % GPUS].link[j % LINKS];
    l->active = k, l->remote_type = type, strcpy(l->bus_id, bus_id);
    if (j >= m->gpu[i % GPUS].links) m->gpu[i % GPUS].links = j + 1;
  } else if (sscanf(line, "level %d %d %d", &i, &j, &k) == 3) {
    m->level[i % GPUS][j % GPUS] = k;
  } else if (sscanf(line, "p2p %d %d %d", &i, &j, &k) == 3) {
    m->p2p[i % GPUS][j % GPUS] = k;
  } else if (sscanf(line, "fabric %d %d %39s", &m->fabric_state, &m->clique, cluster) == 3) {
    for (i = 0; i < 16; i++)
      if (sscanf(cluster + 2 * i, "%2x", &type) == 1) m->cluster[i] = (unsigned char)type;
  } else if (sscanf(line, "process %d %d %llu", &i, &j, &a) == 3) {
    GPU *g = &m->gpu[i % GPUS];
    if (g->processes < PROCESSES) g->process[g->processes++] = (Process){(unsigned)j, a};
  } else if (sscanf(line, "event %d %llu %llu", &i, &a, &b) == 3) {
    if (m->events < EVENTS) m->event[m->events++] = (Event){i % GPUS, a, b};
  } else if (sscanf(line, "fails %63s %d", text, &k) == 2 && m->failures < FAILURES) {
    Failure *f = &m->failure[m->failures++];
    snprintf(f->function, sizeof f->function, "%s", text), f->code = k;
  }
}

static void refresh(void) {
  const char *path = getenv("LINKWISE_NVML_MACHINE");
  struct stat now;
  if (!path || stat(path, &now)) {
    memset(&machine, 0, sizeof machine), memset(&seen, 0, sizeof seen);
    machine.init = DRIVER_NOT_LOADED, machine.generation = -1;
    return;
  }
  if (now.st_ino == seen.st_ino && now.st_dev == seen.st_dev &&
      now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
    return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  memset(&machine, 0, sizeof machine);
  char line[512];
  while (fgets(line, sizeof line, file)) read_line(&machine, line);
  fclose(file);
  seen = now;
}

/* Return an error that every call has, or the one commanded for this function. */
static int ready(const char *function) {
  refresh();
  if (machine.init) return machine.init;
  if (!sessions || session_generation != machine.generation) return UNINITIALIZED;
  for (int f = 0; f < machine.failures; f++)
    if (!strcmp(machine.failure[f].function, function)) return machine.failure[f].code;
  return OK;
}

static int gpu_of(void *handle, GPU **gpu) {
  char *h = handle;
  if (h < handles || h >= handles + machine.gpus) return INVALID_ARGUMENT;
  *gpu = &machine.gpu[h - handles];
  return (*gpu)->state;
}

static int put(char *text, unsigned size, const char *value) {
  return (unsigned)snprintf(text, size, "%s", value) < size ? OK : INSUFFICIENT_SIZE;
}

static void put_pci(PCI *pci, const char *bus_id) {
  memset(pci, 0, sizeof *pci);
  sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus_id);
  snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff,
           pci->bus & 0xff, pci->device & 0xff);
}

#define SERVE(...) SERVE_AS(__func__, __VA_ARGS__)
#define SERVE_AS(function, ...)                   \
  pthread_mutex_lock(&lock);                      \
  int code = ready(function);                     \
  if (code == OK) { __VA_ARGS__; }                \
  pthread_mutex_unlock(&lock);                    \
  return code;

#define SERVE_GPU(...) SERVE(GPU *g; if ((code = gpu_of(device, &g)) == OK) { __VA_ARGS__; })

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  refresh();
  int code = machine.init;
  if (code == OK && !sessions++) session_generation = machine.generation;
  pthread_mutex_unlock(&lock);
  return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  pthread_mutex_lock(&lock);
  int code = sessions ? OK : UNINITIALIZED;
  if (sessions) sessions--;
  pthread_mutex_unlock(&lock);
  return code;
}
const char *nvmlErrorString(int code) {
  switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  SERVE(code = put(text, size, machine.driver))
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  char version[80];
  SERVE(snprintf(version, sizeof version, "12.%s", machine.driver); code = put(text, size, version))
}
int nvmlSystemGetCudaDriverVersion(int *version) { SERVE(*version = machine.cuda) }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { SERVE(*version = machine.cuda) }
int nvmlDeviceGetCount_v2(unsigned *count) { SERVE(*count = (unsigned)machine.gpus) }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  SERVE(
    if (index >= (unsigned)machine.gpus) code = INVALID_ARGUMENT;
    else if ((code = machine.gpu[index].state) == OK) *device = &handles[index])
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  SERVE(
    code = NOT_FOUND;
    for (int i = 0; i < machine.gpus; i++)
      if (!strcmp(machine.gpu[i].uuid, uuid) && (code = machine.gpu[i].state) == OK)
        *device = &handles[i])
}
int nvmlDeviceGetIndex(void *device, unsigned *index) {
  SERVE_GPU(*index = (unsigned)(g - machine.gpu))
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
  SERVE_GPU(*minor = (unsigned)g->minor)
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  SERVE_GPU(code = put(text, size, g->uuid))
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) {
  SERVE_GPU(code = put(text, size, g->model))
}
int nvmlDeviceGetPciInfo_v3(void *device, PCI *pci) { SERVE_GPU(put_pci(pci, g->bus_id)) }
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
  SERVE_GPU(*memory = (Memory){g->memory, g->memory, 0})
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory) {
  SERVE_GPU(memory->total = memory->free = g->memory; memory->reserved = memory->used = 0)
}
int nvmlDeviceGetNumaNodeId(void *device, unsigned *node) {
  (void)node;
  SERVE_GPU(code = NOT_SUPPORTED) /* it is for GPUs whose memory is a NUMA node */
}
int nvmlDeviceGetMemoryAffinity(void *device, unsigned size, unsigned long *set, unsigned scope) {
  (void)scope;
  SERVE_GPU(
    memset(set, 0, size * sizeof *set);
    if (g->numa < 0 || (unsigned)g->numa / 64 >= size) code = NOT_SUPPORTED;
    else set[g->numa / 64] = 1UL << g->numa % 64)
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  SERVE_GPU(*major = 7, *minor = 0)
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  SERVE_GPU(
    if (g->mig < 0) code = NOT_SUPPORTED;
    else *current = *pending = (unsigned)g->mig)
}
int nvmlDeviceGetTopologyCommonAncestor(void *device, void *other, int *level) {
  GPU *o;
  SERVE_GPU(
    if ((code = gpu_of(other, &o)) == OK) {
      *level = machine.level[g - machine.gpu][o - machine.gpu];
      if (*level < 0) code = NOT_SUPPORTED;
    })
}
int nvmlDeviceGetP2PStatus(void *device, void *other, int capability, int *status) {
  (void)capability;
  GPU *o;
  SERVE_GPU(
    if ((code = gpu_of(other, &o)) == OK)
      *status = machine.p2p[g - machine.gpu][o - machine.gpu])
}
static int link_of(GPU *g, unsigned link, Link **found) {
  if (link >= LINKS) return INVALID_ARGUMENT;
  if (link >= (unsigned)g->links) return NOT_SUPPORTED;
  *found = &g->link[link];
  return OK;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
  Link *l;
  SERVE_GPU(if ((code = link_of(g, link, &l)) == OK) *active = (unsigned)l->active)
}
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) {
  Link *l;
  SERVE_GPU(if ((code = link_of(g, link, &l)) == OK) *version = 2)
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, PCI *pci) {
  Link *l;
  SERVE_GPU(if ((code = link_of(g, link, &l)) == OK) put_pci(pci, l->bus_id))
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *type) {
  Link *l;
  SERVE_GPU(if ((code = link_of(g, link, &l)) == OK) *type = l->remote_type)
}
int nvmlDeviceGetGpuFabricInfo(void *device, Fabric *fabric) {
  SERVE_GPU(
    memcpy(fabric->cluster, machine.cluster, 16);
    fabric->status = OK; fabric->clique = (unsigned)machine.clique;
    fabric->state = (unsigned char)machine.fabric_state)
}
int nvmlDeviceGetGpuFabricInfoV(void *device, FabricV *fabric) {
  SERVE_GPU(
    memcpy(fabric->cluster, machine.cluster, 16);
    fabric->status = OK; fabric->clique = (unsigned)machine.clique; fabric->health = 0;
    fabric->state = (unsigned char)machine.fabric_state)
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, ProcessInfo *infos) {
  SERVE_GPU(
    unsigned room = infos ? *count : 0;
    *count = (unsigned)g->processes;
    if (room < *count) code = INSUFFICIENT_SIZE;
    else for (unsigned i = 0; i < *count; i++)
      infos[i] = (ProcessInfo){g->process[i].pid, g->process[i].bytes, ~0U, ~0U})
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, ProcessInfo *infos) {
  (void)infos;
  SERVE_GPU(*count = 0)
}
int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
  SERVE_GPU(*types = 0x1f)
}
int nvmlEventSetCreate(EventSet **set) {
  SERVE(*set = calloc(1, sizeof **set); (*set)->next = machine.events)
}
int nvmlEventSetFree(EventSet *set) {
  free(set);
  return OK;
}
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, EventSet *set) {
  (void)types;
  SERVE_GPU(set->registered[g - machine.gpu] = 1)
}
static int next_event(EventSet *set, EventData *data) {
  SERVE_AS("nvmlEventSetWait_v2",
    code = TIMEOUT;
    while (code == TIMEOUT && set->next < machine.events) {
      Event *e = &machine.event[set->next++];
      if (set->registered[e->gpu]) {
        *data = (EventData){&handles[e->gpu], e->type, e->data, ~0U, ~0U};
        code = OK;
      }
    })
}
static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
/* Sleep until the file is replaced, as the driver's library sleeps until an event. */
int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
  char folder[PATH_MAX], changes[4096];
  const char *path = getenv("LINKWISE_NVML_MACHINE");
  snprintf(folder, sizeof folder, "%.*s", path ? (int)(strrchr(path, '/') - path) : 0, path ? path : "");
  struct pollfd watch = {inotify_init1(IN_NONBLOCK | IN_CLOEXEC), POLLIN, 0};
  inotify_add_watch(watch.fd, folder, IN_MOVED_TO | IN_DELETE);
  long end = now_ms() + timeout_ms, left;
  int code;
  while ((code = next_event(set, data)) == TIMEOUT && (left = end - now_ms()) > 0) {
    poll(&watch, 1, (int)left);
    while (read(watch.fd, changes, sizeof changes) > 0) continue;
  }
  close(watch.fd);
  return code;
}
