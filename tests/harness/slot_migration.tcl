# Slots that move as a whole, between the nodes of a cluster of cluster.tcl.

# The newest job that node i shows.
proc migration {i} {lindex [n $i cluster getslotmigrations] 0}
proc migration_is {i state} {
    wait_for_condition 20000 {[dict get [migration $i] state] eq $state} {
        fail_assertion "node $i: no migration is in state $state: [migration $i]"
    }
}
proc migrate {from to args} {n $from cluster migrateslots slotsrange {*}$args node [node_id $to]}
# A migration from node 0 to node 1 that has copied everything and waits.
proc migrate_and_wait {args} {
    n 0 debug slotmigration prevent-pause 1
    migrate 0 1 {*}$args
    migration_is 0 waiting-to-pause
    migration_is 1 waiting-for-paused
}
proc migration_ends {state} {
    n 0 debug slotmigration prevent-pause 0
    migration_is 0 $state
}
proc key_in {slot name} {return [slot_tag $slot]$name}
# Keys of all types in a slot.
proc fill_slot {i slot} {
    n $i set [key_in $slot string] hello
    n $i set [key_in $slot number] 12 ex 10000
    n $i rpush [key_in $slot list] {*}[lrepeat 300 element]
    n $i sadd [key_in $slot set] a b c
    n $i sadd [key_in $slot ints] 1 2 3
    n $i zadd [key_in $slot zset] 1.5 a 2 b
    n $i hset [key_in $slot hash] f v g w
    n $i hsetex [key_in $slot expiring] ex 10000 fields 1 f v
    n $i xadd [key_in $slot stream] 1-1 f v
    n $i xgroup create [key_in $slot stream] group 0
    n $i set [key_in $slot large] [string repeat x 300000]
}
proc digests {i slot} {
    lmap name {string number list set ints zset hash expiring stream large} {
        list [n $i debug digest-value [key_in $slot $name]]
    }
}

proc node_info {i section} {
    set fields {}
    foreach line [split [n $i info $section] \n] {
        if {[regexp {^([^:]+):(.*?)\r?$} $line -> name value]} {dict set fields $name $value}
    }
    return $fields
}
