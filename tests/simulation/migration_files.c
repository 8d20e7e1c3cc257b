/* migration_files.c: what a copy of the data and a file carry of the migrations of migration_simulator.h. */
#include "migration_simulator.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <string.h>

static void copy_message(void *context, const struct slot_message *message) {
    struct migration_copy *copy = context;
    if (message->verb == VERB_GRANT) slot_grants_write(&copy->grants.out, message);
    if (message->verb == VERB_TAKE) output_write(&copy->takes.out, message->name);
    if (message->verb != VERB_ESTABLISH) return;
    if (copy->import_count == JOBS_MAX) world_violated("too many jobs", -1);
    memcpy(copy->imports[copy->import_count].name, message->name.data, JOB_NAME_LEN);
    copy->imports[copy->import_count++].slot = message->ranges[0][0];
}

void moving_copy_clear(struct migration_copy *copy) {
    struct memory_output grants = copy->grants, takes = copy->takes;
    memset(copy, 0, sizeof *copy);
    copy->grants = grants;
    copy->takes = takes;
    if (!grants.out.ops) {
        memory_output_init(&copy->grants);
        memory_output_init(&copy->takes);
    }
    memory_output_clear(&copy->grants);
    memory_output_clear(&copy->takes);
}

/* migration_write_aux(), migration_imports_list() */
static void copy_state(struct node *node, struct migration_copy *copy) {
    moving_follow_log(node);
    moving_copy_clear(copy);
    copy->applied = node->len;
    memcpy(copy->data, holder_of(node)->data, sizeof copy->data);
    migrations_write(migrations_of(node), copy_message, copy);
    for (unsigned i = 0; i < MOBILE; i++) {
        const struct cluster_node *owner = cluster_of(node)->slots.owner[mobile_slot(i)];
        if (!owner || node->asynchronous) continue;
        copy->owners[i].id = owner->id;
        copy->owners[i].epoch = owner->config_epoch;
    }
}

/* migration_read_aux(), migration_read_import() */
static void read_state(struct node *node, const struct migration_copy *copy) {
    struct holder *holder = holder_of(node);
    struct slice grants = memory_output_slice(&copy->grants);
    struct slot_message message;
    holder->applied = copy->applied;
    memcpy(holder->data, copy->data, sizeof copy->data);
    memset(holder->hidden, 0, sizeof holder->hidden);
    migrations_track_takes(&holder->machine, memory_output_slice(&copy->takes));
    while (slot_grants_read(&grants, &message, &moving_ranges))
        migrations_track(&holder->machine, &message, time_of(node));
    for (unsigned i = 0; i < copy->import_count; i++) {
        uint16_t range[1][2] = {{(uint16_t)copy->imports[i].slot, (uint16_t)copy->imports[i].slot}};
        message = (struct slot_message){.verb = VERB_ESTABLISH,
                                        .name = slice_make(copy->imports[i].name, JOB_NAME_LEN),
                                        .count = 1,
                                        .ranges = (const uint16_t(*)[2])range};
        migrations_track(&holder->machine, &message, time_of(node));
    }
}

void moving_copied(struct node *node, const struct node *from) {
    copy_state(&world.nodes[from->index], &moving.arriving[node->index]);
}

/* copied_owners_read_aux() */
static void hear_owners_of_file(struct node *node) {
    const struct migration_copy *file = &moving.files[node->index];
    if (!node_is_replica(cluster_of(node)->myself)) return;
    memset(holder_of(node)->unheard, 0, sizeof holder_of(node)->unheard);
    for (unsigned i = 0; i < MOBILE; i++)
        if (file->owners[i].epoch && !node_id_equal(&file->owners[i].id, &cluster_of(node)->myself->id))
            moving_hear_owner(node, i, &file->owners[i].id, file->owners[i].epoch);
}

static void load_state(struct node *node) {
    struct holder *holder = holder_of(node);
    holder->loading = true;
    migrations_load_begins(&holder->machine, time_of(node));
    hear_owners_of_file(node);
    read_state(node, &moving.files[node->index]);
    moving_follow_log(node); /* the commands behind the file */
    holder->loading = false;
    migrations_loaded(&holder->machine);
}

void moving_load(struct node *node) {
    struct migration_copy before = moving.files[node->index];
    moving.files[node->index] = moving.arriving[node->index];
    moving.arriving[node->index] = before;
    load_state(node);
}

static void forget_jobs(struct node *node) {
    struct holder *holder = holder_of(node);
    struct migration_machine machine = {0};
    list_each(jobs_of(node), at) moving_close(node, job_at(at));
    migrations_free(&holder->machine);
    memset(holder, 0, sizeof *holder);
    holder->machine = machine;
    moving_machine_init(node, cluster_of(node));
}

void moving_crashed(struct node *node) {
    if (!moving.on) return;
    forget_jobs(node);
    holder_of(node)->machine.cluster = NULL;
    if (!node->base) moving_copy_clear(&moving.files[node->index]);
}

/* The server has its cluster again, and loads its file. */
void moving_started(struct node *node) {
    if (!moving.on) return;
    migrations_of(node)->cluster = cluster_of(node);
    load_state(node);
}

void moving_rewrite_file(struct node *node) {
    copy_state(node, &moving.files[node->index]);
    node->base = node->len;
}

/* DEBUG LOADAOF */
void moving_load_file(struct node *node) {
    world_note((int)node->index, "loads its file");
    moving_follow_log(node);
    load_state(node);
}

/* Its keys are deleted. */
void moving_leave_shard(struct node *node) {
    if (moving.on) migrations_left_shard(migrations_of(node), time_of(node));
}
void moving_emptied(struct node *node) {
    struct holder *holder = holder_of(node);
    if (!moving.on) return;
    holder->applied = 0;
    memset(holder->data, 0, sizeof holder->data);
    moving_copy_clear(&moving.files[node->index]);
}
