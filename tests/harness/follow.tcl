# What a write propagates, and which keyspace events it emits.
#
#   set f [new_follower]      hears what is propagated: replicas and the append only file would get the same
#   set e [new_listener]      receives keyspace events; notify-keyspace-events selects which
#   heard $f                  all that came since it was asked last: a list of commands; of {event key}
#
# A follower of a genuine server is a replica as far as the stream goes.

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

# Both end with a message that only we send.
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
