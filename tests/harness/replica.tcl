# A replica that sends and reads raw bytes, for suites about primaries.
#
#   set c [replica_connect ?option value ...?]    sends REPLCONF with these options, {capa eof capa psync2} by default
#   replica_sync $c ?id offset?                    sends PSYNC and returns the first line of the reply, without the
#                                                  newlines that keep the link alive
#   replica_payload $c                             returns the RDB file that follows, without its length or end mark
#   replica_full_sync ?option value ...?           all of these steps: {client id offset payload}, acknowledged
#   replica_pull ?level?                           a replica that fetches the snapshot by RDMA READ: returns the client
#                                                  after +FULLRESYNC
#   replica_ack $c offset ?fsynced?
#   replica_stream $c bytes                        reads this number of bytes of the stream
#   replica_commands $c                            returns the commands up to a mark that only the test publishes,
#                                                  without PING and REPLCONF

set ::replica_mark 0

proc replica_connect {args} {
    set c [new_client]
    if {![llength $args]} {set args {capa eof capa psync2}}
    assert_equal OK [$c replconf {*}$args]
    return $c
}

proc replica_pull {{level 0}} {
    set c [new_client -level $level -deferring 1]
    foreach option {{capa eof} {capa psync2} {capa rdma-pull} {version 9.1.0} {listening-port 1}} {
        $c replconf {*}$option
        assert_equal OK [$c -read]
    }
    $c psync ? -1
    assert_match "FULLRESYNC *" [$c -read]
    return $c
}

proc replica_line {c} {
    while {[set line [$c -readline]] eq ""} {}
    return $line
}

proc replica_sync {c {id ?} {offset -1}} {
    $c -send psync $id $offset
    return [replica_line $c]
}

proc replica_payload {c} {
    set head [replica_line $c]
    if {[regexp {^\$EOF:([0-9a-f]{40})$} $head -> mark]} {
        set bytes ""
        while {[string range $bytes end-39 end] ne $mark} {append bytes [$c -readraw 1]}
        return [string range $bytes 0 end-40]
    }
    if {![regexp {^\$(\d+)$} $head -> len]} {error "expected a full copy, got [printable $head]"}
    return [$c -readraw $len]
}

proc replica_ack {c offset {fsynced ""}} {
    $c -send replconf ack $offset {*}[expr {$fsynced eq "" ? {} : [list fack $fsynced]}]
}

proc replica_full_sync {args} {
    set c [replica_connect {*}$args]
    set line [replica_sync $c]
    if {![regexp {^\+FULLRESYNC ([0-9a-f]{40}) (\d+)$} $line -> id offset]} {
        error "expected +FULLRESYNC, got [printable $line]"
    }
    set payload [replica_payload $c]
    # An acknowledgement may be lost before the primary has noticed the end of its child.
    wait_for_condition 10000 {"wait_bgsave" ni [lmap line [replica_lines] {dict get $line state}]}
    replica_ack $c $offset
    return [list $c $id $offset $payload]
}

proc replica_stream {c bytes} {$c -readraw $bytes}

proc replica_commands {c} {
    set mark [incr ::replica_mark]
    r publish replica:mark $mark
    set out {}
    while {1} {
        set got [$c -read]
        switch -exact -- [string tolower [lindex $got 0]] {
            publish {
                if {[lrange $got 1 2] eq [list replica:mark $mark]} break
                if {[lindex $got 1] eq "replica:mark"} continue
            }
            ping - replconf continue
        }
        lappend out $got
    }
    return $out
}

# Reads the stream up to this command.
proc replica_commands_until {c command} {
    while {[$c -read] ne $command} {}
}

# The position of the stream, and the lines of the replicas in INFO: a list of dictionaries.
proc repl_offset {} {info_field replication master_repl_offset}
proc replica_lines {} {
    set lines {}
    dict for {field value} [info_dict [r info replication]] {
        if {![regexp {^slave\d+$} $field]} continue
        set line {}
        foreach pair [split $value ,] {lappend line {*}[split $pair =]}
        lappend lines $line
    }
    return $lines
}
proc replica_leaves {c} {
    $c -close
    wait_replicas 0
}
proc wait_replicas {count} {
    wait_for_condition 10000 {[info_field replication connected_slaves] == $count} {
        fail "expected $count replicas: [r info replication]"
    }
}
