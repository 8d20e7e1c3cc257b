# The propagation and the keyspace events of writes.
#
#   set f [new_follower]      receives the commands that are propagated to replicas and the append-only file
#   set e [new_listener]      receives keyspace events; notify-keyspace-events selects which
#   heard $f                  everything received since the last call: a list of commands, or of {event key}
#
# For a genuine server the follower acts as a replica.

set ::follow_mark 0

proc new_follower {} {
    set c [new_client]
    if {[server_is_ours]} {
        $c debug follow
    } else {
        r config set repl-diskless-sync no
        $c -write [resp_command psync ? -1]
        while {![string match {$*} [set l [$c -readline]]]} {
            if {[string match -* $l]} {error "the server takes no replica: $l"}
        }
        $c -readraw [string range $l 1 end]
    }
    return $c
}
proc new_listener {} {
    set c [new_client]
    $c subscribe follow:mark
    $c psubscribe __keyevent@*
    return $c
}

# Both end with a message that only the test sends.
proc heard {client} {
    set mark [incr ::follow_mark]
    r publish follow:mark $mark
    set out {}
    while {1} {
        set got [$client -read]
        switch -glob -- [string tolower [lindex $got 0]] {
            publish {if {[lindex $got 2] == $mark} break}
            message {if {[lindex $got 2] == $mark} break}
            pmessage {lappend out [list [regsub {^__keyevent@\d+__:} [lindex $got 2] ""] [lindex $got 3]]}
            select - ping - replconf {}
            default {lappend out $got}
        }
    }
    return $out
}
