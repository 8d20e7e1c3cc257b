/* process_check_rdma.c: the checks of --check-system for RDMA: devices, modules, access, locked memory, links, GIDs,
 * MTU, NUMA nodes, interrupts and huge pages.
 *
 * They read files of /proc, /sys and /dev only; each check finds one reason why a device could not be opened. The
 * software device of this project has no files: where the kernel has no device, the transport is asked for its device.
 *
 * On a machine without a device all checks are skipped, so that they do not change the exit status.
 * docs/rdma-on-real-cards.md explains the findings. */
#include "server/process/process_check.h"
#ifdef USE_RDMA
#include "net/pin.h"
#include "net/rdma/rdma.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 64, NAMES_MAX = 512, GIDS_MAX = 256 };
struct rdma_names {
    int count;
    char text[NAMES_MAX][NAME];
};

static int compare_names(const void *a, const void *b) {
    return strverscmp(a, b);
}

/* The entries of a directory below the root, sorted. False: there is none. */
static bool list(const struct process_check *check, struct rdma_names *names, const char *path) {
    char full[4096];
    names->count = 0;
    if ((size_t)snprintf(full, sizeof full, "%s%s", check->root, path) >= sizeof full) return false;
    DIR *directory = opendir(full);
    if (!directory) return false;
    for (struct dirent *entry; (entry = readdir(directory)) && names->count < NAMES_MAX;) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= NAME) continue;
        strcpy(names->text[names->count++], entry->d_name);
    }
    closedir(directory);
    qsort(names->text, (size_t)names->count, NAME, compare_names);
    return names->count > 0;
}

static bool devices_list(const struct process_check *check, struct rdma_names *devices) {
    return list(check, devices, "/sys/class/infiniband");
}

static void separate(struct process_check *check, const char *separator) {
    if (check->text[0]) check_say(check, "%s", separator);
}

/* --- Devices --- */

static enum check_result check_device(struct process_check *check) {
    struct rdma_names devices;
    char line[256];
    if (!devices_list(check, &devices)) {
        const char *other = *check->root ? NULL : rdma_device_name();
        if (other) {
            check_say(check, "%s, a device without a kernel driver; the checks below do not concern it", other);
            return CHECK_OK;
        }
        check_say(check, "this machine has no RDMA device. Load the driver of its card (modprobe mlx5_ib, bnxt_re, "
                         "irdma ...), or try RDMA with soft-RoCE: 'modprobe rdma_rxe && rdma link add rxe0 type rxe "
                         "netdev eth0', or with the software device: 'utils/softrdma/softrdma valkey-server ...'");
        return CHECK_SKIPPED;
    }
    struct process_check found = {.root = check->root};
    for (int i = 0; i < devices.count; i++) {
        const char *device = devices.text[i];
        if (check_line(check, line, sizeof line, "/sys/class/infiniband/%s/node_type", device) && atoi(line) == 4) {
            separate(check, "\n");
            check_say(check,
                      "%s is an iWARP device, which cannot write with immediate data as the protocol requires. Switch "
                      "the card to RoCE ('devlink dev param set pci/ADDRESS name enable_roce value true cmode "
                      "driverinit', then 'devlink dev reload pci/ADDRESS'), or use another one.",
                      device);
            continue;
        }
        separate(&found, ", ");
        check_say(&found, "%s", device);
    }
    if (check->text[0]) return CHECK_FAILED;
    check_say(check, "%s", found.text);
    return CHECK_OK;
}

/* --- What the process needs --- */

static enum check_result check_modules(struct process_check *check) {
    static const char *const modules[] = {"ib_uverbs", "rdma_ucm"};
    struct rdma_names devices, entries;
    char path[128];
    bool complete = true;
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        snprintf(path, sizeof path, "/sys/module/%s", modules[i]);
        if (list(check, &entries, path)) continue;
        separate(check, "\n");
        check_say(check,
                  "The kernel module %s is not loaded. Run 'modprobe %s' as root, and add the line '%s' to "
                  "/etc/modules-load.d/rdma.conf.",
                  modules[i], modules[i], modules[i]);
        complete = false;
    }
    if (!complete) return CHECK_FAILED;
    check_say(check, "ib_uverbs, rdma_ucm");
    return CHECK_OK;
}

