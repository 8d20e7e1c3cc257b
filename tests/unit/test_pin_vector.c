/* The choice of the completion vector on machines of several topologies, whose /proc and /sys are in tests/unit/data
 * (see its README). */
#include "unit.h"
#include "lib/system/random.h"
#include "net/pin.h"
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/pin-vector.XXXXXX";
static char machine[256], proc[512], sys[512], reason[256];
static struct pin_trees trees;

static void make_parents(char *path) {
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(path, 0700) < 0 && errno != EEXIST) fail_msg("mkdir %s: %s", path, strerror(errno));
        *slash = '/';
    }
}

static void add_line(char *path, const char *line) {
    make_parents(path);
    if (strncmp(line, "-> ", 3) == 0) {
        if (symlink(line + 3, path) < 0) fail_msg("symlink %s: %s", path, strerror(errno));
        return;
    }
    FILE *file = fopen(path, "a");
    if (!file) fail_msg("%s: %s", path, strerror(errno));
    fprintf(file, "%s\n", line);
    fclose(file);
}

/* Unpacks a recorded machine for the next calls of choose(). */
static void on_machine(const char *name) {
    char line[8192], path[9216];
    snprintf(path, sizeof path, "tests/unit/data/proc-%s", name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s: %s (the tests run in the project's directory)", path, strerror(errno));
    snprintf(machine, sizeof machine, "%s/%s", directory, name);
    snprintf(proc, sizeof proc, "%s/proc", machine);
    snprintf(sys, sizeof sys, "%s/sys", machine);
    trees = (struct pin_trees){proc, sys};
    bool there = access(machine, F_OK) == 0;
    while (!there && fgets(line, sizeof line, file)) {
        char *tab = strchr(line, '\t');
        if (line[0] == '#' || !tab) continue;
        *tab = 0;
        tab[1 + strcspn(tab + 1, "\n")] = 0;
        snprintf(path, sizeof path, "%s/%s", machine, line);
        add_line(path, tab + 1);
    }
    fclose(file);
}

static int choose(const char *device, int vectors, const char *cpulist) {
    cpu_set_t cpus;
    char error[128];
    assert_true(pin_parse_cpulist(cpulist, &cpus, error, sizeof error));
    int vector = pin_completion_vector(&trees, device, vectors, &cpus, reason, sizeof reason);
    assert_true(reason[0] != 0);
    return vector;
}
static void assert_reason(const char *part) {
    if (!strstr(reason, part)) fail_msg("the reason is \"%s\", not \"…%s…\"", reason, part);
}

TEST(the_vector_served_on_the_cpu_is_chosen) {
    on_machine("mlx5-2nodes");
    static const int cpu_of[] = {4, 5, 6, 7, 12, 13, 14, 15, 0, 1, 2, 3, 8, 9, 10, 11};
    for (int vector = 0; vector < 16; vector++) {
        char cpu[8];
        snprintf(cpu, sizeof cpu, "%d", cpu_of[vector]);
        assert_int_equal(choose("mlx5_0", 16, cpu), vector);
        assert_reason("is served on the server's CPUs");
    }
    assert_int_equal(choose("mlx5_0", 16, "6"), 2);
    assert_reason("interrupt 67 (mlx5_comp2@pci:0000:3b:00.0)");
}

TEST(another_port_of_the_card_has_interrupts_of_its_own) {
    on_machine("mlx5-2nodes");
    assert_int_equal(choose("mlx5_1", 16, "6"), 13);
    assert_int_equal(choose("mlx5_1", 16, "11"), 0);
}

TEST(of_several_cpus_each_vector_has_its_turn) {
    on_machine("mlx5-2nodes");
    random_seed(1);
    unsigned chosen = 0;
    for (int i = 0; i < 60; i++) chosen |= 1u << choose("mlx5_0", 16, "5,7,13");
    assert_int_equal(chosen, 1u << 1 | 1u << 3 | 1u << 5);
}

TEST(vectors_that_the_device_does_not_offer_are_left_out) {
    on_machine("mlx5-2nodes");
    assert_int_equal(choose("mlx5_0", 8, "15"), 7);
    assert_int_equal(choose("mlx5_0", 7, "15"), 3); /* the vector of CPU 7, the other thread of the core */
    assert_reason("other thread");
    assert_int_equal(choose("mlx5_0", 3, "15"), -1);
    assert_reason("none of the 3 interrupts of mlx5_0");
}

TEST(mlx4_counts_from_one_and_an_own_interrupt_beats_one_for_all) {
    on_machine("mlx4-few-vectors");
    for (int i = 0; i < 20; i++) assert_int_equal(choose("mlx4_0", 4, "0"), 0);
    int vector = choose("mlx4_0", 4, "2");
    assert_true(vector == 1 || vector == 2);
    assert_int_equal(choose("mlx4_0", 4, "5"), 3);
    assert_reason("on the server's CPUs and others");
    assert_int_equal(choose("mlx4_0", 3, "5"), -1);
}

TEST(interrupts_of_the_network_interface_and_of_events_are_ignored) {
    on_machine("irdma-smt");
    assert_int_equal(choose("irdma0", 5, "0"), 0);
    assert_reason("irdma-0000:4b:00.0-CEQ-0");
    assert_int_equal(choose("irdma0", 5, "3"), 3);
    assert_int_equal(choose("irdma0", 5, "5"), 4); /* not 1, which belongs to the core's other thread */
    assert_int_equal(choose("irdma0", 5, "6"), 2);
    assert_reason("other thread");
}

TEST(the_interrupt_list_of_the_device_is_used_when_names_do_not_match) {
    on_machine("bnxt-vm");
    assert_int_equal(choose("bnxt_re0", 3, "3"), 0);
    assert_int_equal(choose("bnxt_re0", 3, "5"), 2);
    assert_int_equal(choose("bnxt_re1", 1, "0"), 0);
    assert_int_equal(choose("bnxt_re1", 1, "3"), -1);
}

TEST(a_server_that_is_not_pinned_prefers_none) {
    on_machine("mlx5-2nodes");
    assert_int_equal(choose("mlx5_0", 16, "0-15"), -1);
    assert_reason("server-cpulist");
    assert_int_equal(choose("mlx5_0", 16, "0-1023"), -1);
}

TEST(devices_without_interrupts_prefer_none) {
    on_machine("rxe");
    assert_int_equal(choose("rxe0", 2, "1"), -1);
    assert_reason("rxe0 is no PCI device");
    on_machine("no-device");
    assert_int_equal(choose("mlx5_0", 2, "1"), -1);
    trees.proc = "/nonexistent";
    on_machine("mlx5-2nodes");
    trees.proc = "/nonexistent";
    assert_int_equal(choose("mlx5_0", 16, "1"), -1);
    assert_reason("cannot be read");
}

TEST(hostile_names_and_lines_do_no_harm) {
    on_machine("bnxt-vm");
    char path[1024], line[256];
    snprintf(path, sizeof path, "%s/hostile/interrupts", machine);
    static const char *const lines[] = {"",
                                        ":",
                                        "50",
                                        "50:",
                                        "99999999999999999999: 1 x comp1",
                                        "-3: 0 comp1@pci:0000:18:00.0",
                                        "50: 0 comp99999999999999999999@pci:0000:18:00.0",
                                        "50: 0 comp@pci:0000:18:00.0",
                                        "50: 0 mlx4-0@0000:18:00.0",
                                        "51: 0 mlx4-@0000:18:00.0",
                                        "\t \t"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(line, sizeof line, "%s", lines[i]);
        add_line(path, line);
    }
    static char other[1024];
    snprintf(other, sizeof other, "%s/hostile", machine);
    trees.proc = other;
    assert_int_equal(choose("bnxt_re0", 1024, "3"), -1);
    assert_reason("no interrupt in");
    assert_int_equal(choose("../../../../..", 4, "3"), -1);
    assert_int_equal(choose("", 4, "3"), -1);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    return remove(path);
}
static int set_up(void **state) {
    return mkdtemp(directory) ? 0 : -1;
}
static int tear_down(void **state) {
    return nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
    return RUN_TESTS_WITH(set_up, tear_down);
}
