# Full copies of a data set that changes meanwhile, for suites of full synchronizations: the state of the servers, and
# writes before and during a copy. Suites source this file.

proc link_up {level} {expr {[field $level master_link_status] eq "up"}}
proc saving {level} {field $level rdb_bgsave_in_progress persistence}
proc wait_up {level} {wait_for_condition 30000 {[link_up $level]} "the replica is not in sync"}
proc wait_same {a b} {wait_for_condition 30000 {[r $a debug digest] eq [r $b debug digest]} "the data differ"}
# The replica leaves its history, so that it needs a full copy.
proc leave {level} {
    r $level replicaof no one
    r $level flushall
    r $level set own history
}
proc fill {level} {
    r $level flushall
    r $level debug populate 3000 small 50
    r $level debug populate 200 large 20000
    r $level rpush list {*}[lrepeat 500 element]
    r $level hset hash f v g [string repeat y 5000]
    r $level zadd zset 1 a 2.5 b
    r $level sadd set a b c 1 2 3
    r $level xadd stream 1-1 field value
    r $level set expiring v ex 10000
    r $level select 3
    r $level set other database
    r $level select 0
}
# Changes keys that the save has written and others that it has not.
proc change {level round} {
    for {set i $round} {$i < 3000} {incr i 97} {r $level set small:$i changed.$round}
    for {set i $round} {$i < 200} {incr i 23} {r $level append large:$i $round}
    r $level rpush list $round
    r $level hset hash f $round
    r $level del expiring
    r $level set new.$round [string repeat $round 2000]
}