static void access_check(struct process_check *check, const char *name) {
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/dev/infiniband/%s", check->root, name) >= sizeof path) return;
    if (access(path, R_OK | W_OK) == 0) return;
    separate(check, "\n");
    if (access(path, F_OK) == 0)
        check_say(check,
                  "This account may not open /dev/infiniband/%s. Run 'chmod a+rw /dev/infiniband/%s' as root; "
                  "the udev rules of rdma-core do that at each start.",
                  name, name);
    else
        check_say(check,
                  "/dev/infiniband/%s is missing. Install rdma-core, whose udev rules make it; in a container, "
                  "start it with '--device /dev/infiniband'.",
                  name);
}

static enum check_result check_access(struct process_check *check) {
    struct rdma_names devices, uverbs;
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    access_check(check, "rdma_cm");
    list(check, &uverbs, "/sys/class/infiniband_verbs");
    for (int i = 0; i < uverbs.count; i++)
        if (strncmp(uverbs.text[i], "uverbs", 6) == 0) access_check(check, uverbs.text[i]);
    if (check->text[0]) return CHECK_FAILED;
    check_say(check, "/dev/infiniband/rdma_cm and %d device file%s", uverbs.count, uverbs.count == 1 ? "" : "s");
    return CHECK_OK;
}

/* The value behind a name at the start of a line of a file of /proc. */
static bool proc_value(const struct process_check *check, const char *file, const char *name, char *value,
                       size_t size) {
    char path[4096], line[1024];
    if ((size_t)snprintf(path, sizeof path, "%s%s", check->root, file) >= sizeof path) return false;
    FILE *stream = fopen(path, "re");
    bool found = false;
    while (stream && !found && fgets(line, sizeof line, stream)) {
        size_t len = strlen(name);
        if (strncmp(line, name, len) != 0) continue;
        const char *at = line + len + strspn(line + len, ": \t");
        snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
        found = true;
    }
    if (stream) fclose(stream);
    return found;
}

static enum check_result check_memlock(struct process_check *check) {
    /* What rdma-max-registered-memory allows by default, and some MiB for queues. */
    const unsigned long long enough = (1024 + 64) * 1024ULL * 1024;
    const unsigned long long ipc_lock = 1ULL << 14; /* CAP_IPC_LOCK lifts the limit */
    struct rdma_names devices;
    char value[256];
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    if (proc_value(check, "/proc/self/status", "CapEff", value, sizeof value) &&
        (strtoull(value, NULL, 16) & ipc_lock)) {
        check_say(check, "no limit, this account has the capability IPC_LOCK");
        return CHECK_OK;
    }
    if (!proc_value(check, "/proc/self/limits", "Max locked memory", value, sizeof value)) return CHECK_SKIPPED;
    if (strncmp(value, "unlimited", 9) == 0) {
        check_say(check, "no limit");
        return CHECK_OK;
    }
    unsigned long long limit = strtoull(value, NULL, 10);
    if (limit >= enough) {
        check_say(check, "%llu MiB", limit / 1024 / 1024);
        return CHECK_OK;
    }
    check_say(check,
              "The limit of locked memory is %llu KiB. Registered memory is locked, and the server registers up to "
              "1 GiB by default (rdma-max-registered-memory). Run 'ulimit -l unlimited' before the server, or set "
              "LimitMEMLOCK=infinity in its systemd unit.",
              limit / 1024);
    return CHECK_FAILED;
}

/* --- Ports --- */

struct port {
    const char *device, *number;
    bool ethernet;
    char netdev[NAME]; /* "": unknown */
};

static void netdev_find(const struct process_check *check, struct port *port) {
    struct rdma_names names;
    char path[256];
    port->netdev[0] = 0;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%s/gid_attrs/ndevs", port->device, port->number);
    if (list(check, &names, path)) {
        for (int i = 0; i < names.count; i++)
            if (check_line(check, port->netdev, sizeof port->netdev, "%s/%s", path, names.text[i])) return;
    }
    port->netdev[0] = 0;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/net", port->device);
    if (list(check, &names, path)) snprintf(port->netdev, sizeof port->netdev, "%s", names.text[0]);
}

