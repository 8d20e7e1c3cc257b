# Rows: properties that all commands have, in a table with one row for each command. The suite command-table checks
# them; the rows are in tests/integration/command-table/.
#
#   rows GROUP {
#       lpush {
#           given {{rpush k a}} call {lpush k b c} gives :3
#           missing :2 events {{l lpush k}}
#       }
#       {lpush, twice} { ... }         another example of the same command: the name ends before the comma
#   }
#
# Every example starts with an empty database.
#
#   given     commands that prepare the data
#   call      the example
#   gives     its reply in RESP2, typed as by resp.tcl; gives3 in RESP3 if that differs. `like` and `like3` have a glob
#             pattern instead
#   missing   its reply without the commands of `given`, missing3 in RESP3 if that differs; omitted if the call needs no
#             existing key
#   takes     pairs of a key of the call and the types that it may have (any: all types). A key that is not listed has
#             the type of the group. (HyperLogLogs have none: the command rejects other strings like other types.)
#   refuses   the error for a key of another type, if it is not the usual one
#   events    the keyspace events, in order: {class event key}; default: none
#   repeats   patterns of the commands that are propagated; default: the call itself if it writes, otherwise nothing
#   needs     as -needs of a test

set ::row_types {string {set %k v} list {rpush %k v} set {sadd %k v} zset {zadd %k 1 v} hash {hset %k f v} stream\
    {xadd %k * f v}}
set ::row_type_of {string string bitmap string hyperloglog none list list set set sorted-set zset geo zset hash hash\
    stream stream generic any}
set ::row_classes {g $ l s h z t x e d n m}

proc rows {group table} {
    dict for {name row} $table {
        if {[dict exists $::row $name]} {error "two rows for $name"}
        dict set ::row $name [dict merge {given {} events {} needs {}} $row [list group $group]]
    }
}
set ::row [dict create]

# The command of a row, with its name in COMMAND LIST.
proc row_command {name} {lindex [split $name ,] 0}

# Empties the database and prepares the data of the row.
proc row_prepare {row {given 1}} {
    r flushall
    if {$given} {foreach command [dict get $row given] {r {*}$command}}
}
proc row_keys {row} {
    if {[catch {r command getkeys {*}[dict get $row call]} keys]} {return {}}
    return $keys
}
proc row_takes {row key} {
    if {[dict exists $row takes $key]} {return [dict get $row takes $key]}
    return [dict get $::row_type_of [dict get $row group]]
}
# True: a key of the row must have a certain type.
proc row_is_typed {row} {
    foreach key [row_keys $row] {if {[row_takes $row $key] ne "any"} {return 1}}
    return 0
}

# Runs the call with each key in turn set to each type; returns a list of {key type reply}.
proc row_with_types {row} {
    set out {}
    foreach key [lsort -unique [row_keys $row]] {
        foreach {type make} $::row_types {
            if {[unmet_need [list command [lindex $make 0]]] ne ""} continue
            row_prepare $row
            r del $key
            r {*}[string map [list %k $key] $make]
            lappend out $key $type [r -typed {*}[dict get $row call]]
        }
    }
    return $out
}
# The events of the call among these classes.
proc row_events {row listener classes} {
    row_prepare $row
    heard $listener
    r config set notify-keyspace-events E[join $classes ""]
    catch {r {*}[dict get $row call]}
    r config set notify-keyspace-events ""
    return [heard $listener]
}
proc row_repeats {row follower} {
    row_prepare $row
    heard $follower
    catch {r {*}[dict get $row call]}
    return [heard $follower]
}
