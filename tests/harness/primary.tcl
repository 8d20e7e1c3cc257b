# A primary in Tcl: it accepts the connections of a replica and sends the bytes of the replication protocol that a test
# chooses. Every wait ends with an error after 30 seconds.

namespace eval primary {
    variable listener "" accepted {} tick 0
    variable S ;# bytes received and not read, for each channel
}

# Listens; returns the port.
proc primary_listen {} {
    primary_close
    set primary::listener [socket -server primary::accept -myaddr 127.0.0.1 0]
    lindex [fconfigure $primary::listener -sockname] 2
}
proc primary_close {} {
    foreach chan [array names primary::S] {primary_drop $chan}
    if {$primary::listener ne ""} {close $primary::listener}
    set primary::listener ""
    set primary::accepted {}
}
proc primary::accept {chan host port} {
    fconfigure $chan -translation binary -blocking 0 -buffering none
    set primary::S($chan) ""
    lappend primary::accepted $chan
}
proc primary::await {what condition} {
    set deadline [resp::deadline 30000]
    while {![uplevel 1 [list expr $condition]]} {
        after 2 {set primary::tick 1}
        vwait primary::tick
        if {[clock milliseconds] > $deadline} {error "the scripted primary waited too long for $what"}
    }
}
# The next connection of the replica.
proc primary_accept {} {
    primary::await "a connection" {[llength $primary::accepted] > 0}
    set primary::accepted [lassign $primary::accepted chan]
    return $chan
}
proc primary_drop {chan} {
    catch {close $chan}
    unset -nocomplain primary::S($chan)
}
proc primary_send {chan bytes} {
    puts -nonewline $chan $bytes
    flush $chan
}
proc primary::fill {chan} {
    append primary::S($chan) [read $chan]
    eof $chan
}
# The next command of the replica, as a list of arguments. Newlines, which the replica sends as keepalives, are skipped.
proc primary_command {chan} {
    set words ""
    primary::await "a command" \
        {[primary::fill $chan; set primary::S($chan) [string trimleft $primary::S($chan) \r\n]; primary::parse\
        $chan words]}
    return $words
}
proc primary::parse {chan name} {
    upvar 1 $name words
    set bytes $primary::S($chan)
    if {[regexp {^([A-Z]+)\r\n} $bytes whole word]} { ;# SYNC
        set words [list $word]
        set primary::S($chan) [string range $bytes [string length $whole] end]
        return 1
    }
    if {![regexp {^\*(\d+)\r\n} $bytes whole count]} {return 0}
    set at [string length $whole]
    set found {}
    for {set i 0} {$i < $count} {incr i} {
        if {![regexp -start $at {\A\$(\d+)\r\n} $bytes whole len]} {return 0}
        incr at [string length $whole]
        if {[string length $bytes] < $at + $len + 2} {return 0}
        lappend found [string range $bytes $at [expr {$at + $len - 1}]]
        incr at [expr {$len + 2}]
    }
    set words $found
    set primary::S($chan) [string range $bytes $at end]
    return 1
}
# Reads commands up to the first one that starts with `words`, and returns it.
proc primary_await {chan args} {
    while 1 {
        set words [primary_command $chan]
        if {[lrange $words 0 [expr {[llength $args] - 1}]] eq $args} {return $words}
    }
}
# The replica closes its connection.
proc primary_await_close {chan} {
    primary::await "the end of the connection" {[primary::fill $chan]}
    primary_drop $chan
}
# The handshake of the next connection up to PSYNC, which is returned.
proc primary_handshake {chanvar} {
    upvar 1 $chanvar chan
    set chan [primary_accept]
    assert_equal PING [primary_command $chan]
    primary_send $chan "+PONG\r\n"
    while {[lindex [set words [primary_command $chan]] 0] in {REPLCONF AUTH}} {primary_send $chan "+OK\r\n"}
    assert_equal PSYNC [lindex $words 0]
    return $words
}
# The replica leaves this primary and becomes one itself.
proc lead {} {
    r replicaof no one
    primary_close
}
