/* sentinel_simulator.h: many Sentinels and the servers of a group in virtual time, with faults.
 *
 * Each Sentinel is the state machine of src/sentinel/protocol. Connections, servers and disks are simulated:
 * messages are delayed and lost, connections break, clocks differ by up to 5 % in speed and jump forward, Sentinels and
 * servers are partitioned, stopped, and crash; a crash of a Sentinel, often just after a vote, may lose what it has not
 * settled on disk. A seed repeats a run.
 *
 * Always checked: a Sentinel never answers two votes for one epoch, not even across a crash; no epoch has two elected
 * leaders. At the end all faults are repaired, and all must agree on one primary that all replicas follow. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* One life of a group. Returns false and fills `failure` if something was wrong. */
bool sim_play(uint64_t seed, char failure[static 320], bool verbose, unsigned *failovers);