/* Calls `look` for each port. It adds defects to `check` and other findings to `good`. */
static enum check_result each_port(struct process_check *check,
                                   void (*look)(struct process_check *check, struct process_check *good,
                                                const struct port *port)) {
    struct rdma_names devices, ports;
    struct process_check good = {.root = check->root};
    char path[256], line[64];
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    for (int i = 0; i < devices.count; i++) {
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports", devices.text[i]);
        if (!list(check, &ports, path)) continue;
        for (int k = 0; k < ports.count; k++) {
            struct port port = {.device = devices.text[i], .number = ports.text[k]};
            port.ethernet = check_line(check, line, sizeof line, "%s/%s/link_layer", path, port.number) &&
                            strcmp(line, "Ethernet") == 0;
            if (port.ethernet) netdev_find(check, &port);
            look(check, &good, &port);
        }
    }
    if (check->text[0]) return CHECK_FAILED;
    if (!good.text[0]) return CHECK_SKIPPED;
    check_say(check, "%s", good.text);
    return CHECK_OK;
}

static bool port_line(const struct process_check *check, const struct port *port, const char *file, char *line,
                      size_t size) {
    return check_line(check, line, size, "/sys/class/infiniband/%s/ports/%s/%s", port->device, port->number, file);
}

static bool port_is_active(const struct process_check *check, const struct port *port) {
    char state[64];
    return !port_line(check, port, "state", state, sizeof state) || strstr(state, "ACTIVE");
}

static void look_link(struct process_check *check, struct process_check *good, const struct port *port) {
    char state[64], rate[64] = "";
    if (!port_line(check, port, "state", state, sizeof state)) return;
    if (strstr(state, "ACTIVE")) {
        port_line(check, port, "rate", rate, sizeof rate);
        separate(good, "; ");
        check_say(good, "%s port %s is active%s%s", port->device, port->number, *rate ? ", " : "", rate);
        return;
    }
    separate(check, "\n");
    const char *word = strchr(state, ':') ? strchr(state, ':') + 2 : state;
    check_say(check, "The link of %s port %s is %s. ", port->device, port->number, word);
    if (port->ethernet)
        check_say(check, "Run 'ip link set dev %s up' as root, and look at the cable and the switch.",
                  port->netdev[0] ? port->netdev : "NETDEV");
    else if (strstr(state, "INIT"))
        check_say(check, "The network has no subnet manager: run 'systemctl start opensm' on one machine, or turn on "
                         "that of the switch.");
    else
        check_say(check, "Look at the cable and the switch; 'ibstat %s' shows the physical state.", port->device);
}

/* "::ffff:c0a8:0105" is an IPv4 address. */
static void gid_say(struct process_check *check, const char *gid) {
    unsigned a, b;
    if (sscanf(gid, "0000:0000:0000:0000:0000:ffff:%4x:%4x", &a, &b) == 2)
        check_say(check, "%u.%u.%u.%u", a >> 8, a & 255, b >> 8, b & 255);
    else
        check_say(check, "%s", gid);
}

static void look_gid(struct process_check *check, struct process_check *good, const struct port *port) {
    char gid[64], type[64], file[64], mode[64];
    const char *netdev = port->netdev[0] ? port->netdev : "NETDEV";
    bool older = false;
    if (!port->ethernet || !port_is_active(check, port)) return;
    if (check_line(check, mode, sizeof mode, "/sys/kernel/config/rdma_cm/%s/ports/%s/default_roce_mode", port->device,
                   port->number) &&
        strcmp(mode, "RoCE v2") != 0) {
        separate(check, "\n");
        check_say(check,
                  "Connections over %s port %s use %s, which no router forwards and which a server with RoCE v2 "
                  "does not reach. Run 'cma_roce_mode -d %s -p %s -m 2' as root on each machine.",
                  port->device, port->number, mode, port->device, port->number);
        return;
    }
    for (int i = 0; i < GIDS_MAX; i++) {
        snprintf(file, sizeof file, "gids/%d", i);
        if (!port_line(check, port, file, gid, sizeof gid)) break;
        if (strspn(gid, "0:") == strlen(gid) || strncmp(gid, "fe80:", 5) == 0) continue;
        snprintf(file, sizeof file, "gid_attrs/types/%d", i);
        if (!port_line(check, port, file, type, sizeof type)) continue;
        if (strcmp(type, "RoCE v2") != 0) {
            older = true;
            continue;
        }
        separate(good, "; ");
        check_say(good, "%s port %s has GID %d, RoCE v2, ", port->device, port->number, i);
        gid_say(good, gid);
        return;
    }
    separate(check, "\n");
    if (older)
        check_say(check, "%s port %s has GIDs of RoCE v1 only. Turn on RoCE v2 in the card's driver or firmware.",
                  port->device, port->number);
    else
        check_say(check,
                  "%s port %s has no IP address, so that no address leads to it. Run 'ip addr add ADDRESS/24 "
                  "dev %s' as root.",
                  port->device, port->number, netdev);
}

