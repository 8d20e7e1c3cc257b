/* The owners of slots in a copy of the primary: what a replica remembers of primaries that it does not know. */
#include "unit.h"
#include "cluster/copied_owners.h"
#include "cluster/this_node.h"
#include "lib/system/memory.h"
#include "../simulation/cluster_simulator.h"

static struct sim sim;
static char *text; /* of a copy */
static size_t text_len;

/* Machine 3 follows machine 0. */
static void build(void) {
    sim_init(&sim, 4, 4, 2000);
    sim_build(&sim, 3, 60000);
    sim_run(&sim, 3000);
    this_cluster = sim.machines[3].cluster;
    copied_owners_begin();
}
static void end(void) {
    copied_owners_begin();
    mem_free(text);
    text = NULL;
    text_len = 0;
    this_cluster = NULL;
    sim_free(&sim);
}
static void add(const char *id, unsigned long long epoch, const char *ranges) {
    text = mem_realloc(text, text_len + NODE_ID_LEN + strlen(ranges) + 32);
    text_len += (size_t)sprintf(text + text_len, "%.40s %llu %s,", id, epoch, ranges);
}
static const char *stranger(unsigned number) {
    static char id[NODE_ID_LEN + 1];
    snprintf(id, sizeof id, "%040x", number);
    return id;
}
static void read_copy(void) {
    copied_owners_read_aux(SLICE("cluster-slot-owners"), slice_make(text, text_len));
}

TEST(slots_of_a_stranger_wait_for_a_later_claim) {
    build();
    struct cluster_node *owner = this_cluster->slots.owner[7];
    add(stranger(1), owner->config_epoch + 1, "7-8 10-10");
    add(stranger(2), this_cluster->slots.owner[9]->config_epoch, "9-9");
    read_copy();
    assert_true(copied_owner_is_unknown(7) && copied_owner_is_unknown(8) && copied_owner_is_unknown(10));
    assert_false(copied_owner_is_unknown(9) || copied_owner_is_unknown(11));
    owner->config_epoch++;
    assert_false(copied_owner_is_unknown(7));
    owner->config_epoch--;
    copied_owners_begin();
    assert_false(copied_owner_is_unknown(7));
    end();
}

TEST(a_primary_that_is_known_is_believed) {
    build();
    const struct cluster_node *one = sim.machines[1].cluster->myself, *owner = this_cluster->slots.owner[0];
    unsigned slot = 0;
    while (node_id_equal(&this_cluster->slots.owner[slot]->id, &one->id)) slot++;
    char range[32];
    snprintf(range, sizeof range, "%u-%u", slot, slot);
    assert_non_null(owner);
    add(one->id.text, this_cluster->current_epoch + 1, range);
    read_copy();
    assert_true(node_id_equal(&this_cluster->slots.owner[slot]->id, &one->id));
    assert_false(copied_owner_is_unknown(slot));
    end();
}

TEST(a_copy_that_names_a_slot_twice_is_read_up_to_there) {
    build();
    add(stranger(1), 1000, "0-5");
    add(stranger(2), 1000, "9-9 5-5");
    add(stranger(3), 1000, "20-20");
    read_copy();
    assert_true(copied_owner_is_unknown(0) && copied_owner_is_unknown(5));
    assert_false(copied_owner_is_unknown(9) || copied_owner_is_unknown(20));
    end();
}

TEST(a_damaged_list_is_read_up_to_there) {
    static const char *const damaged[] = {"9", "9-", "-9", "9-99999", "9-9 x", "9-9  10-10"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        build();
        add(stranger(1), 1000, "0-0");
        add(stranger(2), 1000, damaged[i]);
        add(stranger(3), 1000, "20-20");
        read_copy();
        assert_true(copied_owner_is_unknown(0));
        assert_false(copied_owner_is_unknown(9) || copied_owner_is_unknown(20));
        end();
    }
}

TEST(the_memory_for_strangers_is_bounded) {
    enum { STRANGERS = 10000 };
    build();
    for (unsigned i = 0; i < STRANGERS; i++) {
        char range[32];
        snprintf(range, sizeof range, "%u-%u", i, i);
        add(stranger(i), 1000, range);
    }
    size_t before = mem_used();
    read_copy();
    assert_true(mem_used() - before <= 2 * HASH_SLOTS * sizeof(uint64_t));
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        assert_int_equal(copied_owner_is_unknown(slot), slot < STRANGERS);
    end();
}
