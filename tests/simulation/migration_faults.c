/* migration_faults.c: which slots of migration_simulator.h move, what may happen meanwhile, and what is true in the
 * end. */
#include "migration_simulator.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <string.h>

/* CLUSTER MIGRATESLOTS */
void moving_migrate_some_slot(void) {
    unsigned mobile = (unsigned)world_random(MOBILE), slot = mobile_slot(mobile);
    struct node *source = &world.nodes[world_random(MACHINES)], *target = &world.nodes[world_random(MACHINES)];
    struct slot_ranges *ranges = &moving_ranges;
    char name[JOB_NAME_LEN + 1];
    if (!world_runs(source) || !world_runs(target) || source == target || !is_primary(source)) return;
    const struct node_id *id = &cluster_of(target)->myself->id;
    if (!leads_for_certain(source) || !cluster_serves(cluster_of(source), slot)) return;
    if (!nodes_find(&cluster_of(source)->nodes, id) || export_with_slot(migrations_of(source), slot)) return;
    if (!is_primary(target) && world_random(20)) return;
    snprintf(name, sizeof name, "%040u", ++moving.names);
    world_note(-1, "job %u: slot %u from %u to %u", moving.names, mobile, source->index, target->index);
    memset(ranges, 0, sizeof *ranges);
    slot_ranges_add(ranges, slot, slot);
    export_new(migrations_of(source), slice_make(name, JOB_NAME_LEN), id, ranges, time_of(source));
}

/* What may happen between two messages of a migration. Machines come back with the other faults. */
static void disturb(struct node *node, struct slot_job *job) {
    struct slot_export *export = export_of(job);
    unsigned link = sim_job_of(job)->link;
    switch (world_random(8)) {
    case 0:
        if (!link) break;
        moving_send_to(SENT_CLOSED, node, sim_job_of(job)->peer, link);
        moving_link_closed(node, link);
        break;
    case 1:
        if (export && !export->cancelled) export_cancel(migrations_of(node), export, time_of(node));
        break;
    case 2:
        if (moving.may_crash(node)) moving.crash(node);
        break;
    case 3: /* cut off from all others */
        for (unsigned i = 0; i < MACHINES; i++) {
            cluster_sim.group[i] = i == node->index;
            for (unsigned j = 0; j < MACHINES; j++) world.cut[i][j] = (i == node->index) != (j == node->index);
        }
        break;
    case 4:
        sim_freeze(machine_of(node), (int64_t)world_random(4000));
        node->frozen_until = world.now + machine_of(node)->frozen_until_ms - cluster_sim.now_ms;
        break;
    case 5: moving_load_file(node); break;
    case 6: job_end_later(job, "The host has failed the job"); break;
    default:
        cluster_failover(cluster_of(node), FAILOVER_NORMAL, "test", sim_time(machine_of(node)));
        for (unsigned i = 0; i < MACHINES; i++) { /* of a replica of its */
            struct node *replica = &world.nodes[i];
            if (!world_runs(replica) || !cluster_of(replica) || replica->follows != (int)node->index) continue;
            cluster_failover(cluster_of(replica), FAILOVER_FORCE, "test", sim_time(machine_of(replica)));
            break;
        }
    }
}

/* Mostly late in a job: a handshake that fails is no danger. */
void moving_disturb_some_job(void) {
    struct node *node = &world.nodes[world_random(MACHINES)];
    if (!world_runs(node) || !cluster_of(node)) return;
    list_each(jobs_of(node), at) {
        struct slot_job *job = job_at(at);
        struct slot_export *export = export_of(job);
        bool early = export ? export->state < EXPORT_PAUSED : import_of(job)->state < IMPORT_SOURCE_PAUSED;
        if ((job->tracked || early) && world_random(10)) continue;
        disturb(node, job);
        return;
    }
}

/* What a slot has may be lost if the shard, which has no synchronous replication, has it or moves it. */
void moving_lose(unsigned shard) {
    if (!moving.on || !moving.holders) return;
    for (unsigned slot = 0; slot < MOBILE; slot++)
        for (unsigned i = 0; i < MACHINES; i++) {
            const struct node *node = &world.nodes[i];
            const struct cluster *cluster = cluster_sim.machines[i].cluster;
            const struct cluster_node *owner = cluster ? cluster->slots.owner[mobile_slot(slot)] : NULL;
            int index = owner == NULL ? -1 : owner == cluster->myself ? (int)i : sim_index(owner->address);
            bool touches = index >= 0 && world.nodes[index].asynchronous && world.nodes[index].shard == shard;
            list_each(jobs_of(node), at) touches |=
                node->asynchronous && node->shard == shard && mobile_of_job(job_at(at)) == slot;
            if (touches) moving.acknowledged[slot] = 0;
        }
}

/* The keys of a slot are with its owner only. NULL: they are. */
const char *moving_keys_left_behind(void) {
    static char text[100];
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (node->asynchronous && node->replica &&
            memcmp(holder_of(node)->data, holder_of(&world.nodes[node->follows])->data, sizeof(uint64_t[MOBILE])) != 0)
            return "a replica has other keys of moved slots than its primary";
        for (unsigned slot = 0; slot < MOBILE && leads_shard(node); slot++) {
            if (!holder_of(node)->data[slot] || cluster_serves(cluster_of(node), mobile_slot(slot))) continue;
            snprintf(text, sizeof text, "slot %u has left keys behind at %u", slot, i);
            return text;
        }
    }
    return NULL;
}

const char *moving_unfinished(void) {
    for (unsigned i = 0; i < MACHINES; i++) {
        if (world.nodes[i].replica && !world.nodes[i].link)
            continue; /* it has promised a later term: it is refused
                         while its primary can do without it */
        list_each(jobs_of(&world.nodes[i]), at) {
            static char text[160];
            const struct slot_job *job = job_at(at);
            snprintf(text, sizeof text, "migration %.40s, an %s of slot %u, stays for ever at %u: %s", job->name,
                     job->kind == JOB_IMPORT ? "import" : "export", mobile_of_job(job), i, job_state_name(job));
            return text;
        }
    }
    for (unsigned slot = 0; slot < MOBILE; slot++) {
        bool served = false;
        for (unsigned i = 0; i < MACHINES; i++)
            served |= leads_shard(&world.nodes[i]) && sim_serves(&cluster_sim, i, mobile_slot(slot));
        if (!served) return "no server serves a slot that may move";
    }
    return NULL;
}