static void look_mtu(struct process_check *check, struct process_check *good, const struct port *port) {
    enum { HEADERS = 96, MTU_MAX = 4096, MTU_MIN = 256 }; /* of a RoCE packet, as the kernel counts them */
    char line[64];
    if (!port->ethernet || !port->netdev[0] || !port_is_active(check, port)) return;
    if (!check_line(check, line, sizeof line, "/sys/class/net/%s/mtu", port->netdev)) return;
    int frame = atoi(line), mtu = MTU_MAX;
    while (mtu > MTU_MIN && mtu + HEADERS > frame) mtu /= 2;
    if (mtu == MTU_MAX) {
        separate(good, "; ");
        check_say(good, "%s port %s sends %d bytes a packet", port->device, port->number, mtu);
        return;
    }
    separate(check, "\n");
    check_say(check,
              "%s port %s sends %d bytes a packet instead of %d, since the MTU of %s is %d. Where the switches take "
              "larger frames, run 'ip link set dev %s mtu 4200' as root on each machine.",
              port->device, port->number, mtu, MTU_MAX, port->netdev, frame, port->netdev);
}

static enum check_result check_link(struct process_check *check) {
    return each_port(check, look_link);
}
static enum check_result check_gid(struct process_check *check) {
    return each_port(check, look_gid);
}
static enum check_result check_mtu(struct process_check *check) {
    return each_port(check, look_mtu);
}

/* --- CPUs --- */

static bool cpus_parse(const char *text, cpu_set_t *cpus) {
    char error[64];
    return pin_parse_cpulist(text, cpus, error, sizeof error) && CPU_COUNT(cpus) > 0;
}

/* The CPUs of the device's NUMA node. False: unknown, or the machine has one node. */
static bool local_cpus(const struct process_check *check, const char *device, int *node, char *text, size_t size,
                       cpu_set_t *cpus) {
    char line[64];
    struct rdma_names nodes;
    int count = 0;
    if (!list(check, &nodes, "/sys/devices/system/node")) return false;
    for (int i = 0; i < nodes.count; i++)
        count += strncmp(nodes.text[i], "node", 4) == 0 && isdigit((unsigned char)nodes.text[i][4]);
    if (count < 2 || !check_line(check, line, sizeof line, "/sys/class/infiniband/%s/device/numa_node", device))
        return false;
    *node = atoi(line);
    return *node >= 0 && check_line(check, text, size, "/sys/devices/system/node/node%d/cpulist", *node) &&
           cpus_parse(text, cpus);
}

static enum check_result check_numa(struct process_check *check) {
    struct rdma_names devices;
    struct process_check good = {.root = check->root};
    char local[1024], allowed[1024];
    cpu_set_t cpus, mine, both;
    int node;
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    for (int i = 0; i < devices.count; i++) {
        const char *device = devices.text[i];
        if (!local_cpus(check, device, &node, local, sizeof local, &cpus)) continue;
        if (!proc_value(check, "/proc/self/status", "Cpus_allowed_list", allowed, sizeof allowed) ||
            !cpus_parse(allowed, &mine))
            continue;
        CPU_AND(&both, &cpus, &mine);
        if (CPU_COUNT(&both) == 0) {
            separate(check, "\n");
            check_say(check,
                      "%s is on NUMA node %d, and this process may run on the CPUs %s, which belong to other nodes. "
                      "Start the server with 'taskset -c %s valkey-server ...'.",
                      device, node, allowed, local);
            continue;
        }
        separate(&good, "; ");
        check_say(&good, "%s is on node %d", device, node);
        if (CPU_COUNT(&both) < CPU_COUNT(&mine)) check_say(&good, ": best with --server-cpulist %s", local);
    }
    if (check->text[0]) return CHECK_FAILED;
    check_say(check, "%s", good.text[0] ? good.text : "the machine has one NUMA node, or does not know the device's");
    return good.text[0] ? CHECK_OK : CHECK_SKIPPED;
}

/* The CPUs that serve the device's interrupts. Returns the number of interrupts. */
static int interrupt_cpus(const struct process_check *check, const char *device, cpu_set_t *all) {
    struct rdma_names irqs;
    char path[256], line[1024];
    cpu_set_t cpus;
    int count = 0;
    CPU_ZERO(all);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/msi_irqs", device);
    list(check, &irqs, path);
    for (int i = 0; i < irqs.count; i++) {
        if (!(check_line(check, line, sizeof line, "/proc/irq/%s/effective_affinity_list", irqs.text[i]) &&
              cpus_parse(line, &cpus)) &&
            !(check_line(check, line, sizeof line, "/proc/irq/%s/smp_affinity_list", irqs.text[i]) &&
              cpus_parse(line, &cpus)))
            continue;
        CPU_OR(all, all, &cpus);
        count++;
    }
    return count;
}

static enum check_result check_interrupts(struct process_check *check) {
    struct rdma_names devices;
    struct process_check good = {.root = check->root};
    char local[1024], line[1024];
    cpu_set_t all, node_cpus, both, online;
    int node;
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    int machine = check_line(check, line, sizeof line, "/sys/devices/system/cpu/online") && cpus_parse(line, &online)
                      ? CPU_COUNT(&online)
                      : 1;
    for (int i = 0; i < devices.count; i++) {
        const char *device = devices.text[i];
        int count = interrupt_cpus(check, device, &all);
        if (count == 0) continue;
        if (count > 1 && machine > 1 && CPU_COUNT(&all) == 1) {
            separate(check, "\n");
            check_say(check,
                      "All %d interrupts of %s are served by one CPU. Run 'utils/pin-rdma apart -n 1 --apply' as "
                      "root, or 'systemctl start irqbalance'.",
                      count, device);
            continue;
        }
        if (local_cpus(check, device, &node, local, sizeof local, &node_cpus)) {
            CPU_AND(&both, &all, &node_cpus);
            if (CPU_COUNT(&both) == 0) {
                separate(check, "\n");
                check_say(check,
                          "No interrupt of %s is served by a CPU of its NUMA node %d (%s). Run 'utils/pin-rdma apart "
                          "-n 1 --apply' as root.",
                          device, node, local);
                continue;
            }
        }
        separate(&good, "; ");
        check_say(&good, "%s: %d on %d CPU%s", device, count, CPU_COUNT(&all), CPU_COUNT(&all) == 1 ? "" : "s");
    }
    if (check->text[0]) return CHECK_FAILED;
    check_say(check, "%s", good.text[0] ? good.text : "the devices have no interrupts of their own");
    return good.text[0] ? CHECK_OK : CHECK_SKIPPED;
}

/* --- Memory --- */

static enum check_result check_huge_pages(struct process_check *check) {
    struct rdma_names devices;
    char mode[128] = "", reserved[64] = "0";
    if (!devices_list(check, &devices)) return CHECK_SKIPPED;
    check_line(check, mode, sizeof mode, "/sys/kernel/mm/transparent_hugepage/enabled");
    check_line(check, reserved, sizeof reserved, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    if (atoll(reserved) > 0) {
        check_say(check, "%s of 2 MiB are reserved", reserved);
        return CHECK_OK;
    }
    if (strstr(mode, "[madvise]") || strstr(mode, "[always]")) {
        check_say(check, "transparent huge pages");
        return CHECK_OK;
    }
    check_say(check, "Registered memory gets no huge pages: none are reserved, and transparent ones are off. The "
                     "device then translates addresses in steps of 4 KiB. Run 'echo madvise > "
                     "/sys/kernel/mm/transparent_hugepage/enabled' or 'sysctl vm.nr_hugepages=512' as root.");
    return CHECK_FAILED;
}

const struct check_entry process_checks_rdma[] = {{"rdma-device", check_device},
                                                  {"rdma-modules", check_modules},
                                                  {"rdma-access", check_access},
                                                  {"rdma-memlock", check_memlock},
                                                  {"rdma-link", check_link},
                                                  {"rdma-gid", check_gid},
                                                  {"rdma-mtu", check_mtu},
                                                  {"rdma-numa", check_numa},
                                                  {"rdma-interrupts", check_interrupts},
                                                  {"rdma-huge-pages", check_huge_pages},
                                                  {NULL, NULL}};
#else
static enum check_result check_device(struct process_check *check) {
    check_say(check, "this server was built without RDMA");
    return CHECK_SKIPPED;
}
const struct check_entry process_checks_rdma[] = {{"rdma-device", check_device}, {NULL, NULL}};
#endif
